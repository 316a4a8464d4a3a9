/* What the coordinator asks of an agent beside its stages, each with an id that its answer has. */
#ifndef HP_AGENT_CORE_ANSWERS_H
#define HP_AGENT_CORE_ANSWERS_H

#include "agent/core_state.h"

/* `profile_run`: a model is measured on a device. */
void core_profile_run(struct agent_core *c, struct message_ref *m);
/* `link_probe`: a link to another agent is measured, or this one answers another's probe. */
void core_link_probe(struct agent_core *c, struct message_ref *m);
/* `store_remove`: chunks of a model go from the store. */
void core_store_remove(struct agent_core *c, struct message_ref *m);
/* `log_fetch`: the last lines of this agent's log. */
void core_log_fetch(struct agent_core *c, struct message_ref *m);
/* A message that no agent knows: refused where it asks for an answer. */
void core_unknown(struct agent_core *c, struct message_ref *m);
/* The end of a profile, with its tables or why there are none. */
void core_profiled(struct agent_core *c, const struct agent_event *ev);
/* How a profile goes that takes a while. */
void core_profiling(struct agent_core *c, const struct agent_event *ev);
/* The end of a probe. */
void core_probed(struct agent_core *c, const struct agent_event *ev);
/* The lines of the log. */
void core_log_answer(struct agent_core *c, const struct agent_event *ev);

#endif
