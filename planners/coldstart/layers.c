#include "planners/coldstart/layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool reads_output(const struct coldstart_problem *p, int reader, int of)
{
    for (int k = p->op_inputs_at[reader]; k < p->op_inputs_at[reader + 1]; k++)
        if (p->op_inputs[k] == of)
            return true;
    return false;
}

int layers_init(const struct coldstart_problem *p, int device, struct arena *arena,
                struct layers *out)
{
    struct layers l = {.layer = arena_alloc(arena, (size_t)p->n_ops, sizeof *l.layer),
                       .n = p->n_ops,
                       .chain = true};
    bool *taken = calloc((size_t)p->n_nodes, sizeof *taken);
    if (!l.layer || !taken) {
        free(taken);
        return HP_ENOMEM;
    }
    int bus = p->bus_of[device];
    for (int i = 0; i < l.n; i++) {
        int v = p->topological[i];
        struct layer *a = &l.layer[i];
        *a = (struct layer){.node = v,
                            .exec_s = p->exec_s[v * p->n_devices + device],
                            .host_s = p->host_exec_s[v * p->n_devices + device],
                            .read_s = p->read_s[v * p->n_buses + bus]};
        for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++) {
            int w = p->param_inputs[k];
            l.chain = l.chain && p->readers_at[w + 1] - p->readers_at[w] == 1;
            if (taken[w])
                continue;
            taken[w] = true;
            a->load_s += p->load_s[w * p->n_buses + bus];
            a->bytes += p->bytes[w];
        }
        l.chain = l.chain && (i == 0 || reads_output(p, v, p->topological[i - 1]));
        a->has_params = coldstart_has_params(p, v) && (a->bytes > 0 || a->load_s > 0);
        if (!a->has_params)
            a->host_s = a->exec_s; /* nothing to choose */
    }
    free(taken);
    *out = l;
    return 0;
}

/* ---- DeepPlan's greedy ---- */

/* The greedy compares sums of times for equality, so it counts in whole picoseconds: what is equal
 * in milliseconds stays equal.
 */
struct greedy_layer {
    double load_ps, exec_ps, host_ps;
    double end_ps, loaded_ps; /* as of the last trace */
};

/* Layers 0..i that may still go to host memory, as a heap: least extra time first, then the longest
 * load, then the first. */
struct greedy {
    struct greedy_layer *layer;
    int n;
    bool *host;
    int *heap, n_heap;
    int changed_from; /* the first layer that changed since the last trace */
};

static double cost_of(const struct greedy_layer *a)
{
    return a->host_ps - a->exec_ps;
}

static bool goes_before(const struct greedy *g, int i, int j)
{
    const struct greedy_layer *a = &g->layer[i], *b = &g->layer[j];
    if (cost_of(a) != cost_of(b))
        return cost_of(a) < cost_of(b);
    return a->load_ps != b->load_ps ? a->load_ps > b->load_ps : i < j;
}

static void states_push(struct greedy *g, int layer)
{
    int i = g->n_heap++;
    for (; i > 0 && goes_before(g, layer, g->heap[(i - 1) / 2]); i = (i - 1) / 2)
        g->heap[i] = g->heap[(i - 1) / 2];
    g->heap[i] = layer;
}

static void states_pop(struct greedy *g)
{
    int last = g->heap[--g->n_heap], i = 0;
    for (int child = 1; child < g->n_heap; child = 2 * i + 1) {
        if (child + 1 < g->n_heap && goes_before(g, g->heap[child + 1], g->heap[child]))
            child++;
        if (!goes_before(g, g->heap[child], last))
            break;
        g->heap[i] = g->heap[child];
        i = child;
    }
    g->heap[i] = last;
}

/* Brings the trace of layer i up to date from the layer before it; gives its stall. */
static double choice_trace(struct greedy *g, int i)
{
    struct greedy_layer *a = &g->layer[i];
    double end = i ? a[-1].end_ps : 0, loaded = i ? a[-1].loaded_ps : 0, stall = 0;
    if (g->host[i]) {
        end += a->host_ps;
    } else {
        loaded += a->load_ps;
        stall = loaded > end ? loaded - end : 0;
        end = (loaded > end ? loaded : end) + a->exec_ps;
    }
    a->end_ps = end;
    a->loaded_ps = loaded;
    return stall;
}

/* Moves layers 0..i to host memory until the stall of layer i is gone; only then the trace is made
 * anew. */
static void remove_stall(struct greedy *g, int i, double stall_ps)
{
    while (g->n_heap > 0) {
        int j = g->heap[0];
        const struct greedy_layer *a = &g->layer[j];
        if (a->host_ps > a->exec_ps + 1.5 * a->load_ps || cost_of(a) > stall_ps)
            return;
        states_pop(g);
        g->host[j] = true;
        g->changed_from = j < g->changed_from ? j : g->changed_from;
        stall_ps -= a->load_ps + cost_of(a);
        if (stall_ps > 0)
            continue;
        for (int k = g->changed_from; k <= i; k++)
            choice_trace(g, k);
        g->changed_from = g->n;
        return;
    }
}

int layers_greedy(const struct layers *l, struct arena *scratch, bool *host)
{
    struct greedy g = {.n = l->n, .host = host, .changed_from = l->n};
    g.heap = arena_alloc(scratch, (size_t)l->n + 1, sizeof *g.heap);
    g.layer = arena_alloc(scratch, (size_t)l->n + 1, sizeof *g.layer);
    if (!g.heap || !g.layer)
        return HP_ENOMEM;
    for (int i = 0; i < l->n; i++) {
        const struct layer *a = &l->layer[i];
        g.layer[i] = (struct greedy_layer){.load_ps = round(a->load_s * 1e12),
                                           .exec_ps = round(a->exec_s * 1e12),
                                           .host_ps = round(a->host_s * 1e12)};
        host[i] = !a->has_params;
        if (!host[i])
            states_push(&g, i);
        double stall_ps = choice_trace(&g, i);
        if (stall_ps > 0)
            remove_stall(&g, i, stall_ps);
    }
    return 0;
}

/* ---- the exact choice ---- */

/* One way to have run the first layers: none other of its layer has both times earlier. */
struct layers_state {
    double end_s, loaded_s;
    int parent;
    bool host;
};

enum { FIRST_LIMIT = 100, FRONTIER_LIMIT = 20000, STATES_LIMIT = 4000000 };

struct frontier {
    struct layers_state *states; /* ends ascending, loads descending */
    int n;
};

static struct layers_state state_step(const struct layer *a, const struct layers_state *s,
                                      int index, bool host, bool contention)
{
    struct layers_state t = {.loaded_s = s->loaded_s, .parent = index, .host = host};
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

/* The next way of one kind that none after it dominates. Ends first fall and then rise along the
 * frontier, while loads only fall: a way whose successor ends no later is dominated. */
static bool next_of(const struct layer *a, const struct frontier *f, int *at, bool host,
                    bool contention, struct layers_state *out)
{
    if (*at >= f->n)
        return false;
    *out = state_step(a, &f->states[*at], *at, host, contention);
    for (++*at; *at < f->n; ++*at) {
        struct layers_state next = state_step(a, &f->states[*at], *at, host, contention);
        if (next.end_s > out->end_s)
            break;
        *out = next;
    }
    return true;
}

/* What is still to come costs at least so much. Execution ends after w x (end of loading) + (1 - w)
 * x (end of execution) for every weight w of 0 to 1, and each layer adds to that whichever of its
 * two ways adds less. */
enum { WEIGHTS = 9 };

struct rest {
    double at_least_s[WEIGHTS];
};

static double weight_of(int k)
{
    return (double)k / (WEIGHTS - 1);
}

static void fill_rests(const struct layers *l, bool contention, struct rest *rests)
{
    rests[l->n] = (struct rest){{0}};
    for (int i = l->n - 1; i >= 0; i--) {
        const struct layer *a = &l->layer[i];
        for (int k = 0; k < WEIGHTS; k++) {
            double w = weight_of(k), loaded = w * a->load_s + (1 - w) * a->exec_s;
            double host = w * (contention ? a->read_s : 0) + (1 - w) * a->host_s;
            rests[i].at_least_s[k] =
                rests[i + 1].at_least_s[k] + (a->has_params && host < loaded ? host : loaded);
        }
    }
}

static bool can_beat(const struct layers_state *s, const struct rest *rest, double best_s)
{
    for (int k = 0; k < WEIGHTS; k++)
        if (weight_of(k) * s->loaded_s + (1 - weight_of(k)) * s->end_s + rest->at_least_s[k] >
            best_s)
            return false;
    return true;
}

static void state_keep(struct frontier *f, const struct layers_state *s, const struct rest *rest,
                       double best_s)
{
    if (f->n >= FRONTIER_LIMIT || (f->n > 0 && f->states[f->n - 1].loaded_s <= s->loaded_s))
        return; /* the one before ends no later and has loaded no later */
    if (can_beat(s, rest, best_s))
        f->states[f->n++] = *s;
}

static void states_expand(const struct layer *a, const struct frontier *from, bool contention,
                          const struct rest *rest, double best_s, struct frontier *to)
{
    struct layers_state loaded, host;
    int at_loaded = 0, at_host = 0;
    bool has_loaded = next_of(a, from, &at_loaded, false, contention, &loaded);
    bool has_host = a->has_params && next_of(a, from, &at_host, true, contention, &host);
    to->n = 0;
    while (has_loaded || has_host) {
        bool take_host =
            has_host && (!has_loaded || host.end_s < loaded.end_s ||
                         (host.end_s == loaded.end_s && host.loaded_s < loaded.loaded_s));
        if (take_host) {
            state_keep(to, &host, rest, best_s);
            has_host = next_of(a, from, &at_host, true, contention, &host);
        } else {
            state_keep(to, &loaded, rest, best_s);
            has_loaded = next_of(a, from, &at_loaded, false, contention, &loaded);
        }
    }
}

/* When these layers end on a bus that takes copies and reads in their order. */
static double finish_in_order(const struct layers *l, const bool *host, bool contention)
{
    struct layers_state s = {0};
    for (int i = 0; i < l->n; i++)
        s = state_step(&l->layer[i], &s, 0, host[i] && l->layer[i].has_params, contention);
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
static struct layers_state *states_shrink(const struct frontier *f)
{
    struct layers_state *s = malloc((size_t)(f->n ? f->n : 1) * sizeof *s);
    if (s)
        memcpy(s, f->states, (size_t)f->n * sizeof *s);
    return s;
}

/* Leaves `limit` states of a frontier, evenly spread, both ends among them. */
static void states_thin(struct frontier *f, int limit)
{
    if (f->n <= limit)
        return;
    for (int i = 0; i < limit; i++)
        f->states[i] = f->states[(long)i * (f->n - 1) / (limit - 1)];
    f->n = limit;
}

/* The choices that led to the first state of the last frontier. */
static void trace_back(const struct layers *l, const struct frontier *frontiers, bool *host)
{
    for (int i = l->n, at = 0; i > 0; i--) {
        const struct layers_state *s = &frontiers[i].states[at];
        host[i - 1] = s->host || !l->layer[i - 1].has_params;
        at = s->parent;
    }
}

/* One pass over the layers with frontiers of at most `limit` states: improves host and finish, and
 * says whether nothing was left out. */
static int layers_sweep(const struct layers *l, bool contention, const struct rest *rests,
                        int limit, bool *host, double *finish_s, bool *exact)
{
    struct frontier *frontiers = calloc((size_t)l->n + 1, sizeof *frontiers),
                    next = {malloc(FRONTIER_LIMIT * sizeof *next.states), 0};
    int rc = frontiers && next.states ? 0 : HP_ENOMEM, reached = 0;
    double to_beat_s = *finish_s * (1 + 1e-12);
    long total = 0;
    *exact = true;
    if (rc == 0)
        next.states[next.n++] = (struct layers_state){0};
    while (rc == 0) {
        *exact = *exact && next.n < limit;
        states_thin(&next, limit);
        frontiers[reached] = (struct frontier){states_shrink(&next), next.n};
        rc = frontiers[reached].states ? 0 : HP_ENOMEM;
        total += next.n;
        if (reached == l->n || next.n == 0 || total > STATES_LIMIT || rc < 0)
            break;
        states_expand(&l->layer[reached], &frontiers[reached], contention, &rests[reached + 1],
                      to_beat_s, &next);
        reached++;
    }
    *exact = *exact && total <= STATES_LIMIT;
    if (rc == 0 && reached == l->n && next.n > 0 && next.states[0].end_s < *finish_s) {
        *finish_s = next.states[0].end_s;
        trace_back(l, frontiers, host);
    }
    for (int i = 0; frontiers && i <= l->n; i++)
        free(frontiers[i].states);
    free(frontiers);
    free(next.states);
    return rc;
}

/* A first pass with thin frontiers finds a plan so good that the exact pass may leave out most of
 * its states. */
int layers_optimal(const struct layers *l, bool contention, bool *host, double *finish_s,
                   bool *exact)
{
    struct rest *rests = calloc((size_t)l->n + 1, sizeof *rests);
    int rc = rests ? first_guess(l, contention, host, finish_s) : HP_ENOMEM;
    if (rc == 0) {
        fill_rests(l, contention, rests);
        rc = layers_sweep(l, contention, rests, FIRST_LIMIT, host, finish_s, exact);
    }
    if (rc == 0 && !*exact)
        rc = layers_sweep(l, contention, rests, FRONTIER_LIMIT, host, finish_s, exact);
    free(rests);
    return rc;
}
