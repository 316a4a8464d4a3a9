#include "coordinator/rebalance_report.h"

#include <string.h>

#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/sequence.h"

#define LOADED_BYTES_PER_S 1e9 /* what an agent reads from its store and packs */
#define ORDERS_S 0.15          /* until stages are told, joined and heard, by themselves */

bool rebalance_same_place(const struct deployment *d, const struct stage_layout *l)
{
    for (int i = 0; d->n_stages == l->n_stages && i < d->n_stages; i++) {
        const struct deployment_stage *a = &d->stages[i];
        const struct layout_stage *b = &l->stages[i];
        if (strcmp(a->agent->name, b->agent) != 0 || a->device != b->device ||
            a->end_layer != b->end_layer)
            return false;
    }
    return d->n_stages == l->n_stages;
}

static double request_s(const struct placement *p, const struct placement_forecast *f)
{
    return f->ttft_s + p->answer_tokens * f->tpot_s;
}

double rebalance_gain(const struct placement *p)
{
    double after = request_s(p, &p->after);
    return after > 0 ? request_s(p, &p->before) / after - 1 : 0;
}

/* ---- what is said ---- */

static json_t *stage_json(const struct member *m, int device, int first, int end)
{
    char on[DEVICE_TEXT];
    member_device_text(m, device, on);
    return json_pack("{s:s, s:i, s:i}", "on", on, "first_layer", first, "last_layer", end - 1);
}

/* Takes the stages. */
static json_t *forecast_json(const struct placement *p, const struct placement_forecast *f,
                             json_t *stages)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:o}", "ttft_s", f->ttft_s, "tpot_s", f->tpot_s,
                     "request_s", request_s(p, f), "tokens_per_s", f->tokens_per_s,
                     "requests_per_s", f->requests_per_s, "stages", stages);
}

/* ---- what moves ---- */

static bool layer_is_on(const struct deployment *d, const struct member *m, int layer)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].agent == m && layer >= d->stages[i].first_layer &&
            layer < d->stages[i].end_layer)
            return true;
    return false;
}

/* All that the model has lies in the agent's store, or on its own machine as a file. */
static bool member_has_all(const struct deployment *d, const struct member *m)
{
    uint64_t all = 0;
    if (m->machine[0] && strcmp(m->machine, d->spec.source_machine) == 0 && !d->spec.upload_only)
        return true;
    for (int l = 0; l < d->model->facts.n_layers; l++)
        all += d->model->facts.layers[l].param_bytes;
    for (size_t i = 0; i < m->n_models; i++)
        if (strcmp(m->models[i].id, d->model->id) == 0)
            return m->models[i].bytes >= all;
    return false;
}

/* The fastest way to a device from any other. */
static double fetch_bytes_per_s(const struct planner_inputs *in, int to)
{
    double most = 0;
    for (int i = 0; i < in->cluster.n_devices; i++) {
        double s = i == to ? 0 : cluster_hop(&in->cluster, i, to).bandwidth_bytes_per_s;
        most = s > most ? s : most;
    }
    return most;
}

struct moving {
    json_t *agents;
    double fetch_bytes, seconds;
    double slowest_bytes_per_s; /* into any of the new places */
};

/* Agents fetch and load side by side. */
static int stage_count(const struct deployment *d, const struct planner_inputs *in,
                       const struct layout_stage *s, const struct member *m, struct moving *out,
                       struct err *e)
{
    int device = planner_inputs_device(in, s->agent, s->device);
    double weights = 0, stays = 0, loads = 0;
    char on[DEVICE_TEXT];
    if (device < 0 || !m)
        return err_set(e, HP_ELINK, "agent \"%s\" has gone meanwhile", s->agent);
    bool all = member_has_all(d, m);
    for (int l = s->first_layer; l < s->end_layer; l++) {
        double bytes = (double)d->model->facts.layers[l].param_bytes;
        weights += bytes;
        stays += all || layer_is_on(d, m, l) ? bytes : 0;
        loads += in->resident_bytes[l];
    }
    double speed = fetch_bytes_per_s(in, device), fetch = weights - stays;
    double seconds = (fetch > 0 && speed > 0 ? fetch / speed : 0) + loads / LOADED_BYTES_PER_S;
    out->fetch_bytes += fetch;
    out->seconds = seconds > out->seconds ? seconds : out->seconds;
    if (speed > 0 && (out->slowest_bytes_per_s <= 0 || speed < out->slowest_bytes_per_s))
        out->slowest_bytes_per_s = speed;
    member_device_text(m, s->device, on);
    return json_array_append_new(out->agents,
                                 json_pack("{s:s, s:f, s:f, s:f, s:f}", "on", on, "weights_bytes",
                                           weights, "stays_bytes", stays, "fetch_bytes", fetch,
                                           "seconds", seconds)) == 0
               ? 0
               : err_set(e, HP_ENOMEM, "no memory for a report");
}

/* Of what runs now; of the longest sequence alone. */
static double kv_bytes(const struct deployment *d, const struct planner_inputs *in, double *longest)
{
    double tokens = 0, most = 0, bytes = 0;
    for (const struct sequence *s = d->active; s; s = s->next) {
        tokens += (double)s->n_ids;
        most = (double)s->n_ids > most ? (double)s->n_ids : most;
    }
    for (int l = 0; l < in->n_layers; l++)
        bytes += in->state_bytes_per_token[l];
    *longest = bytes * most;
    return bytes * tokens;
}

static int moving_count(struct coord *c, const struct deployment *d,
                        const struct planner_inputs *in, const struct placement *p, json_t **out,
                        struct err *e)
{
    const struct stage_layout *to = p->layout;
    struct moving m = {.agents = json_array()};
    int rc = 0;
    for (int i = 0; rc == 0 && i < to->n_stages; i++)
        rc = stage_count(d, in, &to->stages[i], member_find(c, to->stages[i].agent), &m, e);
    if (rc < 0) {
        json_decref(m.agents);
        return rc;
    }
    double longest, kv = kv_bytes(d, in, &longest), speed = m.slowest_bytes_per_s;
    double pause_s = (speed > 0 ? longest / speed : 0) + p->before.tpot_s + p->after.tpot_s;
    m.seconds += ORDERS_S + (speed > 0 ? kv / speed : 0);
    /* A sequence runs where it is until its keys and values have come, and says in its new place
     * what was said meanwhile: no client waits for longer than that takes. */
    *out = json_pack("{s:o, s:f, s:f, s:i, s:f, s:f}", "agents", m.agents, "fetch_bytes",
                     m.fetch_bytes, "kv_bytes", kv, "sequences", (int)d->n_active, "seconds",
                     m.seconds, "pause_s", d->active ? pause_s : 0);
    return *out ? 0 : err_set(e, HP_ENOMEM, "no memory for a report");
}

int rebalance_report(struct coord *c, struct deployment *d, const struct placement *p, json_t **out,
                     struct err *e)
{
    struct planner_inputs *in = NULL;
    json_t *move = NULL, *before = json_array(), *after = json_array();
    int rc = planner_inputs_get(c, d, &in, e);
    rc = rc < 0 ? rc : moving_count(c, d, in, p, &move, e);
    planner_inputs_release(&in);
    if (rc < 0) {
        json_decref(before);
        json_decref(after);
        return rc;
    }
    for (int i = 0; i < d->n_stages; i++) {
        const struct deployment_stage *s = &d->stages[i];
        json_array_append_new(before,
                              stage_json(s->agent, s->device, s->first_layer, s->end_layer));
    }
    for (int i = 0; i < p->layout->n_stages; i++) {
        const struct layout_stage *s = &p->layout->stages[i];
        json_array_append_new(
            after, stage_json(member_find(c, s->agent), s->device, s->first_layer, s->end_layer));
    }
    *out = json_pack("{s:s, s:I, s:f, s:f, s:o, s:o, s:o}", "deployment", d->name, "prompt_tokens",
                     (json_int_t)p->layout->plan->tokens, "answer_tokens", p->answer_tokens, "gain",
                     rebalance_gain(p), "before", forecast_json(p, &p->before, before), "after",
                     forecast_json(p, &p->after, after), "move", move);
    return *out ? 0 : err_set(e, HP_ENOMEM, "no memory for a report");
}
