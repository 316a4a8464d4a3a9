#include "agent/backend/cpu/nn_task.h"

#include <string.h>

/* Elements of a flat array go in units, so that no two threads write to one line of the cache. */
enum { UNIT = 64 };

static double view_count(const struct nn_view *v)
{
    double n = 1;
    for (int d = 0; d < v->n_dims; d++)
        n *= (double)v->dims[d];
    return n;
}

double nn_task_work(const struct nn_task *t)
{
    enum { OF_AN_ELEMENT = 16 }; /* of functions, about */
    double each = 2;
    const struct nn_conv *c = &t->u.conv;
    switch (t->kind) {
    case NN_TASK_CONV:
        for (int d = 0; d < c->n_axes; d++)
            each *= (double)c->kernel[d];
        each *= (double)(c->turned ? c->y.dims[1] : c->x.dims[1]) / (double)c->groups;
        return each * view_count(c->turned ? &c->x : &c->y);
    case NN_TASK_MATMUL:
        each *= (double)t->u.matmul.x.dims[t->u.matmul.x.n_dims - 1];
        return each * view_count(&t->u.matmul.y);
    case NN_TASK_SOFTMAX: return OF_AN_ELEMENT * view_count(&t->u.softmax.x);
    case NN_TASK_ELEMENTS: return OF_AN_ELEMENT * view_count(&t->u.elements.x);
    }
    return 0;
}

/* ---- how ---- */

/* The axes that can be cut, outermost first. */
static void axes_find(const struct nn_task *t, struct nn_cut *c)
{
    const struct nn_conv *conv = &t->u.conv;
    const struct nn_matmul *m = &t->u.matmul;
    switch (t->kind) {
    case NN_TASK_CONV:
        c->steps[c->n_axes++] = conv->y.dims[0];
        if (!conv->turned)
            c->steps[c->n_axes++] = conv->y.dims[2];
        break;
    case NN_TASK_MATMUL:
        for (int d = 0; d + 1 < m->y.n_dims && !(m->packs && m->w.n_dims > 2); d++)
            c->steps[c->n_axes++] = m->y.dims[d];
        break;
    case NN_TASK_SOFTMAX:
        for (int d = 0; d < t->u.softmax.axis; d++)
            c->steps[c->n_axes++] = t->u.softmax.x.dims[d];
        break;
    case NN_TASK_ELEMENTS:
        if (t->u.elements.x.n_dims == 1)
            c->steps[c->n_axes++] = (t->u.elements.x.dims[0] + UNIT - 1) / UNIT;
        break;
    }
}

static int64_t divided_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Ranges of an axis of which there are `outer` as many parts, such that the thread with most to do
 * has the least; fewer ranges where that is the same. Gives what that thread then does. */
static int64_t ranges_choose(int64_t steps, int64_t outer, int threads, int64_t *ranges)
{
    int64_t most = divided_up(4 * (int64_t)threads, outer), least = INT64_MAX;
    for (int64_t r = 1; r <= most && r <= steps; r++) {
        int64_t longest = divided_up(outer * r, threads) * divided_up(steps, r);
        if (longest < least) {
            least = longest;
            *ranges = r;
        }
    }
    return least;
}

struct nn_cut nn_task_cut(const struct nn_task *t, int threads)
{
    struct nn_cut c = {.n_parts = 1};
    int64_t outer = 1;
    axes_find(t, &c);
    for (int d = 0; d < c.n_axes; d++)
        c.ranges[d] = 1;
    for (int d = 0; d < c.n_axes && threads > 1; d++) {
        int64_t longest = ranges_choose(c.steps[d], outer, threads, &c.ranges[d]);
        double even = (double)outer * (double)c.steps[d] / threads;
        bool good = even >= 0.9 * (double)longest, last = d + 1 == c.n_axes;
        if (!good && !last && outer * c.steps[d] <= 2 * (int64_t)threads)
            c.ranges[d] = c.steps[d]; /* each by itself, and the next axis is cut too */
        outer *= c.ranges[d];
        if (good || c.ranges[d] < c.steps[d])
            break;
    }
    c.n_parts = (int)outer;
    return c;
}

/* ---- one part ---- */

struct nn_box {
    int64_t from[NN_DIMS], n[NN_DIMS];
};

static struct nn_box part_box(const struct nn_cut *c, int part)
{
    struct nn_box b;
    int64_t left = part;
    for (int d = c->n_axes - 1; d >= 0; d--) {
        int64_t range = left % c->ranges[d];
        left /= c->ranges[d];
        b.from[d] = c->steps[d] * range / c->ranges[d];
        b.n[d] = c->steps[d] * (range + 1) / c->ranges[d] - b.from[d];
    }
    return b;
}

/* Elements [from, from + n) of an axis; of a broadcast one the only element. */
static int64_t view_slice(struct nn_view *v, int axis, int64_t from, int64_t n)
{
    if (v->dims[axis] == 1)
        return 0;
    v->dims[axis] = n;
    return from * v->strides[axis];
}

/* Where `next`, beside which an axis of one element lies, was cut, the axis has the stride that it
 * has in a dense array: oneDNN asks for it. */
static void view_close(struct nn_view *v, const struct nn_view *whole, int axis, int next)
{
    if (v->dims[axis] == 1 &&
        (v->dims[next] != whole->dims[next] || v->strides[next] != whole->strides[next]))
        v->strides[axis] = v->dims[next] * v->strides[next];
}

/* Cuts axes, the outermost first, and gives where the part begins. */
static int64_t view_cut(struct nn_view *v, const struct nn_box *b, const int *axes, int n)
{
    struct nn_view whole = *v;
    int64_t offset = 0;
    for (int a = 0; a < n; a++)
        offset += view_slice(v, axes[a], b->from[a], b->n[a]);
    for (int a = n - 2; a >= 0; a--)
        view_close(v, &whole, axes[a], axes[a + 1]);
    return offset;
}

static void posts_cut(struct nn_posts *posts, const struct nn_box *b, const int *axes, int n,
                      int64_t offsets[NN_SLOTS])
{
    for (int i = 0; i < posts->n; i++)
        if (posts->list[i].kind != NN_POST_FUNCTION)
            offsets[NN_OTHER + i] = view_cut(&posts->list[i].other, b, axes, n);
}

/* Rows [from, from + n) of the output need those of the input that their windows reach; of windows
 * that leave rows out those too, as the whole has them, or oneDNN's kernels would be others. */
static bool rows_slice(struct nn_conv *c, int64_t from, int64_t n, int64_t offsets[NN_SLOTS])
{
    int64_t first = from * c->stride[0] - c->before[0], in = c->x.dims[2];
    int64_t end = first + (n - 1) * c->stride[0] + (c->kernel[0] - 1) * c->dilation[0] + 1;
    int64_t next = first + n * c->stride[0], wanted = next > end ? next : end;
    int64_t least = first < 0 ? 0 : first, most = wanted > in ? in : wanted;
    if (most <= least)
        return false;
    c->before[0] = least - first;
    c->after[0] = end - most;
    offsets[NN_X] += least * c->x.strides[2];
    c->x.dims[2] = most - least;
    return true;
}

static bool conv_part(struct nn_conv *c, const struct nn_cut *cut, const struct nn_box *b,
                      int64_t offsets[NN_SLOTS])
{
    static const int axes[] = {0, 2};
    struct nn_view whole = c->x;
    bool good = true;
    offsets[NN_X] = view_slice(&c->x, 0, b->from[0], b->n[0]);
    if (cut->n_axes > 1 && cut->ranges[1] > 1)
        good = rows_slice(c, b->from[1], b->n[1], offsets);
    view_close(&c->x, &whole, 0, 2);
    offsets[NN_Y] = view_cut(&c->y, b, axes, cut->n_axes);
    posts_cut(&c->posts, b, axes, cut->n_axes, offsets);
    return good;
}

static void matmul_part(struct nn_matmul *m, const struct nn_box *b, int64_t offsets[NN_SLOTS])
{
    int n = m->y.n_dims - 1, axes[NN_DIMS];
    for (int d = 0; d < n; d++)
        axes[d] = d;
    offsets[NN_X] = view_cut(&m->x, b, axes, n);
    offsets[NN_WEIGHTS] = view_cut(&m->w, b, axes, n - 1);
    offsets[NN_Y] = view_cut(&m->y, b, axes, n);
    posts_cut(&m->posts, b, axes, n, offsets);
}

static void softmax_part(struct nn_softmax *s, const struct nn_box *b, int64_t offsets[NN_SLOTS])
{
    int axes[NN_DIMS];
    for (int d = 0; d < s->axis; d++)
        axes[d] = d;
    offsets[NN_X] = offsets[NN_Y] = view_cut(&s->x, b, axes, s->axis);
}

static void elements_part(struct nn_elements *e, const struct nn_box *b, int64_t offsets[NN_SLOTS])
{
    int64_t from = b->from[0] * UNIT, n = b->n[0] * UNIT, all = e->x.dims[0];
    offsets[NN_X] = offsets[NN_Y] = from;
    e->x.dims[0] = from + n > all ? all - from : n;
}

bool nn_task_part(const struct nn_task *t, const struct nn_cut *c, int part, struct nn_task *out,
                  int64_t offsets[NN_SLOTS])
{
    struct nn_box b = part_box(c, part);
    *out = *t;
    memset(offsets, 0, NN_SLOTS * sizeof *offsets);
    switch (t->kind) {
    case NN_TASK_CONV: return conv_part(&out->u.conv, c, &b, offsets);
    case NN_TASK_MATMUL: matmul_part(&out->u.matmul, &b, offsets); break;
    case NN_TASK_SOFTMAX: softmax_part(&out->u.softmax, &b, offsets); break;
    case NN_TASK_ELEMENTS: elements_part(&out->u.elements, &b, offsets); break;
    }
    return true;
}
