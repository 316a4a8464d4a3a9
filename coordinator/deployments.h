/* From spec to serving and back: the life of a deployment and of its generations. deployments.c has
 * the states and their transitions, stages.c what passes between a deployment and the agents of its
 * plan, deployment_record.c its spec, its record in the store, and what people see of it. */
#ifndef HP_COORDINATOR_DEPLOYMENTS_H
#define HP_COORDINATOR_DEPLOYMENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/machine.h"
#include "common/status.h"
#include "coordinator/core.h"
#include "transport/message.h"

struct core;
struct core_model_slot;
struct member;
struct placement;
struct placing;
struct planner_inputs;
struct sequence;
struct slices;
struct truth;

enum deployment_state {
    DEPLOYMENT_PLANNED,   /* wants a plan: waits for the model and for measurements */
    DEPLOYMENT_PREPARING, /* its agents fetch and load */
    DEPLOYMENT_READY,     /* every stage is there; being wired */
    DEPLOYMENT_SERVING,
    DEPLOYMENT_BROKEN, /* something that it needs is gone; tried again when that may have changed */
    DEPLOYMENT_STOPPING,
    DEPLOYMENT_STOPPED,
    DEPLOYMENT_STATE_COUNT
};
extern const struct machine_state deployment_states[];

enum {
    DEPLOYMENT_NAME = 64,
    DEPLOYMENT_BATCH_TOKENS = 512, /* of one batch, unless slices are larger */
    DEPLOYMENT_KV_ROUND = 64, /* KV is reserved in steps of so many tokens; a stage keeps one such
                                 step more for each sequence */
    DEPLOYMENT_SEQUENCE_TOKENS =
        512, /* what a sequence is taken to need where nobody said how many may be open */
    DEPLOYMENT_SEQUENCES = 32, /* open at once, where nobody said */
    DEPLOYMENT_MAX_SEQUENCES = 256,
    DEPLOYMENT_STOP_MS = 5000,   /* how long unloading may take before nobody waits for it */
    DEPLOYMENT_GROW_MS = 5000,   /* how long nothing has run, and an agent has been back, before a
                                    deployment grows back */
    DEPLOYMENT_DRAIN_MS = 30000, /* how long open sequences may hold up a drain */
    DEPLOYMENT_SETTLE_MS =
        2000, /* how old an order must be before a heartbeat that does not show it counts */
    DEPLOYMENT_RETRY_MS = 5000,   /* after a failure; doubles up to a minute */
    DEPLOYMENT_UPLOAD_MS = 15000, /* without progress: the upload is asked for again */
    DEPLOYMENT_PROGRESS_MS = 100, /* between two progress answers */
};

/* One stage as --layers or --agents names it. */
struct deployment_range {
    char agent[160]; /* an agent's name, or the id of its device ("node/device"; of a paced agent:
                        of the device that it stands for) */
    int first, end;  /* [first, end); both 0 when only the agent is named */
};
struct deployment_spec {
    json_t *options; /* as they came */
    struct deployment_range *ranges;
    int n_ranges;
    bool with_layers;
    uint64_t max_context;   /* 0: as much as fits */
    uint64_t max_sequences; /* open at once; 0: as many as their KV memory is good for */
    uint64_t slice;         /* 0: the planner decides */
    bool f32, upload_only;
    /* Of a plan that was given (option "plan", hp-plan/1): its stages are `ranges`, their agents
     * named by device. */
    bool planned;
    uint32_t *slices; /* for prompts of `plan_tokens`; NULL: the plan leaves them open */
    uint32_t n_slices, plan_tokens;
    double micro_batches;                     /* 0: none */
    const char *source_machine, *source_path; /* in options; "" when not given */
};

enum stage_status { STAGE_UNTOLD, STAGE_WORKING, STAGE_HERE };
struct deployment_stage {
    struct member *agent;
    int first_layer, end_layer;
    double compute_s, memory_bytes; /* predicted: of the plan's prompt; weights and KV */
    uint64_t input_session; /* token of the frames that come to it, of this generation; 0 where none
                               come */
    enum stage_status status;
    bool hop_heard; /* it hears the stage before it over the data channel (hops.h) */
    char word[16];  /* the agent's own */
    uint64_t done_bytes, total_bytes, moved_bytes;
    uint64_t told_ns;                  /* when stage_prepare was sent last */
    uint64_t batches_done, batches_ns; /* as heartbeats tell, and when that last changed */
    bool running;                      /* works on a batch */
    /* Chunks that somebody must upload, and those that were asked of hpctl with this token. */
    uint32_t *wanted, *asked;
    size_t n_wanted, n_asked;
    uint64_t upload_session, progress_ns;
};

struct deployment {
    char name[DEPLOYMENT_NAME];
    uint64_t id, created_s;
    int state;
    struct deployment_spec spec;
    struct core_model_slot *model;
    uint64_t generation, session;
    struct deployment_stage *stages; /* none before the first plan */
    int n_stages;
    json_t *plan;         /* hp-plan/1 */
    uint64_t plan_tokens; /* of the prompt that it was made for */
    json_t *served;       /* the layout that served last (deployment_layout); NULL: never served */
    json_t *wish; /* the layout that it had before it lost agents (deployment_grow.c); NULL: none */
    json_t *fallback; /* while it grows back: what to serve on if that fails */
    uint64_t busy_ns; /* when something ran, or waited, last */
    uint64_t context, kv_tokens, max_sequences, max_batch_tokens;
    struct err why;  /* why it does not serve */
    bool retry;      /* broken: something has changed that may help */
    bool recovering; /* after a restart of the coordinator: its agents are given time to come */
    enum {
        DEPLOYMENT_STAYS,
        DEPLOYMENT_LEAVES_ASKED,
        DEPLOYMENT_LEAVES
    } leaves;      /* what is known of moving away from an agent (drain.h) */
    bool unclosed; /* a stage may hold sequences that are closed here (a message was lost): it is
                      connected anew when nothing runs */
    bool moving;   /* to be rewired once its sequences have ended (drain) */
    uint64_t since_ns;         /* of this state */
    uint64_t until_ns;         /* a deadline of this state; 0: none */
    uint64_t profile_until_ns; /* measurements were asked for until then; 0: not asked */
    unsigned failures;         /* in a row */

    uint64_t listener_peer, listener_ask; /* who hears of the progress; 0: nobody */
    uint64_t told_ns;                     /* when it heard last */
    uint64_t stop_peer, stop_ask;         /* who asked to undeploy */

    uint64_t next_sequence;
    struct sequence *active, *waiting_first, *waiting_last;
    uint32_t n_active, n_waiting;
    double ran_s; /* how long sequences ran lately (shares.h); 0: none yet */
    uint64_t kv_reserved;
    uint64_t overdue_ns;           /* before then no sequence's time is up */
    struct planner_inputs *inputs; /* of the last planning; NULL: none so far */
    struct placing
        *placing;      /* its plan, being made or waiting to be taken (placement.h); NULL: none */
    bool placed;       /* it waits */
    unsigned outdated; /* plans in a row that something changed under */
    struct slices *slices; /* for prompts of every length (slices.h); NULL: none so far */
    struct truth
        *truth; /* what its prompts took, beside what was expected (truth.h); NULL: none so far */
};

struct deployment *deployment_find(struct core *c, const char *name);
struct deployment *deployment_of_id(struct core *c, uint64_t id);

/* ---- deployments.c ---- */

/* `deploy {name, options}`: makes one, or goes on with one of this name and model that does not
 * serve. Answers go to (peer, ask) as it proceeds. */
int deployments_deploy(struct core *c, uint64_t peer, uint64_t ask, const char *name,
                       json_t *options, struct pack_span manifest, struct err *e);
void deployments_undeploy(struct core *c, struct deployment *d, uint64_t peer, uint64_t ask);
void deployments_member_joined(struct core *c, struct member *m);
void deployments_member_ready(struct core *c, struct member *m);
void deployments_member_lost(struct core *c, struct member *m, const char *why);
void deployments_member_drains(struct core *c, struct member *m);
void deployments_member_stays(struct core *c, struct member *m); /* its draining was taken back */
void deployments_peer_gone(struct core *c, uint64_t peer);       /* hpctl went away */
/* Takes every deployment as far as it can go now. */
void deployments_advance(struct core *c);
/* It can not go on as it is: ends its sequences, and plans anew. */
void deployment_break(struct core *c, struct deployment *d, const struct err *why);
/* An attempt to prepare it failed: tells who asked, and gives up where it has never served, else
 * tries again later. */
void deployment_fail(struct core *c, struct deployment *d, const struct err *why);
bool deployments_use_member(struct core *c, const struct member *m);
void deployment_free(struct deployment *d);

/* ---- deployment_grow.c ---- */

/* It is planned anew although it served: that layout is wished back. */
void deployment_wish(struct deployment *d);
void deployment_wish_forget(struct deployment *d);
void deployment_wish_served(struct deployment *d); /* it serves; `served` is set */
/* True when it was growing back: what it served on before is to be tried again. */
bool deployment_wish_failed(struct deployment *d);
/* A step of one that serves. */
void deployment_grow(struct core *c, struct deployment *d);

/* ---- stages.c ---- */

void stages_free(struct deployment *d);
/* Takes over a placement as the next generation. */
int stages_adopt(struct core *c, struct deployment *d, const struct placement *p, struct err *e);
struct deployment_stage *stages_of_member(struct deployment *d, const struct member *m);
void stages_prepare(struct core *c,
                    struct deployment *d); /* tells those that are untold and can hear */
bool stages_all_here(const struct deployment *d);
void stages_connect(struct core *c, struct deployment *d);
void stages_uploads_end(struct core *c, struct deployment *d);
/* Asks hpctl for what no agent has; false when it is needed and nobody listens. */
bool stages_upload(struct core *c, struct deployment *d);
void stages_unload(struct core *c, const struct member *m, uint64_t deployment,
                   uint64_t generation);
void stages_stop(struct core *c, struct deployment *d);
/* What an agent says of its stages: in an event of its own, with every heartbeat, and when it
 * joins. */
void stages_state(struct core *c, struct member *m, const struct message_stage_state *s);
void stages_held(struct core *c, struct member *m);
void stages_joined(struct core *c, struct deployment *d, struct deployment_stage *s);
void stages_tell(struct core *c, struct deployment *d, bool now);

/* ---- deployment_record.c ---- */

/* One more stage: layers [first, end) on an agent whose name has `length` characters. */
int deployment_range_add(struct deployment_spec *s, const char *agent, size_t length, int first,
                         int end, struct err *e);
/* Tokens that its stages run at once. */
uint64_t deployment_batch_tokens(const struct deployment_spec *s);
/* Reads the plan of a spec's options into it. */
int deployment_plan_read(struct deployment_spec *s, struct err *e); /* deployment_plan.c */
int deployment_spec_read(json_t *options, struct deployment_spec *out,
                         struct err *e); /* holds a reference of options */
void deployment_spec_free(struct deployment_spec *s);
/* Where its stages are, with plan and limits; and back, onto members that are there. False where
 * one of them is not, or is not to be used. */
json_t *deployment_layout(const struct deployment *d);
bool deployment_layout_usable(struct core *c, const json_t *layout);
int deployment_layout_set(struct core *c, struct deployment *d, const json_t *layout,
                          struct err *e);
void deployment_keep(struct core *c, const struct deployment *d);
int deployments_restore(struct core *c, const char *name, const json_t *record, struct err *e);
json_t *deployment_describe(const struct core *c, const struct deployment *d, bool with_plan);
json_t *deployment_stages_describe(const struct deployment *d);

#endif
