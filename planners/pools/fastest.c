#include "planners/pools/fastest.h"

#include <math.h>

/* Of pipelines of depth + 1 stages that end before a layer on a kind: the least seconds, and what
 * the last stage follows. */
struct fastest_cell {
    double seconds;
    int first, before; /* the last stage's first layer; kind of the one before */
};

struct fastest_search {
    const struct pools_problem *problem;
    const struct pools_model *model;
    int batch;
    struct fastest_cell cells[POOLS_MAX_STAGES][POOLS_MAX_KINDS][POOLS_MAX_LAYERS + 1];
};

/* By the share that is fastest. */
static double stage_least_s(const struct fastest_search *s, int kind, int first, int end)
{
    double best = INFINITY;
    for (int share = 0; share < s->problem->kinds[kind].n_shares; share++) {
        double t = pools_compute_s(s->model, kind, share, s->batch, first, end);
        if (t < best)
            best = t;
    }
    return best;
}

static double hop_least_s(const struct fastest_search *s, int first, int from, int to)
{
    return pools_transfer_s(s->problem, s->model, first, from, to) * s->model->batches[s->batch] +
           s->problem->kinds[from].latency_s + s->problem->kinds[to].latency_s;
}

static void cell_try(struct fastest_search *s, int depth, int kind, int first, int end)
{
    struct fastest_cell *to = &s->cells[depth][kind][end];
    double stage_s = stage_least_s(s, kind, first, end);
    if (depth == 0) {
        *to = (struct fastest_cell){stage_s, 0, -1};
        return;
    }
    for (int from = 0; from < s->problem->n_kinds; from++) {
        double seconds =
            s->cells[depth - 1][from][first].seconds + hop_least_s(s, first, from, kind) + stage_s;
        if (seconds < to->seconds)
            *to = (struct fastest_cell){seconds, first, from};
    }
}

static void depth_fill(struct fastest_search *s, int depth)
{
    for (int kind = 0; kind < s->problem->n_kinds; kind++)
        for (int end = 0; end <= s->model->n_layers; end++) {
            s->cells[depth][kind][end].seconds = INFINITY;
            /* The first stage begins with the first layer, others behind at least one. */
            int first = depth ? 1 : 0, most = depth ? end : end > 0;
            for (; first < most; first++)
                cell_try(s, depth, kind, first, end);
        }
}

static void fastest_take(const struct fastest_search *s, int depth, struct pools_fastest *best)
{
    for (int kind = 0; kind < s->problem->n_kinds; kind++) {
        int end = s->model->n_layers, at = kind;
        double seconds = s->cells[depth][kind][end].seconds + pools_batching_s(s->model, s->batch);
        if (!(seconds < best->seconds))
            continue;
        best->seconds = seconds;
        best->n_stages = depth + 1;
        for (int d = depth; d >= 0; d--) {
            const struct fastest_cell *c = &s->cells[d][at][end];
            best->kinds[d] = at;
            end = c->first;
            at = c->before;
        }
    }
}

struct pools_fastest pools_fastest_find(const struct pools_problem *p, int model, int max_stages)
{
    struct pools_fastest best = {.seconds = INFINITY};
    struct fastest_search s = {.problem = p, .model = &p->models[model]};
    for (s.batch = 0; s.batch < s.model->n_batches; s.batch++)
        for (int depth = 0; depth < max_stages && depth < POOLS_MAX_STAGES; depth++) {
            depth_fill(&s, depth);
            fastest_take(&s, depth, &best);
        }
    return best;
}
