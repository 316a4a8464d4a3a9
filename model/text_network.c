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

/* Of each token behind those before it, and of the one that is the likeliest there. */
static void scores_add(struct text_network *t, int logits)
{
    const struct onnx_dim dims[] = {{-1, "batch"}, {-1, "tokens"}};
    const struct onnx_attribute columns[] = {{.name = "axis", .type = ONNX_INT, .u.i = 1},
                                             {.name = "keepdims", .type = ONNX_INT, .u.i = 0}};
    int one = text_ints(t, &(int64_t){1}, 1), zero = text_ints(t, &(int64_t){0}, 1);
    int last = text_two(t, "Sub", t->length, one);
    int next = text_two(t, "Min", text_two(t, "Add", t->positions, one), last);
    int before = text_two(t, "Max", text_two(t, "Sub", t->positions, one), zero);
    int ids = text_rows(t, text_gather(t, t->ids, next, 1), 1);
    int all = text_softmax(t, "LogSoftmax", logits);
    int scores = text_node(t, "GatherElements", (const int[]){all, ids}, 2, columns, 1);
    int best = text_node(t, "ArgMax", &all, 1, columns, 2);
    int best_scores = text_node(t, "ReduceMax", (const int[]){all, one}, 2, &columns[1], 1);
    int counts = text_cast(t, text_two(t, "Greater", t->positions, zero), ND_F32);
    scores = text_two(t, "Mul", place_later(t, scores, before), counts);
    best_scores = text_two(t, "Mul", place_later(t, best_scores, before), counts);
    onnx_builder_output(t->b, scores, TEXT_OUTPUT_SCORES, ND_F32, dims, 2);
    onnx_builder_output(t->b, place_later(t, best, before), TEXT_OUTPUT_LIKELIEST, ND_I64, dims, 2);
    onnx_builder_output(t->b, best_scores, TEXT_OUTPUT_LIKELIEST_SCORES, ND_F32, dims, 2);
}

/* ---- the whole ---- */

static void graph_add(struct text_network *t)
{
    const struct graph *g = t->g;
    inputs_add(t);
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].origin == VALUE_INPUT)
            t->values[i].value = text_two(t, "Reshape", t->ids, text_ints(t, &(int64_t){-1}, 1));
    for (int i = 0; i < g->n_ops && !onnx_builder_has_failed(t->b); i++)
        text_operator_add(t, &g->ops[i]);
    int last = g->layers[g->n_layers - 1].outputs[0];
    t->prefix = "pooled";
    if (model_config(t->m)->pooling == POOLING_NONE)
        scores_add(t, t->values[last].value);
    else
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
