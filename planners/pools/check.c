#include "planners/pools/check.h"

#include <math.h>
#include <string.h>

/* Of a figure that the plan promises: files are rounded. */
#define PROMISE_SLACK 1e-4
#define BUDGET_SLACK 1e-7

static int index_of(const int *list, int n, int value)
{
    for (int i = 0; i < n; i++)
        if (list[i] == value)
            return i;
    return -1;
}

int pools_place(const struct pools_problem *p, int model,
                const struct plan_pools_pipeline *pipeline, int stage, struct pools_placed *out,
                struct err *e)
{
    const struct pools_model *m = &p->models[model];
    const struct plan_pools_stage *s = &pipeline->stages[stage];
    out->kind = pools_problem_find_kind(p, s->kind);
    if (out->kind < 0)
        return err_set(e, HP_EINVAL, "the cluster has no %s", s->kind);
    const struct pools_kind *k = &p->kinds[out->kind];
    out->share = index_of(k->shares, k->n_shares, s->share);
    if (out->share < 0)
        return err_set(e, HP_EINVAL, "the workload does not allow 1/%d of a %s", s->share, s->kind);
    out->batch = index_of(m->batches, m->n_batches, pipeline->batch);
    if (out->batch < 0)
        return err_set(e, HP_EINVAL, "a batch of %d was not profiled", pipeline->batch);
    if (s->end_layer > m->n_layers)
        return err_set(e, HP_EINVAL, "layers [%d, %d) go beyond the model's %d", s->first_layer,
                       s->end_layer, m->n_layers);
    out->compute_s =
        pools_compute_s(m, out->kind, out->share, out->batch, s->first_layer, s->end_layer);
    if (isnan(out->compute_s))
        return err_set(e, HP_EINVAL,
                       "layers [%d, %d) were not profiled on 1/%d of a %s with a batch of %d",
                       s->first_layer, s->end_layer, s->share, s->kind, pipeline->batch);
    out->share_rate =
        pools_share_rate(p, m, out->kind, out->share, out->batch, s->first_layer, s->end_layer);
    return 0;
}

struct check_tally {
    const struct pools_problem *p;
    double fractions[POOLS_MAX_KINDS]
                    [PLAN_POOLS_MAX_STAGES]; /* of one model, by kind and position */
    int *devices;
    double least_slack_s;
};

static int check_stage(struct check_tally *t, const struct plan_pools_stage *s, int position,
                       const struct pools_placed *at, struct err *e)
{
    int whole = (s->count + s->share - 1) / s->share;
    if (t->p->share_devices)
        t->fractions[at->kind][position] += (double)s->count / s->share;
    else
        t->devices[at->kind] += whole;
    if (s->devices > 0 && s->devices < whole)
        return err_set(e, HP_EINVAL, "%d shares of 1/%d do not fit on %d devices", s->count,
                       s->share, s->devices);
    if (s->compute_s > 0 && s->compute_s < at->compute_s * (1 - PROMISE_SLACK) - 1e-6)
        return err_set(e, HP_EINVAL,
                       "says that a batch computes in %.6g s; the profile says %.6g s",
                       s->compute_s, at->compute_s);
    return 0;
}

/* Rate of a pipeline, after all of its conditions were checked. Text without the place. */
static int check_pipeline(struct check_tally *t, int model, const struct plan_pools_pipeline *pl,
                          double *rate, int *stage, struct err *e)
{
    const struct pools_model *m = &t->p->models[model];
    struct pools_placed at = {0}, before = {0};
    double seconds = 0;
    *rate = INFINITY;
    *stage = -1;
    if (pl->n_stages > t->p->max_stages)
        return err_set(e, HP_EINVAL, "has %d stages; the workload allows %d", pl->n_stages,
                       t->p->max_stages);
    for (int d = 0; d < pl->n_stages; d++) {
        *stage = d;
        int rc = pools_place(t->p, model, pl, d, &at, e);
        if (rc < 0 || (rc = check_stage(t, &pl->stages[d], d, &at, e)) < 0)
            return rc;
        if (d > 0)
            seconds += pl->batch * pools_transfer_s(t->p, m, pl->stages[d].first_layer, before.kind,
                                                    at.kind) +
                       t->p->kinds[before.kind].latency_s + t->p->kinds[at.kind].latency_s;
        seconds += at.compute_s;
        *rate = fmin(*rate, pl->stages[d].count * at.share_rate);
        before = at;
    }
    *stage = -1;
    if (pl->stages[pl->n_stages - 1].end_layer != m->n_layers)
        return err_set(e, HP_EINVAL, "ends at layer %d; the model has %d",
                       pl->stages[pl->n_stages - 1].end_layer, m->n_layers);
    seconds += pools_batching_s(m, at.batch);
    double slack = m->budget_s - seconds;
    if (slack < -BUDGET_SLACK * m->slo_s)
        return err_set(
            e, HP_EINVAL,
            "takes %.6g ms, and its deadline of %.6g ms less a margin of %.4g %% leaves %.6g ms",
            seconds * 1e3, m->slo_s * 1e3, m->margin * 100, m->budget_s * 1e3);
    t->least_slack_s = fmin(t->least_slack_s, slack);
    if (pl->throughput_per_s > *rate * (1 + PROMISE_SLACK))
        return err_set(e, HP_EINVAL, "promises %.6g requests/s; its pools serve %.6g",
                       pl->throughput_per_s, *rate);
    return 0;
}

/* Sequences of kinds that come more often than the workload allows. */
static int check_assignments(const struct pools_problem *p, const struct plan_pools_model *m,
                             struct err *e)
{
    for (int i = 0; p->pipelines_per_assignment > 0 && i < m->n_pipelines; i++) {
        int same = 0;
        for (int j = 0; j < m->n_pipelines; j++) {
            const struct plan_pools_pipeline *a = &m->pipelines[i], *b = &m->pipelines[j];
            bool equal = a->n_stages == b->n_stages;
            for (int d = 0; equal && d < a->n_stages; d++)
                equal = pools_problem_find_kind(p, a->stages[d].kind) ==
                        pools_problem_find_kind(p, b->stages[d].kind);
            same += equal;
        }
        if (same > p->pipelines_per_assignment)
            return err_set(e, HP_EINVAL,
                           "%s: %d pipelines use the kinds of pipeline %d; the workload allows %d",
                           m->name, same, i, p->pipelines_per_assignment);
    }
    return 0;
}

static int check_model(struct check_tally *t, const struct plan_pools_model *from, int model,
                       double *normalized, struct err *e)
{
    double sum = 0;
    for (int k = 0; k < POOLS_MAX_KINDS; k++)
        for (int d = 0; d < PLAN_POOLS_MAX_STAGES; d++)
            t->fractions[k][d] = 0;
    for (int i = 0; i < from->n_pipelines; i++) {
        double rate;
        int stage, rc = check_pipeline(t, model, &from->pipelines[i], &rate, &stage, e);
        if (rc < 0)
            return stage >= 0 ? err_at(e, "%s, pipeline %d, stage %d", from->name, i, stage)
                              : err_at(e, "%s, pipeline %d", from->name, i);
        sum += rate;
    }
    for (int k = 0; k < t->p->n_kinds; k++)
        for (int d = 0; d < PLAN_POOLS_MAX_STAGES; d++)
            t->devices[k] += (int)ceil(t->fractions[k][d] - 1e-9);
    if (from->throughput_per_s > sum * (1 + PROMISE_SLACK))
        return err_set(e, HP_EINVAL, "%s: promises %.6g requests/s; its pipelines serve %.6g",
                       from->name, from->throughput_per_s, sum);
    *normalized = sum / t->p->models[model].weight;
    return check_assignments(t->p, from, e);
}

static int find_model(const struct plan_pools *plan, const char *name)
{
    for (int i = 0; i < plan->n_models; i++)
        if (strcmp(plan->models[i].name, name) == 0)
            return i;
    return -1;
}

static int check_all(struct pools_problem *p, const struct plan_pools *plan,
                     struct pools_check_result *out, struct err *e)
{
    struct check_tally t = {.p = p, .devices = out->devices, .least_slack_s = INFINITY};
    for (int m = 0; m < p->n_models; m++) {
        double normalized = 0;
        int at = find_model(plan, p->models[m].name);
        if (at < 0)
            return err_set(e, HP_EINVAL, "the plan has no %s, which the workload asks for",
                           p->models[m].name);
        int rc = check_model(&t, &plan->models[at], m, &normalized, e);
        if (rc < 0)
            return rc;
        out->normalized_throughput_per_s = fmin(out->normalized_throughput_per_s, normalized);
    }
    out->least_slack_s = t.least_slack_s;
    for (int k = 0; k < p->n_kinds; k++)
        if (out->devices[k] > p->kinds[k].count)
            return err_set(e, HP_EINFEASIBLE,
                           "the plan takes %d devices of kind %s; the cluster has %d",
                           out->devices[k], p->kinds[k].name, p->kinds[k].count);
    if (plan->normalized_throughput_per_s > out->normalized_throughput_per_s * (1 + PROMISE_SLACK))
        return err_set(e, HP_EINVAL,
                       "the plan promises a least throughput / weight of %.6g per s; it is %.6g",
                       plan->normalized_throughput_per_s, out->normalized_throughput_per_s);
    return 0;
}

int pools_check(const struct plan_pools *plan, const struct cluster *c, const struct workload *w,
                const struct pools_check_options *options, struct pools_check_result *out,
                struct err *e)
{
    struct pools_problem p = {0};
    *out = (struct pools_check_result){.normalized_throughput_per_s = INFINITY};
    int rc = pools_problem_make(c, w, &p, e);
    if (rc < 0)
        return rc;
    if (options->share_devices >= 0)
        p.share_devices = options->share_devices != 0;
    for (int m = 0; m < p.n_models; m++) {
        int at = find_model(plan, p.models[m].name);
        if (options->slo_margin >= 0)
            pools_problem_set_margin(&p, m, options->slo_margin);
        else if (at >= 0 && plan->models[at].slo_margin >= 0)
            pools_problem_set_margin(&p, m, plan->models[at].slo_margin);
    }
    for (int i = 0; rc == 0 && i < plan->n_models; i++)
        if (workload_find_model(w, plan->models[i].name) < 0)
            rc = err_set(e, HP_EINVAL, "the plan serves %s, which the workload does not have",
                         plan->models[i].name);
    out->n_kinds = p.n_kinds;
    if (rc == 0)
        rc = check_all(&p, plan, out, e);
    pools_problem_free(&p);
    if (rc == HP_EINVAL)
        rc = e->code = HP_EINFEASIBLE; /* a plan that breaks a rule cannot be carried out */
    return rc;
}
