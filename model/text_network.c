#include "model/text_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/graph/kinds.h"
#include "model/text_network_int.h"

enum { OPSET = 20 };

/* ---- ends ---- */

static void inputs_add(struct text_network *t)
{
    const struct onnx_dim dims[] = {{-1, "batch"}, {-1, "tokens"}};
    t->ids = onnx_builder_input(t->b, TEXT_INPUT_IDS, ND_I64, dims, 2);
    t->mask = onnx_builder_input(t->b, TEXT_INPUT_MASK, ND_I64, dims, 2);
    t->length = text_slice(t, text_one(t, "Shape", t->ids), 0, 1, 2);
    t->positions = text_table_rows(t, text_count(t, text_network_longest(t->m)), 0);
}

/* Sums over the tokens of a text, [batch, 1]. */
static int tokens_sum(struct text_network *t, int x)
{
    const struct onnx_attribute keep = {.name = "keepdims", .type = ONNX_INT, .u.i = 1};
    return text_node(t, "ReduceSum", (const int[]){x, text_ints(t, &(int64_t){1}, 1)}, 2, &keep, 1);
}

/* By how much each row counts, [batch, tokens]. */
static int pooling_parts(struct text_network *t, enum model_pooling how)
{
    const int64_t one = 1;
    if (how == POOLING_MEAN) {
        int mask = text_cast(t, t->mask, ND_F32);
        return text_two(t, "Div", mask, text_two(t, "Max", tokens_sum(t, mask), text_number(t, 1)));
    }
    int wanted = how == POOLING_FIRST ? text_ints(t, &one, 1)
                                      : tokens_sum(t, t->mask); /* its number, counted from 1 */
    int number = text_two(t, "Add", t->positions, text_ints(t, &one, 1));
    /* A text of padding alone has no last token, and gets zeros. */
    return text_cast(t, text_two(t, "Equal", number, wanted), ND_F32);
}

static void row_add(struct text_network *t, int rows, int64_t width)
{
    const struct onnx_dim dims[] = {{-1, "batch"}, {width, ""}};
    const struct model_config *c = model_config(t->m);
    int parts = text_reshape(t, pooling_parts(t, c->pooling), &(int64_t){1}, 1);
    parts = text_transpose(t, parts, (const int64_t[]){0, 2, 1}, 3);
    int row = text_two(t, "MatMul", parts, text_reshape(t, rows, &width, 1));
    onnx_builder_output(t->b, text_rows(t, row, width), TEXT_OUTPUT_ROW, ND_F32, dims, 2);
}

/* What was said at each token of the next one, [batch * tokens], where that stands: [batch,
 * tokens]. */
static int place_later(struct text_network *t, int rows, int before)
{
    return text_gather(t, text_reshape(t, rows, NULL, 0), before, 1);
}

/* What ends a model that scores: a product, and what is done to each of its numbers. */
struct text_head {
    const struct graph_op *product;
    float scale, cap; /* cap 0: none */
    int first;        /* its operators are the graph's last, from this one on */
};

/* The operator before `end` that makes a value, NULL: it is not the one before. */
static const struct graph_op *maker_of(const struct graph *g, int end, int value)
{
    return end > 0 && g->ops[end - 1].outputs[0] == value ? &g->ops[end - 1] : NULL;
}

static void head_find(struct text_network *t, struct text_head *h)
{
    const struct graph *g = t->g;
    int at = g->n_ops, value = g->layers[g->n_layers - 1].outputs[0];
    const struct graph_op *op = maker_of(g, at, value);
    struct err e = {0};
    *h = (struct text_head){.scale = 1};
    if (op && op->kind == OP_SOFT_CAP) {
        h->cap = op->u.number.value;
        op = maker_of(g, --at, op->inputs[0]);
    }
    if (op && op->kind == OP_SCALE) {
        h->scale = op->u.number.value;
        op = maker_of(g, --at, op->inputs[0]);
    }
    h->first = at - 1;
    h->product = op && op->kind == OP_MATMUL && op->n_inputs == 1 ? op : NULL;
    if (h->product)
        return;
    err_set(&e, HP_EUNSUPPORTED, "%s: its last operators are no product that scores tokens",
            model_path(t->m));
    onnx_builder_fail(t->b, &e);
}

/* Of each token behind those before it, and of the one that is the likeliest there. What comes
 * after a text's end is not computed. */
static void scores_add(struct text_network *t, const struct text_head *h)
{
    const struct onnx_dim dims[] = {{-1, "batch"}, {-1, "tokens"}};
    const int64_t all = -1;
    int one = text_ints(t, &(int64_t){1}, 1), zero = text_ints(t, &(int64_t){0}, 1),
        flat = text_ints(t, &all, 1);
    int last = text_two(t, "Sub", t->length, one);
    int next = text_two(t, "Min", text_two(t, "Add", t->positions, one), last);
    int before = text_two(t, "Max", text_two(t, "Sub", t->positions, one), zero);
    int ids = text_two(t, "Reshape", text_gather(t, t->ids, next, 1), flat);
    int wanted = text_two(t, "Reshape", text_gather(t, t->mask, next, 1), flat);
    int scores = text_scores(t, h->product, h->scale, h->cap,
                             t->values[h->product->inputs[0]].value, ids, wanted);
    int counts = text_cast(t, text_two(t, "Greater", t->positions, zero), ND_F32);
    int columns[ONNX_SCORE_COLUMNS];
    for (int i = 0; i < ONNX_SCORE_COLUMNS; i++)
        columns[i] = place_later(t, text_slice(t, scores, 1, i, i + 1), before);
    onnx_builder_output(t->b, text_two(t, "Mul", columns[ONNX_SCORE], counts), TEXT_OUTPUT_SCORES,
                        ND_F32, dims, 2);
    onnx_builder_output(t->b, text_cast(t, columns[ONNX_SCORE_BEST], ND_I64), TEXT_OUTPUT_LIKELIEST,
                        ND_I64, dims, 2);
    onnx_builder_output(t->b, text_two(t, "Mul", columns[ONNX_SCORE_OF_BEST], counts),
                        TEXT_OUTPUT_LIKELIEST_SCORES, ND_F32, dims, 2);
}

/* ---- the whole ---- */

static void graph_add(struct text_network *t)
{
    const struct graph *g = t->g;
    bool scores = model_config(t->m)->pooling == POOLING_NONE;
    struct text_head head = {.first = g->n_ops};
    if (scores)
        head_find(t, &head);
    inputs_add(t);
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].origin == VALUE_INPUT)
            t->values[i].value = text_two(t, "Reshape", t->ids, text_ints(t, &(int64_t){-1}, 1));
    for (int i = 0; i < head.first && !onnx_builder_has_failed(t->b); i++)
        text_operator_add(t, &g->ops[i]);
    int last = g->layers[g->n_layers - 1].outputs[0];
    t->prefix = "pooled";
    if (scores && !onnx_builder_has_failed(t->b))
        scores_add(t, &head);
    else if (!scores)
        row_add(t, t->values[last].value, (int64_t)graph_value_width(&g->values[last]));
}

static void model_release(void *owner)
{
    struct model *m = owner;
    model_close(&m);
}

static int files_check(const void *owner, struct err *e)
{
    return model_check(owner, e);
}

static int network_of(struct model *m, const struct onnx **out, struct err *e)
{
    struct text_network t = {.m = m, .g = model_graph(m), .prefix = "batch", .bias = -1};
    int rc = onnx_builder_create(model_path(m), OPSET, &t.b, e);
    if (rc < 0)
        return rc;
    t.values = calloc((size_t)t.g->n_values + 1, sizeof *t.values);
    if (t.values)
        graph_add(&t);
    else
        onnx_builder_fail(t.b, &(struct err){.code = HP_ENOMEM, .text = "no memory for a network"});
    free(t.values);
    free(t.weights);
    const struct onnx_owner owner = {model_share(m), model_release, files_check};
    return onnx_builder_finish(&t.b, &owner, out, e);
}

bool text_network_is(const char *path)
{
    struct stat st;
    char magic[4] = "";
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "rbe") : NULL;
    if (!f)
        return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    bool is = fread(magic, 1, sizeof magic, f) == sizeof magic && memcmp(magic, "GGUF", 4) == 0;
    fclose(f);
    return is;
}

int text_network_open(const char *path, uint64_t limit_bytes, struct onnx_network **out,
                      struct err *e)
{
    struct model *m;
    const struct onnx *o;
    if (!text_network_is(path))
        return network_open(path, limit_bytes, out, e);
    int rc = model_open(path, &m, e);
    if (rc < 0)
        return rc;
    rc = network_of(m, &o, e);
    model_close(&m);
    return rc < 0 ? rc : network_make(path, &o, limit_bytes, out, e);
}
