#include "coordinator/pools/pool_spec.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/manifest.h"
#include "coordinator/pools/pool_spec_lengths.h"
#include "coordinator/pools/pool_workload.h"
#include "model/text_network.h"
#include "planners/pools/problem.h"
#include "transport/frame.h"

enum { TENSORS_MAX = 256 };

/* ---- networks ---- */

/* Sizes; -1: any. Of an input the first and the length alone may be so: requests that share a batch
 * are of one size. */
static int size_read(const struct json_at *at, bool may_be_any, int64_t *out, struct err *e)
{
    json_int_t size = json_integer_value(at->value);
    bool any = may_be_any && size == -1;
    if (!json_is_integer(at->value) || (size < 1 && !any) || size > INT32_MAX)
        return json_fail(at, e, "is no size that is served: a whole number from 1 to %d%s",
                         INT32_MAX, may_be_any ? ", or -1 for any" : "");
    *out = size;
    return 0;
}

static int dims_read(const struct json_at *at, bool is_input, struct infer_tensor *t, struct err *e)
{
    struct json_at dims;
    const json_t *axis = json_object_get(at->value, "length_axis");
    size_t n;
    int rc = json_get(at, "dims", &dims, e);
    rc = rc < 0 ? rc : json_as_array(&dims, &n, e);
    if (rc == 0 && n > ND_DIMS_MAX)
        rc = json_fail(&dims, e, "%zu dimensions; at most %d are served", n, ND_DIMS_MAX);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&dims, i);
        bool is_length = json_is_integer(axis) && json_integer_value(axis) == (json_int_t)i;
        rc = size_read(&item, !is_input || i == 0 || is_length, &t->dims[i], e);
    }
    t->n_dims = rc == 0 ? (int)n : -1;
    return rc;
}

static int tensors_read(const struct json_at *at, const char *key, struct arena *arena,
                        const struct infer_tensor **out, int *count, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = json_get(at, key, &list, e);
    rc = rc < 0 ? rc : json_as_array(&list, &n, e);
    if (rc == 0 && (n == 0 || n > TENSORS_MAX))
        rc = json_fail(&list, e, "%zu tensors; 1 to %d are served", n, TENSORS_MAX);
    if (rc < 0)
        return rc;
    struct infer_tensor *tensors = arena_alloc(arena, n, sizeof *tensors);
    if (!tensors)
        return json_no_memory(&list, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, i);
        uint64_t type;
        rc = json_get_string(&item, "name", &tensors[i].name, e);
        rc = rc < 0 ? rc : json_get_u64(&item, "type", &type, e);
        if (rc == 0 && (type >= ND_TYPE_COUNT || !ndarray_type_bytes((enum ndarray_type)type)))
            rc = json_fail(&item, e, "no type of elements has the number %llu",
                           (unsigned long long)type);
        tensors[i].type = rc == 0 ? (enum ndarray_type)type : 0;
        rc = rc < 0 ? rc : dims_read(&item, strcmp(key, "inputs") == 0, &tensors[i], e);
    }
    *out = tensors;
    *count = (int)n;
    return rc;
}

static int free_dims_read(const struct json_at *at, struct arena *arena, struct pool_model *m,
                          struct err *e)
{
    struct json_at dims;
    const char *symbol;
    json_t *size;
    if (!json_find(at, "dims", &dims))
        return 0;
    int rc = json_as_object(&dims, e);
    size_t n = rc == 0 ? json_object_size(dims.value) : 0;
    if (rc < 0 || n > MESSAGE_MAX_DIMS)
        return rc < 0 ? rc
                      : json_fail(&dims, e, "%zu sizes; at most %d are taken", n, MESSAGE_MAX_DIMS);
    struct message_dim *out = arena_alloc(arena, n + 1, sizeof *out);
    if (!out)
        return json_no_memory(&dims, e);
    json_object_foreach(dims.value, symbol, size)
    {
        if (!json_is_integer(size) || json_integer_value(size) < 1)
            return json_fail(&dims, e, "the size of \"%.60s\" is no number above 0", symbol);
        out[m->n_dims++] = (struct message_dim){symbol, (uint64_t)json_integer_value(size)};
    }
    m->dims = out;
    return 0;
}

static int bounds_read(const struct json_at *at, struct arena *arena, struct pool_model *m,
                       struct err *e)
{
    struct json_at list;
    size_t n = 0;
    if (!json_find(at, "bounds", &list))
        return 0;
    int rc = json_as_array(&list, &n, e);
    if (rc < 0 || n == 0)
        return rc;
    if (n != (size_t)m->n_blocks + 1)
        return json_fail(&list, e, "%zu bounds of %d blocks", n, m->n_blocks);
    uint32_t *bounds = arena_alloc(arena, n, sizeof *bounds);
    if (!bounds)
        return json_no_memory(&list, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, i);
        uint64_t v;
        rc = json_as_u64(&item, &v, e);
        if (rc == 0 && (v > INT32_MAX || (i > 0 && v <= bounds[i - 1])))
            rc = json_fail(&item, e, "bounds of blocks rise");
        bounds[i] = rc == 0 ? (uint32_t)v : 0;
    }
    m->bounds = bounds;
    m->n_bounds = (int)n;
    return rc;
}

static int manifest_read(const struct json_at *at, struct arena *arena, struct pool_model *m,
                         struct err *e)
{
    const char *hex, *end = NULL;
    size_t size = 0;
    struct arena unused = {0};
    struct manifest read;
    int rc = json_get_string(at, "manifest", &hex, e);
    if (rc < 0)
        return rc;
    size_t room = strlen(hex) / 2;
    uint8_t *bytes = arena_alloc(arena, room + 1, 1);
    if (!bytes)
        return json_no_memory(at, e);
    if (sodium_hex2bin(bytes, room + 1, hex, strlen(hex), NULL, &size, &end) != 0 || *end)
        return json_fail(at, e, "the manifest is not written in hexadecimal digits");
    rc = manifest_decode(bytes, size, &unused, &read, e);
    const struct manifest_file *files = read.files.items;
    for (size_t i = 0; rc == 0 && i < read.files.count; i++)
        m->file_bytes += files[i].bytes;
    arena_free(&unused);
    struct digest id = manifest_id(bytes, size);
    digest_hex(&id, m->id);
    m->manifest = (struct pack_span){bytes, size};
    return rc;
}

/* Requests can be computed together where each tensor's first dimension is left free. */
static bool tensors_batch(const struct infer_tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        if (t[i].n_dims < 1 || t[i].dims[0] >= 0)
            return false;
    return true;
}

static int file_read(const struct json_at *at, struct pool_spec *s, struct pool_model *m,
                     struct err *e)
{
    int rc = json_opt_string(at, "source_path", "", &m->source_path, e);
    rc = rc < 0 ? rc : free_dims_read(at, &s->arena, m, e);
    return rc < 0 ? rc : manifest_read(at, &s->arena, m, e);
}

/* A language model has the tensors of model/text_network.h. */
static int text_read(const struct json_at *at, struct pool_model *m, struct err *e)
{
    int rc = json_opt_bool(at, "text", false, &m->is_text, e);
    if (rc < 0 || !m->is_text)
        return rc;
    const struct infer_tensor *outs = m->facts.outputs;
    bool fits =
        m->n_lengths && m->facts.n_inputs == 2 && outs[0].type == ND_F32 && outs[0].n_dims == 2;
    if (fits && m->output_axes[0] < 0)
        fits = m->facts.n_outputs == TEXT_OUTPUTS_ROW;
    else if (fits)
        fits = m->facts.n_outputs == TEXT_OUTPUTS_SCORES && outs[1].type == ND_I64 &&
               m->output_axes[1] == 1 && outs[2].type == ND_F32 && m->output_axes[2] == 1;
    for (int i = 0; fits && i < 2; i++)
        fits = m->facts.inputs[i].type == ND_I64 && m->facts.inputs[i].n_dims == 2 &&
               m->input_axes[i] == 1;
    return fits ? 0
                : json_fail(at, e,
                            "a language model has two int64 inputs [batch, tokens], as outputs a "
                            "row or three numbers a token, and lengths");
}

static int network_read(const struct json_at *at, struct pool_spec *s, struct err *e)
{
    const char *name;
    int rc = json_get_string(at, "name", &name, e), i = rc < 0 ? -1 : pool_spec_find(s, name);
    if (rc == 0 && i < 0)
        rc = json_fail(at, e, "\"%.60s\" is no model of the workload", name);
    if (rc < 0)
        return rc;
    struct pool_model *m = &s->models[i];
    if (m->manifest.size)
        return json_fail(at, e, "is a second network of model \"%s\"", name);
    m->facts.name = s->workload.models[i].name;
    m->facts.copies_inputs = true; /* into the frame of a batch */
    rc = tensors_read(at, "inputs", &s->arena, &m->facts.inputs, &m->facts.n_inputs, e);
    if (rc == 0)
        rc = tensors_read(at, "outputs", &s->arena, &m->facts.outputs, &m->facts.n_outputs, e);
    rc = rc < 0 ? rc : json_get_u64(at, "limit_bytes", &m->facts.limit_bytes, e);
    if (rc == 0 && m->facts.limit_bytes > FRAME_MAX_PAYLOAD_BYTES)
        m->facts.limit_bytes = FRAME_MAX_PAYLOAD_BYTES; /* a frame has no more */
    rc = rc < 0 ? rc : file_read(at, s, m, e);
    rc = rc < 0 ? rc : pool_lengths_read(at, &s->arena, m, e);
    rc = rc < 0 ? rc : text_read(at, m, e);
    rc = rc < 0 ? rc : bounds_read(at, &s->arena, m, e);
    m->batches = rc == 0 && tensors_batch(m->facts.inputs, m->facts.n_inputs) &&
                 tensors_batch(m->facts.outputs, m->facts.n_outputs);
    return rc;
}

/* Where another tensor has the batch fixed, inputs that leave it free are told as what they must
 * be, so that requests of other sizes are refused when they are read. */
static int inputs_fix(struct pool_spec *s, struct pool_model *m, struct err *e)
{
    struct infer_tensor *inputs =
        arena_memdup(&s->arena, m->facts.inputs, (size_t)m->facts.n_inputs * sizeof *inputs);
    if (!inputs)
        return err_no_memory(e, "a workload");
    for (int i = 0; i < m->facts.n_inputs; i++)
        if (inputs[i].n_dims > 0 && inputs[i].dims[0] < 0 &&
            (m->n_lengths == 0 || m->input_axes[i] != 0))
            inputs[i].dims[0] = m->unit;
    m->facts.inputs = inputs;
    return 0;
}

/* Samples of a batch that shares nothing: as network_sizes_batch() of the agents has it, and one
 * where an input leaves that free. */
static int inputs_unit(const struct infer_model *m)
{
    int unit = 0;
    for (int i = 0; i < m->n_inputs; i++) {
        if (m->inputs[i].n_dims > 0 && m->inputs[i].dims[0] < 0)
            return 1;
        if (m->inputs[i].n_dims > 0 && unit == 0)
            unit = (int)m->inputs[i].dims[0];
    }
    return unit > 0 ? unit : 1;
}

/* Where the network's first dimension is not free a request is a batch: it has as many samples as
 * the network takes, and shares its batch with nobody. */
static int unit_set(const struct json_at *at, struct pool_spec *s, int model, struct err *e)
{
    struct pool_model *m = &s->models[model];
    m->unit = 1;
    if (m->batches)
        return 0;
    m->unit = inputs_unit(&m->facts);
    if (pool_profile_in_units(&s->workload.models[model].profile, m->unit))
        return inputs_fix(s, m, e);
    json_fail(at, e, "model \"%s\" takes batches of %d alone, and its profile has none",
              m->facts.name, m->unit);
    return err_hint(e,
                    "take the batch out of \"dims\" where the file leaves it free, or name a "
                    "profile that `hpctl profile model --batches %d` made",
                    m->unit);
}

static int networks_read(const struct json_at *at, struct pool_spec *s, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = json_get(at, "networks", &list, e);
    rc = rc < 0 ? rc : json_as_array(&list, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, i);
        rc = network_read(&item, s, e);
    }
    for (int i = 0; rc == 0 && i < s->workload.n_models; i++)
        if (!s->models[i].manifest.size)
            rc = json_fail(&list, e, "there is no network of model \"%s\"",
                           s->workload.models[i].name);
        else
            rc = unit_set(&list, s, i, e);
    return rc;
}

/* ---- the workload ---- */

static int profiles_read(const struct json_at *at, struct pool_spec *s, struct err *e)
{
    struct json_at profiles, one;
    int rc = json_get(at, "profiles", &profiles, e);
    for (int i = 0; rc == 0 && i < s->workload.n_models; i++) {
        struct workload_model *w = &s->workload.models[i];
        rc = json_get(&profiles, w->name, &one, e);
        rc = rc < 0 ? rc : profile_from_json(&one, &w->profile, e);
        if (rc == 0 &&
            (w->profile.shape != PROFILE_FIXED || w->profile.n_layers > POOLS_MAX_LAYERS))
            rc = json_fail(&one, e, "a profile of fixed shape with at most %d blocks is needed",
                           POOLS_MAX_LAYERS);
        s->models[i].n_blocks = rc == 0 ? w->profile.n_layers : 0;
        w->spares_kinds = true; /* such an agent may come at any time */
    }
    return rc;
}

/* A profile need not say what weights weigh: then all blocks weigh the same. */
static void weights_fill(struct pool_spec *s)
{
    for (int i = 0; i < s->workload.n_models; i++) {
        struct profile *f = &s->workload.models[i].profile;
        double all = 0;
        for (int l = 0; l < f->n_layers; l++)
            all += f->layers[l].param_bytes;
        for (int l = 0; all == 0 && l < f->n_layers; l++)
            f->layers[l].param_bytes = (double)s->models[i].file_bytes / f->n_layers;
    }
}

static int length_profiles_all(const struct json_at *at, struct pool_spec *s, struct err *e)
{
    struct json_at profiles, one;
    int rc = json_get(at, "profiles", &profiles, e);
    for (int i = 0; rc == 0 && i < s->workload.n_models; i++) {
        rc = json_get(&profiles, s->workload.models[i].name, &one, e);
        rc = rc < 0 ? rc
                    : pool_length_profiles_read(&one, &s->models[i], &s->workload.models[i].profile,
                                                e);
    }
    return rc;
}

static int agents_read(const struct json_at *at, struct pool_spec *s, struct err *e)
{
    struct json_at list;
    size_t n;
    if (!json_find(at, "agents", &list))
        return 0;
    int rc = json_as_array(&list, &n, e);
    const char **names = rc == 0 ? arena_alloc(&s->arena, n + 1, sizeof *names) : NULL;
    if (rc == 0 && !names)
        return json_no_memory(&list, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, i);
        rc = json_as_string(&item, &names[i], e);
    }
    s->agents = names;
    s->n_agents = rc == 0 ? (int)n : 0;
    return rc;
}

static int method_read(const struct json_at *at, struct pool_spec *s, struct err *e)
{
    const char *word;
    struct json_at said;
    int rc = json_opt_string(at, "method", pools_method_words[POOLS_METHOD_EXACT], &word, e);
    for (int m = 0; rc == 0 && pools_method_words[m]; m++)
        if (strcmp(word, pools_method_words[m]) == 0) {
            s->method = (enum pools_method)m;
            return 0;
        }
    if (rc == 0 && json_find(at, "method", &said))
        rc = json_fail(&said, e, "\"%.40s\" is no method of planning: exact, np or dart", word);
    return rc;
}

static int origin_read(const struct json_at *at, struct pool_spec *s, struct err *e)
{
    int rc = agents_read(at, s, e);
    rc = rc < 0 ? rc : json_opt_u64(at, "applied_s", 0, &s->applied_s, e);
    rc = rc < 0 ? rc : json_opt_string(at, "source_machine", "", &s->source_machine, e);
    return rc < 0 ? rc : json_opt_bool(at, "upload_only", false, &s->upload_only, e);
}

static int parts_read(const struct json_at *at, struct pool_spec *s, struct err *e)
{
    int rc = pool_workload_read(at, &s->workload, e);
    if (rc < 0)
        return rc;
    s->models = calloc((size_t)s->workload.n_models + 1, sizeof *s->models);
    if (!s->models)
        return json_no_memory(at, e);
    rc = profiles_read(at, s, e);
    rc = rc < 0 ? rc : networks_read(at, s, e);
    if (rc == 0)
        weights_fill(s);
    rc = rc < 0 ? rc : length_profiles_all(at, s, e);
    rc = rc < 0 ? rc : method_read(at, s, e);
    return rc < 0 ? rc : origin_read(at, s, e);
}

static int measured_read(const struct json_at *at, struct pool_spec *s, struct err *e)
{
    struct json_at network;
    s->models = calloc(1, sizeof *s->models);
    if (!s->models)
        return json_no_memory(at, e);
    int rc = json_get(at, "network", &network, e);
    rc = rc < 0 ? rc : json_as_object(&network, e);
    rc = rc < 0 ? rc : json_get_string(&network, "name", &s->models[0].facts.name, e);
    rc = rc < 0 ? rc : file_read(&network, s, &s->models[0], e);
    return rc < 0 ? rc : origin_read(at, s, e);
}

static int document_read(json_t *document, const char *what,
                         int (*read)(const struct json_at *at, struct pool_spec *s, struct err *e),
                         struct pool_spec **out, struct err *e)
{
    struct pool_spec *s = calloc(1, sizeof *s);
    if (!s) {
        json_decref(document);
        return err_no_memory(e, "a workload");
    }
    s->uses = 1;
    s->document = document;
    struct json_at at = {.file = what, .value = document};
    int rc = read(&at, s, e);
    if (rc < 0)
        pool_spec_release(&s);
    *out = s;
    return rc;
}

int pool_spec_read(json_t *document, struct pool_spec **out, struct err *e)
{
    return document_read(document, "the workload that is applied", parts_read, out, e);
}

int pool_spec_network_read(json_t *document, struct pool_spec **out, struct err *e)
{
    return document_read(document, "what is to be measured", measured_read, out, e);
}
