#include "planners/coldstart/moves.h"

#include <math.h>
#include <string.h>

int moves_init(struct moves *m, const struct coldstart_problem *p, int copy_capacity)
{
    size_t n = (size_t)p->n_nodes, d = (size_t)p->n_devices, b = (size_t)p->n_buses;
    *m = (struct moves){.p = p};
    m->gates = arena_alloc(&m->arena, d * b, sizeof *m->gates);
    m->stamp = arena_alloc(&m->arena, n, sizeof *m->stamp);
    m->reader_device = arena_alloc(&m->arena, n, sizeof *m->reader_device);
    m->scratch = arena_alloc(&m->arena, (size_t)copy_capacity + 1, sizeof *m->scratch);
    m->bus_s = arena_alloc(&m->arena, b, sizeof *m->bus_s);
    m->link_s = arena_alloc(&m->arena, d * d, sizeof *m->link_s);
    if (!m->gates || !m->stamp || !m->reader_device || !m->scratch || !m->bus_s || !m->link_s) {
        moves_fini(m);
        return HP_ENOMEM;
    }
    for (int device = 0; device < p->n_devices; device++) {
        for (int bus = 0; bus < p->n_buses; bus++) {
            int best = COLDSTART_NOWHERE;
            double speed = 0;
            for (int g = 0; g < p->n_devices; g++)
                if (p->bus_of[g] == bus && p->peer_bytes_per_s[g * p->n_devices + device] > speed) {
                    best = g;
                    speed = p->peer_bytes_per_s[g * p->n_devices + device];
                }
            m->gates[bus * p->n_devices + device] = p->bus_of[device] == bus ? device : best;
        }
    }
    return 0;
}

void moves_fini(struct moves *m)
{
    arena_free(&m->arena);
    *m = (struct moves){0};
}

/* ---- laying out all copies ---- */

static double load_on(const struct coldstart_problem *p, int w, int bus)
{
    return p->load_s[w * p->n_buses + bus];
}

/* When a parameter would be on `device` over `bus`, by what buses and links carry so far. */
static double copy_arrival(const struct moves *m, int w, int bus, int device)
{
    const struct coldstart_problem *p = m->p;
    int gate = moves_gate(m, bus, device), link = gate * p->n_devices + device;
    double at = m->bus_s[bus] + load_on(p, w, bus);
    if (gate != device)
        at = fmax(at, m->link_s[link]) + p->bytes[w] / p->peer_bytes_per_s[link];
    return at;
}

static int choose_bus(struct moves *m, int w, int device, enum moves_rule rule)
{
    const struct coldstart_problem *p = m->p;
    int best = p->bus_of[device];
    double best_key =
        rule == MOVES_FIRST_ARRIVAL ? copy_arrival(m, w, best, device) : m->bus_s[best];
    for (int b = 0; b < p->n_buses && rule != MOVES_OWN_BUS; b++) {
        if (moves_gate(m, b, device) == COLDSTART_NOWHERE)
            continue;
        double key = rule == MOVES_FIRST_ARRIVAL ? copy_arrival(m, w, b, device) : m->bus_s[b];
        if (key < best_key) {
            best = b;
            best_key = key;
        }
    }
    int gate = moves_gate(m, best, device);
    if (gate != device)
        m->link_s[gate * p->n_devices + device] = copy_arrival(m, w, best, device);
    m->bus_s[best] += load_on(p, w, best);
    return gate;
}

/* All copies with their reader's device for a landing place, in the order of use. */
static void list_copies(struct moves *m, struct coldstart_plan *plan)
{
    const struct coldstart_problem *p = m->p;
    plan->n_copies = 0;
    m->now++;
    for (int i = 0; i < p->n_ops; i++) {
        int v = plan->order[i];
        if (plan->host[v]) {
            if (p->contention && p->reads[v])
                coldstart_plan_add(plan, v, plan->device[v], true);
            continue;
        }
        for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++) {
            int w = p->param_inputs[k];
            if (m->stamp[w] != m->now)
                coldstart_plan_add(plan, w, plan->device[v], false);
            m->stamp[w] = m->now;
        }
    }
}

/* Copies in their present order, each once, with its first resident reader's device for a landing
 * place. */
static void aim_copies(struct moves *m, struct coldstart_plan *plan)
{
    const struct coldstart_problem *p = m->p;
    int n = 0;
    m->now++;
    for (int c = 0; c < plan->n_copies; c++) {
        struct coldstart_copy copy = plan->copies[c];
        if (m->stamp[copy.node] == m->now)
            continue;
        m->stamp[copy.node] = m->now;
        for (int k = p->readers_at[copy.node]; k < p->readers_at[copy.node + 1] && !copy.read; k++)
            if (!plan->host[p->readers[k]]) {
                copy.device = plan->device[p->readers[k]];
                break;
            }
        plan->copies[n++] = copy;
    }
    plan->n_copies = n;
}

void moves_lay_copies(struct moves *m, struct coldstart_plan *plan, enum moves_rule rule,
                      bool in_order_of_use)
{
    const struct coldstart_problem *p = m->p;
    memset(m->bus_s, 0, (size_t)p->n_buses * sizeof *m->bus_s);
    memset(m->link_s, 0, (size_t)(p->n_devices * p->n_devices) * sizeof *m->link_s);
    if (in_order_of_use)
        list_copies(m, plan);
    else
        aim_copies(m, plan);
    for (int i = 0; i < plan->n_copies; i++) {
        struct coldstart_copy *c =
            &plan->copies[rule == MOVES_FROM_THE_END ? plan->n_copies - 1 - i : i];
        int bus = p->bus_of[c->device];
        if (c->read)
            m->bus_s[bus] += p->read_s[c->node * p->n_buses + bus];
        else
            c->device = (int8_t)choose_bus(m, c->node, c->device, rule);
    }
}

/* ---- devices ---- */

/* Stamps operators and, through `reader_device`, says for which device each parameter that they
 * read is meant. */
static void stamp_ops(struct moves *m, const struct coldstart_plan *plan, const int *ops, int n)
{
    const struct coldstart_problem *p = m->p;
    m->now++;
    for (int i = 0; i < n; i++) {
        int v = ops[i];
        m->stamp[v] = m->now;
        for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++) {
            m->stamp[p->param_inputs[k]] = m->now;
            m->reader_device[p->param_inputs[k]] = plan->device[v];
        }
    }
}

void moves_set_device(struct moves *m, struct coldstart_plan *plan, const int *ops, int n,
                      int device, bool keep_bus)
{
    const struct coldstart_problem *p = m->p;
    for (int i = 0; i < n; i++)
        plan->device[ops[i]] = (int8_t)device;
    stamp_ops(m, plan, ops, n);
    for (int c = 0; c < plan->n_copies; c++) {
        struct coldstart_copy *copy = &plan->copies[c];
        if (m->stamp[copy->node] != m->now)
            continue;
        if (copy->read) {
            copy->device = (int8_t)device;
            continue;
        }
        int bus = keep_bus ? p->bus_of[copy->device] : p->bus_of[device],
            gate = moves_gate(m, bus, device);
        copy->device = (int8_t)(gate == COLDSTART_NOWHERE ? device : gate);
    }
}

/* ---- host memory ---- */

static bool has_resident_reader(const struct coldstart_problem *p,
                                const struct coldstart_plan *plan, int w)
{
    for (int k = p->readers_at[w]; k < p->readers_at[w + 1]; k++)
        if (!plan->host[p->readers[k]])
            return true;
    return false;
}

/* Copies of parameters that nobody reads any more become the read of the operator that read them
 * last. */
static int replace_by_reads(struct moves *m, const struct coldstart_plan *plan)
{
    const struct coldstart_problem *p = m->p;
    int n = 0;
    for (int c = 0; c < plan->n_copies; c++) {
        const struct coldstart_copy *copy = &plan->copies[c];
        if (copy->read || m->stamp[copy->node] != m->now) {
            m->scratch[n++] = *copy;
            continue;
        }
        if (has_resident_reader(p, plan, copy->node))
            m->scratch[n++] = *copy;
        for (int k = p->readers_at[copy->node]; k < p->readers_at[copy->node + 1]; k++) {
            int v = p->readers[k];
            if (m->stamp[v] != m->now || !plan->host[v])
                continue;
            m->stamp[v] = 0; /* its read is placed, or it needs none */
            if (p->contention && p->reads[v])
                m->scratch[n++] =
                    (struct coldstart_copy){v, plan->device[v], COLDSTART_NOWHERE, true};
        }
    }
    return n;
}

static void copy_missing_params(struct moves *m, const struct coldstart_plan *plan, int v, int bus,
                                int *n)
{
    const struct coldstart_problem *p = m->p;
    int device = plan->device[v], gate = moves_gate(m, bus < 0 ? p->bus_of[device] : bus, device);
    for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++) {
        int w = p->param_inputs[k];
        if (m->stamp[w] != m->now)
            continue; /* copied already */
        m->stamp[w] = 0;
        m->scratch[(*n)++] = (struct coldstart_copy){
            w, (int8_t)(gate == COLDSTART_NOWHERE ? device : gate), COLDSTART_NOWHERE, false};
    }
}

/* Reads become copies of what is not copied yet. Where reads take no time and so are in no list,
 * copies go first; what is still missing afterwards goes last. */
static int replace_by_copies(struct moves *m, struct coldstart_plan *plan, const int *ops,
                             int n_ops, int bus)
{
    const struct coldstart_problem *p = m->p;
    int n = 0;
    for (int c = 0; c < plan->n_copies; c++)
        if (!plan->copies[c].read)
            m->stamp[plan->copies[c].node] = 0;
    if (!p->contention)
        for (int i = 0; i < n_ops; i++)
            copy_missing_params(m, plan, ops[i], bus, &n);
    for (int c = 0; c < plan->n_copies; c++) {
        const struct coldstart_copy *copy = &plan->copies[c];
        if (copy->read && m->stamp[copy->node] == m->now)
            copy_missing_params(m, plan, copy->node, bus, &n);
        else
            m->scratch[n++] = *copy;
    }
    for (int i = 0; i < n_ops; i++)
        copy_missing_params(m, plan, ops[i], bus, &n);
    return n;
}

void moves_set_host(struct moves *m, struct coldstart_plan *plan, const int *ops, int n, bool host,
                    int bus)
{
    for (int i = 0; i < n; i++)
        plan->host[ops[i]] = host;
    stamp_ops(m, plan, ops, n);
    int copies = host ? replace_by_reads(m, plan) : replace_by_copies(m, plan, ops, n, bus);
    memcpy(plan->copies, m->scratch, (size_t)copies * sizeof *plan->copies);
    plan->n_copies = copies;
}

/* ---- buses and places ---- */

void moves_set_bus(struct moves *m, struct coldstart_plan *plan, const int *params, int n, int bus)
{
    const struct coldstart_problem *p = m->p;
    m->now++;
    for (int i = 0; i < n; i++) {
        int w = params[i];
        m->stamp[w] = m->now;
        m->reader_device[w] = COLDSTART_NOWHERE;
        for (int k = p->readers_at[w]; k < p->readers_at[w + 1] && m->reader_device[w] < 0; k++)
            if (!plan->host[p->readers[k]])
                m->reader_device[w] = plan->device[p->readers[k]];
    }
    for (int c = 0; c < plan->n_copies; c++) {
        struct coldstart_copy *copy = &plan->copies[c];
        if (copy->read || m->stamp[copy->node] != m->now || m->reader_device[copy->node] < 0)
            continue;
        int gate = moves_gate(m, bus, m->reader_device[copy->node]);
        if (gate != COLDSTART_NOWHERE)
            copy->device = (int8_t)gate;
    }
}

static bool reads_output(const struct coldstart_problem *p, int reader, int of)
{
    for (int k = p->op_inputs_at[reader]; k < p->op_inputs_at[reader + 1]; k++)
        if (p->op_inputs[k] == of)
            return true;
    return false;
}

/* How far operator `index` may move before it meets an input or a reader, and at most past `places`
 * of its device. */
static int shift_target(const struct coldstart_problem *p, const struct coldstart_plan *plan,
                        int index, int places, bool earlier)
{
    int v = plan->order[index], step = earlier ? -1 : 1, target = index;
    for (int i = index + step; i >= 0 && i < p->n_ops && places > 0; i += step) {
        int u = plan->order[i];
        if (earlier ? reads_output(p, v, u) : reads_output(p, u, v))
            break;
        if (plan->device[u] == plan->device[v]) {
            target = i;
            places--;
        }
    }
    return target;
}

bool moves_shift_op(const struct moves *m, struct coldstart_plan *plan, int index, int places,
                    bool earlier)
{
    int target = shift_target(m->p, plan, index, places, earlier), v = plan->order[index];
    if (target == index)
        return false;
    if (target < index)
        memmove(plan->order + target + 1, plan->order + target,
                (size_t)(index - target) * sizeof *plan->order);
    else
        memmove(plan->order + index, plan->order + index + 1,
                (size_t)(target - index) * sizeof *plan->order);
    plan->order[target] = v;
    return true;
}

void moves_shift_copy(struct coldstart_plan *plan, int from, int to)
{
    struct coldstart_copy c = plan->copies[from];
    if (to < from)
        memmove(plan->copies + to + 1, plan->copies + to, (size_t)(from - to) * sizeof c);
    else
        memmove(plan->copies + from, plan->copies + from + 1, (size_t)(to - from) * sizeof c);
    plan->copies[to] = c;
}
