/* Values of a network that is made of a language model: weights, and the nodes that all operators
 * have in common. */
#include <stdio.h>
#include <string.h>

#include "common/vector.h"
#include "model/text_network_int.h"

enum { NAME_BYTES = 200 };

static const char *name_next(struct text_network *t, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%.160s/%d", t->prefix, t->n_names++);
    return out;
}

int text_node(struct text_network *t, const char *op, const int *inputs, int n_inputs,
              const struct onnx_attribute *attributes, int n_attributes)
{
    char name[NAME_BYTES];
    return onnx_builder_node(t->b, name_next(t, name), op, inputs, n_inputs, attributes,
                             n_attributes);
}

int text_one(struct text_network *t, const char *op, int x)
{
    return text_node(t, op, &x, 1, NULL, 0);
}

int text_two(struct text_network *t, const char *op, int x, int y)
{
    return text_node(t, op, (const int[]){x, y}, 2, NULL, 0);
}

static int array_add(struct text_network *t, enum ndarray_type type, int n_dims,
                     const int64_t *dims, const void *data)
{
    char name[NAME_BYTES];
    struct ndarray a = {0};
    struct err e = {0};
    union {
        const void *in;
        void *out;
    } lies = {data};
    if (ndarray_shape(&a, type, n_dims, dims, &e) < 0)
        return onnx_builder_fail(t->b, &e);
    a.data = lies.out;
    return onnx_builder_weight(t->b, name_next(t, name), &a);
}

int text_ints(struct text_network *t, const int64_t *list, int n)
{
    int64_t *own = onnx_builder_room(t->b, (size_t)n, sizeof *own);
    if (!own)
        return 0;
    memcpy(own, list, (size_t)n * sizeof *own);
    return array_add(t, ND_I64, 1, &(int64_t){n}, own);
}

int text_count(struct text_network *t, int64_t n)
{
    int64_t *own = onnx_builder_room(t->b, (size_t)n, sizeof *own);
    for (int64_t i = 0; own && i < n; i++)
        own[i] = i;
    return own ? array_add(t, ND_I64, 1, &n, own) : 0;
}

int text_number(struct text_network *t, float number)
{
    float *own = onnx_builder_room(t->b, 1, sizeof *own);
    if (!own)
        return 0;
    *own = number;
    return array_add(t, ND_F32, 0, NULL, own);
}

float *text_floats(struct text_network *t, int64_t rows, int64_t columns, int *value)
{
    const int64_t dims[] = {rows, columns};
    float *own = onnx_builder_room(t->b, (size_t)((rows ? rows : 1) * columns), sizeof *own);
    *value = own ? array_add(t, ND_F32, rows ? 2 : 1, rows ? dims : dims + 1, own) : 0;
    return own;
}

bool text_weight_lies_ready(const struct weight *w)
{
    return w->dtype == DTYPE_F32 && w->stored == WEIGHT_PLAIN && w->data && w->n_dims <= 2 &&
           (uintptr_t)w->data % sizeof(float) == 0;
}

static int weight_add(struct text_network *t, const struct weight *w, float plus)
{
    int64_t rows = w->n_dims > 1 ? (int64_t)weight_shape_rows(w) : 0,
            columns = (int64_t)weight_shape_columns(w);
    const int64_t dims[] = {rows, columns};
    struct err e = {0};
    int value;
    if (text_weight_lies_ready(w) && plus == 0)
        return array_add(t, ND_F32, rows ? 2 : 1, rows ? dims : dims + 1, w->data);
    float *own = text_floats(t, rows, columns, &value);
    if (own && weight_rows_f32(w, 0, weight_shape_rows(w), own, &e) < 0)
        return onnx_builder_fail(t->b, &e);
    for (int64_t i = 0; own && plus != 0 && i < columns; i++)
        own[i] += plus;
    return value;
}

int text_weight(struct text_network *t, const struct weight *w, float plus)
{
    struct err e = {0};
    for (int i = 0; i < t->n_weights; i++)
        if (t->weights[i].weight == w)
            return t->weights[i].value;
    int value = weight_add(t, w, plus);
    if (!vector_push(t->weights, t->n_weights, t->room_weights, ((struct text_weight){w, value}))) {
        err_no_memory(&e, "%s", model_path(t->m));
        onnx_builder_fail(t->b, &e);
    }
    return value;
}

static int operator_add(struct text_network *t, const struct graph_op *op)
{
    struct onnx_rows *own = onnx_builder_room(t->b, 1, sizeof *own);
    if (!own)
        return 0;
    *own = (struct onnx_rows){t->g, op};
    return array_add(t, ND_OPERATOR, 0, NULL, own);
}

int text_graph_op(struct text_network *t, const struct graph_op *op)
{
    int in[1 + OP_INPUTS_MAX] = {operator_add(t, op)};
    for (int i = 0; i < op->n_inputs; i++)
        in[1 + i] = t->values[op->inputs[i]].value;
    int out = text_node(t, "Rows", in, 1 + op->n_inputs, NULL, 0);
    onnx_builder_domain(t->b, out, ONNX_ROWS_DOMAIN);
    return out;
}

int text_scores(struct text_network *t, const struct graph_op *product, float scale, float cap,
                int rows, int ids, int wanted)
{
    const struct onnx_attribute how[] = {{.name = "scale", .type = ONNX_FLOAT, .u.f = scale},
                                         {.name = "cap", .type = ONNX_FLOAT, .u.f = cap}};
    const int in[] = {operator_add(t, product), rows, ids, wanted};
    int out = text_node(t, "Scores", in, 4, how, 2);
    onnx_builder_domain(t->b, out, ONNX_ROWS_DOMAIN);
    return out;
}

int text_causal(struct text_network *t, int scores, int64_t window, int64_t group, int sinks)
{
    const struct onnx_attribute how[] = {{.name = "window", .type = ONNX_INT, .u.i = window},
                                         {.name = "group", .type = ONNX_INT, .u.i = group}};
    const int in[] = {scores, sinks};
    int out = text_node(t, "Causal", in, sinks >= 0 ? 2 : 1, how, 2);
    onnx_builder_domain(t->b, out, ONNX_ROWS_DOMAIN);
    return out;
}

/* ---- shapes ---- */

int text_concat(struct text_network *t, const int *parts, int n, int64_t axis)
{
    const struct onnx_attribute at = {.name = "axis", .type = ONNX_INT, .u.i = axis};
    return n == 1 ? parts[0] : text_node(t, "Concat", parts, n, &at, 1);
}

int text_reshape(struct text_network *t, int x, const int64_t *dims, int n_dims)
{
    const int parts[] = {text_ints(t, &(int64_t){-1}, 1), t->length,
                         n_dims ? text_ints(t, dims, n_dims) : 0};
    return text_two(t, "Reshape", x, text_concat(t, parts, n_dims ? 3 : 2, 0));
}

int text_rows(struct text_network *t, int x, int64_t width)
{
    return text_two(t, "Reshape", x, text_ints(t, (const int64_t[]){-1, width}, 2));
}

int text_transpose(struct text_network *t, int x, const int64_t *order, int n)
{
    const struct onnx_attribute perm = {.name = "perm", .type = ONNX_INTS, .u.ints = order, .n = n};
    return text_node(t, "Transpose", &x, 1, &perm, 1);
}

int text_slice(struct text_network *t, int x, int64_t axis, int64_t first, int64_t end)
{
    const int in[] = {x, text_ints(t, &first, 1), text_ints(t, &end, 1), text_ints(t, &axis, 1)};
    return text_node(t, "Slice", in, 4, NULL, 0);
}

int text_table_rows(struct text_network *t, int table, int64_t first)
{
    int from = text_ints(t, &first, 1);
    const int in[] = {table, from, first ? text_two(t, "Add", t->length, from) : t->length,
                      text_ints(t, &(int64_t){0}, 1)};
    return text_node(t, "Slice", in, 4, NULL, 0);
}

int text_softmax(struct text_network *t, const char *op, int x)
{
    const struct onnx_attribute axis = {.name = "axis", .type = ONNX_INT, .u.i = -1};
    return text_node(t, op, &x, 1, &axis, 1);
}

int text_cast(struct text_network *t, int x, enum ndarray_type type)
{
    const struct onnx_attribute to = {.name = "to", .type = ONNX_INT, .u.i = type};
    return text_node(t, "Cast", &x, 1, &to, 1);
}

int text_gather(struct text_network *t, int x, int indices, int64_t axis)
{
    const struct onnx_attribute at = {.name = "axis", .type = ONNX_INT, .u.i = axis};
    return text_node(t, "Gather", (const int[]){x, indices}, 2, &at, 1);
}

int64_t text_network_longest(const struct model *m)
{
    const struct model_config *c = model_config(m);
    int longest = c->context;
    if (c->rope.style != ROPE_NONE && longest > TEXT_TABLE_ROWS)
        longest = TEXT_TABLE_ROWS;
    if (c->rope.long_factors && longest > c->rope.long_from)
        longest = c->rope.long_from;
    return longest;
}
