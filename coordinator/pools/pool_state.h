/* What is served by pools of devices (PPipe, USENIX ATC 2025, section 5): the workload that was
 * applied, the plan that serves it, the one that is made ready beside it, and the requests and
 * batches that are under way. Plain state; setters and freeing. On the core's thread. */
#ifndef HP_COORDINATOR_POOLS_POOL_STATE_H
#define HP_COORDINATOR_POOLS_POOL_STATE_H

#include "common/digest.h"
#include "common/map.h"
#include "common/workload.h"
#include "coordinator/infer_model.h"
#include "coordinator/pools/pool_requests.h"
#include "coordinator/requests.h"
#include "coordinator/state.h"
#include "planners/dispatch/dispatch.h"
#include "planners/pools/pools.h"
#include "transport/message.h"

struct model_slot;
struct pool_load;
struct pool_measuring;
struct pool_planning;

enum {
    POOL_MAX_SHARES = 1024,
    POOL_MAX_PEERS = 256,
    POOL_WHY = 200,
    POOL_MAX_TRIES = 3,           /* of a sample, where agents could not be reached */
    POOL_OVERHEAD_NS = 1000000,   /* on the way out and back, before it was measured */
    POOL_MOST_FLYING = 64,        /* batches at a share; it takes no more than four times as many */
    POOL_FLYING_BYTES = 16 << 20, /* beyond these but one at a time */
};

/* Of a model, since it was first applied. */
struct pool_counts {
    uint64_t arrived, on_time, late, dropped, failed, batches, batched;
    uint64_t total_ns, queue_ns, compute_ns; /* of those that were answered */
    uint64_t last_unix_s;
};

/* By how much results come later than computing ends, for all but one batch in a hundred. */
struct pool_overhead {
    int64_t ns;
    int in_row;        /* batches since one was later than that */
    int64_t latest_ns; /* of these */
};

struct pool_model {
    struct infer_model facts;
    char id[DIGEST_HEX];
    struct pack_span manifest;
    uint64_t file_bytes; /* of all its files */
    const char *source_path;
    struct message_dim *dims; /* sizes of free dimensions */
    int n_dims;
    const uint32_t *bounds; /* of blocks, in layers of the network; n_bounds 0: not known */
    int n_bounds, n_blocks;
    bool batches; /* the first dimension of all inputs and outputs is the batch */
    int unit;     /* samples that a request has where requests share no batches; else 1 */
    /* Of one whose requests are of several lengths: they are padded to the next of these. */
    const int64_t *lengths;              /* [n_lengths], the longest first */
    int n_lengths;                       /* 0: it has one size */
    const int *input_axes, *output_axes; /* which dimension is the length; -1: none */
    struct profile *profiles;            /* [n_lengths]; the first is empty: the workload has it */
    const char *mask;        /* the input that is 0 where a request was padded; "": not said */
    bool is_text;            /* a language model, whose inputs are made of texts */
    struct model_slot *slot; /* its tokenizer; NULL: it is none, or that could not be ... */
    struct err slot_error;   /* ... for this */
    struct pool_counts counts;
};

/* What was applied: shared by the plans that were made of it. */
struct pool_spec {
    int uses;
    struct arena arena;
    json_t *document; /* as it was asked for, and as it is kept */
    struct workload workload;
    struct pool_model *models; /* [workload.n_models] */
    const char *source_machine;
    const char *const *agents; /* [n_agents] that it may use; none: all */
    int n_agents;
    bool upload_only;
    enum pools_method method; /* of planning */
    uint64_t applied_s;       /* Unix time; 0: it was kept before that was noted */
};

enum pool_share_state { POOL_SHARE_UNTOLD, POOL_SHARE_WORKING, POOL_SHARE_READY, POOL_SHARE_LOST };

/* What is measured of a network on each device of a plan that serves nobody. */
struct pool_measure {
    struct pack_u32s batches, shares; /* as message_measure has them */
    uint64_t budget_ms;
};

/* Part of a device, in the order of the plan's topology. */
struct pool_share {
    struct member *agent; /* NULL: lost */
    int peer;             /* its agent's row */
    int device, model, pipeline, stage;
    unsigned parts, part;
    int first_block, end_block;
    double memory_bytes; /* that it holds, by the profile */
    enum pool_share_state state;
    char word[16]; /* the agent's own: stage_state, as people read it */
    uint64_t done_bytes, total_bytes, told_ns;
    uint32_t *wanted; /* chunks that nobody else can give */
    size_t n_wanted, room_wanted;
    uint64_t upload_session, asked_ns; /* when hpctl was asked for these; 0: not yet */
    uint64_t measure_id;               /* of the answers about what is measured */
    double planned_s, actual_s;        /* of the batches that it ran */
    uint64_t slow, fast;               /* of these, beyond the workload's replan_margin */
    double ratio_sum;                  /* of actual to planned, with that margin */
    uint64_t batches;
    int flying; /* batches that left for it as the first on their way, and their bytes */
    uint64_t flying_bytes;
    struct pool_batch *held, *held_last; /* those that wait for these, in order */
};

/* Who holds shares of a plan; row 0 is the coordinator. */
struct pool_peer {
    struct member *agent;
    uint64_t session; /* of the frames that go there */
};

struct pool_part { /* one sample of a request in a batch */
    uint64_t request;
    uint32_t sample;
};

struct pool_batch {
    uint32_t id;
    int line; /* of the plan */
    struct dispatch_path path;
    struct pool_part *parts;
    int n_parts;
    int64_t sent_ns;
    bool held, sent; /* it waits for its first share; it has left */
    uint64_t bytes;
    struct pool_batch *next_held;
    UT_hash_handle hh;
};

/* What the scheduler takes for a model: one of ours, in one of its lengths. Those of the longest
 * lengths come first, in the order of the workload. */
struct pool_line {
    int model, size;
};

struct pool_plan {
    uint64_t id; /* from the numbers of deployments */
    struct pool_spec *spec;
    struct dispatch_topology topology;
    struct dispatch *dispatch;
    struct pool_line *lines;            /* [topology.n_models] */
    json_t *report;                     /* hp-plan/1 */
    const struct pool_measure *measure; /* NULL: it serves */
    struct pool_share *shares;          /* [topology.n_shares] */
    struct pool_peer *peers;
    struct pack_span results; /* the coordinator's data address */
    int n_peers;
    bool lacks;                      /* an agent of it was lost */
    uint64_t members;                /* hash of the agents that it was made for */
    uint64_t session;                /* of chunks */
    struct pool_overhead *overheads; /* [line] */
    int *under_way;                  /* [line]: batches */
    struct pool_load *load;          /* what is asked of it; NULL: it does not serve yet */
    int64_t *wake_ns;                /* [line]: when the scheduler wants to be asked again */
    struct pool_batch *batches;
    int n_held;             /* of these */
    uint64_t since_ns;      /* it is made ready; of one that ends: since when it ends */
    char why[POOL_WHY];     /* it was made */
    struct pool_plan *next; /* of those that end */
};

struct pool_request {
    uint64_t id;
    struct pool_spec *spec;
    int model;
    int line;              /* of plans of `spec` */
    int64_t length;        /* of its inputs; 0: the model has one size */
    struct pool_call call; /* inputs are the caller's until it is answered */
    char client[REQUEST_CLIENT_BYTES];
    uint64_t tokens; /* that its client's key was charged */
    uint32_t n_samples, left;
    int tries; /* of all samples, beyond the first */
    int64_t arrived_ns, deadline_ns, began_ns;
    int64_t due_ns; /* the deadline that the scheduler was told */
    int64_t compute_ns;
    struct ndarray *outputs;
    UT_hash_handle hh;
};

/* What was measured of a network with these sizes on a kind of device. */
struct pool_kept_profile {
    char *key;
    char model[DIGEST_HEX], kind[DEVICE_KIND];
    char *dims;     /* {SYMBOL: SIZE}, sorted */
    json_t *record; /* as it is stored; NULL: that kind cannot run it, which is not stored */
};

struct pool_service {
    struct pool_kept_profile *profiles;
    size_t n_profiles, room_profiles;
    struct pool_measuring *measurings;
    struct pool_spec *spec; /* NULL: nothing is applied */
    struct pool_plan *current, *next, *ending;
    struct pool_planning *planning; /* out on a worker; NULL: none */
    struct pool_request *requests;
    uint64_t listener_peer, listener_ask; /* hpctl that waits for `next`; 0: none */
    uint64_t planned_members;             /* hash of the agents that were planned with */
    char why_next[POOL_WHY];      /* the next plan is made; "": workload or agents have changed */
    uint64_t corrected_ns;        /* when profiles were last corrected; 0: never */
    struct pool_planning *mixing; /* with weights as the load is, to see whether that pays */
    uint64_t mixed_ns;            /* not before this is that looked at again */
    uint64_t seen_members, seen_ns;
    uint64_t retry_ns; /* after a failure: not before */
    unsigned failures;
    struct err failure;          /* the last one; code 0: none since */
    uint64_t plans, moved;       /* plans that served; times that one took over from another */
    uint64_t lost_shares, again; /* requests that were sent anew since an agent was lost */
    int64_t wake_ns;             /* the earliest of its plans' */
};

/* Never NULL but for want of memory, when nothing is changed. */
struct pool_service *pool_service_of(struct coord *c);
struct pool_spec *pool_spec_use(struct pool_spec *s);
void pool_spec_release(struct pool_spec **s);
/* Index in the workload; -1. */
int pool_spec_find(const struct pool_spec *s, const char *model);
/* What serves a model of this name, or else what was applied and has it; *model: its index there.
 * NULL: there is none. */
struct pool_spec *pool_spec_of(const struct pool_service *s, const char *name, int *model);
/* Counts of models that are in both go on in `to`. */
void pool_counts_move(struct pool_spec *to, struct pool_spec *from);
void pool_plan_free(struct pool_plan **p);
/* The plan of that number: current, next, or one that ends. */
struct pool_plan *pool_plan_of(struct pool_service *s, uint64_t id);
/* The line of a model in its `size`-th length. */
int pool_line_find(const struct pool_plan *p, int model, int size);
/* To which length the inputs of a line are padded; 0: they are not. */
int64_t pool_line_length(const struct pool_plan *p, int line);
struct pool_batch *pool_batch_of(struct pool_plan *p, uint32_t id);
void pool_batch_free(struct pool_plan *p, struct pool_batch *b);
/* Whether its first share takes one more; whoever holds it back or sends it says so. */
bool pool_share_takes(const struct pool_share *s);
void pool_batch_hold(struct pool_plan *p, struct pool_batch *b);
void pool_batch_sent(struct pool_plan *p, struct pool_batch *b, uint64_t bytes);
struct pool_request *pool_request_of(struct pool_service *s, uint64_t id);
/* What stands for one of its samples in a scheduler, and back. */
uint64_t pool_tag_of(const struct pool_request *r, uint32_t sample);
struct pool_part pool_part_of(uint64_t tag);
/* Whether a pipeline of this model is whole: every stage has an agent. */
bool pool_plan_serves(const struct pool_plan *p, int model);
/* Out of the table and of what waits, and freed. */
void pool_request_free(struct pool_service *s, struct pool_request *r);

#endif
