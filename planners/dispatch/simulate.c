#include "planners/dispatch/simulate.h"

#include <math.h>
#include <stdlib.h>

#include "planners/dispatch/dispatch.h"
#include "planners/dispatch/imagine.h"
#include "planners/dispatch/reactive.h"

const char *const simulate_scheduler_words[] = {"reserving", "reactive", NULL};

/* ---- counting
 * ---------------------------------------------------------------------------------------------------------
 */

/* 45 buckets an octave of nanoseconds, by the bits of the number: exponent and the top of the
 * mantissa. */
static int bucket_of(int64_t ns)
{
    if (ns < 64)
        return 0;
    int exponent = 63 - __builtin_clzll((uint64_t)ns);
    int part = (int)((ns >> (exponent - 6)) & 63);
    int b = (exponent - 6) * 64 + part + 1;
    return b < SIMULATE_BUCKETS ? b : SIMULATE_BUCKETS - 1;
}

static double bucket_end_s(int b)
{
    if (b == 0)
        return 64e-9;
    int exponent = (b - 1) / 64 + 6, part = (b - 1) % 64;
    return ldexp(64 + part + 1, exponent - 6) * 1e-9;
}

void simulate_count(struct simulate_model *m, int64_t latency_ns, bool in_time)
{
    if (in_time)
        m->in_time++;
    else
        m->late++;
    m->latency_sum_s += (double)latency_ns * 1e-9;
    m->latency[bucket_of(latency_ns)]++;
    if (latency_ns > m->latency_max_ns)
        m->latency_max_ns = latency_ns;
}

double simulate_attainment(const struct simulate_model *m)
{
    return m->arrived ? (double)m->in_time / (double)m->arrived : 1;
}

double simulate_percentile_s(const struct simulate_model *m, double q)
{
    uint64_t served = m->in_time + m->late, so_far = 0;
    for (int b = 0; b < SIMULATE_BUCKETS && served > 0; b++) {
        so_far += m->latency[b];
        if ((double)so_far >= q * (double)served)
            return fmin(bucket_end_s(b), (double)m->latency_max_ns * 1e-9);
    }
    return 0;
}

/* ---- the reserving scheduler
 * -------------------------------------------------------------------------------------------- */

struct run {
    const struct dispatch_topology *t;
    const struct simulate_options *o;
    struct simulate_result *result;
    struct dispatch *d;
    struct imagine *devices; /* NULL: all goes as planned */
    int64_t *wake_ns;        /* [model] */
    int64_t now_ns, last_ns;
    int rc;
};

static void watch_path(const struct run *r, const struct dispatch_action *a)
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

static void act(void *ctx, const struct dispatch_action *a)
{
    struct run *r = ctx;
    struct simulate_model *m = &r->result->models[a->model];
    if (a->drop) {
        m->dropped++;
        return;
    }
    m->batches++;
    if (r->o->watch)
        watch_path(r, a);
    if (r->devices) {
        if (imagine_send(r->devices, a) < 0)
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
static int next_wake(const struct run *r, int64_t *at_ns)
{
    int first = 0;
    for (int m = 1; m < r->t->n_models; m++)
        if (r->wake_ns[m] < r->wake_ns[first])
            first = m;
    *at_ns = r->wake_ns[first];
    return first;
}

/* Lets time pass up to `until_ns`: wakes, and what the imagined devices do. */
static void pass_time(struct run *r, int64_t until_ns)
{
    for (;;) {
        int64_t wake_ns, event_ns = r->devices ? imagine_next(r->devices) : INT64_MAX;
        int m = next_wake(r, &wake_ns);
        if (event_ns <= wake_ns && event_ns <= until_ns && event_ns != INT64_MAX) {
            r->now_ns = event_ns;
            imagine_step(r->devices);
        } else if (wake_ns <= until_ns && wake_ns != INT64_MAX) {
            r->now_ns = wake_ns;
            r->wake_ns[m] = dispatch_run(r->d, m, wake_ns, act, r);
        } else {
            return;
        }
    }
}

static int run_stream(struct run *r, arrival_next_fn next, void *next_ctx, struct err *e)
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
        r->wake_ns[a.model] = dispatch_run(r->d, a.model, a.at_ns, act, r);
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
    if (r->devices && imagine_last(r->devices) > r->last_ns)
        r->last_ns = imagine_last(r->devices);
    r->result->span_s =
        first_ns >= 0 && r->last_ns > first_ns ? (double)(r->last_ns - first_ns) * 1e-9 : 0;
    r->result->probes = dispatch_probes(r->d);
    return r->rc < 0 ? err_set(e, r->rc, "out of memory while simulating") : 0;
}

static int simulate_reserving(const struct dispatch_topology *t, const struct simulate_options *o,
                              arrival_next_fn next, void *next_ctx, struct simulate_result *out,
                              struct err *e)
{
    struct run r = {.t = t, .o = o, .result = out};
    int rc = dispatch_create(t, 0, &r.d, e);
    r.wake_ns = malloc((size_t)t->n_models * sizeof *r.wake_ns);
    if (rc == 0 && !r.wake_ns)
        rc = err_set(e, HP_ENOMEM, "out of memory while simulating");
    for (int m = 0; rc == 0 && m < t->n_models; m++)
        r.wake_ns[m] = INT64_MAX;
    if (rc == 0 && (o->latency_noise > 0 || o->network_jitter > 0 || o->always_events))
        rc = imagine_create(t, r.d, o, out, &r.devices, e);
    if (rc == 0)
        rc = run_stream(&r, next, next_ctx, e);
    imagine_destroy(&r.devices);
    dispatch_destroy(&r.d);
    free(r.wake_ns);
    return rc;
}

int simulate(const struct dispatch_topology *t, const struct simulate_options *o,
             arrival_next_fn next, void *next_ctx, struct simulate_result *out, struct err *e)
{
    out->n_models = t->n_models;
    out->models = calloc((size_t)t->n_models, sizeof *out->models);
    if (!out->models)
        return err_set(e, HP_ENOMEM, "out of memory while simulating");
    return o->scheduler == SIMULATE_REACTIVE ? simulate_reactive(t, o, next, next_ctx, out, e)
                                             : simulate_reserving(t, o, next, next_ctx, out, e);
}

void simulate_result_free(struct simulate_result *r)
{
    free(r->models);
    *r = (struct simulate_result){0};
}
