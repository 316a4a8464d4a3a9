/* Signs of life between the stages of a deployment. */
#ifndef HP_AGENT_CORE_ALIVE_H
#define HP_AGENT_CORE_ALIVE_H

#include "agent/core_state.h"

/* Something came from the stage before; for the first time, or after silence: told. */
void core_hop_heard(struct agent_core *c, struct core_stage *s);
/* A new generation: nothing was heard yet. */
void core_hop_reset(struct core_stage *s);
/* Sends signs of life that are due, mends links, and gives up what was silent for too long. */
void core_hops_tick(struct agent_core *c, uint64_t now_ns);
/* This process stood still for so long: it is nobody's silence. */
void core_hops_forgive(struct agent_core *c, uint64_t gap_ns);
uint64_t core_hops_deadline(const struct agent_core *c);

#endif
