#include "hpctl/infer_plan.h"

#include <math.h>
#include <stdlib.h>

#include "common/vector.h"
#include "hpctl/arrival_trace.h"
#include "hpctl/load_plan.h"

static int arrivals_take(struct infer_plan *p, arrival_next_fn next, void *ctx, struct err *e)
{
    struct arrival a;
    int rc;
    while ((rc = next(ctx, &a, e)) > 0) {
        struct infer_arrival own = {(double)a.at_ns * 1e-9, a.model};
        if (p->n >= LOAD_MAX_REQUESTS)
            return err_set(e, HP_ELIMIT,
                           "more than %d requests: a lower --rate, or fewer --seconds",
                           LOAD_MAX_REQUESTS);
        if (!vector_push(p->requests, p->n, p->room, own))
            return err_no_memory(e, "a request");
    }
    return rc;
}

static int infer_arrivals_draw(const struct infer_options *o, struct infer_plan *p, struct err *e)
{
    double rates[ARRIVALS_MAX_MODELS] = {0};
    struct arrivals *a = malloc(sizeof *a);
    if (!a)
        return err_no_memory(e, "arrivals");
    for (int i = 0; i < o->n_models; i++)
        rates[i] = o->rate_per_s * o->parts[i];
    arrivals_init(a, o->kind, rates, o->n_models, o->seconds, o->seed);
    int rc = arrivals_take(p, arrivals_next, a, e);
    free(a);
    p->seconds = o->seconds;
    if (rc == 0 && p->n == 0) {
        rc = err_set(
            e, HP_EINVAL, "%s arrivals at %g a second give none in %g s as --seed %llu draws them",
            arrivals_words[o->kind], o->rate_per_s, o->seconds, (unsigned long long)o->seed);
        err_hint(e, "more --seconds, a higher --rate, or --arrivals uniform");
    }
    return rc;
}

static int infer_file_read(const struct infer_options *o, struct infer_plan *p, struct err *e)
{
    struct dispatch_model models[ARRIVALS_MAX_MODELS] = {{0}};
    struct dispatch_topology known = {.models = models, .n_models = o->n_models};
    struct arrival_trace trace;
    for (int i = 0; i < o->n_models; i++)
        models[i].name = o->names[i];
    int rc = arrival_trace_open(&trace, o->file, &known, o->only, o->seconds, e);
    if (rc == HP_ENOENT)
        err_hint(e, "it is poisson, uniform, bursty or a CSV file");
    if (rc < 0)
        return rc;
    if (o->rate_per_s > 0 && trace.span_s > 0)
        trace.stretch = (double)trace.requests / trace.span_s / o->rate_per_s;
    rc = arrivals_take(p, arrival_trace_next, &trace, e);
    arrival_trace_close(&trace);
    if (rc == 0)
        p->seconds = p->requests[p->n - 1].at_s;
    return rc;
}

int infer_plan_make(const struct infer_options *o, struct infer_plan *out, struct err *e)
{
    *out = (struct infer_plan){0};
    int rc =
        o->kind == ARRIVALS_TRACE ? infer_file_read(o, out, e) : infer_arrivals_draw(o, out, e);
    if (rc < 0)
        infer_plan_free(out);
    return rc;
}

void infer_plan_free(struct infer_plan *p)
{
    free(p->requests);
    *p = (struct infer_plan){0};
}
