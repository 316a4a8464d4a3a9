/* Finds what the next picks of samplers need (the tokens that a grammar allows) on a thread of its
 * own, while the model computes what they pick from. The thread starts with the first sampler.
 * Used by one thread. */
#ifndef HP_AGENT_ENGINE_LOOK_AHEAD_H
#define HP_AGENT_ENGINE_LOOK_AHEAD_H

#include "common/status.h"

struct look_ahead;
struct sampler; /* agent/engine/sampler.h */

/* HP_ENOMEM. */
int look_ahead_create(struct look_ahead **out, struct err *e);
void look_ahead_destroy(struct look_ahead **l);
/* The sampler is the thread's until look_ahead_stop, if it lacks something; those that came before
 * have their turn before. */
void look_ahead_add(struct look_ahead *l, struct sampler *s);
/* All are the caller's again: waits for the one that is being looked after, no longer than a pick
 * would take to find the same; the others lack what they lacked. */
void look_ahead_stop(struct look_ahead *l);

#endif
