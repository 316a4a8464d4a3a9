#include "planners/coldstart/timing.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int timing_init(struct timing *t, const struct coldstart_problem *p, int copy_capacity,
                struct err *e)
{
    size_t n = (size_t)p->n_nodes, d = (size_t)p->n_devices, b = (size_t)p->n_buses,
           c = (size_t)copy_capacity + 1;
    *t = (struct timing){.problem = p, .copy_capacity = copy_capacity};
    struct arena *a = &t->arena;
    bool ok = (t->start_s = arena_alloc(a, n, sizeof(double))) &&
              (t->end_s = arena_alloc(a, n, sizeof(double))) &&
              (t->copy_end_s = arena_alloc(a, c, sizeof(double))) &&
              (t->nodes = arena_alloc(a, n, sizeof *t->nodes)) &&
              (t->fresh = arena_alloc(a, n, sizeof *t->fresh)) &&
              (t->next_on_bus = arena_alloc(a, c, sizeof(int))) &&
              (t->arrival_s = arena_alloc(a, n * d, sizeof(double))) &&
              (t->link_free_s = arena_alloc(a, d * d, sizeof(double))) &&
              (t->used_bytes = arena_alloc(a, d, sizeof(double))) &&
              (t->bus_free_s = arena_alloc(a, b, sizeof(double))) &&
              (t->bus_head = arena_alloc(a, b, sizeof(int))) &&
              (t->head = arena_alloc(a, d, sizeof(int))) &&
              (t->pending_s = arena_alloc(a, d, sizeof(double))) &&
              (t->free_s = arena_alloc(a, d, sizeof(double)));
    if (!ok) {
        timing_fini(t);
        return err_set(e, HP_ENOMEM, "out of memory: the graph has %d nodes", p->n_nodes);
    }
    for (int v = 0; v < p->n_nodes; v++)
        if (p->is_op[v]) {
            t->fresh[v].op.missing = p->op_inputs_at[v + 1] - p->op_inputs_at[v];
            t->fresh[v].op.read_end_s = -1;
        }
    return 0;
}

void timing_fini(struct timing *t)
{
    arena_free(&t->arena);
    *t = (struct timing){0};
}

static bool timing_set_fault(struct timing *t, enum timing_fault what, int node, int device,
                             int from)
{
    if (t->fault == TIMING_OK) {
        t->fault = what;
        t->fault_node = node;
        t->fault_device = device;
        t->fault_from = from;
    }
    return false;
}

static void timing_reset(struct timing *t)
{
    const struct coldstart_problem *p = t->problem;
    size_t n = (size_t)p->n_nodes, d = (size_t)p->n_devices;
    memcpy(t->nodes, t->fresh, n * sizeof *t->nodes);
    memset(t->link_free_s, 0, d * d * sizeof *t->link_free_s);
    memset(t->used_bytes, 0, d * sizeof *t->used_bytes);
    memset(t->bus_free_s, 0, (size_t)p->n_buses * sizeof *t->bus_free_s);
    memset(t->free_s, 0, d * sizeof *t->free_s);
    for (size_t i = 0; i < d; i++)
        t->head[i] = -1;
    t->fault = TIMING_OK;
    t->n_transfers = 0;
}

/* ---- buses: copies and reads follow each other without gaps ---- */

static bool run_copy(struct timing *t, const struct coldstart_plan *plan, int c)
{
    const struct coldstart_problem *p = t->problem;
    const struct coldstart_copy *copy = &plan->copies[c];
    int v = copy->node;
    if (copy->read) {
        int bus = p->bus_of[plan->device[v]];
        if (!plan->host[v])
            return timing_set_fault(t, TIMING_READ_RESIDENT, v, plan->device[v], 0);
        if (t->nodes[v].op.read_end_s >= 0)
            return timing_set_fault(t, TIMING_READ_TWICE, v, plan->device[v], 0);
        t->bus_free_s[bus] += p->read_s[(size_t)v * (size_t)p->n_buses + (size_t)bus];
        t->nodes[v].op.read_end_s = t->copy_end_s[c] = t->bus_free_s[bus];
        return true;
    }
    int bus = p->bus_of[copy->device];
    uint64_t bit = 1ull << copy->device;
    if (t->nodes[v].param.copied_to & bit)
        return timing_set_fault(t, TIMING_COPIED_TWICE, v, copy->device, 0);
    double end = t->bus_free_s[bus] += p->load_s[(size_t)v * (size_t)p->n_buses + (size_t)bus];
    if (!t->nodes[v].param.copied_to || end < t->copy_end_s[t->nodes[v].param.first_copy])
        t->nodes[v].param.first_copy = c;
    t->copy_end_s[c] = end;
    t->arrival_s[(size_t)v * (size_t)p->n_devices + (size_t)copy->device] = end;
    t->nodes[v].param.copied_to |= bit;
    t->used_bytes[copy->device] += p->bytes[v];
    return true;
}

/* Notes that a parameter must be forwarded to a device, unless it is noted already. */
static bool copy_forward(struct timing *t, const struct coldstart_plan *plan, int v, int device)
{
    const struct coldstart_problem *p = t->problem;
    uint64_t bit = 1ull << device;
    if (t->nodes[v].param.forwarded_to & bit)
        return true;
    int from = plan->copies[t->nodes[v].param.first_copy].device;
    if (p->peer_bytes_per_s[from * p->n_devices + device] <= 0)
        return timing_set_fault(t, TIMING_NO_PATH, v, device, from);
    t->nodes[v].param.forwarded_to |= bit;
    t->used_bytes[device] += p->bytes[v];
    return true;
}

static bool run_buses(struct timing *t, const struct coldstart_plan *plan)
{
    bool wished = false;
    for (int c = 0; c < plan->n_copies; c++) {
        if (!run_copy(t, plan, c))
            return false;
        wished = wished || plan->copies[c].to >= 0;
    }
    for (int c = 0; wished && c < plan->n_copies; c++) {
        const struct coldstart_copy *copy = &plan->copies[c];
        if (copy->to >= 0 && !copy->read &&
            !(t->nodes[copy->node].param.copied_to & 1ull << copy->to) &&
            !copy_forward(t, plan, copy->node, copy->to))
            return false;
    }
    return true;
}

/* ---- what each operator waits for ---- */

static bool await_params(struct timing *t, const struct coldstart_plan *plan, int v)
{
    const struct coldstart_problem *p = t->problem;
    int device = plan->device[v];
    for (int i = p->param_inputs_at[v]; i < p->param_inputs_at[v + 1]; i++) {
        int w = p->param_inputs[i];
        if (t->nodes[w].param.copied_to & 1ull << device) {
            double at = t->arrival_s[(size_t)w * (size_t)p->n_devices + (size_t)device];
            t->nodes[v].op.ready_s = at > t->nodes[v].op.ready_s ? at : t->nodes[v].op.ready_s;
        } else if (!t->nodes[w].param.copied_to) {
            return timing_set_fault(t, TIMING_NOT_COPIED, w, device, 0);
        } else {
            if (!copy_forward(t, plan, w, device))
                return false;
            t->nodes[v].op.missing++;
        }
    }
    return true;
}

static bool line_up(struct timing *t, const struct coldstart_plan *plan)
{
    const struct coldstart_problem *p = t->problem;
    for (int i = p->n_ops - 1; i >= 0; i--) {
        int v = plan->order[i], device = plan->device[v];
        t->nodes[v].op.next = t->head[device];
        t->nodes[v].op.device = (int8_t)device;
        t->nodes[v].op.host = plan->host[v];
        t->head[device] = v;
        if (!plan->host[v]) {
            if (!await_params(t, plan, v))
                return false;
        } else if (p->contention && p->reads[v] && t->nodes[v].op.read_end_s < 0) {
            return timing_set_fault(t, TIMING_READ_MISSING, v, device, 0);
        }
    }
    for (int d = 0; d < p->n_devices; d++)
        if (t->used_bytes[d] > p->memory_bytes[d])
            return timing_set_fault(t, TIMING_MEMORY, 0, d, 0);
    for (int b = 0; b < p->n_buses; b++)
        t->bus_head[b] = -1;
    for (int c = plan->n_copies - 1; c >= 0; c--) {
        const struct coldstart_copy *copy = &plan->copies[c];
        if (copy->read || !t->nodes[copy->node].param.forwarded_to ||
            t->nodes[copy->node].param.first_copy != c)
            continue;
        int bus = p->bus_of[copy->device];
        t->next_on_bus[c] = t->bus_head[bus];
        t->bus_head[bus] = c;
    }
    return true;
}

/* ---- events ---- */

/* Starts the device's next operator if it is known when all it waits for is there; else the device
 * stands idle. */
static void try_start(struct timing *t, int device)
{
    const struct coldstart_problem *p = t->problem;
    int v = t->head[device];
    if (v < 0 || t->nodes[v].op.missing > 0) {
        t->pending_s[device] = INFINITY;
        return;
    }
    const union timing_node *node = &t->nodes[v];
    double start = t->free_s[device] > node->op.ready_s ? t->free_s[device] : node->op.ready_s;
    size_t at = (size_t)v * (size_t)p->n_devices + (size_t)device;
    double end = start + (node->op.host ? p->host_exec_s[at] : p->exec_s[at]);
    t->start_s[v] = start;
    t->pending_s[device] = node->op.read_end_s > end ? node->op.read_end_s : end;
}

/* Sends a tensor over a link at `now`: when it arrives. */
static double copy_send(struct timing *t, int v, int from, int to, double now)
{
    const struct coldstart_problem *p = t->problem;
    int link = from * p->n_devices + to;
    double start = t->link_free_s[link] > now ? t->link_free_s[link] : now;
    double end = start + p->bytes[v] / p->peer_bytes_per_s[link];
    t->link_free_s[link] = end;
    if (t->record && t->n_transfers < t->transfer_capacity)
        t->transfers[t->n_transfers++] = (struct timing_transfer){v, from, to, start, end};
    return end;
}

/* An input of operator v is known to be there at `at`. `busy`: a device that is about to start its
 * next operator anyway. */
static void copy_arrive(struct timing *t, int v, double at, int busy)
{
    union timing_node *node = &t->nodes[v];
    int device = node->op.device;
    if (at > node->op.ready_s)
        node->op.ready_s = at;
    if (--node->op.missing == 0 && device != busy && t->head[device] == v &&
        t->pending_s[device] == (double)INFINITY)
        try_start(t, device);
}

static void copy_appears(struct timing *t, const struct coldstart_plan *plan, int c)
{
    const struct coldstart_problem *p = t->problem;
    int w = plan->copies[c].node, from = plan->copies[c].device;
    double now = t->copy_end_s[c], *arrival_s = &t->arrival_s[(size_t)w * (size_t)p->n_devices];
    uint64_t forwarded_to = t->nodes[w].param.forwarded_to;
    for (uint64_t left = forwarded_to; left; left &= left - 1) {
        int to = __builtin_ctzll(left);
        arrival_s[to] = copy_send(t, w, from, to, now);
    }
    for (int i = p->readers_at[w]; i < p->readers_at[w + 1]; i++) {
        int v = p->readers[i], device = t->nodes[v].op.device;
        if (!t->nodes[v].op.host && forwarded_to & 1ull << device)
            copy_arrive(t, v, arrival_s[device], -1);
    }
}

static bool operator_ends(struct timing *t, int device)
{
    const struct coldstart_problem *p = t->problem;
    int u = t->head[device], last = p->readers_at[u + 1];
    double now = t->pending_s[device], arrival_s[OPGRAPH_MAX_DEVICES];
    uint64_t sent = 0;
    t->end_s[u] = t->free_s[device] = now;
    t->head[device] = t->nodes[u].op.next;
    for (int i = p->readers_at[u]; i < last; i++) {
        int v = p->readers[i], to = t->nodes[v].op.device;
        double at = now;
        if (to != device) {
            if (!(sent & 1ull << to)) {
                if (p->peer_bytes_per_s[device * p->n_devices + to] <= 0)
                    return timing_set_fault(t, TIMING_NO_PATH, u, to, device);
                arrival_s[to] = copy_send(t, u, device, to, now);
                sent |= 1ull << to;
            }
            at = arrival_s[to];
        }
        copy_arrive(t, v, at, device);
    }
    try_start(t, device);
    return true;
}

/* Events in order of time; of those at one time, copies before operators, as the order on a link
 * asks. */
static bool run_events(struct timing *t, const struct coldstart_plan *plan)
{
    const struct coldstart_problem *p = t->problem;
    int left = p->n_ops;
    for (int d = 0; d < p->n_devices; d++)
        try_start(t, d);
    while (left > 0) {
        int bus = -1, device = -1;
        double next_copy = INFINITY, next_end = INFINITY;
        for (int b = 0; b < p->n_buses; b++)
            if (t->bus_head[b] >= 0 && t->copy_end_s[t->bus_head[b]] < next_copy)
                next_copy = t->copy_end_s[t->bus_head[bus = b]];
        for (int d = 0; d < p->n_devices; d++)
            if (t->pending_s[d] < next_end)
                next_end = t->pending_s[device = d];
        if (bus >= 0 && next_copy <= next_end) {
            int c = t->bus_head[bus];
            t->bus_head[bus] = t->next_on_bus[c];
            copy_appears(t, plan, c);
        } else if (device < 0) {
            for (int d = 0; d < p->n_devices; d++)
                device = t->head[d] >= 0 ? d : device;
            return timing_set_fault(t, TIMING_DEADLOCK, t->head[device], device, 0);
        } else {
            t->latency_s = next_end;
            if (!operator_ends(t, device))
                return false;
            left--;
        }
    }
    return true;
}

double timing_run(struct timing *t, const struct coldstart_plan *plan)
{
    assert(plan->n_copies <= t->copy_capacity);
    timing_reset(t);
    t->latency_s = INFINITY;
    if (t->record && !t->transfers) {
        t->transfer_capacity = t->problem->readers_at[t->problem->n_nodes] +
                               t->copy_capacity; /* one for a reader or a wish */
        t->transfers = arena_alloc(&t->arena, (size_t)t->transfer_capacity, sizeof *t->transfers);
        t->transfer_capacity = t->transfers ? t->transfer_capacity : 0;
    }
    if (!run_buses(t, plan) || !line_up(t, plan) || !run_events(t, plan))
        t->latency_s = INFINITY;
    return t->latency_s;
}

int timing_explain(const struct timing *t, struct err *e)
{
    const struct opgraph *g = t->problem->graph;
    int v = t->fault_node, d = t->fault_device;
    const char *name = g->nodes[v].name;
    switch (t->fault) {
    case TIMING_OK: break;
    case TIMING_DEADLOCK:
        return err_set(e, HP_EINFEASIBLE,
                       "the plan deadlocks: operator %d (\"%s\"), next on device %d, waits for one "
                       "that never runs",
                       v, name, d);
    case TIMING_MEMORY:
        return err_set(
            e, HP_EINFEASIBLE,
            "the plan puts %.0f bytes of parameters on device %d (\"%s\"), which holds %.0f",
            t->used_bytes[d], d, g->devices[d].name, g->devices[d].memory_bytes);
    case TIMING_NO_PATH:
        return err_set(e, HP_EINFEASIBLE,
                       "the plan moves node %d (\"%s\") from device %d to device %d, between which "
                       "there is no path",
                       v, name, t->fault_from, d);
    case TIMING_NOT_COPIED:
        return err_set(e, HP_EINFEASIBLE,
                       "the plan copies parameter %d (\"%s\") nowhere, but device %d needs it", v,
                       name, d);
    case TIMING_COPIED_TWICE:
        return err_set(e, HP_EINFEASIBLE,
                       "the plan copies parameter %d (\"%s\") twice to device %d", v, name, d);
    case TIMING_READ_MISSING:
        return err_set(
            e, HP_EINFEASIBLE,
            "operator %d (\"%s\") reads its parameters in place, but no bus has its read", v, name);
    case TIMING_READ_TWICE:
        return err_set(e, HP_EINFEASIBLE, "the plan has the read of operator %d (\"%s\") twice", v,
                       name);
    case TIMING_READ_RESIDENT:
        return err_set(
            e, HP_EINFEASIBLE,
            "the plan has a read of operator %d (\"%s\"), which does not run from host memory", v,
            name);
    }
    return 0;
}
