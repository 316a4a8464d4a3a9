/* A stage's way from `stage_prepare` to `stage_unload`. */
#ifndef HP_AGENT_CORE_STAGES_H
#define HP_AGENT_CORE_STAGES_H

#include "agent/core_state.h"

/* `stage_prepare`: weights that are here serve the new generation, too, else they are fetched; a
 * stage that is held is told again. Of a copy or a share: see there. */
void core_stage_prepare(struct agent_core *c, struct message_ref *m);
/* `stage_connect`: its links are made; what was open is closed, unless they lead there already and
 * it is to be kept. */
void core_stage_connect(struct agent_core *c, struct message_ref *m);
/* `stage_unload`: all of the deployment's stages here of that generation and older ones go. */
void core_stage_unload(struct agent_core *c, struct message_ref *m);
/* How AGENT_DO_FETCH goes, of a stage or of a copy. */
void core_stage_fetched(struct agent_core *c, const struct agent_event *ev);
/* How AGENT_DO_LOAD goes; at its end the stage is ready. */
void core_stage_loaded(struct agent_core *c, const struct agent_event *ev);
/* A link broke: what was open on the stage fails. */
void core_stage_link_down(struct agent_core *c, const struct agent_event *ev);

#endif
