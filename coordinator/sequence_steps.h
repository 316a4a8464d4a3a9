/* What a step of a sequence gave, as its last stage tells it: what of that is new is counted, kept
 * and told, and the sequence goes on, or ends. */
#ifndef HP_COORDINATOR_SEQUENCE_STEPS_H
#define HP_COORDINATOR_SEQUENCE_STEPS_H

#include "coordinator/sequence.h"
#include "transport/message.h"

/* When an agent made tokens. */
struct step_made {
    const struct member *agent;
    uint64_t clock_ns, generation; /* by its clock; of its stage */
    uint64_t at_ns;                /* by ours, as far as we know its clock now */
};

/* The sequence may have begun anew, moved, or be over and freed afterwards. */
void sequence_step(struct coord *c, struct sequence *s, const struct message_said *t,
                   const struct step_made *made);
/* The prompt that it read for another, or the copy, is there: it ends. */
void sequence_reader_finish(struct coord *c, struct sequence *s);
/* Something that it gave was lost on its way from the last stage, and the sequence with it; `what`
 * says so to people. */
void sequence_answer_lost(struct coord *c, struct sequence *s, const char *what);

#endif
