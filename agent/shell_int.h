/* What the files of the shell share, from bottom to top:
 *
 *     shell_queue.c     what other threads leave for the loop
 *     shell_shares.c    shares of plans of pools: their threads, and where their batches go
 *     shell_stages.c    what the shell keeps of the core's stages
 *     shell_kv.c        keys and values that come and go
 *     shell_actions.c   doing what the core says
 *     shell_monitor.c   one thread at a time in the core; what only the loop may do
 *     shell_profiles.c, shell_events.c      what an event means here before the core hears of it
 *     shell_reports.c   what other threads tell: data channel, executor, store, probes of links
 *     shell_devices.c   an executor for each device
 *     agent.c           the agent's life
 *
 * The core is behind one lock. Whoever has an event takes it, feeds the event, and does what the
 * core says: a frame goes from the data channel's thread into the executor's queue, and what came
 * of it from the executor's thread to the next stage, without another thread's waking up between.
 * The loop alone sends messages, sets its timer and asks to quit; the others leave these for it and
 * wake it. Order of locks: the data channel's own (when a link breaks), `gate`, the monitor, then
 * all others; what is posted under the monitor never waits for the data channel's thread. */
#ifndef HP_AGENT_SHELL_INT_H
#define HP_AGENT_SHELL_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/agent.h"
#include "agent/agent_core.h"
#include "agent/delay_line.h"
#include "agent/event_queue.h"
#include "agent/executor.h"
#include "agent/link_probe_io.h"
#include "agent/share_runner.h"
#include "agent/spill_store.h"
#include "agent/store_worker.h"
#include "common/log.h"
#include "common/log_ring.h"

enum { QUEUED_A_TURN = 256 };
#define ABSENCE_FIRST_NS UINT64_C(5000000000)
#define ABSENCE_AGAIN_NS UINT64_C(30000000000)

/* Each kind of event has places of its own, so that a flood of one takes none from another. */
enum queued_class {
    QUEUED_LINK,
    QUEUED_OUTPUT,
    QUEUED_RAN,
    QUEUED_OPENED,
    QUEUED_KV,
    QUEUED_LOADED,
    QUEUED_SHARE,
    QUEUED_OTHER,
    QUEUED_CLASSES
};

/* Messages, each behind its type and its length (u32 each). */
struct outbox {
    struct buffer bytes;
    size_t n;
};
enum { OUTBOX_MESSAGES = 4096, OUTBOX_BYTES = 256 << 20, OUTBOX_KEPT_BYTES = 8 << 20 };

/* What other threads tell the loop: an event for the core, and what it points at. */
struct queued_event {
    struct agent_event event;
    uint64_t link;     /* LINK_DOWN: data_link_number of what broke; 0: the slot has no such link */
    struct err *error; /* owned */
    void *memory;      /* owned: what lists of the event point into */
    char *path;        /* owned: FETCHED */
    uint64_t profile_slot; /* of the shell's profile that this is about: the store has opened its
                              model (FETCHED, of which the core does not hear), or an executor
                              measures it (PROFILING, PROFILED: whose request that is the loop looks
                              up). 0: of none, and the event has the request's id already */
};

/* What the shell keeps of a stage that the core holds. */
struct shell_stage {
    uint64_t slot;
    struct executor *executor; /* of the device that it is on */
    char *path;                /* of the model in the store */
    uint32_t vocabulary;
    enum frame_dtype wire; /* as what rows cross */
    uint64_t n_stages, max_batch_tokens;
    uint64_t inputs_bytes; /* of all frames that may be on their way to the stage */
    struct outlet *next, *first;
    /* of a paced agent */
    struct profile_part hop; /* what the stage hands on, of which layer of the profile */
    double stands_for;
    struct share_runner *runner; /* of a share, instead of the executor and the outlets */
    uint64_t deployment, generation;
};

/* Where batches of a plan of pools go from here. */
struct shell_plan {
    uint64_t deployment, generation;
    struct share_peers *peers;
};

/* Where the pieces of an export go; ticket 0: the place is free. */
struct shell_kv_link {
    uint64_t ticket;
    struct outlet *outlet;
};

/* Slots of profiles are told from those of stages by this bit: the store and executors have both.
 */
#define SHELL_PROFILE_SLOT (UINT64_C(1) << 63)

/* A profile that is being made: the store opens the model under `slot`, an executor measures it. */
struct shell_profile {
    uint64_t slot;    /* with SHELL_PROFILE_SLOT: none of a stage */
    uint64_t request; /* id of the coordinator's question, which the answer has */
    uint64_t budget_ms;
    unsigned device;
    uint8_t model[DIGEST_BYTES];
    bool f32, fine;
};

struct agent {
    struct agent_config config;
    uv_loop_t *loop;
    uv_async_t wake;
    uv_timer_t timer, meter;
    int open_handles;
    pthread_mutex_t gate; /* held by the data channel's thread while it is in here */
    bool stopping;        /* set under the gate and in the monitor */
    struct event_queue events;
    atomic_bool lost; /* an event had no place: sequences may be waiting for it */
    struct agent_core_config core_config;

    pthread_mutex_t turnstile, monitor; /* shell_enter; what follows is the monitor's, and so are
                                           `stages` and `profiles` */
    struct agent_core *core;
    struct agent_actions actions;
    struct batch_run *runs;     /* [FRAME_MAX_RUNS], of the frame that is being read */
    struct frame_token *tokens; /* [FRAME_MAX_RUNS] */
    struct outbox outbox;       /* messages that the loop is to send */
    uint64_t timer_ns;          /* when the core wants to be woken; UINT64_MAX: not at all */
    uint64_t armed_ns;          /* when the loop's timer fires; UINT64_MAX: never */
    struct err quit;            /* why the cluster does not want this agent; code 0: it does */
    bool loop_due;              /* the loop has something to do */

    struct control *control;
    struct data_endpoint *data;
    char data_host[DATA_HOST_TEXT]; /* where `data` listens */
    enum data_kind data_kind;
    struct executor *executors[DISCOVER_MAX_DEVICES];
    struct network_memory *memories[DISCOVER_MAX_DEVICES]; /* of the shares on these */
    unsigned n_devices;
    struct store_worker *store;
    uint64_t box_free_bytes; /* when last read; UINT64_MAX: never */
    uint64_t device_free_bytes[DISCOVER_MAX_DEVICES];
    struct paced *paced; /* the device that this agent stands for; NULL: itself */
    struct link_probe_io *probes;
    struct spill_store *spills; /* NULL: nothing is spilled */
    struct delay_line *line; /* frames that may not leave yet; NULL: neither is this agent paced nor
                                has it shares */
    struct shell_plan *plans;
    size_t n_plans, room_plans;
    struct share_runner **ending; /* stopped, with a run that goes on */
    size_t n_ending, room_ending;
    uint64_t batches_stale; /* that came for plans that are not here */
    struct key_pair keys;
    char machine[80], hostname[256], kinds[DISCOVER_MAX_DEVICES][DISCOVER_KIND], store_folder[1100],
        profile_folder[1100], key_file[1100];
    struct buffer node_json;
    struct outbox leaving; /* the loop's: messages that it is sending */
    struct shell_stage *stages;
    size_t n_stages, stage_capacity;
    struct shell_kv_link kv_links[AGENT_MAX_KV_EXPORTS];
    struct shell_profile *profiles;
    size_t n_profiles, room_profiles;
    uint64_t last_profile; /* number of the last one's slot */
    bool quit_said;
    uint64_t absent_ns, absence_told_ns; /* since when the coordinator has not answered, and when
                                            that was last said; 0: it answers */

    struct log_ring *log; /* what it said last */
};

/* ---- shell_queue.c */

/* Places for events of each class; without memory for them it takes none (agent_start looks). */
void shell_events_init(struct agent *a);
/* Drops what was not taken. */
void shell_events_fini(struct agent *a);
/* Any thread: takes what the event owns. */
void shell_event_put(struct agent *a, const struct queued_event *m);
/* What the event owns. */
void queued_event_free(struct queued_event *m);

/* ---- shell_devices.c */

/* Executors for all of the share's devices; those that were started are closed by
 * shell_devices_close. HP_EUSAGE, HP_EDEVICE, HP_ENOMEM. */
int shell_devices_open(struct agent *a, struct err *e);
/* Ends what runs, and frees all stages. */
void shell_devices_close(struct agent *a);
/* After the data channel is closed, which may have had memory of theirs. */
void shell_devices_free(struct agent *a);
/* Whose memory the data channel is to reach beside the host's. */
enum memory_kind shell_devices_memory(const struct agent *a);
/* Adds whether it does, where there is a GPU, to what devices say they do (choices.h). */
void shell_devices_say(const struct agent *a, json_t *choices);
/* Memory that is free: of each device, and of the box. */
void shell_devices_meter(struct agent *a, struct agent_event *ev);

/* ---- shell_shares.c; all in the monitor, but for shell_shares_close */

/* AGENT_DO_LOAD of a share: starts its runner. `queue_bytes`: of batches that wait for it. */
void shell_share_load(struct agent *a, struct shell_stage *s, const struct agent_action *act,
                      uint64_t queue_bytes);
/* AGENT_DO_SHARE_CONNECT: the links of a plan are made, also for its shares that load still. */
void shell_share_connect(struct agent *a, const struct agent_action *act);
/* Stops a slot's runner, if it has one. */
void shell_share_drop(struct agent *a, struct shell_stage *s);
/* A FRAME_TENSORS. Takes the payload. */
void shell_share_frame(struct agent *a, const struct frame_header *h, struct data_buffer *payload);
/* Frees runners that have ended. */
void shell_shares_reap(struct agent *a);
/* The agent stops: waits for those that have not. */
void shell_shares_close(struct agent *a);

/* ---- shell_stages.c; all in the monitor */

/* What the pool of received frames has room for at least. */
uint64_t shell_pool_least_bytes(const struct agent *a);
/* NULL: nothing is kept of that slot. */
struct shell_stage *shell_stage_of(struct agent *a, uint64_t slot);
/* Frees what the shell keeps of a stage. */
void shell_stage_drop(struct agent *a, uint64_t slot);
/* AGENT_DO_FETCH: the store brings the chunks that its layers need. */
void shell_stage_fetch(struct agent *a, const struct agent_action *act);
/* AGENT_DO_LOAD: its device's executor makes it, from the file that the store has opened. */
void shell_stage_load(struct agent *a, const struct agent_action *act);
/* A stage is loaded: so many elements of a token come from the stage before it. */
void shell_stage_loaded(struct agent *a, struct shell_stage *s,
                        const struct agent_progress *loaded);
/* AGENT_DO_UNLOAD: the store, the executor and the shell let go of it. */
void shell_stage_unload(struct agent *a, uint64_t slot);
/* AGENT_DO_CONNECT: its outlets are made anew. */
void shell_stage_connect(struct agent *a, const struct agent_action *act);
/* AGENT_DO_POST: a frame through one of its outlets. Takes the buffer. */
void shell_frame_post(struct agent *a, const struct agent_action *act);

/* ---- shell_kv.c; all in the monitor */

/* AGENT_DO_KV_IMPORT: a piece that came goes to the executor. */
void shell_kv_import(struct agent *a, const struct agent_action *act);
/* AGENT_DO_KV_EXPORT: the executor gives a piece to the export's link, made for the first of them.
 */
void shell_kv_export(struct agent *a, const struct agent_action *act);
/* AGENT_DO_KV_DROP: the export is over, and its link with it. */
void shell_kv_drop(struct agent *a, uint64_t ticket);
/* The agent stops: all links of exports. */
void shell_kv_links_close(struct agent *a);
/* AGENT_DO_SPILL: the executor copies a chain's pages for the store of what is spilled. */
void shell_spill(struct agent *a, const struct agent_action *act);
/* AGENT_DO_UNSPILL: that store reads a chain's pages back for a sequence that awaits them. */
void shell_unspill(struct agent *a, const struct agent_action *act);
/* AGENT_DO_SPILLS_TELL: it says what it has of a stage's chains, and what changes from now on. */
void shell_spills_tell(struct agent *a, const struct agent_action *act);

/* ---- shell_actions.c; all in the monitor */

/* Does what the core said last; what only the loop may do is noted for it. */
void shell_actions_do(struct agent *a);
/* Nobody waits for this profile any more. */
void shell_profile_drop(struct agent *a, uint64_t slot);

/* ---- shell_monitor.c */

/* Makes and frees its locks. */
void shell_monitor_init(struct agent *a);
void shell_monitor_fini(struct agent *a);
/* Any thread. It gets its turn before anyone comes a second time. */
void shell_enter(struct agent *a);
/* Wakes the loop when there is something for it. */
void shell_leave(struct agent *a);
/* As shell_enter, unless the agent stops: then false, and nothing is entered. */
bool shell_enter_alive(struct agent *a);
/* In the monitor: an event to the core, and its actions done. */
void shell_event(struct agent *a, const struct agent_event *ev);
/* On the loop, outside of the monitor: does what is left for it. */
void shell_loop_turn(struct agent *a);
/* The same: an event to the core, its actions done, and what is left for the loop. */
void shell_loop_event(struct agent *a, const struct agent_event *ev);

/* ---- shell_profiles.c; in the monitor */

/* The store has opened a model for the profiler, or could not. */
void shell_profile_opened(struct agent *a, const struct queued_event *m);
/* The end of a measurement, of a model or of shares: told under its request. */
void shell_profiled(struct agent *a, struct queued_event *m);
/* How one goes: the same. */
void shell_profiling(struct agent *a, struct queued_event *m);

/* ---- shell_events.c */

/* The loop's wake-up: events, and what is left for it. */
void shell_woken(uv_async_t *wake);
/* In the monitor: a frame of a stage. Takes the payload. */
void shell_frame(struct agent *a, const struct frame_header *h, struct data_buffer *payload);

/* ---- shell_reports.c: callbacks, `ctx` is the agent; any thread. What is reported is copied, but
 * for frames and results of batches, which are fed at once */

void shell_on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload);
void shell_on_link_down(void *ctx, struct data_link *link, const struct err *why);
void shell_on_probed(void *ctx, uint64_t id, int status, const struct err *why, double latency_s,
                     double bandwidth_bytes_per_s);
void shell_on_executor(void *ctx, const struct executor_report *r);
void shell_on_store(void *ctx, const struct store_report *r);
void shell_on_spills(void *ctx, const struct spill_report *r);
void shell_on_spill_found(void *ctx, const struct spill_want *w, struct spill_found *found,
                          const struct err *why);

#endif
