/* Operators that follow each other, done together where that saves work, with the bits of each by
 * itself: products of the same rows share out all their outputs at once; a norm makes its rows
 * right before they are quantised for the products that read them; keys are rotated while they are
 * written to the cache. Rows that nobody else reads are made for that alone and not kept. */
#include "agent/backend/cpu/matmul_int.h"
#include "agent/backend/cpu/rows.h"

/* Operators that are put on a stream together. */
struct cpu_calls {
    struct stream *stream;
    const struct op_call *all;
    int n;
    const struct op_batch *batch;
};

/* The first from `i` on that is no view; `n`: there is none. */
static int call_from(const struct cpu_calls *c, int i)
{
    while (i < c->n && !c->all[i].op)
        i++;
    return i;
}

static bool call_is(const struct cpu_calls *c, int i, enum op_kind kind)
{
    return i < c->n && c->all[i].op->op->kind == kind;
}

/* Where rows of float32 begin and end; looked at for every product, so without the divisions of
 * tensor_row. */
static uintptr_t rows_begin(const struct tensor *t)
{
    return (uintptr_t)t->memory.data + t->offset;
}
static uintptr_t rows_end(const struct tensor *t)
{
    return t->shape[0] == 0
               ? rows_begin(t)
               : rows_begin(t) +
                     ((t->shape[0] - 1) * t->strides[0] + tensor_width(t)) * sizeof(float);
}

static bool same_rows(const struct tensor *a, const struct tensor *b)
{
    return rows_begin(a) == rows_begin(b) && a->strides[0] == b->strides[0] &&
           a->shape[0] == b->shape[0] && tensor_width(a) == tensor_width(b);
}

/* Whether some byte between the first and the last of one is also of the other. */
static bool rows_meet(const struct tensor *a, const struct tensor *b)
{
    return rows_begin(a) < rows_end(b) && rows_begin(b) < rows_end(a);
}

/* Whether no operator behind number `last` reads the result of number `i`. */
static bool result_ends(const struct cpu_calls *c, int i, int last)
{
    int reader = c->all[i].last_reader;
    return reader > 0 && i + reader <= last;
}

/* ---- products ---- */

static enum inputs_form form_of(const struct cpu_calls *c, const struct op_call *product)
{
    return cpu_matmul_form(c->stream->device, product->op->weights[0], product->out.shape[0]);
}

/* The addend of a product; its result where it has none. */
static const struct tensor *addend_of(const struct op_call *product)
{
    return product->op->op->n_inputs > 1 ? &product->inputs[1] : &product->out;
}

static bool products_meet(const struct op_call *a, const struct op_call *b)
{
    return rows_meet(&a->out, &b->out) || rows_meet(&a->out, addend_of(b)) ||
           rows_meet(&b->out, addend_of(a));
}

/* Whether `next` may run at once with n products before it. */
static bool product_joins(const struct cpu_calls *c, const struct op_call *const *products, int n,
                          const struct op_call *next)
{
    const struct op_call *first = products[0];
    enum inputs_form form = form_of(c, first);
    if (!same_rows(&next->inputs[0], &first->inputs[0]) || form_of(c, next) != form ||
        rows_meet(&next->out, &first->inputs[0]) || rows_meet(&first->out, &first->inputs[0]) ||
        (form == INPUTS_TILES && next->op->weights[0]->dtype != first->op->weights[0]->dtype))
        return false;
    for (int i = 0; i < n; i++)
        if (products_meet(products[i], next))
            return false;
    return true;
}

/* Weights of the first product from number `i` on that reads them as tiles do; behind the last one
 * the first of all, which the next slice begins with. NULL: there is none. */
static const struct device_weight *weights_next(const struct cpu_calls *c, int i)
{
    for (int k = 0; k < c->n; k++, i++) {
        const struct op_call *call = &c->all[i % c->n];
        if (call->op && call->op->op->kind == OP_MATMUL && form_of(c, call) == INPUTS_TILES)
            return call->op->weights[0];
    }
    return NULL;
}

/* Products from number `i` on that are of the same rows: queries, keys and values, a gate and what
 * it gates. Returns the number behind the last. */
static int products_run(const struct cpu_calls *c, int i, const struct matmul_maker *maker)
{
    const struct op_call *products[MATMULS_TOGETHER] = {&c->all[i]};
    int n = 1, end = i + 1;
    for (int next = call_from(c, end); n < MATMULS_TOGETHER && call_is(c, next, OP_MATMUL) &&
                                       product_joins(c, products, n, &c->all[next]);
         next = call_from(c, end)) {
        products[n++] = &c->all[next];
        end = next + 1;
    }
    cpu_matmuls(c->stream, products, n, maker, weights_next(c, end));
    return end;
}

/* ---- norms ---- */

struct norm_rows {
    const struct cpu_kernels *kernels;
    const struct op_call *norm;
};

static void norm_rows_make(const void *ctx, size_t begin, size_t n, float *to, size_t stride)
{
    const struct norm_rows *rows = ctx;
    const struct op_call *norm = rows->norm;
    for (size_t r = 0; r < n; r++)
        norm_row_make(rows->kernels, norm->op, tensor_row(&norm->inputs[0], begin + r),
                      tensor_width(&norm->out), to + r * stride);
}

/* Whether all that read the norm's rows are products right behind it that take them in the form
 * that the first of these makes. */
static bool norm_is_passing(const struct cpu_calls *c, int i, enum inputs_form form)
{
    const struct op_call *norm = &c->all[i];
    if (!result_ends(c, i, c->n - 1))
        return false;
    for (int k = call_from(c, i + 1); k <= i + norm->last_reader; k = call_from(c, k + 1)) {
        const struct op_call *reader = &c->all[k];
        if (!call_is(c, k, OP_MATMUL) || !same_rows(&reader->inputs[0], &norm->out) ||
            form_of(c, reader) != form || rows_meet(addend_of(reader), &norm->out))
            return false;
    }
    return true;
}

/* A norm, and products of it that quantise its rows. 0: there are none. */
static int norm_products_run(const struct cpu_calls *c, int i)
{
    const struct op_call *norm = &c->all[i];
    int first = call_from(c, i + 1);
    if ((!call_is(c, i, OP_RMS_NORM) && !call_is(c, i, OP_LAYER_NORM)) ||
        !call_is(c, first, OP_MATMUL) || !same_rows(&c->all[first].inputs[0], &norm->out))
        return 0;
    enum inputs_form form = form_of(c, &c->all[first]);
    if (form == INPUTS_NONE)
        return 0;
    const struct norm_rows rows = {c->stream->device->kernels, norm};
    const struct matmul_maker maker = {norm_rows_make, &rows, !norm_is_passing(c, i, form)};
    return products_run(c, first, &maker);
}

/* ---- rotation ---- */

static uint64_t batch_rows(const struct op_batch *b)
{
    uint64_t rows = 0;
    for (int i = 0; i < b->n_runs; i++)
        rows += b->runs[i].n_tokens;
    return rows;
}

/* Rotation of keys, and the attention that reads them and keeps values beside them. 0: it is none.
 */
static int turn_attend_run(const struct cpu_calls *c, int i)
{
    const struct op_call *k = &c->all[i];
    int last = call_from(c, i + 1);
    if (!call_is(c, i, OP_ROPE) || !call_is(c, last, OP_ATTENTION))
        return 0;
    const struct op_call *attention = &c->all[last];
    const struct op_attention *a = &attention->op->op->u.attention;
    const struct op_rope *rope = &k->op->op->u.rope;
    if (a->value_dim || rope->head_dim != a->head_dim ||
        !same_rows(&attention->inputs[1], &k->out) || rows_meet(&k->out, &attention->inputs[0]) ||
        rows_meet(&k->out, &attention->inputs[2]) || batch_rows(c->batch) != k->out.shape[0])
        return 0;
    const struct cpu_turn turn = {.rope = rope,
                                  .in = &k->inputs[0],
                                  .angles = &k->inputs[1],
                                  .out = result_ends(c, i, last) ? NULL : &k->out};
    c->stream->device->made.form = INPUTS_NONE;
    cpu_attention_turned(c->stream, attention->op, attention->inputs, &attention->out, c->batch,
                         &turn);
    return last + 1;
}

/* ---- all ---- */

static int one_run(const struct cpu_calls *c, int i)
{
    const struct op_call *one = &c->all[i];
    if (call_is(c, i, OP_MATMUL))
        return products_run(c, i, NULL);
    cpu_op_run(c->stream, one->op, one->inputs, &one->out, c->batch);
    return i + 1;
}

void cpu_ops_run(struct stream *s, const struct op_call *calls, int n, const struct op_batch *batch)
{
    const struct cpu_calls c = {s, calls, n, batch};
    for (int i = call_from(&c, 0), next; i < n; i = call_from(&c, next)) {
        next = norm_products_run(&c, i);
        next = next ? next : turn_attend_run(&c, i);
        next = next ? next : one_run(&c, i);
    }
}
