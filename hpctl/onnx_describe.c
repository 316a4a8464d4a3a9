#include "hpctl/onnx_describe.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "hpctl/shown.h"
#include "model/files/onnx.h"
#include "model/onnx/operator.h"

bool onnx_describe_takes(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcasecmp(path + n - 5, ".onnx") == 0;
}

/* ---- JSON ---- */

/* Text of a file that may not be UTF-8. */
static json_t *name_json(const char *s)
{
    json_t *v = json_string(s);
    return v ? v : json_string("(not UTF-8)");
}

/* A size that is free is its name, or null where the file has none for it. */
static json_t *dim_json(const struct onnx_dim *d)
{
    if (d->size >= 0)
        return json_integer((json_int_t)d->size);
    return *d->symbol ? name_json(d->symbol) : json_null();
}

/* {"name", "type", "shape": ["batch", 3, null]}; type and shape null where they are not said. */
static json_t *value_json(const struct onnx_value *v)
{
    json_t *o = json_object(), *shape = v->n_dims < 0 ? json_null() : json_array();
    for (int d = 0; d < v->n_dims; d++)
        json_array_append_new(shape, dim_json(&v->dims[d]));
    json_object_set_new(o, "name", name_json(v->name));
    json_object_set_new(o, "type", v->type ? json_string(ndarray_type_name(v->type)) : json_null());
    json_object_set_new(o, "shape", shape);
    return o;
}

static json_t *values_json(const struct onnx *o, const int *values, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, value_json(&o->values[values[i]]));
    return list;
}

static void member_add(json_t *o, const char *key, uint64_t more)
{
    json_int_t before = json_integer_value(json_object_get(o, key));
    json_object_set_new(o, key, json_integer(before + (json_int_t)more));
}

/* "Conv", or "com.example:Conv" where it is not ONNX's own. */
static struct shown operator_name(const struct onnx_node *k)
{
    bool is_own = !*k->domain || strcmp(k->domain, "ai.onnx") == 0;
    struct shown name =
        is_own ? shown_plain(k->op) : shown_plain(shown_of("%s:%s", k->domain, k->op).s);
    json_t *is_utf8 = json_string(name.s);
    if (!is_utf8)
        name = shown_of("(not UTF-8)");
    json_decref(is_utf8);
    return name;
}

/* How many nodes each operator has, and which operators `model run` lacks. */
static void operators_json(json_t *result, const struct onnx *o)
{
    json_t *all = json_object(), *lacking = json_object(), *names = json_array();
    for (int i = 0; i < o->n_nodes; i++) {
        const struct onnx_node *k = &o->nodes[i];
        struct shown name = operator_name(k);
        member_add(all, name.s, 1);
        if (!onnx_operator_find(k->domain, k->op))
            member_add(lacking, name.s, 1);
    }
    const char *key;
    json_t *count;
    json_object_foreach(lacking, key, count) json_array_append_new(names, json_string(key));
    json_decref(lacking);
    json_object_set_new(result, "operators", all);
    json_object_set_new(result, "lacking", names);
}

/* {"float32": {"count", "parameters", "bytes"}} */
static void weights_json(json_t *result, const struct onnx *o)
{
    json_t *tensors = json_object();
    uint64_t parameters = 0;
    for (int v = 0; v < o->n_values; v++) {
        const struct ndarray *w = o->values[v].weight;
        if (!w)
            continue;
        const char *type = ndarray_type_name(w->type);
        json_t *row = json_object_get(tensors, type);
        if (!row) {
            json_object_set_new(tensors, type, json_object());
            row = json_object_get(tensors, type);
        }
        member_add(row, "count", 1);
        member_add(row, "parameters", (uint64_t)w->count);
        member_add(row, "bytes", ndarray_bytes(w));
        parameters += (uint64_t)w->count;
    }
    json_object_set_new(result, "parameters", json_integer((json_int_t)parameters));
    json_object_set_new(result, "weight_bytes", json_integer((json_int_t)o->weight_bytes));
    json_object_set_new(result, "tensors", tensors);
}

static json_t *onnx_json(const char *path, const struct onnx *o)
{
    json_t *result = json_object();
    json_object_set_new(result, "path", name_json(path));
    json_object_set_new(result, "format", json_string("onnx"));
    json_object_set_new(result, "ir_version", json_integer(o->ir_version));
    json_object_set_new(result, "opset", json_integer(o->opset));
    json_object_set_new(result, "producer", name_json(o->producer));
    json_object_set_new(result, "inputs", values_json(o, o->inputs, o->n_inputs));
    json_object_set_new(result, "outputs", values_json(o, o->outputs, o->n_outputs));
    json_object_set_new(result, "nodes", json_integer(o->n_nodes));
    operators_json(result, o);
    weights_json(result, o);
    return result;
}

/* ---- for a person ---- */

/* "batch x 3 x 224 x any", "one number", or that the file does not say. */
static void shape_print(const json_t *shape)
{
    size_t i;
    json_t *dim;
    if (!json_is_array(shape))
        fputs("any shape", stdout);
    else if (json_array_size(shape) == 0)
        fputs("one number", stdout);
    json_array_foreach(shape, i, dim)
    {
        fputs(i ? " x " : "", stdout);
        if (json_is_integer(dim))
            printf("%lld", (long long)json_integer_value(dim));
        else
            fputs(shown_plain(json_is_string(dim) ? json_string_value(dim) : "any").s, stdout);
    }
}

static void values_print(const char *label, const json_t *values)
{
    size_t i;
    json_t *v;
    json_array_foreach(values, i, v)
    {
        const char *type = json_string_value(json_object_get(v, "type"));
        printf("%-14s %s  %s ", i ? "" : label, shown_plain(string_member(v, "name")).s,
               type ? type : "any type");
        shape_print(json_object_get(v, "shape"));
        putchar('\n');
    }
}

/* "Conv 53, Relu 49, ...". */
static void operators_print(const json_t *result)
{
    const char *key;
    json_t *count, *name;
    size_t i;
    printf("%-14s %.0f:", "nodes", number_member(result, "nodes"));
    bool is_first = true;
    json_object_foreach(json_object_get(result, "operators"), key, count)
    {
        printf("%s %s %lld", is_first ? "" : ",", key, (long long)json_integer_value(count));
        is_first = false;
    }
    putchar('\n');
    json_array_foreach(json_object_get(result, "lacking"), i, name)
        printf("%-14s %s\n", i ? "" : "not known", json_string_value(name));
}

static void onnx_print(const json_t *result)
{
    printf("%-14s %s\n", "model", shown_plain(string_member(result, "path")).s);
    printf("%-14s ONNX, opset %.0f, IR version %.0f, by %s\n", "format",
           number_member(result, "opset"), number_member(result, "ir_version"),
           shown_plain(string_member(result, "producer")).s);
    values_print("inputs", json_object_get(result, "inputs"));
    values_print("outputs", json_object_get(result, "outputs"));
    operators_print(result);
    printf("%-14s %.0f, %.0f bytes\n", "parameters", number_member(result, "parameters"),
           number_member(result, "weight_bytes"));
    const char *type;
    json_t *row;
    json_object_foreach(json_object_get(result, "tensors"), type, row)
        printf("  %-12s %.0f tensor%s, %.0f bytes\n", type, number_member(row, "count"),
               number_member(row, "count") == 1 ? "" : "s", number_member(row, "bytes"));
}

int onnx_describe_run(struct invocation *in, struct err *e)
{
    const struct onnx *o;
    int rc = onnx_open(in->arguments[0], &o, e);
    if (rc < 0)
        return rc;
    json_t *result = onnx_json(in->arguments[0], o);
    rc = onnx_check(o, e);
    onnx_close(&o);
    if (rc == 0 && (in->json || in->output))
        return invocation_print_json(in, result, e);
    if (rc == 0)
        onnx_print(result);
    json_decref(result);
    return rc;
}
