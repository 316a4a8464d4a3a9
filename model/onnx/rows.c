#include "model/onnx/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/call.h"

const struct onnx_rows *onnx_rows_of(const struct ndarray *a)
{
    return a && a->type == ND_OPERATOR ? a->data : NULL;
}

uint64_t onnx_rows_bytes(const struct onnx_rows *o)
{
    uint64_t bytes = 0;
    for (int i = 0; i < o->op->n_weights; i++)
        bytes += o->op->weights[i] ? weight_dtype_bytes(o->op->weights[i]) : 0;
    return bytes;
}

/* ---- tables ---- */

static int embed_run(const struct onnx_call *c, const struct graph_op *op)
{
    const struct weight *table = op->weights[0];
    const int64_t *ids = c->in[1]->data;
    int64_t width = c->out->dims[1], rows = (int64_t)weight_shape_rows(table);
    int rc = 0;
    for (int64_t i = 0; i < c->in[1]->count && rc == 0; i++) {
        if (ids[i] < 0 || ids[i] >= rows)
            return call_fail(c, "index %lld of %lld rows", (long long)ids[i], (long long)rows);
        rc = weight_rows_f32(table, (uint64_t)ids[i], 1, (float *)c->out->data + i * width, c->e);
    }
    return rc;
}

/* ---- products ---- */

/* Each output, from the weight's row for it. */
static void output_add(const struct onnx_call *c, const float *row, int64_t output)
{
    const struct ndarray *x = c->in[1];
    float *out = (float *)c->out->data + output;
    for (int64_t r = 0; r < x->dims[0]; r++) {
        const float *in = (const float *)x->data + r * x->dims[1];
        double sum = 0;
        for (int64_t k = 0; k < x->dims[1]; k++)
            sum += (double)in[k] * (double)row[k];
        out[r * c->out->dims[1]] += (float)sum;
    }
}

/* All outputs, from the weight's row for one input. */
static void input_add(const struct onnx_call *c, const float *row, int64_t input)
{
    const struct ndarray *x = c->in[1];
    int64_t n = c->out->dims[1];
    for (int64_t r = 0; r < x->dims[0]; r++) {
        float in = ((const float *)x->data)[r * x->dims[1] + input], *out = c->out->data;
        for (int64_t j = 0; j < n; j++)
            out[r * n + j] += in * row[j];
    }
}

static int addends_put(const struct onnx_call *c, const struct weight *bias, float *row)
{
    int64_t rows = c->out->dims[0], n = c->out->dims[1];
    if (c->n_in > 2)
        memcpy(c->out->data, c->in[2]->data, ndarray_bytes(c->out));
    int rc = bias ? weight_rows_f32(bias, 0, 1, row, c->e) : 0;
    for (int64_t i = 0; bias && rc == 0 && i < rows * n; i++)
        ((float *)c->out->data)[i] += row[i % n];
    return rc;
}

static int product_run(const struct onnx_call *c, const struct graph_op *op)
{
    const struct weight *w = op->weights[0];
    uint64_t rows = weight_shape_rows(w), columns = weight_shape_columns(w);
    float *row = malloc((rows > columns ? rows : columns) * sizeof *row);
    if (!row)
        return err_no_memory(c->e, "a row of weights");
    int rc = addends_put(c, op->n_weights > 1 ? op->weights[1] : NULL, row);
    for (uint64_t i = 0; i < rows && rc == 0; i++) {
        rc = weight_rows_f32(w, i, 1, row, c->e);
        if (rc == 0 && op->u.matmul.turned)
            input_add(c, row, (int64_t)i);
        else if (rc == 0)
            output_add(c, row, (int64_t)i);
    }
    free(row);
    return rc;
}

/* ---- any of them ---- */

static bool input_fits(const struct onnx_rows *o, const struct ndarray *a, int i, int64_t rows)
{
    if (o->op->kind == OP_EMBED)
        return a->type == ND_I64 && a->n_dims == 1;
    int64_t width = (int64_t)graph_value_width(&o->graph->values[o->op->inputs[i]]);
    return a->type == ND_F32 && a->n_dims == 2 && a->dims[0] == rows && a->dims[1] == width;
}

int onnx_run_rows(struct onnx_call *c)
{
    const struct onnx_rows *o = onnx_rows_of(c->in[0]);
    if (!o || c->n_in != 1 + o->op->n_inputs)
        return call_fail(c, "it is no operator of a language model");
    int64_t rows = c->in[1]->n_dims > 0 ? c->in[1]->dims[0] : 0;
    for (int i = 0; i < o->op->n_inputs; i++)
        if (!input_fits(o, c->in[1 + i], i, rows))
            return call_fail(c, "input %d is of other sizes than the model's", i);
    const int64_t dims[] = {rows, (int64_t)graph_value_width(&o->graph->values[o->op->outputs[0]])};
    int rc = call_make(c, 0, ND_F32, 2, dims);
    if (rc < 0 || c->shapes_only)
        return rc;
    if (o->op->kind == OP_EMBED)
        return embed_run(c, o->op);
    if (o->op->kind == OP_MATMUL)
        return product_run(c, o->op);
    return err_set(c->e, HP_EUNSUPPORTED, "%s is not among the plain loops of networks",
                   op_kind_info(o->op->kind)->name);
}

/* ---- scores ---- */

int onnx_run_causal(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *sinks = call_in(c, 1);
    int64_t window = call_int(c, "window", 0), group = call_int(c, "group", 1);
    if (x->type != ND_F32 || x->n_dims != 4 || x->count < 1 || window < 0 || group < 1 ||
        group > x->dims[2] || x->dims[2] != group * x->dims[3])
        return call_fail(c, "its input is none of scores of texts");
    int64_t tokens = x->dims[3], heads = x->dims[1], all = heads * group;
    if (sinks && (sinks->type != ND_F32 || sinks->count != all))
        return call_fail(c, "%lld sinks for %lld heads", (long long)sinks->count, (long long)all);
    const int64_t dims[] = {x->dims[0], heads, x->dims[2], tokens + (sinks ? 1 : 0)};
    int rc = call_make(c, 0, ND_F32, 4, dims);
    if (rc < 0 || c->shapes_only)
        return rc;
    const float *from = x->data;
    float *to = c->out->data;
    for (int64_t r = 0; r < x->dims[0] * heads * x->dims[2]; r++) {
        int64_t own = r % tokens, first = onnx_causal_first(own, window);
        for (int64_t k = 0; k < tokens; k++)
            *to++ = k >= first && k <= own ? from[k] : ONNX_CAUSAL_HIDDEN;
        if (sinks)
            *to++ = ((const float *)sinks->data)[r / tokens % all];
        from += tokens;
    }
    return 0;
}

struct onnx_scoring onnx_scoring_of(const struct onnx_call *c)
{
    return (struct onnx_scoring){(float)call_float(c, "scale", 1), (float)call_float(c, "cap", 0)};
}

void onnx_scores_cap(const struct onnx_scoring *how, float *logits, int64_t n)
{
    for (int64_t i = 0; how->scale != 1 && i < n; i++)
        logits[i] *= how->scale;
    for (int64_t i = 0; how->cap != 0 && i < n; i++)
        logits[i] = how->cap * tanhf(logits[i] / how->cap);
}

int onnx_scores_check(const int64_t *ids, int64_t rows, int64_t n, struct err *e)
{
    for (int64_t i = 0; i < rows; i++)
        if (ids[i] < 0 || ids[i] >= n)
            return err_set(e, HP_EINVAL, "index %lld of %lld rows", (long long)ids[i],
                           (long long)n);
    return 0;
}

static void row_score(const float *logits, int64_t n, int64_t id, float out[ONNX_SCORE_COLUMNS])
{
    int64_t best = 0;
    double sum = 1; /* of the best itself */
    for (int64_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int64_t i = 0; i < n; i++)
        sum += i == best ? 0 : exp((double)logits[i] - (double)logits[best]);
    out[ONNX_SCORE] = (float)((double)logits[id] - (double)logits[best] - log(sum));
    out[ONNX_SCORE_BEST] = (float)best;
    out[ONNX_SCORE_OF_BEST] = (float)-log(sum);
}

int onnx_run_scores(struct onnx_call *c)
{
    const struct onnx_rows *o = onnx_rows_of(c->in[0]);
    const struct ndarray *x = c->in[1], *ids = c->in[2], *wanted = c->in[3];
    int64_t rows = x->n_dims == 2 ? x->dims[0] : -1;
    if (!o || o->op->kind != OP_MATMUL || o->op->n_inputs != 1 || !input_fits(o, x, 0, rows) ||
        ids->type != ND_I64 || wanted->type != ND_I64 || ids->count != rows ||
        wanted->count != rows)
        return call_fail(c, "it is no product of rows with an id each");
    const int64_t dims[] = {rows, ONNX_SCORE_COLUMNS};
    int rc = call_make(c, 0, ND_F32, 2, dims);
    if (rc < 0 || c->shapes_only)
        return rc;
    struct ndarray logits = {0};
    const struct onnx_scoring how = onnx_scoring_of(c);
    struct onnx_call product = *c;
    product.n_in = 2;
    product.out = &logits;
    rc = onnx_run_rows(&product);
    int64_t n = rc < 0 ? 0 : logits.dims[1];
    rc = rc < 0 ? rc : onnx_scores_check(ids->data, rows, n, c->e);
    for (int64_t r = 0; r < rows && rc == 0; r++) {
        float *row = (float *)logits.data + r * n;
        onnx_scores_cap(&how, row, n);
        if (((const int64_t *)wanted->data)[r])
            row_score(row, n, ((const int64_t *)ids->data)[r],
                      (float *)c->out->data + r * ONNX_SCORE_COLUMNS);
    }
    ndarray_free(&logits);
    return rc;
}
