/* Which nodes a primitive's post-operations do: functions, residuals, scales. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"
#include "model/onnx/call.h"

static int readers_of(const struct network_plan *p, int value, const int **nodes)
{
    const struct network_facts *f = p->facts;
    *nodes = f->nodes + f->first[value];
    return f->is_output[value] ? -1 : f->first[value + 1] - f->first[value];
}

int network_only_reader(const struct network_plan *p, int value)
{
    const int *nodes;
    return readers_of(p, value, &nodes) == 1 ? nodes[0] : -1;
}

bool network_known_number(const struct network_plan *p, int value, double *out)
{
    if (value < 0)
        return false;
    const struct ndarray *a = network_constant(p->network, value);
    if (!a)
        a = p->values[value].is_known ? &p->values[value].array : NULL;
    if (!a || a->count != 1 || !ndarray_type_is_float(a->type))
        return false;
    *out = ndarray_f64(a, 0);
    return true;
}

/* The one output of a node, where its operator is this one. */
static int node_makes(const struct network_plan *p, int node, const char *op)
{
    const struct onnx_node *k = node < 0 ? NULL : &p->o->nodes[node];
    return k && strcmp(k->op, op) == 0 && !*k->domain && k->n_outputs == 1 ? k->outputs[0] : -1;
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(b);
}

/* The other input of a node of two; -1: it reads `value` twice or not at all. */
static int other_input(const struct onnx_node *k, int value)
{
    if (k->n_inputs != 2 || (k->inputs[0] == value) == (k->inputs[1] == value))
        return -1;
    return k->inputs[k->inputs[0] == value];
}

/* Whether the node is `op` of `value` and a number near `wanted`, either way round. */
static bool has_number(const struct network_plan *p, int node, const char *op, int value,
                       double wanted)
{
    double number;
    return node_makes(p, node, op) >= 0 &&
           network_known_number(p, other_input(&p->o->nodes[node], value), &number) &&
           is_near(number, wanted);
}

static struct nn_post *post_add(struct network_tail *t, enum nn_post_kind kind)
{
    struct nn_post *post = &t->posts.list[t->posts.n];
    *post = (struct nn_post){.kind = kind};
    t->others[t->posts.n++] = -1;
    return post;
}

static void function_add(struct network_tail *t, enum nn_function f, double a, double b)
{
    struct nn_post *post = post_add(t, NN_POST_FUNCTION);
    post->function = f;
    post->a = (float)a;
    post->b = (float)b;
}

/* ---- one node ---- */

static bool clip_add(const struct network_plan *p, const struct onnx_call *c,
                     struct network_tail *t)
{
    double low = -INFINITY, high = INFINITY;
    const struct onnx_node *k = c->node;
    if (k->n_inputs > 1 && k->inputs[1] >= 0 && !network_known_number(p, k->inputs[1], &low))
        return false;
    if (k->n_inputs > 2 && k->inputs[2] >= 0 && !network_known_number(p, k->inputs[2], &high))
        return false;
    low = fmax(call_float(c, "min", low), -3.4028234663852886e38);
    high = fmin(call_float(c, "max", high), 3.4028234663852886e38);
    function_add(t, NN_CLIP, low, high);
    return true;
}

static bool function_node(const struct network_plan *p, int node, struct network_tail *t)
{
    static const struct {
        const char *op;
        enum nn_function f;
        double a; /* where no attribute says so */
    } functions[] = {{"Relu", NN_RELU, 0},       {"LeakyRelu", NN_RELU, 0.01},
                     {"Sigmoid", NN_SIGMOID, 0}, {"Tanh", NN_TANH, 0},
                     {"Elu", NN_ELU, 1},         {"HardSwish", NN_HARD_SWISH, 1},
                     {"Mish", NN_MISH, 0}};
    struct onnx_call c = network_call(p->network, node, NULL, NULL);
    const char *op = c.node->op;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(op, functions[i].op) == 0) {
            function_add(t, functions[i].f, call_float(&c, "alpha", functions[i].a), 0);
            return true;
        }
    if (strcmp(op, "Clip") == 0)
        return clip_add(p, &c, t);
    if (strcmp(op, "Gelu") == 0) {
        bool by_tanh = strcmp(call_string(&c, "approximate", "none"), "tanh") == 0;
        function_add(t, by_tanh ? NN_GELU_TANH : NN_GELU_ERF, 0, 0);
        return true;
    }
    if (strcmp(op, "HardSigmoid") == 0 && t->posts.n + 2 <= NN_POSTS) {
        function_add(t, NN_LINEAR, call_float(&c, "alpha", 0.2), call_float(&c, "beta", 0.5));
        function_add(t, NN_CLIP, 0, 1);
        return true;
    }
    return false;
}

/* Add of what is there already, Mul by what is known: of the same sizes, or one number a channel.
 */
static bool binary_node(const struct network_plan *p, int node, struct network_tail *t)
{
    const struct onnx_node *k = &p->o->nodes[node];
    bool adds = strcmp(k->op, "Add") == 0;
    int other = adds || strcmp(k->op, "Mul") == 0 ? other_input(k, t->value) : -1;
    if (other < 0 || !network_is_f32(p, other))
        return false;
    const struct network_value *v = &p->values[other], *mine = &p->values[t->value];
    if (!v->is_known && (!v->has_view || !adds))
        return false;
    bool same = ndarray_same_shape(&v->array, &mine->array), each = v->array.count == 1;
    int axis = t->layout == LAYOUT_LAST ? 1 : mine->array.n_dims - 1;
    int channel = axis - (mine->array.n_dims - v->array.n_dims);
    if (!same && !each && v->is_known && channel >= 0)
        each = v->array.count == v->array.dims[channel] && v->array.count == mine->array.dims[axis];
    if ((!same && !each) || v->array.n_dims > mine->array.n_dims)
        return false;
    post_add(t, adds ? NN_POST_ADD : NN_POST_MUL);
    t->others[t->posts.n - 1] = other;
    return true;
}

/* ---- several ---- */

/* x * sigmoid(x), and with HardSigmoid the hard one. */
static int gate_find(const struct network_plan *p, const int nodes[2], struct network_tail *t)
{
    for (int i = 0; i < 2; i++) {
        int gate = node_makes(p, nodes[i], "Sigmoid"),
            hard = node_makes(p, nodes[i], "HardSigmoid");
        int made = gate >= 0 ? gate : hard, product = nodes[!i];
        if (made < 0 || network_only_reader(p, made) != product ||
            node_makes(p, product, "Mul") < 0 ||
            other_input(&p->o->nodes[product], t->value) != made)
            continue;
        if (hard >= 0) {
            struct onnx_call c = network_call(p->network, nodes[i], NULL, NULL);
            if (!is_near(call_float(&c, "alpha", 0.2), 1.0 / 6) ||
                !is_near(call_float(&c, "beta", 0.5), 0.5))
                continue;
        }
        function_add(t, gate >= 0 ? NN_SWISH : NN_HARD_SWISH, 1, 0);
        t->nodes[t->n_nodes++] = nodes[i];
        t->nodes[t->n_nodes++] = product;
        return p->o->nodes[product].outputs[0];
    }
    return -1;
}

/* GELU in five nodes: x / sqrt(2), Erf, + 1, * x, * 1/2. */
static int gelu_find(const struct network_plan *p, const int nodes[2], struct network_tail *t)
{
    for (int i = 0; i < 2; i++) {
        int chain[5] = {nodes[i]};
        if (!has_number(p, chain[0], "Div", t->value, M_SQRT2) &&
            !has_number(p, chain[0], "Mul", t->value, M_SQRT1_2))
            continue;
        if (p->o->nodes[chain[0]].inputs[0] != t->value)
            continue;
        chain[1] = network_only_reader(p, p->o->nodes[chain[0]].outputs[0]);
        int erf = node_makes(p, chain[1], "Erf");
        chain[2] = erf < 0 ? -1 : network_only_reader(p, erf);
        if (chain[2] < 0 || !has_number(p, chain[2], "Add", erf, 1))
            continue;
        int sum = p->o->nodes[chain[2]].outputs[0];
        chain[3] = network_only_reader(p, sum);
        int product = node_makes(p, chain[3], "Mul");
        if (product < 0 || chain[3] != nodes[!i] ||
            other_input(&p->o->nodes[chain[3]], t->value) != sum)
            continue;
        chain[4] = network_only_reader(p, product);
        if (chain[4] < 0 || !has_number(p, chain[4], "Mul", product, 0.5))
            continue;
        function_add(t, NN_GELU_ERF, 0, 0);
        memcpy(t->nodes + t->n_nodes, chain, sizeof chain);
        t->n_nodes += 5;
        return p->o->nodes[chain[4]].outputs[0];
    }
    return -1;
}

static int part_find(const struct network_plan *p, struct network_tail *t)
{
    const int *nodes;
    int n = readers_of(p, t->value, &nodes);
    if (n == 2) {
        int made = gate_find(p, nodes, t);
        return made >= 0 ? made : gelu_find(p, nodes, t);
    }
    if (n != 1 || p->is_done[nodes[0]] || *p->o->nodes[nodes[0]].domain ||
        p->o->nodes[nodes[0]].n_outputs != 1)
        return -1;
    if (p->o->nodes[nodes[0]].inputs[0] == t->value
            ? !function_node(p, nodes[0], t) && !binary_node(p, nodes[0], t)
            : !binary_node(p, nodes[0], t))
        return -1;
    t->nodes[t->n_nodes++] = nodes[0];
    return p->o->nodes[nodes[0]].outputs[0];
}

void network_tail_find(const struct network_plan *p, int value, enum network_layout layout,
                       struct network_tail *t)
{
    *t = (struct network_tail){.value = value, .layout = layout};
    while (t->n_parts < NN_POSTS && t->posts.n < NN_POSTS) {
        int posts = t->posts.n, n_nodes = t->n_nodes, made = part_find(p, t);
        if (made < 0)
            break;
        t->part_posts[t->n_parts] = posts;
        t->part_nodes[t->n_parts] = n_nodes;
        t->part_values[t->n_parts++] = t->value;
        /* All parts give the sizes that they take. */
        p->values[made].array = p->values[t->value].array;
        p->values[made].is_shaped = true;
        t->value = made;
    }
}

bool network_tail_drop(struct network_tail *t)
{
    if (t->n_parts == 0)
        return false;
    t->n_parts--;
    t->posts.n = t->part_posts[t->n_parts];
    t->n_nodes = t->part_nodes[t->n_parts];
    t->value = t->part_values[t->n_parts];
    return true;
}

void network_tail_take(struct network_plan *p, const struct network_tail *t)
{
    for (int i = 0; i < t->n_nodes; i++)
        p->is_done[t->nodes[i]] = true;
}
