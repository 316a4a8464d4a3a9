/* What moves elements about: mostly by looking at memory in another way. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"
#include "model/onnx/call.h"

static bool has_words(const struct network_plan *p, int value)
{
    return ndarray_type_bytes(p->values[value].array.type) == sizeof(float);
}

static bool same_type(const struct network_plan *p, const struct onnx_node *k)
{
    return p->values[k->inputs[0]].array.type == p->values[k->outputs[0]].array.type;
}

/* Rows and columns that are to become one axis again lie side by side where the picture has its
 * channels last: shuffled channels. */
static bool shuffle_copy(struct network_plan *p, const struct network_view *from,
                         const struct ndarray *to, struct network_view *out, int *rc, struct err *e)
{
    const struct nn_view *v = &from->v;
    if (v->n_dims != 5 || to->n_dims != 4 || to->dims[0] != v->dims[0] ||
        to->dims[1] != v->dims[1] * v->dims[2] || v->strides[3] <= v->strides[1] ||
        v->strides[3] <= v->strides[2])
        return false;
    struct network_view copy = {.v = *v};
    int64_t step = v->dims[1] * v->dims[2];
    copy.v.strides[2] = 1;
    copy.v.strides[1] = v->dims[2];
    copy.v.strides[4] = step;
    copy.v.strides[3] = step * v->dims[4];
    copy.v.strides[0] = step * v->dims[4] * v->dims[3];
    copy.root = network_root_new(p, (uint64_t)nn_view_count(v) * sizeof(float), e);
    *rc = copy.root < 0 ? copy.root : network_copy_add(p, &copy, from, e);
    *out = (struct network_view){.root = copy.root};
    return *rc < 0 || network_view_reshape(&copy.v, to, &out->v);
}

int network_lower_reshape(struct network_plan *p, int node, const struct onnx_call *c,
                          struct err *e)
{
    const struct onnx_node *k = c->node;
    const struct ndarray *to = &p->values[k->outputs[0]].array;
    (void)node;
    for (int i = 1; i < k->n_inputs; i++)
        if (k->inputs[i] >= 0 && !p->values[k->inputs[i]].is_known)
            return 0;
    if (!same_type(p, k) || k->n_outputs != 1)
        return 0;
    struct network_view from, out;
    int rc = network_need(p, k->inputs[0], LAYOUT_ANY, &from, e);
    out = from;
    if (rc == 0 && !network_view_reshape(&from.v, to, &out.v) &&
        !shuffle_copy(p, &from, to, &out, &rc, e)) {
        rc = network_need(p, k->inputs[0], LAYOUT_PLAIN, &out, e);
        out.v = network_sizes(to);
    }
    if (rc < 0)
        return rc;
    network_set_view(p, k->outputs[0], &out);
    return 1;
}

int network_lower_transpose(struct network_plan *p, int node, const struct onnx_call *c,
                            struct err *e)
{
    const struct onnx_node *k = c->node;
    const int64_t *perm = NULL;
    int n = c->in[0]->n_dims;
    (void)node;
    if (!has_words(p, k->inputs[0]))
        return 0;
    bool has_perm = call_ints(c, "perm", &perm, &n);
    struct network_view from, out;
    int rc = network_need(p, k->inputs[0], LAYOUT_ANY, &from, e);
    if (rc < 0)
        return rc;
    out = from;
    for (int d = 0; d < n; d++) {
        int64_t at = has_perm ? perm[d] : n - 1 - d;
        out.v.dims[d] = from.v.dims[at];
        out.v.strides[d] = from.v.strides[at];
    }
    network_set_view(p, k->outputs[0], &out);
    return 1;
}

/* ---- parts ---- */

/* Steps forward alone; those backward are the reference's. */
int network_lower_slice(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    const struct ndarray *to = &p->values[k->outputs[0]].array;
    int64_t starts[ND_DIMS_MAX], axes[ND_DIMS_MAX], steps[ND_DIMS_MAX];
    int n, n_axes, n_steps = -1;
    (void)node;
    for (int i = 1; i < k->n_inputs; i++)
        if (k->inputs[i] >= 0 && !p->values[k->inputs[i]].is_known)
            return 0;
    if (!has_words(p, k->inputs[0]) || call_list(c, 1, "starts", starts, &n) < 0 ||
        call_list(c, 3, "axes", axes, &n_axes) < 0 || call_list(c, 4, "steps", steps, &n_steps) < 0)
        return 0;
    for (int i = 0; i < n && n_steps >= 0; i++)
        if (steps[i] < 1)
            return 0;
    struct network_view out;
    int rc = network_need(p, k->inputs[0], LAYOUT_ANY, &out, e);
    if (rc < 0)
        return rc;
    for (int i = 0; i < n; i++) {
        int axis = call_axis(c, n_axes >= 0 ? axes[i] : i, c->in[0]->n_dims);
        int64_t size = c->in[0]->dims[axis], first = starts[i] < 0 ? starts[i] + size : starts[i];
        out.offset += (first < 0 ? 0 : first) * out.v.strides[axis];
        out.v.strides[axis] *= n_steps >= 0 && to->dims[axis] > 1 ? steps[i] : 1;
        out.v.dims[axis] = to->dims[axis];
    }
    network_set_view(p, k->outputs[0], &out);
    return 1;
}

int network_lower_split(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    int axis = call_axis(c, call_int(c, "axis", 0), c->in[0]->n_dims);
    struct network_view part;
    (void)node;
    if (!has_words(p, k->inputs[0]) || axis < 0 ||
        (call_in(c, 1) && !p->values[k->inputs[1]].is_known))
        return 0;
    int rc = network_need(p, k->inputs[0], LAYOUT_ANY, &part, e);
    for (int i = 0; i < k->n_outputs && rc == 0; i++) {
        if (k->outputs[i] < 0)
            return 0;
        part.v.dims[axis] = p->values[k->outputs[i]].array.dims[axis];
        network_set_view(p, k->outputs[i], &part);
        part.offset += part.v.dims[axis] * part.v.strides[axis];
    }
    return rc < 0 ? rc : 1;
}

/* One known index: a slice. */
int network_lower_gather(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    const struct network_value *index = &p->values[k->inputs[1]];
    int axis = call_axis(c, call_int(c, "axis", 0), c->in[0]->n_dims);
    (void)node;
    if (!has_words(p, k->inputs[0]) || !index->is_known || index->array.count != 1 || axis < 0)
        return 0;
    int64_t size = c->in[0]->dims[axis], at = ndarray_i64(&index->array, 0);
    at = at < 0 ? at + size : at;
    struct network_view out;
    if (at < 0 || at >= size)
        return 0;
    int rc = network_need(p, k->inputs[0], LAYOUT_ANY, &out, e);
    if (rc < 0)
        return rc;
    out.offset += at * out.v.strides[axis];
    out.v.dims[axis] = 1;
    struct nn_view one = out.v;
    return network_view_reshape(&one, &p->values[k->outputs[0]].array, &out.v)
               ? (network_set_view(p, k->outputs[0], &out), 1)
               : 0;
}

/* ---- joined, and padded ---- */

int network_lower_concat(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    struct network_value *made = &p->values[k->outputs[0]];
    int axis = call_axis(c, call_int(c, "axis", 1), c->in[0]->n_dims), last = 0;
    (void)node;
    if (!has_words(p, k->outputs[0]) || axis < 0)
        return 0;
    struct network_view from, all = {0}, part;
    int rc = 0;
    for (int i = 0; i < c->n_in && rc == 0; i++) {
        rc = network_need(p, k->inputs[i], LAYOUT_ANY, &from, e);
        last += rc == 0 && network_layout_of(&from.v) == LAYOUT_LAST;
    }
    struct nn_view out = network_sizes(&made->array);
    network_strides(&out, 2 * last >= c->n_in && last > 0 ? LAYOUT_LAST : LAYOUT_PLAIN);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &out, &all, e);
    part = all;
    for (int i = 0; i < c->n_in && rc == 0; i++) {
        part.v.dims[axis] = c->in[i]->dims[axis];
        rc = part.v.dims[axis] == 0 ? 0 : network_need(p, k->inputs[i], LAYOUT_ANY, &from, e);
        rc = rc < 0 || part.v.dims[axis] == 0 ? rc : network_copy_add(p, &part, &from, e);
        part.offset += part.v.dims[axis] * part.v.strides[axis];
    }
    return rc < 0 ? rc : 1;
}

struct fill_step {
    struct network_view to;
    float with;
};

static void fill_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct fill_step *f = j->data;
    float *to = network_out(j->p, &f->to);
    int64_t n = nn_view_count(&f->to.v), end = n * (part + 1) / parts;
    for (int64_t i = n * part / parts; i < end; i++)
        to[i] = f->with;
}

static int fill_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct fill_step *f = s->data;
    (void)e;
    network_job_run(p, s, nn_view_count(&f->to.v), fill_part);
    return 0;
}

static int fill_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct fill_step *f = s->data;
    const struct nn_view *views[] = {&f->to.v};
    struct array_elements c = {.rule = ARRAY_FILL, .a = f->with, .loop = nn_loop_make(views, 1)};
    network_there_elements(p, c, &f->to, NULL, NULL);
    (void)e;
    return 0;
}

static int fill_add(struct network_plan *p, int node, const struct network_view *to, double with,
                    struct err *e)
{
    struct fill_step *f = calloc(1, sizeof *f);
    if (!f)
        return err_no_memory(e, "a step");
    *f = (struct fill_step){*to, (float)with};
    network_root_use(p, to->root);
    struct network_step step = {.run = fill_run,
                                .run_there = fill_run_there,
                                .free = free,
                                .data = f,
                                .name = "fill",
                                .node = node};
    return network_step_add(p, &step, e);
}

/* With one number, on all axes. */
int network_lower_pad(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    const struct ndarray *given = c->opset < 11 ? NULL : call_in(c, 1);
    const int64_t *ints = NULL;
    double with = call_float(c, "value", 0);
    int n = 0, n_dims = c->in[0]->n_dims;
    for (int i = 1; i < k->n_inputs; i++)
        if (k->inputs[i] >= 0 && !p->values[k->inputs[i]].is_known)
            return 0;
    if (!network_is_f32(p, k->inputs[0]) || call_in(c, 3) ||
        strcmp(call_string(c, "mode", "constant"), "constant") != 0 ||
        (!given && (!call_ints(c, "pads", &ints, &n) || n != 2 * n_dims)) ||
        (given && given->count != 2 * n_dims) ||
        (given && call_in(c, 2) && !network_known_number(p, k->inputs[2], &with)))
        return 0;
    for (int d = 0; d < 2 * n_dims; d++)
        if ((given ? ndarray_i64(given, d) : ints[d]) < 0)
            return 0;
    struct network_view from, to;
    int rc = network_need(p, k->inputs[0], LAYOUT_ANY, &from, e);
    if (rc < 0)
        return rc;
    struct nn_view out = network_sizes(&p->values[k->outputs[0]].array);
    network_strides(&out, network_layout_of(&from.v));
    rc = network_make_view(p, k->outputs[0], &out, &to, e);
    rc = rc < 0 ? rc : fill_add(p, node, &to, with, e);
    for (int d = 0; d < n_dims; d++)
        to.offset += (given ? ndarray_i64(given, d) : ints[d]) * to.v.strides[d];
    memcpy(to.v.dims, from.v.dims, sizeof to.v.dims);
    rc = rc < 0 ? rc : network_copy_add(p, &to, &from, e);
    return rc < 0 ? rc : 1;
}
