/* Where the layers of each model lay when it served last, also after its deployment has ended: the
 * agents' stores still hold those weights, so that a plan that is hardly faster is not worth moving
 * them. A cache (store_queue.h): a full disk loses it. */
#ifndef HP_COORDINATOR_LAYOUTS_H
#define HP_COORDINATOR_LAYOUTS_H

#include "common/digest.h"
#include "coordinator/state.h"

enum { LAYOUTS_MAX = 256 };

struct model_layout {
    char model[DIGEST_HEX];
    struct model_layout_stage {
        char agent[MEMBER_NAME];
        int device, end_layer;
    } * stages;
    int n_stages;
};

/* A deployment serves. */
void layouts_keep(struct coord *c, const struct deployment *d);
/* NULL: this model has not served. */
const struct model_layout *layouts_find(const struct coord *c, const char *model);
/* [{"agent", "device", "end_layer"}] by stage. */
int layouts_restore(struct coord *c, const char *model, json_t *value, struct err *e);
void layouts_free(struct coord *c);

#endif
