/* What stages and shares have in common: they are ordered, held, fetched, dropped, and the
 * coordinator hears of them. */
#ifndef HP_AGENT_CORE_SLOTS_H
#define HP_AGENT_CORE_SLOTS_H

#include "agent/core_state.h"

/* Says something of what is not held: refused before it began, or unloaded. */
void core_stage_report_without(struct agent_core *c, const struct message_stage_prepare *p,
                               enum stage_state state, const struct err *e);
/* FETCH or LOAD of what its order says. */
void core_stage_work(struct agent_core *c, struct core_stage *s, enum agent_action_kind kind);
/* What is ordered is held from now on, and its chunks are fetched. NULL, and said: there is no
 * room. */
struct core_stage *core_stage_add(struct agent_core *c, struct message_ref *m);
/* Not held any more: unloaded, its sequences closed. Freed with the next event. */
void core_stage_drop(struct agent_core *c, struct core_stage *s);

#endif
