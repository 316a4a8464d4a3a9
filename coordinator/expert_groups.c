#include "coordinator/expert_groups.h"

#include "common/experts.h"
#include "common/log.h"
#include "coordinator/model_slots.h"
#include "coordinator/regrowth.h"

/* What belongs to another deployment has that one's layers. */
static bool is_part_of_another(const struct deployment *d)
{
    return d->beside || d->spec.succeeds[0] || d->spec.prefill_of[0] || d->spec.copy_of[0];
}

bool expert_groups_next(struct coord *c, struct deployment *d, bool has_room)
{
    uint32_t own = d->model->expert_groups,
             next = expert_groups_more(own, (uint32_t)model_slot_experts(d->model)),
             groups = has_room ? next : 1;
    if (groups == own || d->spec.expert_groups || is_part_of_another(d))
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
