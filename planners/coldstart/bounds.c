#include "planners/coldstart/bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct bounding {
    const struct coldstart_problem *p;
    double *exec_s, *host_s; /* [node] the least over devices */
    double *load_s, *read_s; /* [node] the least over buses */
    double *share_s; /* [node] bus time over the sum of all buses' speeds: of a parameter's copy, of
                        an operator's read */
    double *head_s;  /* [node] earliest end of an operator */
    double *ready_s; /* [node] earliest start, by its operator inputs */
    double *tail_s;  /* [node] least time after an operator's end */
    bool *must_load; /* [node] an operator that cannot read in place */
};

static double bound_least(const double *values, int n)
{
    double best = values[0];
    for (int i = 1; i < n; i++)
        best = values[i] < best ? values[i] : best;
    return best;
}

/* Weighs buses by their speed: a copy that takes t_b seconds on bus b uses at least min(w_b t_b) of
 * all buses' joint time. */
static double joint_share(const struct coldstart_problem *p, const double *times)
{
    double total = 0, best = INFINITY;
    for (int b = 0; b < p->n_buses; b++)
        total += p->graph->bus_bytes_per_s[b];
    for (int b = 0; b < p->n_buses; b++)
        best = fmin(best, times[b] * p->graph->bus_bytes_per_s[b] / total);
    return best;
}

static void fill_times(struct bounding *b)
{
    const struct coldstart_problem *p = b->p;
    for (int v = 0; v < p->n_nodes; v++) {
        if (p->is_op[v]) {
            const double *read = &p->read_s[v * p->n_buses];
            b->exec_s[v] = bound_least(&p->exec_s[v * p->n_devices], p->n_devices);
            b->host_s[v] = bound_least(&p->host_exec_s[v * p->n_devices], p->n_devices);
            b->read_s[v] = bound_least(read, p->n_buses);
            b->share_s[v] = joint_share(p, read);
        } else {
            b->load_s[v] = bound_least(&p->load_s[v * p->n_buses], p->n_buses);
            b->share_s[v] = joint_share(p, &p->load_s[v * p->n_buses]);
        }
    }
}

static double least_duration(const struct bounding *b, int v)
{
    return b->must_load[v] ? b->exec_s[v] : fmin(b->exec_s[v], b->host_s[v]);
}

/* Heads forwards, tails backwards, along the topological order. */
static void fill_paths(struct bounding *b)
{
    const struct coldstart_problem *p = b->p;
    for (int i = 0; i < p->n_ops; i++) {
        int v = p->topological[i];
        double ready = 0, loaded = 0;
        for (int k = p->op_inputs_at[v]; k < p->op_inputs_at[v + 1]; k++)
            ready = fmax(ready, b->head_s[p->op_inputs[k]]);
        for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++)
            loaded = fmax(loaded, b->load_s[p->param_inputs[k]]);
        b->ready_s[v] = ready;
        b->head_s[v] = fmax(ready, loaded) + b->exec_s[v];
        if (!b->must_load[v])
            b->head_s[v] = fmin(b->head_s[v], fmax(ready + b->host_s[v], b->read_s[v]));
    }
    for (int i = p->n_ops - 1; i >= 0; i--) {
        int v = p->topological[i];
        double tail = 0;
        for (int k = p->readers_at[v]; k < p->readers_at[v + 1]; k++)
            tail = fmax(tail, least_duration(b, p->readers[k]) + b->tail_s[p->readers[k]]);
        b->tail_s[v] = tail;
    }
}

/* What must cross the buses for a parameter, by all its operators' reads or by a copy, and what
 * still runs after that. */
struct bound_item {
    double share_s, after_s;
    double load_s; /* of a parameter that must be copied: the least time of that, else 0 */
};

static void least_share(const struct bounding *b, int w, struct bound_item *out)
{
    const struct coldstart_problem *p = b->p;
    double reads = 0, after_load = INFINITY, after_read = INFINITY;
    bool may_read = true;
    for (int k = p->readers_at[w]; k < p->readers_at[w + 1]; k++) {
        int v = p->readers[k];
        may_read = may_read && !b->must_load[v];
        reads += b->share_s[v];
        after_load = fmin(after_load, b->exec_s[v] + b->tail_s[v]);
        after_read = fmin(after_read, b->tail_s[v]);
    }
    out->share_s = may_read ? fmin(reads, b->share_s[w]) : b->share_s[w];
    out->after_s = may_read ? fmin(after_load, after_read) : after_load;
    out->load_s = may_read ? 0 : b->load_s[w];
}

static int compare_items(const void *a, const void *b)
{
    const struct bound_item *x = a, *y = b;
    return (x->after_s < y->after_s) - (x->after_s > y->after_s);
}

/* Copies cannot be cut in two: of any B k + 1 of them, some of the B buses carries k + 1. `sorted`
 * holds their times, the longest first; the best of these bounds. */
static double bound_pigeonhole(const double *sorted, int n, int n_buses)
{
    double best = 0;
    for (int k = 1; n_buses * k < n; k++) {
        double together = 0;
        for (int i = 0; i <= k; i++)
            together += sorted[n_buses * k - i];
        best = fmax(best, together);
    }
    return best;
}

static void insert_sorted(double *sorted, int *n, double value)
{
    int i = (*n)++;
    for (; i > 0 && sorted[i - 1] < value; i--)
        sorted[i] = sorted[i - 1];
    sorted[i] = value;
}

enum { PIGEONHOLE_MAX_PARAMS = 300 };

/* Of all that must cross the buses and has at least `after` to run afterwards, the last crosses no
 * earlier than their joint time: the best such threshold. */
static int load_bound(const struct bounding *b, double *out)
{
    const struct coldstart_problem *p = b->p;
    struct bound_item *items = calloc((size_t)p->n_params + 1, sizeof *items);
    double *sorted = calloc((size_t)p->n_params + 1, sizeof *sorted), joint = 0;
    int n = 0, n_sorted = 0;
    if (!items || !sorted) {
        free(items);
        free(sorted);
        return HP_ENOMEM;
    }
    for (int w = 0; w < p->n_nodes; w++)
        if (!p->is_op[w])
            least_share(b, w, &items[n++]);
    qsort(items, (size_t)n, sizeof *items, compare_items);
    *out = 0;
    for (int i = 0; i < n; i++) {
        joint += items[i].share_s;
        *out = fmax(*out, joint + items[i].after_s);
        if (items[i].load_s <= 0 || n > PIGEONHOLE_MAX_PARAMS)
            continue;
        insert_sorted(sorted, &n_sorted, items[i].load_s);
        *out = fmax(*out, bound_pigeonhole(sorted, n_sorted, p->n_buses) + items[i].after_s);
    }
    free(items);
    free(sorted);
    return 0;
}

/* An operator that reads several parameters would count its read once for each: share it among
 * them. */
static void split_reads(struct bounding *b)
{
    const struct coldstart_problem *p = b->p;
    for (int v = 0; v < p->n_nodes; v++) {
        int n = p->param_inputs_at[v + 1] - p->param_inputs_at[v];
        if (p->is_op[v] && n > 1)
            b->share_s[v] /= n;
    }
}

/* The bus time that must pass before an operator can start: of all parameters above it. One that
 * several operators read counts with the read of one of them, since the others may come later. */
static double share_above(const struct bounding *b, int v, int *mark, int *stack)
{
    const struct coldstart_problem *p = b->p;
    double total = 0;
    int n = 0;
    stack[n++] = v;
    while (n > 0) {
        int u = stack[--n];
        for (int k = p->param_inputs_at[u]; u != v && k < p->param_inputs_at[u + 1]; k++)
            if (mark[p->param_inputs[k]] != v) {
                double load = b->share_s[p->param_inputs[k]];
                mark[p->param_inputs[k]] = v;
                total += b->must_load[u] ? load : fmin(load, b->share_s[u]);
            }
        for (int k = p->op_inputs_at[u]; k < p->op_inputs_at[u + 1]; k++)
            if (mark[p->op_inputs[k]] != v) {
                mark[p->op_inputs[k]] = v;
                stack[n++] = p->op_inputs[k];
            }
    }
    return total;
}

enum { PROBE_MAX_OPS = 3000 };

/* Takes operators to be resident that cannot end within `known_s` from host memory. */
static int probe_host(struct bounding *b, double known_s)
{
    const struct coldstart_problem *p = b->p;
    int *mark = malloc((size_t)p->n_nodes * sizeof *mark),
        *stack = malloc(((size_t)p->n_nodes + 1) * sizeof *stack);
    if (!mark || !stack) {
        free(mark);
        free(stack);
        return HP_ENOMEM;
    }
    for (int v = 0; v < p->n_nodes; v++)
        mark[v] = -1;
    for (int i = 0; i < p->n_ops; i++) {
        int v = p->topological[i];
        if (b->must_load[v])
            continue;
        double start = b->ready_s[v];
        if (p->n_ops <= PROBE_MAX_OPS)
            start = fmax(start, share_above(b, v, mark, stack));
        b->must_load[v] = start + b->host_s[v] + b->tail_s[v] >
                          known_s * (1 + 1e-9); /* sums of one plan differ by rounding */
    }
    free(mark);
    free(stack);
    return 0;
}

int coldstart_bounds_find(const struct coldstart_problem *p, double known_s,
                          struct coldstart_bounds *out)
{
    struct arena arena = {0};
    size_t n = (size_t)p->n_nodes;
    struct bounding b = {.p = p};
    double **const tables[] = {&b.exec_s,  &b.host_s, &b.load_s,  &b.read_s,
                               &b.share_s, &b.head_s, &b.ready_s, &b.tail_s};
    bool ok = (b.must_load = arena_alloc(&arena, n, sizeof(bool))) != NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        ok = (*tables[i] = arena_alloc(&arena, n, sizeof(double))) && ok;
    int rc = ok ? 0 : HP_ENOMEM;
    struct coldstart_bounds found = {0};
    if (rc == 0) {
        fill_times(&b);
        split_reads(&b);
        for (int v = 0; v < p->n_nodes; v++)
            b.must_load[v] =
                p->is_op[v] && !coldstart_has_params(p, v) && b.exec_s[v] <= b.host_s[v];
        fill_paths(&b);
        rc = probe_host(&b, known_s);
    }
    if (rc == 0) {
        fill_paths(&b);
        rc = load_bound(&b, &found.load_s);
        for (int v = 0; v < p->n_nodes; v++)
            if (p->is_op[v]) {
                found.critical_path_s = fmax(found.critical_path_s, b.head_s[v]);
                found.work_s += least_duration(&b, v) / p->n_devices;
            }
        found.best_s = fmax(found.load_s, fmax(found.critical_path_s, found.work_s));
    }
    arena_free(&arena);
    if (rc == 0)
        *out = found;
    return rc;
}
