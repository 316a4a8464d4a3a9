/* The plan under construction: pipelines with their devices (declared in allocate.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "planners/pools/allocate.h"

int pools_allocation_init(struct pools_allocation *a, int n_models, struct err *e)
{
    *a = (struct pools_allocation){.n_models = n_models};
    a->models = calloc((size_t)n_models, sizeof *a->models);
    return a->models ? 0 : err_no_memory(e, "allocating devices to pipelines");
}

void pools_allocation_free(struct pools_allocation *a)
{
    for (int m = 0; a->models && m < a->n_models; m++)
        free(a->models[m].uses);
    free(a->models);
    *a = (struct pools_allocation){0};
}

int pools_allocation_copy(const struct pools_allocation *from, struct pools_allocation *to,
                          struct err *e)
{
    int rc = pools_allocation_init(to, from->n_models, e);
    for (int m = 0; rc == 0 && m < from->n_models; m++) {
        const struct pools_model_plan *f = &from->models[m];
        struct pools_model_plan *t = &to->models[m];
        t->uses = malloc((size_t)(f->n_uses + 1) * sizeof *t->uses);
        if (!t->uses)
            rc = err_no_memory(e, "allocating devices to pipelines");
        else if (f->n_uses > 0)
            memcpy(t->uses, f->uses, (size_t)f->n_uses * sizeof *t->uses);
        t->n_uses = t->uses ? f->n_uses : 0;
        t->room = f->n_uses + 1;
        t->rate = f->rate;
    }
    to->objective = from->objective;
    if (rc < 0)
        pools_allocation_free(to);
    return rc;
}

static bool same_structure(const struct pools_structure *a, const struct pools_structure *b)
{
    if (a->batch != b->batch || a->n_stages != b->n_stages)
        return false;
    for (int i = 0; i < a->n_stages; i++) {
        const struct pools_stage *x = &a->stages[i], *y = &b->stages[i];
        if (x->kind != y->kind || x->share != y->share || x->first != y->first || x->end != y->end)
            return false;
    }
    return true;
}

static int shares_per_device(const struct pools_problem *p, const struct pools_stage *s)
{
    return p->kinds[s->kind].shares[s->share];
}

static void use_refresh(const struct pools_problem *p, struct pools_use *u)
{
    u->rate = INFINITY;
    for (int i = 0; i < u->s.n_stages; i++) {
        int v = shares_per_device(p, &u->s.stages[i]);
        u->devices[i] = (u->count[i] + v - 1) / v;
        u->rate = fmin(u->rate, u->count[i] * u->s.stages[i].share_rate);
    }
}

int pools_allocation_add_shares(const struct pools_problem *p, struct pools_allocation *a,
                                int model, const struct pools_structure *s, const int *count,
                                struct err *e)
{
    struct pools_model_plan *m = &a->models[model];
    struct pools_use *u = NULL;
    for (int i = 0; i < m->n_uses && !u; i++)
        if (same_structure(&m->uses[i].s, s))
            u = &m->uses[i];
    if (!u) {
        if (!vector_reserve(m->uses, m->room, m->n_uses + 1))
            return err_no_memory(e, "allocating devices to pipelines");
        u = &m->uses[m->n_uses++];
        *u = (struct pools_use){.s = *s};
    }
    for (int i = 0; i < s->n_stages; i++)
        u->count[i] += count[i];
    use_refresh(p, u);
    return 0;
}

int pools_allocation_add(const struct pools_problem *p, struct pools_allocation *a, int model,
                         const struct pools_structure *s, const int *devices, struct err *e)
{
    int count[POOLS_MAX_STAGES];
    for (int i = 0; i < s->n_stages; i++)
        count[i] = devices[i] * shares_per_device(p, &s->stages[i]);
    return pools_allocation_add_shares(p, a, model, s, count, e);
}

void pools_allocation_refresh(const struct pools_problem *p, struct pools_allocation *a)
{
    a->objective = INFINITY;
    for (int m = 0; m < a->n_models; m++) {
        a->models[m].rate = 0;
        for (int i = 0; i < a->models[m].n_uses; i++) {
            use_refresh(p, &a->models[m].uses[i]);
            a->models[m].rate += a->models[m].uses[i].rate;
        }
        a->objective = fmin(a->objective, a->models[m].rate / p->models[m].weight);
    }
}

void pools_allocation_devices(const struct pools_problem *p, const struct pools_allocation *a,
                              int *by_kind)
{
    memset(by_kind, 0, (size_t)p->n_kinds * sizeof *by_kind);
    for (int m = 0; m < a->n_models; m++) {
        double fractions[POOLS_MAX_KINDS][POOLS_MAX_STAGES] = {{0}};
        for (int i = 0; i < a->models[m].n_uses; i++) {
            const struct pools_use *u = &a->models[m].uses[i];
            for (int d = 0; d < u->s.n_stages; d++) {
                const struct pools_stage *s = &u->s.stages[d];
                if (p->share_devices)
                    fractions[s->kind][d] += (double)u->count[d] / shares_per_device(p, s);
                else
                    by_kind[s->kind] += u->devices[d];
            }
        }
        for (int k = 0; k < p->n_kinds; k++)
            for (int d = 0; d < POOLS_MAX_STAGES; d++)
                by_kind[k] += (int)ceil(fractions[k][d] - 1e-9);
    }
}

/* ---- what is left over ---- */

/* How many times the compute of a stage covers what the objective asks of it. */
static double use_headroom(const struct pools_problem *p, const struct pools_allocation *a, int m,
                           const struct pools_use *u, int d)
{
    const struct pools_model *model = &p->models[m];
    double needed = u->rate * (a->objective * model->weight / a->models[m].rate);
    return u->count[d] * (model->batches[u->s.batch] / u->s.stages[d].compute_s) / needed;
}

static bool spend_one(const struct pools_problem *p, struct pools_allocation *a, int kind)
{
    struct pools_use *best = NULL;
    int best_stage = 0;
    double least = INFINITY;
    for (int m = 0; m < a->n_models; m++)
        for (int i = 0; i < a->models[m].n_uses; i++) {
            struct pools_use *u = &a->models[m].uses[i];
            for (int d = 0; d < u->s.n_stages; d++) {
                double h = u->s.stages[d].kind == kind ? use_headroom(p, a, m, u, d) : INFINITY;
                if (h < least) {
                    least = h;
                    best = u;
                    best_stage = d;
                }
            }
        }
    if (!best)
        return false;
    best->count[best_stage] += shares_per_device(p, &best->s.stages[best_stage]);
    return true;
}

void pools_spend_rest(const struct pools_problem *p, struct pools_allocation *a)
{
    int used[POOLS_MAX_KINDS];
    pools_allocation_refresh(p, a);
    if (!(a->objective > 0))
        return;
    pools_allocation_devices(p, a, used);
    for (int k = 0; k < p->n_kinds; k++)
        for (int left = p->kinds[k].count - used[k]; left > 0 && spend_one(p, a, k); left--)
            ;
    pools_allocation_refresh(p, a);
}
