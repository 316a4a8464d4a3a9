#include "agent/engine/network/network_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_layers.h"
#include "common/doubles.h"

enum { LEAST_RUNS = 11, MOST_RUNS = 400 };

static const double LEAST_S = 1e-9; /* of a step: nothing takes no time */

/* One batch size while it is measured. */
struct profile_batch {
    const struct onnx *o;
    struct network_plan *plan;
    struct ndarray *inputs, *outputs;
    const struct ndarray **given; /* the inputs */
    int *layers;                  /* by step */
    uint64_t *stamps_ns;          /* [n_steps + 1] */
    double *times;                /* [MOST_RUNS * n_layers] of timed runs */
    double sums[MOST_RUNS], wholes[MOST_RUNS];
    double look_s; /* that each step's time has too much */
    int n_steps, n_layers, n_runs;
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
    free(b->stamps_ns);
    free(b->times);
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

/* ---- layers ---- */

static uint64_t weight_bytes(const struct ndarray *a)
{
    const struct onnx_rows *rows = onnx_rows_of(a);
    return rows ? onnx_rows_bytes(rows) : ndarray_bytes(a);
}

/* Of weights that the layer has not had before: seen[value] is the last layer that had it, counted
 * from 1. What two layers read each of them holds, wherever it may run. */
static uint64_t node_weights(const struct onnx_network *n, int node, int layer, int *seen)
{
    const struct onnx *o = network_onnx(n);
    uint64_t bytes = 0;
    for (int i = 0; i < o->nodes[node].n_inputs; i++) {
        int value = o->nodes[node].inputs[i];
        const struct ndarray *a = value >= 0 ? network_constant(n, value) : NULL;
        if (!a || seen[value] == layer + 1)
            continue;
        seen[value] = layer + 1;
        bytes += weight_bytes(a);
    }
    return bytes;
}

/* The first node that is done from a layer's first step on: that step may only move what it needs.
 */
static int layer_node(const struct profile_batch *b, int step)
{
    while (step + 1 < b->n_steps && network_plan_node(b->plan, step) < 0)
        step++;
    int node = network_plan_node(b->plan, step);
    return node < 0 ? 0 : node;
}

/* Layers of the smallest batch's plan. first[i] is the first node of layer i. */
static int layers_make(const struct onnx_network *n, const struct profile_batch *b, int *first,
                       struct network_profile *p, struct err *e)
{
    const struct onnx *o = network_onnx(n);
    int *seen = calloc((size_t)o->n_values + 1, sizeof *seen);
    if (!seen)
        return err_no_memory(e, "a profile");
    p->n_layers = network_layers_find(b->plan, first, e);
    for (int i = 0; i < p->n_layers; i++) {
        int step = network_layers_step(b->plan, first, p->n_layers, i);
        const struct onnx_node *node = &o->nodes[layer_node(b, step)];
        p->layers[i] = (struct network_profile_layer){.name = node->name, .op = node->op};
        if (i > 0)
            p->layers[i - 1].output_bytes = network_plan_crossing(b->plan, step);
        p->layers[i].activation_bytes = network_plan_peak(
            b->plan, step, network_layers_step(b->plan, first, p->n_layers, i + 1));
    }
    int layer = 0;
    for (int node = 0; node < o->n_nodes && p->n_layers > 0; node++) {
        while (layer + 1 < p->n_layers && first[layer + 1] <= node)
            layer++;
        if (!network_node_is_folded(n, node))
            p->layers[layer].param_bytes += node_weights(n, node, layer, seen);
    }
    free(seen);
    return p->n_layers < 0 ? p->n_layers : 0;
}

/* Steps of any batch's plan by the same layers. */
static void steps_assign(struct profile_batch *b, const int *first, int n_layers)
{
    for (int layer = 0; layer < n_layers; layer++) {
        int end = network_layers_step(b->plan, first, n_layers, layer + 1);
        for (int i = network_layers_step(b->plan, first, n_layers, layer); i < end; i++)
            b->layers[i] = layer;
    }
}

/* ---- times ---- */

/* The limits of the middle half of what was measured. */
static void middle_half(const double *x, int n, double *low, double *high)
{
    double sorted[MOST_RUNS];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    doubles_sort(sorted, (size_t)n);
    *low = sorted[n / 4];
    *high = sorted[n - 1 - n / 4];
}

/* Mean of the middle half, and twice its standard error as a part of it: of a normal distribution
 * the middle half is 1.35 standard deviations wide. */
static double middle_mean(const double *x, int n, double *spread)
{
    double low, high, sum = 0;
    int count = 0;
    middle_half(x, n, &low, &high);
    for (int i = 0; i < n; i++)
        if (x[i] >= low && x[i] <= high) {
            sum += x[i];
            count++;
        }
    *spread = 2 * (high - low) / 1.35 / sqrt(n) / (sum / count);
    return sum / count;
}

static int whole_run(struct profile_batch *b, const struct env *env, double *seconds, struct err *e)
{
    uint64_t begin_ns = env_now_ns(env);
    int rc = network_plan_run(b->plan, b->given, b->outputs, e);
    *seconds = (double)(env_now_ns(env) - begin_ns) * 1e-9;
    return rc;
}

/* What a look at the clock takes itself: steps of a network of a few microseconds take little
 * longer. */
static double look_s(const struct env *env)
{
    enum { ROUNDS = 16, LOOKS = 64 };
    uint64_t least = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = env_now_ns(env), end_ns = begin_ns;
        for (int i = 0; i < LOOKS; i++)
            end_ns = env_now_ns(env);
        least = end_ns - begin_ns < least ? end_ns - begin_ns : least;
    }
    return (double)least * 1e-9 / LOOKS;
}

static int timed_run(struct profile_batch *b, const struct env *env, struct err *e)
{
    double *times = b->times + (size_t)b->n_runs * (size_t)b->n_layers, sum = 0;
    int rc = network_plan_run_timed(b->plan, env, b->stamps_ns, b->given, b->outputs, e);
    for (int i = 0; i < b->n_steps; i++) {
        double s = (double)(b->stamps_ns[i + 1] - b->stamps_ns[i]) * 1e-9 - b->look_s;
        s = s > LEAST_S ? s : LEAST_S;
        times[b->layers[i]] += s;
        sum += s;
    }
    b->sums[b->n_runs] = sum;
    return rc;
}

static int runs_take(struct profile_batch *b, const struct network_profile_ask *ask, int64_t batch,
                     struct network_profile_runs *runs, struct err *e)
{
    uint64_t end_ns = env_now_ns(ask->env) + (uint64_t)(ask->budget_s / ask->n_batches * 1e9);
    double unused, timed_spread = 1;
    int rc = whole_run(b, ask->env, &unused, e); /* touches memory and makes outputs */
    runs->spread = 1;
    b->look_s = ask->device ? 0 : look_s(ask->env); /* a device has a clock of its own */
    while (rc == 0 && b->n_runs < MOST_RUNS &&
           (b->n_runs < LEAST_RUNS ||
            (fmax(runs->spread, timed_spread) > ask->spread && env_now_ns(ask->env) < end_ns))) {
        rc = whole_run(b, ask->env, &b->wholes[b->n_runs], e);
        rc = rc < 0 ? rc : timed_run(b, ask->env, e);
        if (rc < 0)
            return rc;
        runs->n_runs = ++b->n_runs;
        runs->whole_s = middle_mean(b->wholes, b->n_runs, &runs->spread);
        runs->sum_s = middle_mean(b->sums, b->n_runs, &timed_spread);
        if (ask->watch && ask->watch->goes_on)
            ask->watch->goes_on(ask->watch->ctx, batch, runs);
    }
    runs->spread = fmax(runs->spread, timed_spread);
    return rc;
}

/* A layer's time is its mean over the timed runs of the middle half, so that layers add up. */
static void times_note(const struct profile_batch *b, int batch, struct network_profile *p)
{
    double low, high;
    int count = 0;
    middle_half(b->sums, b->n_runs, &low, &high);
    for (int run = 0; run < b->n_runs; run++) {
        if (b->sums[run] < low || b->sums[run] > high)
            continue;
        count++;
        for (int i = 0; i < p->n_layers; i++)
            p->seconds[i * p->n_batches + batch] += b->times[run * p->n_layers + i];
    }
    for (int i = 0; i < p->n_layers; i++)
        p->seconds[i * p->n_batches + batch] /= count;
}

/* ---- all ---- */

struct profile_tools {
    const struct onnx_network *network;
    struct network_facts facts;
    struct nn *nn;
    int *first; /* by layer: its first node */
};

static int batch_open(const struct profile_tools *t, const struct network_profile_ask *ask,
                      int64_t batch, struct profile_batch *b, struct err *e)
{
    const struct onnx *o = b->o;
    int rc = 0;
    b->inputs = calloc((size_t)o->n_inputs + 1, sizeof *b->inputs);
    b->outputs = calloc((size_t)o->n_outputs + 1, sizeof *b->outputs);
    b->given = calloc((size_t)o->n_inputs + 1, sizeof *b->given);
    if (!b->inputs || !b->outputs || !b->given)
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
    b->stamps_ns = calloc((size_t)b->n_steps + 1, sizeof *b->stamps_ns);
    return b->layers && b->stamps_ns ? 0 : err_no_memory(e, "a profile");
}

static int profile_size(const struct profile_tools *t, const struct network_profile_ask *ask,
                        const struct profile_batch *b, struct network_profile *p, struct err *e)
{
    size_t most = (size_t)b->n_steps + 1;
    p->layers = calloc(most, sizeof *p->layers);
    p->seconds = calloc(most * (size_t)ask->n_batches, sizeof *p->seconds);
    p->n_batches = ask->n_batches;
    if (!p->layers || !p->seconds)
        return err_no_memory(e, "a profile");
    return layers_make(t->network, b, t->first, p, e);
}

static void outputs_count(const struct profile_batch *b, struct network_profile *p)
{
    uint64_t bytes = 0;
    for (int i = 0; i < b->o->n_outputs; i++)
        bytes += ndarray_bytes(&b->outputs[i]);
    p->layers[p->n_layers - 1].output_bytes = bytes;
}

static int batch_run(struct profile_batch *b, const struct network_profile_ask *ask, int64_t batch,
                     struct network_profile_runs *runs, struct err *e)
{
    const struct network_profile_watch *w = ask->watch;
    int rc = w && w->begins ? w->begins(w->ctx, batch, e) : 0;
    rc = rc < 0 ? rc : runs_take(b, ask, batch, runs, e);
    if (w && w->ended)
        w->ended(w->ctx, batch);
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
        b->n_layers = p->n_layers;
        b->times = calloc((size_t)MOST_RUNS * (size_t)p->n_layers, sizeof *b->times);
        rc = b->times ? 0 : err_no_memory(e, "a profile");
    }
    if (rc == 0) {
        steps_assign(b, t->first, p->n_layers);
        rc = batch_run(b, ask, ask->batches[batch], &p->runs[batch], e);
    }
    if (rc == 0) {
        times_note(b, batch, p);
        if (batch == 0)
            outputs_count(b, p);
    }
    profile_batch_free(b);
    free(b);
    return rc;
}

static int tools_open(struct profile_tools *t, const struct onnx_network *n,
                      const struct network_profile_ask *ask, struct err *e)
{
    *t = (struct profile_tools){.network = n};
    t->first = calloc((size_t)network_onnx(n)->n_nodes + 1, sizeof *t->first);
    int rc = t->first ? 0 : err_no_memory(e, "a profile");
    rc = rc < 0 ? rc : network_facts_make(n, ask->device, &t->facts, e);
    return rc < 0 ? rc : nn_create(ask->threads, &t->nn, e);
}

static void tools_close(struct profile_tools *t)
{
    nn_destroy(&t->nn);
    network_facts_free(&t->facts);
    free(t->first);
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
    double unused;
    if (!b)
        return err_no_memory(e, "a profile");
    b->o = network_onnx(n);
    int rc = tools_open(&t, n, ask, e);
    rc = rc < 0 ? rc : batch_open(&t, ask, batch, b, e);
    for (bool first = true; rc == 0; first = false) {
        rc = whole_run(b, ask->env, &unused, e);
        if (rc == 0 && first)
            warm(ctx);
    }
    profile_batch_free(b);
    free(b);
    tools_close(&t);
    return rc == HP_ECANCELED ? 0 : rc;
}
