#include "coordinator/expert_groups.h"

#include "common/log.h"
#include "coordinator/model_slots.h"
#include "coordinator/regrowth.h"

/* What belongs to another deployment has that one's layers. */
static bool is_part_of_another(const struct deployment *d)
{
    return d->beside || d->spec.succeeds[0] || d->spec.prefill_of[0] || d->spec.copy_of[0];
}

/* Twice as many; 1: as many as there may be do not help. */
static uint32_t groups_next(const struct model_slot *m)
{
    uint32_t most = (uint32_t)model_slot_experts(m);
    most = most < MODEL_SLOT_GROUPS ? most : MODEL_SLOT_GROUPS;
    uint32_t next = 2 * m->expert_groups < most ? 2 * m->expert_groups : most;
    return next > m->expert_groups ? next : 1;
}

bool expert_groups_next(struct coord *c, struct deployment *d, bool has_room)
{
    uint32_t own = d->model->expert_groups, groups = has_room ? groups_next(d->model) : 1;
    if (groups == own || is_part_of_another(d))
        return false;
    struct model_slot *divided = model_slot_divided(c, d->model, groups);
    if (!divided)
        return false;
    stage_layout_release(&d->served);
    regrowth_forget(d);
    deployment_stages_free(d);
    d->model = divided;
    log_info("coordinator", "experts_grouped", "deployment=%s groups=%u", d->name, groups);
    return groups > own;
}
