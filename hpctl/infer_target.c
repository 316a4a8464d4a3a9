#include "hpctl/infer_target.h"

#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "coordinator/gateway/infer.h"
#include "hpctl/client.h"
#include "hpctl/http_client.h"
#include "hpctl/shown.h"

enum { PATH_BYTES = 320 };

static const uint64_t most_bytes = UINT64_C(1) << 30;

/* ---- bodies ---- */

static enum ndarray_type type_named(const char *name)
{
    for (int t = 1; t < ND_TYPE_COUNT; t++) {
        const char *known = infer_type_name((enum ndarray_type)t);
        if (known && strcmp(known, name) == 0)
            return (enum ndarray_type)t;
    }
    return ND_TYPE_COUNT;
}

/* Numbers that a network takes wherever they go: fractions from -1 to 1, and 0 or 1 where they are
 * whole, which any table has rows for. */
static void numbers_draw(struct ndarray *a, bool is_mask, uint64_t *random)
{
    for (int64_t i = 0; i < a->count; i++) {
        double u = random_unit(random);
        if (is_mask)
            ndarray_set_i64(a, i, 1);
        else if (ndarray_type_is_float(a->type))
            ndarray_set_f64(a, i, 2 * u - 1);
        else
            ndarray_set_i64(a, i, u < 0.5);
    }
}

static int input_draw(const json_t *input, const struct infer_body_ask *ask, uint64_t *random,
                      struct ndarray *a, struct err *e)
{
    const json_t *shape = json_object_get(input, "shape");
    const char *name = string_member(input, "name");
    enum ndarray_type type = type_named(string_member(input, "datatype"));
    int64_t dims[ND_DIMS_MAX];
    size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > ND_DIMS_MAX || type == ND_TYPE_COUNT)
        return err_set(e, HP_EUNSUPPORTED,
                       "input \"%s\" does not say its datatype and shape, and a load is of tensors "
                       "that fit",
                       name);
    for (size_t d = 0; d < n; d++) {
        json_int_t size = json_integer_value(json_array_get(shape, d));
        dims[d] = size > 0 ? size : d > 0 && ask->length > 0 ? ask->length : 1;
    }
    int rc = ndarray_make(a, type, (int)n, dims, most_bytes, e);
    if (rc < 0)
        return err_at(e, "input \"%s\"", name);
    numbers_draw(a, ask->mask && strcmp(ask->mask, name) == 0, random);
    return 0;
}

static json_t *input_json(const json_t *input, const struct ndarray *a)
{
    json_t *shape = json_array();
    for (int d = 0; d < a->n_dims; d++)
        json_array_append_new(shape, json_integer(a->dims[d]));
    return json_pack("{s:O, s:s, s:o, s:{s:I}}", "name", json_object_get(input, "name"), "datatype",
                     infer_type_name(a->type), "shape", shape, "parameters", "binary_data_size",
                     (json_int_t)ndarray_bytes(a));
}

/* The list of inputs; their numbers are appended to `tensors`. */
static int inputs_draw(const json_t *inputs, const struct infer_body_ask *ask, json_t *list,
                       struct buffer *tensors, struct err *e)
{
    uint64_t random = ask->seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    const json_t *input;
    size_t i;
    json_array_foreach(inputs, i, input)
    {
        struct ndarray a = {0};
        int rc = input_draw(input, ask, &random, &a, e);
        if (rc == 0) {
            json_array_append_new(list, input_json(input, &a));
            buffer_append(tensors, a.data, ndarray_bytes(&a));
        }
        ndarray_free(&a);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Spaces are JSON, too: bodies of several lengths have one header. */
static void json_append(const char *text, size_t room, struct buffer *out, size_t *json_bytes)
{
    size_t n = strlen(text);
    buffer_append(out, text, n);
    for (; n < room; n++)
        buffer_append(out, " ", 1);
    *json_bytes = n;
}

int infer_body_make(const json_t *metadata, const struct infer_body_ask *ask, struct buffer *out,
                    size_t *json_bytes, struct err *e)
{
    struct buffer tensors = {0};
    json_t *list = json_array(), *root = json_pack("{s:{s:b, s:b}, s:O}", "parameters", "timings",
                                                   1, "binary_data_output", 1, "inputs", list);
    int rc = inputs_draw(json_object_get(metadata, "inputs"), ask, list, &tensors, e);
    if (ask->timeout_us)
        json_object_set_new(json_object_get(root, "parameters"), "timeout",
                            json_integer((json_int_t)ask->timeout_us));
    char *text = rc == 0 ? json_dumps(root, JSON_COMPACT) : NULL;
    if (text) {
        json_append(text, ask->json_room, out, json_bytes);
        buffer_append(out, tensors.data, tensors.size);
    }
    if (rc == 0 && (!text || out->failed || tensors.failed))
        rc = err_no_memory(e, "the body of a request");
    free(text);
    json_decref(list);
    json_decref(root);
    buffer_free(&tensors);
    return rc;
}

/* ---- models ---- */

int infer_target_known(struct context *where, const char *name, bool *known, struct err *e)
{
    char path[PATH_BYTES];
    struct err why = {0};
    snprintf(path, sizeof path, "/v2/models/%s", name);
    int rc = http_get(where, path, NULL, &why);
    *known = rc == 0;
    if (rc == 0 || rc == HP_ENOENT)
        return 0;
    *e = why;
    return rc;
}

/* One body for each of its lengths, the longest first, all with JSON of one size. */
static int bodies_make(const json_t *metadata, const json_t *said, struct infer_body_ask ask,
                       struct infer_target_model *m, struct err *e)
{
    const json_t *lengths = json_object_get(said, "lengths");
    size_t n = json_array_size(lengths);
    int rc = 0;
    ask.mask = json_string_value(json_object_get(said, "mask"));
    for (size_t i = 0; rc == 0 && i < (n ? n : 1) && i < INFER_LENGTHS; i++) {
        ask.length = json_integer_value(json_array_get(lengths, i));
        rc = infer_body_make(metadata, &ask, &m->bodies[m->n_bodies++], &m->json_bytes, e);
        ask.json_room = m->json_bytes;
    }
    return rc;
}

static int model_ask(struct context *where, const json_t *said, uint64_t seed, uint64_t timeout_us,
                     struct infer_target_model *m, struct err *e)
{
    char path[PATH_BYTES];
    json_t *metadata = NULL;
    m->name = string_member(said, "name");
    m->weight = number_member(said, "weight");
    m->slo_s = timeout_us ? (double)timeout_us * 1e-6 : number_member(said, "slo_s");
    m->planned_per_s = number_member(said, "planned_per_s");
    snprintf(path, sizeof path, "/v2/models/%s", m->name);
    int rc = http_get(where, path, &metadata, e);
    if (rc == 0)
        rc = bodies_make(metadata, said,
                         (struct infer_body_ask){.seed = seed, .timeout_us = timeout_us}, m, e);
    if (rc < 0)
        err_at(e, "%s", m->name);
    json_decref(metadata);
    return rc;
}

int infer_target_ask(struct context *where, uint64_t seed, uint64_t timeout_us,
                     struct infer_target *out, struct err *e)
{
    const json_t *said;
    size_t i;
    *out = (struct infer_target){0};
    int rc = client_get_once(where->name, "pools", NULL, &out->pools, e);
    if (rc == 0 && !json_object_get(out->pools, "current")) {
        rc = err_set(e, HP_ESTALE, "no plan of pools serves now (%s)",
                     string_member(out->pools, "state"));
        err_hint(e, "`hpctl apply -f FILE` serves models, `hpctl pools` says what is served");
    }
    json_array_foreach(json_object_get(out->pools, "models"), i, said)
    {
        if (rc == 0 && out->n < INFER_MODELS)
            rc = model_ask(where, said, seed + i, timeout_us, &out->models[out->n++], e);
    }
    return rc;
}

int infer_target_find(const struct infer_target *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->models[i].name, name) == 0)
            return i;
    return -1;
}

void infer_target_free(struct infer_target *t)
{
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->models[i].n_bodies; k++)
            buffer_free(&t->models[i].bodies[k]);
    json_decref(t->pools);
    *t = (struct infer_target){0};
}
