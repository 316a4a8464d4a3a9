/* What the files of the core share, each row above the one before:
 *
 *     core_out.c          actions
 *     core_state.c        stages and what the coordinator hears of them
 *     core_sessions.c, core_links.c, core_prefill.c, core_drafts.c, core_posts.c
 *     core_moves.c        keys and values that come and go: what is under way
 *     core_spills.c       what is spilled of chains
 *     core_streams.c      what the next coordinator is told of sequences that outlive theirs
 *     core_sequences.c    opening, closing, failing
 *     core_kv.c           orders and frames of keys and values
 *     core_alive.c, core_watch.c      signs of life, deadlines
 *     core_arrivals.c     weights that come while a stage serves
 *     core_slots.c        what all that is held has in common
 *     core_shares.c       shares of plans of pools
 *     core_stages.c       a stage from prepare to unload
 *     core_tokens.c, core_frames.c, core_batches.c, core_turns.c
 *     core_answers.c, core_membership.c
 *     agent_core.c        the face: two tables
 */
#ifndef HP_AGENT_CORE_INT_H
#define HP_AGENT_CORE_INT_H

#include "agent/agent_core.h"
#include "agent/engine/drafts.h"
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
    uint64_t slot, ticket;       /* ticket of the fetch or load that goes on */
    int state;                   /* enum stage_state; set by core_stage_move alone */
    struct message_ref *message; /* what `prepare` points into */
    struct message_stage_prepare prepare;
    uint64_t loaded_kv_tokens, loaded_sequences,
        loaded_batch_tokens;        /* what the slot was loaded with */
    bool loaded;                    /* the executor has a stage in this slot */
    uint32_t width_in, width_out;   /* elements of a token in frames that come, and that go on */
    uint32_t vocabulary, row_width; /* the second: of what the head gives */
    struct kv_shape kv;
    enum frame_dtype wire;      /* as what rows cross */
    struct queue *queue;        /* of this generation; NULL until ready */
    uint64_t kept[KV_KEPT_MAX]; /* [n_kept]: sequences that have ended, for others to begin with */
    size_t n_kept;
    /* Weights that come while it serves: of its own, of all stages of its deployment as the
     * coordinator has heard, and when either last became less (core_arrivals.c). */
    uint64_t missing_bytes, missing_in_all_bytes, arrived_ns;
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
    size_t n_wanted, room_wanted;
    struct err error; /* FAILED: why; FETCHING: why chunks are wanted that should have been here */
    uint64_t batches_done;
    uint64_t tokens_done;
    double turn_s; /* of its device, over its weight, since it was made; never behind those that
                      were busy */
    double busy_s, planned_s;
    uint32_t outputs, outputs_out;  /* buffers for large outputs, and how many of them are out;
                                       outputs 0: there is no end of them */
    uint64_t outputs_since_ns;      /* since when nothing of what is out came back */
    struct draft_costs draft_costs; /* last stage */
    bool is_share;                  /* of a plan of pools: it has no queue, hops nor sequences */
    uint64_t share_queued;          /* batches that wait for it */
    bool share_running;
    struct message_ref *connect; /* share_connect, held; NULL: none came */
    struct core_stage *next_dead;
};

/* One slice of a prompt. */
struct core_slice {
    struct message_prefill_slice told;
    uint64_t ready_ns; /* when its input was there; of a paced agent: when it should have been */
};

/* One sequence as the core knows it; the queue holds it as `owner`. */
struct core_sequence {
    struct message_ref *message; /* what `open` points into */
    struct message_sequence_open open;
    uint64_t ticket;
    uint64_t sampled;        /* tokens told so far */
    uint64_t unheard, heard; /* of these, said since that many heartbeats were acknowledged: nobody
                                may have heard them */
    bool ended;              /* last stage: the last token has been told */
    bool awaits_kv;          /* what it begins with has not all come */
    uint64_t kv_ns;          /* when something of that was last taken */
    uint64_t kv_bytes;
    uint32_t kv_left, kv_pending; /* awaited still, as the executor says; pieces that it has */
    /* How its prompt went through here so far, for MESSAGE_PREFILL, then the steps behind it, for
     * MESSAGE_DECODE; freed once that is said. */
    struct core_slice *slices;
    size_t n_slices, slice_capacity;
    bool prefill_told, decode_told;
    bool awaited_weights;  /* its prompt did, here or at another stage */
    uint64_t returned_ns;  /* first stage: when its last token came back; 0: not known */
    struct drafts *drafts; /* last stage; NULL: nothing is guessed */
    uint64_t said_ns;      /* when its last token was said; 0: never */
    uint32_t *answer; /* last stage, of a stream: [n_answer] of the `sampled` tokens; fewer: there
                         was no memory for them */
    size_t n_answer, room_answer;
    struct score *scores; /* of these, [n_scores], where they are asked for; or fewer */
    size_t n_scores, room_scores;
    const char *finish; /* with `ended`: behind its last token */
    struct core_sequence *next_dead;
};

/* What is left of a stream whose sequence has ended on its last stage. */
struct core_remains {
    uint64_t deployment, generation, stage, sequence, stream;
    uint64_t ended_ns;
    uint32_t *answer; /* [n_answer] */
    size_t n_answer;
    struct score *scores; /* [n_scores] */
    size_t n_scores;
    uint64_t unheard, heard;
    const char *finish; /* "": it was cut off */
};

/* A batch that an executor has. */
struct core_run {
    uint64_t slot, ticket;
    struct queue *queue; /* NULL when the generation that it was of is gone */
    struct batch batch;
    uint64_t handed_ns;
    double expected_s;
    double charged_s; /* to the stage's turns, until it is known what it took */
    bool reserved;    /* it takes one of the stage's outputs */
    bool overdue;     /* and said so */
};
/* So many at once; and one more place, since actions point at the one that is done while the next
 * is made. */
enum { CORE_RUNS = 2, CORE_RUN_PLACES = CORE_RUNS + 1 };

/* A device: what its executor has, and which of its stages is next. */
struct core_device {
    struct core_run runs[CORE_RUN_PLACES]; /* in their order, beginning at first_run */
    size_t first_run, n_running;
    double turn_floor_s; /* what the stage had had that ran last */
    uint64_t done_ns;    /* when a run last ended */
    uint64_t arrived_ns; /* when weights last came for a stage of it: all of its runs wait */
};

struct core_grant {
    uint64_t session;
};

/* One sender of what a sequence begins with. */
struct core_kv_import {
    uint64_t slot, sequence, session;
    uint64_t id;          /* of the request */
    uint64_t moved_bytes; /* that came from this sender */
};

/* A sequence's keys and values on their way to another stage. */
struct core_kv_export {
    struct message_ref *message; /* what `order` points into; NULL: the place is free */
    struct message_kv_export order;
    uint64_t slot, ticket, id;
    struct kv_shape shape; /* what of the stage's goes there */
    struct kv_cursor at;
    struct kv_range again[AGENT_KV_WINDOW]; /* pieces for which there was no buffer */
    uint32_t n_again, n_out;
    uint64_t retry_ns; /* not before then; 0: at once */
    uint64_t left_ns;  /* when a piece last left */
    uint64_t moved_bytes;
};

enum { CORE_TERMS = 64 };

struct agent_core {
    const struct env *env;
    const struct agent_core_config *config;
    struct agent_actions *out;         /* during an event */
    struct agent_action *actions_made; /* until the first event has them */
    struct arena scratch;              /* what this event's actions point at */
    uint64_t now_ns;                   /* when this event came */
    uint64_t ready_ns; /* when what this event brings was there; 0: before the batch that it ends */
    uint64_t due_ns;   /* when the batch that this event ends was due; 0: it ends none */

    enum member_state member;
    bool ever_joined;
    char *name;
    uint64_t boot, heartbeat_ns, heartbeat_number;
    uint64_t next_heartbeat_ns, next_join_ns, last_ack_ns, last_join_ns;
    uint64_t acks;    /* heartbeats that were acknowledged */
    uint64_t woke_ns; /* the last event */
    uint64_t joins_unanswered;
    bool orphaned;
    struct message_model *models; /* of the store; spans and names in `models_arena` */
    size_t n_models;
    struct arena models_arena;
    uint64_t memory_free_bytes, endpoint_foreign, endpoint_stale, data_sent_bytes,
        data_received_bytes;
    struct message_device_state *device_states; /* [n_devices] */
    struct message_held_stage held[AGENT_MAX_STAGES];

    struct core_device *devices; /* [n_devices] */
    size_t n_devices;
    struct core_stage *stages[AGENT_MAX_STAGES];
    size_t n_stages;
    struct core_term {
        uint64_t deployment, generation; /* the newest of it that was ordered here */
    } terms[CORE_TERMS];                 /* a ring; nothing stands there with deployment 0 */
    size_t next_term;
    struct core_grant grants[AGENT_MAX_GRANTS];
    size_t n_grants;
    struct core_kv_import kv_imports[AGENT_MAX_KV_IMPORTS];
    size_t n_kv_imports;
    struct core_kv_export kv_exports[AGENT_MAX_KV_EXPORTS];
    size_t n_kv_exports;
    struct core_copy {
        struct message_ref *message; /* stage_prepare, held */
        uint64_t slot, ticket;
    } copies[AGENT_MAX_COPIES];
    size_t n_copies;
    size_t n_kv_awaiting;                           /* sequences that await keys and values */
    struct core_remains remains[AGENT_MAX_REMAINS]; /* [n_remains], the oldest first */
    size_t n_remains, remains_bytes;
    size_t scores_bytes; /* of sequences that are open */
    uint64_t orphan_ns;  /* so long sequences go on without a coordinator */
    uint64_t last_slot, last_ticket;

    struct batch passed; /* goes on without having run */
    /* What was closed during this event, which its actions may still point at. */
    struct core_sequence *dead_sequences;
    struct core_stage *dead_stages;
    struct frame_token *tokens; /* of the frame that is being posted */
    struct message_said *said;  /* rows of the `tokens` message of this event, and their ids */
    uint32_t *told_ids;
    float *pooled; /* rows of encoders' texts */
    size_t n_said, room_tokens, room_told, room_said, room_pooled;

    uint64_t timer_ns; /* asked for */
    uint64_t dropped_stale, dropped_foreign, dropped_malformed, dropped_runs, dropped_full;
};

enum { CORE_ACTIONS_MADE = 384 }; /* so many are allocated with the core */

/* ---- core_out.c */

/* The next free action, zeroed but for its kind; NULL when memory ran out (the action is lost, and
 * said in the log). */
struct agent_action *core_act(struct agent_core *c, enum agent_action_kind kind);
/* A message to the coordinator: fill in what comes back (NULL as above). */
struct message *core_send(struct agent_core *c, enum message_type type);
void core_release(struct agent_core *c, void *buffer);
/* Copies that hold until the next event. "" for NULL; empty where there is no memory. */
const char *core_text(struct agent_core *c, const char *text);
struct pack_span core_span(struct agent_core *c, struct pack_span from);
/* A limit of AGENT_..._MS as the tests' clock has it. */
static inline uint64_t core_scaled_ns(const struct agent_core *c, uint64_t ms)
{
    return (uint64_t)((double)ms * 1e6 * (c->config->time_scale > 0 ? c->config->time_scale : 1));
}
/* ---- core_state.c */

/* As frames and messages address it; NULL: it is not here. */
struct core_stage *core_stage_of(struct agent_core *c, uint64_t deployment, uint64_t generation,
                                 uint64_t stage);
struct core_stage *core_stage_of_slot(const struct agent_core *c, uint64_t slot);
/* As orders address it: NULL, too, where a newer generation of its deployment has been ordered. */
struct core_stage *core_stage_ordered(struct agent_core *c, uint64_t deployment,
                                      uint64_t generation, uint64_t stage);
/* The newest generation of a deployment of which a stage was ordered here, also where none is here
 * any more (of the last CORE_TERMS deployments); 0: none was. Orders of older ones are not obeyed,
 * but for those that only end what is there. */
uint64_t core_orders_term(const struct agent_core *c, uint64_t deployment);
void core_orders_term_take(struct agent_core *c, uint64_t deployment, uint64_t generation);
/* The newest generation of a deployment that has a stage here; 0: none has. */
uint64_t core_deployment_generation(const struct agent_core *c, uint64_t deployment);
void core_stage_free(struct core_stage *s);
void core_stage_report(struct agent_core *c, const struct core_stage *s);
/* Fills c->held; returns how many. */
size_t core_stages_held(struct agent_core *c);
/* The one setter of a stage's state; the coordinator hears of it. */
void core_stage_move(struct agent_core *c, struct core_stage *s, enum stage_state to);
void core_stage_fail(struct agent_core *c, struct core_stage *s, const struct err *e);
/* A stage that was ready is of no use any more: the coordinator is told, and has it made again. */
void core_stage_break(struct agent_core *c, struct core_stage *s, const struct err *e);

/* The device that a stage is on. */
static inline struct core_device *core_device_of(const struct agent_core *c,
                                                 const struct core_stage *s)
{
    return &c->devices[s->prepare.device];
}

/* The token of the frames that come to this stage. */
static inline uint64_t core_stage_input_session(const struct core_stage *s)
{
    return s->prepare.input_session ? s->prepare.input_session : s->prepare.session;
}
/* One that only keeps runs nothing, and is neither first nor last. */
static inline bool core_stage_is_first(const struct core_stage *s)
{
    return s->prepare.stage == 0 && !s->prepare.keeps;
}
/* Of its deployment's share of the device's time; what is no number above 0 counts as 1. */
static inline double core_stage_weight(const struct core_stage *s)
{
    return s->prepare.weight > 0 && s->prepare.weight < 1e9 ? s->prepare.weight : 1;
}

static inline bool core_stage_is_last(const struct core_stage *s)
{
    return s->prepare.stage + 1 == s->prepare.n_stages && !s->prepare.keeps;
}

/* Bytes of a frame with so many runs and tokens, of `width` elements each. */
static inline uint64_t core_rows_bytes(const struct core_stage *s, uint32_t width, uint32_t runs,
                                       uint32_t tokens)
{
    return (uint64_t)runs * FRAME_RUN_BYTES + frame_dtype_bytes(s->wire, (uint64_t)tokens * width);
}

/* ---- core_sessions.c */

void core_stage_sessions_allow(struct agent_core *c, const struct core_stage *s);
/* Once nothing uses them any more. */
void core_stage_sessions_revoke(struct agent_core *c, uint64_t session, uint64_t input_session);
void core_grant(struct agent_core *c, struct message_ref *m);
/* `from`: the key of the only sender; empty: anybody who may connect. */
void core_session_allow(struct agent_core *c, uint64_t session, struct pack_span from);
/* Once nothing uses it any more. */
void core_session_revoke(struct agent_core *c, uint64_t session);

/* ---- core_copies.c */

void core_copy_begin(struct agent_core *c, struct message_ref *m);
/* False: it is no copy that this is about. */
bool core_copy_fetched(struct agent_core *c, const struct agent_progress *p);
void core_copies_free(struct agent_core *c);

/* ---- core_links.c */

void core_stage_links_set(struct agent_core *c, struct core_stage *s,
                          const struct message_stage_connect *m);
/* Whether they lead there already, and none is known to be broken. */
bool core_stage_links_are(const struct core_stage *s, const struct message_stage_connect *m);
void core_stage_link_broke(struct agent_core *c, struct core_stage *s, enum agent_link link);
/* Makes broken links anew. */
void core_stage_links_mend(struct agent_core *c, struct core_stage *s);

/* ---- core_prefill.c: what a prompt took on this stage, and the first steps of its answer */

enum {
    CORE_PREFILL_SLICES = 1024, /* of prompts with more nothing is said */
    CORE_DECODE_STEPS = 32,     /* of an answer, which are told */
};
/* A run of a sequence has come in; a batch has run. */
void core_prefill_arrived(struct core_sequence *own, const struct batch_run *run, uint64_t ready_ns,
                          uint64_t now_ns);
void core_prefill_ran(struct agent_core *c, struct core_stage *s, const struct batch *b,
                      uint64_t start_ns, uint64_t end_ns);
/* An answer ends: the steps that were noted are told. */
void core_decode_ended(struct agent_core *c, const struct core_stage *s, struct core_sequence *own);
/* When the input of a batch was there; 0: not known. */
uint64_t core_prefill_ready_ns(const struct core_stage *s, const struct batch *b);

/* ---- core_drafts.c: guesses, on the last stage */

void core_drafts_begin(const struct core_stage *s, struct core_sequence *own);
/* Fills in the guesses of a batch's runs, for whoever samples. */
void core_drafts_order(const struct core_stage *s, struct batch *b);
/* A run of the sequence has given tokens: its first `right` guesses, of ids[], and one more. */
void core_drafts_ran(struct agent_core *c, struct core_stage *s, struct core_sequence *own,
                     const struct batch_run *run, const uint32_t *ids, uint32_t right);
/* Guesses of what follows, into rows that have room for BATCH_MAX_DRAFTS, and at most `room`: how
 * many. */
uint32_t core_drafts_say(const struct core_stage *s, struct core_sequence *own, uint32_t room,
                         struct frame_token *rows);

/* ---- core_moves.c */

/* An answer to a kv_import or kv_export; `e` where it failed, else NULL. */
void core_kv_say(struct agent_core *c, uint64_t id, const struct message_kv_state *state,
                 const struct err *e);
/* The last of what a sequence begins with has come: its senders' sessions end. */
void core_kv_received(struct agent_core *c, const struct core_stage *s, struct core_sequence *own);
/* All of it has left (e NULL), or will not. */
void core_kv_export_end(struct agent_core *c, struct core_kv_export *x, const struct err *e);
/* The sequence is closed: what was under way for it fails. */
void core_kv_forget(struct agent_core *c, const struct core_stage *s, struct core_sequence *own);
/* This process stood still for so long: what moved meanwhile it could not see. */
void core_kv_forgive(struct agent_core *c, uint64_t gap_ns);

/* ---- core_spills.c */

/* A stage is ready: the coordinator hears what is spilled of its chains. */
void core_spills_begin(struct agent_core *c, const struct core_stage *s);
void core_spills_told(struct agent_core *c, const struct agent_event *ev);
void core_sequence_spill(struct agent_core *c, struct message_ref *m);
/* What an open sequence begins with is read back, where it says so. */
void core_spill_back(struct agent_core *c, const struct core_stage *s,
                     const struct core_sequence *own);

/* ---- core_streams.c */

/* Of a sequence that has been opened: what it has of its answer already. */
void core_stream_begin(const struct core_stage *s, struct core_sequence *own);
/* The last stage has said n more of its tokens, with these scores of each (NULL: none). */
void core_stream_said(struct agent_core *c, struct core_sequence *own, const uint32_t *ids,
                      const struct score *scores, size_t n);
/* The sequence has ended on this stage, for whatever reason: its answer is kept for a while. */
void core_stream_left(struct agent_core *c, const struct core_stage *s, struct core_sequence *own);
/* Tells a coordinator that has started again what is open, and what is left of others. */
void core_streams_tell(struct agent_core *c);
/* How many these are, at most. */
uint64_t core_streams_count(const struct agent_core *c);
void core_remains_free(struct agent_core *c);

/* ---- core_sequences.c */

int core_queue_create(struct agent_core *c, struct core_stage *s, struct err *e);
/* Closes all sequences and gives the queue's buffers back. */
void core_queue_destroy(struct agent_core *c, struct core_stage *s);
void core_sequence_open(struct agent_core *c, struct message_ref *m);
void core_sequence_grow(struct agent_core *c, struct message_ref *m);
void core_sequence_closed(struct agent_core *c, struct message_ref *m);
void core_sequence_opened(struct agent_core *c, const struct agent_event *ev);
/* Those of a coordinator that is gone which nobody will ask for: all but streams. */
void core_sequences_close_dead(struct agent_core *c, struct core_stage *s);
/* Of a stage, also those that are kept. */
void core_sequences_close_all(struct agent_core *c, struct core_stage *s);
/* Says that it failed, and closes it. */
void core_sequence_fail(struct agent_core *c, struct core_stage *s, uint64_t id, int code,
                        const char *text);
void core_sequence_free(struct core_sequence *s);
/* Says so of all that are open on the stage. */
void core_sequences_fail_all(struct agent_core *c, struct core_stage *s, int code,
                             const char *text);
void core_events_lost(struct agent_core *c, const struct agent_event *ev);

/* ---- core_posts.c */

struct frame_header core_activation_header(const struct agent_core *c, const struct core_stage *s,
                                           const struct batch *b);
/* The sequences of a batch end here. */
void core_batch_fail(struct agent_core *c, struct core_stage *s, const struct batch *b, int code,
                     const char *text);
/* To the first stage: the batch has been through, and the first `n` of c->tokens are its tokens. */
void core_tokens_post(struct agent_core *c, struct core_stage *s, uint32_t batch, uint32_t n);
/* To the next stage: what this one made of a batch (taken), or that nothing is left of it. */
void core_batch_post(struct agent_core *c, struct core_stage *s, const struct batch *b,
                     void *output);
/* A batch without runs goes on; so does one of which nothing is left, unless its frame came twice.
 */
void core_batch_pass_empty(struct agent_core *c, struct core_stage *s, const struct batch *b);
void core_batch_drop(struct agent_core *c, struct core_stage *s, const struct batch *b);

/* ---- core_kv.c */

void core_kv_import(struct agent_core *c, struct message_ref *m);
void core_kv_export(struct agent_core *c, struct message_ref *m);
/* FRAME_KV, whosever it is. */
void core_kv_frame(struct agent_core *c, const struct agent_event *ev);
void core_kv_imported(struct agent_core *c, const struct agent_event *ev);
void core_kv_left(struct agent_core *c, const struct agent_event *ev);
/* Batches have been handed out: what goes as it is computed goes on. */
void core_kv_follow(struct agent_core *c);
/* Tries again what had no buffer, gives up what takes too long. */
void core_kv_tick(struct agent_core *c, uint64_t now_ns);
uint64_t core_kv_deadline(const struct agent_core *c);

/* ---- core_alive.c: signs of life between stages */

void core_hop_heard(struct agent_core *c, struct core_stage *s);
/* A new generation: nothing was heard yet. */
void core_hop_reset(struct core_stage *s);
void core_hops_tick(struct agent_core *c, uint64_t now);
/* This process stood still for so long: it is nobody's silence. */
void core_hops_forgive(struct agent_core *c, uint64_t gap_ns);
uint64_t core_hops_deadline(const struct agent_core *c);

/* ---- core_watch.c */

/* Gives up what waited too long. */
void core_expire(struct agent_core *c, uint64_t now_ns);
uint64_t core_expire_deadline(const struct agent_core *c);
/* One of the stage's outputs is back. */
void core_output_back(struct agent_core *c, struct core_stage *s);
void core_output_freed(struct agent_core *c, const struct agent_event *ev);

/* ---- core_arrivals.c: weights that come while a stage serves. Deadlines of what may wait for them
 * count from when they last came. */

void core_stage_filling(struct agent_core *c, const struct agent_event *ev);
/* What other stages of the deployments miss (struct message_loading). */
void core_arrivals_told(struct agent_core *c, const struct pack_list *loading);
/* Whether a run that began then may have waited for weights of a stage of its device. */
bool core_run_awaited_weights(const struct agent_core *c, const struct core_stage *s,
                              uint64_t start_ns);

/* ---- core_slots.c */

/* Says something of what is not held: refused before it began, or unloaded. */
void core_stage_report_without(struct agent_core *c, const struct message_stage_prepare *p,
                               const char *state, const struct err *e);
/* FETCH or LOAD of what its order says. */
void core_stage_work(struct agent_core *c, struct core_stage *s, enum agent_action_kind kind);
/* What is ordered is held from now on, and its chunks are fetched. NULL, and said: there is no
 * room. */
struct core_stage *core_stage_add(struct agent_core *c, struct message_ref *m);
void core_stage_drop(struct agent_core *c, struct core_stage *s);

/* ---- core_shares.c */

void core_share_prepare(struct agent_core *c, struct message_ref *m);
void core_share_connect(struct agent_core *c, struct message_ref *m);
void core_share_metered(struct agent_core *c, const struct agent_event *ev);
void core_share_failed(struct agent_core *c, const struct agent_event *ev);

/* ---- core_stages.c */

void core_stage_prepare(struct agent_core *c, struct message_ref *m);
void core_stage_connect(struct agent_core *c, struct message_ref *m);
void core_stage_unload(struct agent_core *c, struct message_ref *m);
void core_stage_fetched(struct agent_core *c, const struct agent_event *ev);
void core_stage_loaded(struct agent_core *c, const struct agent_event *ev);
void core_stage_link_down(struct agent_core *c, const struct agent_event *ev);

/* ---- core_tokens.c, core_frames.c, core_batches.c */

/* The last stage has run a batch: tokens and logits are told. */
void core_tokens_picked(struct agent_core *c, struct core_stage *s, const struct batch *b,
                        const struct agent_event *ev);
void core_frame(struct agent_core *c, const struct agent_event *ev);
void core_batch_done(struct agent_core *c, const struct agent_event *ev);
void core_batch_failed(struct agent_core *c, struct core_stage *s, const struct batch *b,
                       const struct agent_event *ev);

/* ---- core_turns.c */

/* Hands the executors their next batches, if they have room for them and there are any. */
void core_dispatch(struct agent_core *c);

/* ---- core_answers.c */

void core_profile_run(struct agent_core *c, struct message_ref *m);
void core_link_probe(struct agent_core *c, struct message_ref *m);
void core_store_remove(struct agent_core *c, struct message_ref *m);
void core_log_fetch(struct agent_core *c, struct message_ref *m);
/* A message that no agent knows. */
void core_unknown(struct agent_core *c, struct message_ref *m);
void core_profiled(struct agent_core *c, const struct agent_event *ev);
void core_profiling(struct agent_core *c, const struct agent_event *ev);
void core_probed(struct agent_core *c, const struct agent_event *ev);
void core_log_answer(struct agent_core *c, const struct agent_event *ev);

/* ---- core_membership.c */

void core_start(struct agent_core *c, const struct agent_event *ev);
void core_welcome(struct agent_core *c, struct message_ref *m);
void core_refused(struct agent_core *c, struct message_ref *m);
void core_heartbeat_ack(struct agent_core *c, struct message_ref *m);
void core_members_told(struct agent_core *c, struct message_ref *m);
void core_store_changed(struct agent_core *c, const struct agent_event *ev);
void core_meter(struct agent_core *c, const struct agent_event *ev);
/* While this process itself stood still it read nothing: what it missed then is not the
 * coordinator's silence, nor that of neighbours and of those whose keys and values come or go. */
void core_pause_forgive(struct agent_core *c, uint64_t now);
void core_member_tick(struct agent_core *c, uint64_t now);
uint64_t core_member_deadline(const struct agent_core *c);

#endif
