#include "planners/pools/structures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

/* How much better than another, stage by stage, a structure must be to make one with finer shares
 * superfluous. */
#define FINE_FACTOR 1.2
/* Of the budget: sums of the same numbers in another order must not decide. */
#define BUDGET_SLACK 1e-9

/* One way to run layers [first, end) on a kind: no other share of it is both faster and of a higher
 * rate. */
struct option {
    int share;
    double compute_s, share_rate, device_rate;
};

struct structure_search {
    const struct pools_problem *problem;
    const struct pools_model *model;
    enum pools_rule rule;
    bool keep_fine;
    int batch;
    double budget_s;
    double *least_s; /* [layers + 1]: least seconds of layers [i, end of model) at this batch */
    struct option *options; /* [kind][first][end][WORKLOAD_MAX_SHARES] */
    unsigned char *n_options;
    struct pools_structure partial;
    double rates[POOLS_MAX_STAGES];
    /* Structures are compared within one sequence of kinds (one bag of kinds when devices are
     * whole). */
    struct pools_structures *found;
    int *next_of; /* list of a key: the next structure of the same key, -1 at the end */
    int *head_of; /* by key */
    int room_next;
    bool out_of_memory;
};

static int structure_cell(const struct structure_search *s, int kind, int first, int end)
{
    int n = s->model->n_layers + 1;
    return (kind * n + first) * n + end;
}

static void find_options(struct structure_search *s, int kind, int first, int end)
{
    const struct pools_kind *k = &s->problem->kinds[kind];
    struct option *list =
        s->options + (size_t)structure_cell(s, kind, first, end) * WORKLOAD_MAX_SHARES;
    int n = 0;
    for (int share = 0; share < k->n_shares; share++) {
        if (s->rule != POOLS_ANY && k->shares[share] != 1)
            continue;
        double compute_s = pools_compute_s(s->model, kind, share, s->batch, first, end);
        if (!(compute_s <= s->budget_s))
            continue;
        double rate = pools_share_rate(s->problem, s->model, kind, share, s->batch, first, end);
        if (!(rate > 1e-9)) /* a NIC of no speed, or a layer of absurd size */
            continue;
        struct option o = {share, compute_s, rate, rate * k->shares[share]};
        bool worse = false;
        for (int i = 0; i < n && !worse; i++)
            worse = !s->keep_fine && list[i].compute_s <= o.compute_s &&
                    list[i].device_rate >= o.device_rate;
        if (!worse)
            list[n++] = o;
    }
    s->n_options[structure_cell(s, kind, first, end)] = (unsigned char)n;
}

static void prepare_batch(struct structure_search *s)
{
    int layers = s->model->n_layers;
    for (int i = 0; i <= layers; i++)
        s->least_s[i] = i == layers ? 0 : INFINITY;
    for (int i = layers - 1; i >= 0; i--)
        for (int j = layers; j > i; j--)
            for (int k = 0; k < s->problem->n_kinds; k++) {
                find_options(s, k, i, j);
                const struct option *list =
                    s->options + (size_t)structure_cell(s, k, i, j) * WORKLOAD_MAX_SHARES;
                for (int o = 0; o < s->n_options[structure_cell(s, k, i, j)]; o++)
                    s->least_s[i] = fmin(s->least_s[i], list[o].compute_s + s->least_s[j]);
            }
}

/* ---- pruning ---- */

static int key_of(const struct structure_search *s, const struct pools_structure *c)
{
    int key = 0, kinds[POOLS_MAX_STAGES] = {0};
    for (int i = 0; i < c->n_stages; i++)
        kinds[i] = c->stages[i].kind + 1;
    /* With whole devices the order of the stages does not matter: compare within the bag of kinds,
     * unless pipelines are limited per sequence. */
    if (!s->keep_fine && s->problem->pipelines_per_assignment == 0)
        for (int i = 1; i < c->n_stages; i++)
            for (int j = i; j > 0 && kinds[j] < kinds[j - 1]; j--) {
                int t = kinds[j];
                kinds[j] = kinds[j - 1];
                kinds[j - 1] = t;
            }
    for (int i = 0; i < POOLS_MAX_STAGES; i++)
        key = key * (s->problem->n_kinds + 1) + kinds[i];
    return key;
}

/* The rates of the stages in the order of the key: by kind, then falling. */
static void sorted_rates(const struct structure_search *s, const struct pools_structure *c,
                         double *to)
{
    int at[POOLS_MAX_STAGES];
    for (int i = 0; i < c->n_stages; i++)
        at[i] = i;
    if (!s->keep_fine && s->problem->pipelines_per_assignment == 0)
        for (int i = 1; i < c->n_stages; i++)
            for (int j = i; j > 0; j--) {
                const struct pools_stage *a = &c->stages[at[j]], *b = &c->stages[at[j - 1]];
                if (a->kind > b->kind || (a->kind == b->kind && a->device_rate <= b->device_rate))
                    break;
                int t = at[j];
                at[j] = at[j - 1];
                at[j - 1] = t;
            }
    for (int i = 0; i < c->n_stages; i++)
        to[i] = c->stages[at[i]].device_rate;
}

static bool structure_dominates(const struct structure_search *s, const struct pools_structure *a,
                                const double *ra, const struct pools_structure *b, const double *rb)
{
    bool finer = true, strictly = false;
    double least = INFINITY;
    for (int i = 0; i < a->n_stages; i++) {
        if (ra[i] < rb[i])
            return false;
        strictly = strictly || ra[i] > rb[i];
        least = fmin(least, ra[i] / rb[i]);
        const int *shares = s->problem->kinds[a->stages[i].kind].shares;
        finer = finer && shares[a->stages[i].share] >= shares[b->stages[i].share];
    }
    if (s->keep_fine)
        return least >= FINE_FACTOR || (finer && (strictly || a->latency_s <= b->latency_s));
    return strictly || a->latency_s <= b->latency_s;
}

static bool make_room(struct structure_search *s)
{
    struct pools_structures *f = s->found;
    if (vector_reserve(f->items, f->room, f->count + 1) &&
        vector_reserve(s->next_of, s->room_next, f->count + 1))
        return true;
    s->out_of_memory = true;
    return false;
}

/* Keeps the partial structure, which is whole now, unless one that was kept dominates it; drops
 * those that it dominates. Dropped ones stay in the array with n_stages 0 until the end. */
static void structure_consider(struct structure_search *s)
{
    struct pools_structure *c = &s->partial;
    double mine[POOLS_MAX_STAGES], theirs[POOLS_MAX_STAGES];
    s->found->considered++;
    sorted_rates(s, c, mine);
    int key = key_of(s, c), *head = &s->head_of[key];
    for (int *link = head; *link >= 0;) {
        int at = *link;
        struct pools_structure *old = &s->found->items[at];
        sorted_rates(s, old, theirs);
        if (structure_dominates(s, old, theirs, c, mine)) {
            /* To the front: what beat this one is likely to beat the next. */
            *link = s->next_of[at];
            s->next_of[at] = *head;
            *head = at;
            return;
        }
        if (structure_dominates(s, c, mine, old, theirs)) {
            old->n_stages = 0;
            *link = s->next_of[at];
            continue;
        }
        link = &s->next_of[at];
    }
    if (!make_room(s))
        return;
    s->found->items[s->found->count] = *c;
    s->next_of[s->found->count] = s->head_of[key];
    s->head_of[key] = s->found->count++;
}

/* ---- enumeration ---- */

static bool stage_allowed(const struct structure_search *s, int depth, int kind, bool last)
{
    if (s->rule == POOLS_WHOLE)
        return last && depth == 0;
    if (s->rule == POOLS_CHAINS)
        return (depth == 0 && (last || s->problem->max_stages > 1)) ||
               (last && depth == 1 && kind != s->partial.stages[0].kind);
    return last || depth + 1 < s->problem->max_stages;
}

/* Adds the stage [first, end) in every allowed way and goes on from `end`. `used_s` is what the
 * stages before took, transfers included. */
static void structure_extend(struct structure_search *s, int depth, int first, double used_s)
{
    int layers = s->model->n_layers;
    for (int k = 0; k < s->problem->n_kinds; k++) {
        double hop_s = 0;
        if (depth > 0) {
            int from = s->partial.stages[depth - 1].kind;
            hop_s = pools_transfer_s(s->problem, s->model, first, from, k) *
                        s->model->batches[s->batch] +
                    s->problem->kinds[from].latency_s + s->problem->kinds[k].latency_s;
        }
        for (int end = layers; end > first; end--) {
            if (!stage_allowed(s, depth, k, end == layers) ||
                used_s + hop_s + s->least_s[end] > s->budget_s)
                continue;
            const struct option *list =
                s->options + (size_t)structure_cell(s, k, first, end) * WORKLOAD_MAX_SHARES;
            for (int o = 0; o < s->n_options[structure_cell(s, k, first, end)]; o++) {
                double now_s = used_s + hop_s + list[o].compute_s;
                if (now_s + s->least_s[end] > s->budget_s)
                    continue;
                s->partial.stages[depth] = (struct pools_stage){k,
                                                                list[o].share,
                                                                first,
                                                                end,
                                                                list[o].compute_s,
                                                                list[o].share_rate,
                                                                list[o].device_rate};
                if (end < layers) {
                    structure_extend(s, depth + 1, end, now_s);
                    continue;
                }
                s->partial.n_stages = depth + 1;
                s->partial.batch = s->batch;
                s->partial.latency_s = now_s;
                structure_consider(s);
            }
        }
    }
}

static int keys_of(const struct pools_problem *p)
{
    int n = 1;
    for (int i = 0; i < POOLS_MAX_STAGES; i++)
        n *= p->n_kinds + 1;
    return n;
}

static void drop_superfluous(struct pools_structures *f)
{
    int n = 0;
    for (int i = 0; i < f->count; i++)
        if (f->items[i].n_stages > 0)
            f->items[n++] = f->items[i];
    f->count = n;
}

int pools_structures_make(const struct pools_problem *p, int model, enum pools_rule rule,
                          bool keep_fine, struct pools_structures *out, struct err *e)
{
    const struct pools_model *m = &p->models[model];
    size_t cells = (size_t)p->n_kinds * (size_t)(m->n_layers + 1) * (size_t)(m->n_layers + 1);
    struct structure_search s = {
        .problem = p, .model = m, .rule = rule, .keep_fine = keep_fine, .found = out};
    s.least_s = malloc((size_t)(m->n_layers + 1) * sizeof *s.least_s);
    s.options = malloc(cells * WORKLOAD_MAX_SHARES * sizeof *s.options);
    s.n_options = calloc(cells, 1);
    s.head_of = malloc((size_t)keys_of(p) * sizeof *s.head_of);
    s.out_of_memory = !s.least_s || !s.options || !s.n_options || !s.head_of;
    for (int i = 0; !s.out_of_memory && i < keys_of(p); i++)
        s.head_of[i] = -1;
    for (s.batch = m->n_batches - 1; s.batch >= 0 && !s.out_of_memory; s.batch--) {
        s.budget_s = (m->budget_s - pools_batching_s(m, s.batch)) * (1 + BUDGET_SLACK);
        if (s.budget_s <= 0)
            continue;
        prepare_batch(&s);
        structure_extend(&s, 0, 0, 0);
    }
    free(s.least_s);
    free(s.options);
    free(s.n_options);
    free(s.head_of);
    free(s.next_of);
    drop_superfluous(out);
    return s.out_of_memory
               ? err_set(e, HP_ENOMEM, "out of memory while listing the pipelines of %s", m->name)
               : 0;
}

void pools_structures_free(struct pools_structures *s)
{
    free(s->items);
    *s = (struct pools_structures){0};
}

double pools_whole_s(const struct pools_problem *p, int model)
{
    const struct pools_model *m = &p->models[model];
    double best = INFINITY;
    for (int k = 0; k < p->n_kinds; k++)
        for (int s = 0; s < p->kinds[k].n_shares; s++)
            for (int b = 0; b < m->n_batches; b++) {
                double t = pools_compute_s(m, k, s, b, 0, m->n_layers) + pools_batching_s(m, b);
                if (t < best)
                    best = t;
            }
    return best;
}
