/* The agent's core: events in, actions out. It decides what this agent is to its cluster (joined or
 * not), what happens to each of its stages, which batch runs next, where its result goes, and when
 * a sequence ends. It owns no socket, file, thread or clock: the shell (agent.c), or a test that
 * steps a whole cluster under virtual time, feeds it events and does what the actions say, in their
 * order. docs/protocol.md says who tells whom what.
 *
 *     agent_core_create(&env, &config, &core, e);
 *     agent_core_event(core, &event, &actions);   for all that happens, AGENT_EVENT_START first
 *     ...                                         does actions.items[0 .. count), one by one
 *
 * Memory: what an event points at must hold during the call only, but for buffers (below). What an
 * action points at holds until the next call of agent_core_event; what AGENT_DO_RUN points at holds
 * until its AGENT_EVENT_BATCH_DONE. Buffers are opaque here: `void *` of whoever made them. A
 * buffer that comes with an event belongs to the core, which gives it back with exactly one action:
 * AGENT_DO_RUN (as input), AGENT_DO_KV_IMPORT, AGENT_DO_POST or AGENT_DO_RELEASE.
 *
 * Each device has an executor: one thread that owns stages and samplers. It does what it is told in
 * order: LOAD, UNLOAD, SEQUENCE_OPEN, SEQUENCE_GROW, SEQUENCE_CLOSE, KV_IMPORT, KV_EXPORT, RUN. The
 * core gives it up to `runs_ahead` RUNs at a time, answered in their order. Every order carries a
 * `slot` (the stage that is held, for its whole life in memory, over generations; it stays on the
 * device that its `stage_prepare` named) and, where it is answered, a `ticket`. What comes from
 * outside names a stage by deployment, generation and number: of one deployment an agent may hold
 * several, each on another device.
 *
 * A share of a plan of pools (a `stage_prepare` with `share`) is a slot too: fetched, loaded and
 * unloaded by the same orders. Its batches do not come here: whoever has the slot runs them as they
 * come (share_runner.h), and tells how many there were. */
#ifndef HP_AGENT_AGENT_CORE_H
#define HP_AGENT_AGENT_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/engine/kv_shape.h"
#include "agent/engine/queue.h" /* struct batch_run */
#include "common/digest.h"
#include "common/env.h"
#include "common/profile_parts.h"
#include "common/status.h"
#include "transport/data.h"
#include "transport/frame.h"
#include "transport/keys.h"
#include "transport/message_ref.h"

enum {
    AGENT_MAX_STAGES = 64,          /* held at once, on all devices */
    AGENT_MAX_GRANTS = 1024,        /* chunk sessions */
    AGENT_MAX_COPIES = 4,           /* of others' layers, being fetched into the store */
    AGENT_MAX_KV_IMPORTS = 256,     /* at once: senders of keys and values that are awaited */
    AGENT_MAX_KV_EXPORTS = 64,      /* at once: sequences whose keys and values go elsewhere */
    AGENT_KV_WINDOW = 2,            /* pieces of an export that are on their way at once */
    AGENT_KV_PIECE_BYTES = 4 << 20, /* a frame has at most so many, or one page of one block */
    AGENT_KV_LIMIT_MS = 20000,      /* without another piece that has come, or left, for so long */
    AGENT_KV_BEAT_MS = 2000,        /* a sender that has nothing to send as yet says so as often */
    AGENT_KV_RETRY_MS = 20,         /* where there was no buffer for a piece */
    AGENT_HEARTBEAT_MS = 500,       /* until the coordinator says otherwise */
    AGENT_JOIN_RETRY_MS = 1000,
    AGENT_ACK_LIMIT_MS = 5000, /* without an ack for so long: join again */
    AGENT_PAUSE_MS = 1000,    /* no event, not even its own timer's, for a heartbeat and so long: it
                                 was stopped itself */
    AGENT_ORPHAN_MS = 120000, /* without an ack for so long, or as the coordinator said: free all
                                 sequences */
    AGENT_ORPHAN_MOST_MS = 3600000,
    AGENT_MAX_REMAINS = 256, /* answers of sequences that have ended, for the next coordinator */
    AGENT_REMAINS_BYTES = 16 << 20, /* of all of them */
    AGENT_SCORES_BYTES = 16 << 20,  /* of the answers of open ones */
    AGENT_ALIVE_MS = 500,           /* between two signs of life over a stage's links */
    AGENT_SILENCE_MS = 2500, /* nothing from the stage before for so long: the hop does not work */
    AGENT_HOLD_LIMIT_MS = 10000,   /* a run whose sequence nobody opens is given up after so long */
    AGENT_FLIGHT_LIMIT_MS = 30000, /* a batch that left the first stage is waited for so long, and
                                      ten times what it should take */
    AGENT_FLIGHT_LINGER_MS = 2000, /* one whose sequences have all been closed */
    AGENT_RUN_LIMIT_MS = 20000, /* the executor's answer to a RUN, and the next stage's taking of a
                                   batch: so long, and ten times what it should take */
    AGENT_SHORT_RUN_MS = 5,     /* a RUN of less than this may have another one waiting behind it */
    AGENT_SMALL_OUTPUT_BYTES = 64 << 10, /* outputs up to this size are not of the stage's own */
    AGENT_LOGITS_MESSAGE_BYTES = 4
                                 << 20, /* a `logits` message brings at most so many, or one row */
};

struct agent_core;

struct agent_core_config {
    const char *name;                           /* asked for; "" lets the coordinator choose */
    const char *secret;                         /* of the join token; "" when there is none */
    const char *program;                        /* version */
    const char *machine, *hostname, *node_json; /* discover.h */
    uint64_t process;                           /* by chance, another one in each process */
    struct pack_span data_address;
    unsigned n_devices;  /* each with an executor; 0: 1 */
    bool spills;         /* there is a place to spill to */
    unsigned runs_ahead; /* RUNs that an executor is given at once: 1 or 2; 0: 1 */
    double time_scale; /* stretches the limits of what is overdue (tests under sanitizers); 0: 1 */
};

/* ---- events ---- */

enum agent_event_kind {
    AGENT_EVENT_START,   /* the control channel is connecting: join */
    AGENT_EVENT_TIMER,   /* the time of AGENT_DO_TIMER has come; harmless at any time */
    AGENT_EVENT_MESSAGE, /* from the coordinator */
    AGENT_EVENT_FRAME,   /* FRAME_ACTIVATION, FRAME_TOKEN, FRAME_ALIVE or FRAME_KV; the other kinds
                            are the shell's */
    AGENT_EVENT_LINK_DOWN,   /* a link made by AGENT_DO_CONNECT broke, or does not take a frame */
    AGENT_EVENT_OUTPUT_BACK, /* one of a stage's own outputs (AGENT_DO_RUN with `reserved`) is free
                                again */
    AGENT_EVENT_FETCHED,     /* progress or end of AGENT_DO_FETCH */
    AGENT_EVENT_LOADED,      /* progress or end of AGENT_DO_LOAD */
    AGENT_EVENT_FILLING,     /* weights came for a stage that serves while they do, or failed to */
    AGENT_EVENT_SEQUENCE_OPENED, /* end of AGENT_DO_SEQUENCE_OPEN */
    AGENT_EVENT_BATCH_DONE,      /* end of AGENT_DO_RUN */
    AGENT_EVENT_KV_IMPORTED,     /* end of AGENT_DO_KV_IMPORT */
    AGENT_EVENT_KV_LEFT,         /* end of AGENT_DO_KV_EXPORT: the piece has left, or will not */
    AGENT_EVENT_SPILLS,          /* what is spilled of a stage's chains, or changed */
    AGENT_EVENT_PROFILED,        /* end of AGENT_DO_PROFILE */
    AGENT_EVENT_PROFILING,       /* how AGENT_DO_PROFILE goes */
    AGENT_EVENT_PROBED,          /* end of AGENT_DO_PROBE, but for role "end" */
    AGENT_EVENT_STORE, /* what the weight store holds; also the answer to AGENT_DO_STORE_REMOVE */
    AGENT_EVENT_LOG,   /* answer to AGENT_DO_LOG_FETCH */
    AGENT_EVENT_METER, /* figures for the next heartbeat */
    AGENT_EVENT_SHARE_METER,  /* the same of a share */
    AGENT_EVENT_SHARE_FAILED, /* a batch came to a share and will have no result */
    AGENT_EVENT_LOST, /* something else happened, and there was no room to say what: no sequence may
                         go on waiting for it */
    AGENT_EVENT_KINDS
};

enum agent_link { AGENT_LINK_NEXT, AGENT_LINK_FIRST };

/* Order of the work on a stage's weights; `status` is HP_PENDING for progress, 0 at the end, or an
 * error. */
struct agent_progress {
    uint64_t slot, ticket;
    int status;
    const struct err *error; /* when status < 0; FETCHED, pending: why chunks are wanted that should
                                have been here; NULL: they never were */
    uint64_t done_bytes, total_bytes, moved_bytes;
    struct pack_u32s wanted; /* FETCHED: chunks that no source has (the whole list, each time) */
    bool warming;            /* LOADED, pending: weights are in, the warm-up run goes on */
    struct frame_row row_in, row_out; /* LOADED, 0: of a token, that cross the stage's borders */
    uint32_t vocabulary;              /* LOADED, 0: of the model */
    uint32_t row_width;      /* LOADED, 0: elements of a row that its head gives; 0: vocabulary */
    uint32_t outputs;        /* LOADED, 0: large outputs that may be out at once; 0: any number */
    struct kv_shape kv;      /* LOADED, 0: what the stage keeps of each token */
    struct profile_part hop; /* LOADED, 0: what a paced agent's stage hands on, of which layer of
                                its profile */
};

struct agent_event {
    enum agent_event_kind kind;
    union {
        struct message_ref *message; /* held by whoever keeps what it says */
        struct {
            const struct frame_header *header;
            const struct batch_run
                *runs; /* FRAME_ACTIVATION: header->n_runs of them, decoded and checked */
            const struct frame_token *tokens; /* FRAME_TOKEN: header->n_runs of them */
            struct kv_range kv;               /* FRAME_KV */
            void *buffer; /* the payload, run table included; NULL when empty and for FRAME_TOKEN */
            uint64_t arrived_ns; /* when it was there; 0: now */
        } frame;
        struct {
            uint64_t slot;
            enum agent_link link;
        } link_down;
        struct {
            uint64_t slot;
        } output_back;
        struct agent_progress progress; /* FETCHED, LOADED */
        struct {
            uint64_t slot, ticket, sequence;
            int status;
            const struct err *error;
            uint32_t awaited; /* keys and values that it begins with and that have not come */
        } sequence_opened, kv_imported;
        struct {
            uint64_t ticket;
            int status; /* HP_EBUSY: there was no buffer for `range`; it may be tried again */
            const struct err *error;
            struct kv_range range; /* status < 0, and it is known */
        } kv_left;
        struct {
            uint64_t slot, ticket;
            int status;
            const struct err *error;
            double seconds;            /* of computing */
            uint64_t start_ns, end_ns; /* of the same; 0: `seconds` until now */
            uint64_t due_ns;           /* when a paced device would have been done; 0: now */
            bool posted;  /* not the last stage: whoever ran the batch has posted its frame, or will
                           */
            void *output; /* not the last stage and not posted: the frame for the next one, run
                             table and rows [tokens, width]; else NULL */
            const uint32_t *picked; /* last stage: the token sampled for each run with `sample`; for
                                       each run there is a place, and one for each of its guesses:
                                       these hold as long as what stands before is the guess */
            const float *logits;    /* last stage: rows [row_width] of all n_logits, in their order;
                                       valid until the actions are done */
            const struct score *scores; /* last stage: of each run n_scored rows of scored_width,
                                           then, where it was sampled, 1 + n_drafts of said_width;
                                           valid as `logits`. NULL: none */
        } batch_done;
        struct {
            uint64_t slot;
            int status; /* < 0: no more will come */
            const struct err *error;
            uint64_t missing_bytes;
        } filling;
        struct {
            uint64_t slot;
            struct message_spills told; /* but for whose they are */
        } spills;
        struct {
            uint64_t id; /* of the request */
            struct pack_span model;
            const char *kind, *tables;
            int status;
            const struct err *error;
        } profiled;
        struct {
            uint64_t id; /* of the request */
            struct message_profile_progress progress;
        } profiling;
        struct {
            uint64_t id; /* of the request */
            int status;
            const struct err *error;
            double latency_s, bandwidth_bytes_per_s;
        } probed;
        struct {
            struct pack_list models; /* struct message_model */
            uint64_t id;             /* of the store_remove that it answers, or 0 */
            int status;
            const struct err *error;
            bool models_unknown; /* no memory to list them: as told before */
        } store;
        struct {
            uint64_t id;
            const char *text;
        } log;
        struct {
            uint64_t memory_free_bytes, dropped_foreign, data_sent_bytes, data_received_bytes;
            uint64_t dropped_stale;            /* batches of plans that are not here (any more) */
            const uint64_t *device_free_bytes; /* [n_devices]; NULL: not read */
            const struct data_loss *losses;    /* [n_losses]: news */
            size_t n_losses;
        } meter;
        struct {
            uint64_t slot, queued, done;
            bool running;
            double busy_s, planned_s;
        } share_meter;
        struct {
            uint64_t deployment, generation, share, batch;
            int code;
            const char *text;
        } share_failed;
    } u;
};

/* ---- actions ---- */

enum agent_action_kind {
    AGENT_DO_SEND,          /* a message to the coordinator */
    AGENT_DO_POST,          /* a frame over a stage's link */
    AGENT_DO_RELEASE,       /* a buffer is not needed any more */
    AGENT_DO_SESSION_ALLOW, /* frames with this token are welcome */
    AGENT_DO_SESSION_REVOKE,
    AGENT_DO_PEERS,  /* who may connect to the data endpoint from now on */
    AGENT_DO_FETCH,  /* bring the chunks of these layers into the store; FETCHED says how it goes */
    AGENT_DO_LOAD,   /* make the stage from the store; warm it up; LOADED says how it goes */
    AGENT_DO_UNLOAD, /* forget slot: cancel its fetch, drop links, free its stage and all its
                        sequences; not answered */
    AGENT_DO_SHARE_CONNECT,  /* where batches of a plan go from all of its shares here */
    AGENT_DO_CONNECT,        /* (re)make the links of a slot; an empty address drops that link */
    AGENT_DO_SEQUENCE_OPEN,  /* KV room, and a sampler on the last stage */
    AGENT_DO_SEQUENCE_GROW,  /* more of its KV room is reserved; not answered */
    AGENT_DO_SEQUENCE_CLOSE, /* or keep; not answered; of an unknown sequence nothing */
    AGENT_DO_RUN,            /* a batch through a stage */
    AGENT_DO_KV_IMPORT,      /* a piece of what a sequence begins with */
    AGENT_DO_KV_EXPORT,      /* a piece of a sequence's keys and values, as a frame to `to`; without
                                tokens an empty frame, at once */
    AGENT_DO_KV_DROP,     /* an export has ended: its link is not needed any more; not answered */
    AGENT_DO_SPILL,       /* a chain's keys and values to where this agent spills; not answered */
    AGENT_DO_UNSPILL,     /* back from there: AGENT_EVENT_KV_IMPORTED is its end */
    AGENT_DO_SPILLS_TELL, /* AGENT_EVENT_SPILLS: all that there is of this stage, then what changes
                           */
    AGENT_DO_PROFILE,
    AGENT_DO_PROBE, /* the data path to another agent: echo, measure, or end that */
    AGENT_DO_STORE_REMOVE,
    AGENT_DO_LOG_FETCH,
    AGENT_DO_TIMER, /* wake me at `at_ns` (replaces the wake-up asked for before) */
    AGENT_DO_QUIT,  /* the cluster does not want this agent: `error` says why */
};

struct agent_action {
    enum agent_action_kind kind;
    union {
        struct message message; /* SEND */
        struct {
            uint64_t slot;
            enum agent_link link;
            struct frame_header header;
            const struct batch_run *runs;     /* FRAME_ACTIVATION: for whoever has no use for bytes;
                                                 `buffer` begins with them */
            const struct frame_token *tokens; /* FRAME_TOKEN: header.n_runs of them */
            void *buffer; /* FRAME_ACTIVATION: the output of the batch; NULL for a batch without
                             runs, and for FRAME_TOKEN */
        } post;
        struct {
            void *buffer;
        } release;
        struct {
            uint64_t session;
            const uint8_t *from; /* SESSION_ALLOW: the public key of who alone may send with it;
                                    NULL: anybody who may connect */
        } session;               /* SESSION_ALLOW, SESSION_REVOKE */
        struct {
            struct pack_span keys; /* KEY_BYTES each */
        } peers;
        struct {
            uint64_t slot, ticket;
            struct message_ref *prepare; /* all that there is to know */
        } work;                          /* FETCH, LOAD */
        struct {
            uint64_t slot;
        } unload;
        struct {
            uint64_t slot;
            uint64_t session; /* of the frames that come to it alone; 0: others come with it, too */
            struct pack_span next, first;
            const char *next_device, *first_device; /* what they stand for, if anything */
        } connect;
        struct {
            uint64_t deployment, generation;
            struct pack_list peers; /* struct message_share_peer */
        } share_connect;
        struct {
            uint64_t slot, ticket;
            bool sampler; /* last stage and not all_logits */
            const struct message_sequence_open *open;
        } sequence_open;
        struct {
            uint64_t slot, sequence;
            uint32_t reserved; /* tokens */
        } sequence_grow;
        struct {
            uint64_t slot, sequence;
            uint32_t keep; /* so many of its first tokens stay for others to begin with */
        } sequence_close;
        struct {
            uint64_t slot, ticket;
            const struct batch *batch; /* its `input` is taken: a frame's payload */
            uint64_t ready_ns; /* when its input was there; 0: before the last batch ended */
            /* not the last stage: the frame that its output becomes, but for payload_bytes and
             * sent_ns */
            struct frame_header header;
            bool reserved; /* the output is one of the stage's own: AGENT_EVENT_OUTPUT_BACK follows,
                              unless the run fails before it is posted */
        } run;
        struct {
            uint64_t slot, ticket, sequence;
            struct kv_range range;
            enum kv_format format; /* as what they came */
            void *buffer;          /* taken: the frame's payload */
        } kv_import;
        struct {
            uint64_t slot, ticket, sequence; /* ticket: of the export, whose pieces share a link */
            struct kv_range range;
            enum kv_format format;      /* as what they go */
            struct frame_header header; /* but for payload_bytes and sent_ns */
            struct pack_span to;
        } kv_export;
        struct {
            uint64_t ticket;
        } kv_drop;
        struct {
            uint64_t slot, ticket, sequence;
            struct digest identity; /* of what the stage computes */
            struct pack_span pages; /* SPILL: names, DIGEST_BYTES each; UNSPILL: of the last one */
            uint32_t n_pages, kept; /* kept: UNSPILL: of its pages the sequence has so many */
        } spill;                    /* SPILL, UNSPILL, SPILLS_TELL */
        struct {
            uint64_t id;
            struct message_profile_run request;
        } profile;
        struct {
            uint64_t id;
            struct message_link_probe request;
        } probe;
        struct {
            uint64_t id;
            struct pack_span model;
        } store_remove;
        struct {
            uint64_t id, lines;
        } log_fetch;
        struct {
            uint64_t at_ns;
        } timer;
        struct {
            struct err error;
        } quit;
    } u;
};

/* Grows as needed and is reused; zero-initialised is empty. agent_core_event empties it first. */
struct agent_actions {
    struct agent_action *items;
    size_t count, capacity;
};
void agent_actions_free(struct agent_actions *a);

/* ---- the core ---- */

/* `env` and what `config` points at outlive the core. HP_ENOMEM. */
int agent_core_create(const struct env *env, const struct agent_core_config *config,
                      struct agent_core **out, struct err *e);
/* What has not been given back by an action (held frames) is handed to `release`. */
void agent_core_destroy(struct agent_core **core, void (*release)(void *ctx, void *buffer),
                        void *ctx);

/* Never fails: what cannot be done is said to the coordinator. */
void agent_core_event(struct agent_core *core, const struct agent_event *event,
                      struct agent_actions *out);

struct agent_core_view { /* for tests, logs and people */
    bool joined;
    const char *name;
    uint64_t coordinator_boot;
    uint32_t n_stages, n_sequences, n_held_frames;
    uint64_t dropped_stale, dropped_foreign, dropped_malformed, dropped_runs, dropped_full;
};
struct agent_core_view agent_core_view(const struct agent_core *core);

#endif
