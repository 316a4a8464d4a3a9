#include "agent/backend/cpu/nn_loops.h"

#include <math.h>
#include <string.h>

void nn_view_dense(struct nn_view *v)
{
    int64_t step = 1;
    for (int d = v->n_dims - 1; d >= 0; d--) {
        v->strides[d] = step;
        step *= v->dims[d];
    }
}

int64_t nn_view_count(const struct nn_view *v)
{
    int64_t n = 1;
    for (int d = 0; d < v->n_dims; d++)
        n *= v->dims[d];
    return n;
}

struct nn_view nn_view_broadcast(const struct nn_view *v, const struct nn_view *to)
{
    struct nn_view b = {.n_dims = to->n_dims};
    for (int d = 0; d < to->n_dims; d++) {
        int at = d - (to->n_dims - v->n_dims);
        b.dims[d] = to->dims[d];
        b.strides[d] = at >= 0 && v->dims[at] != 1 ? v->strides[at] : 0;
    }
    return b;
}

/* Axes of one element go; the others are sorted by the output's strides, and neighbours are joined
 * where all views let them. */
struct nn_loop nn_loop_make(const struct nn_view *const *views, int n)
{
    struct nn_loop l = {0};
    int order[NN_DIMS], n_order = 0;
    for (int d = 0; d < views[0]->n_dims; d++) {
        int at = n_order;
        if (views[0]->dims[d] == 1)
            continue;
        for (; at > 0 && views[0]->strides[order[at - 1]] < views[0]->strides[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
        n_order++;
    }
    for (int i = 0; i < n_order; i++) {
        int d = order[i], last = l.n_dims - 1;
        bool joins = last >= 0;
        for (int v = 0; v < n && joins; v++)
            joins = l.strides[v][last] == views[v]->strides[d] * views[0]->dims[d];
        last = joins ? last : l.n_dims++;
        l.dims[last] = (joins ? l.dims[last] : 1) * views[0]->dims[d];
        for (int v = 0; v < n; v++)
            l.strides[v][last] = views[v]->strides[d];
    }
    if (l.n_dims == 0) {
        l.n_dims = 1;
        l.dims[0] = 1;
        for (int v = 0; v < n; v++)
            l.strides[v][0] = 1;
    }
    return l;
}

/* ---- parts ---- */

/* Of the innermost axis a part has so many elements at least: those of a register, and a line of
 * the cache. */
enum { LOOP_UNIT = 16 };

static int64_t loop_units(const struct nn_loop *l, int axis)
{
    return axis == l->n_dims - 1 ? (l->dims[axis] + LOOP_UNIT - 1) / LOOP_UNIT : l->dims[axis];
}

bool nn_loop_part(const struct nn_loop *l, int part, int parts, struct nn_loop *out,
                  int64_t offsets[LOOP_VIEWS])
{
    int axis = 0;
    for (int d = 1; d < l->n_dims && loop_units(l, axis) < parts; d++)
        if (loop_units(l, d) > loop_units(l, axis))
            axis = d;
    int64_t units = loop_units(l, axis), unit = axis == l->n_dims - 1 ? LOOP_UNIT : 1;
    int64_t from = units * part / parts * unit, end = units * (part + 1) / parts * unit;
    end = end > l->dims[axis] ? l->dims[axis] : end;
    *out = *l;
    out->dims[axis] = end - from;
    for (int v = 0; v < LOOP_VIEWS; v++)
        offsets[v] = from * l->strides[v][axis];
    return end > from;
}

/* ---- walking the outer axes ---- */

struct loop_at {
    int64_t at[NN_DIMS], offset[LOOP_VIEWS];
};

/* To the next element of the first n_dims axes; false: that was the last. */
static bool loop_next(const struct nn_loop *l, int n_dims, struct loop_at *w)
{
    for (int d = n_dims - 1; d >= 0; d--) {
        for (int v = 0; v < LOOP_VIEWS; v++)
            w->offset[v] += l->strides[v][d];
        if (++w->at[d] < l->dims[d])
            return true;
        for (int v = 0; v < LOOP_VIEWS; v++)
            w->offset[v] -= l->strides[v][d] * l->dims[d];
        w->at[d] = 0;
    }
    return false;
}

void nn_loop_unary(const struct nn_kernels *k, const struct nn_loop *l, enum nn_unary f, float a,
                   float b, float *out, const float *x)
{
    struct loop_at w = {0};
    int last = l->n_dims - 1;
    do
        if (l->strides[1][last] == 1)
            k->unary(f, a, b, x + w.offset[1], out + w.offset[0], (size_t)l->dims[last]);
        else
            for (int64_t i = 0; i < l->dims[last]; i++)
                k->unary(f, a, b, x + w.offset[1] + i * l->strides[1][last], out + w.offset[0] + i,
                         1);
    while (loop_next(l, last, &w));
}

void nn_loop_binary(const struct nn_kernels *k, const struct nn_loop *l, enum nn_binary f,
                    float *out, const float *x, const float *y)
{
    struct loop_at w = {0};
    int last = l->n_dims - 1;
    do
        k->binary(f, x + w.offset[1], l->strides[1][last], y + w.offset[2], l->strides[2][last],
                  out + w.offset[0], (size_t)l->dims[last]);
    while (loop_next(l, last, &w));
}

void nn_loop_copy(const struct nn_kernels *k, const struct nn_loop *l, float *out, const float *x)
{
    struct loop_at w = {0};
    int last = l->n_dims - 1;
    if (l->strides[0][last] == 1 && l->strides[1][last] == 1) {
        bool many = last > 0 && l->dims[last] <= 256;
        do
            if (many)
                k->copy(x + w.offset[1], l->strides[1][last - 1], out + w.offset[0],
                        l->strides[0][last - 1], (size_t)l->dims[last - 1], (size_t)l->dims[last]);
            else
                memcpy(out + w.offset[0], x + w.offset[1], (size_t)l->dims[last] * sizeof *out);
        while (loop_next(l, many ? last - 1 : last, &w));
        return;
    }
    if (l->strides[0][last] != 1 || last == 0) {
        do
            for (int64_t i = 0; i < l->dims[last]; i++)
                out[w.offset[0] + i * l->strides[0][last]] =
                    x[w.offset[1] + i * l->strides[1][last]];
        while (loop_next(l, last, &w));
        return;
    }
    /* Transposed: beside the innermost axis goes the one in which the input is dense. */
    struct nn_loop t = *l;
    int beside = last - 1;
    for (int d = 0; d < last; d++)
        if (l->strides[1][d] < l->strides[1][beside] && l->strides[1][d] > 0)
            beside = d;
    t.dims[last - 1] = l->dims[beside];
    t.dims[beside] = l->dims[last - 1];
    for (int v = 0; v < LOOP_VIEWS; v++) {
        t.strides[v][last - 1] = l->strides[v][beside];
        t.strides[v][beside] = l->strides[v][last - 1];
    }
    do
        k->gather(x + w.offset[1], t.strides[1][last - 1], t.strides[1][last], out + w.offset[0],
                  t.strides[0][last - 1], (size_t)t.dims[last - 1], (size_t)t.dims[last]);
    while (loop_next(&t, last - 1, &w));
}

/* ---- sums along axes ---- */

struct nn_reduction nn_reduction_make(const struct nn_view *x, const struct nn_view *out,
                                      const bool gone[NN_DIMS])
{
    /* `out` keeps its axes, of one element where they are gone. */
    struct nn_view few = *out, from = *x, away = {.n_dims = x->n_dims};
    for (int d = 0; d < x->n_dims; d++) {
        away.dims[d] = gone[d] ? x->dims[d] : 1;
        away.strides[d] = x->strides[d];
        from.dims[d] = gone[d] ? 1 : x->dims[d];
    }
    const struct nn_view *stay[] = {&few, &from}, *go[] = {&away, &away};
    return (struct nn_reduction){.stays = nn_loop_make(stay, 2), .gone = nn_loop_make(go, 2)};
}

void nn_reduce(const struct nn_kernels *k, const struct nn_reduction *r, float *out, const float *x)
{
    struct loop_at w = {0};
    int last = r->stays.n_dims - 1, inner = r->gone.n_dims - 1;
    size_t n = (size_t)r->stays.dims[last];
    bool rows = r->stays.strides[1][last] == 1 && r->stays.strides[0][last] == 1 && n > 1;
    do {
        float *to = out + w.offset[0];
        const float *from = x + w.offset[1];
        for (size_t i = 0; i < (rows ? 1 : n); i++) {
            float *o = to + (int64_t)i * r->stays.strides[0][last];
            const float *f = from + (int64_t)i * r->stays.strides[1][last];
            struct loop_at g = {0};
            bool first = true;
            do {
                const float *at = f + g.offset[1];
                int64_t step = r->gone.strides[1][inner], count = r->gone.dims[inner];
                if (!rows && step == 1) {
                    float v = r->is_max ? k->largest(at, (size_t)count) : k->sum(at, (size_t)count);
                    *o = first ? v : r->is_max ? fmaxf(*o, v) : *o + v;
                } else {
                    for (int64_t j = 0; j < count; j++) {
                        if (first && j == 0)
                            memcpy(o, at, (rows ? n : 1) * sizeof *o);
                        else
                            k->binary(r->is_max ? NN_MAX : NN_ADD, o, 1, at + j * step, 1, o,
                                      rows ? n : 1);
                    }
                }
                first = false;
            } while (loop_next(&r->gone, inner, &g));
            if (r->scale != 1)
                k->unary(NN_SCALE, r->scale, 0, o, o, rows ? n : 1);
        }
    } while (loop_next(&r->stays, last, &w));
}

void nn_reduce_part(const struct nn_kernels *k, const struct nn_reduction *r, int part, int parts,
                    float *out, const float *x)
{
    struct nn_reduction own = *r;
    int64_t offsets[LOOP_VIEWS];
    if (nn_loop_part(&r->stays, part, parts, &own.stays, offsets))
        nn_reduce(k, &own, out + offsets[0], x + offsets[1]);
}

/* ---- windows ---- */

/* The elements [*first, *end) of a kernel's axis whose place lies in [least, most). */
static void pool_reach(const struct nn_pool *p, int d, int64_t out, int64_t least, int64_t most,
                       int64_t *first, int64_t *end)
{
    int64_t at = out * p->stride[d] - p->before[d], step = p->dilation[d];
    *first = at >= least ? 0 : (least - at + step - 1) / step;
    *end = at >= most ? 0 : (most - at - 1) / step + 1;
    *end = *end > p->kernel[d] ? p->kernel[d] : *end;
}

enum { WINDOW_ROWS = 64 };

/* Some rows of a large window, to what the ones before made of it. */
static void pool_rows(const struct nn_kernels *k, const struct nn_pool *p, const float *x,
                      const int64_t *rows, int n, const float *const *weights, bool begun,
                      float *out)
{
    size_t channels = (size_t)p->channels;
    if (!begun) {
        k->window(x, rows, n, p->weights ? weights : NULL, p->bias, p->is_max, 1, out, channels);
        return;
    }
    if (p->weights) {
        k->window(x, rows, n, weights, out, false, 1, out, channels);
        return;
    }
    for (int i = 0; i < n; i++)
        k->binary(p->is_max ? NN_MAX : NN_ADD, out, 1, x + rows[i], 1, out, channels);
}

/* One place of the output: the rows of its window that are there, so many at a time. */
static void pool_window(const struct nn_kernels *k, const struct nn_pool *p,
                        const int64_t o[NN_AXES], float *out, const float *x)
{
    int64_t first[NN_AXES], end[NN_AXES], at[NN_AXES], i[NN_AXES], rows[WINDOW_ROWS], n = 1;
    int64_t padded = 1;
    const float *weights[WINDOW_ROWS];
    int held = 0;
    bool begun = false;
    for (int d = 0; d < NN_AXES; d++) {
        int64_t a, b;
        pool_reach(p, d, o[d], -p->before[d], p->in[d] + p->after[d], &a, &b);
        padded *= b - a;
        pool_reach(p, d, o[d], 0, p->in[d], &first[d], &end[d]);
        at[d] = o[d] * p->stride[d] - p->before[d];
        n *= end[d] > first[d] ? end[d] - first[d] : 0;
    }
    size_t channels = (size_t)p->channels;
    float scale = 1.0f / (float)(p->counts_pads ? padded : n);
    for (i[0] = first[0]; i[0] < end[0]; i[0]++)
        for (i[1] = first[1]; i[1] < end[1]; i[1]++)
            for (i[2] = first[2]; i[2] < end[2]; i[2]++) {
                int64_t tap = (i[0] * p->kernel[1] + i[1]) * p->kernel[2] + i[2];
                weights[held] = p->weights ? p->weights + tap * p->channels : NULL;
                rows[held++] =
                    (((at[0] + i[0] * p->dilation[0]) * p->in[1] + at[1] + i[1] * p->dilation[1]) *
                         p->in[2] +
                     at[2] + i[2] * p->dilation[2]) *
                    p->channels;
                if (held < WINDOW_ROWS)
                    continue;
                pool_rows(k, p, x, rows, held, weights, begun, out);
                held = 0;
                begun = true;
            }
    if (n == 0 && !p->weights)
        for (size_t c = 0; c < channels; c++)
            out[c] = p->is_max ? -INFINITY : 0;
    else if (!begun)
        k->window(x, rows, held, p->weights ? weights : NULL, p->bias, p->is_max, scale, out,
                  channels);
    else {
        if (held > 0)
            pool_rows(k, p, x, rows, held, weights, begun, out);
        if (!p->is_max && !p->weights)
            k->unary(NN_SCALE, scale, 0, out, out, channels);
    }
}

/* Whether every row of the kernel lies in the input along an axis. */
static bool pool_is_inside(const struct nn_pool *p, int d, int64_t out)
{
    int64_t at = out * p->stride[d] - p->before[d];
    return at >= 0 && at + (p->kernel[d] - 1) * p->dilation[d] < p->in[d];
}

/* The rows of a window that lies inside, from its first on; false: they are too many. */
static bool pool_inside_rows(const struct nn_pool *p, int64_t rows[WINDOW_ROWS],
                             const float *weights[WINDOW_ROWS], int *n)
{
    int64_t i[NN_AXES];
    *n = 0;
    if (p->kernel[0] * p->kernel[1] * p->kernel[2] > WINDOW_ROWS)
        return false;
    for (i[0] = 0; i[0] < p->kernel[0]; i[0]++)
        for (i[1] = 0; i[1] < p->kernel[1]; i[1]++)
            for (i[2] = 0; i[2] < p->kernel[2]; i[2]++) {
                rows[*n] = ((i[0] * p->dilation[0] * p->in[1] + i[1] * p->dilation[1]) * p->in[2] +
                            i[2] * p->dilation[2]) *
                           p->channels;
                weights[*n] = p->weights ? p->weights + *n * p->channels : NULL;
                ++*n;
            }
    return true;
}

/* The windows of one line of the output. */
struct window_line {
    int64_t rows[WINDOW_ROWS];
    const float *weights[WINDOW_ROWS];
    int n;
    bool is_small;
};

static void window_line_run(const struct nn_kernels *k, const struct nn_pool *p,
                            const struct window_line *l, int64_t o[NN_AXES], float *out,
                            const float *x)
{
    bool inside = l->is_small && pool_is_inside(p, 0, o[0]) && pool_is_inside(p, 1, o[1]);
    int64_t line =
        ((o[0] * p->stride[0] - p->before[0]) * p->in[1] + o[1] * p->stride[1] - p->before[1]) *
        p->in[2];
    for (o[2] = 0; o[2] < p->out[2]; o[2]++, out += p->channels)
        if (inside && pool_is_inside(p, 2, o[2]))
            k->window(x + (line + o[2] * p->stride[2] - p->before[2]) * p->channels, l->rows, l->n,
                      p->weights ? l->weights : NULL, p->bias, p->is_max, 1.0f / (float)l->n, out,
                      (size_t)p->channels);
        else
            pool_window(k, p, o, out, x);
}

void nn_pool_part(const struct nn_kernels *k, const struct nn_pool *p, int part, int parts,
                  float *out, const float *x)
{
    int64_t plane = p->in[0] * p->in[1] * p->in[2] * p->channels, o[NN_AXES];
    int64_t lines = p->batch * p->out[0] * p->out[1], end = lines * (part + 1) / parts;
    struct window_line l;
    l.is_small = pool_inside_rows(p, l.rows, l.weights, &l.n);
    for (int64_t i = lines * part / parts; i < end; i++) {
        o[0] = i / p->out[1] % p->out[0];
        o[1] = i % p->out[1];
        window_line_run(k, p, &l, o, out + i * p->out[2] * p->channels,
                        x + i / (p->out[0] * p->out[1]) * plane);
    }
}
