/* What crosses between two stages, as the coordinator says it: the values by name, each with its
 * elements of a token. Compared with the model's graph when a stage is loaded, and with what the
 * neighbour takes when it is connected. */
#ifndef HP_AGENT_BORDERS_H
#define HP_AGENT_BORDERS_H

#include "common/pack.h"
#include "common/status.h"

struct graph;

/* Lists are of struct message_value; an empty one says nothing, and agrees with all. */

/* A copy on its own, for border_free. HP_ENOMEM. */
int border_copy(const struct pack_list *from, struct pack_list *out);
void border_free(struct pack_list *border);
/* HP_EINVAL names the first value in which the two differ; `who` says what `said` is of. */
int border_agrees(const struct pack_list *said, const struct pack_list *own, const char *who,
                  struct err *e);
/* The same against what the graph has after `layer`. */
int border_fits(const struct pack_list *said, const struct graph *g, int layer, struct err *e);

#endif
