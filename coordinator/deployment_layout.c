#include "coordinator/deployment_layout.h"

#include <stdlib.h>

#include "common/utf8.h"
#include "coordinator/member.h"

struct stage_layout *deployment_layout(const struct deployment *d)
{
    struct stage_layout *l = d->n_stages ? stage_layout_create(d->n_stages) : NULL;
    if (!l)
        return NULL;
    l->plan = deployment_plan_use(d->plan);
    l->wire = deployment_wire(d);
    l->context = d->context;
    l->kv_tokens = d->kv_tokens;
    l->max_sequences = d->max_sequences;
    l->max_batch_tokens = d->max_batch_tokens;
    for (int i = 0; i < d->n_stages; i++) {
        const struct deployment_stage *s = &d->stages[i];
        l->stages[i] = (struct layout_stage){.device = s->device,
                                             .first_layer = s->first_layer,
                                             .end_layer = s->end_layer,
                                             .compute_s = s->compute_s,
                                             .memory_bytes = s->memory_bytes};
        utf8_copy(l->stages[i].agent, sizeof l->stages[i].agent, s->agent->name);
    }
    return l;
}

bool deployment_layout_usable(struct coord *c, const struct stage_layout *layout)
{
    for (int i = 0; i < layout->n_stages; i++) {
        const struct member *m = member_find(c, layout->stages[i].agent);
        /* One that is joining just now will be ready in a moment: waiting for it is better than
         * moving. */
        if (!m || !member_device(m, layout->stages[i].device) || m->drain != MEMBER_STAYS ||
            member_device_lost(m, layout->stages[i].device) ||
            (m->state != MEMBER_READY && m->state != MEMBER_JOINING))
            return false;
    }
    return true;
}

int deployment_layout_set(struct coord *c, struct deployment *d, const struct stage_layout *layout,
                          struct err *e)
{
    struct deployment_stage *stages = calloc((size_t)layout->n_stages, sizeof *stages);
    if (!stages)
        return err_set(e, HP_ENOMEM, "no memory for %d stages", layout->n_stages);
    for (int i = 0; i < layout->n_stages; i++) {
        const struct layout_stage *s = &layout->stages[i];
        stages[i] = (struct deployment_stage){.agent = member_find(c, s->agent),
                                              .device = s->device,
                                              .first_layer = s->first_layer,
                                              .end_layer = s->end_layer,
                                              .compute_s = s->compute_s,
                                              .memory_bytes = s->memory_bytes};
        if (!stages[i].agent) {
            free(stages);
            return err_set(e, HP_ENOENT,
                           "deployment \"%s\" was on agent \"%s\", which is not known any more",
                           d->name, s->agent);
        }
    }
    deployment_stages_free(d);
    d->stages = stages;
    d->n_stages = layout->n_stages;
    struct deployment_plan *plan = deployment_plan_use(layout->plan);
    deployment_plan_release(&d->plan);
    d->plan = plan;
    d->wire_chosen = layout->wire;
    d->context = layout->context;
    d->kv_tokens = layout->kv_tokens;
    d->max_sequences = layout->max_sequences;
    d->max_batch_tokens = layout->max_batch_tokens;
    return 0;
}
