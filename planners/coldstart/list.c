#include "planners/coldstart/list.h"

#include <math.h>
#include <string.h>

#include "planners/coldstart/moves.h"

struct list_state {
    const struct coldstart_problem *p;
    struct coldstart_plan *plan;
    struct moves moves; /* for its gates */
    double *rank_s;     /* [node] of an operator: the longest way from its start to the end */
    double *end_s;      /* [node] */
    double *there_s; /* [node * n_devices + device] when a tensor is on a device; infinity: not on
                        its way */
    int *source; /* [node] the device where a parameter appears first; COLDSTART_NOWHERE: not copied
                  */
    double *bus_s, *link_s, *device_s, *used_bytes;
    double *try_bus_s, *try_link_s; /* the same, while one operator is tried on one device */
    int *missing, *heap, n_heap;
};

static int listing_init(struct list_state *s, const struct coldstart_problem *p, struct arena *a,
                        struct coldstart_plan *out)
{
    size_t n = (size_t)p->n_nodes, d = (size_t)p->n_devices, b = (size_t)p->n_buses;
    *s = (struct list_state){.p = p, .plan = out};
    s->rank_s = arena_alloc(a, n, sizeof(double));
    s->end_s = arena_alloc(a, n, sizeof(double));
    s->there_s = arena_alloc(a, n * d, sizeof(double));
    s->source = arena_alloc(a, n, sizeof(int));
    s->bus_s = arena_alloc(a, b, sizeof(double));
    s->link_s = arena_alloc(a, d * d, sizeof(double));
    s->device_s = arena_alloc(a, d, sizeof(double));
    s->used_bytes = arena_alloc(a, d, sizeof(double));
    s->try_bus_s = arena_alloc(a, b, sizeof(double));
    s->try_link_s = arena_alloc(a, d, sizeof(double));
    s->missing = arena_alloc(a, n, sizeof(int));
    s->heap = arena_alloc(a, n + 1, sizeof(int));
    if (!s->rank_s || !s->end_s || !s->there_s || !s->source || !s->bus_s || !s->link_s ||
        !s->device_s || !s->used_bytes || !s->try_bus_s || !s->try_link_s || !s->missing ||
        !s->heap)
        return HP_ENOMEM;
    for (size_t i = 0; i < n * d; i++)
        s->there_s[i] = INFINITY;
    for (size_t v = 0; v < n; v++)
        s->source[v] = COLDSTART_NOWHERE;
    return moves_init(&s->moves, p, 0);
}

static void fill_ranks(struct list_state *s)
{
    const struct coldstart_problem *p = s->p;
    for (int i = p->n_ops - 1; i >= 0; i--) {
        int v = p->topological[i];
        double after = 0, mean = 0;
        for (int k = p->readers_at[v]; k < p->readers_at[v + 1]; k++)
            after = fmax(after, s->rank_s[p->readers[k]]);
        for (int d = 0; d < p->n_devices; d++)
            mean += p->exec_s[v * p->n_devices + d] / p->n_devices;
        s->rank_s[v] = mean + after;
    }
}

/* ---- operators that are ready, the highest rank first, the lower index where ranks are equal ----
 */

static bool goes_before(const struct list_state *s, int u, int v)
{
    return s->rank_s[u] != s->rank_s[v] ? s->rank_s[u] > s->rank_s[v] : u < v;
}

static void ready_push(struct list_state *s, int v)
{
    int i = s->n_heap++;
    for (; i > 0 && goes_before(s, v, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = v;
}

static int ready_pop(struct list_state *s)
{
    int top = s->heap[0], last = s->heap[--s->n_heap], i = 0;
    for (int child = 1; child < s->n_heap; child = 2 * i + 1) {
        if (child + 1 < s->n_heap && goes_before(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (!goes_before(s, s->heap[child], last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* ---- one operator on one device ---- */

/* When a tensor that is on `from` at `ready` reaches `to`; the link is taken in `try_link_s`. */
static double copy_crossing(struct list_state *s, int node, int from, int to, double ready)
{
    const struct coldstart_problem *p = s->p;
    double speed = p->peer_bytes_per_s[from * p->n_devices + to];
    if (from == to)
        return ready;
    if (speed <= 0)
        return INFINITY;
    return s->try_link_s[from] = fmax(s->try_link_s[from], ready) + p->bytes[node] / speed;
}

static double inputs_there(struct list_state *s, int v, int device)
{
    const struct coldstart_problem *p = s->p;
    double latest = 0;
    for (int k = p->op_inputs_at[v]; k < p->op_inputs_at[v + 1]; k++) {
        int u = p->op_inputs[k];
        double at = s->there_s[u * p->n_devices + device];
        if (at == (double)INFINITY)
            at = copy_crossing(s, u, s->plan->device[u], device, s->end_s[u]);
        latest = fmax(latest, at);
    }
    return latest;
}

/* A parameter not copied yet, over the bus that brings it soonest: its gate on that bus through
 * `gate`. */
static double load_soonest(struct list_state *s, int w, int device, int *gate)
{
    const struct coldstart_problem *p = s->p;
    double best = INFINITY;
    int best_bus = -1;
    for (int b = 0; b < p->n_buses; b++) {
        int g = moves_gate(&s->moves, b, device);
        if (g == COLDSTART_NOWHERE ||
            (g != device && s->used_bytes[g] + p->bytes[w] > p->memory_bytes[g]))
            continue;
        double at = s->try_bus_s[b] + p->load_s[w * p->n_buses + b];
        if (g != device)
            at = fmax(at, s->try_link_s[g]) +
                 p->bytes[w] / p->peer_bytes_per_s[g * p->n_devices + device];
        if (at < best || (at == best && b == p->bus_of[device])) {
            best = at;
            best_bus = b;
        }
    }
    if (best_bus < 0)
        return INFINITY;
    *gate = moves_gate(&s->moves, best_bus, device);
    s->try_bus_s[best_bus] += p->load_s[w * p->n_buses + best_bus];
    if (*gate != device)
        s->try_link_s[*gate] = best;
    return best;
}

static void load_try_state(struct list_state *s, int device)
{
    memcpy(s->try_bus_s, s->bus_s, (size_t)s->p->n_buses * sizeof *s->bus_s);
    for (int d = 0; d < s->p->n_devices; d++)
        s->try_link_s[d] = s->link_s[d * s->p->n_devices + device];
}

/* Where a parameter is when a resident operator on `device` needs it; with `commit`, makes it so.
 */
static double param_there(struct list_state *s, int w, int device, double *bytes, bool commit)
{
    const struct coldstart_problem *p = s->p;
    double at = s->there_s[w * p->n_devices + device];
    int gate = s->source[w];
    if (at < (double)INFINITY)
        return at;
    *bytes += p->bytes[w];
    if (gate != COLDSTART_NOWHERE) {
        at = copy_crossing(s, w, gate, device, s->there_s[w * p->n_devices + gate]);
        if (at == (double)INFINITY && commit)
            coldstart_plan_add(s->plan, w, device,
                               false); /* no path from there: over its own bus */
        if (at == (double)INFINITY) {
            int bus = p->bus_of[device];
            at = s->try_bus_s[bus] += p->load_s[w * p->n_buses + bus];
        }
    } else {
        at = load_soonest(s, w, device, &gate);
        if (commit && gate != COLDSTART_NOWHERE) {
            coldstart_plan_add(s->plan, w, gate, false);
            s->source[w] = gate;
            s->there_s[w * p->n_devices + gate] = s->try_bus_s[p->bus_of[gate]];
            s->used_bytes[gate] += gate != device ? p->bytes[w] : 0;
        }
    }
    if (commit)
        s->there_s[w * p->n_devices + device] = at;
    return at;
}

static double end_resident(struct list_state *s, int v, int device, bool commit)
{
    const struct coldstart_problem *p = s->p;
    load_try_state(s, device);
    double start = fmax(s->device_s[device], inputs_there(s, v, device)), bytes = 0;
    for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++)
        start = fmax(start, param_there(s, p->param_inputs[k], device, &bytes, commit));
    if (s->used_bytes[device] + bytes > p->memory_bytes[device])
        return INFINITY;
    if (commit)
        s->used_bytes[device] += bytes;
    return start + p->exec_s[v * p->n_devices + device];
}

static double end_in_place(struct list_state *s, int v, int device, bool commit)
{
    const struct coldstart_problem *p = s->p;
    int bus = p->bus_of[device];
    load_try_state(s, device);
    double start = fmax(s->device_s[device], inputs_there(s, v, device));
    double end = start + p->host_exec_s[v * p->n_devices + device];
    if (p->contention && p->reads[v]) {
        s->try_bus_s[bus] += p->read_s[v * p->n_buses + bus];
        end = fmax(end, s->try_bus_s[bus]);
        if (commit)
            coldstart_plan_add(s->plan, v, device, true);
    }
    return end;
}

static void commit_op(struct list_state *s, int v, int device, bool host)
{
    const struct coldstart_problem *p = s->p;
    double end = host ? end_in_place(s, v, device, true) : end_resident(s, v, device, true);
    memcpy(s->bus_s, s->try_bus_s, (size_t)p->n_buses * sizeof *s->bus_s);
    for (int d = 0; d < p->n_devices; d++)
        s->link_s[d * p->n_devices + device] = s->try_link_s[d];
    /* What inputs_there sent is on this device from now on; that it is there by the start is enough
     * to know. */
    for (int k = p->op_inputs_at[v]; k < p->op_inputs_at[v + 1]; k++) {
        double *there = &s->there_s[p->op_inputs[k] * p->n_devices + device];
        *there = fmin(*there, end);
    }
    s->plan->device[v] = (int8_t)device;
    s->plan->host[v] = host;
    s->end_s[v] = s->device_s[device] = end;
    s->there_s[v * p->n_devices + device] = end;
}

static int place_op(struct list_state *s, int v)
{
    const struct coldstart_problem *p = s->p;
    double best = INFINITY;
    int best_device = -1;
    bool best_host = false;
    for (int d = 0; d < p->n_devices; d++) {
        double resident = end_resident(s, v, d, false);
        double host = coldstart_has_params(p, v) ? end_in_place(s, v, d, false) : INFINITY;
        if (fmin(resident, host) < best) {
            best = fmin(resident, host);
            best_device = d;
            best_host = host < resident;
        }
    }
    if (best_device < 0)
        return HP_EINFEASIBLE;
    commit_op(s, v, best_device, best_host);
    return 0;
}

int list_schedule(const struct coldstart_problem *p, struct coldstart_plan *out)
{
    struct arena arena = {0};
    struct list_state s;
    int rc = listing_init(&s, p, &arena, out), n = 0;
    if (rc == 0) {
        fill_ranks(&s);
        out->n_copies = 0;
        for (int i = 0; i < p->n_ops; i++) {
            int v = p->topological[i];
            s.missing[v] = p->op_inputs_at[v + 1] - p->op_inputs_at[v];
            if (s.missing[v] == 0)
                ready_push(&s, v);
        }
    }
    while (rc == 0 && s.n_heap > 0) {
        int v = ready_pop(&s);
        out->order[n++] = v;
        rc = place_op(&s, v);
        for (int k = p->readers_at[v]; k < p->readers_at[v + 1]; k++)
            if (--s.missing[p->readers[k]] == 0)
                ready_push(&s, p->readers[k]);
    }
    moves_fini(&s.moves);
    arena_free(&arena);
    return rc;
}
