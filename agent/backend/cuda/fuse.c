/* Operators that follow each other, several in one kernel: what a product reads next is made ready
 * for it by whoever makes it, a sum and its norm, a gate's two halves, rotation and the writing of
 * keys and values are one launch each. All that each operator writes by itself is written. */
#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

/* Operators that are put on a stream together. */
struct cuda_calls {
    struct cuda_stream *stream;
    const struct op_call *all;
    int n;
    const struct op_batch *batch;
};

static const struct cuda_op *op_of(const struct op_call *c)
{
    return (const struct cuda_op *)c->op;
}

static enum op_kind kind_of(const struct op_call *c)
{
    return op_of(c)->request.op->kind;
}

/* The first from `i` on that is no view; `n`: there is none. */
static int call_from(const struct cuda_calls *c, int i)
{
    while (i < c->n && !c->all[i].op)
        i++;
    return i;
}

/* The `which`th of those from `i` on, if it is of the kind. NULL: it is not. */
static const struct op_call *call_if(const struct cuda_calls *c, int i, int which,
                                     enum op_kind kind)
{
    for (i = call_from(c, i); which && i < c->n; which--)
        i = call_from(c, i + 1);
    return i < c->n && kind_of(&c->all[i]) == kind ? &c->all[i] : NULL;
}

static bool same_rows(const struct tensor *a, const struct tensor *b)
{
    return tensor_row(a, 0) == tensor_row(b, 0) && a->strides[0] == b->strides[0] &&
           a->shape[0] == b->shape[0] && tensor_width(a) == tensor_width(b);
}

/* Rows that a block writes when it has read those of the same number. */
static bool rows_may_follow(const struct tensor *written, const struct tensor *read)
{
    return same_rows(written, read) || !cuda_rows_meet(written, read);
}

/* What the operator after `i` wants of rows that are written now. */
static struct cuda_form form_wanted(const struct cuda_calls *c, int i, const struct tensor *out)
{
    const struct op_call *product = call_if(c, i, 1, OP_MATMUL);
    if (!product || !same_rows(&product->inputs[0], out) || out->shape[0] == 0)
        return (struct cuda_form){.form = GPU_FORM_NONE};
    return cuda_matmul_form(c->stream, op_of(product), product->inputs, &product->out);
}

static int call_index(const struct cuda_calls *c, const struct op_call *one)
{
    return (int)(one - c->all);
}

/* ---- several in one ---- */

/* A sum, and the norm of it. */
static int sum_norm_run(const struct cuda_calls *c, int i)
{
    const struct op_call *add = call_if(c, i, 0, OP_ADD), *norm = call_if(c, i, 1, OP_RMS_NORM);
    norm = norm ? norm : call_if(c, i, 1, OP_LAYER_NORM);
    if (!add || !norm || !same_rows(&norm->inputs[0], &add->out) || add->out.shape[0] == 0 ||
        cuda_norm_width(op_of(norm), &norm->out) != tensor_width(&norm->out) ||
        !rows_may_follow(&norm->out, &add->inputs[0]) ||
        !rows_may_follow(&norm->out, &add->inputs[1]) || !rows_may_follow(&norm->out, &add->out))
        return 0;
    int last = call_index(c, norm);
    struct cuda_form form = form_wanted(c, last, &norm->out);
    struct gpu_formed formed = cuda_form_make(c->stream, &form);
    cuda_norm_run(c->stream, op_of(norm), add, norm, &formed);
    if (formed.form != GPU_FORM_NONE)
        cuda_form_note(c->stream, &form);
    return last + 1;
}

/* A GELU, and what it is multiplied by. */
static int gelu_mul_run(const struct cuda_calls *c, int i)
{
    const struct op_call *gelu = call_if(c, i, 0, OP_GELU), *mul = call_if(c, i, 1, OP_MUL);
    if (!gelu || !mul || gelu->out.shape[0] == 0)
        return 0;
    int which = same_rows(&mul->inputs[0], &gelu->out)   ? 1
                : same_rows(&mul->inputs[1], &gelu->out) ? 0
                                                         : -1;
    if (which < 0 || same_rows(&mul->inputs[which], &gelu->out) ||
        !rows_may_follow(&mul->out, &gelu->inputs[0]) || !rows_may_follow(&mul->out, &gelu->out) ||
        !rows_may_follow(&mul->out, &mul->inputs[which]))
        return 0;
    int last = call_index(c, mul);
    struct cuda_form form = form_wanted(c, last, &mul->out);
    struct gpu_formed formed = cuda_form_make(c->stream, &form);
    cuda_gelu_mul_run(c->stream, gelu, &mul->inputs[which], mul, &formed);
    if (formed.form != GPU_FORM_NONE)
        cuda_form_note(c->stream, &form);
    return last + 1;
}

static uint64_t batch_rows(const struct op_batch *b)
{
    uint64_t rows = 0;
    for (int i = 0; i < b->n_runs; i++)
        rows += b->runs[i].n_tokens;
    return rows;
}

/* Attention, which makes its rows ready where it can: it says so in `making`. */
static void attend_run(const struct cuda_calls *c, const struct op_call *attention)
{
    struct cuda_form form = form_wanted(c, call_index(c, attention), &attention->out);
    c->stream->making = cuda_form_make(c->stream, &form);
    cuda_op_run((struct stream *)c->stream, attention->op, attention->inputs, &attention->out,
                c->batch);
    if (c->stream->making.form != GPU_FORM_NONE)
        cuda_form_note(c->stream, &form);
    c->stream->making = (struct gpu_formed){.form = GPU_FORM_NONE};
}

/* Rotation of queries and keys, and the attention that reads them. */
static int turn_attend_run(const struct cuda_calls *c, int i)
{
    const struct op_call *q = call_if(c, i, 0, OP_ROPE), *k = call_if(c, i, 1, OP_ROPE),
                         *attention = call_if(c, i, 2, OP_ATTENTION);
    if (!q || !k || !attention || !c->batch || !same_rows(&attention->inputs[0], &q->out) ||
        !same_rows(&attention->inputs[1], &k->out) || cuda_rows_meet(&k->out, &q->inputs[0]) ||
        batch_rows(c->batch) != q->out.shape[0] || q->out.shape[0] != k->out.shape[0])
        return 0;
    const struct gpu_turn turn = cuda_turn_of(q, k);
    cuda_form_written(c->stream, &q->out);
    cuda_form_written(c->stream, &k->out);
    c->stream->rotates = &turn;
    attend_run(c, attention);
    c->stream->rotates = NULL;
    return call_index(c, attention) + 1;
}

/* Products of the same rows: queries, keys and values, a gate and what it gates. */
static int products_run(const struct cuda_calls *c, int i)
{
    const struct op_call *products[1 + GPU_PRODUCT_MORE];
    int n = 0;
    while (n < 1 + GPU_PRODUCT_MORE && (products[n] = call_if(c, i, n, OP_MATMUL)))
        n++;
    n = cuda_matmuls_run(c->stream, products, n);
    return n ? call_index(c, products[n - 1]) + 1 : 0;
}

/* One, which makes its rows ready for the product after it where it can. */
static int one_run(const struct cuda_calls *c, int i)
{
    const struct op_call *one = &c->all[i];
    if (kind_of(one) == OP_ATTENTION) {
        attend_run(c, one);
        return i + 1;
    }
    struct cuda_form form = {.form = GPU_FORM_NONE};
    if (cuda_op_forms(op_of(one), &one->out))
        form = form_wanted(c, i, &one->out);
    c->stream->making = cuda_form_make(c->stream, &form);
    cuda_op_run((struct stream *)c->stream, one->op, one->inputs, &one->out, c->batch);
    if (c->stream->making.form != GPU_FORM_NONE)
        cuda_form_note(c->stream, &form);
    c->stream->making = (struct gpu_formed){.form = GPU_FORM_NONE};
    return i + 1;
}

void cuda_ops_run(struct stream *stream, const struct op_call *calls, int n,
                  const struct op_batch *batch)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const struct cuda_calls c = {s, calls, n, batch};
    cuda_note(s, gpu_use(s->device->ordinal));
    s->together = true;
    s->formed.form = GPU_FORM_NONE;
    for (int i = call_from(&c, 0), next; i < n; i = call_from(&c, next)) {
        next = sum_norm_run(&c, i);
        next = next ? next : gelu_mul_run(&c, i);
        next = next ? next : turn_attend_run(&c, i);
        next = next ? next : products_run(&c, i);
        next = next ? next : one_run(&c, i);
    }
    s->together = false;
    cuda_note(s, gpu_launched());
}
