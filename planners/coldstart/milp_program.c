#include "planners/coldstart/milp_program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Times in the programme are milliseconds, so that coefficients lie near 1. */
static const double MS = 1e3;

/* Columns stand in one fixed order, so that building and reading agree without a table. J: slots in
 * all; K: devices. */
struct columns {
    int n, slots, devices, first_x, first_z, first_edge_in, first_copy_in, first_node_fin,
        first_place, first_dt_fin, first_sg_start, first_sg_fin, first_rank, total;
};

static struct columns number_columns(const struct milp_sub_model *m)
{
    int j = m->p->n_devices * m->slots, n = m->n_nodes, at = 0;
    struct columns c = {.n = n, .slots = j, .devices = m->p->n_devices};
    c.first_x = at, at += n * (j + 1);
    c.first_z = at, at += n * j;
    c.first_edge_in = at, at += n * j;
    c.first_copy_in = at, at += n * c.devices * j;
    c.first_node_fin = at, at += n;
    c.first_place = at, at += n;
    c.first_dt_fin = at, at += j;
    c.first_sg_start = at, at += j;
    c.first_sg_fin = at, at += j;
    c.first_rank = at, at += j;
    c.total = at;
    return c;
}

/* Slots count from 1, as in the paper; x also has slot 0, host memory. */
static int x_of(const struct columns *c, int v, int slot)
{
    return c->first_x + v * (c->slots + 1) + slot;
}
static int z_of(const struct columns *c, int v, int slot)
{
    return c->first_z + v * c->slots + slot - 1;
}
static int edge_in_of(const struct columns *c, int v, int slot)
{
    return c->first_edge_in + v * c->slots + slot - 1;
}
static int copy_in_of(const struct columns *c, int v, int from, int slot)
{
    return c->first_copy_in + (v * c->devices + from) * c->slots + slot - 1;
}
static int slot_column(int first, int slot)
{
    return first + slot - 1;
}

struct builder {
    const struct milp_sub_model *m;
    const struct milp_state *before;
    struct lp_program *lp;
    struct columns c;
    double big;       /* H of the paper: no time exceeds it */
    bool *has_reader; /* [local node] */
    bool failed;
    struct err *e;
};

/* ---- columns
 * ----------------------------------------------------------------------------------------------------
 */

static void column(struct builder *b, double objective, double lower, double upper, bool integer,
                   const char *fmt, int i, int j, int k)
{
    char name[32];
    snprintf(name, sizeof name, fmt, i, j, k);
    b->failed = lp_column_add(b->lp, name, objective, lower, upper, integer, b->e) < 0 || b->failed;
}

/* Equations 3 and 4 are bounds of x: placeholders stay in the first slot of their device, operators
 * never lie in host memory. */
static void add_places(struct builder *b)
{
    const struct milp_sub_model *m = b->m;
    for (int v = 0; v < m->n_nodes; v++) {
        const struct milp_node *node = &m->nodes[v];
        int fixed =
            node->fixed_device == COLDSTART_NOWHERE ? -1 : node->fixed_device * m->slots + 1;
        for (int j = 0; j <= b->c.slots; j++) {
            double upper = (fixed >= 0 && j != fixed) || (j == 0 && node->is_op) ? 0 : 1;
            column(b, 0, j == fixed ? 1 : 0, upper, true, "x_%d_%d", v, j, 0);
        }
    }
}

static void add_columns(struct builder *b)
{
    const struct columns *c = &b->c;
    const struct coldstart_problem *p = b->m->p;
    add_places(b);
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots; j++)
            column(b, 0, 0, 1, false, "z_%d_%d", v, j, 0);
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots; j++)
            column(b, 0, 0, 1, false, "EdgeIn_%d_%d", v, j, 0);
    for (int v = 0; v < c->n; v++)
        for (int i = 0; i < c->devices; i++)
            for (int j = 1; j <= c->slots; j++) {
                int to = milp_slot_device(b->m->slots, j);
                bool path = i == to || p->peer_bytes_per_s[i * p->n_devices + to] > 0;
                column(b, 0, 0, path ? 1 : 0, false, "CopyIn_%d_%d_%d", v, i + 1, j);
            }
    for (int v = 0; v < c->n; v++)
        column(b, 0, 0, INFINITY, false, "NodeFin_%d", v, 0, 0);
    for (int v = 0; v < c->n; v++)
        column(b, 0, 0, c->slots, false, "Place_%d", v, 0, 0);
    for (int j = 1; j <= c->slots; j++)
        column(b, 0, 0, INFINITY, false, "DTFin_%d", j, 0, 0);
    for (int j = 1; j <= c->slots; j++)
        column(b, 0, 0, INFINITY, false, "SGStart_%d", j, 0, 0);
    for (int j = 1; j <= c->slots; j++)
        column(b, 0, 0, INFINITY, false, "SGFin_%d", j, 0, 0);
    for (int j = 1; j <= c->slots; j++)
        column(b, 0, 0, c->slots, false, "Rank_%d", j, 0, 0);
    column(b, 1, 0, INFINITY, false, "TotalLatency", 0, 0, 0);
}

/* ---- rows
 * ---------------------------------------------------------------------------------------------------------
 */

static int row(struct builder *b, enum lp_sense sense, double right)
{
    int r = lp_row_add(b->lp, NULL, sense, right, b->e);
    b->failed = b->failed || r < 0;
    return r;
}

static void term(struct builder *b, int r, int col, double coefficient)
{
    if (!b->failed && coefficient != 0)
        b->failed = lp_term_add(b->lp, r, col, coefficient, b->e) < 0;
}

/* 2: every node in one slot. 5: parameters lie in host memory when their operator runs from there.
 */
static void add_assignment(struct builder *b)
{
    const struct columns *c = &b->c;
    for (int v = 0; v < c->n; v++) {
        int r = row(b, LP_EQUAL, 1);
        for (int j = 0; j <= c->slots; j++)
            term(b, r, x_of(c, v, j), 1);
    }
    for (int k = 0; k < b->m->n_edges; k++) {
        int w = b->m->edges[k][0], v = b->m->edges[k][1];
        if (b->m->nodes[w].is_op)
            continue;
        int r = row(b, LP_EQUAL, 0);
        term(b, r, x_of(c, w, 0), 1);
        for (int j = 1; j <= c->slots; j += 2)
            term(b, r, x_of(c, v, j), -1);
    }
}

/* 6 to 8: slots are contiguous. 9: which slots an edge enters. */
static void add_contiguity(struct builder *b)
{
    const struct columns *c = &b->c;
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots; j++) {
            int r = row(b, LP_AT_LEAST, 0);
            term(b, r, z_of(c, v, j), 1);
            term(b, r, x_of(c, v, j), -1);
        }
    for (int k = 0; k < b->m->n_edges; k++) {
        int u = b->m->edges[k][0], v = b->m->edges[k][1];
        for (int j = 1; j <= c->slots; j++) {
            int r = row(b, LP_AT_LEAST, 0);
            term(b, r, z_of(c, u, j), 1);
            term(b, r, z_of(c, v, j), -1);
            r = row(b, LP_AT_MOST, 1);
            term(b, r, z_of(c, v, j), 1);
            term(b, r, x_of(c, v, j), -1);
            term(b, r, x_of(c, u, j), 1);
            r = row(b, LP_AT_LEAST, 0);
            term(b, r, edge_in_of(c, u, j), 1);
            term(b, r, x_of(c, v, j), -1);
            term(b, r, x_of(c, u, j), 1);
        }
    }
}

/* Not published: an order of the slots in which every edge between two of them leads onwards, so
 * that none waits for itself. */
static void add_order(struct builder *b)
{
    const struct columns *c = &b->c;
    double all = c->slots + 1;
    for (int j = 2; j <= c->slots; j++) {
        if ((j - 1) % b->m->slots == 0)
            continue;
        int r = row(b, LP_AT_LEAST, 1);
        term(b, r, slot_column(c->first_rank, j), 1);
        term(b, r, slot_column(c->first_rank, j - 1), -1);
    }
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots && b->m->nodes[v].is_op; j++) {
            int r = row(b, LP_AT_MOST, all); /* Place <= Rank + all (1 - x), and the reverse */
            term(b, r, c->first_place + v, 1);
            term(b, r, slot_column(c->first_rank, j), -1);
            term(b, r, x_of(c, v, j), all);
            r = row(b, LP_AT_LEAST, -all);
            term(b, r, c->first_place + v, 1);
            term(b, r, slot_column(c->first_rank, j), -1);
            term(b, r, x_of(c, v, j), -all);
        }
    for (int k = 0; k < b->m->n_edges; k++) {
        int u = b->m->edges[k][0], v = b->m->edges[k][1];
        for (int j = 1; j <= c->slots && b->m->nodes[u].is_op; j++) {
            int r =
                row(b, LP_AT_LEAST, 1 - all); /* in another slot than u: at least one place later */
            term(b, r, c->first_place + v, 1);
            term(b, r, c->first_place + u, -1);
            term(b, r, x_of(c, v, j), -all);
            term(b, r, x_of(c, u, j), all);
        }
    }
}

/* 10: which tensors cross from which device into which slot. */
static void add_crossings(struct builder *b)
{
    const struct columns *c = &b->c;
    for (int v = 0; v < c->n; v++)
        for (int i = 0; i < c->devices && b->has_reader[v]; i++)
            for (int j = 1; j <= c->slots; j++) {
                int r = row(b, LP_AT_LEAST, -1);
                term(b, r, copy_in_of(c, v, i, j), 1);
                term(b, r, edge_in_of(c, v, j), -1);
                for (int k = 1; k <= b->m->slots; k++)
                    term(b, r, x_of(c, v, i * b->m->slots + k), -1);
            }
}

/* 11: parameters copied or forwarded to a device; outputs are not counted. In units of the device's
 * memory. */
static void add_memory(struct builder *b)
{
    const struct columns *c = &b->c;
    const struct coldstart_problem *p = b->m->p;
    for (int i = 0; i < c->devices; i++) {
        double memory = fmax(p->memory_bytes[i], 1);
        int r = row(b, LP_AT_MOST, (memory - b->before->used_bytes[i]) / memory);
        for (int v = 0; v < c->n; v++) {
            double share = p->bytes[b->m->nodes[v].node] / memory;
            for (int j = i * b->m->slots + 1; j <= (i + 1) * b->m->slots && !b->m->nodes[v].is_op;
                 j++) {
                if (b->m->nodes[v].fixed_device == COLDSTART_NOWHERE)
                    term(b, r, x_of(c, v, j), share);
                for (int from = 0; from < c->devices; from++)
                    if (from != i)
                        term(b, r, copy_in_of(c, v, from, j), share);
            }
        }
    }
}

/* 12 to 14, and 16: slots of a bus load one after the other, devices in turn. */
static void add_loads(struct builder *b)
{
    const struct columns *c = &b->c;
    const struct coldstart_problem *p = b->m->p;
    for (int bus = 0; bus < p->n_buses; bus++) {
        int last = -1;
        for (int k = 0, j; (j = milp_bus_slot(p, b->m->slots, bus, k)) > 0; k++, last = j) {
            int r = row(b, LP_EQUAL, last < 0 ? b->before->bus_free_s[bus] * MS : 0);
            term(b, r, slot_column(c->first_dt_fin, j), 1);
            if (last > 0)
                term(b, r, slot_column(c->first_dt_fin, last), -1);
            for (int w = 0; w < c->n; w++)
                if (!b->m->nodes[w].is_op && b->m->nodes[w].fixed_device == COLDSTART_NOWHERE)
                    term(b, r, x_of(c, w, j),
                         -p->load_s[b->m->nodes[w].node * p->n_buses + bus] * MS);
        }
    }
}

/* 15 and 16: a node is there when its slot has run, or is loaded. 19 and 20: a slot starts when
 * what enters it is there. */
static void add_waits(struct builder *b)
{
    const struct columns *c = &b->c;
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots; j++) {
            int r = row(b, LP_AT_LEAST, -b->big);
            term(b, r, c->first_node_fin + v, 1);
            term(b, r, slot_column(b->m->nodes[v].is_op ? c->first_sg_fin : c->first_dt_fin, j),
                 -1);
            term(b, r, x_of(c, v, j), -b->big);
            if (!b->has_reader[v])
                continue;
            r = row(b, LP_AT_LEAST, -b->big);
            term(b, r, slot_column(c->first_sg_start, j), 1);
            term(b, r, c->first_node_fin + v, -1);
            term(b, r, edge_in_of(c, v, j), -b->big);
        }
    for (int k = 0; k < b->m->n_edges; k++) {
        int w = b->m->edges[k][0], v = b->m->edges[k][1];
        for (int j = 1; j <= c->slots && !b->m->nodes[w].is_op; j++) {
            int r = row(b, LP_AT_LEAST, -2 * b->big);
            term(b, r, slot_column(c->first_sg_start, j), 1);
            term(b, r, c->first_node_fin + w, -1);
            term(b, r, x_of(c, w, j), -b->big);
            term(b, r, x_of(c, v, j), -b->big);
        }
    }
}

/* 17, 18 and 21 to 23: slots of a device run one after the other; each first takes in what crosses,
 * then runs its operators. */
static void add_runs(struct builder *b)
{
    const struct columns *c = &b->c;
    const struct coldstart_problem *p = b->m->p;
    for (int j = 1; j <= c->slots; j++) {
        int device = milp_slot_device(b->m->slots, j);
        bool first = (j - 1) % b->m->slots == 0;
        int r = row(b, LP_AT_LEAST, first ? b->before->device_free_s[device] * MS : 0);
        term(b, r, slot_column(c->first_sg_start, j), 1);
        if (!first)
            term(b, r, slot_column(c->first_sg_fin, j - 1), -1);
        r = row(b, LP_EQUAL, 0);
        term(b, r, slot_column(c->first_sg_fin, j), 1);
        term(b, r, slot_column(c->first_sg_start, j), -1);
        for (int v = 0; v < c->n; v++) {
            const struct milp_node *node = &b->m->nodes[v];
            const double *exec_s = milp_slot_is_host(j) ? p->host_exec_s : p->exec_s;
            if (node->is_op && node->fixed_device == COLDSTART_NOWHERE)
                term(b, r, x_of(c, v, j), -exec_s[node->node * p->n_devices + device] * MS);
            for (int i = 0; i < c->devices; i++) {
                double speed = p->peer_bytes_per_s[i * p->n_devices + device];
                if (i != device && speed > 0 && b->has_reader[v])
                    term(b, r, copy_in_of(c, v, i, j), -p->bytes[node->node] / speed * MS);
            }
        }
        if (j % b->m->slots == 0) {
            r = row(b, LP_AT_LEAST, 0);
            term(b, r, c->total, 1);
            term(b, r, slot_column(c->first_sg_fin, j), -1);
        }
    }
}

/* A time that no sensible plan exceeds: everything one after the other, as slowly as it can be. */
static double longest(const struct builder *b)
{
    const struct coldstart_problem *p = b->m->p;
    double total = 0;
    for (int i = 0; i < p->n_devices; i++)
        total = fmax(total, b->before->device_free_s[i]);
    for (int i = 0; i < p->n_buses; i++)
        total = fmax(total, b->before->bus_free_s[i]);
    for (int k = 0; k < b->m->n_nodes; k++) {
        int v = b->m->nodes[k].node;
        double most = 0, slowest = 0;
        for (int i = 0; i < p->n_devices; i++)
            most = fmax(
                most, fmax(p->exec_s[v * p->n_devices + i], p->host_exec_s[v * p->n_devices + i]));
        for (int i = 0; i < p->n_buses && !p->is_op[v]; i++)
            most = fmax(most, p->load_s[v * p->n_buses + i]);
        for (int i = 0; i < p->n_devices * p->n_devices; i++)
            if (p->peer_bytes_per_s[i] > 0)
                slowest = fmax(slowest, p->bytes[v] / p->peer_bytes_per_s[i]);
        total += most + slowest;
    }
    return 1.1 * total * MS + 1;
}

int milp_bus_slot(const struct coldstart_problem *p, int slots, int bus, int k)
{
    int devices[OPGRAPH_MAX_DEVICES], n = 0;
    for (int d = 0; d < p->n_devices; d++)
        if (p->bus_of[d] == bus)
            devices[n++] = d;
    if (n == 0 || k / n >= slots)
        return -1;
    return devices[k % n] * slots + k / n + 1;
}

int milp_program_build(const struct milp_sub_model *m, const struct milp_state *before,
                       struct lp_program **out, struct err *e)
{
    struct arena scratch = {0};
    struct builder b = {.m = m, .before = before, .c = number_columns(m), .e = e};
    int rc = lp_program_create("sub_model", false, &b.lp, e);
    if (rc < 0)
        return rc;
    b.has_reader = arena_alloc(&scratch, (size_t)m->n_nodes, sizeof *b.has_reader);
    b.failed = !b.has_reader;
    for (int k = 0; k < m->n_edges && !b.failed; k++)
        b.has_reader[m->edges[k][0]] = true;
    if (!b.failed) {
        b.big = longest(&b);
        add_columns(&b);
        add_assignment(&b);
        add_contiguity(&b);
        add_order(&b);
        add_crossings(&b);
        add_memory(&b);
        add_loads(&b);
        add_waits(&b);
        add_runs(&b);
    }
    arena_free(&scratch);
    if (b.failed) {
        lp_program_destroy(&b.lp);
        return err_set(e, HP_ENOMEM,
                       "out of memory while writing the programme of a sub-model of %d nodes",
                       m->n_nodes);
    }
    *out = b.lp;
    return 0;
}

/* ---- reading a solution
 * ------------------------------------------------------------------------------------------- */

void milp_program_read(struct milp_sub_model *m, const struct milp_state *before,
                       const double *values, struct milp_solution *out)
{
    struct columns c = number_columns(m);
    const struct coldstart_problem *p = m->p;
    out->state = *before;
    out->latency_s = values[c.total] / MS;
    for (int v = 0; v < m->n_nodes; v++)
        for (int j = 0; j <= c.slots; j++)
            if (values[x_of(&c, v, j)] > 0.5)
                m->nodes[v].slot = j;
    for (int j = 1; j <= c.slots; j++)
        out->rank[j] = (int)lround(values[slot_column(c.first_rank, j)] * 1000);
    for (int bus = 0; bus < p->n_buses; bus++)
        for (int k = 0, j; (j = milp_bus_slot(p, m->slots, bus, k)) > 0; k++)
            out->state.bus_free_s[bus] = values[slot_column(c.first_dt_fin, j)] / MS;
    for (int i = 0; i < c.devices; i++)
        out->state.device_free_s[i] = values[slot_column(c.first_sg_fin, (i + 1) * m->slots)] / MS;
    for (int v = 0; v < m->n_nodes; v++) {
        const struct milp_node *node = &m->nodes[v];
        if (node->is_op || node->slot == 0)
            continue;
        int home = milp_slot_device(m->slots, node->slot);
        uint64_t there = 1ull << home;
        if (node->fixed_device == COLDSTART_NOWHERE)
            out->state.used_bytes[home] += p->bytes[node->node];
        for (int k = 0; k < m->n_edges; k++) {
            int reader = m->nodes[m->edges[k][1]].slot, device = milp_slot_device(m->slots, reader);
            if (m->edges[k][0] != v || milp_slot_is_host(reader) || there & 1ull << device)
                continue;
            there |= 1ull << device;
            out->state.used_bytes[device] += p->bytes[node->node];
        }
    }
}
