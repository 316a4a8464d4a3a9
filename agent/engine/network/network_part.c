#include "agent/engine/network/network_part.h"

#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_layers.h"

/* A plan, and where the part begins and ends in it. */
struct part_plan {
    struct network_plan *plan;
    int first, end; /* steps */
    struct ndarray *enters, *leaves;
    int n_enters, n_leaves;
};

struct network_part {
    struct onnx_network *network;
    struct network_account account;
    uint64_t folded_bytes; /* counted there */
    struct network_facts facts;
    struct nn *nn;
    struct part_plan *plans; /* [n_sizes * batch], of batches of 1, 2, ...; those that are not ready
                                are zero */
    int batch, n_sizes;
    int *firsts; /* [n_layers]: nodes */
    int n_layers, first_layer, end_layer;
    int least; /* the smallest batch, whose layers count */
};

void network_part_close(struct network_part **self)
{
    struct network_part *p = *self;
    *self = NULL;
    if (!p)
        return;
    for (int i = 0; p->plans && i < p->n_sizes * p->batch; i++) {
        network_plan_free(&p->plans[i].plan);
        free(p->plans[i].enters);
        free(p->plans[i].leaves);
    }
    network_shelf_destroy(&p->facts.shelf);
    nn_destroy(&p->nn);
    network_facts_free(&p->facts);
    network_close(&p->network);
    network_memory_give(&p->account, p->folded_bytes);
    free(p->plans);
    free(p->firsts);
    free(p);
}

/* ---- what is asked for ---- */

static int ask_check(const struct network_part_ask *a, struct err *e)
{
    if (a->batch < 1 || a->batch > NETWORK_PART_BATCH)
        return err_set(e, HP_EINVAL, "batches of up to %d; at most %d are known", a->batch,
                       NETWORK_PART_BATCH);
    if (a->n_sizes < 0 || a->n_sizes > NETWORK_PART_SIZES)
        return err_set(e, HP_EINVAL, "%d sizes; at most %d are known", a->n_sizes,
                       NETWORK_PART_SIZES);
    if (a->first_block < 0 || a->first_block >= a->end_block || a->end_block > a->n_blocks)
        return err_set(e, HP_EINVAL, "blocks %d to %d of a network with %d", a->first_block,
                       a->end_block - 1, a->n_blocks);
    for (int i = 0; a->bounds && i < a->n_blocks; i++)
        if (a->bounds[i] > a->bounds[i + 1])
            return err_set(e, HP_EINVAL, "block %d begins at layer %u and ends at layer %u", i,
                           a->bounds[i], a->bounds[i + 1]);
    return 0;
}

static int block_layer(const struct network_part *p, const struct network_part_ask *a, int block)
{
    return a->bounds ? (int)a->bounds[block] : (int)((int64_t)p->n_layers * block / a->n_blocks);
}

/* Layers of the smallest batch's plan, and which of them the blocks are. */
static int layers_choose(struct network_part *p, const struct network_part_ask *a, struct err *e)
{
    const struct network_plan *plan = p->plans[p->least - 1].plan;
    p->firsts = calloc((size_t)network_plan_describe(plan).steps + 1, sizeof *p->firsts);
    if (!p->firsts)
        return err_no_memory(e, "a part of a network");
    p->n_layers = network_layers_find(plan, p->firsts, e);
    if (p->n_layers < 0)
        return p->n_layers;
    if (a->bounds && (a->bounds[0] != 0 || a->bounds[a->n_blocks] != (uint32_t)p->n_layers)) {
        err_set(e, HP_EINVAL, "the plan speaks of layers %u to %u, and here the network has %d",
                a->bounds[0], a->bounds[a->n_blocks], p->n_layers);
        return err_hint(e, "measure the model anew: its profile is of other sizes, of another "
                           "release or of another kind of CPU");
    }
    p->first_layer = block_layer(p, a, a->first_block);
    p->end_layer = block_layer(p, a, a->end_block);
    return p->first_layer < p->end_layer
               ? 0
               : err_set(e, HP_EINVAL, "blocks %d to %d hold no layer: the network has %d in all",
                         a->first_block, a->end_block - 1, p->n_layers);
}

/* ---- plans ---- */

/* What follows from constants is the network's own, whichever blocks run. */
static int folded_count(struct network_part *p, struct err *e)
{
    uint64_t bytes = network_folded_bytes(p->network);
    int rc = network_memory_take(&p->account, bytes, "what follows from constants", e);
    p->folded_bytes = rc == 0 ? bytes : 0;
    return rc;
}

static int plan_make(struct network_part *p, const struct network_part_ask *a, int size, int batch,
                     struct err *e)
{
    struct network_plan **out = &p->plans[size * p->batch + batch - 1].plan;
    const struct onnx *o = network_onnx(p->network);
    const struct network_dim *dims = a->n_dims ? a->dims + size * a->n_dims : NULL;
    struct ndarray *inputs = calloc((size_t)o->n_inputs + 1, sizeof *inputs);
    const struct ndarray **given = calloc((size_t)o->n_inputs + 1, sizeof *given);
    int rc =
        inputs && given ? network_stopped(p->network, e) : err_no_memory(e, "a part of a network");
    for (int i = 0; i < o->n_inputs && rc == 0; i++) {
        rc = network_sizes_choose(&o->values[o->inputs[i]], batch, dims, a->n_dims, &inputs[i], e);
        given[i] = &inputs[i];
    }
    rc = rc < 0 ? rc : network_inputs_check(p->network, given, e);
    rc = rc < 0 ? rc : network_plan_make(&p->facts, p->nn, given, out, e);
    free(inputs);
    free(given);
    return rc;
}

static int border_take(struct network_plan *plan, int at, struct ndarray **out, int *n,
                       struct err *e)
{
    *n = network_plan_border(plan, at, NULL, 0);
    if (*n > NETWORK_PART_ARRAYS)
        return err_set(e, HP_EUNSUPPORTED, "%d arrays cross there; at most %d can", *n,
                       NETWORK_PART_ARRAYS);
    *out = calloc((size_t)*n + 1, sizeof **out);
    if (!*out)
        return err_no_memory(e, "a part of a network");
    network_plan_border(plan, at, *out, *n);
    return 0;
}

/* Other batches may be planned with other steps, which work ahead of a layer's begin; where nothing
 * is left on one side there is no place to cut. */
static int plan_cut(struct network_part *p, int size, int batch, struct err *e)
{
    struct part_plan *q = &p->plans[size * p->batch + batch - 1];
    int n_steps = network_plan_describe(q->plan).steps;
    q->first = network_layers_step(q->plan, p->firsts, p->n_layers, p->first_layer);
    q->end = network_layers_step(q->plan, p->firsts, p->n_layers, p->end_layer);
    if ((p->first_layer > 0 && (q->first == 0 || q->first == n_steps)) ||
        (p->end_layer < p->n_layers && (q->end == 0 || q->end == n_steps)))
        return err_set(e, HP_EUNSUPPORTED,
                       "in batches of %d the network cannot be cut at layers %d and %d of %d",
                       batch, p->first_layer, p->end_layer, p->n_layers);
    int rc = network_plan_ready(q->plan, q->first, q->end, e);
    rc = rc < 0 ? rc : border_take(q->plan, q->first, &q->enters, &q->n_enters, e);
    return rc < 0 ? rc : border_take(q->plan, q->end, &q->leaves, &q->n_leaves, e);
}

static int plans_make(struct network_part *p, const struct network_part_ask *a, struct err *e)
{
    int64_t fixed = network_sizes_batch(network_onnx(p->network));
    if (fixed > a->batch)
        return err_set(e, HP_EINVAL,
                       "the network takes batches of %lld alone, and %d is the plan's",
                       (long long)fixed, a->batch);
    p->least = fixed ? (int)fixed : 1;
    int last = fixed ? (int)fixed : a->batch, rc = plan_make(p, a, 0, p->least, e);
    rc = rc < 0 ? rc : layers_choose(p, a, e);
    for (int size = 0; size < p->n_sizes; size++)
        for (int batch = last; batch >= p->least && rc == 0; batch--) { /* largest arena first */
            if (batch > p->least || size > 0)
                rc = plan_make(p, a, size, batch, e);
            rc = rc < 0 ? rc : plan_cut(p, size, batch, e);
        }
    return rc;
}

int network_part_open(struct onnx_network **n, const struct network_part_ask *a,
                      struct network_part **out, struct err *e)
{
    struct network_part *p = calloc(1, sizeof *p);
    if (!p) {
        network_close(n);
        return err_no_memory(e, "a part of a network");
    }
    *out = p;
    p->network = *n;
    *n = NULL;
    if (a->account)
        p->account = *a->account;
    int rc = ask_check(a, e);
    p->n_sizes = a->n_sizes ? a->n_sizes : 1;
    if (rc == 0 &&
        (p->plans = calloc((size_t)a->batch * (size_t)p->n_sizes, sizeof *p->plans)) == NULL)
        rc = err_no_memory(e, "a part of a network");
    p->batch = rc < 0 ? 0 : a->batch;
    rc = rc < 0 ? rc : folded_count(p, e);
    rc = rc < 0 ? rc : network_facts_make(p->network, a->device, &p->account, &p->facts, e);
    if (rc == 0 && (p->facts.shelf = network_shelf_create(&p->account)) == NULL)
        rc = err_no_memory(e, "a part of a network");
    rc = rc < 0 ? rc : nn_create(a->threads, &p->nn, e);
    rc = rc < 0 ? rc : plans_make(p, a, e);
    if (rc == 0)
        network_shelf_trim(p->facts.shelf); /* weights of other parts */
    if (rc < 0)
        network_part_close(out);
    return rc;
}

/* ---- runs ---- */

/* Of what network_part_sized names. */
static struct part_plan *plan_of(const struct network_part *p, int sized)
{
    int size = sized > 0 ? sized / network_part_sized(1, 0) : 0,
        batch = sized - network_part_sized(size, 0);
    if (batch < 1 || batch > p->batch || size >= p->n_sizes)
        return NULL;
    struct part_plan *q = &p->plans[size * p->batch + batch - 1];
    return q->plan ? q : NULL;
}

const struct ndarray *network_part_enters(const struct network_part *p, int batch, int *n)
{
    const struct part_plan *q = plan_of(p, batch);
    *n = q ? q->n_enters : 0;
    return q ? q->enters : NULL;
}

const struct ndarray *network_part_leaves(const struct network_part *p, int batch, int *n)
{
    const struct part_plan *q = plan_of(p, batch);
    *n = q ? q->n_leaves : 0;
    return q ? q->leaves : NULL;
}

int network_part_next(const struct network_part *p, int batch)
{
    for (int b = batch + 1; b <= network_part_sized(p->n_sizes - 1, p->batch); b++)
        if (plan_of(p, b))
            return b;
    return 0;
}

int network_part_run(struct network_part *p, int batch, const struct ndarray *in, int n,
                     struct err *e)
{
    struct part_plan *q = plan_of(p, batch);
    if (!q)
        return err_set(e, HP_EINVAL, "a batch of %d, size %d; %d to %d of %d sizes are ready",
                       batch % network_part_sized(1, 0), batch / network_part_sized(1, 0), p->least,
                       p->batch, p->n_sizes);
    int rc = network_plan_enter(q->plan, q->first, q->enters, q->n_enters, in, n, e);
    return rc < 0 ? rc : network_plan_run_part(q->plan, q->first, q->end, e);
}

int network_part_warm(struct network_part *p, int batch, struct err *e)
{
    struct part_plan *q = plan_of(p, batch);
    bool marked = q && q->first > 0; /* the plan's number comes first */
    for (int i = marked; q && i < q->n_enters; i++)
        if (q->enters[i].count > 0)
            memset(q->enters[i].data, 0, ndarray_bytes(&q->enters[i]));
    return q ? network_plan_run_part(q->plan, q->first, q->end, e) : 0;
}

uint64_t network_part_bytes(const struct network_part *p)
{
    return network_shelf_bytes(p->facts.shelf) + network_rows_bytes(p->facts.rows) +
           network_device_bytes(p->facts.device);
}
