/* A prompt that one plan reads for another: a deployment with prefill agents has two plans, each a
 * deployment of its own with stages, generations and room (prefill_plans.h). A request is a
 * sequence of the one that goes on, `to`, which awaits keys and values of all its prompt but the
 * last token, and of the one that reads, `from`, whose stages send each slice's as soon as it is
 * computed. What the two sides have in common they find by blocks, so their stages may be cut in
 * any way. Until the first token of `to` has come either side may fail: then both are freed, and
 * the request begins anew on the stages of `to` alone (sequence_fail).
 *
 * State, and orders to the stages; who is admitted is decided in admission.h, what becomes of
 * sequences in sequence_ends.h. */
#ifndef HP_COORDINATOR_HANDOFFS_H
#define HP_COORDINATOR_HANDOFFS_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"
#include "transport/message.h"

enum {
    HANDOFF_LEAST_TOKENS = 64, /* fewer are read where they are needed */
    HANDOFF_MOST_EXPORTS = 64, /* of an agent at once: AGENT_MAX_KV_EXPORTS of agent/agent_core.h */
};

/* The deployment that should read this prompt, of which `have` tokens are on the stages of its own
 * already; NULL: these do it themselves. */
struct deployment *handoff_reader(struct coord *c, const struct deployment *d,
                                  const struct sequence *s, uint32_t have);
/* Whether the agents under the stages of `from` can send one sequence more to those of `to` now. */
bool handoff_may_begin(const struct coord *c, const struct deployment *from,
                       const struct deployment *to);
/* Ties the two together. False: no memory, or the stages have no blocks in common. */
bool handoff_tie(struct coord *c, struct sequence *to, struct sequence *from);
/* Both sequences are open: the stages of `to` are told whose frames they await. False: no memory.
 */
bool handoff_imports_order(struct coord *c, struct handoff *h);
/* What a stage says of its part of it, `part` as its order was numbered. */
enum handoff_news {
    HANDOFF_NOTHING,
    HANDOFF_UNSAID, /* an order could not be sent for want of memory */
    HANDOFF_GONE,   /* all has been read and has left: `from` may end */
    HANDOFF_KEPT,   /* all of a copy has come to where nothing is computed: it may end */
};
enum handoff_news handoff_told(struct coord *c, struct sequence *s, uint64_t part,
                               const struct message_kv_state *k);
/* The stages of `from` have computed all. True: all has left, and it may end. */
bool handoff_read(struct coord *c, struct sequence *from);
/* `to` has its first token, and goes on alone. Nothing where that was long ago and it is being
 * moved on: it is the other side then. */
void handoff_done(struct coord *c, struct sequence *to);

/* A sequence that runs is on its way to another deployment (SEQUENCE_MOVE), or copied there
 * (SEQUENCE_REPLICA): until that one has a token it goes on where it is. */
static inline bool handoff_moves(const struct sequence *s)
{
    return s->handoff && s->handoff->to &&
           (s->handoff->to->kind == SEQUENCE_MOVE || s->handoff->to->kind == SEQUENCE_REPLICA);
}
/* This sequence is the copy of another. */
static inline bool handoff_copies(const struct sequence *s)
{
    return handoff_moves(s) && s->handoff->to->kind == SEQUENCE_REPLICA;
}
/* Whether a sequence still needs the other plan, or is needed by it. */
static inline bool handoff_pends(const struct sequence *s)
{
    return s->handoff && s->handoff->to;
}

#endif
