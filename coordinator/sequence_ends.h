/* How a sequence ends: finished, failed, cancelled; and its tokens until then. */
#ifndef HP_COORDINATOR_SEQUENCE_ENDS_H
#define HP_COORDINATOR_SEQUENCE_ENDS_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

/* How it ended: the stages came to its end, somebody left it, something broke. */
enum {
    SEQUENCE_LOST_MS = 600000, /* so long one that has told a part of its answer waits to go on */
};
enum sequence_ending { SEQUENCE_DONE, SEQUENCE_LEFT, SEQUENCE_BROKEN };

/* Takes it out of its deployment and tells the stages; the caller frees it. Unless something broke,
 * what the stages have of it may stay there for others to begin with. */
void sequence_close(struct coord *c, struct sequence *s, enum sequence_ending how);
/* From where it runs back to the front of the queue; its stages and the index forget it. */
void sequence_begin_anew(struct coord *c, struct sequence *s);
/* From where it runs to the front of the queue: it begins anew with all that it has answered. What
 * its stages have of it stays there while there is room. */
void sequence_preempt(struct coord *c, struct sequence *s);
/* These three answer whoever asked, and free it; but one whose keys and values were on their way
 * from another plan begins anew, and its own stages read its prompt. */
void sequence_finish(struct coord *c, struct sequence *s, enum request_finish finish);
void sequence_fail(struct coord *c, struct sequence *s, const struct err *why);
void sequence_fail_memory(struct coord *c, struct sequence *s);
/* False: lost for want of memory. */
bool sequence_call_back(struct coord *c, const struct sequence *s, const uint32_t *ids, size_t n);
/* The same for an encoder's row, f32. */
bool sequence_call_back_row(struct coord *c, const struct sequence *s, const uint8_t *bytes,
                            size_t size);
/* The same for scores: of the prompt's tokens, or of tokens that are told next. */
bool sequence_call_back_scores(struct coord *c, const struct sequence *s, bool of_prompt,
                               const uint8_t *bytes, size_t size);
/* Its stages have lost it, or are gone: it goes to the front of the queue and begins anew with all
 * that it has told, so that nobody hears of it; but fails where that does not help. */
void sequence_lose(struct coord *c, struct sequence *s, const struct err *why);
/* Of all that run, one may have ended the agent that was just lost. */
void sequences_suspect(struct deployment *d);
/* Loses all that run. */
void sequences_lose_all(struct coord *c, struct deployment *d, const struct err *why);
/* Ends what is open, and the queue, with an error. */
void sequences_fail_all(struct coord *c, struct deployment *d, const struct err *why);

#endif
