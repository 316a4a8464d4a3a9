#include "agent/engine/network/network_engine.h"

#include <stdlib.h>
#include <string.h>

/* Combinations of sizes that stay ready; the one that was not used for longest goes. */
enum { PLANS = 8 };

struct network_engine {
    struct onnx_network *network;
    struct network_facts facts;
    struct nn *nn;
    struct network_plan *plans[PLANS]; /* the latest first */
};

int network_engine_open(struct onnx_network **n, struct threads *threads,
                        struct network_device *device, struct network_engine **out, struct err *e)
{
    struct network_engine *g = calloc(1, sizeof *g);
    if (!g) {
        network_close(n);
        return err_no_memory(e, "an engine");
    }
    *out = g;
    g->network = *n;
    *n = NULL;
    int rc = network_facts_make(g->network, device, NULL, &g->facts, e);
    rc = rc < 0 ? rc : nn_create(threads, &g->nn, e);
    if (rc < 0)
        network_engine_close(out);
    return rc;
}

void network_engine_close(struct network_engine **self)
{
    struct network_engine *g = *self;
    *self = NULL;
    if (!g)
        return;
    for (int i = 0; i < PLANS; i++)
        network_plan_free(&g->plans[i]);
    nn_destroy(&g->nn);
    network_facts_free(&g->facts);
    network_close(&g->network);
    free(g);
}

/* The plan for these inputs at the front; NULL: none can be made, and why. */
static struct network_plan *plan_find(struct network_engine *g, const struct ndarray *const *inputs,
                                      struct err *why)
{
    struct network_plan *found = NULL;
    int at = 0;
    while (at < PLANS && g->plans[at] && !network_plan_fits(g->plans[at], inputs))
        at++;
    if (at < PLANS && g->plans[at]) {
        found = g->plans[at];
    } else if (network_plan_make(&g->facts, g->nn, inputs, &found, why) < 0) {
        return NULL;
    } else if (at == PLANS) {
        network_plan_free(&g->plans[--at]);
    }
    memmove(g->plans + 1, g->plans, (size_t)at * sizeof *g->plans);
    g->plans[0] = found;
    return found;
}

/* Outputs of the caller's hold what a run of the reference made. */
static int outputs_move(const struct onnx *o, struct ndarray *made, struct ndarray *outputs,
                        struct err *e)
{
    int rc = 0;
    for (int i = 0; i < o->n_outputs; i++) {
        bool given = outputs[i].type != 0;
        if (!given)
            outputs[i] = made[i];
        else if (outputs[i].type != made[i].type || !ndarray_same_shape(&outputs[i], &made[i]))
            rc = err_set(e, HP_EINVAL, "output %d has other sizes", i);
        else
            memcpy(outputs[i].data, made[i].data, ndarray_bytes(&made[i]));
        if (given)
            ndarray_free(&made[i]);
    }
    return rc;
}

static int reference_run(struct network_engine *g, int n_stages,
                         const struct ndarray *const *inputs, struct ndarray *outputs,
                         struct err *e)
{
    const struct onnx *o = network_onnx(g->network);
    struct ndarray *made = calloc((size_t)o->n_outputs + 1, sizeof *made);
    if (!made)
        return err_no_memory(e, "a run");
    int rc = network_run(g->network, n_stages, inputs, made, e);
    rc = rc < 0 ? rc : outputs_move(o, made, outputs, e);
    free(made);
    return rc;
}

int network_engine_run(struct network_engine *g, int n_stages, const struct ndarray *const *inputs,
                       struct ndarray *outputs, struct err *e)
{
    int n_run = network_run_nodes(g->network), rc = network_inputs_check(g->network, inputs, e);
    if (rc == 0 && (n_stages < 1 || n_stages > (n_run > 0 ? n_run : 1)))
        rc = err_set(e, HP_EINVAL, "%d stages of %d nodes", n_stages, n_run);
    if (rc < 0)
        return rc;
    struct err why = {0};
    struct network_plan *p = plan_find(g, inputs, &why);
    if (!p && g->facts.device) {
        *e = why;
        return why.code;
    }
    if (!p)
        return reference_run(g, n_stages, inputs, outputs, e);
    rc = n_stages == 1 ? network_plan_run(p, inputs, outputs, e)
                       : network_plan_run_cut(p, n_stages, inputs, outputs, e);
    if (rc != HP_ESTALE || g->facts.device)
        return rc;
    /* A size depends on what inputs hold: such plans are of no use. */
    *e = (struct err){0};
    network_plan_free(&g->plans[0]);
    memmove(g->plans, g->plans + 1, (PLANS - 1) * sizeof *g->plans);
    g->plans[PLANS - 1] = NULL;
    return reference_run(g, n_stages, inputs, outputs, e);
}

struct network_plan_facts network_engine_describe(const struct network_engine *g)
{
    return g->plans[0] ? network_plan_describe(g->plans[0]) : (struct network_plan_facts){0};
}
