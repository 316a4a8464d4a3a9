#include "planners/pools/milp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

/* One binary p[l][d][v][b][i][j] of the paper with its count g. */
struct choice {
    int model, pipeline, stage;
    struct pools_stage s;
    int batch;
    int p_column, g_column;
};

struct milp_pipeline {
    int model, n_stages, kinds[POOLS_MAX_STAGES];
    int x_column;
    int fraction_row[POOLS_MAX_STAGES]; /* shares / v <= whole devices */
};

struct pools_builder {
    const struct pools_problem *p;
    struct lp_program *lp;
    struct choice *choices;
    int n_choices, room_choices;
    struct milp_pipeline *pipelines;
    int n_pipelines, room_pipelines;
    int kind_row[POOLS_MAX_KINDS];                     /* devices of a kind (23) */
    int shared_row[POOLS_MAX_KINDS][POOLS_MAX_STAGES]; /* of the model at hand, where its pipelines
                                                          share devices; -1: none yet */
    double unit; /* rates are counted in this, so that coefficients are near 1 */
};

enum { MAX_PIPELINES = 4096, MAX_CHOICES = 1 << 20 };

static struct choice *choice_add(struct pools_builder *b, struct err *e)
{
    if (b->n_choices >= MAX_CHOICES) {
        err_set(e, HP_ELIMIT,
                "the published programme has more than %d binary choices; use --method exact",
                MAX_CHOICES);
        return NULL;
    }
    if (!vector_reserve(b->choices, b->room_choices, b->n_choices + 1)) {
        err_no_memory(e, "writing the published programme");
        return NULL;
    }
    return &b->choices[b->n_choices++];
}

/* The binaries of one stage of pipeline l: all layers, shares and batches that its place in the
 * pipeline allows. */
static int stage_choices(struct pools_builder *b, int l, int d, struct err *e)
{
    const struct milp_pipeline *pl = &b->pipelines[l];
    const struct pools_model *m = &b->p->models[pl->model];
    int kind = pl->kinds[d], first_from = d == 0 ? 0 : d,
        first_to = d == 0 ? 0 : m->n_layers - (pl->n_stages - d);
    for (int share = 0; share < b->p->kinds[kind].n_shares; share++)
        for (int batch = 0; batch < m->n_batches; batch++)
            for (int i = first_from; i <= first_to; i++)
                for (int j = i + 1; j <= m->n_layers; j++) {
                    double compute_s = pools_compute_s(m, kind, share, batch, i, j);
                    if ((j == m->n_layers) != (d == pl->n_stages - 1) ||
                        !(compute_s + pools_batching_s(m, batch) <= m->budget_s))
                        continue;
                    struct choice *c = choice_add(b, e);
                    if (!c)
                        return e->code;
                    double rate = pools_share_rate(b->p, m, kind, share, batch, i, j);
                    int v = b->p->kinds[kind].shares[share];
                    char name[64];
                    *c = (struct choice){
                        pl->model, l, d, {kind, share, i, j, compute_s, rate, rate * v},
                        batch,     0, 0};
                    snprintf(name, sizeof name, "p_%d_%d_%d_%d_%d_%d", l, d, v, m->batches[batch],
                             i, j);
                    c->p_column = lp_column_add(b->lp, name, 0, 0, 1, true, e);
                    name[0] = 'g';
                    c->g_column = lp_column_add(b->lp, name, 0, 0,
                                                (double)b->p->kinds[kind].count * v, true, e);
                    if (c->p_column < 0 || c->g_column < 0)
                        return err_no_memory(e, "writing the published programme");
                }
    return 0;
}

static int linked_rows(struct pools_builder *b, const struct choice *c, struct err *e)
{
    int v = b->p->kinds[c->s.kind].shares[c->s.share];
    int on = lp_row_add(b->lp, NULL, LP_AT_MOST, 0, e),
        least = lp_row_add(b->lp, NULL, LP_AT_LEAST, 0, e);
    if (on < 0 || least < 0 || lp_term_add(b->lp, on, c->g_column, 1, e) < 0 ||
        lp_term_add(b->lp, on, c->p_column, -(double)b->p->kinds[c->s.kind].count * v, e) <
            0 || /* (21) */
        lp_term_add(b->lp, least, c->g_column, 1, e) < 0 ||
        lp_term_add(b->lp, least, c->p_column, -1, e) < 0 || /* (22) */
        lp_term_add(b->lp, b->pipelines[c->pipeline].fraction_row[c->stage], c->g_column, 1.0 / v,
                    e) < 0)
        return err_no_memory(e, "writing the published programme");
    return 0;
}

/* (23), with whole devices: those of one stage, or of one kind and position where the model's
 * pipelines share. */
static int device_rows(struct pools_builder *b, int l, struct err *e)
{
    struct milp_pipeline *pl = &b->pipelines[l];
    for (int d = 0; d < pl->n_stages; d++) {
        int *shared = &b->shared_row[pl->kinds[d]][d];
        if (b->p->share_devices && *shared >= 0) {
            pl->fraction_row[d] = *shared;
            continue;
        }
        int devices = lp_column_add(b->lp, NULL, 0, 0, b->p->kinds[pl->kinds[d]].count, true, e);
        pl->fraction_row[d] = *shared = lp_row_add(b->lp, NULL, LP_AT_MOST, 0, e);
        if (devices < 0 || *shared < 0 || lp_term_add(b->lp, *shared, devices, -1, e) < 0 ||
            lp_term_add(b->lp, b->kind_row[pl->kinds[d]], devices, 1, e) < 0)
            return err_no_memory(e, "writing the published programme");
    }
    return 0;
}

/* (16) at most one choice a stage, (24)-(27) the deadline, (25) and (28) the rate. */
static int pipeline_rows(struct pools_builder *b, int l, int first, struct err *e)
{
    const struct milp_pipeline *pl = &b->pipelines[l];
    const struct pools_model *m = &b->p->models[pl->model];
    int time = lp_row_add(b->lp, NULL, LP_AT_MOST, 1, e), one[POOLS_MAX_STAGES],
        rate[POOLS_MAX_STAGES];
    for (int d = 0; d < pl->n_stages; d++) {
        one[d] = lp_row_add(b->lp, NULL, LP_AT_MOST, 1, e);
        rate[d] = lp_row_add(b->lp, NULL, LP_AT_MOST, 0, e);
        if (one[d] < 0 || rate[d] < 0 || lp_term_add(b->lp, rate[d], pl->x_column, 1, e) < 0)
            return err_no_memory(e, "writing the published programme");
    }
    for (int i = first; i < b->n_choices; i++) {
        const struct choice *c = &b->choices[i];
        bool last = c->stage == pl->n_stages - 1;
        double seconds = c->s.compute_s + (c->stage == 0 ? pools_batching_s(m, c->batch) : 0);
        if (!last)
            seconds += m->batches[c->batch] *
                           pools_transfer_s(b->p, m, c->s.end, c->s.kind, pl->kinds[c->stage + 1]) +
                       b->p->kinds[c->s.kind].latency_s +
                       b->p->kinds[pl->kinds[c->stage + 1]].latency_s;
        if (time < 0 || lp_term_add(b->lp, one[c->stage], c->p_column, 1, e) < 0 ||
            lp_term_add(b->lp, time, c->p_column, seconds / (m->budget_s * (1 + 1e-9)), e) < 0 ||
            lp_term_add(b->lp, rate[c->stage], c->g_column, -c->s.share_rate / b->unit, e) < 0 ||
            linked_rows(b, c, e) < 0)
            return err_no_memory(e, "writing the published programme");
    }
    return 0;
}

/* (18): a stage that ends at layer j with batch b is followed by one that begins there with the
 * same batch. */
static int chain_rows(struct pools_builder *b, int l, int first, struct err *e)
{
    const struct milp_pipeline *pl = &b->pipelines[l];
    const struct pools_model *m = &b->p->models[pl->model];
    for (int d = 0; d + 1 < pl->n_stages; d++)
        for (int batch = 0; batch < m->n_batches; batch++)
            for (int j = 1; j < m->n_layers; j++) {
                int row = -1;
                for (int i = first; i < b->n_choices; i++) {
                    const struct choice *c = &b->choices[i];
                    bool ends = c->stage == d && c->s.end == j,
                         begins = c->stage == d + 1 && c->s.first == j;
                    if (c->batch != batch || !(ends || begins))
                        continue;
                    if (row < 0 && (row = lp_row_add(b->lp, NULL, LP_EQUAL, 0, e)) < 0)
                        return row;
                    if (lp_term_add(b->lp, row, c->p_column, ends ? 1 : -1, e) < 0)
                        return err_no_memory(e, "writing the published programme");
                }
            }
    return 0;
}

static int pipeline_add(struct pools_builder *b, int model, int model_row, const int *kinds,
                        int n_stages, struct err *e)
{
    if (b->n_pipelines == MAX_PIPELINES)
        return err_set(e, HP_ELIMIT,
                       "the published programme has more than %d pipelines; use --method exact",
                       MAX_PIPELINES);
    if (!vector_reserve(b->pipelines, b->room_pipelines, b->n_pipelines + 1))
        return err_no_memory(e, "writing the published programme");
    int l = b->n_pipelines++, first = b->n_choices, rc = 0;
    char name[32];
    b->pipelines[l] = (struct milp_pipeline){.model = model, .n_stages = n_stages};
    memcpy(b->pipelines[l].kinds, kinds, (size_t)n_stages * sizeof *kinds);
    snprintf(name, sizeof name, "x_%d", l);
    b->pipelines[l].x_column = lp_column_add(b->lp, name, 0, 0, INFINITY, false, e);
    if (b->pipelines[l].x_column < 0 ||
        lp_term_add(b->lp, model_row, b->pipelines[l].x_column, -1, e) < 0)
        return err_no_memory(e, "writing the published programme");
    rc = device_rows(b, l, e);
    for (int d = 0; d < n_stages && rc == 0; d++)
        rc = stage_choices(b, l, d, e);
    if (rc == 0)
        rc = pipeline_rows(b, l, first, e);
    return rc < 0 ? rc : chain_rows(b, l, first, e);
}

static int model_add(struct pools_builder *b, int model, struct err *e)
{
    int rc = 0, row = lp_row_add(b->lp, NULL, LP_AT_MOST, 0, e),
        copies = b->p->pipelines_per_assignment;
    if (row < 0 || lp_term_add(b->lp, row, 0, b->p->models[model].weight, e) < 0)
        return err_no_memory(e, "writing the published programme");
    memset(b->shared_row, -1, sizeof b->shared_row);
    for (int n = 1; n <= b->p->max_stages && n <= b->p->models[model].n_layers; n++) {
        int kinds[POOLS_MAX_STAGES] = {0}, d = 0;
        while (d >= 0 && rc == 0) {
            for (int c = 0; c < (copies > 0 ? copies : 1) && rc == 0; c++)
                rc = pipeline_add(b, model, row, kinds, n, e);
            for (d = n - 1; d >= 0 && ++kinds[d] == b->p->n_kinds; d--)
                kinds[d] = 0;
        }
    }
    return rc;
}

static int program_build(struct pools_builder *b, struct err *e)
{
    int rc = lp_program_create("ppipe", true, &b->lp, e);
    if (rc < 0 || lp_column_add(b->lp, "T", 1, 0, INFINITY, false, e) < 0)
        return err_no_memory(e, "writing the published programme");
    for (int k = 0; k < b->p->n_kinds; k++)
        if ((b->kind_row[k] = lp_row_add(b->lp, NULL, LP_AT_MOST, b->p->kinds[k].count, e)) < 0)
            return err_no_memory(e, "writing the published programme");
    for (int m = 0; m < b->p->n_models; m++)
        b->unit += b->p->kinds[0].count / pools_whole_s(b->p, m);
    for (int m = 0; m < b->p->n_models && rc == 0; m++)
        rc = model_add(b, m, e);
    return rc;
}

/* The pipelines that have shares in every stage. */
static int solution_take(const struct pools_builder *b, const double *values,
                         struct pools_allocation *a, struct err *e)
{
    for (int l = 0; l < b->n_pipelines; l++) {
        struct pools_structure s = {.n_stages = b->pipelines[l].n_stages};
        int count[POOLS_MAX_STAGES] = {0}, stages = 0;
        for (int i = 0; i < b->n_choices; i++) {
            const struct choice *c = &b->choices[i];
            if (c->pipeline != l || values[c->p_column] < 0.5 || values[c->g_column] < 0.5)
                continue;
            s.stages[c->stage] = c->s;
            s.batch = c->batch;
            s.latency_s += c->s.compute_s;
            count[c->stage] = (int)lround(values[c->g_column]);
            stages++;
        }
        const struct pools_model *m = &b->p->models[b->pipelines[l].model];
        for (int d = 0; d + 1 < stages; d++)
            s.latency_s +=
                m->batches[s.batch] *
                pools_transfer_s(b->p, m, s.stages[d].end, s.stages[d].kind, s.stages[d + 1].kind);
        int rc = stages == s.n_stages
                     ? pools_allocation_add_shares(b->p, a, b->pipelines[l].model, &s, count, e)
                     : 0;
        if (rc < 0)
            return rc;
    }
    pools_allocation_refresh(b->p, a);
    return 0;
}

int pools_milp(const struct pools_problem *p, const struct pools_request *rq,
               struct pools_solution *s, struct err *e)
{
    struct pools_builder b = {.p = p};
    struct lp_result r = {0};
    double limit_s = rq->time_limit_s > 0 ? rq->time_limit_s : 60;
    int rc = program_build(&b, e);
    if (rc >= 0 && rq->lp_put)
        rc = lp_program_write(b.lp, rq->lp_put, rq->lp_ctx, e);
    if (rc >= 0)
        rc = lp_program_solve(b.lp, &(struct lp_limits){.seconds = limit_s}, rq->env, &r, e);
    if (rc >= 0) {
        s->lp_seconds = r.seconds;
        s->bound = r.bound * b.unit;
        s->complete = r.outcome == LP_OPTIMAL;
        if (r.values)
            rc = solution_take(&b, r.values, &s->allocation, e);
        else if (r.outcome == LP_INFEASIBLE)
            rc = err_set(e, HP_EINFEASIBLE, "lp_solve says that no plan exists");
        else {
            err_set(e, HP_ETIMEOUT, "lp_solve found no plan within %.3g s (%d columns, %d rows)",
                    limit_s, lp_program_columns(b.lp), lp_program_rows(b.lp));
            rc = err_hint(e, "--method exact gives the optimum in milliseconds; --time-limit gives "
                             "lp_solve longer");
        }
    }
    lp_program_destroy(&b.lp);
    free(b.choices);
    free(b.pipelines);
    return rc < 0 ? rc : 0;
}
