#include "coordinator/pools/pool_describe.h"

#include "coordinator/member.h"
#include "coordinator/pools/pool_load.h"

static json_t *share_json(const struct pool_plan *p, int i)
{
    const struct pool_share *s = &p->shares[i];
    char device[DEVICE_TEXT] = "lost";
    if (s->agent)
        member_device_text(s->agent, s->device, device);
    json_t *share = json_pack(
        "{s:i, s:s, s:s, s:i, s:i, s:[i, i], s:s, s:I, s:f, s:f}", "share", i, "on", device,
        "model", p->spec->models[s->model].facts.name, "pipeline",
        s->pipeline - p->topology.models[s->model].first_pipeline, "stage", s->stage, "layers",
        s->first_block, s->end_block, "state", s->state == POOL_SHARE_LOST ? "lost" : s->word,
        "batches", (json_int_t)s->batches, "planned_s", s->planned_s, "actual_s", s->actual_s);
    if (share)
        json_object_set_new(share, "memory_bytes", json_integer((json_int_t)s->memory_bytes));
    if (share && s->parts > 1)
        json_object_set_new(share, "part", json_sprintf("1/%u", s->parts));
    return share;
}

static json_t *plan_json(const struct pool_plan *p)
{
    json_t *shares = json_array();
    for (int i = 0; i < p->topology.n_shares; i++)
        json_array_append_new(shares, share_json(p, i));
    return json_pack("{s:I, s:s, s:o, s:O}", "number", (json_int_t)p->id, "why", p->why, "shares",
                     shares, "plan", p->report);
}

static void lengths_describe(const struct pool_model *m, json_t *row)
{
    json_t *lengths = json_array();
    for (int i = 0; i < m->n_lengths; i++)
        json_array_append_new(lengths, json_integer(m->lengths[i]));
    json_object_set_new(row, "lengths", lengths);
    if (*m->mask)
        json_object_set_new(row, "mask", json_string(m->mask));
}

static json_t *model_json(const struct pool_service *s, const struct pool_spec *spec, int i)
{
    const struct pool_model *m = &spec->models[i];
    const struct pool_counts *n = &m->counts;
    const struct dispatch_model *planned =
        s->current && s->current->spec == spec ? &s->current->topology.models[i] : NULL;
    uint64_t answered = n->on_time + n->late, over = answered + n->dropped + n->failed;
    json_t *row = json_pack(
        "{s:s, s:f, s:f, s:f, s:b, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "name",
        m->facts.name, "slo_s", spec->workload.models[i].slo_s, "weight",
        spec->workload.models[i].weight, "planned_per_s", planned ? planned->rate : 0.0, "serves",
        planned && pool_plan_serves(s->current, i), "arrived", (json_int_t)n->arrived, "on_time",
        (json_int_t)n->on_time, "late", (json_int_t)n->late, "dropped", (json_int_t)n->dropped,
        "failed", (json_int_t)n->failed, "attainment",
        over ? (double)n->on_time / (double)over : 1.0, "batch",
        n->batches ? (double)n->batched / (double)n->batches : 0.0, "total_s",
        answered ? (double)n->total_ns * 1e-9 / (double)answered : 0.0, "queue_s",
        answered ? (double)n->queue_ns * 1e-9 / (double)answered : 0.0, "compute_s",
        answered ? (double)n->compute_ns * 1e-9 / (double)answered : 0.0);
    if (row && planned)
        json_object_set_new(row, "asked_per_s", json_real(pool_load_asked(s->current, i)));
    if (row && m->n_lengths)
        lengths_describe(m, row);
    return row;
}

/* No agent is left that it could use. */
static bool plan_is_idle(const struct pool_plan *p)
{
    for (int m = 0; m < p->topology.n_models; m++)
        if (pool_plan_serves(p, m))
            return false;
    return true;
}

static const char *state_word(const struct pool_service *s)
{
    if (!s || !s->spec)
        return s && s->ending ? "ending" : "none";
    if (s->current)
        return s->next || s->planning ? "moving" : plan_is_idle(s->current) ? "waiting" : "serving";
    return s->next ? "preparing" : s->planning ? "planning" : "waiting";
}

json_t *pool_describe(struct coord *c)
{
    const struct pool_service *s = c->pools;
    json_t *out = json_pack("{s:s}", "state", state_word(s));
    if (!s || !out)
        return out;
    const struct pool_spec *spec = s->current ? s->current->spec : s->spec;
    json_t *models = json_array();
    for (int i = 0; spec && i < spec->workload.n_models; i++)
        json_array_append_new(models, model_json(s, spec, i));
    json_object_set_new(out, "models", models);
    if (s->current)
        json_object_set_new(out, "current", plan_json(s->current));
    if (s->next)
        json_object_set_new(out, "next", plan_json(s->next));
    if (s->failure.code)
        json_object_set_new(out, "failure",
                            json_pack("{s:s, s:s, s:s}", "code", status_word(s->failure.code),
                                      "message", s->failure.text, "hint", s->failure.hint));
    json_object_set_new(out, "plans", json_integer((json_int_t)s->plans));
    json_object_set_new(out, "moved", json_integer((json_int_t)s->moved));
    json_object_set_new(out, "lost_shares", json_integer((json_int_t)s->lost_shares));
    json_object_set_new(out, "sent_again", json_integer((json_int_t)s->again));
    return out;
}

json_t *pool_describe_progress(const struct pool_plan *p)
{
    json_t *stages = json_array();
    for (int i = 0; i < p->topology.n_shares; i++) {
        const struct pool_share *s = &p->shares[i];
        json_array_append_new(stages, json_pack("{s:s, s:s, s:I, s:I}", "on",
                                                s->agent ? s->agent->name : "lost", "state",
                                                s->word[0] ? s->word : "waiting", "done_bytes",
                                                (json_int_t)s->done_bytes, "total_bytes",
                                                (json_int_t)s->total_bytes));
    }
    return json_pack("{s:s, s:o}", "phase", "preparing", "stages", stages);
}
