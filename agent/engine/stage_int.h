/* A stage on a graph that needs no model file: what stage_load and stage_footprint do with the
 * model's own. For tests. */
#ifndef HP_AGENT_ENGINE_STAGE_INT_H
#define HP_AGENT_ENGINE_STAGE_INT_H

#include "agent/engine/stage.h"

/* `c->model` is not looked at; graph, config and their weights outlive the stage. */
int stage_footprint_of_graph(const struct graph *g, const struct stage_config *c,
                             struct section_need *out, struct err *e);
int stage_load_graph(const struct graph *g, const struct model_config *m,
                     const struct stage_config *c, struct stage **out, struct err *e);

#endif
