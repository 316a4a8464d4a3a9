/* What the planner is to look at for a deployment: its spec, its model, the devices that there are,
 * and where its layers lie. On the loop. */
#include <stdlib.h>

#include "coordinator/deployment.h"
#include "coordinator/layouts.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement_int.h"
#include "coordinator/planner_cluster.h"

void placing_free(struct placement_job *p)
{
    json_decref(p->answer.document);
    json_decref(p->apart_said);
    arena_free(&p->arena);
    planner_inputs_release(&p->inputs);
    free(p);
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

/* What the spec and the model say, whatever agents there are. */
static void spec_read(const struct coord *c, struct placement_job *p, const struct deployment *d)
{
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
    p->row = planner_border_row(&d->model->facts);
    p->experts = model_slot_experts(d->model);
    p->vocabulary = d->model->facts.vocabulary;
    p->wire_auto = d->spec.wire_auto;
    p->border_elements = planner_border_elements(&d->model->facts);
}

/* What there is, and which of it the spec names. */
static int devices_read(struct coord *c, struct placement_job *p, struct deployment *d,
                        struct err *e)
{
    int rc = planner_inputs_get(c, d, &p->inputs, e);
    if (rc < 0)
        return rc;
    p->cluster = p->inputs->cluster;
    p->profile = p->inputs->profile;
    p->wire = p->inputs->wire;
    rc = wire_check(p, e);
    rc = rc < 0 ? rc : placing_devices_read(p, d, e);
    p->paced = rc == 0 && devices_are_paced(c, p);
    return rc;
}

/* Where its layers lie now, or lay when it served last. */
static int places_read(const struct coord *c, struct placement_job *p, const struct deployment *d,
                       struct err *e)
{
    struct err no_own = {0};
    if (d->beside || p->imagined)
        room_keep(p, d);
    if (p->imagined && deployment_serves(d))
        p->n_own = own_read(p, d, &no_own) < 0 ? 0 : p->n_own;
    else if (d->beside)
        return own_read(p, d, e);
    else if (!p->imagined && !p->devices)
        last_read(c, p, d);
    return 0;
}

int placing_create(struct coord *c, struct deployment *d, bool imagined, struct placement_job **out,
                   struct err *e)
{
    struct placement_job *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    p->core = c;
    p->env = c->env;
    p->deployment = d->id;
    p->imagined = imagined;
    spec_read(c, p, d);
    int rc = devices_read(c, p, d, e);
    rc = rc < 0 ? rc : places_read(c, p, d, e);
    if (rc < 0) {
        placing_free(p);
        return rc;
    }
    *out = p;
    return 0;
}
