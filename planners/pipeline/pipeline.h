/* The pipeline planner: which devices run a sequence model, in which order, with which layers, and
 * how a prompt is cut along its tokens so that its slices flow through the stages (HPipe, NAACL
 * 2024, sections 3.2-3.4, and better).
 *
 * This is the one header that others include. Everything here is a pure function of its arguments:
 * no I/O, no clock but the `env` that is handed in (only for the seconds that the solver reports),
 * the same answer for the same request and seed. The work is bounded by counts of evaluations,
 * never by time. Calls may run on several threads at once; none blocks.
 *
 * The time of a plan is that of the exact flow (flow.h): a slice starts on a stage when the stage
 * is free and the slice is there; each hop is a queue of its own that overlaps with compute. Units:
 * seconds, bytes, tokens; `batch` is the sequences that go together. */
#ifndef HP_PLANNERS_PIPELINE_PIPELINE_H
#define HP_PLANNERS_PIPELINE_PIPELINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/cluster.h"
#include "common/env.h"
#include "common/plan.h"
#include "common/profile.h"
#include "common/status.h"

enum pipeline_objective {
    PIPELINE_LATENCY,    /* time to the first token: the makespan of one prompt */
    PIPELINE_THROUGHPUT, /* many requests after each other: the busiest stage or hop per prompt with
                            its `decode_tokens` */
    PIPELINE_ENERGY,     /* joules per prompt, from the devices' busy and idle watts */
};

enum pipeline_method {
    PIPELINE_EXACT, /* joint search over devices, order, cuts and slices under the exact flow */
    PIPELINE_HPIPE, /* the two published programmes on the given order of devices */
    PIPELINE_EVEN,  /* the paper's Base: equal numbers of layers, the whole prompt as one slice */
    PIPELINE_GPIPE, /* micro-batches */
    PIPELINE_TERAPIPE, /* equal numbers of layers, slices by TeraPipe's programme */
    PIPELINE_TP,       /* tensor parallel within a node, micro-batches between nodes */
};

enum pipeline_partition { PIPELINE_PARTITION_EVEN, PIPELINE_PARTITION_BALANCED };

/* The words of the two enums above, in their order, NULL at the end. */
extern const char *const pipeline_objective_names[];
extern const char *const pipeline_method_names[];
extern const char *const pipeline_partition_names[];

/* Zero is a sensible value of every member but the first three. */
struct pipeline_request {
    const struct cluster *cluster;
    const struct profile *profile;
    int tokens;   /* of each prompt, at least 1 */
    double batch; /* sequences of `tokens` that go together; 0: the profile's */
    int unit;     /* slices are multiples of it, the last takes the rest; 0: pipeline_unit */
    enum pipeline_objective objective;
    enum pipeline_method method;
    enum pipeline_partition partition; /* PIPELINE_GPIPE: of layers */
    int micro_batches; /* PIPELINE_GPIPE, PIPELINE_TP; 0: the batch, rounded, at least 1 */
    uint64_t seed;
    /* KV cache to keep room for on every stage: tokens of one sequence, and sequences. 0: `tokens`,
     * `batch`. */
    double context_tokens, sequences;
    /* Only these devices of the cluster, each of them one stage, in this order; NULL: as the method
     * chooses, of those whose memory is not below 0. */
    const int *devices;
    int n_devices;
    const int *layer_ends; /* with `devices`: where each stage's layers end; the last is the model's
                              number of layers. NULL: free */
    int decode_tokens;     /* that each request makes after its prompt, one a step; counts for
                              throughput and for the KV cache */
    int cached_tokens; /* prompt tokens that are cached already, before `tokens`; slices start at
                          this prefix */
    int max_slice; /* tokens that a stage runs at once: longer slices run in pieces, cost what these
                      cost, and are cut into them in the answer; 0: any */
    /* Bytes that a stage holds beside its layers: one that hands on, and the last. */
    double hands_on_bytes, last_bytes;
    double effort; /* of the exact search, 1 the usual; 0: 1 */
    bool brief;    /* no `why` beyond warnings: leaves out the comparisons with other plans, for a
                      planner in a hurry */
    const struct env *env; /* for solver seconds; NULL: they are 0 */
};

/* When every piece of a plan runs, for pictures and for comparing with what was measured. All
 * arrays are [stage * n_slices + slice]; hop j goes from stage j to j + 1 and the last stage's row
 * is unused. */
struct pipeline_schedule {
    int n_stages, n_slices;
    double *start_s, *end_s;         /* compute */
    double *hop_start_s, *hop_end_s; /* on the wire; arrival is `latency_s` later */
    double *latency_s;               /* [stage] */
};

/* Of one stage; of each device of it where it runs on several. */
struct pipeline_stage_figures {
    double weight_bytes, kv_bytes, activation_bytes, free_bytes;
    double share; /* of the busiest stage's compute time */
};

/* All in the arena but `document`. */
struct pipeline_answer {
    struct plan_pipeline plan;
    struct pipeline_stage_figures *stages; /* [plan.n_stages] */
    struct pipeline_schedule schedule;
    double makespan_s, energy_j, prompts_per_s;
    double requests_per_s; /* prompts with their `decode_tokens`; as prompts_per_s where there are
                              none */
    double decode_step_s;  /* one token of each of `batch` sequences through all stages, after
                              `tokens` */
    double decode_tokens_per_s; /* with as many groups in flight as stages: batch / the slowest
                                   stage or hop of a step */
    double bound, gap; /* on the objective (seconds per prompt for throughput); NAN where nothing
                          was proved */
    const char **warnings; /* what the user should know: extrapolated, devices that the profile does
                              not know */
    int n_warnings;
    json_t *document; /* the plan as hp-plan/1, without `inputs`; the caller's to json_decref */
};

/* Makes a plan. HP_EINVAL: a request that makes no sense; HP_EINFEASIBLE: no plan exists, and the
 * text says what does not fit; HP_ELIMIT: more devices than PIPELINE_MAX_DEVICES; HP_ENOMEM. On
 * failure nothing is left to release but the arena. */
int pipeline_plan_make(const struct pipeline_request *rq, struct arena *arena,
                       struct pipeline_answer *out, struct err *e);

/* Judges a plan, whoever made it: devices, layers, memory, slices and links, and the exact flow's
 * time. `rq` gives cluster, profile, tokens and batch (0: what the plan says, else the profile's;
 * its method, unit, objective and devices are not used). *report, the caller's to json_decref, is
 * {"valid", "violations": [], "makespan_s", "predicted_makespan_s", "energy_j", "prompts_per_s",
 * "stages": [{"device", "layers", "compute_s", "memory_bytes", "free_bytes"}]}. A plan that breaks
 * a rule is a success with "valid" false, one that cannot be read HP_EPARSE. */
int pipeline_plan_check(const struct pipeline_request *rq, const struct json_at *plan,
                        json_t **report, struct err *e);

/* What slices are multiples of where the request does not say: 16 tokens, or the shortest useful
 * slice that the profile was measured to have, if that is more, but no more than an eighth of the
 * prompt; of that as many whole steps of the profile's tables as there are, at least one. */
int pipeline_unit(const struct pipeline_request *rq);

enum { PIPELINE_MAX_DEVICES = 512, PIPELINE_MAX_UNITS = 512, PIPELINE_DEFAULT_UNIT = 16 };

#endif
