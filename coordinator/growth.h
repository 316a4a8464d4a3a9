/* Room for keys and values, taken as sequences grow. A sequence is opened with pages for its prompt
 * and for an answer as long as answers were lately; before its tokens come to the end of these, all
 * its stages are told of one page more (sequence_grow), and none of them runs beyond what it was
 * told. So pages never run out on a stage.
 *
 * Where none is left, what is kept for others goes first (prefixes.h), then the youngest sequence
 * gives way: its stages close it, and it begins anew with its prompt and all that it has answered
 * so far, before whoever else waits. What its stages keep of it meanwhile, or have spilled
 * (spills.h), need not be computed again. Nobody gives way to a younger one, so the oldest always
 * goes on. Preemption by recomputing is vLLM's (PagedAttention, SOSP 2023, section 4.5). */
#ifndef HP_COORDINATOR_GROWTH_H
#define HP_COORDINATOR_GROWTH_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

enum {
    GROWTH_ANSWER_TOKENS = 128, /* what an answer is taken to need before any has ended */
    GROWTH_AHEAD_TOKENS = 32,   /* more is reserved when so many are left: steps under way, and what
                                   messages take, are shorter */
};

/* Tokens to reserve for a sequence that is to be opened now. */
uint64_t growth_first(const struct deployment *d, const struct sequence *s);
/* Pages that stay free when somebody is let in: one for each that may still grow. */
uint32_t growth_margin(const struct deployment *d);
/* Tokens of the sequence have come: its stages are told of more room if it will need it, for which
 * others may give way. */
void growth_told(struct coord *c, struct deployment *d, struct sequence *s);
/* Sequences that could not grow try again, the oldest first. False: one still waits for room, and
 * nobody is to be let in before it. */
bool growth_advance(struct coord *c, struct deployment *d);

#endif
