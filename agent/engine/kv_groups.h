/* Which layers' KV looks alike: the groups of a model, and what of each lies on one stage. Groups
 * are numbered over the whole model, and blocks within their group, so that a group and a block
 * mean the same on every stage, whatever layers that has. */
#ifndef HP_AGENT_ENGINE_KV_GROUPS_H
#define HP_AGENT_ENGINE_KV_GROUPS_H

#include "agent/backend/backend.h"
#include "agent/engine/kv_shape.h"

struct kv_groups {
    int n;
    struct kv_layout layouts[KV_GROUPS_MAX]; /* n_blocks: those of the stage; may be 0 */
    int first_block[KV_GROUPS_MAX];          /* of the stage's, among the model's of that group */
};

/* Of layers [first_layer, end_layer). HP_EUNSUPPORTED for a model with more kinds of attention than
 * KV_GROUPS_MAX, or whose keys are no whole blocks of the format. */
int kv_groups_make(const struct graph *g, int first_layer, int end_layer, enum kv_format format,
                   struct kv_groups *out, struct err *e);
/* The group of an attention of the model. */
int kv_groups_find(const struct kv_groups *k, const struct op_attention *a);

struct kv_shape kv_groups_shape(const struct kv_groups *k);

#endif
