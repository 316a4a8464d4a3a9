#include "planners/dispatch/simulate.h"

#include <stdlib.h>

#include "planners/dispatch/dispatch.h"
#include "planners/dispatch/reactive.h"
#include "planners/dispatch/sim_devices.h"

/* ---- the reserving scheduler ---- */

struct simulation {
    const struct dispatch_topology *t;
    const struct simulate_options *o;
    struct simulate_result *result;
    struct dispatch *d;
    struct sim_devices *devices; /* NULL: all goes as planned */
    int64_t *wake_ns;            /* [model] */
    int64_t now_ns, last_ns;
    int rc;
};

static void watch_path(const struct simulation *r, const struct dispatch_action *a)
{
    for (int s = 0; s < r->t->pipelines[a->path->pipeline].n_stages; s++) {
        const struct dispatch_leg *leg = &a->path->legs[s];
        r->o->watch(r->o->watch_ctx, a->model,
                    a->path->pipeline - r->t->models[a->model].first_pipeline, s, leg->share,
                    a->batch, a->n, leg->start_ns, leg->end_ns);
    }
}

static void count_busy(struct simulate_result *result, const struct dispatch_topology *t,
                       const struct dispatch_path *path)
{
    for (int s = 0; s < t->pipelines[path->pipeline].n_stages; s++) {
        const struct dispatch_share *share = &t->shares[path->legs[s].share];
        result->busy_s[share->kind] +=
            (double)(path->legs[s].end_ns - path->legs[s].start_ns) * 1e-9 * share->part;
    }
}

static void simulation_act(void *ctx, const struct dispatch_action *a)
{
    struct simulation *r = ctx;
    struct simulate_model *m = &r->result->models[a->model];
    if (a->drop) {
        m->dropped++;
        return;
    }
    m->batches++;
    if (r->o->watch)
        watch_path(r, a);
    if (r->devices) {
        if (sim_devices_send(r->devices, a) < 0)
            r->rc = HP_ENOMEM;
        return;
    }
    count_busy(r->result, r->t, a->path);
    for (int i = 0; i < a->n; i++)
        simulate_count(m, a->path->finish_ns - a->requests[i].arrival_ns,
                       a->path->finish_ns <= a->requests[i].deadline_ns);
    if (a->path->finish_ns > r->last_ns)
        r->last_ns = a->path->finish_ns;
}

/* The model that wants to be asked first, and when. */
static int next_wake(const struct simulation *r, int64_t *at_ns)
{
    int first = 0;
    for (int m = 1; m < r->t->n_models; m++)
        if (r->wake_ns[m] < r->wake_ns[first])
            first = m;
    *at_ns = r->wake_ns[first];
    return first;
}

/* Lets time pass up to `until_ns`: wakes, and what the simulated devices do. */
static void pass_time(struct simulation *r, int64_t until_ns)
{
    for (;;) {
        int64_t wake_ns, event_ns = r->devices ? sim_devices_next(r->devices) : INT64_MAX;
        int m = next_wake(r, &wake_ns);
        if (event_ns <= wake_ns && event_ns <= until_ns && event_ns != INT64_MAX) {
            r->now_ns = event_ns;
            sim_devices_step(r->devices);
        } else if (wake_ns <= until_ns && wake_ns != INT64_MAX) {
            r->now_ns = wake_ns;
            r->wake_ns[m] = dispatch_run(r->d, m, wake_ns, simulation_act, r);
        } else {
            return;
        }
    }
}

static int run_stream(struct simulation *r, arrival_next_fn next, void *next_ctx, struct err *e)
{
    struct arrival a;
    int rc;
    int64_t first_ns = -1;
    while ((rc = next(next_ctx, &a, e)) > 0) {
        if (first_ns < 0)
            first_ns = a.at_ns;
        pass_time(r, a.at_ns);
        r->now_ns = a.at_ns;
        r->result->models[a.model].arrived++;
        if (dispatch_arrive(r->d, a.model, 0, a.at_ns) < 0)
            r->result->models[a.model].dropped++; /* the queue is full: turned away at the door */
        r->wake_ns[a.model] = dispatch_run(r->d, a.model, a.at_ns, simulation_act, r);
        if (r->rc < 0)
            return err_set(e, r->rc, "out of memory while simulating");
        const struct simulate_model *m = &r->result->models[a.model];
        if (r->o->miss_limit && m->dropped + m->late > r->o->miss_limit[a.model]) {
            r->result->stopped = true;
            return 0;
        }
    }
    if (rc < 0)
        return rc;
    pass_time(r, INT64_MAX);
    if (r->devices && sim_devices_last(r->devices) > r->last_ns)
        r->last_ns = sim_devices_last(r->devices);
    r->result->span_s =
        first_ns >= 0 && r->last_ns > first_ns ? (double)(r->last_ns - first_ns) * 1e-9 : 0;
    r->result->probes = dispatch_probes(r->d);
    return r->rc < 0 ? err_set(e, r->rc, "out of memory while simulating") : 0;
}

static int simulate_reserving(const struct dispatch_topology *t, const struct simulate_options *o,
                              arrival_next_fn next, void *next_ctx, struct simulate_result *out,
                              struct err *e)
{
    struct simulation r = {.t = t, .o = o, .result = out};
    int rc = dispatch_create(t, 0, &r.d, e);
    r.wake_ns = malloc((size_t)t->n_models * sizeof *r.wake_ns);
    if (rc == 0 && !r.wake_ns)
        rc = err_set(e, HP_ENOMEM, "out of memory while simulating");
    for (int m = 0; rc == 0 && m < t->n_models; m++)
        r.wake_ns[m] = INT64_MAX;
    if (rc == 0 && (o->latency_noise > 0 || o->network_jitter > 0 || o->always_events))
        rc = sim_devices_create(t, r.d, o, out, &r.devices, e);
    if (rc == 0)
        rc = run_stream(&r, next, next_ctx, e);
    sim_devices_destroy(&r.devices);
    dispatch_destroy(&r.d);
    free(r.wake_ns);
    return rc;
}

int simulate_run(const struct dispatch_topology *t, const struct simulate_options *o,
                 arrival_next_fn next, void *next_ctx, struct simulate_result *out, struct err *e)
{
    out->n_models = t->n_models;
    out->models = calloc((size_t)t->n_models, sizeof *out->models);
    if (!out->models)
        return err_set(e, HP_ENOMEM, "out of memory while simulating");
    return o->scheduler == SIMULATE_REACTIVE ? simulate_reactive(t, o, next, next_ctx, out, e)
                                             : simulate_reserving(t, o, next, next_ctx, out, e);
}
