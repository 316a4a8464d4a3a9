/* The links of a stage: where they lead, and that they are made anew when they broke. */
#ifndef HP_AGENT_CORE_LINKS_H
#define HP_AGENT_CORE_LINKS_H

#include "agent/core_state.h"

/* Keeps where the stage's links lead, and makes them. */
void core_stage_links_set(struct agent_core *c, struct core_stage *s,
                          const struct message_stage_connect *m);
/* Whether they lead there already, and none is known to be broken. */
bool core_stage_links_are(const struct core_stage *s, const struct message_stage_connect *m);
/* Said in the log, once a minute at most; core_stage_links_mend makes the link anew. */
void core_stage_link_broke(struct agent_core *c, struct core_stage *s, enum agent_link link);
/* Makes broken links anew. */
void core_stage_links_mend(struct agent_core *c, struct core_stage *s);

#endif
