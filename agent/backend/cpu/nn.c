#include "agent/backend/cpu/nn.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

struct nn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    void (*set_openmp_threads)(int n);
};

enum { SLOTS = NN_OTHER + NN_POSTS };
struct nn_op {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[SLOTS];
    int slots[SLOTS]; /* of args */
    int n_args;
    bool has_weights;
    dnnl_memory_desc_t given, packed; /* weights */
    size_t scratch_bytes;
};

void nn_begin(const struct nn *n)
{
    if (n->set_openmp_threads)
        n->set_openmp_threads(1);
}

int nn_create(struct nn **out, struct err *e)
{
    struct nn *n = calloc(1, sizeof *n);
    if (!n)
        return err_no_memory(e, "oneDNN");
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&n->set_openmp_threads, &symbol, sizeof symbol);
    nn_begin(n);
    dnnl_status_t rc = dnnl_engine_create(&n->engine, dnnl_cpu, 0);
    if (rc == dnnl_success)
        rc = dnnl_stream_create(&n->stream, n->engine, dnnl_stream_in_order);
    if (rc != dnnl_success) {
        nn_destroy(&n);
        return err_set(e, HP_EDEVICE, "oneDNN cannot use this CPU (status %d)", (int)rc);
    }
    *out = n;
    return 0;
}

void nn_destroy(struct nn **self)
{
    struct nn *n = *self;
    *self = NULL;
    if (!n)
        return;
    if (n->stream)
        dnnl_stream_destroy(n->stream);
    if (n->engine)
        dnnl_engine_destroy(n->engine);
    free(n);
}

void nn_op_free(struct nn_op **self)
{
    struct nn_op *op = *self;
    *self = NULL;
    if (!op)
        return;
    for (int i = 0; i < op->n_args; i++)
        dnnl_memory_destroy(op->args[i].memory);
    if (op->primitive)
        dnnl_primitive_destroy(op->primitive);
    free(op);
}

/* ---- what oneDNN is told ---- */

static dnnl_status_t view_describe(const struct nn_view *v, dnnl_memory_desc_t *out)
{
    return dnnl_memory_desc_init_by_strides(out, v->n_dims, v->dims, dnnl_f32, v->strides);
}

static dnnl_status_t describe_any(int n_dims, const dnnl_dims_t dims, dnnl_memory_desc_t *out)
{
    return dnnl_memory_desc_init_by_tag(out, n_dims, dims, dnnl_f32, dnnl_format_tag_any);
}

static dnnl_status_t describe_dense(int n_dims, const dnnl_dims_t dims, dnnl_memory_desc_t *out)
{
    dnnl_dims_t strides;
    dnnl_dim_t step = 1;
    for (int d = n_dims - 1; d >= 0; d--) {
        strides[d] = step;
        step *= dims[d];
    }
    return dnnl_memory_desc_init_by_strides(out, n_dims, dims, dnnl_f32, strides);
}

static dnnl_alg_kind_t function_kind(enum nn_function f)
{
    static const dnnl_alg_kind_t kinds[] = {
        [NN_RELU] = dnnl_eltwise_relu,
        [NN_CLIP] = dnnl_eltwise_clip,
        [NN_SIGMOID] = dnnl_eltwise_logistic,
        [NN_TANH] = dnnl_eltwise_tanh,
        [NN_ELU] = dnnl_eltwise_elu,
        [NN_GELU_ERF] = dnnl_eltwise_gelu_erf,
        [NN_GELU_TANH] = dnnl_eltwise_gelu_tanh,
        [NN_SWISH] = dnnl_eltwise_swish,
        [NN_HARD_SWISH] = dnnl_eltwise_hardswish,
        [NN_SOFTPLUS] = dnnl_eltwise_soft_relu,
        [NN_MISH] = dnnl_eltwise_mish,
        [NN_LINEAR] = dnnl_eltwise_linear,
    };
    return kinds[f];
}

static dnnl_status_t attr_make(const struct nn_posts *posts, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t list;
    dnnl_status_t rc = dnnl_primitive_attr_create(out);
    if (rc != dnnl_success)
        return rc;
    rc = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (rc == dnnl_success && posts && posts->n > 0 &&
        (rc = dnnl_post_ops_create(&list)) == dnnl_success) {
        for (int i = 0; i < posts->n && rc == dnnl_success; i++) {
            const struct nn_post *p = &posts->list[i];
            dnnl_memory_desc_t other;
            if (p->kind == NN_POST_FUNCTION)
                rc = dnnl_post_ops_append_eltwise(list, 1, function_kind(p->function), p->a, p->b);
            else if ((rc = view_describe(&p->other, &other)) == dnnl_success)
                rc = dnnl_post_ops_append_binary(
                    list, p->kind == NN_POST_ADD ? dnnl_binary_add : dnnl_binary_mul, &other);
        }
        if (rc == dnnl_success)
            rc = dnnl_primitive_attr_set_post_ops(*out, list);
        dnnl_post_ops_destroy(list);
    }
    if (rc != dnnl_success)
        dnnl_primitive_attr_destroy(*out);
    return rc;
}

/* ---- making ---- */

static dnnl_status_t arg_add(struct nn *n, struct nn_op *op, int slot, int arg,
                             const dnnl_memory_desc_t *desc)
{
    if (!desc || desc->ndims == 0)
        return dnnl_success;
    dnnl_exec_arg_t *a = &op->args[op->n_args];
    a->arg = arg;
    dnnl_status_t rc = dnnl_memory_create(&a->memory, desc, n->engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success)
        op->slots[op->n_args++] = slot;
    return rc;
}

static dnnl_status_t args_make(struct nn *n, struct nn_op *op, const_dnnl_primitive_desc_t pd,
                               const struct nn_posts *posts)
{
    static const struct {
        int slot, arg;
        dnnl_query_t what;
        int index;
    } every[] = {{NN_X, DNNL_ARG_SRC, dnnl_query_src_md, 0},
                 {NN_WEIGHTS, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                 {NN_BIAS, DNNL_ARG_BIAS, dnnl_query_weights_md, 1},
                 {NN_Y, DNNL_ARG_DST, dnnl_query_dst_md, 0},
                 {NN_SCRATCH, DNNL_ARG_SCRATCHPAD, dnnl_query_scratchpad_md, 0}};
    dnnl_status_t rc = dnnl_success;
    for (size_t i = 0; i < sizeof every / sizeof *every && rc == dnnl_success; i++)
        rc = arg_add(n, op, every[i].slot, every[i].arg,
                     dnnl_primitive_desc_query_md(pd, every[i].what, every[i].index));
    for (int i = 0; posts && i < posts->n && rc == dnnl_success; i++) {
        dnnl_memory_desc_t other;
        if (posts->list[i].kind != NN_POST_FUNCTION &&
            (rc = view_describe(&posts->list[i].other, &other)) == dnnl_success)
            rc = arg_add(n, op, NN_OTHER + i, DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1,
                         &other);
    }
    return rc;
}

/* Plain loops of oneDNN's are slower than falling back, and so are matrices of one channel each. */
static bool is_slow(const_dnnl_primitive_desc_t pd, bool depthwise)
{
    const char *name = NULL;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return name && (strncmp(name, "ref", 3) == 0 || strncmp(name, "simple", 6) == 0 ||
                    (depthwise && strstr(name, "gemm:")));
}

static int op_make(struct nn *n, const void *desc, const struct nn_posts *posts,
                   const dnnl_memory_desc_t *given, bool depthwise, struct nn_op **out,
                   struct err *e)
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    struct nn_op *op = calloc(1, sizeof *op);
    if (!op)
        return err_no_memory(e, "a primitive");
    dnnl_status_t rc = attr_make(posts, &attr);
    if (rc == dnnl_success) {
        rc = dnnl_primitive_desc_create(&pd, desc, attr, n->engine, NULL);
        dnnl_primitive_attr_destroy(attr);
    }
    if (rc == dnnl_success && is_slow(pd, depthwise))
        rc = dnnl_unimplemented;
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(&op->primitive, pd);
    if (rc == dnnl_success)
        rc = args_make(n, op, pd, posts);
    if (rc == dnnl_success && given) {
        op->has_weights = true;
        op->given = *given;
        op->packed = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    }
    if (rc == dnnl_success) {
        const dnnl_memory_desc_t *scratch =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        op->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    }
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (rc == dnnl_success) {
        *out = op;
        return 0;
    }
    nn_op_free(&op);
    return rc == dnnl_out_of_memory
               ? err_no_memory(e, "a primitive")
               : err_set(e, HP_EUNSUPPORTED, "oneDNN has no such primitive (status %d)", (int)rc);
}

/* Sizes of weights, with a group's axis where there are groups: as the primitive sees them, and the
 * strides that dense ONNX weights then have. Turned weights come inputs first. */
static dnnl_status_t conv_weights(const struct nn_conv *c, dnnl_memory_desc_t *any,
                                  dnnl_memory_desc_t *given)
{
    int64_t in = c->x.dims[1] / c->groups, out = c->y.dims[1] / c->groups, kernel = 1, step = 1;
    int g = c->groups > 1, n = 2 + c->n_axes + g;
    dnnl_dims_t dims, strides;
    for (int d = 0; d < c->n_axes; d++)
        kernel *= c->kernel[d];
    if (g) {
        dims[0] = c->groups;
        strides[0] = in * out * kernel;
    }
    dims[g] = out;
    dims[g + 1] = in;
    strides[g] = c->turned ? kernel : in * kernel;
    strides[g + 1] = c->turned ? out * kernel : kernel;
    for (int d = c->n_axes - 1; d >= 0; d--) {
        dims[g + 2 + d] = c->kernel[d];
        strides[g + 2 + d] = step;
        step *= c->kernel[d];
    }
    dnnl_status_t rc = describe_any(n, dims, any);
    return rc == dnnl_success ? dnnl_memory_desc_init_by_strides(given, n, dims, dnnl_f32, strides)
                              : rc;
}

int nn_conv_make(struct nn *n, const struct nn_conv *c, struct nn_op **out, struct err *e)
{
    dnnl_memory_desc_t x, y, weights, given, bias;
    dnnl_dims_t stride, dilation, before, after, outputs = {c->y.dims[1]};
    for (int d = 0; d < c->n_axes; d++) {
        stride[d] = c->stride[d];
        dilation[d] = c->dilation[d] - 1;
        before[d] = c->before[d];
        after[d] = c->after[d];
    }
    dnnl_convolution_desc_t conv;
    dnnl_deconvolution_desc_t turned;
    dnnl_status_t rc = view_describe(&c->x, &x);
    rc = rc == dnnl_success ? view_describe(&c->y, &y) : rc;
    rc = rc == dnnl_success ? conv_weights(c, &weights, &given) : rc;
    rc = rc == dnnl_success ? describe_dense(1, outputs, &bias) : rc;
    if (rc == dnnl_success)
        rc = c->turned
                 ? dnnl_dilated_deconvolution_forward_desc_init(
                       &turned, dnnl_forward_inference, dnnl_deconvolution_direct, &x, &weights,
                       c->has_bias ? &bias : NULL, &y, stride, dilation, before, after)
                 : dnnl_dilated_convolution_forward_desc_init(
                       &conv, dnnl_forward_inference, dnnl_convolution_direct, &x, &weights,
                       c->has_bias ? &bias : NULL, &y, stride, dilation, before, after);
    if (rc != dnnl_success)
        return err_set(e, HP_EUNSUPPORTED, "oneDNN refuses the convolution (status %d)", (int)rc);
    return op_make(n, c->turned ? (const void *)&turned : &conv, &c->posts, &given,
                   c->groups > 1 && c->groups == c->x.dims[1], out, e);
}

int nn_matmul_make(struct nn *n, const struct nn_matmul *m, struct nn_op **out, struct err *e)
{
    dnnl_memory_desc_t x, y, w, given = {0}, bias;
    dnnl_dims_t columns = {0};
    for (int d = 0; d < m->y.n_dims; d++)
        columns[d] = d == m->y.n_dims - 1 ? m->y.dims[d] : 1;
    dnnl_matmul_desc_t desc;
    dnnl_status_t rc = view_describe(&m->x, &x);
    rc = rc == dnnl_success ? view_describe(&m->y, &y) : rc;
    rc = rc == dnnl_success ? view_describe(&m->w, &given) : rc;
    w = given;
    rc = rc == dnnl_success && m->packs ? describe_any(m->w.n_dims, m->w.dims, &w) : rc;
    rc = rc == dnnl_success ? describe_dense(m->y.n_dims, columns, &bias) : rc;
    rc = rc == dnnl_success ? dnnl_matmul_desc_init(&desc, &x, &w, m->has_bias ? &bias : NULL, &y)
                            : rc;
    if (rc != dnnl_success)
        return err_set(e, HP_EUNSUPPORTED, "oneDNN refuses the product (status %d)", (int)rc);
    return op_make(n, &desc, &m->posts, m->packs ? &given : NULL, false, out, e);
}

int nn_softmax_make(struct nn *n, const struct nn_view *x, int axis, bool is_log,
                    struct nn_op **out, struct err *e)
{
    dnnl_memory_desc_t data;
    dnnl_softmax_v2_desc_t desc;
    dnnl_status_t rc = view_describe(x, &data);
    if (rc == dnnl_success)
        rc = dnnl_softmax_v2_forward_desc_init(&desc, dnnl_forward_inference,
                                               is_log ? dnnl_softmax_log : dnnl_softmax_accurate,
                                               &data, &data, axis);
    if (rc != dnnl_success)
        return err_set(e, HP_EUNSUPPORTED, "oneDNN refuses the softmax (status %d)", (int)rc);
    return op_make(n, &desc, NULL, NULL, false, out, e);
}

int nn_function_make(struct nn *n, const struct nn_view *x, enum nn_function f, float a, float b,
                     struct nn_op **out, struct err *e)
{
    dnnl_memory_desc_t data;
    dnnl_eltwise_desc_t desc;
    dnnl_status_t rc = view_describe(x, &data);
    if (rc == dnnl_success)
        rc = dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_inference, function_kind(f), &data,
                                            a, b);
    if (rc != dnnl_success)
        return err_set(e, HP_EUNSUPPORTED, "oneDNN refuses the function (status %d)", (int)rc);
    return op_make(n, &desc, NULL, NULL, false, out, e);
}

/* ---- weights, and running ---- */

size_t nn_op_weight_bytes(const struct nn_op *op)
{
    return op->has_weights ? dnnl_memory_desc_get_size(&op->packed) : 0;
}

size_t nn_op_scratch_bytes(const struct nn_op *op)
{
    return op->scratch_bytes;
}

/* oneDNN takes what it only reads without const. */
static void *without_const(const void *data)
{
    union {
        const void *in;
        void *out;
    } u = {data};
    return u.out;
}

int nn_op_pack(struct nn *n, const struct nn_op *op, const float *weights, void *out, struct err *e)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t reorder = NULL;
    dnnl_memory_t from = NULL, to = NULL;
    dnnl_status_t rc = dnnl_reorder_primitive_desc_create(&pd, &op->given, n->engine, &op->packed,
                                                          n->engine, NULL);
    if (rc == dnnl_success) {
        rc = dnnl_primitive_create(&reorder, pd);
        dnnl_primitive_desc_destroy(pd);
    }
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&from, &op->given, n->engine, without_const(weights));
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&to, &op->packed, n->engine, out);
    if (rc == dnnl_success) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
        rc = dnnl_primitive_execute(reorder, n->stream, 2, args);
    }
    if (rc == dnnl_success)
        rc = dnnl_stream_wait(n->stream);
    if (from)
        dnnl_memory_destroy(from);
    if (to)
        dnnl_memory_destroy(to);
    if (reorder)
        dnnl_primitive_destroy(reorder);
    return rc == dnnl_success
               ? 0
               : err_set(e, HP_EDEVICE, "oneDNN cannot pack weights (status %d)", (int)rc);
}

void nn_op_bind(struct nn_op *op, int slot, const void *data)
{
    for (int i = 0; i < op->n_args; i++)
        if (op->slots[i] == slot)
            dnnl_memory_set_data_handle(op->args[i].memory, without_const(data));
}

int nn_op_run(struct nn *n, const struct nn_op *op, struct err *e)
{
    dnnl_status_t rc = dnnl_primitive_execute(op->primitive, n->stream, op->n_args, op->args);
    return rc == dnnl_success ? 0 : err_set(e, HP_EDEVICE, "oneDNN failed (status %d)", (int)rc);
}
