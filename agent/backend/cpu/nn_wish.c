/* What oneDNN is told of an operator. */
#include <string.h>

#include "agent/backend/cpu/nn_int.h"

dnnl_status_t nn_view_describe(const struct nn_view *v, dnnl_memory_desc_t *out)
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

dnnl_alg_kind_t nn_function_kind(enum nn_function f)
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
        [NN_MISH] = dnnl_eltwise_mish,
        [NN_LINEAR] = dnnl_eltwise_linear,
    };
    return kinds[f];
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

static dnnl_status_t conv_wish(const struct nn_conv *c, const dnnl_memory_desc_t *packed,
                               struct nn_wish *w)
{
    dnnl_memory_desc_t x, y, weights, bias;
    dnnl_dims_t stride, dilation, before, after, outputs = {c->y.dims[1]};
    for (int d = 0; d < c->n_axes; d++) {
        stride[d] = c->stride[d];
        dilation[d] = c->dilation[d] - 1;
        before[d] = c->before[d];
        after[d] = c->after[d];
    }
    dnnl_status_t rc = nn_view_describe(&c->x, &x);
    rc = rc == dnnl_success ? nn_view_describe(&c->y, &y) : rc;
    rc = rc == dnnl_success ? conv_weights(c, &weights, &w->given) : rc;
    rc = rc == dnnl_success ? describe_dense(1, outputs, &bias) : rc;
    w->posts = &c->posts;
    w->has_weights = true;
    w->is_depthwise = c->groups > 1 && c->groups == c->x.dims[1];
    if (rc != dnnl_success)
        return rc;
    const dnnl_memory_desc_t *as = packed ? packed : &weights;
    return c->turned ? dnnl_dilated_deconvolution_forward_desc_init(
                           &w->u.turned, dnnl_forward_inference, dnnl_deconvolution_direct, &x, as,
                           c->has_bias ? &bias : NULL, &y, stride, dilation, before, after)
                     : dnnl_dilated_convolution_forward_desc_init(
                           &w->u.conv, dnnl_forward_inference, dnnl_convolution_direct, &x, as,
                           c->has_bias ? &bias : NULL, &y, stride, dilation, before, after);
}

static dnnl_status_t matmul_wish(const struct nn_matmul *m, const dnnl_memory_desc_t *packed,
                                 struct nn_wish *w)
{
    dnnl_memory_desc_t x, y, weights, bias;
    dnnl_dims_t columns = {0};
    for (int d = 0; d < m->y.n_dims; d++)
        columns[d] = d == m->y.n_dims - 1 ? m->y.dims[d] : 1;
    dnnl_status_t rc = nn_view_describe(&m->x, &x);
    rc = rc == dnnl_success ? nn_view_describe(&m->y, &y) : rc;
    rc = rc == dnnl_success ? nn_view_describe(&m->w, &w->given) : rc;
    weights = w->given;
    rc = rc == dnnl_success && m->packs ? describe_any(m->w.n_dims, m->w.dims, &weights) : rc;
    rc = rc == dnnl_success ? describe_dense(m->y.n_dims, columns, &bias) : rc;
    w->posts = &m->posts;
    w->has_weights = m->packs;
    return rc == dnnl_success
               ? dnnl_matmul_desc_init(&w->u.matmul, &x, m->packs && packed ? packed : &weights,
                                       m->has_bias ? &bias : NULL, &y)
               : rc;
}

static dnnl_status_t softmax_wish(const struct nn_softmax *s, struct nn_wish *w)
{
    dnnl_memory_desc_t data;
    dnnl_status_t rc = nn_view_describe(&s->x, &data);
    return rc == dnnl_success
               ? dnnl_softmax_v2_forward_desc_init(
                     &w->u.softmax, dnnl_forward_inference,
                     s->is_log ? dnnl_softmax_log : dnnl_softmax_accurate, &data, &data, s->axis)
               : rc;
}

static dnnl_status_t elements_wish(const struct nn_elements *x, struct nn_wish *w)
{
    dnnl_memory_desc_t data;
    dnnl_status_t rc = nn_view_describe(&x->x, &data);
    return rc == dnnl_success
               ? dnnl_eltwise_forward_desc_init(&w->u.elements, dnnl_forward_inference,
                                                nn_function_kind(x->function), &data, x->a, x->b)
               : rc;
}

dnnl_status_t nn_wish_make(const struct nn_task *t, const dnnl_memory_desc_t *packed,
                           struct nn_wish *w)
{
    *w = (struct nn_wish){0};
    switch (t->kind) {
    case NN_TASK_CONV: return conv_wish(&t->u.conv, packed, w);
    case NN_TASK_MATMUL: return matmul_wish(&t->u.matmul, packed, w);
    case NN_TASK_SOFTMAX: return softmax_wish(&t->u.softmax, w);
    case NN_TASK_ELEMENTS: return elements_wish(&t->u.elements, w);
    }
    return dnnl_unimplemented;
}
