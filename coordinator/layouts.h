/* Where the layers of each model lay when it served last, also after its deployment has ended: the
 * agents' stores still hold those weights, so that a plan that is hardly faster is not worth moving
 * them. A cache (store_queue.h): a full disk loses it. */
#ifndef HP_COORDINATOR_LAYOUTS_H
#define HP_COORDINATOR_LAYOUTS_H

#include <jansson.h>
#include <stddef.h>

#include "common/status.h"

struct core;
struct deployment;

enum { LAYOUTS_MAX = 256 };

/* A deployment serves. */
void layouts_keep(struct core *c, const struct deployment *d);
/* Of a model: [{"agent", "end_layer"}] by stage, borrowed; NULL: it has not served. */
const json_t *layouts_find(const struct core *c, const char *model);
int layouts_restore(struct core *c, const char *model, json_t *value, struct err *e);
void layouts_free(struct core *c);

#endif
