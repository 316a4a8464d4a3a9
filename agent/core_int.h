/* What the files of the core share: agent_core.c (membership, time, the way of every event),
 * core_stages.c (a stage from prepare to unload), core_sequences.c (sequences), core_batches.c
 * (frames and batches), core_watch.c (deadlines), core_prefill.c. */
#ifndef HP_AGENT_CORE_INT_H
#define HP_AGENT_CORE_INT_H

#include "agent/agent_core.h"
#include "common/log.h"
#include "common/machine.h"

enum stage_state {
    STAGE_FETCHING,
    STAGE_LOADING,
    STAGE_WARMING,
    STAGE_READY,
    STAGE_FAILED,
    STAGE_STATES
};
extern const struct machine_state stage_states[STAGE_STATES];

enum member_state { MEMBER_OUTSIDE, MEMBER_JOINING, MEMBER_JOINED };

/* What a stage hears of the one before it, and when it is to give a sign itself (core_alive.c). */
struct core_hop {
    uint64_t heard_ns, send_ns;
    bool heard; /* and not silent since */
};

struct core_stage {
    uint64_t slot, ticket; /* ticket of the fetch or load that goes on */
    int state;             /* enum stage_state; set by stage_move alone */
    struct buffer bytes;   /* `prepare`, encoded: its strings and lists lie here and in `arena` */
    struct arena arena;
    struct message_stage_prepare prepare;
    uint64_t loaded_kv_tokens, loaded_sequences,
        loaded_batch_tokens; /* what the slot was loaded with */
    bool loaded;             /* the executor has a stage in this slot */
    uint32_t width, vocabulary;
    struct queue *queue; /* of this generation; NULL until ready */
    bool connected, link_broken;
    uint64_t link_told_ns; /* when the log last heard that it broke */
    uint8_t *next_address, *first_address;
    char *next_device, *first_device; /* what paced neighbours stand for; NULL: nothing */
    size_t next_size, first_size;
    uint64_t next_session, first_session; /* tokens of the frames that go there */
    struct core_hop hop;
    /* progress of what the state does */
    uint64_t done_bytes, total_bytes, moved_bytes;
    uint32_t *wanted;
    size_t n_wanted;
    struct err error; /* FAILED: why */
    uint64_t batches_done;
    uint64_t tokens_done;
    double turn_s; /* of the device, since it was made; never behind those that were busy */
    double busy_s, planned_s;
    uint32_t outputs, outputs_out; /* buffers for large outputs, and how many of them are out;
                                      outputs 0: there is no end of them */
    uint64_t outputs_since_ns;     /* since when nothing of what is out came back */
    struct core_stage *next_dead;
};

/* One slice of a prompt. */
struct core_slice {
    struct message_prefill_slice told;
    uint64_t ready_ns; /* when its input was there; of a paced agent: when it should have been */
};

/* One sequence as the core knows it; the queue holds it as `owner`. */
struct core_sequence {
    struct buffer bytes; /* `open`, encoded */
    struct arena arena;
    struct message_sequence_open open;
    uint64_t ticket, opened_ns, first_token_ns;
    uint64_t sampled; /* tokens told so far */
    bool ended;       /* last stage: the last token has been told */
    /* How its prompt went through here so far, for MESSAGE_PREFILL; freed once that is said. */
    struct core_slice *slices;
    size_t n_slices, slice_capacity;
    struct core_sequence *next_dead;
};

/* A batch that the executor has. */
struct core_run {
    uint64_t slot, ticket;
    struct queue *queue; /* NULL when the generation that it was of is gone */
    struct queue_batch batch;
    uint64_t handed_ns;
    double expected_s;
    double charged_s; /* to the stage's turns, until it is known what it took */
    bool reserved;    /* it takes one of the stage's outputs */
    bool overdue;     /* and said so */
};
/* So many at once; and one more place, since actions point at the one that is done while the next
 * is made. */
enum { CORE_RUNS = 2, CORE_RUN_PLACES = CORE_RUNS + 1 };

struct core_grant {
    uint64_t session;
};

struct agent_core {
    const struct env *env;
    const struct agent_core_config *config;
    struct agent_actions *out;         /* during an event */
    struct agent_action *actions_made; /* until the first event has them */
    struct arena scratch;              /* what this event's actions point at */
    uint64_t ready_ns; /* when what this event brings was there; 0: before the batch that it ends */
    uint64_t due_ns;   /* when the batch that this event ends was due; 0: it ends none */

    enum member_state member;
    bool ever_joined;
    char *name;
    uint64_t boot, heartbeat_ns, heartbeat_number;
    uint64_t next_heartbeat_ns, next_join_ns, last_ack_ns, last_join_ns;
    uint64_t woke_ns; /* the last event */
    uint64_t joins_unanswered;
    bool orphaned;
    struct message_model *models; /* of the store; spans and names in `models_arena` */
    size_t n_models;
    struct arena models_arena;
    uint64_t memory_free_bytes, endpoint_foreign;
    struct message_held_stage held[AGENT_MAX_STAGES];

    struct core_stage *stages[AGENT_MAX_STAGES];
    size_t n_stages;
    double turn_floor_s; /* what the stage had had that ran last */
    struct core_grant grants[AGENT_MAX_GRANTS];
    size_t n_grants;
    uint64_t last_slot, last_ticket;

    /* the batches that the executor has, in their order, beginning at first_run */
    struct core_run runs[CORE_RUN_PLACES];
    size_t first_run, n_running;
    struct queue_batch passed; /* goes on without having run */
    /* What was closed during this event, which its actions may still point at. */
    struct core_sequence *dead_sequences;
    struct core_stage *dead_stages;
    struct frame_token *tokens; /* of the frame that is being posted */
    uint32_t *told;             /* ids of the `tokens` messages of this event */
    size_t token_capacity;

    uint64_t timer_ns; /* asked for */
    uint64_t dropped_stale, dropped_foreign, dropped_malformed, dropped_runs, dropped_full;
};

/* ---- agent_core.c */

/* The next free action, zeroed but for its kind; NULL when memory ran out (the action is lost, and
 * said in the log). */
struct agent_action *core_act(struct agent_core *c, enum agent_action_kind kind);
/* A message to the coordinator: fill in what comes back (NULL as above). */
struct message *core_send(struct agent_core *c, enum message_type type);
void core_release(struct agent_core *c, void *buffer);
/* A copy that holds until the next event. "" for NULL. */
const char *core_text(struct agent_core *c, const char *text);
/* A limit of AGENT_..._MS as the tests' clock has it. */
static inline uint64_t core_scaled_ns(const struct agent_core *c, uint64_t ms)
{
    return (uint64_t)((double)ms * 1e6 * (c->config->time_scale > 0 ? c->config->time_scale : 1));
}
/* Copies a message through its encoding: `bytes` and `arena` own what `out` points at. */
int core_message_copy(const struct message *m, struct buffer *bytes, struct arena *arena,
                      struct message *out);

/* ---- core_stages.c */

struct core_stage *core_stage_of(struct agent_core *c, uint64_t deployment);
struct core_stage *core_stage_of_slot(struct agent_core *c, uint64_t slot);
void core_stage_prepare(struct agent_core *c, const struct message *m);
void core_stage_connect(struct agent_core *c, const struct message_stage_connect *m);
void core_stage_unload(struct agent_core *c, const struct message_stage_unload *m);
void core_stage_fetched(struct agent_core *c, const struct agent_progress *p);
void core_stage_loaded(struct agent_core *c, const struct agent_progress *p);
void core_stage_link_down(struct agent_core *c, uint64_t slot, enum agent_link link);
/* Makes broken links anew. */
void core_stage_links_mend(struct agent_core *c, struct core_stage *s);
/* A stage that was ready is of no use any more: the coordinator is told, and has it made again. */
void core_stage_break(struct agent_core *c, struct core_stage *s, const struct err *e);
void core_stage_report(struct agent_core *c, const struct core_stage *s);
/* Fills c->held; returns how many. */
size_t core_stages_held(struct agent_core *c);
void core_grant(struct agent_core *c, const struct message_chunk_grant *m);
void core_stage_free(struct core_stage *s);

/* ---- core_alive.c: signs of life between stages */

void core_hop_heard(struct agent_core *c, struct core_stage *s);
/* A new generation: nothing was heard yet. */
void core_hop_reset(struct core_stage *s);
void core_hops_tick(struct agent_core *c, uint64_t now);
/* This process stood still for so long: it is nobody's silence. */
void core_hops_forgive(struct agent_core *c, uint64_t gap_ns);
uint64_t core_hops_deadline(const struct agent_core *c);

/* The token of the frames that come to this stage. */
static inline uint64_t core_stage_input_session(const struct core_stage *s)
{
    return s->prepare.input_session ? s->prepare.input_session : s->prepare.session;
}
static inline bool core_stage_is_first(const struct core_stage *s)
{
    return s->prepare.stage == 0;
}
static inline bool core_stage_is_last(const struct core_stage *s)
{
    return s->prepare.stage + 1 == s->prepare.n_stages;
}

/* ---- core_sequences.c */

int core_queue_create(struct agent_core *c, struct core_stage *s, struct err *e);
/* Closes all sequences and gives the queue's buffers back. */
void core_queue_destroy(struct agent_core *c, struct core_stage *s);
void core_sequence_open(struct agent_core *c, const struct message *m);
void core_sequence_opened(struct agent_core *c, const struct agent_event *ev);
void core_sequence_close(struct agent_core *c, struct core_stage *s, uint64_t id);
void core_sequences_close_all(struct agent_core *c, struct core_stage *s);
/* Says that it failed, and closes it. */
void core_sequence_fail(struct agent_core *c, struct core_stage *s, uint64_t id, int code,
                        const char *text);
void core_sequence_free(struct core_sequence *s);
/* Says so of all that are open on the stage. */
void core_sequences_fail_all(struct agent_core *c, struct core_stage *s, int code,
                             const char *text);

/* ---- core_batches.c */

void core_frame(struct agent_core *c, const struct agent_event *ev);
void core_batch_done(struct agent_core *c, const struct agent_event *ev);
/* Hands the executor its next batches, if it has room for them and there are any. */
void core_dispatch(struct agent_core *c);

/* ---- core_watch.c */

/* Gives up what waited too long. */
void core_expire(struct agent_core *c, uint64_t now_ns);
uint64_t core_expire_deadline(const struct agent_core *c);
/* One of the stage's outputs is back. */
void core_output_back(struct agent_core *c, struct core_stage *s);

/* ---- core_prefill.c: what a prompt took on this stage */

enum { CORE_PREFILL_SLICES = 1024 }; /* of prompts with more nothing is said */
/* A run of a sequence has come in; a batch has run. */
void core_prefill_arrived(struct core_sequence *own, const struct frame_run *run, uint64_t ready_ns,
                          uint64_t now_ns);
void core_prefill_ran(struct agent_core *c, struct core_stage *s, const struct queue_batch *b,
                      uint64_t start_ns, uint64_t end_ns);
/* When the input of a batch was there; 0: not known. */
uint64_t core_prefill_ready_ns(const struct core_stage *s, const struct queue_batch *b);

#endif
