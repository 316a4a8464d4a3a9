#include "agent/engine/network/network_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_layers.h"
#include "agent/engine/network/network_profile_layers.h"
#include "agent/engine/network/network_timing.h"
#include "common/doubles.h"

/* A network that is not held whole is measured in sections, which take no more than this part of
 * the memory: what lies beside weights and values (scratch, panels) has the rest. Where that was
 * not enough they take half as much, some times. */
static const double SECTION_PART = 7.0 / 8;
enum { SECTION_TRIES = 4 };

/* One batch size while it is measured. */
struct profile_batch {
    const struct onnx *o;
    struct network_plan *plan;
    struct ndarray *inputs, *outputs;
    const struct ndarray **given; /* the inputs */
    int *layers;                  /* by step */
    double *seconds;              /* by layer */
    int n_steps;
};

/* Arrays that stand between two steps, copied or where they lie in the plan. */
struct profile_border {
    struct ndarray *arrays;
    int n;
};

static void profile_batch_free(struct profile_batch *b)
{
    for (int i = 0; b->inputs && i < b->o->n_inputs; i++)
        ndarray_free(&b->inputs[i]);
    for (int i = 0; b->outputs && i < b->o->n_outputs; i++)
        ndarray_free(&b->outputs[i]);
    network_plan_free(&b->plan);
    free(b->inputs);
    free(b->outputs);
    free(b->given);
    free(b->layers);
    free(b->seconds);
}

void network_profile_free(struct network_profile *p)
{
    free(p->layers);
    free(p->seconds);
    *p = (struct network_profile){0};
}

/* ---- inputs ---- */

/* Numbers of no meaning: floats in (0, 1), integers and flags of 1. */
static int input_make(const struct onnx_value *v, int64_t batch,
                      const struct network_profile_ask *ask, struct ndarray *out, struct err *e)
{
    struct ndarray sizes;
    uint64_t state = 1;
    int rc = network_sizes_choose(v, batch, ask->dims, ask->n_dims, &sizes, e);
    rc = rc < 0 ? rc : ndarray_make(out, v->type, sizes.n_dims, sizes.dims, UINT64_MAX, e);
    for (int64_t i = 0; rc == 0 && i < out->count; i++)
        if (ndarray_type_is_float(v->type))
            ndarray_set_f64(out, i, random_unit(&state));
        else
            ndarray_set_i64(out, i, 1);
    return rc;
}

/* ---- sections ---- */

struct profile_tools {
    const struct onnx_network *network;
    struct network_facts facts;
    struct nn *nn;
    int *first; /* by layer: its first node */
    int *ends;  /* by section: the layer before which it ends */
    int n_sections;
    double part; /* of the memory that a section may take */
};

/* What the network may take where it is measured. */
static double room_bytes(const struct profile_tools *t)
{
    const struct network_device *d = t->facts.device;
    return (double)(d ? d->backend->memory_free(d->device) : network_limit(t->network));
}

/* One where the network is held whole in its largest batch; else as many layers in each as fit. */
static void sections_choose(struct profile_tools *t, const struct network_profile_ask *ask,
                            const struct network_profile *p)
{
    double room = room_bytes(t) * t->part, weights = 0, values = 0,
           samples = (double)ask->batches[ask->n_batches - 1] / (double)ask->batches[0];
    t->n_sections = 0;
    for (int i = 0; i < p->n_layers; i++) {
        double own = samples * (double)p->layers[i].activation_bytes;
        weights += (double)p->layers[i].param_bytes;
        values = own > values ? own : values;
        if (i > 0 && weights + values > room) {
            t->ends[t->n_sections++] = i;
            weights = (double)p->layers[i].param_bytes;
            values = own;
        }
    }
    t->ends[t->n_sections++] = p->n_layers;
}

static void border_free(struct profile_border *b)
{
    for (int i = 0; i < b->n; i++)
        ndarray_free(&b->arrays[i]);
    free(b->arrays);
    *b = (struct profile_border){0};
}

static int border_take(struct network_plan *p, int at, struct profile_border *out, struct err *e)
{
    out->n = network_plan_border(p, at, NULL, 0);
    out->arrays = calloc((size_t)out->n + 1, sizeof *out->arrays);
    if (!out->arrays) {
        out->n = 0;
        return err_no_memory(e, "a profile");
    }
    network_plan_border(p, at, out->arrays, out->n);
    return 0;
}

/* Takes the place of what *out was. */
static int border_copy(struct network_plan *p, int at, struct profile_border *out, struct err *e)
{
    struct profile_border lies = {0};
    border_free(out);
    int rc = border_take(p, at, &lies, e);
    out->arrays = rc == 0 ? calloc((size_t)lies.n + 1, sizeof *out->arrays) : NULL;
    if (rc == 0 && !out->arrays)
        rc = err_no_memory(e, "a profile");
    for (; rc == 0 && out->n < lies.n; out->n++) {
        const struct ndarray *a = &lies.arrays[out->n];
        rc = ndarray_make(&out->arrays[out->n], a->type, a->n_dims, a->dims, UINT64_MAX, e);
        if (rc < 0)
            break;
        if (a->count > 0)
            memcpy(out->arrays[out->n].data, a->data, ndarray_bytes(a));
    }
    border_free(&lies); /* whose arrays own nothing */
    return rc;
}

static void runs_add(struct network_profile_runs *all, const struct network_profile_runs *one)
{
    all->n_runs = all->n_runs && all->n_runs < one->n_runs ? all->n_runs : one->n_runs;
    all->whole_s += one->whole_s;
    all->sum_s += one->sum_s;
    all->spread = fmax(all->spread, one->spread);
}

/* One section after the other, of which each takes what the one before has made. */
static int section_run(const struct profile_tools *t, const struct network_profile_ask *ask,
                       struct profile_batch *b, int64_t batch, int section,
                       struct profile_border *crosses, struct network_profile_runs *out,
                       struct err *e)
{
    int first_layer = section ? t->ends[section - 1] : 0, n = t->ends[t->n_sections - 1];
    struct network_timing g = {
        .plan = b->plan,
        .first = network_layers_step(b->plan, t->first, n, first_layer),
        .end = network_layers_step(b->plan, t->first, n, t->ends[section]),
        .layers = b->layers,
        .first_layer = first_layer,
        .n_layers = t->ends[section] - first_layer,
        .entering = section ? crosses->arrays : b->inputs,
    };
    struct profile_border enters = {0};
    struct network_profile_runs own = {0};
    if (g.first == g.end) /* of this batch's plan other sections do its work */
        return 0;
    int rc = network_plan_ready(b->plan, g.first, g.end, e);
    rc = rc < 0 ? rc : border_take(b->plan, g.first, &enters, e);
    g.border = enters.arrays;
    g.n_entering = enters.n;
    rc = rc < 0 ? rc
                : network_timing_take(&g, ask, ask->budget_s / ask->n_batches / t->n_sections,
                                      batch, &own, b->seconds + first_layer, e);
    if (rc == 0)
        runs_add(out, &own);
    rc = rc < 0 ? rc : border_copy(b->plan, g.end, crosses, e);
    border_free(&enters);
    network_plan_release(b->plan, g.first, g.end);
    return rc;
}

static int sections_run(const struct profile_tools *t, const struct network_profile_ask *ask,
                        struct profile_batch *b, int64_t batch, struct network_profile_runs *out,
                        struct err *e)
{
    struct profile_border crosses = {0};
    int rc = 0;
    for (int i = 0; i < t->n_sections && rc == 0; i++)
        rc = section_run(t, ask, b, batch, i, &crosses, out, e);
    border_free(&crosses);
    return rc;
}

/* ---- all ---- */

static int batch_open(const struct profile_tools *t, const struct network_profile_ask *ask,
                      int64_t batch, struct profile_batch *b, struct err *e)
{
    const struct onnx *o = b->o;
    int rc = network_sizes_batch_check(o, batch, e);
    b->inputs = calloc((size_t)o->n_inputs + 1, sizeof *b->inputs);
    b->outputs = calloc((size_t)o->n_outputs + 1, sizeof *b->outputs);
    b->given = calloc((size_t)o->n_inputs + 1, sizeof *b->given);
    if (rc == 0 && (!b->inputs || !b->outputs || !b->given))
        return err_no_memory(e, "a profile");
    for (int i = 0; i < o->n_inputs && rc == 0; i++) {
        rc = input_make(&o->values[o->inputs[i]], batch, ask, &b->inputs[i], e);
        b->given[i] = &b->inputs[i];
    }
    rc = rc < 0 ? rc : network_inputs_check(t->network, b->given, e);
    rc = rc < 0 ? rc : network_plan_make(&t->facts, t->nn, b->given, &b->plan, e);
    if (rc < 0)
        return rc;
    b->n_steps = network_plan_describe(b->plan).steps;
    b->layers = calloc((size_t)b->n_steps + 1, sizeof *b->layers);
    b->seconds = calloc((size_t)b->n_steps + 1, sizeof *b->seconds);
    return b->layers && b->seconds ? 0 : err_no_memory(e, "a profile");
}

static void batch_close(const struct profile_tools *t, struct profile_batch *b)
{
    profile_batch_free(b);
    free(b);
    if (t->facts.shelf)
        network_shelf_clear(t->facts.shelf);
}

static struct network_timing batch_timing(const struct profile_batch *b, int n_layers)
{
    return (struct network_timing){.plan = b->plan,
                                   .end = b->n_steps,
                                   .inputs = b->given,
                                   .outputs = b->outputs,
                                   .layers = b->layers,
                                   .n_layers = n_layers};
}

static int profile_size(struct profile_tools *t, const struct network_profile_ask *ask,
                        const struct profile_batch *b, struct network_profile *p, struct err *e)
{
    size_t most = (size_t)b->n_steps + 1;
    p->layers = calloc(most, sizeof *p->layers);
    p->seconds = calloc(most * (size_t)ask->n_batches, sizeof *p->seconds);
    t->ends = calloc(most, sizeof *t->ends);
    p->n_batches = ask->n_batches;
    if (!p->layers || !p->seconds || !t->ends)
        return err_no_memory(e, "a profile");
    p->n_layers = network_profile_layers_make(t->network, b->plan, t->first, p->layers, e);
    if (p->n_layers < 0)
        return p->n_layers;
    sections_choose(t, ask, p);
    return 0;
}

static void outputs_count(const struct profile_batch *b, struct network_profile *p)
{
    struct profile_border last = {0};
    uint64_t bytes = 0;
    if (border_take(b->plan, b->n_steps, &last, &(struct err){0}) == 0)
        for (int i = 0; i < last.n; i++)
            bytes += ndarray_bytes(&last.arrays[i]);
    p->layers[p->n_layers - 1].output_bytes = bytes;
    border_free(&last);
}

static int runs_take(const struct profile_tools *t, struct profile_batch *b, int n_layers,
                     const struct network_profile_ask *ask, int64_t batch,
                     struct network_profile_runs *runs, struct err *e)
{
    const struct network_profile_watch *w = ask->watch;
    const struct network_timing whole = batch_timing(b, n_layers);
    int rc = t->n_sections == 1 ? network_plan_ready(b->plan, 0, b->n_steps, e) : 0;
    if (rc < 0)
        return rc;
    rc = w && w->begins ? w->begins(w->ctx, batch, e) : 0;
    *runs = (struct network_profile_runs){0};
    if (rc == 0)
        rc = t->n_sections > 1 ? sections_run(t, ask, b, batch, runs, e)
                               : network_timing_take(&whole, ask, ask->budget_s / ask->n_batches,
                                                     batch, runs, b->seconds, e);
    if (w && w->ended)
        w->ended(w->ctx, batch);
    return rc;
}

static int batch_run(struct profile_tools *t, struct profile_batch *b, struct network_profile *p,
                     const struct network_profile_ask *ask, int batch, struct err *e)
{
    int rc = runs_take(t, b, p->n_layers, ask, ask->batches[batch], &p->runs[batch], e);
    for (int i = 0; i < SECTION_TRIES && rc == HP_ENOMEM && t->n_sections < p->n_layers; i++) {
        network_plan_release(b->plan, 0, b->n_steps);
        t->part /= 2;
        sections_choose(t, ask, p);
        rc = runs_take(t, b, p->n_layers, ask, ask->batches[batch], &p->runs[batch], e);
    }
    p->n_sections = t->n_sections > p->n_sections ? t->n_sections : p->n_sections;
    return rc;
}

static int batch_measure(struct profile_tools *t, const struct network_profile_ask *ask, int batch,
                         struct network_profile *p, struct err *e)
{
    struct profile_batch *b = calloc(1, sizeof *b);
    if (!b)
        return err_no_memory(e, "a profile");
    b->o = network_onnx(t->network);
    int rc = batch_open(t, ask, ask->batches[batch], b, e);
    if (rc == 0 && batch == 0)
        rc = profile_size(t, ask, b, p, e);
    if (rc == 0) {
        network_profile_steps_assign(b->plan, t->first, p->n_layers, b->layers);
        rc = batch_run(t, b, p, ask, batch, e);
    }
    for (int i = 0; rc == 0 && i < p->n_layers; i++)
        p->seconds[i * p->n_batches + batch] = b->seconds[i];
    if (rc == 0 && batch == 0)
        outputs_count(b, p);
    batch_close(t, b);
    return rc;
}

static int tools_open(struct profile_tools *t, const struct onnx_network *n,
                      const struct network_profile_ask *ask, struct err *e)
{
    *t = (struct profile_tools){.network = n, .part = SECTION_PART};
    t->first = calloc((size_t)network_onnx(n)->n_nodes + 1, sizeof *t->first);
    int rc = t->first ? 0 : err_no_memory(e, "a profile");
    rc = rc < 0 ? rc : network_facts_make(n, ask->device, NULL, &t->facts, e);
    if (rc == 0 && (t->facts.shelf = network_shelf_create(NULL)) == NULL)
        rc = err_no_memory(e, "a profile");
    return rc < 0 ? rc : nn_create(ask->threads, &t->nn, e);
}

static void tools_close(struct profile_tools *t)
{
    nn_destroy(&t->nn);
    network_shelf_destroy(&t->facts.shelf);
    network_facts_free(&t->facts);
    free(t->first);
    free(t->ends);
}

void network_profile_batches(const struct onnx *o, struct network_profile_ask *ask)
{
    int64_t fixed = network_sizes_batch(o);
    if (fixed) {
        ask->batches[ask->n_batches++] = fixed;
        return;
    }
    for (int64_t b = 1; b <= 8; b *= 2)
        ask->batches[ask->n_batches++] = b;
}

int network_profile_measure(const struct onnx_network *n, const struct network_profile_ask *ask,
                            struct network_profile *out, struct err *e)
{
    struct profile_tools t;
    *out = (struct network_profile){0};
    int rc = tools_open(&t, n, ask, e);
    for (int i = 0; i < ask->n_batches && rc == 0; i++)
        rc = batch_measure(&t, ask, i, out, e);
    tools_close(&t);
    if (rc < 0)
        network_profile_free(out);
    return rc;
}

int network_profile_press(const struct onnx_network *n, const struct network_profile_ask *ask,
                          int64_t batch, void (*warm)(void *ctx), void *ctx, struct err *e)
{
    struct profile_tools t;
    struct profile_batch *b = calloc(1, sizeof *b);
    if (!b)
        return err_no_memory(e, "a profile");
    b->o = network_onnx(n);
    int rc = tools_open(&t, n, ask, e);
    rc = rc < 0 ? rc : batch_open(&t, ask, batch, b, e);
    rc = rc < 0 ? rc : network_plan_ready(b->plan, 0, b->n_steps, e);
    if (rc == 0) {
        const struct network_timing whole = batch_timing(b, 0);
        rc = network_timing_press(&whole, ask->env, warm, ctx, e);
    }
    batch_close(&t, b);
    tools_close(&t);
    return rc == HP_ECANCELED ? 0 : rc;
}
