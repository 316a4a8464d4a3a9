#include "hpctl/workload_document.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/host.h"
#include "common/host_limits.h"
#include "common/json.h"
#include "hpctl/model_manifest.h"
#include "hpctl/workload_lengths.h"
#include "hpctl/yaml_json.h"
#include "model/text_network.h"

enum { FREE_INPUT_BYTES = 64 << 20 /* of all inputs, where sizes stay free */ };

/* ---- a network ---- */

/* The size of a dimension: what the file says, what "dims" says, or -1 for the batch and for the
 * length, whose place is noted. */
static int dim_choose(const struct json_at *at, const struct onnx_value *v, int d,
                      const json_t *dims, struct workload_lengths *l, int64_t *out, struct err *e)
{
    const struct onnx_dim *dim = &v->dims[d];
    json_t *said = json_object_get(dims, dim->symbol);
    *out = dim->size;
    if (dim->size >= 0 || (d == 0 && !said))
        return 0;
    if (!said && l->n > 0)
        return workload_lengths_note(at, v, d, l, e);
    if (!json_is_integer(said) || json_integer_value(said) < 1)
        return json_fail(at, e,
                         "input \"%s\" leaves dimension %d (\"%s\") free: say its size in \"dims\"",
                         v->name, d, dim->symbol);
    *out = json_integer_value(said);
    return 0;
}

static json_t *tensor_json(const struct onnx_value *v, const int64_t *dims, int length_axis)
{
    json_t *sizes = json_array();
    for (int d = 0; d < v->n_dims; d++)
        json_array_append_new(sizes, json_integer(dims[d]));
    json_t *tensor = json_pack("{s:o, s:i, s:o}", "name", json_text(v->name), "type", (int)v->type,
                               "dims", sizes);
    if (length_axis >= 0)
        json_object_set_new(tensor, "length_axis", json_integer(length_axis));
    return tensor;
}

static int inputs_json(const struct json_at *at, const struct onnx *o, const json_t *dims,
                       struct workload_lengths *l, json_t *network, struct err *e)
{
    json_t *list = json_array();
    uint64_t bytes = 0;
    json_object_set_new(network, "inputs", list);
    for (int i = 0; i < o->n_inputs; i++) {
        const struct onnx_value *v = &o->values[o->inputs[i]];
        int64_t sizes[ND_DIMS_MAX] = {0};
        struct ndarray one;
        if (v->n_dims < 0 || v->n_dims > ND_DIMS_MAX || !v->type)
            return json_fail(at, e, "the file does not say type and sizes of input \"%s\"",
                             v->name);
        l->axis = -1;
        for (int d = 0; d < v->n_dims; d++) {
            int rc = dim_choose(at, v, d, dims, l, &sizes[d], e);
            if (rc < 0)
                return rc;
        }
        json_array_append_new(list, tensor_json(v, sizes, l->axis));
        if (l->axis >= 0)
            sizes[l->axis] = l->longest[0];
        if (v->n_dims > 0 && sizes[0] < 0)
            sizes[0] = 256; /* samples of a request, at most */
        if (ndarray_shape(&one, v->type, v->n_dims, sizes, NULL) == 0)
            bytes += ndarray_bytes(&one);
    }
    bytes = bytes < FREE_INPUT_BYTES ? FREE_INPUT_BYTES : bytes;
    json_object_set_new(network, "limit_bytes",
                        json_integer(bytes < UINT32_MAX ? (json_int_t)bytes : UINT32_MAX));
    return 0;
}

static int outputs_json(const struct json_at *at, const struct onnx *o, struct workload_lengths *l,
                        json_t *network, struct err *e)
{
    json_t *list = json_array();
    json_object_set_new(network, "outputs", list);
    for (int i = 0; i < o->n_outputs; i++) {
        const struct onnx_value *v = &o->values[o->outputs[i]];
        int64_t sizes[ND_DIMS_MAX];
        if (v->n_dims < 0 || v->n_dims > ND_DIMS_MAX || !v->type)
            return json_fail(at, e, "the file does not say type and sizes of output \"%s\"",
                             v->name);
        int rc = 0;
        l->axis = -1;
        for (int d = 0; d < v->n_dims && rc == 0; d++) {
            sizes[d] = v->dims[d].size;
            if (l->n > 0 && d > 0 && sizes[d] < 0)
                rc = workload_lengths_note(at, v, d, l, e);
        }
        if (rc < 0)
            return rc;
        json_array_append_new(list, tensor_json(v, sizes, l->axis));
    }
    return 0;
}

static int manifest_add(struct workload_document *d, struct workload_network *w,
                        struct progress_bar *bar, json_t *network, struct err *e)
{
    int rc = network_manifest_make(w->path, bar, &w->encoded, e);
    rc =
        rc < 0 ? rc : manifest_decode(w->encoded.data, w->encoded.size, &d->arena, &w->manifest, e);
    if (rc < 0)
        return rc;
    return json_object_set_new(network, "manifest", json_hex(w->encoded.data, w->encoded.size)) == 0
               ? 0
               : err_no_memory(e, "a manifest");
}

/* A language model has lengths, none of which is beyond what it reads. */
static int text_check(const struct json_at *at, const char *path, const struct workload_lengths *l,
                      struct err *e)
{
    struct model *m;
    int rc = model_open(path, &m, e);
    if (rc < 0)
        return rc;
    int64_t longest = text_network_longest(m);
    model_close(&m);
    if (l->n == 0) {
        json_fail(at, e, "a language model is served in lengths, and none are named");
        return err_hint(e,
                        "\"lengths\": {\"buckets\": [16, 64, 256]} names the lengths, in tokens, "
                        "to which texts are padded");
    }
    return l->longest[0] <= longest
               ? 0
               : json_fail(at, e,
                           "a length of %lld; the model is served with texts of up to %lld "
                           "tokens",
                           (long long)l->longest[0], (long long)longest);
}

static int network_add(struct workload_document *d, const struct json_at *model, const char *folder,
                       struct progress_bar *bar, struct err *e)
{
    const char *name, *file;
    struct onnx_network *open = NULL;
    char real[PATH_MAX];
    uint64_t memory;
    int rc = json_get_string(model, "name", &name, e);
    rc = rc < 0 ? rc : json_get_string(model, "model", &file, e);
    if (rc < 0)
        return rc == HP_EPARSE && !json_object_get(model->value, "model")
                   ? err_hint(e, "\"model\" is the path of the ONNX file, or of the language "
                                 "model, that is to be served")
                   : rc;
    const char *path = *file == '/' ? file : arena_printf(&d->arena, "%s/%s", folder, file);
    if (!path || !realpath(path, real))
        return json_fail(model, e, "there is no file %s", path ? path : file);
    struct workload_network *w = &d->networks[d->n_networks++];
    *w = (struct workload_network){.name = name, .path = arena_strdup(&d->arena, real)};
    if (!w->path)
        return err_no_memory(e, "a workload");
    if (!host_memory_free("", &memory))
        memory = host_memory_default();
    if ((rc = text_network_open(w->path, memory, &open, e)) < 0)
        return rc;
    struct workload_lengths lengths;
    json_t *dims = json_object_get(model->value, "dims");
    bool is_text = text_network_is(w->path);
    rc = workload_lengths_read(model, &lengths, e);
    if (rc == 0 && is_text)
        rc = text_check(model, w->path, &lengths, e);
    if (rc < 0) {
        network_close(&open);
        return rc;
    }
    json_t *network = json_pack("{s:s, s:s, s:O?}", "name", name, "source_path", w->path, "dims",
                                json_is_object(dims) ? dims : NULL);
    if (is_text)
        json_object_set_new(network, "text", json_true());
    rc = network ? inputs_json(model, network_onnx(open), dims, &lengths, network, e)
                 : err_no_memory(e, "a workload");
    rc = rc < 0 ? rc : workload_lengths_check(model, network_onnx(open), &lengths, network, e);
    rc = rc < 0 ? rc : outputs_json(model, network_onnx(open), &lengths, network, e);
    network_close(&open);
    rc = rc < 0 ? rc : manifest_add(d, w, bar, network, e);
    json_array_append_new(json_object_get(d->json, "networks"), network);
    return rc;
}

/* ---- its profile ---- */

static int profile_add(struct workload_document *d, const struct json_at *model, const char *folder,
                       struct err *e)
{
    const char *name, *file;
    struct json_at at;
    json_t *profile = NULL;
    int rc = json_get_string(model, "name", &name, e);
    if (rc == 0 && !json_object_get(model->value, "profile"))
        return 0; /* what agents measured stands in */
    rc = rc < 0 ? rc : json_get_string(model, "profile", &file, e);
    if (rc < 0)
        return rc;
    const char *path = *file == '/' ? file : arena_printf(&d->arena, "%s/%s", folder, file);
    if (!path)
        return err_no_memory(e, "a profile");
    if (json_load_at(path, &profile, &at, e) < 0)
        return err_hint(e, "`hpctl profile model MODEL -o FILE` makes one; without the key "
                           "\"profile\" the agents measure the model");
    json_t *bounds = json_object_get(profile, "bounds");
    size_t last = json_array_size(json_object_get(d->json, "networks"));
    if (bounds && last)
        json_object_set(json_array_get(json_object_get(d->json, "networks"), last - 1), "bounds",
                        bounds);
    json_object_set_new(json_object_get(d->json, "profiles"), name, profile);
    return 0;
}

/* ---- all ---- */

static void folder_of(const char *file, char out[PATH_MAX])
{
    const char *slash = strrchr(file, '/');
    snprintf(out, PATH_MAX, "%.*s", slash ? (int)(slash - file) : 1, slash ? file : ".");
    if (slash == file)
        snprintf(out, PATH_MAX, "/");
}

int workload_document_read(const char *file, struct progress_bar *bar, struct workload_document *d,
                           struct err *e)
{
    json_t *workload;
    char folder[PATH_MAX], machine[HOST_ID];
    *d = (struct workload_document){0};
    int rc = yaml_json_load(file, &workload, e);
    if (rc < 0)
        return rc;
    host_id(machine);
    d->json = json_pack("{s:o, s:{}, s:[], s:s}", "workload", workload, "profiles", "networks",
                        "source_machine", machine);
    if (!d->json)
        return err_no_memory(e, "a workload");
    folder_of(file, folder);
    struct json_at at = {.file = file, .value = workload}, models;
    size_t n = 0;
    rc = json_as_object(&at, e);
    rc = rc < 0 ? rc : json_expect_format(&at, "hp-workload/1", e);
    rc = rc < 0 ? rc : json_get(&at, "models", &models, e);
    rc = rc < 0 ? rc : json_as_array(&models, &n, e);
    if (rc == 0 && n > WORKLOAD_NETWORKS)
        rc = json_fail(&models, e, "%zu models; at most %d are served", n, WORKLOAD_NETWORKS);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at model = json_item(&models, i);
        rc = json_as_object(&model, e);
        rc = rc < 0 ? rc : network_add(d, &model, folder, bar, e);
        rc = rc < 0 ? rc : profile_add(d, &model, folder, e);
    }
    return rc;
}

void workload_document_free(struct workload_document *d)
{
    for (int i = 0; i < d->n_networks; i++)
        buffer_free(&d->networks[i].encoded);
    json_decref(d->json);
    arena_free(&d->arena);
    *d = (struct workload_document){0};
}
