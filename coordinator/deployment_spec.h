/* What a deployment was asked for with: its options, read. */
#ifndef HP_COORDINATOR_DEPLOYMENT_SPEC_H
#define HP_COORDINATOR_DEPLOYMENT_SPEC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/status.h"
#include "coordinator/model_facts.h"
#include "transport/frame.h"

enum {
    DEPLOYMENT_TEXT_TOKENS = 8192,  /* of an encoder's text, unless slices are larger */
    DEPLOYMENT_BATCH_TOKENS = 512,  /* of one batch, unless slices are larger */
    DEPLOYMENT_MAX_SEQUENCES = 256, /* open at once */
    DEPLOYMENT_MOST_WEIGHT = 1000,
};
#define DEPLOYMENT_LEAST_WEIGHT 0.001

/* One stage as --layers or --agents names it. */
enum { DEPLOYMENT_RANGE_AGENT = 160 };
struct deployment_range {
    char agent[DEPLOYMENT_RANGE_AGENT]; /* an agent's name (without layers: a stage on each of its
                        devices), or the id of a device ("node/device"; of a paced agent: of the
                        device that it stands for) */
    int first, end;                     /* [first, end); both 0 when only the agent is named */
};

/* When a deployment looks for a better place by itself: never; where what it lies on has become far
 * worse (degraded.h); also where agents have come. */
enum rebalancing { REBALANCING_OFF, REBALANCING_DEGRADED, REBALANCING_AUTO };

struct deployment_spec {
    json_t *options; /* as they came */
    struct deployment_range *ranges;
    int n_ranges, room_ranges;
    bool with_layers;
    uint64_t max_context;   /* 0: as much as fits */
    uint64_t max_sequences; /* open at once; 0: as many as their KV memory is good for */
    uint64_t slice;         /* 0: the planner decides */
    uint64_t expert_groups; /* layers are those of a model divided so (model_open_divided), whatever
                               fits; 0: it is divided where nothing fits without */
    uint64_t replicate_kv;  /* keys and values of sequences of so many tokens are copied to another
                               deployment of the model (replication.h); 0: of none */
    uint64_t copies;        /* of each layer, in agents' stores: 1 or 2 (copies.h) */
    double weight;          /* of its share of the devices that others use, too */
    double ttft_s, tpot_s;  /* to the first token, and for each after it (targets.h); 0: any */
    bool f32, upload_only;
    /* Whether prompts that begin alike share what is computed: those of one API key, of all, none.
     */
    enum { PREFIX_CACHE_ON, PREFIX_CACHE_SHARED, PREFIX_CACHE_OFF } prefix_cache;
    enum kv_format kv; /* as what keys and values are kept */
    enum speculate speculate;
    enum rebalancing rebalances; /* by itself (rebalance_watch.h) */
    enum frame_dtype wire;       /* as what activations cross between stages */
    bool wire_auto;              /* f16 where the plan has a hop that its link holds up, else f32 */
    /* Of a plan that was given (option "plan", hp-plan/1): its stages are `ranges`, their agents
     * named by device. */
    bool planned;
    uint32_t *slices; /* for prompts of `plan_tokens`; NULL: the plan leaves them open */
    uint32_t n_slices, plan_tokens;
    double micro_batches;                     /* 0: none */
    const char *source_machine, *source_path; /* in options; "" when not given */
    const char *succeeds;   /* the deployment whose place it is to take (successors.h); "": none */
    const char *prefill_kv; /* as what these keep keys and values, in options; "": as `kv` */
    const char *prefill;    /* agents that read its prompts, in options; "": its own; "auto": as
                               the planner says (deployment_readers) */
    bool decode_auto;       /* the planner chooses who answers among the others */
    const char *replicate_to; /* who keeps these copies without weights (keeper_plans.h), in
                                 options: an agent or device, "auto"; "": another deployment does */
    const char *copy_of;      /* the deployment whose copies it keeps; "": none, it has weights */
    const char *prefill_of; /* the deployment whose prompts it reads (prefill_plans.h); "": none */
};

/* One more stage: layers [first, end) on an agent whose name has `length` characters. */
int deployment_range_add(struct deployment_spec *s, const char *agent, size_t length, int first,
                         int end, struct err *e);
/* Tokens that its stages run at once, with a model of these facts. */
uint64_t deployment_spec_batch_tokens(const struct deployment_spec *s, const struct model_facts *f);
static inline const char *deployment_spec_compute(const struct deployment_spec *s)
{
    return s->f32 ? "f32" : "auto";
}
static inline bool deployment_reads_auto(const struct deployment_spec *s)
{
    return s->prefill && strcmp(s->prefill, "auto") == 0;
}
/* Whether it may go on over fewer agents than it has, or over others: it was given none by name, or
 * those that are left have the layers of the lost one, too. */
static inline bool deployment_spec_shrinks(const struct deployment_spec *s)
{
    return s->n_ranges == 0 || (s->copies > 1 && !s->with_layers);
}
void deployment_spec_free(struct deployment_spec *s);

#endif
