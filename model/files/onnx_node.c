#include <string.h>

#include "model/files/onnx_int.h"

/* Fields of NodeProto and AttributeProto. */
enum {
    PB_NODE_INPUT = 1,
    PB_NODE_OUTPUT = 2,
    PB_NODE_NAME = 3,
    PB_NODE_OP = 4,
    PB_NODE_ATTRIBUTE = 5,
    PB_NODE_DOMAIN = 7,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_FLOAT = 2,
    ATTRIBUTE_INT = 3,
    ATTRIBUTE_STRING = 4,
    ATTRIBUTE_TENSOR = 5,
    ATTRIBUTE_GRAPH = 6,
    ATTRIBUTE_FLOATS = 7,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_STRINGS = 9,
    ATTRIBUTE_TYPE = 20,
};

static int numbers_read(struct onnx_file *f, struct pb bytes, struct onnx_attribute *a,
                        struct err *e)
{
    bool is_float = a->type == ONNX_FLOATS;
    uint32_t number = is_float ? ATTRIBUTE_FLOATS : ATTRIBUTE_INTS, narrow;
    uint64_t v;
    size_t most = pb_size(&bytes); /* a number is a byte at least */
    float *floats = is_float ? arena_alloc(&f->arena, most / 4 + 1, sizeof *floats) : NULL;
    int64_t *ints = is_float ? NULL : arena_alloc(&f->arena, most + 1, sizeof *ints);
    struct pb_field field;
    if (!floats && !ints)
        return err_no_memory(e, "%s", f->path);
    while (pb_next(&bytes, &field)) {
        if (field.number != number)
            continue;
        if (field.wire != PB_BYTES && is_float)
            floats[a->n++] = pb_float((uint32_t)field.value);
        else if (field.wire != PB_BYTES)
            ints[a->n++] = (int64_t)field.value;
        else if (is_float)
            for (struct pb p = field.bytes; pb_next_fixed32(&p, &narrow);)
                floats[a->n++] = pb_float(narrow);
        else
            for (struct pb p = field.bytes; pb_next_varint(&p, &v);)
                ints[a->n++] = (int64_t)v;
    }
    if (is_float)
        a->u.floats = floats;
    else
        a->u.ints = ints;
    return 0;
}

/* The field that an attribute of a type has its value in. */
static uint32_t attribute_field(enum onnx_attribute_type type)
{
    static const uint32_t fields[] = {0,
                                      ATTRIBUTE_FLOAT,
                                      ATTRIBUTE_INT,
                                      ATTRIBUTE_STRING,
                                      ATTRIBUTE_TENSOR,
                                      ATTRIBUTE_GRAPH,
                                      ATTRIBUTE_FLOATS,
                                      ATTRIBUTE_INTS,
                                      ATTRIBUTE_STRINGS};
    return fields[type];
}

static int attribute_value(struct onnx_file *f, const struct pb_field *field,
                           struct onnx_attribute *a, struct err *e)
{
    switch (a->type) {
    case ONNX_FLOAT: a->u.f = pb_float((uint32_t)field->value); return 0;
    case ONNX_INT: a->u.i = (int64_t)field->value; return 0;
    case ONNX_STRING: return onnx_text(f, field, &a->u.s, e);
    case ONNX_TENSOR: {
        struct ndarray *array = arena_alloc(&f->arena, 1, sizeof *array);
        const char *name;
        a->u.tensor = array;
        return array ? onnx_tensor_read(f, field->bytes, &name, array, e)
                     : err_no_memory(e, "%s", f->path);
    }
    default: return 0;
    }
}

static int attribute_read(struct onnx_file *f, struct pb bytes, struct onnx_attribute *a,
                          struct err *e)
{
    struct pb_field field;
    uint64_t type = 0;
    a->name = "";
    for (struct pb p = bytes; pb_next(&p, &field);) {
        int rc = field.number == ATTRIBUTE_NAME ? onnx_text(f, &field, &a->name, e) : 0;
        if (rc < 0)
            return rc;
        if (field.number == ATTRIBUTE_TYPE)
            type = field.value;
    }
    if (type == 0 || type > ONNX_STRINGS)
        return err_set(e, HP_EUNSUPPORTED, "%s: attribute %s has type %llu, which is not known",
                       f->path, a->name, (unsigned long long)type);
    a->type = (enum onnx_attribute_type)type;
    if (a->type == ONNX_FLOATS || a->type == ONNX_INTS)
        return numbers_read(f, bytes, a, e);
    static const enum pb_wire wires[] = {PB_VARINT, PB_FIXED32, PB_VARINT, PB_BYTES, PB_BYTES};
    for (struct pb p = bytes; pb_next(&p, &field);)
        if (field.number == attribute_field(a->type) && type <= ONNX_TENSOR) {
            int rc = field.wire == wires[type] ? attribute_value(f, &field, a, e)
                                               : onnx_damaged(f, "attributes", e);
            if (rc < 0)
                return rc;
        }
    if (a->type == ONNX_STRING && !a->u.s)
        a->u.s = "";
    return a->type == ONNX_TENSOR && !a->u.tensor ? onnx_damaged(f, "attributes", e) : 0;
}

const char *onnx_node_words(struct onnx_file *f, const struct onnx_node *n)
{
    const char *made = n->n_outputs > 0 && n->outputs[0] >= 0 ? f->values[n->outputs[0]].name : "?";
    const char *words = arena_printf(&f->arena, "node %s (%s)", *n->name ? n->name : made, n->op);
    return words ? words : n->op;
}

static int node_values(struct onnx_file *f, struct pb bytes, uint32_t number, int *n,
                       const int **out, struct err *e)
{
    int *values, rc = onnx_fields_room(f, bytes, number, sizeof *values, "nodes", n, &values, e),
                 i = 0;
    struct pb_field field;
    while (rc == 0 && pb_next(&bytes, &field)) {
        const char *name;
        if (field.number != number)
            continue;
        rc = onnx_text(f, &field, &name, e);
        values[i] = -1;
        if (rc == 0 && *name)
            rc = onnx_value_of(f, name, &values[i], e);
        i++;
    }
    *out = values;
    return rc;
}

static int node_attributes(struct onnx_file *f, struct pb bytes, struct onnx_node *n, struct err *e)
{
    struct onnx_attribute *attributes;
    int i = 0, rc = onnx_fields_room(f, bytes, PB_NODE_ATTRIBUTE, sizeof *attributes, "nodes",
                                     &n->n_attributes, &attributes, e);
    struct pb_field field;
    while (rc == 0 && pb_next(&bytes, &field))
        if (field.number == PB_NODE_ATTRIBUTE) {
            rc = attribute_read(f, field.bytes, &attributes[i++], e);
            if (rc < 0)
                return err_at(e, "%s", onnx_node_words(f, n));
        }
    n->attributes = attributes;
    return rc;
}

int onnx_node_read(struct onnx_file *f, struct pb bytes, struct onnx_node *n, struct err *e)
{
    struct pb_field field;
    *n = (struct onnx_node){.op = "", .name = "", .domain = ""};
    for (struct pb p = bytes; pb_next(&p, &field);) {
        int rc = field.number == PB_NODE_NAME     ? onnx_text(f, &field, &n->name, e)
                 : field.number == PB_NODE_OP     ? onnx_text(f, &field, &n->op, e)
                 : field.number == PB_NODE_DOMAIN ? onnx_text(f, &field, &n->domain, e)
                                                  : 0;
        if (rc < 0)
            return rc;
    }
    if (strcmp(n->domain, "ai.onnx") == 0)
        n->domain = "";
    int rc = node_values(f, bytes, PB_NODE_INPUT, &n->n_inputs, &n->inputs, e);
    rc = rc < 0 ? rc : node_values(f, bytes, PB_NODE_OUTPUT, &n->n_outputs, &n->outputs, e);
    return rc < 0 ? rc : node_attributes(f, bytes, n, e);
}

const struct onnx_attribute *onnx_attribute(const struct onnx_node *n, const char *name)
{
    for (int i = 0; i < n->n_attributes; i++)
        if (strcmp(n->attributes[i].name, name) == 0)
            return &n->attributes[i];
    return NULL;
}
