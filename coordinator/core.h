/* The coordinator's core: events in, actions out. It decides who is a member, where the stages of a
 * deployment go, which sequence runs, and what hpctl is answered. It owns no socket, file, thread
 * or clock: the shell (coordinator.c), or a test that steps a whole cluster under virtual time,
 * feeds it events and does what the actions say. docs/protocol.md says who tells whom what.
 *
 *     core_create(&config, &core, e);  core_restore(...) for every record of the store;
 * core_start(core); core_message(...), core_model_opened(...), core_tick(...),
 * core_request_open(...)    for everything that happens actions = core_take(core, &n) after each:
 * until n is 0
 *
 * All CORE_STORE changes of one core_take are one batch: written in one step, in the order of their
 * numbers, whenever the disk is ready; core_stored tells. What depends on a batch (answers, orders)
 * comes out of core_take when that batch is written, so that nothing is acknowledged that a restart
 * forgets; tokens pass. Where the store cannot be written the core refuses changes by name and
 * serves on.
 *
 * One thread. What an event points at is used during the call only. Time is env's, less the
 * coordinator's own pauses: where it did not run for longer than CORE_PAUSE_MS (stopped, suspended,
 * a slow disk) no deadline passed meanwhile and nobody was silent. Wall-clock seconds are counted
 * from `unix_s`. */
#ifndef HP_COORDINATOR_CORE_H
#define HP_COORDINATOR_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/env.h"
#include "common/pack.h"
#include "common/status.h"
#include "coordinator/requests.h"
#include "coordinator/store/store.h"
#include "coordinator/work.h"
#include "transport/data_choice.h"
#include "transport/keys.h"

enum {
    CORE_HEARTBEAT_MS = 500,
    CORE_SUSPECT_MS = 1500, /* without a heartbeat */
    CORE_LOST_MS = 2500,
    CORE_TICK_MS = 100,   /* how often core_tick wants to be called at least */
    CORE_PAUSE_MS = 1000, /* without an event for longer: the coordinator itself stood still, and
                             its time with it */
    CORE_REJOIN_MS =
        10000, /* after a start: how long deployments wait for the agents of their plan */
    CORE_PROFILE_MS = 4000, /* what an agent may spend on measuring a model */
    CORE_MAX_MEMBERS = 4000,
    CORE_MAX_DEPLOYMENTS = 256,
    CORE_MAX_STAGES = 64,   /* of one deployment */
    CORE_MAX_WAITING = 512, /* requests in the queue of one deployment */
    CORE_MAX_WAITING_OF_CLIENT = 64,
    CORE_MAX_ASKS = 1024,  /* questions that wait for an agent */
    CORE_MAX_WORK = 256,   /* pieces of work that are out */
    CORE_MAX_PLANNING = 2, /* plans among them: the others' turn comes */
};

struct core;

struct core_config {
    const struct env *env;
    const char *cluster;    /* its name, for people */
    const char *version;    /* of the program */
    const char *public_key; /* of the control channel, for join tokens */
    const char *admin_key;  /* public key whose owner may ask anything; "" nobody */
    const char *http; /* where the HTTP API is to listen, ADDR:PORT; NULL or "": there is none. Told
                         to hpctl, and not used otherwise */
    struct data_policy data; /* which data endpoints agents open; empty: auto, no trusted network */
    uint64_t unix_s;         /* wall clock at core_create */
    uint32_t max_sequences;  /* at once in a deployment, where memory allows; 0: 8 */
    double time_scale;       /* deadlines of sequences stretch by it; 0: 1 */
    uint64_t profile_ms;     /* 0: CORE_PROFILE_MS; UINT64_MAX: never measure, estimate */
    /* The last lines of the coordinator's own log, for `logs {node: "coordinator"}`; NULL: there
     * are none. */
    void (*log_read)(void *ctx, size_t lines, struct buffer *out);
    void *log_ctx;
};

/* What the core needs to know of a model; the shell opens it (tests make one up). */
struct core_layer {
    const char *name, *class_name;
    uint64_t param_bytes, elements; /* as the file has them; numbers */
    uint64_t state_bytes_per_token, output_bytes_per_token;
    double flops_per_token;
};
struct core_model {
    const char *architecture;
    const struct core_layer *layers;
    int n_layers;
    uint32_t vocabulary, width, context;
    double
        workspace_bytes_per_token; /* of a batch: what a stage holds beside weights and KV cache */
    const uint32_t *end_ids;
    size_t n_end_ids;
    struct model *handle; /* handed through to requests.h; may be NULL */
    /* Text of ids, for `greedy`; NULL: none is given. */
    int (*text)(void *ctx, const uint32_t *ids, size_t n, struct buffer *out);
    void *text_ctx;
};

/* `config` is copied. HP_ENOMEM. */
int core_create(const struct core_config *config, struct core **out, struct err *e);
/* No work may run any more. */
void core_destroy(struct core **core);

/* A record that the store holds, before core_start. One that cannot be read is named in the log; of
 * a cache (profile, link, layout) it is dropped, else kept as record "bad" KIND/KEY. HP_ENOMEM. The
 * kinds are those of store.h; the order is free but for `model` before `deployment`. */
int core_restore(struct core *core, const char *kind, const char *key, const void *bytes,
                 size_t size, struct err *e);
/* The names of the kinds in an order that core_restore takes; NULL at the end. */
extern const char *const core_kinds[];
void core_start(struct core *core);

/* A message, still encoded; `key` is the sender's proven public key. */
void core_message(struct core *core, uint64_t peer, const char *key, const uint8_t *bytes,
                  size_t size);
/* Whether this key is an agent's or the admin's. */
bool core_knows_key(struct core *core, const char *key);
/* A peer's connection is gone, as far as one can tell (a CORE_SEND found nobody). What it asked for
 * is dropped; an agent is suspect. */
void core_peer_gone(struct core *core, uint64_t peer);
/* The answer to CORE_MODEL_OPEN: facts (copied), or NULL and why. */
void core_model_opened(struct core *core, const char *model_id, const struct core_model *facts,
                       const struct err *why);
/* The answer to CORE_WORK: its `run` has ended, on whatever thread. */
void core_worked(struct core *core, struct work *w);
/* The answer to CORE_STORE: all batches up to `number` are written, or that one could not be: why
 * (the shell tries again, and tells again). */
void core_stored(struct core *core, uint64_t number, const struct err *why);
/* Asks all work that is out to end early: before whoever owns the threads waits for them. */
void core_works_cancel(struct core *core);
/* Time has passed. Call every CORE_TICK_MS or sooner. */
void core_tick(struct core *core);

/* ---- requests.h over this core: the shell hands this table to its gateway and must take actions
 * after each call ------ */

void core_requests(struct core *core, struct requests *out);

/* ---- actions
 * ----------------------------------------------------------------------------------------------------
 */

enum core_action_kind {
    CORE_STORE, /* see above */
    CORE_SEND,  /* bytes to a peer of the control channel; a peer that is gone does not matter */
    CORE_MODEL_OPEN,  /* make the model's heads from `bytes` (the manifest), open it, and call
                         core_model_opened */
    CORE_MODEL_CLOSE, /* nothing refers to the model any more: close it and remove what
                         CORE_MODEL_OPEN made */
    CORE_WORK,        /* run `work` on another thread and call core_worked (work.h) */
    CORE_TOKENS,      /* the three callbacks of a request */
    CORE_FINISHED,
    CORE_FAILED,
};

struct core_action {
    enum core_action_kind kind;
    const uint8_t *bytes; /* SEND, STORE, MODEL_OPEN */
    size_t size;
    uint64_t peer;           /* SEND */
    const char *record_kind; /* STORE; bytes NULL: remove */
    uint64_t number;         /* STORE: of its batch */
    uint64_t ask;      /* SEND: the question to which it is the last, good answer; 0: it is none */
    bool passes;       /* SEND: it depends on nothing stored */
    const char *key;   /* STORE; MODEL_*: the id in hex */
    struct work *work; /* WORK */
    uint64_t request;  /* TOKENS, FINISHED, FAILED */
    struct request_callbacks callbacks; /* `tokens` NULL: none */
    const uint32_t *ids;                /* TOKENS: size of them */
    enum request_finish finish;
    struct request_usage usage;
    const struct err *why;
};

/* Hands over what is to be done, in order; valid until the next core_take. Events may come in while
 * it is worked on. */
const struct core_action *core_take(struct core *core, size_t *count);
/* Does the callback of a TOKENS, FINISHED or FAILED action, unless its request has been cancelled
 * meanwhile. */
void core_action_call_back(struct core *core, const struct core_action *a);

/* For tests and logs. */
struct core_view {
    uint32_t members, members_ready, deployments, deployments_serving, sequences_active,
        sequences_waiting;
    uint64_t boot, refused, sequences_opened, sequences_finished, sequences_failed;
};
struct core_view core_view(const struct core *core);

#endif
