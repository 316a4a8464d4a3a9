/* Where values lie: roots, views of them, and copies from one layout to another. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"
#include "common/vector.h"

/* Kernels count rows and elements of a value by 31 bits. */
#define DEVICE_VALUE_BYTES ((uint64_t)INT32_MAX * sizeof(float))

/* ---- roots and steps ---- */

static int root_add(struct network_plan *p, const struct network_root *r, struct err *e)
{
    if (!vector_push(p->roots, p->n_roots, p->room_roots, *r)) {
        union {
            const void *in;
            void *out;
        } data = {r->owns ? r->fixed : NULL};
        free(data.out);
        return err_no_memory(e, "a plan's memory");
    }
    return p->n_roots - 1;
}

int network_root_new(struct network_plan *p, uint64_t bytes, struct err *e)
{
    if (bytes > network_limit(p->network))
        return err_set(e, HP_ELIMIT, "a value of %llu bytes", (unsigned long long)bytes);
    if (p->facts->device && bytes > DEVICE_VALUE_BYTES)
        return err_set(e, HP_ELIMIT, "a value of %llu bytes; on a device at most %llu are computed",
                       (unsigned long long)bytes, (unsigned long long)DEVICE_VALUE_BYTES);
    struct network_root r = {.bytes = bytes, .first = INT_MAX, .last = -1};
    return root_add(p, &r, e);
}

int network_root_fixed(struct network_plan *p, const void *data, uint64_t bytes, bool owns,
                       struct err *e)
{
    struct network_root r = {
        .first = INT_MAX, .last = -1, .fixed = data, .fixed_bytes = bytes, .owns = owns};
    return root_add(p, &r, e);
}

const void *network_weights_keep(const struct network_plan *p, void *data, size_t bytes,
                                 struct err *e)
{
    const void *kept = data;
    if (p->facts->shelf && network_shelf_keep(p->facts->shelf, data, bytes, &kept, e) < 0)
        return NULL;
    return kept;
}

int network_root_weights(struct network_plan *p, void *data, size_t bytes, struct err *e)
{
    const void *kept = network_weights_keep(p, data, bytes, e);
    return kept ? network_root_fixed(p, kept, bytes, !p->facts->shelf, e) : e->code;
}

void network_root_use(struct network_plan *p, int root)
{
    struct network_root *r = &p->roots[root];
    r->first = p->n_steps < r->first ? p->n_steps : r->first;
    r->last = p->n_steps > r->last ? p->n_steps : r->last;
}

const void *network_root_data(const struct network_plan *p, int root)
{
    const struct network_root *r = &p->roots[root];
    return r->fixed ? r->fixed : p->arena ? p->arena + r->offset : NULL;
}

int network_step_add(struct network_plan *p, const struct network_step *s, struct err *e)
{
    if (vector_push(p->steps, p->n_steps, p->room_steps, *s))
        return 0;
    if (s->free)
        s->free(s->data);
    return err_no_memory(e, "a plan's steps");
}

/* ---- layouts ---- */

struct nn_view network_sizes(const struct ndarray *a)
{
    struct nn_view v = {.n_dims = a->n_dims};
    memcpy(v.dims, a->dims, (size_t)a->n_dims * sizeof *v.dims);
    nn_view_dense(&v);
    return v;
}

void network_strides(struct nn_view *v, enum network_layout layout)
{
    nn_view_dense(v);
    if (layout != LAYOUT_LAST || v->n_dims < 3)
        return;
    int64_t step = v->dims[1];
    v->strides[1] = 1;
    for (int d = v->n_dims - 1; d >= 2; d--) {
        v->strides[d] = step;
        step *= v->dims[d];
    }
    v->strides[0] = step;
}

bool network_view_is(const struct nn_view *v, enum network_layout layout)
{
    struct nn_view wanted = *v;
    if (layout == LAYOUT_ANY)
        return true;
    network_strides(&wanted, layout);
    for (int d = 0; d < v->n_dims; d++)
        if (v->dims[d] != 1 && v->strides[d] != wanted.strides[d])
            return false;
    return true;
}

bool network_view_is_dense(const struct nn_view *v)
{
    const struct nn_view *views[] = {v, v};
    struct nn_loop l = nn_loop_make(views, 2);
    return l.n_dims == 1 && l.strides[0][0] == 1;
}

enum network_layout network_layout_of(const struct nn_view *v)
{
    if (v->n_dims < 3 || network_view_is(v, LAYOUT_PLAIN))
        return LAYOUT_PLAIN;
    for (int d = 2; d < v->n_dims; d++)
        if (v->dims[d] != 1 && v->strides[d] < v->strides[1])
            return LAYOUT_PLAIN;
    return v->dims[1] == 1 ? LAYOUT_PLAIN : LAYOUT_LAST;
}

/* Axes [*i, *end) of the old sizes and [*j, *new_end) of the new that have as many elements. */
static void group_next(const struct nn_view *from, const struct ndarray *to, int i, int j, int *end,
                       int *new_end)
{
    int64_t olds = from->dims[i], news = to->dims[j];
    *end = i + 1;
    *new_end = j + 1;
    while (olds != news)
        if (olds < news)
            olds *= from->dims[(*end)++];
        else
            news *= to->dims[(*new_end)++];
}

bool network_view_reshape(const struct nn_view *given, const struct ndarray *to,
                          struct nn_view *out)
{
    struct nn_view from = {0};
    for (int d = 0; d < given->n_dims; d++)
        if (given->dims[d] != 1) {
            from.dims[from.n_dims] = given->dims[d];
            from.strides[from.n_dims++] = given->strides[d];
        }
    *out = network_sizes(to);
    int i = 0, j = 0;
    while (i < from.n_dims) {
        int end, new_end;
        while (to->dims[j] == 1)
            j++;
        group_next(&from, to, i, j, &end, &new_end);
        for (int k = i; k + 1 < end; k++)
            if (from.strides[k] != from.strides[k + 1] * from.dims[k + 1])
                return false;
        int64_t step = from.strides[end - 1];
        for (int k = new_end - 1; k >= j; k--) {
            out->strides[k] = step;
            step *= to->dims[k];
        }
        i = end;
        j = new_end;
    }
    return true;
}

/* ---- parts ---- */

void network_job_run(struct network_plan *p, const struct network_step *s, int64_t elements,
                     void (*fn)(void *job, int part, int parts))
{
    struct network_job job = {p, s->data};
    nn_parts_run(p->nn, elements, fn, &job);
}

/* ---- copies ---- */

struct copy_step {
    struct nn_loop loop;
    struct network_view to, from;
};

static void copy_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct copy_step *c = j->data;
    struct nn_loop own;
    int64_t at[LOOP_VIEWS];
    if (nn_loop_part(&c->loop, part, parts, &own, at))
        nn_loop_copy(j->p->kernels, &own, network_out(j->p, &c->to) + at[0],
                     network_in(j->p, &c->from) + at[1]);
}

static int copy_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct copy_step *c = s->data;
    network_job_run(p, s, nn_view_count(&c->to.v), copy_part);
    (void)e;
    return 0;
}

static int copy_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct copy_step *c = s->data;
    network_there_elements(p, (struct array_elements){.rule = ARRAY_COPY, .loop = c->loop}, &c->to,
                           &c->from, NULL);
    (void)e;
    return 0;
}

int network_copy_add(struct network_plan *p, const struct network_view *to,
                     const struct network_view *from, struct err *e)
{
    struct copy_step *c = calloc(1, sizeof *c);
    if (!c)
        return err_no_memory(e, "a step");
    const struct nn_view *views[] = {&to->v, &from->v};
    *c = (struct copy_step){.loop = nn_loop_make(views, 2), .to = *to, .from = *from};
    network_root_use(p, to->root);
    network_root_use(p, from->root);
    struct network_step step = {.run = copy_run,
                                .run_there = copy_run_there,
                                .free = free,
                                .data = c,
                                .name = "copy",
                                .node = -1};
    return network_step_add(p, &step, e);
}

/* What is fixed is copied now, for good. */
static int fixed_copy(struct network_plan *p, const struct network_view *from,
                      struct network_view *out, struct err *e)
{
    const struct nn_view *views[] = {&out->v, &from->v};
    struct nn_loop loop = nn_loop_make(views, 2);
    float *data = calloc((size_t)nn_view_count(&out->v) + 1, sizeof *data);
    if (!data)
        return err_no_memory(e, "a weight in another order");
    nn_loop_copy(p->kernels, &loop, data, network_in(p, from));
    out->root =
        network_root_fixed(p, data, (uint64_t)nn_view_count(&out->v) * sizeof *data, true, e);
    return out->root < 0 ? out->root : 0;
}

static int view_copy(struct network_plan *p, const struct network_view *from,
                     enum network_layout layout, struct network_view *out, struct err *e)
{
    *out = (struct network_view){.v = from->v};
    network_strides(&out->v, layout);
    if (p->roots[from->root].fixed)
        return fixed_copy(p, from, out, e);
    out->root = network_root_new(p, (uint64_t)nn_view_count(&out->v) * sizeof(float), e);
    return out->root < 0 ? out->root : network_copy_add(p, out, from, e);
}

/* A known value's array as memory that is there. */
static int known_view(struct network_plan *p, int value, struct err *e)
{
    struct network_value *v = &p->values[value];
    v->view = (struct network_view){.v = network_sizes(&v->array)};
    v->view.root = network_root_fixed(p, v->array.data, ndarray_bytes(&v->array), false, e);
    v->has_view = v->view.root >= 0;
    return v->has_view ? 0 : v->view.root;
}

int network_need(struct network_plan *p, int value, enum network_layout layout,
                 struct network_view *out, struct err *e)
{
    struct network_value *v = &p->values[value];
    int rc = v->has_view ? 0 : known_view(p, value, e);
    if (rc < 0 || network_view_is(&v->view.v, layout)) {
        *out = v->view;
        if (rc == 0 && layout != LAYOUT_ANY)
            network_strides(&out->v, layout); /* axes of one element have its strides too */
        return rc;
    }
    if (!v->has_copy[layout]) {
        rc = view_copy(p, &v->view, layout, &v->copies[layout], e);
        v->has_copy[layout] = rc == 0;
    }
    *out = v->copies[layout];
    return rc;
}

void network_set_view(struct network_plan *p, int value, const struct network_view *v)
{
    p->values[value].view = *v;
    p->values[value].has_view = true;
}

int network_make_view(struct network_plan *p, int value, const struct nn_view *strides,
                      struct network_view *out, struct err *e)
{
    const struct ndarray *a = &p->values[value].array;
    *out = (struct network_view){.v = *strides};
    out->root = network_root_new(p, ndarray_bytes(a), e);
    if (out->root < 0)
        return out->root;
    network_set_view(p, value, out);
    return 0;
}
