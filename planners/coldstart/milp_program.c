#include "planners/coldstart/milp_program.h"

#include <math.h>
#include <stdio.h>

#include "planners/coldstart/milp_columns.h"

/* Times in the programme are milliseconds, so that coefficients lie near 1. */
static const double MS = 1e3;

struct milp_builder {
    const struct milp_sub_model *m;
    const struct milp_state *before;
    struct lp_program *lp;
    struct milp_columns c;
    double big;       /* H of the paper: no time exceeds it */
    bool *has_reader; /* [local node] */
    bool failed;
    struct err *e;
};

/* ---- columns ---- */

static void column_add(struct milp_builder *b, double objective, double lower, double upper,
                       bool integer, const char *fmt, int i, int j, int k)
{
    char name[32];
    snprintf(name, sizeof name, fmt, i, j, k);
    b->failed = lp_column_add(b->lp, name, objective, lower, upper, integer, b->e) < 0 || b->failed;
}

/* Equations 3 and 4 are bounds of x: placeholders stay in the first slot of their device, operators
 * never lie in host memory. */
static void add_places(struct milp_builder *b)
{
    const struct milp_sub_model *m = b->m;
    for (int v = 0; v < m->n_nodes; v++) {
        const struct milp_node *node = &m->nodes[v];
        int fixed =
            node->fixed_device == COLDSTART_NOWHERE ? -1 : node->fixed_device * m->slots + 1;
        for (int j = 0; j <= b->c.slots; j++) {
            double upper = (fixed >= 0 && j != fixed) || (j == 0 && node->is_op) ? 0 : 1;
            column_add(b, 0, j == fixed ? 1 : 0, upper, true, "x_%d_%d", v, j, 0);
        }
    }
}

static void add_columns(struct milp_builder *b)
{
    const struct milp_columns *c = &b->c;
    const struct coldstart_problem *p = b->m->p;
    add_places(b);
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots; j++)
            column_add(b, 0, 0, 1, false, "z_%d_%d", v, j, 0);
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots; j++)
            column_add(b, 0, 0, 1, false, "EdgeIn_%d_%d", v, j, 0);
    for (int v = 0; v < c->n; v++)
        for (int i = 0; i < c->devices; i++)
            for (int j = 1; j <= c->slots; j++) {
                int to = milp_slot_device(b->m->slots, j);
                bool path = i == to || p->peer_bytes_per_s[i * p->n_devices + to] > 0;
                column_add(b, 0, 0, path ? 1 : 0, false, "CopyIn_%d_%d_%d", v, i + 1, j);
            }
    for (int v = 0; v < c->n; v++)
        column_add(b, 0, 0, INFINITY, false, "NodeFin_%d", v, 0, 0);
    for (int v = 0; v < c->n; v++)
        column_add(b, 0, 0, c->slots, false, "Place_%d", v, 0, 0);
    for (int j = 1; j <= c->slots; j++)
        column_add(b, 0, 0, INFINITY, false, "DTFin_%d", j, 0, 0);
    for (int j = 1; j <= c->slots; j++)
        column_add(b, 0, 0, INFINITY, false, "SGStart_%d", j, 0, 0);
    for (int j = 1; j <= c->slots; j++)
        column_add(b, 0, 0, INFINITY, false, "SGFin_%d", j, 0, 0);
    for (int j = 1; j <= c->slots; j++)
        column_add(b, 0, 0, c->slots, false, "Rank_%d", j, 0, 0);
    column_add(b, 1, 0, INFINITY, false, "TotalLatency", 0, 0, 0);
}

/* ---- rows ---- */

static int row_add(struct milp_builder *b, enum lp_sense sense, double right)
{
    int r = lp_row_add(b->lp, NULL, sense, right, b->e);
    b->failed = b->failed || r < 0;
    return r;
}

static void term_add(struct milp_builder *b, int r, int col, double coefficient)
{
    if (!b->failed && coefficient != 0)
        b->failed = lp_term_add(b->lp, r, col, coefficient, b->e) < 0;
}

/* 2: every node in one slot. 5: parameters lie in host memory when their operator runs from there.
 */
static void add_assignment(struct milp_builder *b)
{
    const struct milp_columns *c = &b->c;
    for (int v = 0; v < c->n; v++) {
        int r = row_add(b, LP_EQUAL, 1);
        for (int j = 0; j <= c->slots; j++)
            term_add(b, r, milp_x_of(c, v, j), 1);
    }
    for (int k = 0; k < b->m->n_edges; k++) {
        int w = b->m->edges[k][0], v = b->m->edges[k][1];
        if (b->m->nodes[w].is_op)
            continue;
        int r = row_add(b, LP_EQUAL, 0);
        term_add(b, r, milp_x_of(c, w, 0), 1);
        for (int j = 1; j <= c->slots; j += 2)
            term_add(b, r, milp_x_of(c, v, j), -1);
    }
}

/* 6 to 8: slots are contiguous. 9: which slots an edge enters. */
static void add_contiguity(struct milp_builder *b)
{
    const struct milp_columns *c = &b->c;
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots; j++) {
            int r = row_add(b, LP_AT_LEAST, 0);
            term_add(b, r, milp_z_of(c, v, j), 1);
            term_add(b, r, milp_x_of(c, v, j), -1);
        }
    for (int k = 0; k < b->m->n_edges; k++) {
        int u = b->m->edges[k][0], v = b->m->edges[k][1];
        for (int j = 1; j <= c->slots; j++) {
            int r = row_add(b, LP_AT_LEAST, 0);
            term_add(b, r, milp_z_of(c, u, j), 1);
            term_add(b, r, milp_z_of(c, v, j), -1);
            r = row_add(b, LP_AT_MOST, 1);
            term_add(b, r, milp_z_of(c, v, j), 1);
            term_add(b, r, milp_x_of(c, v, j), -1);
            term_add(b, r, milp_x_of(c, u, j), 1);
            r = row_add(b, LP_AT_LEAST, 0);
            term_add(b, r, milp_edge_in_of(c, u, j), 1);
            term_add(b, r, milp_x_of(c, v, j), -1);
            term_add(b, r, milp_x_of(c, u, j), 1);
        }
    }
}

/* Not published: an order of the slots in which every edge between two of them leads onwards, so
 * that none waits for itself. */
static void add_order(struct milp_builder *b)
{
    const struct milp_columns *c = &b->c;
    double all = c->slots + 1;
    for (int j = 2; j <= c->slots; j++) {
        if ((j - 1) % b->m->slots == 0)
            continue;
        int r = row_add(b, LP_AT_LEAST, 1);
        term_add(b, r, milp_slot_column(c->first_rank, j), 1);
        term_add(b, r, milp_slot_column(c->first_rank, j - 1), -1);
    }
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots && b->m->nodes[v].is_op; j++) {
            int r = row_add(b, LP_AT_MOST, all); /* Place <= Rank + all (1 - x), and the reverse */
            term_add(b, r, c->first_place + v, 1);
            term_add(b, r, milp_slot_column(c->first_rank, j), -1);
            term_add(b, r, milp_x_of(c, v, j), all);
            r = row_add(b, LP_AT_LEAST, -all);
            term_add(b, r, c->first_place + v, 1);
            term_add(b, r, milp_slot_column(c->first_rank, j), -1);
            term_add(b, r, milp_x_of(c, v, j), -all);
        }
    for (int k = 0; k < b->m->n_edges; k++) {
        int u = b->m->edges[k][0], v = b->m->edges[k][1];
        for (int j = 1; j <= c->slots && b->m->nodes[u].is_op; j++) {
            int r = row_add(b, LP_AT_LEAST,
                            1 - all); /* in another slot than u: at least one place later */
            term_add(b, r, c->first_place + v, 1);
            term_add(b, r, c->first_place + u, -1);
            term_add(b, r, milp_x_of(c, v, j), -all);
            term_add(b, r, milp_x_of(c, u, j), all);
        }
    }
}

/* 10: which tensors cross from which device into which slot. */
static void add_crossings(struct milp_builder *b)
{
    const struct milp_columns *c = &b->c;
    for (int v = 0; v < c->n; v++)
        for (int i = 0; i < c->devices && b->has_reader[v]; i++)
            for (int j = 1; j <= c->slots; j++) {
                int r = row_add(b, LP_AT_LEAST, -1);
                term_add(b, r, milp_copy_in_of(c, v, i, j), 1);
                term_add(b, r, milp_edge_in_of(c, v, j), -1);
                for (int k = 1; k <= b->m->slots; k++)
                    term_add(b, r, milp_x_of(c, v, i * b->m->slots + k), -1);
            }
}

/* 11: parameters copied or forwarded to a device; outputs are not counted. In units of the device's
 * memory. */
static void add_memory(struct milp_builder *b)
{
    const struct milp_columns *c = &b->c;
    const struct coldstart_problem *p = b->m->p;
    for (int i = 0; i < c->devices; i++) {
        double memory = fmax(p->memory_bytes[i], 1);
        int r = row_add(b, LP_AT_MOST, (memory - b->before->used_bytes[i]) / memory);
        for (int v = 0; v < c->n; v++) {
            double share = p->bytes[b->m->nodes[v].node] / memory;
            for (int j = i * b->m->slots + 1; j <= (i + 1) * b->m->slots && !b->m->nodes[v].is_op;
                 j++) {
                if (b->m->nodes[v].fixed_device == COLDSTART_NOWHERE)
                    term_add(b, r, milp_x_of(c, v, j), share);
                for (int from = 0; from < c->devices; from++)
                    if (from != i)
                        term_add(b, r, milp_copy_in_of(c, v, from, j), share);
            }
        }
    }
}

/* 12 to 14, and 16: slots of a bus load one after the other, devices in turn. */
static void add_loads(struct milp_builder *b)
{
    const struct milp_columns *c = &b->c;
    const struct coldstart_problem *p = b->m->p;
    for (int bus = 0; bus < p->n_buses; bus++) {
        int last = -1;
        for (int k = 0, j; (j = milp_bus_slot(p, b->m->slots, bus, k)) > 0; k++, last = j) {
            int r = row_add(b, LP_EQUAL, last < 0 ? b->before->bus_free_s[bus] * MS : 0);
            term_add(b, r, milp_slot_column(c->first_dt_fin, j), 1);
            if (last > 0)
                term_add(b, r, milp_slot_column(c->first_dt_fin, last), -1);
            for (int w = 0; w < c->n; w++)
                if (!b->m->nodes[w].is_op && b->m->nodes[w].fixed_device == COLDSTART_NOWHERE)
                    term_add(b, r, milp_x_of(c, w, j),
                             -p->load_s[b->m->nodes[w].node * p->n_buses + bus] * MS);
        }
    }
}

/* 15 and 16: a node is there when its slot has run, or is loaded. 19 and 20: a slot starts when
 * what enters it is there. */
static void add_waits(struct milp_builder *b)
{
    const struct milp_columns *c = &b->c;
    for (int v = 0; v < c->n; v++)
        for (int j = 1; j <= c->slots; j++) {
            int r = row_add(b, LP_AT_LEAST, -b->big);
            term_add(b, r, c->first_node_fin + v, 1);
            term_add(b, r,
                     milp_slot_column(b->m->nodes[v].is_op ? c->first_sg_fin : c->first_dt_fin, j),
                     -1);
            term_add(b, r, milp_x_of(c, v, j), -b->big);
            if (!b->has_reader[v])
                continue;
            r = row_add(b, LP_AT_LEAST, -b->big);
            term_add(b, r, milp_slot_column(c->first_sg_start, j), 1);
            term_add(b, r, c->first_node_fin + v, -1);
            term_add(b, r, milp_edge_in_of(c, v, j), -b->big);
        }
    for (int k = 0; k < b->m->n_edges; k++) {
        int w = b->m->edges[k][0], v = b->m->edges[k][1];
        for (int j = 1; j <= c->slots && !b->m->nodes[w].is_op; j++) {
            int r = row_add(b, LP_AT_LEAST, -2 * b->big);
            term_add(b, r, milp_slot_column(c->first_sg_start, j), 1);
            term_add(b, r, c->first_node_fin + w, -1);
            term_add(b, r, milp_x_of(c, w, j), -b->big);
            term_add(b, r, milp_x_of(c, v, j), -b->big);
        }
    }
}

/* 17, 18 and 21 to 23: slots of a device run one after the other; each first takes in what crosses,
 * then runs its operators. */
static void add_runs(struct milp_builder *b)
{
    const struct milp_columns *c = &b->c;
    const struct coldstart_problem *p = b->m->p;
    for (int j = 1; j <= c->slots; j++) {
        int device = milp_slot_device(b->m->slots, j);
        bool first = (j - 1) % b->m->slots == 0;
        int r = row_add(b, LP_AT_LEAST, first ? b->before->device_free_s[device] * MS : 0);
        term_add(b, r, milp_slot_column(c->first_sg_start, j), 1);
        if (!first)
            term_add(b, r, milp_slot_column(c->first_sg_fin, j - 1), -1);
        r = row_add(b, LP_EQUAL, 0);
        term_add(b, r, milp_slot_column(c->first_sg_fin, j), 1);
        term_add(b, r, milp_slot_column(c->first_sg_start, j), -1);
        for (int v = 0; v < c->n; v++) {
            const struct milp_node *node = &b->m->nodes[v];
            const double *exec_s = milp_slot_is_host(j) ? p->host_exec_s : p->exec_s;
            if (node->is_op && node->fixed_device == COLDSTART_NOWHERE)
                term_add(b, r, milp_x_of(c, v, j),
                         -exec_s[node->node * p->n_devices + device] * MS);
            for (int i = 0; i < c->devices; i++) {
                double speed = p->peer_bytes_per_s[i * p->n_devices + device];
                if (i != device && speed > 0 && b->has_reader[v])
                    term_add(b, r, milp_copy_in_of(c, v, i, j), -p->bytes[node->node] / speed * MS);
            }
        }
        if (j % b->m->slots == 0) {
            r = row_add(b, LP_AT_LEAST, 0);
            term_add(b, r, c->total, 1);
            term_add(b, r, milp_slot_column(c->first_sg_fin, j), -1);
        }
    }
}

/* A time that no sensible plan exceeds: everything one after the other, as slowly as it can be. */
static double longest_time(const struct milp_builder *b)
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
    struct milp_builder b = {.m = m, .before = before, .c = milp_columns_of(m), .e = e};
    int rc = lp_program_create("sub_model", false, &b.lp, e);
    if (rc < 0)
        return rc;
    b.has_reader = arena_alloc(&scratch, (size_t)m->n_nodes, sizeof *b.has_reader);
    b.failed = !b.has_reader;
    for (int k = 0; k < m->n_edges && !b.failed; k++)
        b.has_reader[m->edges[k][0]] = true;
    if (!b.failed) {
        b.big = longest_time(&b);
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
