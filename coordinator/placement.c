/* The loop's half of placement: asks for a plan, says whether one that has come is still good, and
 * makes its stages. */
#include "coordinator/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/deployment.h"
#include "coordinator/layouts.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement_int.h"
#include "coordinator/planner_cluster.h"
#include "coordinator/profiles.h"
#include "coordinator/works.h"
#include "planners/pipeline/predict.h"
#include "transport/message.h"

/* So often a plan is made anew because something has changed; after that it is taken if its agents
 * still have the room. */
enum { OUTDATED_LIMIT = 3 };

void placement_free(struct placement *p)
{
    free(p->stages);
    deployment_plan_release(&p->plan);
    *p = (struct placement){0};
}

void placing_free(struct placement_job *p)
{
    json_decref(p->answer.document);
    json_decref(p->apart_said);
    arena_free(&p->arena);
    planner_inputs_release(&p->inputs);
    free(p);
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

/* The layout of this model that served last, where all its agents may be given stages now. */
static void last_read(const struct coord *c, struct placement_job *p, const struct deployment *d)
{
    const struct model_layout *last = layouts_find(c, d->model->id);
    int n = last && d->model->expert_groups <= 1 ? last->n_stages : 0;
    p->last_devices = n ? arena_alloc(&p->arena, (size_t)n, sizeof *p->last_devices) : NULL;
    p->last_ends = n ? arena_alloc(&p->arena, (size_t)n, sizeof *p->last_ends) : NULL;
    for (int i = 0; p->last_devices && p->last_ends && i < n; i++) {
        p->last_devices[i] =
            planner_inputs_device(p->inputs, last->stages[i].agent, last->stages[i].device);
        p->last_ends[i] = last->stages[i].end_layer;
        if (p->last_devices[i] < 0)
            return;
        p->n_last = i + 1 == n ? n : 0;
    }
}

/* It keeps what it has: the context, and room for as many keys and values. */
static void room_keep(struct placement_job *p, const struct deployment *d)
{
    uint64_t rounded = placing_round_up(d->context, DEPLOYMENT_KV_ROUND);
    p->apart = false; /* two plans do not move together */
    p->answer_tokens = d->answer_tokens > 0 ? d->answer_tokens : PLACEMENT_ANSWER_TOKENS;
    if (!rounded)
        return;
    p->max_context = d->context;
    p->least_sequences = p->most_sequences = d->kv_tokens >= rounded ? d->kv_tokens / rounded : 1;
}

static int own_read(struct placement_job *p, const struct deployment *d, struct err *e)
{
    size_t n = (size_t)d->n_stages;
    p->own_devices = arena_alloc(&p->arena, n, sizeof *p->own_devices);
    p->own_ends = arena_alloc(&p->arena, n, sizeof *p->own_ends);
    if (!p->own_devices || !p->own_ends)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    for (size_t i = 0; i < n; i++) {
        const struct deployment_stage *s = &d->stages[i];
        p->own_devices[i] = planner_inputs_device(p->inputs, s->agent->name, s->device);
        p->own_ends[i] = s->end_layer;
        if (p->own_devices[i] < 0)
            return err_set(e, HP_ELINK, "agent \"%s\", which it is on, is %s", s->agent->name,
                           member_states[s->agent->state].word);
    }
    p->n_own = d->n_stages;
    return 0;
}

static bool devices_are_paced(struct coord *c, const struct placement_job *p)
{
    const struct cluster *cluster = &p->inputs->cluster;
    int n = p->devices ? p->n_devices : cluster->n_devices, paced = 0;
    for (int i = 0; i < n; i++) {
        int node = cluster->devices[p->devices ? p->devices[i] : i].node;
        const struct member *m = member_find(c, cluster->nodes[node].name);
        paced += m && member_paced_as(m)[0];
    }
    return n > 0 && paced == n;
}

/* Rows cross in whole blocks. */
static int wire_check(const struct placement_job *p, struct err *e)
{
    uint32_t block = frame_dtype_block(p->wire);
    if (p->wire_auto || p->border_elements % block == 0)
        return 0;
    return err_set(e, HP_EUNSUPPORTED,
                   "--wire %s packs %u elements together, and this model's rows are no multiple of "
                   "that: take --wire f16",
                   frame_dtype_word(p->wire), block);
}

int placing_create(struct coord *c, struct deployment *d, bool imagined, struct placement_job **out,
                   struct err *e)
{
    struct placement_job *p = calloc(1, sizeof *p);
    struct err no_own = {0};
    if (!p)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    p->core = c;
    p->imagined = imagined;
    p->deployment = d->id;
    p->env = c->env;
    p->planned = d->spec.planned;
    p->plan_tokens = d->spec.plan_tokens;
    p->max_slice = (int)deployment_spec_batch_tokens(&d->spec, &d->model->facts);
    p->max_context = d->spec.max_context;
    p->trained_context = d->model->facts.context;
    /* A plan is for prompts of its length, and for its micro-batches at once. */
    p->least_sequences = d->spec.micro_batches > 1 ? (uint64_t)d->spec.micro_batches : 1;
    p->max_sequences = d->spec.max_sequences;
    p->apart = deployment_reads_auto(&d->spec) && d->model->facts.kv_before;
    p->ttft_s = d->spec.ttft_s;
    p->tpot_s = d->spec.tpot_s;
    p->answer_tokens = d->answer_tokens;
    p->most_sequences = p->max_sequences ? p->max_sequences : c->config.max_sequences;
    p->width = planner_border_width(&d->model->facts);
    p->vocabulary = d->model->facts.vocabulary;
    int rc = planner_inputs_get(c, d, &p->inputs, e);
    if (rc == 0) {
        p->cluster = p->inputs->cluster;
        p->profile = p->inputs->profile;
        p->wire = p->inputs->wire;
        p->wire_auto = d->spec.wire_auto;
        p->border_elements = planner_border_elements(&d->model->facts);
        rc = wire_check(p, e);
        rc = rc < 0 ? rc : placing_devices_read(p, d, e);
    }
    p->paced = rc == 0 && devices_are_paced(c, p);
    if (rc == 0 && (d->beside || imagined))
        room_keep(p, d);
    if (rc == 0 && imagined && deployment_serves(d))
        p->n_own = own_read(p, d, &no_own) < 0 ? 0 : p->n_own;
    else if (rc == 0 && d->beside)
        rc = own_read(p, d, e);
    else if (rc == 0 && !imagined && !p->devices)
        last_read(c, p, d);
    if (rc < 0) {
        placing_free(p);
        return rc;
    }
    *out = p;
    return 0;
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
    for (int i = 0; i < p->n_stages; i++)
        if (!p->stages[i].agent || !member_available(p->stages[i].agent) ||
            p->stages[i].memory_bytes >
                planner_free_bytes(c, d, p->stages[i].agent, p->stages[i].device))
            return false;
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
                              struct placement *out, struct err *e)
{
    static const char *const given[] = {"solver", "slices", "micro_batches", "predicted"};
    json_t *document = p->answer.document;
    json_object_set_new(document, "inputs", json_array());
    json_object_set_new(document, "wire", json_string(frame_dtype_word(p->wire)));
    json_object_set_new(document, "kv", json_string(kv_format_word(d->spec.kv)));
    json_object_set_new(document, "wire_why",
                        json_string(p->wire_why[0] ? p->wire_why : "as was asked"));
    json_object_set_new(document, "wire_costs", json_string(wire_costs[p->wire]));
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

static int placement_fill(struct coord *c, const struct deployment *d,
                          const struct placement_job *p, struct placement *out, struct err *e)
{
    const struct pipeline_answer *a = &p->answer;
    const struct planner_inputs *in = p->inputs;
    *out = (struct placement){.context = p->context,
                              .sequences = p->sequences,
                              .wire = p->wire,
                              .before = p->before,
                              .after = p->after,
                              .answer_tokens = p->answer_tokens,
                              .n_stages = a->plan.n_stages};
    out->stages = calloc((size_t)a->plan.n_stages, sizeof *out->stages);
    if (!out->stages)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    out->max_sequences = placing_open_sequences(p, out->context, out->sequences);
    uint64_t kv = placing_kv_tokens(p, out->context, out->sequences);
    for (int i = 0; i < out->n_stages; i++) {
        const struct plan_stage *s = &a->plan.stages[i];
        struct placement_device at = placing_device_of_id(c, s->device);
        out->stages[i] = (struct placement_stage){at.agent,     at.device,    s->first_layer,
                                                  s->end_layer, s->compute_s, 0};
        if (!out->stages[i].agent)
            return err_set(e, HP_ELINK, "the plan names %s, which is no member any more",
                           s->device);
        int device = cluster_find_device(&in->cluster, s->device);
        out->stages[i].memory_bytes =
            (device < 0 ? 0 : in->workspace_bytes[device]) +
            placing_beside_bytes(p, out->context, out->sequences, i + 1 == out->n_stages);
        for (int l = s->first_layer; l < s->end_layer; l++)
            out->stages[i].memory_bytes +=
                in->resident_bytes[l] + in->state_bytes_per_token[l] * (double)kv;
    }
    return placement_plan_set(d, p, out, e);
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
    out->has_room = !again && rc == HP_EINFEASIBLE && p->has_room && !p->paced && !p->planned;
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
    return kept && (!pace || (measured && strcmp(pace, measured) == 0));
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
