#include "planners/coldstart/layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int layers_init(const struct coldstart_problem *p, int device, struct arena *arena, struct layers *out)
{
    struct layers l = {.layer = arena_alloc(arena, (size_t)p->n_ops, sizeof *l.layer), .n = p->n_ops, .exclusive = true};
    bool *taken = calloc((size_t)p->n_nodes, sizeof *taken);
    if (!l.layer || !taken) {
        free(taken);
        return HP_ENOMEM;
    }
    int bus = p->bus_of[device];
    for (int i = 0; i < l.n; i++) {
        int v = p->topological[i];
        struct layer *a = &l.layer[i];
        *a = (struct layer){.node = v, .exec_s = p->exec_s[v * p->n_devices + device], .host_s = p->host_exec_s[v * p->n_devices + device],
                            .read_s = p->read_s[v * p->n_buses + bus]};
        for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++) {
            int w = p->param_inputs[k];
            l.exclusive = l.exclusive && p->readers_at[w + 1] - p->readers_at[w] == 1;
            if (taken[w])
                continue;
            taken[w] = true;
            a->load_s += p->load_s[w * p->n_buses + bus];
            a->bytes += p->bytes[w];
        }
        a->has_params = coldstart_has_params(p, v) && (a->bytes > 0 || a->load_s > 0);
        if (!a->has_params)
            a->host_s = a->exec_s; /* nothing to choose */
    }
    free(taken);
    *out = l;
    return 0;
}

double layers_finish(const struct layers *l, const bool *host, double *stall_s)
{
    double end = 0, loaded = 0;
    for (int i = 0; i < l->n; i++) {
        const struct layer *a = &l->layer[i];
        double stall = 0;
        if (host[i]) {
            end += a->host_s;
        } else {
            loaded += a->load_s;
            stall = loaded > end ? loaded - end : 0;
            end = (loaded > end ? loaded : end) + a->exec_s;
        }
        if (stall_s)
            stall_s[i] = stall;
    }
    return end;
}

/* ---- DeepPlan's greedy -------------------------------------------------------------------------------------- */

struct candidate {
    double cost_s, load_s;
    int index;
};

static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->cost_s != y->cost_s)
        return x->cost_s < y->cost_s ? -1 : 1;
    if (x->load_s != y->load_s)
        return x->load_s > y->load_s ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Moves layers 0..i to host memory until the stall of layer i is gone; true when it is. */
static bool remove_stall(const struct layers *l, int i, double stall_s, const struct candidate *sorted, bool *host)
{
    for (int k = 0; k < l->n; k++) {
        int j = sorted[k].index;
        const struct layer *a = &l->layer[j];
        if (j > i || host[j])
            continue;
        if (a->host_s > a->exec_s + 1.5 * a->load_s || sorted[k].cost_s > stall_s)
            return false;
        host[j] = true;
        stall_s -= a->load_s + sorted[k].cost_s;
        if (stall_s <= 0)
            return true;
    }
    return false;
}

int layers_greedy(const struct layers *l, struct arena *scratch, bool *host)
{
    struct candidate *sorted = arena_alloc(scratch, (size_t)l->n, sizeof *sorted);
    double *stall_s = arena_alloc(scratch, (size_t)l->n, sizeof *stall_s);
    if (!sorted || !stall_s)
        return HP_ENOMEM;
    for (int i = 0; i < l->n; i++) {
        const struct layer *a = &l->layer[i];
        sorted[i] = (struct candidate){a->host_s - a->exec_s, a->load_s, i};
        host[i] = !a->has_params;
    }
    qsort(sorted, (size_t)l->n, sizeof *sorted, compare_candidates);
    layers_finish(l, host, stall_s);
    for (int i = 0; i < l->n; i++)
        if (stall_s[i] > 0 && remove_stall(l, i, stall_s[i], sorted, host))
            layers_finish(l, host, stall_s);
    return 0;
}

/* ---- the exact choice --------------------------------------------------------------------------------------- */

/* One way to have run the first layers: none other of its layer has both times earlier. */
struct state {
    double end_s, loaded_s;
    int parent;
    bool host;
};

enum { FRONTIER_LIMIT = 20000, STATES_LIMIT = 4000000 };

struct frontier {
    struct state *states; /* ends ascending, loads descending */
    int n;
};

static struct state step(const struct layer *a, const struct state *s, int index, bool host, bool contention)
{
    struct state t = {.loaded_s = s->loaded_s, .parent = index, .host = host};
    if (!host) {
        t.loaded_s += a->load_s;
        t.end_s = (s->end_s > t.loaded_s ? s->end_s : t.loaded_s) + a->exec_s;
    } else {
        t.end_s = s->end_s + a->host_s;
        if (contention) {
            t.loaded_s += a->read_s;
            t.end_s = t.end_s > t.loaded_s ? t.end_s : t.loaded_s;
        }
    }
    return t;
}

/* The next way of one kind that none after it dominates. Ends first fall and then rise along the frontier, while loads only
 * fall: a way whose successor ends no later is dominated. */
static bool next_of(const struct layer *a, const struct frontier *f, int *at, bool host, bool contention, struct state *out)
{
    if (*at >= f->n)
        return false;
    *out = step(a, &f->states[*at], *at, host, contention);
    for (++*at; *at < f->n; ++*at) {
        struct state next = step(a, &f->states[*at], *at, host, contention);
        if (next.end_s > out->end_s)
            break;
        *out = next;
    }
    return true;
}

static void keep(struct frontier *f, const struct state *s, double rest_s, double best_s)
{
    if (s->end_s + rest_s > best_s || f->n >= FRONTIER_LIMIT)
        return;
    if (f->n > 0 && f->states[f->n - 1].loaded_s <= s->loaded_s)
        return; /* the one before ends no later and has loaded no later */
    f->states[f->n++] = *s;
}

static void expand(const struct layer *a, const struct frontier *from, bool contention, double rest_s, double best_s, struct frontier *to)
{
    struct state loaded, host;
    int at_loaded = 0, at_host = 0;
    bool has_loaded = next_of(a, from, &at_loaded, false, contention, &loaded);
    bool has_host = a->has_params && next_of(a, from, &at_host, true, contention, &host);
    to->n = 0;
    while (has_loaded || has_host) {
        bool take_host = has_host && (!has_loaded || host.end_s < loaded.end_s || (host.end_s == loaded.end_s && host.loaded_s < loaded.loaded_s));
        if (take_host) {
            keep(to, &host, rest_s, best_s);
            has_host = next_of(a, from, &at_host, true, contention, &host);
        } else {
            keep(to, &loaded, rest_s, best_s);
            has_loaded = next_of(a, from, &at_loaded, false, contention, &loaded);
        }
    }
}

/* When these layers end on a bus that takes copies and reads in their order. */
static double finish_in_order(const struct layers *l, const bool *host, bool contention)
{
    struct state s = {0};
    for (int i = 0; i < l->n; i++)
        s = step(&l->layer[i], &s, 0, host[i] && l->layer[i].has_params, contention);
    return s.end_s;
}

/* A plan to beat: every layer loaded, or the greedy's, whichever ends first. */
static int first_guess(const struct layers *l, bool contention, bool *host, double *finish_s)
{
    struct arena scratch = {0};
    bool *other = arena_alloc(&scratch, (size_t)l->n, sizeof *other);
    int rc = other ? layers_greedy(l, &scratch, other) : HP_ENOMEM;
    if (rc == 0) {
        for (int i = 0; i < l->n; i++)
            host[i] = !l->layer[i].has_params;
        *finish_s = finish_in_order(l, host, contention);
        double greedy_s = finish_in_order(l, other, contention);
        if (greedy_s < *finish_s) {
            memcpy(host, other, (size_t)l->n * sizeof *host);
            *finish_s = greedy_s;
        }
    }
    arena_free(&scratch);
    return rc;
}

/* Shrinks a frontier to what was used of it and moves it to its own memory. */
static struct state *shrink(const struct frontier *f)
{
    struct state *s = malloc((size_t)(f->n ? f->n : 1) * sizeof *s);
    if (s)
        memcpy(s, f->states, (size_t)f->n * sizeof *s);
    return s;
}

int layers_optimal(const struct layers *l, bool contention, bool *host, double *finish_s, bool *exact)
{
    *exact = true;
    int rc = first_guess(l, contention, host, finish_s), reached = 0;
    double *rest_s = calloc((size_t)l->n + 1, sizeof *rest_s), slack = 1e-12 * *finish_s;
    struct frontier *frontiers = calloc((size_t)l->n + 1, sizeof *frontiers);
    struct frontier next = {malloc(FRONTIER_LIMIT * sizeof *next.states), 0};
    if (rc < 0 || !rest_s || !frontiers || !next.states)
        goto out_of_memory;
    for (int i = l->n - 1; i >= 0; i--) {
        const struct layer *a = &l->layer[i];
        rest_s[i] = rest_s[i + 1] + (a->has_params && a->host_s < a->exec_s ? a->host_s : a->exec_s);
    }
    next.states[next.n++] = (struct state){0};
    long total = 0;
    for (;; reached++) {
        frontiers[reached] = (struct frontier){shrink(&next), next.n};
        if (!frontiers[reached].states)
            goto out_of_memory;
        total += next.n;
        *exact = *exact && next.n < FRONTIER_LIMIT;
        if (reached == l->n || next.n == 0 || total > STATES_LIMIT)
            break;
        expand(&l->layer[reached], &frontiers[reached], contention, rest_s[reached + 1], *finish_s + slack, &next);
    }
    *exact = *exact && total <= STATES_LIMIT;
    if (reached == l->n && next.n > 0 && next.states[0].end_s < *finish_s) {
        *finish_s = next.states[0].end_s;
        for (int i = l->n, at = 0; i > 0; i--) {
            const struct state *s = &frontiers[i].states[at];
            host[i - 1] = s->host || !l->layer[i - 1].has_params;
            at = s->parent;
        }
    }
    goto done;
out_of_memory:
    rc = HP_ENOMEM;
done:
    for (int i = 0; frontiers && i <= l->n; i++)
        free(frontiers[i].states);
    free(frontiers);
    free(next.states);
    free(rest_s);
    return rc;
}
