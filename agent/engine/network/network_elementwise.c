/* Functions of one number and of two. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"
#include "model/onnx/call.h"

/* ---- one number ---- */

struct unary_step {
    struct nn_loop loop;
    enum nn_unary f;
    float a, b;
    struct network_view to, from;
};

static void unary_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct unary_step *u = j->data;
    struct nn_loop own;
    int64_t at[LOOP_VIEWS];
    if (nn_loop_part(&u->loop, part, parts, &own, at))
        nn_loop_unary(j->p->kernels, &own, u->f, u->a, u->b, network_out(j->p, &u->to) + at[0],
                      network_in(j->p, &u->from) + at[1]);
}

static int unary_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct unary_step *u = s->data;
    (void)e;
    network_job_run(p, s, nn_view_count(&u->to.v), unary_part);
    return 0;
}

static int unary_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct unary_step *u = s->data;
    network_there_elements(
        p,
        (struct array_elements){
            .rule = ARRAY_UNARY, .f = (int)u->f, .a = u->a, .b = u->b, .loop = u->loop},
        &u->to, &u->from, NULL);
    (void)e;
    return 0;
}

/* Where the output of an elementwise node lies: as its input does. */
static struct nn_view view_like(const struct nn_view *from, const struct ndarray *sizes)
{
    struct nn_view v = network_sizes(sizes);
    if (v.n_dims == from->n_dims)
        network_strides(&v, network_layout_of(from));
    return v;
}

static int unary_add(struct network_plan *p, int node, enum nn_unary f, double a, double b,
                     struct err *e)
{
    const struct onnx_node *k = &p->o->nodes[node];
    struct unary_step *u = calloc(1, sizeof *u);
    if (!u)
        return err_no_memory(e, "a step");
    u->f = f;
    u->a = (float)a;
    u->b = (float)b;
    int rc = network_need(p, k->inputs[0], LAYOUT_ANY, &u->from, e);
    struct nn_view out = {0};
    if (rc == 0)
        out = view_like(&u->from.v, &p->values[k->outputs[0]].array);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &out, &u->to, e);
    if (rc < 0) {
        free(u);
        return rc;
    }
    const struct nn_view *views[] = {&u->to.v, &u->from.v};
    u->loop = nn_loop_make(views, 2);
    network_root_use(p, u->to.root);
    network_root_use(p, u->from.root);
    struct network_step step = {.run = unary_run,
                                .run_there = unary_run_there,
                                .free = free,
                                .data = u,
                                .name = "loop",
                                .node = node};
    rc = network_step_add(p, &step, e);
    return rc < 0 ? rc : 1;
}

/* By oneDNN, on memory that is dense in any order. */
static int function_add(struct network_plan *p, int node, enum nn_function f, double a, double b,
                        struct err *e)
{
    const struct onnx_node *k = &p->o->nodes[node];
    struct network_view views[NN_OTHER] = {0};
    struct nn_view flat = {.n_dims = 1, .strides = {1}};
    struct nn_op *op;
    const struct nn_view *any = &p->values[k->inputs[0]].view.v;
    bool dense = p->values[k->inputs[0]].has_view && network_view_is_dense(any);
    flat.dims[0] = p->values[k->inputs[0]].array.count;
    int rc = nn_function_make(p->nn, &flat, f, (float)a, (float)b, &op, e);
    if (rc < 0)
        return rc == HP_EUNSUPPORTED ? 0 : rc;
    rc = network_need(p, k->inputs[0], dense ? LAYOUT_ANY : LAYOUT_PLAIN, &views[NN_X], e);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &views[NN_X].v, &views[NN_Y], e);
    if (rc < 0) {
        nn_op_free(&op);
        return rc;
    }
    views[NN_WEIGHTS].root = views[NN_BIAS].root = views[NN_SCRATCH].root = -1;
    const struct network_deed deed = {
        DEED_FUNCTION, "function", {.function = {.function = f, .a = (float)a, .b = (float)b}}};
    rc = network_op_add(p, op, node, &deed, views, NN_OTHER, e);
    return rc < 0 ? rc : 1;
}

static int clip_add(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    double low = call_float(c, "min", -INFINITY), high = call_float(c, "max", INFINITY);
    if ((call_in(c, 1) && !network_known_number(p, k->inputs[1], &low)) ||
        (call_in(c, 2) && !network_known_number(p, k->inputs[2], &high)))
        return 0;
    return unary_add(p, node, NN_BOUND, low, high, e);
}

int network_lower_unary(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    static const struct {
        const char *op;
        bool by_loop;
        int f;
        double a, b;
    } functions[] = {
        {"Abs", true, NN_ABS, 0, 0},
        {"Elu", false, NN_ELU, 1, 0},
        {"Exp", true, NN_EXPONENT, 0, 0},
        {"HardSigmoid", true, NN_HARD_SIGMOID, 0.2, 0.5},
        {"HardSwish", true, NN_HARD_SWISHED, 0, 0},
        {"LeakyRelu", true, NN_LEAKY, 0.01, 0},
        {"Mish", false, NN_MISH, 0, 0},
        {"Neg", true, NN_NEG, 0, 0},
        {"Reciprocal", true, NN_RECIPROCAL, 0, 0},
        {"Relu", true, NN_BOUND, 0, INFINITY},
        {"Sigmoid", false, NN_SIGMOID, 0, 0},
        {"Softplus", true, NN_SOFTPLUS, 0, 0},
        {"Sqrt", true, NN_SQRT, 0, 0},
        {"Tanh", false, NN_TANH, 0, 0},
    };
    if (!network_is_f32(p, c->node->inputs[0]))
        return 0;
    if (strcmp(c->node->op, "Clip") == 0)
        return clip_add(p, node, c, e);
    if (strcmp(c->node->op, "Gelu") == 0) {
        bool by_tanh = strcmp(call_string(c, "approximate", "none"), "tanh") == 0;
        return function_add(p, node, by_tanh ? NN_GELU_TANH : NN_GELU_ERF, 0, 0, e);
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(c->node->op, functions[i].op) != 0)
            continue;
        double a = call_float(c, "alpha", functions[i].a);
        double b = call_float(c, "beta", functions[i].b);
        return functions[i].by_loop
                   ? unary_add(p, node, (enum nn_unary)functions[i].f, a, b, e)
                   : function_add(p, node, (enum nn_function)functions[i].f, a, b, e);
    }
    return 0;
}

int network_lower_pow(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    double power;
    if (!network_is_f32(p, c->node->inputs[0]) ||
        !ndarray_same_shape(c->in[0], &p->values[c->node->outputs[0]].array) ||
        !network_known_number(p, c->node->inputs[1], &power) || (power != 2 && power != 0.5))
        return 0;
    return unary_add(p, node, power == 2 ? NN_SQUARE : NN_SQRT, 0, 0, e);
}

/* ---- two ---- */

struct binary_step {
    struct nn_loop loop;
    enum nn_binary f;
    struct network_view to, x, y;
};

static void binary_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct binary_step *b = j->data;
    struct nn_loop own;
    int64_t at[LOOP_VIEWS];
    if (nn_loop_part(&b->loop, part, parts, &own, at))
        nn_loop_binary(j->p->kernels, &own, b->f, network_out(j->p, &b->to) + at[0],
                       network_in(j->p, &b->x) + at[1], network_in(j->p, &b->y) + at[2]);
}

static int binary_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct binary_step *b = s->data;
    (void)e;
    network_job_run(p, s, nn_view_count(&b->to.v), binary_part);
    return 0;
}

static int binary_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct binary_step *b = s->data;
    const struct array_elements c = {.rule = ARRAY_BINARY, .f = (int)b->f, .loop = b->loop};
    network_there_elements(p, c, &b->to, &b->x, &b->y);
    (void)e;
    return 0;
}

static int binary_add(struct network_plan *p, int node, enum nn_binary f, struct err *e)
{
    const struct onnx_node *k = &p->o->nodes[node];
    const struct ndarray *out = &p->values[k->outputs[0]].array;
    struct binary_step *b = calloc(1, sizeof *b);
    if (!b)
        return err_no_memory(e, "a step");
    b->f = f;
    int rc = network_need(p, k->inputs[0], LAYOUT_ANY, &b->x, e);
    rc = rc < 0 ? rc : network_need(p, k->inputs[1], LAYOUT_ANY, &b->y, e);
    struct nn_view like = {0};
    if (rc == 0) {
        /* As the input that has all elements, and of two rather the one with channels last. */
        bool x_whole = nn_view_count(&b->x.v) == out->count;
        bool y_whole = nn_view_count(&b->y.v) == out->count;
        bool y_last = y_whole && network_layout_of(&b->y.v) == LAYOUT_LAST;
        like = view_like(!x_whole || (y_last && y_whole) ? &b->y.v : &b->x.v, out);
        rc = network_make_view(p, k->outputs[0], &like, &b->to, e);
    }
    if (rc < 0) {
        free(b);
        return rc;
    }
    struct nn_view x = nn_view_broadcast(&b->x.v, &like), y = nn_view_broadcast(&b->y.v, &like);
    const struct nn_view *views[] = {&like, &x, &y};
    b->loop = nn_loop_make(views, 3);
    network_root_use(p, b->to.root);
    network_root_use(p, b->x.root);
    network_root_use(p, b->y.root);
    struct network_step step = {.run = binary_run,
                                .run_there = binary_run_there,
                                .free = free,
                                .data = b,
                                .name = "loop",
                                .node = node};
    rc = network_step_add(p, &step, e);
    return rc < 0 ? rc : 1;
}

int network_lower_binary(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    static const struct {
        const char *op;
        enum nn_binary f;
    } functions[] = {{"Add", NN_ADD}, {"Sub", NN_SUB}, {"Mul", NN_TIMES}, {"Div", NN_DIVIDE},
                     {"Max", NN_MAX}, {"Min", NN_MIN}, {"Sum", NN_ADD},   {"PRelu", NN_PRELU}};
    if (c->n_in != 2 || !network_is_f32(p, c->node->inputs[0]) ||
        !network_is_f32(p, c->node->inputs[1]))
        return 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(c->node->op, functions[i].op) == 0)
            return binary_add(p, node, functions[i].f, e);
    return 0;
}
