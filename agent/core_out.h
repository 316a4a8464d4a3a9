/* What leaves the core: actions, and the copies that they point at. */
#ifndef HP_AGENT_CORE_OUT_H
#define HP_AGENT_CORE_OUT_H

#include "agent/core_state.h"

enum { CORE_ACTIONS_MADE = 384 }; /* so many are allocated with the core */

/* The next free action, zeroed but for its kind; NULL when memory ran out (the action is lost, and
 * said in the log). */
struct agent_action *core_act(struct agent_core *c, enum agent_action_kind kind);
/* A message to the coordinator: fill in what comes back (NULL as above). */
struct message *core_send(struct agent_core *c, enum message_type type);
/* A buffer is not needed any more; NULL is nothing. */
void core_release(struct agent_core *c, void *buffer);
/* Copies that hold until the next event. "" for NULL; empty where there is no memory. */
const char *core_text(struct agent_core *c, const char *text);
struct pack_span core_span(struct agent_core *c, struct pack_span from);

/* A limit of AGENT_..._MS as the tests' clock has it. */
static inline uint64_t core_scaled_ns(const struct agent_core *c, uint64_t ms)
{
    return (uint64_t)((double)ms * 1e6 * (c->config->time_scale > 0 ? c->config->time_scale : 1));
}

#endif
