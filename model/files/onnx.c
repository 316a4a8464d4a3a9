#include "model/files/onnx.h"

#include <stdlib.h>
#include <string.h>

#include "common/fs.h"
#include "common/vector.h"
#include "model/files/onnx_int.h"

/* Fields of the messages that are read. */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER = 2,
    MODEL_GRAPH = 7,
    MODEL_OPSET = 8,
    GRAPH_NODE = 1,
    GRAPH_WEIGHT = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_SPARSE_WEIGHT = 15,
};

/* ---- weights ---- */

static int weight_read(struct onnx_file *f, struct pb bytes, struct err *e)
{
    struct ndarray *array = arena_alloc(&f->arena, 1, sizeof *array);
    const char *name;
    int value,
        rc = array ? onnx_tensor_read(f, bytes, &name, array, e) : err_no_memory(e, "%s", f->path);
    if (rc < 0 || (rc = onnx_value_of(f, name, &value, e)) < 0)
        return rc;
    if (!*name || f->values[value].weight)
        return err_set(e, HP_EPARSE, "%s: two weights are called \"%s\"", f->path, name);
    f->values[value].weight = array;
    f->o.weight_bytes += ndarray_bytes(array);
    return 0;
}

/* ---- inputs and outputs of the graph ---- */

static int dim_read(struct onnx_file *f, struct pb bytes, struct onnx_dim *d, struct err *e)
{
    struct pb_field field;
    *d = (struct onnx_dim){-1, ""};
    while (pb_next(&bytes, &field)) {
        int rc = 0;
        if (field.number == 1 && field.wire == PB_VARINT)
            d->size = (int64_t)field.value < 0 ? -1 : (int64_t)field.value;
        if (field.number == 2)
            rc = onnx_text(f, &field, &d->symbol, e);
        if (rc < 0)
            return rc;
    }
    if (strcmp(d->symbol, "?") == 0) /* paddle2onnx: no name, so no two of them are one */
        d->symbol = "";
    return bytes.failed ? onnx_damaged(f, "list of inputs and outputs", e) : 0;
}

static int shape_read(struct onnx_file *f, struct pb shape, struct onnx_value *v, struct err *e)
{
    struct onnx_dim *dims;
    int n, rc = onnx_fields_room(f, shape, 1, sizeof *dims, "list of inputs and outputs", &n, &dims,
                                 e);
    if (rc < 0)
        return rc;
    if (n > ND_DIMS_MAX)
        return err_set(e, HP_EUNSUPPORTED, "%s: %s has %d dimensions; at most %d are known",
                       f->path, v->name, n, ND_DIMS_MAX);
    struct pb_field field;
    for (int i = 0; rc == 0 && pb_next(&shape, &field);)
        if (field.number == 1)
            rc = dim_read(f, field.bytes, &dims[i++], e);
    v->n_dims = n;
    v->dims = dims;
    return rc;
}

/* The field of a message inside a message; empty where there is none. */
static struct pb message_inner(struct pb p, uint32_t number)
{
    struct pb_field field;
    struct pb found = pb_of("", 0);
    found.failed = true;
    while (pb_next(&p, &field))
        if (field.number == number && field.wire == PB_BYTES)
            found = field.bytes;
    return found;
}

/* ValueInfoProto: name, and the tensor type's element type and shape. */
static int info_read(struct onnx_file *f, struct pb bytes, int *value, struct err *e)
{
    struct pb_field field;
    const char *name = "";
    struct pb tensor = message_inner(message_inner(bytes, 2), 1), shape;
    while (pb_next(&bytes, &field)) {
        int rc = field.number == 1 ? onnx_text(f, &field, &name, e) : 0;
        if (rc < 0)
            return rc;
    }
    if (bytes.failed || !*name)
        return onnx_damaged(f, "list of inputs and outputs", e);
    int rc = onnx_value_of(f, name, value, e);
    if (rc < 0 || tensor.failed)
        return rc;
    shape = message_inner(tensor, 2);
    while (pb_next(&tensor, &field))
        if (field.number == 1 && field.value < ND_TYPE_COUNT)
            f->values[*value].type = (enum ndarray_type)field.value;
    return shape.failed ? 0 : shape_read(f, shape, &f->values[*value], e);
}

static int infos_read(struct onnx_file *f, struct pb graph, uint32_t number, int *n,
                      const int **out, struct err *e)
{
    int *values, all,
        rc = onnx_fields_room(f, graph, number, sizeof *values, "list of inputs and outputs", &all,
                              &values, e);
    struct pb_field field;
    *n = 0;
    while (rc == 0 && pb_next(&graph, &field)) {
        if (field.number != number)
            continue;
        rc = info_read(f, field.bytes, &values[*n], e);
        if (rc < 0)
            return rc;
        /* A weight may stand among the inputs too, as its default. */
        *n += number == GRAPH_OUTPUT || !f->values[values[*n]].weight;
    }
    *out = values;
    return rc;
}

/* ---- the whole ---- */

static int nodes_read(struct onnx_file *f, struct pb graph, struct err *e)
{
    struct onnx_node *nodes;
    int i = 0, rc = onnx_fields_room(f, graph, GRAPH_NODE, sizeof *nodes, "nodes", &f->o.n_nodes,
                                     &nodes, e);
    struct pb_field field;
    f->o.nodes = nodes;
    while (rc == 0 && pb_next(&graph, &field))
        if (field.number == GRAPH_NODE)
            rc = onnx_node_read(f, field.bytes, &nodes[i++], e);
    return rc;
}

/* Every value has one maker, which stands before all who read it: then there is no cycle. */
static int order_check(struct onnx_file *f, struct err *e)
{
    for (int i = 0; i < f->o.n_inputs; i++)
        f->values[f->o.inputs[i]].maker = f->o.n_nodes; /* marks what enters, until the end */
    for (int i = 0; i < f->o.n_nodes; i++) {
        const struct onnx_node *n = &f->o.nodes[i];
        for (int k = 0; k < n->n_inputs; k++) {
            const struct onnx_value *v = n->inputs[k] < 0 ? NULL : &f->values[n->inputs[k]];
            if (v && !v->weight && v->maker < 0)
                return err_set(e, HP_EPARSE,
                               "%s: %s reads %s, which no node before it makes and "
                               "which is no weight or input",
                               f->path, onnx_node_words(f, n), v->name);
        }
        for (int k = 0; k < n->n_outputs; k++) {
            struct onnx_value *v = n->outputs[k] < 0 ? NULL : &f->values[n->outputs[k]];
            if (v && (v->weight || v->maker >= 0))
                return err_set(e, HP_EPARSE, "%s: %s makes %s, which is there already", f->path,
                               onnx_node_words(f, n), v->name);
            if (v)
                v->maker = i;
        }
    }
    for (int i = 0; i < f->o.n_outputs; i++) {
        const struct onnx_value *v = &f->values[f->o.outputs[i]];
        if (!v->weight && v->maker < 0)
            return err_set(e, HP_EPARSE, "%s: nobody makes the output %s", f->path, v->name);
    }
    for (int i = 0; i < f->o.n_inputs; i++)
        f->values[f->o.inputs[i]].maker = -1;
    return 0;
}

static int graph_read(struct onnx_file *f, struct pb graph, struct err *e)
{
    struct pb_field field;
    for (struct pb p = graph;;) {
        if (!pb_next(&p, &field)) {
            if (p.failed)
                return onnx_damaged(f, "graph", e);
            break;
        }
        if (field.number == GRAPH_SPARSE_WEIGHT)
            return err_set(e, HP_EUNSUPPORTED, "%s: has sparse weights", f->path);
        if (field.number == GRAPH_WEIGHT && field.wire != PB_BYTES)
            return onnx_damaged(f, "weights", e);
        int rc = field.number == GRAPH_WEIGHT ? weight_read(f, field.bytes, e) : 0;
        if (rc < 0)
            return rc;
    }
    int rc = infos_read(f, graph, GRAPH_INPUT, &f->o.n_inputs, &f->o.inputs, e);
    rc = rc < 0 ? rc : nodes_read(f, graph, e);
    rc = rc < 0 ? rc : infos_read(f, graph, GRAPH_OUTPUT, &f->o.n_outputs, &f->o.outputs, e);
    f->o.values = f->values;
    return rc < 0 ? rc : order_check(f, e);
}

static int opset_read(struct onnx_file *f, struct pb bytes, struct err *e)
{
    struct pb_field field;
    const char *domain = "";
    int64_t version = 0;
    while (pb_next(&bytes, &field)) {
        int rc = field.number == 1 ? onnx_text(f, &field, &domain, e) : 0;
        if (rc < 0)
            return rc;
        if (field.number == 2)
            version = (int64_t)field.value;
    }
    if (*domain && strcmp(domain, "ai.onnx") != 0)
        return 0;
    if (version < 1 || version > ONNX_OPSET_MAX)
        return err_set(e, HP_EUNSUPPORTED, "%s: wants operators of opset %lld; 1 to %d are known",
                       f->path, (long long)version, ONNX_OPSET_MAX);
    f->o.opset = version;
    return 0;
}

static int model_read(struct onnx_file *f, struct pb model, struct err *e)
{
    struct pb_field field;
    struct pb graph = {0};
    f->o.producer = "";
    while (pb_next(&model, &field)) {
        int rc = 0;
        if ((field.number == MODEL_GRAPH || field.number == MODEL_OPSET) && field.wire != PB_BYTES)
            return onnx_damaged(f, "graph", e);
        if (field.number == MODEL_IR_VERSION)
            f->o.ir_version = (int64_t)field.value;
        else if (field.number == MODEL_PRODUCER)
            rc = onnx_text(f, &field, &f->o.producer, e);
        else if (field.number == MODEL_OPSET)
            rc = opset_read(f, field.bytes, e);
        else if (field.number == MODEL_GRAPH)
            graph = field.bytes;
        if (rc < 0)
            return rc;
    }
    if (model.failed || !graph.at)
        return onnx_damaged(f, "graph", e);
    if (f->o.opset == 0)
        return err_set(e, HP_EPARSE, "%s: does not say of which opset its operators are", f->path);
    return graph_read(f, graph, e);
}

/* ---- opening ---- */

void onnx_close(const struct onnx **o)
{
    struct onnx_file *f = (struct onnx_file *)(uintptr_t)*o;
    *o = NULL;
    if (!f)
        return;
    HASH_CLEAR(hh, f->names);
    if (f->owner.release)
        f->owner.release(f->owner.ctx);
    for (int i = 0; i < f->n_files; i++)
        mapped_file_close(&f->files[i].map);
    free(f->values);
    arena_free(&f->arena);
    free(f);
}

int onnx_file_new(const char *path, const char *folder, struct onnx_file **out, struct err *e)
{
    struct onnx_file *f = calloc(1, sizeof *f);
    if (!f)
        return err_no_memory(e, "%s", path);
    f->path = arena_strdup(&f->arena, path);
    f->folder = folder ? arena_strdup(&f->arena, folder) : NULL;
    f->n_files = 1;
    f->files[0].path = f->path;
    *out = f;
    if (f->path && (f->folder || !folder))
        return 0;
    arena_free(&f->arena);
    free(f);
    *out = NULL;
    err_no_memory(e, "%s", path);
    return HP_ENOMEM;
}

int onnx_parse(const char *name, const char *folder, const uint8_t *data, size_t size,
               const struct onnx **out, struct err *e)
{
    struct onnx_file *f;
    int rc = onnx_file_new(name, folder, &f, e);
    if (rc < 0)
        return rc;
    rc = model_read(f, pb_of(data, size), e);
    *out = &f->o;
    if (rc < 0)
        onnx_close(out);
    return rc;
}

int onnx_open(const char *path, const struct onnx **out, struct err *e)
{
    const char *slash = strrchr(path, '/');
    char folder[FS_PATH_BYTES] = ".";
    if (slash && (size_t)(slash - path) >= sizeof folder)
        return err_set(e, HP_EINVAL, "%.200s...: the path is too long", path);
    if (slash)
        memcpy(folder, path, slash > path ? (size_t)(slash - path) : 1);
    struct onnx_file *f;
    int rc = onnx_file_new(path, folder, &f, e);
    if (rc < 0)
        return rc;
    rc = mapped_file_open(path, &f->files[0].map, e);
    if (rc == 0 && f->files[0].map.bytes >= 4 && memcmp(f->files[0].map.data, "GGUF", 4) == 0) {
        rc = err_set(e, HP_EPARSE, "%s: a GGUF file, and no ONNX file", path);
        err_hint(e, "`hpctl deploy`, `run`, `chat`, `serve` and `bench` take it");
    }
    rc = rc < 0 ? rc : model_read(f, pb_of(f->files[0].map.data, f->files[0].map.bytes), e);
    *out = &f->o;
    if (rc == 0)
        rc = onnx_check(&f->o, e);
    if (rc < 0)
        onnx_close(out);
    return rc;
}

int onnx_check(const struct onnx *o, struct err *e)
{
    const struct onnx_file *f = (const struct onnx_file *)(const void *)o;
    int rc = f->owner.check ? f->owner.check(f->owner.ctx, e) : 0;
    for (int i = 0; i < f->n_files && rc == 0; i++)
        rc = mapped_file_check(&f->files[i].map, f->files[i].path, e);
    return rc;
}

const char *onnx_file_name(const struct onnx *o, int i)
{
    const struct onnx_file *f = (const struct onnx_file *)(const void *)o;
    const char *slash = i == 0 ? strrchr(f->path, '/') : NULL;
    if (i < 0 || i >= f->n_files)
        return NULL;
    return slash ? slash + 1 : f->files[i].path;
}
