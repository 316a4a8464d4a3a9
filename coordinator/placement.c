/* The loop's half of placement: asks for a plan, says whether one that has come is still good, and
 * makes its stages. */
#include "coordinator/placement.h"

#include <string.h>

#include "common/log.h"
#include "common/utf8.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement_int.h"
#include "coordinator/planner_cluster.h"
#include "coordinator/profiles.h"
#include "coordinator/works.h"
#include "planners/pipeline/predict.h"

/* So often a plan is made anew because something has changed; after that it is taken if its agents
 * still have the room. */
enum { OUTDATED_LIMIT = 3 };

void placement_free(struct placement *p)
{
    stage_layout_release(&p->layout);
    *p = (struct placement){0};
}

/* ---- the work, there and back ---- */

static void placing_run(struct coord_work *w)
{
    placing_search((struct placement_job *)w);
}

static void placing_done(struct coord_work *w, bool dropped)
{
    struct placement_job *p = (struct placement_job *)w;
    struct deployment *d = dropped ? NULL : deployment_of_id(p->core, p->deployment);
    if (!dropped)
        p->core->n_planning--;
    if (d && d->placing == p)
        p->back = true; /* the next step takes it */
    else
        placing_free(p);
}

void placement_cancel(struct deployment *d)
{
    struct placement_job *p = d->placing;
    d->placing = NULL;
    d->outdated = 0;
    if (p && p->back)
        placing_free(p);
    else if (p)
        atomic_store(&p->work.canceled, true);
}

/* 1: it is on its way, or waits for its turn. */
static int placing_start(struct coord *c, struct deployment *d, struct err *e)
{
    struct placement_job *p = NULL;
    if (c->n_planning >= COORD_MAX_PLANNING)
        return 1;
    int rc = placing_create(c, d, false, &p, e);
    if (rc < 0)
        return rc;
    p->work.run = placing_run;
    p->work.done = placing_done;
    if (works_add(c, &p->work, NULL, e) < 0) {
        placing_free(p);
        return 1; /* the next tick asks again */
    }
    c->n_planning++;
    d->placing = p;
    return 1;
}

/* ---- a plan that has come ---- */

/* Its agents may be given stages and have the room. */
static bool placement_usable(struct coord *c, const struct deployment *d, const struct placement *p)
{
    for (int i = 0; i < p->layout->n_stages; i++) {
        const struct layout_stage *s = &p->layout->stages[i];
        struct member *m = member_find(c, s->agent);
        if (!m || !member_available(m) || s->memory_bytes > planner_free_bytes(c, d, m, s->device))
            return false;
    }
    return true;
}

/* What crossing costs in accuracy, by format: a real model's logits (docs/measurements.md). */
static const char *const wire_costs[FRAME_DTYPE_END] = {
    [FRAME_F32] = "nothing: the numbers are the same",
    [FRAME_F16] = "logits within 0.1 % of the largest, KL below 1e-6 nats",
    [FRAME_BF16] = "logits within 0.4 % of the largest, KL 1e-5 nats",
    [FRAME_Q8] = "logits within 1 % of the largest, KL 1e-4 nats"};

/* The document as people see it; of a plan that was given, with what was given. */
static int placement_plan_set(const struct deployment *d, const struct placement_job *p,
                              struct stage_layout *out, struct err *e)
{
    static const char *const given[] = {"solver", "slices", "micro_batches", "predicted"};
    json_t *document = p->answer.document;
    json_object_set_new(document, "inputs", json_array());
    json_object_set_new(document, "wire", json_string(frame_dtype_word(p->wire)));
    json_object_set_new(document, "kv", json_string(kv_format_word(d->spec.kv)));
    json_object_set_new(document, "wire_why",
                        json_string(p->wire_why[0] ? p->wire_why : "as was asked"));
    json_object_set_new(document, "wire_costs", json_string(wire_costs[p->wire]));
    if (d->model->expert_groups > 1)
        json_object_set_new(document, "expert_groups", json_integer(d->model->expert_groups));
    if (p->apart_said)
        json_object_set(document, "apart", p->apart_said);
    else if (deployment_reads_auto(&d->spec))
        json_object_set_new(
            document, "apart",
            json_pack("{s:b, s:s}", "chosen", 0, "why",
                      "together: what this model keeps of a sequence cannot be handed over"));
    for (size_t i = 0; d->spec.planned && i < sizeof given / sizeof *given; i++)
        json_object_set(document, given[i],
                        json_object_get(json_object_get(d->spec.options, "plan"), given[i]));
    out->plan = deployment_plan_create(document, (uint64_t)p->tokens);
    return out->plan ? 0 : err_set(e, HP_ENOMEM, "no memory for a plan");
}

/* Bytes of a stage: its weights, its room for keys and values, and what it computes in. */
static double stage_bytes(const struct placement_job *p, const struct plan_stage *s, bool last)
{
    const struct planner_inputs *in = p->inputs;
    int device = cluster_find_device(&in->cluster, s->device);
    double kv = (double)placing_kv_tokens(p, p->context, p->sequences),
           bytes = (device < 0 ? 0 : in->workspace_bytes[device]) +
                   placing_beside_bytes(p, p->context, p->sequences, last);
    for (int l = s->first_layer; l < s->end_layer; l++)
        bytes += in->resident_bytes[l] + in->state_bytes_per_token[l] * kv;
    return bytes;
}

static int placement_stages_set(struct coord *c, const struct placement_job *p,
                                struct stage_layout *out, struct err *e)
{
    for (int i = 0; i < out->n_stages; i++) {
        const struct plan_stage *s = &p->answer.plan.stages[i];
        struct placement_device at = placing_device_of_id(c, s->device);
        if (!at.agent)
            return err_set(e, HP_ELINK, "the plan names %s, which is no member any more",
                           s->device);
        out->stages[i] =
            (struct layout_stage){.device = at.device,
                                  .first_layer = s->first_layer,
                                  .end_layer = s->end_layer,
                                  .compute_s = s->compute_s,
                                  .memory_bytes = stage_bytes(p, s, i + 1 == out->n_stages)};
        utf8_copy(out->stages[i].agent, sizeof out->stages[i].agent, at.agent->name);
    }
    return 0;
}

static int placement_fill(struct coord *c, const struct deployment *d,
                          const struct placement_job *p, struct placement *out, struct err *e)
{
    struct stage_layout *l = stage_layout_create(p->answer.plan.n_stages);
    *out = (struct placement){
        .layout = l, .before = p->before, .after = p->after, .answer_tokens = p->answer_tokens};
    if (!l)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    l->wire = p->wire;
    l->context = p->context;
    l->kv_tokens = p->n_own /* it keeps the room that it has */
                       ? d->kv_tokens
                       : placing_round_up(p->context, DEPLOYMENT_KV_ROUND) * p->sequences;
    l->max_sequences = placing_open_sequences(p, p->context, p->sequences);
    l->max_batch_tokens = deployment_spec_batch_tokens(&d->spec, &d->model->facts);
    int rc = placement_stages_set(c, p, l, e);
    return rc < 0 ? rc : placement_plan_set(d, p, l, e);
}

/* 1: it was outdated, and another is on its way. */
static int placing_take(struct coord *c, struct deployment *d, struct placement *out, struct err *e)
{
    struct placement_job *p = d->placing;
    bool changed = planner_inputs_version(c, d) != p->inputs->version;
    int rc = p->status;
    d->placing = NULL;
    if (rc == 0)
        rc = placement_fill(c, d, p, out, e);
    else
        *e = p->error;
    if (rc < 0)
        placement_free(out);
    bool again =
        changed && (d->outdated < OUTDATED_LIMIT || (rc == 0 && !placement_usable(c, d, out)));
    out->has_room = !again && rc == HP_EINFEASIBLE && p->has_room && !p->planned;
    placing_free(p);
    if (!again) {
        d->outdated = 0;
        return rc;
    }
    log_info("coordinator", "plan_outdated", "deployment=%s", d->name);
    placement_free(out);
    d->outdated++;
    return placing_start(c, d, e);
}

/* ---- the face ---- */

int placement_make(struct coord *c, struct deployment *d, struct placement *out, struct err *e)
{
    uint64_t trained = d->model->facts.context;
    *out = (struct placement){0};
    if (trained && d->spec.max_context > trained)
        return err_set(e, HP_EINVAL, "--max-context %llu is more than the model's %llu",
                       (unsigned long long)d->spec.max_context, (unsigned long long)trained);
    int experts = model_slot_experts(d->model);
    if (d->spec.expert_groups > 1 && (uint64_t)experts < d->spec.expert_groups)
        return experts ? err_set(e, HP_EINVAL,
                                 "--expert-groups %llu: this model's blocks have %d experts",
                                 (unsigned long long)d->spec.expert_groups, experts)
                       : err_set(e, HP_EINVAL,
                                 "--expert-groups %llu: this model has no mixtures of experts",
                                 (unsigned long long)d->spec.expert_groups);
    if (d->spec.kv == KV_Q8_0 && d->model->facts.odd_head) {
        err_set(e, HP_EUNSUPPORTED,
                "--kv q8_0: this model's keys have %u elements, and q8_0 has a scale for every %d",
                d->model->facts.odd_head, KV_Q8_ELEMENTS);
        return err_hint(e, "deploy it with --kv f16");
    }
    if (d->placing)
        return d->placing->back ? placing_take(c, d, out, e) : 1;
    return placing_start(c, d, e);
}

static bool kind_is_measured(const struct coord *c, const struct deployment *d,
                             const struct member *m, const char *kind)
{
    const struct kept_profile *kept =
        profiles_find(c, d->model->id, kind, deployment_spec_compute(&d->spec));
    const char *pace = m->node ? m->node->paced_profile : NULL,
               *measured = kept ? kept->measured.pace : NULL;
    return kept && kept->measured.classes.n_classes > 0 &&
           (!pace || (measured && strcmp(pace, measured) == 0));
}

int placement_unmeasured(struct coord *c, const struct deployment *d, struct placement_device *out,
                         int max)
{
    int n = 0;
    for (size_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];
        for (int k = 0; n < max && member_available(m) && k < member_device_count(m); k++) {
            const char *kind = member_kind(m, k);
            bool known = member_device_lost(m, k) || kind_is_measured(c, d, m, kind);
            for (int o = 0; o < n; o++)
                known = known || strcmp(member_kind(out[o].agent, out[o].device), kind) == 0;
            if (!known)
                out[n++] = (struct placement_device){m, k};
        }
    }
    return n;
}

int placement_predict(struct coord *c, struct deployment *d, const int *slices, int n, int cached,
                      struct arena *arena, struct pipeline_schedule *out, struct err *e)
{
    struct planner_inputs *in = NULL;
    int rc = planner_inputs_get(c, d, &in, e);
    if (rc < 0)
        return rc;
    struct plan_pipeline plan = {.n_stages = d->n_stages,
                                 .stages =
                                     arena_alloc(arena, (size_t)d->n_stages, sizeof *plan.stages)};
    rc = plan.stages ? 0 : err_set(e, HP_ENOMEM, "no memory for a prediction");
    for (int i = 0; rc == 0 && i < d->n_stages; i++) {
        int device = planner_inputs_device(in, d->stages[i].agent->name, d->stages[i].device);
        if (device < 0)
            rc = err_set(e, HP_ELINK, "agent \"%s\" is not here now", d->stages[i].agent->name);
        else
            plan.stages[i] = (struct plan_stage){.device = in->cluster.devices[device].id,
                                                 .first_layer = d->stages[i].first_layer,
                                                 .end_layer = d->stages[i].end_layer};
    }
    if (rc == 0)
        rc = predict_schedule(&in->cluster, &in->profile, &plan, slices, n, cached, in->stands_for,
                              arena, out, e);
    planner_inputs_release(&in);
    return rc;
}
