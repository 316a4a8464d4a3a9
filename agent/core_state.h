/* The state of the core, which its files share (floors.txt says which of them calls which), and the
 * stages in it: finding one, what state it is in, and what the coordinator hears of that.
 *
 * In the core's headers, what takes a message_ref or an agent_event does what that message orders
 * or that event asks for, and is a row of the tables of agent_core.c. What it needs beyond the
 * event it holds or copies, and all that follows is actions. What ends in `_deadline` says when its
 * `_tick`, or core_expire, has something to do next (UINT64_MAX: never). */
#ifndef HP_AGENT_CORE_STATE_H
#define HP_AGENT_CORE_STATE_H

#include "agent/core_sequence.h"
#include "agent/core_stage.h"
#include "common/arena.h"

enum membership_state { MEMBERSHIP_OUTSIDE, MEMBERSHIP_JOINING, MEMBERSHIP_JOINED };

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

/* Frames with chunks are welcome on this session. */
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

enum { CORE_TERMS = 64 }; /* deployments of which the newest generation is known */

struct agent_core {
    const struct env *env;
    const struct agent_core_config *config;
    struct agent_actions *out;         /* during an event */
    struct agent_action *actions_made; /* until the first event has them */
    struct arena scratch;              /* what this event's actions point at */
    uint64_t now_ns;                   /* when this event came */
    uint64_t ready_ns; /* when what this event brings was there; 0: before the batch that it ends */
    uint64_t due_ns;   /* when the batch that this event ends was due; 0: it ends none */

    enum membership_state membership;
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

/* The device that a stage is on. */
static inline struct core_device *core_device_of(const struct agent_core *c,
                                                 const struct core_stage *s)
{
    return &c->devices[s->prepare.device];
}

/* As frames and messages address it; NULL: it is not here. */
struct core_stage *core_stage_of(struct agent_core *c, uint64_t deployment, uint64_t generation,
                                 uint64_t stage);
/* As the shell names it; NULL: it is not here any more. */
struct core_stage *core_stage_of_slot(const struct agent_core *c, uint64_t slot);
/* As orders address it: NULL, too, where a newer generation of its deployment has been ordered. */
struct core_stage *core_stage_ordered(struct agent_core *c, uint64_t deployment,
                                      uint64_t generation, uint64_t stage);
/* The newest generation of a deployment of which a stage was ordered here, also where none is here
 * any more (of the last CORE_TERMS deployments); 0: none was. Orders of older ones are not obeyed,
 * but for those that only end what is there. */
uint64_t core_orders_term(const struct agent_core *c, uint64_t deployment);
/* That this generation was ordered; where there is no place the oldest deployment gives way. */
void core_orders_term_take(struct agent_core *c, uint64_t deployment, uint64_t generation);
/* The newest generation of a deployment that has a stage here; 0: none has. */
uint64_t core_deployment_generation(const struct agent_core *c, uint64_t deployment);
/* Its memory; core_stage_drop ends it. */
void core_stage_free(struct core_stage *s);
/* Says its state to the coordinator. */
void core_stage_report(struct agent_core *c, const struct core_stage *s);
/* Fills c->held; returns how many. */
size_t core_stages_held(struct agent_core *c);
/* The one setter of a stage's state; the coordinator hears of it. */
void core_stage_move(struct agent_core *c, struct core_stage *s, enum stage_state to);
/* Moves it to STAGE_FAILED; `e` is kept and told. */
void core_stage_fail(struct agent_core *c, struct core_stage *s, const struct err *e);
/* A stage that was ready is of no use any more: the coordinator is told, and has it made again. */
void core_stage_break(struct agent_core *c, struct core_stage *s, const struct err *e);

#endif
