#include "planners/coldstart/plan_file.h"

#include <stdlib.h>
#include <string.h>

#include "common/plan.h"

/* ---- writing ---- */

struct started {
    double start_s;
    int position;
    int node;
};

static int compare_started(const void *a, const void *b)
{
    const struct started *x = a, *y = b;
    if (x->start_s != y->start_s)
        return x->start_s < y->start_s ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

/* A subgraph is a run of operators of one device in one mode; they are listed in the order in which
 * they start. */
static json_t *write_subgraphs(const struct coldstart_plan *plan, const struct timing *t)
{
    const struct coldstart_problem *p = t->problem;
    json_t *list = json_array(), *open[OPGRAPH_MAX_DEVICES] = {0};
    bool mode[OPGRAPH_MAX_DEVICES] = {0};
    struct started *ops = calloc((size_t)p->n_ops, sizeof *ops);
    if (!ops || !list) {
        free(ops);
        json_decref(list);
        return NULL;
    }
    for (int i = 0; i < p->n_ops; i++)
        ops[i] = (struct started){t->start_s[plan->order[i]], i, plan->order[i]};
    qsort(ops, (size_t)p->n_ops, sizeof *ops, compare_started);
    for (int i = 0; i < p->n_ops; i++) {
        int v = ops[i].node, d = plan->device[v];
        if (!open[d] || mode[d] != plan->host[v]) {
            open[d] = json_array();
            mode[d] = plan->host[v];
            json_array_append_new(list, json_pack("{s:i, s:s, s:o}", "device", d, "mode",
                                                  mode[d] ? "host" : "resident", "nodes", open[d]));
        }
        json_array_append_new(open[d], json_integer(v));
    }
    free(ops);
    return list;
}

static json_t *write_copies(const struct coldstart_plan *plan, const struct coldstart_problem *p)
{
    json_t *list = json_array();
    for (int c = 0; c < plan->n_copies; c++) {
        const struct coldstart_copy *copy = &plan->copies[c];
        json_t *row;
        if (copy->read) {
            row = json_pack("{s:i, s:i, s:b}", "bus", p->bus_of[plan->device[copy->node]], "node",
                            copy->node, "read", 1);
        } else {
            row = json_pack("{s:i, s:i, s:i}", "bus", p->bus_of[copy->device], "device",
                            copy->device, "node", copy->node);
            if (copy->to >= 0)
                json_object_set_new(row, "to", json_integer(copy->to));
        }
        json_array_append_new(list, row);
    }
    return list;
}

int coldstart_plan_to_json(const struct coldstart_plan *plan, const struct timing *timing,
                           double bound_s, json_t *out)
{
    json_t *subgraphs = write_subgraphs(plan, timing),
           *copies = write_copies(plan, timing->problem);
    if (!subgraphs || !copies) {
        json_decref(subgraphs);
        json_decref(copies);
        return HP_ENOMEM;
    }
    json_object_set_new(out, "contention", json_boolean(timing->problem->contention));
    json_object_set_new(out, "subgraphs", subgraphs);
    json_object_set_new(out, "copies", copies);
    json_t *predicted = json_pack("{s:f, s:f}", "latency_s", timing->latency_s, "bound_s", bound_s);
    return json_object_set_new(out, "predicted", predicted) == 0 ? 0 : HP_ENOMEM;
}

/* ---- reading ---- */

static int get_index(const struct json_at *at, const char *key, int limit, const char *what,
                     int *out, struct err *e)
{
    struct json_at place;
    uint64_t v;
    int rc;
    if ((rc = json_get(at, key, &place, e)) < 0 || (rc = json_as_u64(&place, &v, e)) < 0)
        return rc;
    if (v >= (uint64_t)limit)
        return json_fail(&place, e, "%llu is no %s: the graph has %d", (unsigned long long)v, what,
                         limit);
    *out = (int)v;
    return 0;
}

static int read_subgraph(const struct json_at *at, const struct coldstart_problem *p,
                         struct coldstart_plan *plan, bool *seen, int *n, struct err *e)
{
    struct json_at nodes;
    const char *mode;
    size_t count;
    int device, rc;
    if ((rc = get_index(at, "device", p->n_devices, "device", &device, e)) < 0 ||
        (rc = json_get_string(at, "mode", &mode, e)) < 0)
        return rc;
    bool host = strcmp(mode, "host") == 0;
    if (!host && strcmp(mode, "resident") != 0)
        return json_fail(at, e, "mode is \"%s\", expected \"resident\" or \"host\"", mode);
    if ((rc = json_get(at, "nodes", &nodes, e)) < 0 || (rc = json_as_array(&nodes, &count, e)) < 0)
        return rc;
    for (size_t i = 0; i < count; i++) {
        struct json_at item = json_item(&nodes, i);
        uint64_t v;
        if ((rc = json_as_u64(&item, &v, e)) < 0)
            return rc;
        if (v >= (uint64_t)p->n_nodes || !p->is_op[v])
            return json_fail(&item, e, "node %llu is no operator of the graph",
                             (unsigned long long)v);
        if (seen[v])
            return json_fail(&item, e, "operator %llu runs twice", (unsigned long long)v);
        seen[v] = true;
        plan->order[(*n)++] = (int32_t)v;
        plan->device[v] = (int8_t)device;
        plan->host[v] = host;
    }
    return 0;
}

static int read_subgraphs(const struct json_at *at, const struct coldstart_problem *p,
                          struct coldstart_plan *plan, struct err *e)
{
    struct json_at list;
    size_t count;
    int rc, n = 0;
    if ((rc = json_get(at, "subgraphs", &list, e)) < 0 ||
        (rc = json_as_array(&list, &count, e)) < 0)
        return rc;
    bool *seen = calloc((size_t)p->n_nodes, sizeof *seen);
    if (!seen)
        return err_set(e, HP_ENOMEM, "%s: out of memory while reading", at->file);
    for (size_t i = 0; i < count && rc == 0; i++) {
        struct json_at item = json_item(&list, i);
        rc = read_subgraph(&item, p, plan, seen, &n, e);
    }
    for (int v = 0; rc == 0 && n < p->n_ops && v < p->n_nodes; v++)
        if (p->is_op[v] && !seen[v])
            rc = json_fail(&list, e, "operator %d (\"%s\") runs nowhere", v,
                           p->graph->nodes[v].name);
    free(seen);
    return rc;
}

static int read_copy(const struct json_at *at, const struct coldstart_problem *p,
                     struct coldstart_plan *plan, struct err *e)
{
    int bus, node, device, to = COLDSTART_NOWHERE, rc;
    bool read;
    struct json_at place;
    if ((rc = get_index(at, "bus", p->n_buses, "bus", &bus, e)) < 0 ||
        (rc = get_index(at, "node", p->n_nodes, "node", &node, e)) < 0 ||
        (rc = json_opt_bool(at, "read", false, &read, e)) < 0)
        return rc;
    if (read) {
        if (!p->is_op[node])
            return json_fail(
                at, e,
                "is a read of node %d, which is a parameter; a read names the operator that reads",
                node);
        device = plan->device[node];
    } else {
        if (p->is_op[node])
            return json_fail(at, e, "copies node %d, which is an operator", node);
        if ((rc = get_index(at, "device", p->n_devices, "device", &device, e)) < 0)
            return rc;
        if (json_find(at, "to", &place) &&
            (rc = get_index(at, "to", p->n_devices, "device", &to, e)) < 0)
            return rc;
    }
    if (p->bus_of[device] != bus)
        return json_fail(at, e, "device %d is on bus %d, not on bus %d", device, p->bus_of[device],
                         bus);
    coldstart_plan_add(plan, node, device, read);
    plan->copies[plan->n_copies - 1].to = (int8_t)(to == device ? COLDSTART_NOWHERE : to);
    return 0;
}

int coldstart_plan_contention(const struct json_at *at, bool *on, struct err *e)
{
    return json_opt_bool(at, "contention", true, on, e);
}

int coldstart_plan_from_json(const struct json_at *at, const struct coldstart_problem *p,
                             struct arena *arena, struct coldstart_plan *out, struct err *e)
{
    struct json_at list;
    size_t count;
    int rc;
    if ((rc = plan_kind_expect(at, "coldstart", e)) < 0 ||
        (rc = json_get(at, "copies", &list, e)) < 0 || (rc = json_as_array(&list, &count, e)) < 0)
        return rc;
    if (count > (size_t)p->n_params * (size_t)p->n_devices + (size_t)p->n_ops)
        return json_fail(&list, e,
                         "has %zu copies, more than one of every parameter to every device and a "
                         "read of every operator",
                         count);
    if (coldstart_plan_init(p, (int)count, arena, out) < 0)
        return err_set(e, HP_ENOMEM, "%s: out of memory while reading", at->file);
    if ((rc = read_subgraphs(at, p, out, e)) < 0)
        return rc;
    for (size_t i = 0; i < count; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_copy(&item, p, out, e)) < 0)
            return rc;
    }
    return 0;
}
