/* Steps that are a primitive of oneDNN's. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"

struct op_step {
    struct nn *nn;
    struct nn_op *op;
    int n_views;
    struct network_view views[NN_OTHER + NN_POSTS]; /* by slot */
    struct network_deed *deed;                      /* of a plan on a device */
};

static void op_free(void *data)
{
    struct op_step *s = data;
    nn_op_free(&s->op);
    free(s->deed);
    free(s);
}

static int op_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct op_step *o = s->data;
    return nn_op_run(p->nn, o->op, e);
}

/* ---- on a device ---- */

/* What is done to all elements of a product after it, where they lie. */
static void post_run_there(struct network_plan *p, const struct op_step *o,
                           const struct nn_posts *posts, const struct nn_view *y, int i)
{
    const struct nn_post *post = &posts->list[i];
    bool is_function = post->kind == NN_POST_FUNCTION;
    const struct network_view *out = &o->views[NN_Y], *other = &o->views[NN_OTHER + i];
    const struct nn_view by = is_function ? *y : nn_view_broadcast(&post->other, y);
    const struct nn_view *views[] = {y, y, &by};
    struct array_elements c = {.rule = is_function ? ARRAY_FUNCTION : ARRAY_BINARY,
                               .a = post->a,
                               .b = post->b,
                               .loop = nn_loop_make(views, LOOP_VIEWS)};
    c.f = is_function                 ? (int)post->function
          : post->kind == NN_POST_ADD ? (int)NN_ADD
                                      : (int)NN_TIMES;
    network_there_elements(p, c, out, out, is_function ? NULL : other);
}

/* Of a stack, the axes before the last two; axes of one element stand still. */
static struct nn_loop stack_walk(const struct nn_matmul *m)
{
    struct nn_view y = m->y, x, w;
    x = nn_view_broadcast(&m->x, &y);
    w = nn_view_broadcast(&m->w, &y);
    y.n_dims = x.n_dims = w.n_dims = y.n_dims - 2;
    const struct nn_view *views[] = {&y, &x, &w};
    return nn_loop_make(views, LOOP_VIEWS);
}

static void product_run_there(struct network_plan *p, const struct op_step *o)
{
    const struct network_device *d = p->facts->device;
    const struct nn_matmul *m = &o->deed->u.product;
    int row = m->y.n_dims - 2, column = row + 1;
    const struct array_product c = {.stack = stack_walk(m),
                                    .rows = m->y.dims[row],
                                    .columns = m->y.dims[column],
                                    .inner = m->x.dims[column],
                                    .x_row = m->x.strides[row],
                                    .x_inner = m->x.strides[column],
                                    .w_inner = m->w.strides[row],
                                    .w_column = m->w.strides[column],
                                    .y_row = m->y.strides[row],
                                    .x = network_there_in(p, &o->views[NN_X]),
                                    .w = network_there_in(p, &o->views[NN_WEIGHTS]),
                                    .bias = m->has_bias ? network_there_in(p, &o->views[NN_BIAS])
                                                        : NULL,
                                    .y = network_there_out(p, &o->views[NN_Y])};
    d->arrays->product(d->stream, &c);
    for (int i = 0; i < m->posts.n; i++)
        post_run_there(p, o, &m->posts, &m->y, i);
}

static void conv_run_there(struct network_plan *p, const struct op_step *o)
{
    const struct network_device *d = p->facts->device;
    const struct nn_conv *v = &o->deed->u.conv;
    struct array_conv c = {.turned = v->turned,
                           .batch = v->x.dims[0],
                           .groups = v->groups,
                           .in_channels = v->x.dims[1],
                           .out_channels = v->y.dims[1],
                           .x = network_there_in(p, &o->views[NN_X]),
                           .w = network_there_in(p, &o->views[NN_WEIGHTS]),
                           .bias = v->has_bias ? network_there_in(p, &o->views[NN_BIAS]) : NULL,
                           .y = network_there_out(p, &o->views[NN_Y])};
    for (int axis = 0; axis < NN_AXES; axis++) {
        int from = axis - (NN_AXES - v->n_axes);
        bool there = from >= 0;
        c.in[axis] = there ? v->x.dims[2 + from] : 1;
        c.out[axis] = there ? v->y.dims[2 + from] : 1;
        c.kernel[axis] = there ? v->kernel[from] : 1;
        c.stride[axis] = there ? v->stride[from] : 1;
        c.dilation[axis] = there ? v->dilation[from] : 1;
        c.before[axis] = there ? v->before[from] : 0;
    }
    d->arrays->conv(d->stream, &c);
    for (int i = 0; i < v->posts.n; i++)
        post_run_there(p, o, &v->posts, &v->y, i);
}

static void function_run_there(struct network_plan *p, const struct op_step *o)
{
    const struct nn_post *f = &o->deed->u.function;
    const struct nn_view *views[] = {&o->views[NN_Y].v, &o->views[NN_X].v};
    struct array_elements c = {.rule = ARRAY_FUNCTION,
                               .f = (int)f->function,
                               .a = f->a,
                               .b = f->b,
                               .loop = nn_loop_make(views, 2)};
    network_there_elements(p, c, &o->views[NN_Y], &o->views[NN_X], NULL);
}

static int op_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct op_step *o = s->data;
    const struct network_device *d = p->facts->device;
    struct array_softmax c = o->deed->u.softmax;
    switch (o->deed->kind) {
    case DEED_PRODUCT: product_run_there(p, o); break;
    case DEED_FUNCTION: function_run_there(p, o); break;
    case DEED_SOFTMAX:
        c.x = network_there_in(p, &o->views[NN_X]);
        c.out = network_there_out(p, &o->views[NN_Y]);
        d->arrays->softmax(d->stream, &c);
        break;
    case DEED_CONV: conv_run_there(p, o); break;
    }
    (void)e;
    return 0;
}

/* ---- made ---- */

int network_op_add(struct network_plan *p, struct nn_op *op, int node,
                   const struct network_deed *deed, const struct network_view *views, int n_views,
                   struct err *e)
{
    struct op_step *s = calloc(1, sizeof *s);
    if (s && p->facts->device && (s->deed = malloc(sizeof *deed)) == NULL) {
        free(s);
        s = NULL;
    }
    if (!s) {
        nn_op_free(&op);
        return err_no_memory(e, "a step");
    }
    if (s->deed)
        *s->deed = *deed;
    s->op = op;
    s->n_views = n_views;
    memcpy(s->views, views, (size_t)n_views * sizeof *views);
    for (int i = 0; i < n_views; i++)
        if (views[i].root >= 0)
            network_root_use(p, views[i].root);
    struct network_step step = {.run = op_run,
                                .run_there = op_run_there,
                                .free = op_free,
                                .data = s,
                                .name = deed->name,
                                .node = node};
    return network_step_add(p, &step, e);
}

bool network_step_is_op(const struct network_step *s, size_t *scratch_bytes)
{
    const struct op_step *o = s->data;
    if (s->run != op_run)
        return false;
    *scratch_bytes = nn_op_scratch_bytes(o->op);
    return true;
}

bool network_step_is_cut(const struct network_step *s)
{
    const struct op_step *o = s->data;
    return s->run == op_run && nn_op_pieces(o->op) > 1;
}

void network_op_bind(struct network_plan *p, const struct network_step *s, void *scratch)
{
    const struct op_step *o = s->data;
    if (s->run != op_run)
        return;
    for (int i = 0; i < o->n_views; i++)
        if (o->views[i].root >= 0)
            nn_op_bind(o->op, i, network_in(p, &o->views[i]));
    nn_op_bind(o->op, NN_SCRATCH, scratch);
}

/* NULL, and the failure. */
static void *packed_make(struct network_plan *p, const struct nn_op *op, const float *weights,
                         struct err *e)
{
    size_t bytes = (nn_op_weight_bytes(op) + 63) / 64 * 64;
    void *packed = aligned_alloc(64, bytes ? bytes : 64);
    if (!packed)
        err_no_memory(e, "packed weights");
    else if (nn_op_pack(p->nn, op, weights, packed, e) == 0)
        return packed;
    free(packed);
    return NULL;
}

static int weights_copy(struct network_plan *p, const float *weights, int64_t count,
                        struct network_view *out, struct err *e)
{
    size_t bytes = (size_t)count * sizeof *weights;
    void *own = malloc(bytes);
    if (!own)
        return err_no_memory(e, "weights");
    memcpy(own, weights, bytes);
    *out = (struct network_view){.root = network_root_weights(p, own, bytes, e)};
    return out->root < 0 ? out->root : 0;
}

int network_weights_pack(struct network_plan *p, const struct nn_op *op, const float *weights,
                         int64_t count, struct network_view *out, struct err *e)
{
    if (p->facts->device)
        return weights_copy(p, weights, count, out, e);
    void *packed = packed_make(p, op, weights, e);
    if (!packed)
        return e->code;
    *out =
        (struct network_view){.root = network_root_weights(p, packed, nn_op_weight_bytes(op), e)};
    return out->root < 0 ? out->root : 0;
}

int network_weights_later(struct network_plan *p, const struct nn_op *op, const float *weights,
                          int64_t count, struct network_view *out, struct err *e)
{
    *out = (struct network_view){
        .root = network_root_fixed(p, weights, (uint64_t)count * sizeof *weights, false, e)};
    if (out->root < 0)
        return out->root;
    p->roots[out->root].later = op;
    p->roots[out->root].unpacked = weights;
    return 0;
}

static bool root_is_of(const struct network_root *r, int first, int end)
{
    return r->last >= first && r->first < end;
}

int network_weights_ready(struct network_plan *p, int first, int end, struct err *e)
{
    for (int i = 0; i < p->n_roots; i++) {
        struct network_root *r = &p->roots[i];
        if (!r->later || r->is_packed || !root_is_of(r, first, end))
            continue;
        void *packed = packed_make(p, r->later, r->unpacked, e);
        const void *kept =
            packed ? network_weights_keep(p, packed, nn_op_weight_bytes(r->later), e) : NULL;
        if (!kept)
            return e->code;
        r->fixed = kept;
        r->owns = !p->facts->shelf;
        r->is_packed = true;
    }
    return 0;
}

void network_weights_release(struct network_plan *p, int first, int end)
{
    for (int i = 0; i < p->n_roots; i++) {
        struct network_root *r = &p->roots[i];
        if (!r->is_packed || !root_is_of(r, first, end))
            continue;
        network_shelf_drop(p->facts->shelf, r->fixed);
        r->fixed = r->unpacked;
        r->is_packed = false;
    }
}
