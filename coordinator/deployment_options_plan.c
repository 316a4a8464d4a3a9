/* Owns what a deployment takes from a plan that was given: stages by the ids of devices, slices,
 * micro-batches. */
#include <stdlib.h>
#include <string.h>

#include "common/experts.h"
#include "common/plan.h"
#include "coordinator/deployment_options.h"

enum { PLAN_MAX_MICRO_BATCHES = 64 };

static int slices_take(struct deployment_spec *s, const struct plan_pipeline *p, struct err *e)
{
    uint64_t sum = 0;
    if (p->n_slices == 0)
        return 0;
    s->slices = calloc((size_t)p->n_slices, sizeof *s->slices);
    if (!s->slices)
        return err_set(e, HP_ENOMEM, "no memory for a plan of %d slices", p->n_slices);
    for (int i = 0; i < p->n_slices; i++)
        sum += s->slices[i] = (uint32_t)p->slices[i];
    if (sum > UINT32_MAX / 2)
        return err_set(e, HP_EINVAL, "the plan's slices have %llu tokens", (unsigned long long)sum);
    s->n_slices = (uint32_t)p->n_slices;
    s->plan_tokens = (uint32_t)sum;
    return 0;
}

int deployment_options_plan_read(struct deployment_spec *s, struct err *e)
{
    struct json_at at = {.file = "plan", .value = json_object_get(s->options, "plan")};
    struct arena arena = {0};
    struct plan_pipeline p;
    int rc = plan_pipeline_from_json(&at, &arena, &p, e);
    for (int i = 0; rc == 0 && i < p.n_stages; i++) {
        const struct plan_stage *stage = &p.stages[i];
        rc = stage->n_devices > 1
                 ? err_set(e, HP_EUNSUPPORTED,
                           "stage %d of the plan is over %d devices; a stage runs on one", i,
                           stage->n_devices)
                 : deployment_range_add(s, stage->device, strlen(stage->device), stage->first_layer,
                                        stage->end_layer, e);
    }
    if (rc == 0 && p.micro_batches > PLAN_MAX_MICRO_BATCHES)
        rc = err_set(e, HP_ELIMIT, "a plan of %g micro-batches; %d are the limit", p.micro_batches,
                     PLAN_MAX_MICRO_BATCHES);
    rc = rc < 0 ? rc : slices_take(s, &p, e);
    if (rc == 0 && p.expert_groups && s->expert_groups && p.expert_groups != s->expert_groups)
        rc = err_set(e, HP_EINVAL,
                     "--expert-groups %llu, and the plan is for experts in %u groups: leave the "
                     "option out",
                     (unsigned long long)s->expert_groups, p.expert_groups);
    if (rc == 0 && p.expert_groups > EXPERT_GROUPS_MAX)
        rc = err_set(e, HP_ELIMIT, "a plan for experts in %u groups; %d are the limit",
                     p.expert_groups, EXPERT_GROUPS_MAX);
    if (rc == 0 && p.expert_groups)
        s->expert_groups = p.expert_groups;
    s->with_layers = s->planned = true;
    s->micro_batches = rc < 0 ? 0 : p.micro_batches;
    arena_free(&arena);
    return rc;
}
