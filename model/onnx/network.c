#include "model/onnx/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "model/onnx/call.h"

struct onnx_network {
    const struct onnx *o;
    const struct onnx_operator **operators; /* by node */
    struct ndarray *constants;              /* by value; of those that are constant */
    bool *is_constant;                      /* by value */
    bool *is_folded;                        /* by node */
    int *last_reader;                       /* by value: node; -1: none; n_nodes: the caller */
    uint64_t limit_bytes, folded_bytes;
    int n_folded;
    const atomic_bool *stop; /* NULL: nobody stops runs */
};

/* Values while a stage runs. */
struct state {
    struct ndarray *arrays; /* by value; those that are there have data */
    uint64_t bytes;
};

const struct onnx *network_onnx(const struct onnx_network *n)
{
    return n->o;
}

int network_run_nodes(const struct onnx_network *n)
{
    return n->o->n_nodes - n->n_folded;
}

/* ---- one node ---- */

const struct ndarray *network_constant(const struct onnx_network *n, int value)
{
    return n->is_constant[value] ? &n->constants[value] : NULL;
}

bool network_node_is_folded(const struct onnx_network *n, int node)
{
    return n->is_folded[node];
}

uint64_t network_folded_bytes(const struct onnx_network *n)
{
    return n->folded_bytes;
}

uint64_t network_limit(const struct onnx_network *n)
{
    return n->limit_bytes;
}

static const char *node_text(const struct onnx_network *n, int node, char *out, size_t size)
{
    const struct onnx_node *k = &n->o->nodes[node];
    const char *made =
        k->n_outputs > 0 && k->outputs[0] >= 0 ? n->o->values[k->outputs[0]].name : "?";
    snprintf(out, size, "node %.120s (%.60s)", *k->name ? k->name : made, k->op);
    return out;
}

static const struct ndarray *value_array(const struct onnx_network *n, const struct state *s,
                                         int value)
{
    return n->is_constant[value] ? &n->constants[value] : &s->arrays[value];
}

struct onnx_call network_call(const struct onnx_network *n, int node,
                              const struct ndarray *const *in, struct err *e)
{
    const struct onnx_node *k = &n->o->nodes[node];
    return (struct onnx_call){.node = k,
                              .opset = n->o->opset,
                              .in = in,
                              .n_in = k->n_inputs,
                              .n_out = k->n_outputs,
                              .limit = n->limit_bytes,
                              .op = n->operators[node],
                              .e = e};
}

static int call_run(const struct onnx_network *n, int node, struct onnx_call *call)
{
    int rc = call->op->run(call);
    if (rc == CALL_SHAPED || (rc == 0 && call->shapes_only))
        return call->n_shaped == call->n_out
                   ? 0
                   : err_set(call->e, HP_EUNSUPPORTED, "its sizes are not known");
    char text[256];
    if (rc < 0)
        err_at(call->e, "%s", node_text(n, node, text, sizeof text));
    return rc;
}

int network_node_run(const struct onnx_network *n, int node, const struct ndarray *const *in,
                     bool shapes_only, struct ndarray *outputs, struct err *e)
{
    struct onnx_call call = network_call(n, node, in, e);
    call.out = outputs;
    call.shapes_only = shapes_only;
    int rc = call_run(n, node, &call);
    for (int i = 0; rc < 0 && i < call.n_out; i++)
        ndarray_free(&outputs[i]);
    return rc;
}

/* Computes a node's outputs into `outputs`, which are zero; what nobody wants is made too. */
static int node_compute(const struct onnx_network *n, const struct state *s, int node,
                        struct ndarray *outputs, struct err *e)
{
    const struct onnx_node *k = &n->o->nodes[node];
    const struct ndarray **in = calloc((size_t)k->n_inputs + 1, sizeof *in);
    if (!in)
        return err_no_memory(e, "a node's inputs");
    for (int i = 0; i < k->n_inputs; i++)
        in[i] = k->inputs[i] < 0 ? NULL : value_array(n, s, k->inputs[i]);
    struct onnx_call call = network_call(n, node, in, e);
    call.out = outputs;
    call.limit -= s->bytes;
    int rc = call_run(n, node, &call);
    free(in);
    return rc;
}

static void arrays_free(struct ndarray *arrays, int n)
{
    for (int i = 0; arrays && i < n; i++)
        ndarray_free(&arrays[i]);
    free(arrays);
}

/* Runs a node; its outputs become values of the state, or constants. */
static int node_run(const struct onnx_network *n, struct state *s, int node, struct ndarray *into,
                    struct err *e)
{
    const struct onnx_node *k = &n->o->nodes[node];
    struct ndarray *outputs = calloc((size_t)k->n_outputs + 1, sizeof *outputs);
    int rc = outputs ? node_compute(n, s, node, outputs, e) : err_no_memory(e, "a node's outputs");
    for (int i = 0; rc == 0 && i < k->n_outputs; i++) {
        if (k->outputs[i] < 0)
            continue;
        into[k->outputs[i]] = outputs[i];
        s->bytes += ndarray_bytes(&outputs[i]);
        outputs[i] = (struct ndarray){0};
    }
    arrays_free(outputs, k->n_outputs);
    return rc;
}

/* ---- opening ---- */

static int nodes_check(struct onnx_network *n, const char *path, struct err *e)
{
    for (int i = 0; i < n->o->n_nodes; i++) {
        const struct onnx_node *k = &n->o->nodes[i];
        const char *made =
            k->n_outputs > 0 && k->outputs[0] >= 0 ? n->o->values[k->outputs[0]].name : "?";
        int rc = onnx_operator_check(k, made, e);
        if (rc < 0)
            return err_at(e, "%s", path);
        n->operators[i] = onnx_operator_find(k->domain, k->op);
        for (int in = 0; in < k->n_inputs; in++)
            if (k->inputs[in] >= 0)
                n->last_reader[k->inputs[in]] = i;
    }
    for (int i = 0; i < n->o->n_outputs; i++)
        n->last_reader[n->o->outputs[i]] = n->o->n_nodes;
    return 0;
}

static bool node_is_constant(const struct onnx_network *n, const struct onnx_node *k)
{
    for (int i = 0; i < k->n_inputs; i++)
        if (k->inputs[i] >= 0 && !n->is_constant[k->inputs[i]])
            return false;
    return true;
}

static int constants_fold(struct onnx_network *n, const char *path, struct err *e)
{
    struct state s = {0};
    for (int v = 0; v < n->o->n_values; v++)
        if (n->o->values[v].weight) {
            n->constants[v] = *n->o->values[v].weight; /* borrowed: the file has the data */
            n->constants[v].owned = false;
            n->is_constant[v] = true;
        }
    for (int i = 0; i < n->o->n_nodes; i++) {
        const struct onnx_node *k = &n->o->nodes[i];
        if (!node_is_constant(n, k))
            continue;
        int rc = node_run(n, &s, i, n->constants, e);
        if (rc < 0)
            return err_at(e, "%s", path);
        for (int out = 0; out < k->n_outputs; out++)
            if (k->outputs[out] >= 0)
                n->is_constant[k->outputs[out]] = true;
        n->is_folded[i] = true;
        n->n_folded++;
    }
    n->folded_bytes = s.bytes;
    n->limit_bytes -= s.bytes;
    return 0;
}

void network_close(struct onnx_network **n)
{
    struct onnx_network *k = *n;
    *n = NULL;
    if (!k)
        return;
    arrays_free(k->constants, k->o ? k->o->n_values : 0);
    free(k->operators);
    free(k->is_folded);
    free(k->is_constant);
    free(k->last_reader);
    onnx_close(&k->o);
    free(k);
}

int network_make(const char *name, const struct onnx **o, uint64_t limit_bytes,
                 struct onnx_network **out, struct err *e)
{
    struct onnx_network *n = calloc(1, sizeof *n);
    *out = n;
    if (!n) {
        onnx_close(o);
        return err_no_memory(e, "%s", name);
    }
    n->limit_bytes = limit_bytes;
    n->o = *o;
    *o = NULL;
    size_t values = (size_t)n->o->n_values + 1, nodes = (size_t)n->o->n_nodes + 1;
    n->operators = calloc(nodes, sizeof *n->operators);
    n->is_folded = calloc(nodes, sizeof *n->is_folded);
    n->constants = calloc(values, sizeof *n->constants);
    n->is_constant = calloc(values, sizeof *n->is_constant);
    n->last_reader = calloc(values, sizeof *n->last_reader);
    int rc = n->operators && n->is_folded && n->constants && n->is_constant && n->last_reader
                 ? 0
                 : err_no_memory(e, "%s", name);
    for (int v = 0; rc == 0 && v < n->o->n_values; v++)
        n->last_reader[v] = -1;
    rc = rc < 0 ? rc : nodes_check(n, name, e);
    rc = rc < 0 ? rc : constants_fold(n, name, e);
    rc = rc < 0 ? rc : onnx_check(n->o, e);
    if (rc < 0)
        network_close(out);
    return rc;
}

int network_open(const char *path, uint64_t limit_bytes, struct onnx_network **out, struct err *e)
{
    const struct onnx *o;
    int rc = onnx_open(path, &o, e);
    return rc < 0 ? rc : network_make(path, &o, limit_bytes, out, e);
}

/* ---- inputs ---- */

const char *network_input_text(const struct onnx_value *v, char out[NETWORK_INPUT_TEXT])
{
    size_t at = (size_t)snprintf(out, NETWORK_INPUT_TEXT, "%s",
                                 v->type ? ndarray_type_name(v->type) : "any type");
    for (int d = 0; d < v->n_dims && at < NETWORK_INPUT_TEXT; d++) {
        const struct onnx_dim *dim = &v->dims[d];
        const char *between = d ? " x" : "";
        if (dim->size >= 0)
            at += (size_t)snprintf(out + at, NETWORK_INPUT_TEXT - at, "%s %lld", between,
                                   (long long)dim->size);
        else
            at += (size_t)snprintf(out + at, NETWORK_INPUT_TEXT - at, "%s %.60s", between,
                                   *dim->symbol ? dim->symbol : "any");
    }
    return out;
}

/* Sizes of one symbol are the same wherever it stands. */
static int64_t symbol_size(const struct onnx_network *n, const struct ndarray *const *inputs,
                           const char *symbol)
{
    for (int i = 0; *symbol && i < n->o->n_inputs; i++) {
        const struct onnx_value *v = &n->o->values[n->o->inputs[i]];
        for (int d = 0; d < v->n_dims && v->n_dims == inputs[i]->n_dims; d++)
            if (v->dims[d].size < 0 && strcmp(v->dims[d].symbol, symbol) == 0)
                return inputs[i]->dims[d];
    }
    return -1;
}

static int input_check(const struct onnx_network *n, const struct ndarray *const *inputs, int i,
                       struct err *e)
{
    const struct onnx_value *v = &n->o->values[n->o->inputs[i]];
    const struct ndarray *a = inputs[i];
    bool fits = (!v->type || v->type == a->type) && (v->n_dims < 0 || v->n_dims == a->n_dims);
    for (int d = 0; fits && d < v->n_dims; d++) {
        int64_t wanted =
            v->dims[d].size >= 0 ? v->dims[d].size : symbol_size(n, inputs, v->dims[d].symbol);
        fits = wanted < 0 || wanted == a->dims[d];
    }
    char wanted[NETWORK_INPUT_TEXT], got[ND_SHAPE_TEXT];
    return fits ? 0
                : err_set(e, HP_EINVAL, "input %s is %s %s; the model wants %s", v->name,
                          ndarray_type_name(a->type), ndarray_shape_text(a, got),
                          network_input_text(v, wanted));
}

int network_inputs_check(const struct onnx_network *n, const struct ndarray *const *inputs,
                         struct err *e)
{
    int rc = 0;
    for (int i = 0; i < n->o->n_inputs && rc == 0; i++)
        rc = input_check(n, inputs, i, e);
    return rc;
}

/* ---- stages ---- */

/* Whether a run makes a value before node `at` (or it enters) and reads it from there on. */
static bool value_crosses(const struct onnx_network *n, int value, int at)
{
    const struct onnx_value *v = &n->o->values[value];
    return !n->is_constant[value] && v->maker < at && n->last_reader[value] >= at;
}

static int crossing_count(const struct onnx_network *n, int at)
{
    int count = 0;
    for (int v = 0; v < n->o->n_values; v++)
        count += value_crosses(n, v, at);
    return count;
}

/* Where the stage after `done` run nodes of all begins: near there, where fewest values cross. */
static int cut_near(const struct onnx_network *n, int done, int span, int first)
{
    int best = -1, best_count = 0, best_far = 0, ran = 0;
    for (int i = 0; i < n->o->n_nodes; i++) {
        int far = abs(ran - done);
        if (i > first && ran > 0 && far <= span && !n->is_folded[i]) {
            int count = crossing_count(n, i);
            if (best < 0 || count < best_count || (count == best_count && far < best_far)) {
                best = i;
                best_count = count;
                best_far = far;
            }
        }
        ran += !n->is_folded[i];
    }
    return best;
}

/* What crosses into the stage that begins at `at`, as bytes and back: nothing else is left. */
static int state_hand_on(const struct onnx_network *n, struct state *s, int at, struct err *e)
{
    struct buffer wire = {0};
    int rc = 0;
    for (int v = 0; v < n->o->n_values; v++) {
        if (value_crosses(n, v, at))
            ndarray_pack(&s->arrays[v], &wire);
        ndarray_free(&s->arrays[v]);
    }
    s->bytes = 0;
    struct reader r = reader_of(wire.data, wire.size);
    if (wire.failed)
        rc = err_no_memory(e, "what crosses between two stages");
    for (int v = 0; rc == 0 && v < n->o->n_values; v++)
        if (value_crosses(n, v, at)) {
            rc = ndarray_unpack(&s->arrays[v], &r, n->limit_bytes - s->bytes, e);
            s->bytes += rc < 0 ? 0 : ndarray_bytes(&s->arrays[v]);
        }
    buffer_free(&wire);
    return rc;
}

/* Values that nobody reads any more. */
static void state_drop(const struct onnx_network *n, struct state *s, int node)
{
    const struct onnx_node *k = &n->o->nodes[node];
    for (int i = 0; i < k->n_inputs + k->n_outputs; i++) {
        int v = i < k->n_inputs ? k->inputs[i] : k->outputs[i - k->n_inputs];
        if (v < 0 || n->last_reader[v] > node || !s->arrays[v].data)
            continue;
        s->bytes -= s->arrays[v].owned ? ndarray_bytes(&s->arrays[v]) : 0;
        ndarray_free(&s->arrays[v]);
    }
}

void network_stop_on(struct onnx_network *n, const atomic_bool *stop)
{
    n->stop = stop;
}

int network_stopped(const struct onnx_network *n, struct err *e)
{
    return n->stop && atomic_load_explicit(n->stop, memory_order_relaxed)
               ? err_set(e, HP_ECANCELED, "the run was given up")
               : 0;
}

static int stages_run(const struct onnx_network *n, int n_stages, struct state *s, struct err *e)
{
    int n_run = network_run_nodes(n), rc = 0, stage = 1, first = 0, cut = -1;
    if (n_stages < 1 || n_stages > (n_run > 0 ? n_run : 1))
        return err_set(e, HP_EINVAL, "%d stages of %d nodes", n_stages, n_run);
    for (int i = 0; i < n->o->n_nodes && rc == 0; i++) {
        if (stage < n_stages && cut < 0) {
            int done = (int)((int64_t)n_run * stage / n_stages);
            cut = cut_near(n, done, n_run / (2 * n_stages), first);
            if (cut < 0)
                stage = n_stages;
        }
        if (i == cut) {
            rc = state_hand_on(n, s, i, e);
            first = i;
            cut = -1;
            stage++;
        }
        rc = rc < 0 ? rc : network_stopped(n, e);
        if (rc == 0 && !n->is_folded[i])
            rc = node_run(n, s, i, s->arrays, e);
        if (rc == 0)
            state_drop(n, s, i);
    }
    return rc;
}

static int outputs_take(const struct onnx_network *n, struct state *s, struct ndarray *outputs,
                        struct err *e)
{
    int rc = 0;
    for (int i = 0; i < n->o->n_outputs && rc == 0; i++) {
        const struct ndarray *a = value_array(n, s, n->o->outputs[i]);
        rc = ndarray_make(&outputs[i], a->type, a->n_dims, a->dims, UINT64_MAX, e);
        if (rc == 0 && a->count > 0)
            memcpy(outputs[i].data, a->data, ndarray_bytes(a));
    }
    return rc;
}

int network_run(const struct onnx_network *n, int n_stages, const struct ndarray *const *inputs,
                struct ndarray *outputs, struct err *e)
{
    struct state s = {.arrays = calloc((size_t)n->o->n_values + 1, sizeof *s.arrays)};
    int rc = s.arrays ? 0 : err_no_memory(e, "a run");
    for (int i = 0; i < n->o->n_inputs && rc == 0; i++) {
        rc = input_check(n, inputs, i, e);
        s.arrays[n->o->inputs[i]] = *inputs[i]; /* borrowed */
        s.arrays[n->o->inputs[i]].owned = false;
    }
    rc = rc < 0 ? rc : stages_run(n, n_stages, &s, e);
    rc = rc < 0 ? rc : outputs_take(n, &s, outputs, e);
    rc = rc < 0 ? rc : onnx_check(n->o, e);
    for (int i = 0; rc < 0 && i < n->o->n_outputs; i++)
        ndarray_free(&outputs[i]);
    arrays_free(s.arrays, n->o->n_values);
    return rc;
}
