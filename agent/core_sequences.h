/* The life of sequences on this agent: opening, growing, closing, failing. */
#ifndef HP_AGENT_CORE_SEQUENCES_H
#define HP_AGENT_CORE_SEQUENCES_H

#include "agent/core_state.h"

/* The queue of a stage that is ready, for its generation. HP_ENOMEM. */
int core_queue_create(struct agent_core *c, struct core_stage *s, struct err *e);
/* Closes all sequences and gives the queue's buffers back. */
void core_queue_destroy(struct agent_core *c, struct core_stage *s);
/* `sequence_open`: it waits in the queue until the executor has it; refused with a word. */
void core_sequence_open(struct agent_core *c, struct message_ref *m);
/* `sequence_grow`: more room is reserved; less is never. */
void core_sequence_grow(struct agent_core *c, struct message_ref *m);
/* `sequence_close`: it ends here, or is kept for others to begin with; without a number: all of the
 * stage. */
void core_sequence_closed(struct agent_core *c, struct message_ref *m);
/* The executor has room for it, or not: then it fails. */
void core_sequence_opened(struct agent_core *c, const struct agent_event *ev);
/* Those of a coordinator that is gone which nobody will ask for: all but streams. */
void core_sequences_close_dead(struct agent_core *c, struct core_stage *s);
/* Of a stage, also those that are kept. */
void core_sequences_close_all(struct agent_core *c, struct core_stage *s);
/* Says that it failed, and closes it. */
void core_sequence_fail(struct agent_core *c, struct core_stage *s, uint64_t id, int code,
                        const char *text);
/* The same of all that are open on the stage. */
void core_sequences_fail_all(struct agent_core *c, struct core_stage *s, int code,
                             const char *text);
/* Its memory, once no action points at it any more. */
void core_sequence_free(struct core_sequence *s);
/* Events were lost for want of room: whatever they were of, all sequences fail. */
void core_events_lost(struct agent_core *c, const struct agent_event *ev);

#endif
