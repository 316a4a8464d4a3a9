#include "model/files/onnx_builder.h"

#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "model/files/onnx_int.h"

enum { PORTS_MAX = 3 }; /* of the graph, in and out */

struct onnx_builder {
    struct onnx_file *f;
    struct onnx_node *nodes; /* until they are moved to the file's arena */
    int room_nodes, inputs[PORTS_MAX], outputs[PORTS_MAX];
    struct err error; /* code 0: none so far */
};

int onnx_builder_create(const char *name, int64_t opset, struct onnx_builder **out, struct err *e)
{
    struct onnx_builder *b = calloc(1, sizeof *b);
    if (!b || onnx_file_new(name, NULL, &b->f, e) < 0) {
        free(b);
        return err_no_memory(e, "%s", name);
    }
    b->f->o.ir_version = 9;
    b->f->o.opset = opset;
    b->f->o.producer = "";
    *out = b;
    return 0;
}

bool onnx_builder_has_failed(const struct onnx_builder *b)
{
    return b->error.code < 0;
}

int onnx_builder_fail(struct onnx_builder *b, const struct err *why)
{
    if (!onnx_builder_has_failed(b))
        b->error = *why;
    return 0;
}

static int no_memory(struct onnx_builder *b)
{
    struct err e = {0};
    err_no_memory(&e, "%s", b->f->path);
    return onnx_builder_fail(b, &e);
}

void *onnx_builder_room(struct onnx_builder *b, size_t n, size_t item_bytes)
{
    void *room =
        onnx_builder_has_failed(b) ? NULL : arena_alloc(&b->f->arena, n ? n : 1, item_bytes);
    if (!room)
        no_memory(b);
    return room;
}

/* The row of a new value, or NULL. */
static struct onnx_value *value_new(struct onnx_builder *b, const char *name, int *out)
{
    struct err e = {0};
    char *copy = onnx_builder_has_failed(b) ? NULL : arena_strdup(&b->f->arena, name);
    int before = b->f->o.n_values;
    if (!copy || onnx_value_of(b->f, copy, out, &e) < 0) {
        no_memory(b);
        return NULL;
    }
    if (*out < before) {
        err_set(&e, HP_EBUG, "%s: two values are called \"%s\"", b->f->path, name);
        onnx_builder_fail(b, &e);
        return NULL;
    }
    return &b->f->values[*out];
}

static bool sizes_say(struct onnx_builder *b, struct onnx_value *v, enum ndarray_type type,
                      const struct onnx_dim *dims, int n_dims)
{
    struct onnx_dim *copy = onnx_builder_room(b, (size_t)n_dims, sizeof *copy);
    for (int i = 0; copy && i < n_dims; i++) {
        copy[i] = dims[i];
        copy[i].symbol = arena_strdup(&b->f->arena, dims[i].symbol ? dims[i].symbol : "");
        if (!copy[i].symbol)
            no_memory(b);
    }
    v->type = type;
    v->n_dims = n_dims;
    v->dims = copy;
    return !onnx_builder_has_failed(b);
}

int onnx_builder_input(struct onnx_builder *b, const char *name, enum ndarray_type type,
                       const struct onnx_dim *dims, int n_dims)
{
    int value = 0;
    struct onnx_value *v = b->f->o.n_inputs < PORTS_MAX ? value_new(b, name, &value) : NULL;
    if (v && sizes_say(b, v, type, dims, n_dims))
        b->inputs[b->f->o.n_inputs++] = value;
    return value;
}

void onnx_builder_output(struct onnx_builder *b, int value, const char *name,
                         enum ndarray_type type, const struct onnx_dim *dims, int n_dims)
{
    const char *copy = onnx_builder_has_failed(b) ? NULL : arena_strdup(&b->f->arena, name);
    if (!copy || b->f->o.n_outputs == PORTS_MAX) {
        no_memory(b);
        return;
    }
    b->f->values[value].name = copy;
    if (sizes_say(b, &b->f->values[value], type, dims, n_dims))
        b->outputs[b->f->o.n_outputs++] = value;
}

int onnx_builder_weight(struct onnx_builder *b, const char *name, const struct ndarray *array)
{
    int value = 0;
    struct ndarray *copy = onnx_builder_room(b, 1, sizeof *copy);
    struct onnx_value *v = copy ? value_new(b, name, &value) : NULL;
    if (!v)
        return 0;
    *copy = *array;
    copy->owned = false;
    v->weight = copy;
    b->f->o.weight_bytes += ndarray_bytes(array);
    return value;
}

static const struct onnx_attribute *attributes_copy(struct onnx_builder *b,
                                                    const struct onnx_attribute *from, int n)
{
    struct onnx_attribute *copy = onnx_builder_room(b, (size_t)n, sizeof *copy);
    for (int i = 0; copy && i < n; i++) {
        copy[i] = from[i];
        if (from[i].type != ONNX_INTS)
            continue;
        int64_t *list = onnx_builder_room(b, (size_t)from[i].n, sizeof *list);
        if (!list)
            return NULL;
        memcpy(list, from[i].u.ints, (size_t)from[i].n * sizeof *list);
        copy[i].u.ints = list;
    }
    return copy;
}

int onnx_builder_node(struct onnx_builder *b, const char *name, const char *op, const int *inputs,
                      int n_inputs, const struct onnx_attribute *attributes, int n_attributes)
{
    int value = 0;
    struct onnx_value *v = value_new(b, name, &value);
    int *in = v ? onnx_builder_room(b, (size_t)n_inputs + 1, sizeof *in) : NULL;
    const struct onnx_attribute *own = in ? attributes_copy(b, attributes, n_attributes) : NULL;
    if (!own)
        return 0;
    memcpy(in, inputs, (size_t)n_inputs * sizeof *in);
    in[n_inputs] = value;
    v->maker = b->f->o.n_nodes;
    if (!vector_push(b->nodes, b->f->o.n_nodes, b->room_nodes,
                     ((struct onnx_node){.op = op,
                                         .name = v->name,
                                         .domain = "",
                                         .inputs = in,
                                         .n_inputs = n_inputs,
                                         .outputs = in + n_inputs,
                                         .n_outputs = 1,
                                         .attributes = own,
                                         .n_attributes = n_attributes})))
        return no_memory(b);
    return value;
}

void onnx_builder_domain(struct onnx_builder *b, int value, const char *domain)
{
    if (!onnx_builder_has_failed(b))
        b->nodes[b->f->values[value].maker].domain = domain;
}

static void builder_destroy(struct onnx_builder **self)
{
    struct onnx_builder *b = *self;
    *self = NULL;
    if (!b)
        return;
    const struct onnx *o = &b->f->o;
    onnx_close(&o);
    free(b->nodes);
    free(b);
}

static const void *list_keep(struct onnx_builder *b, const void *from, int n, size_t item_bytes)
{
    void *to = onnx_builder_room(b, (size_t)n, item_bytes);
    if (to && n > 0)
        memcpy(to, from, (size_t)n * item_bytes);
    return to;
}

int onnx_builder_finish(struct onnx_builder **self, const struct onnx_owner *owner,
                        const struct onnx **out, struct err *e)
{
    struct onnx_builder *b = *self;
    struct onnx_file *f = b->f;
    f->o.values = f->values;
    f->o.nodes = list_keep(b, b->nodes, f->o.n_nodes, sizeof *b->nodes);
    f->o.inputs = list_keep(b, b->inputs, f->o.n_inputs, sizeof *b->inputs);
    f->o.outputs = list_keep(b, b->outputs, f->o.n_outputs, sizeof *b->outputs);
    f->owner = *owner;
    int rc = b->error.code;
    if (rc < 0) {
        *e = b->error;
        builder_destroy(self);
        return rc;
    }
    *out = &f->o;
    *self = NULL;
    free(b->nodes);
    free(b);
    return 0;
}
