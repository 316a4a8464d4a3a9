#include "model/model.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/files/gguf.h"
#include "model/files/hub.h"
#include "model/files/mapped_file.h"
#include "model/files/safetensors.h"
#include "model/graph/builder.h"
#include "model/graph/facts.h"
#include "model/hub_scales.h"
#include "model/model_int.h"
#include "model/template/template.h"
#include "model/weight_table.h"

static int out_of_memory(const struct model *m, struct err *e)
{
    return err_set(e, HP_ENOMEM, "%s: out of memory", m->path);
}

static int make_files(struct model *m, int n, struct err *e)
{
    m->files = arena_alloc(&m->arena, (size_t)n, sizeof *m->files);
    m->maps = arena_alloc(&m->arena, (size_t)n, sizeof *m->maps);
    m->heads = arena_alloc(&m->arena, (size_t)n + 3, sizeof *m->heads);
    if (!m->files || !m->maps || !m->heads)
        return out_of_memory(m, e);
    m->n_files = n;
    return 0;
}

static void add_head(struct model *m, int file, uint64_t offset, uint64_t bytes)
{
    m->heads[m->n_heads++] = (struct model_range){file, offset, bytes};
}

/* ---- GGUF ---- */

static int read_gguf_template(struct model *m, const char *key, const char **out, struct err *e)
{
    struct gguf_string text;
    int rc = gguf_get_string(&m->gguf, m->path, key, &text, e);
    if (rc < 0 || !text.data)
        return rc;
    if (memchr(text.data, '\0', text.size))
        return err_set(e, HP_EPARSE, "%s: key %s has a NUL", m->path, key);
    *out = arena_strndup(&m->arena, text.data, text.size);
    return *out ? 0 : out_of_memory(m, e);
}

static int gguf_template(struct model *m, struct err *e)
{
    int rc = read_gguf_template(m, "tokenizer.chat_template", &m->chat.source, e);
    return rc < 0
               ? rc
               : read_gguf_template(m, "tokenizer.chat_template.tool_use", &m->tool_chat.source, e);
}

/* The header, and the tensors that opening reads. */
static void gguf_heads(struct model *m)
{
    static const char *const rope_tensors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                               "rope_factors_long.weight"};
    for (int i = 0; i < m->n_files; i++) {
        uint64_t bytes = m->files[i].bytes,
                 header = i ? m->parts[i].data_offset : m->gguf.data_offset;
        add_head(m, i, 0, header < bytes ? header : bytes);
    }
    for (size_t i = 0; i < sizeof rope_tensors / sizeof *rope_tensors; i++) {
        const struct weight *factors = weight_table_find(&m->weights, rope_tensors[i]);
        if (factors)
            add_head(m, factors->file, factors->offset, factors->bytes);
    }
}

static int open_gguf(struct model *m, struct err *e)
{
    int rc = make_files(m, 1, e);
    rc = rc < 0 ? rc : mapped_file_open(m->path, &m->maps[0], e);
    if (rc < 0)
        return rc;
    const char *slash = strrchr(m->path, '/');
    m->files[0] = (struct model_file){slash ? slash + 1 : m->path, m->maps[0].bytes};
    rc = gguf_parse(m->path, m->maps[0].data, m->maps[0].bytes, m->need, &m->gguf, e);
    rc = rc < 0 ? rc : model_parts_open(m, e);
    if (rc < 0 || m->need == GGUF_KEYS)
        return rc < 0 ? rc : gguf_template(m, e);
    rc = weight_table_make(m->path, m->joined, m->n_joined, &m->arena, &m->weights, e);
    rc = rc < 0 ? rc : facts_from_gguf(&m->gguf, m->path, &m->weights, &m->arena, &m->facts, e);
    if (rc < 0)
        return rc;
    gguf_heads(m);
    return gguf_template(m, e);
}

/* ---- a folder ---- */

static int open_small_file(struct model *m, int i, const char *path, struct err *e)
{
    struct stat s;
    if (stat(path, &s) < 0)
        return err_set(e, HP_EIO, "%s: %s", path, strerror(errno));
    m->files[i].bytes = (uint64_t)s.st_size;
    add_head(m, i, 0, m->files[i].bytes);
    return 0;
}

static int open_shard(struct model *m, int i, const char *path, struct safetensors *out,
                      struct err *e)
{
    int rc = mapped_file_open(path, &m->maps[i], e);
    if (rc == HP_ENOENT)
        err_hint(e, "the folder's index names this file: fetch what is missing of the model");
    if (rc < 0)
        return rc;
    m->files[i].bytes = m->maps[i].bytes;
    rc = safetensors_parse(path, i, m->maps[i].data, m->maps[i].bytes, &m->arena, out, e);
    if (rc == 0)
        add_head(m, i, 0, out->header_bytes);
    return rc;
}

/* One array over all shards; they are in the order of files already. */
static int join_shards(struct model *m, const struct safetensors *shards, struct err *e)
{
    size_t n = 0, at = 0;
    for (int i = 0; i < m->n_files; i++)
        n += shards[i].n_weights;
    struct weight *all = arena_alloc(&m->arena, n + 1, sizeof *all);
    if (!all)
        return out_of_memory(m, e);
    for (int i = 0; i < m->n_files; i++) {
        if (shards[i].n_weights)
            memcpy(all + at, shards[i].weights, shards[i].n_weights * sizeof *all);
        at += shards[i].n_weights;
    }
    return weight_table_make(m->path, all, n, &m->arena, &m->weights, e);
}

static int open_hub(struct model *m, struct err *e)
{
    int rc = m->need == GGUF_KEYS ? hub_open_text(m->path, &m->arena, &m->hub, e)
                                  : hub_open(m->path, &m->arena, &m->hub, e);
    m->chat.source = rc < 0 ? NULL : m->hub.chat_template;
    m->tool_chat.source = rc < 0 ? NULL : m->hub.tool_template;
    if (rc < 0 || m->need == GGUF_KEYS)
        return rc;
    rc = facts_from_hub(&m->hub.config_at, &m->arena, &m->facts, e);
    rc = rc < 0
             ? rc
             : facts_hub_pooling(m->hub.pooling ? &m->hub.pooling_at : NULL,
                                 m->hub.modules ? &m->hub.modules_at : NULL, &m->facts.config, e);
    rc = rc < 0 ? rc : make_files(m, m->hub.n_files, e);
    if (rc < 0)
        return rc;
    struct safetensors *shards = arena_alloc(&m->arena, (size_t)m->n_files, sizeof *shards);
    if (!shards)
        return out_of_memory(m, e);
    for (int i = 0; i < m->n_files && rc == 0; i++) {
        m->files[i].name = m->hub.names[i];
        const char *path = hub_path(&m->hub, &m->arena, m->hub.names[i]);
        if (!path)
            return out_of_memory(m, e);
        rc = i < m->hub.first_shard ? open_small_file(m, i, path, e)
                                    : open_shard(m, i, path, &shards[i], e);
    }
    rc = rc < 0 ? rc : join_shards(m, shards, e);
    rc = rc < 0 ? rc : hub_index_check(&m->hub, &m->weights, e);
    return rc < 0 ? rc : hub_scales_join(&m->hub.config_at, &m->weights, &m->arena, e);
}

/* ---- opening and closing ---- */

static int index_weights(struct model *m, struct err *e)
{
    const struct graph *g = &m->graph;
    int *scratch = malloc((m->weights.n_weights + 1) * sizeof *scratch);
    m->previous_use = arena_alloc(&m->arena, (size_t)g->n_weight_uses + 1, sizeof *m->previous_use);
    bool good = scratch && m->previous_use;
    if (good)
        graph_weights_index(g, m->weights.weights, m->weights.n_weights, scratch, m->previous_use);
    free(scratch);
    return good ? 0 : out_of_memory(m, e);
}

static int open_all(struct model *m, const char *path, struct err *e)
{
    struct stat s;
    m->path = arena_strdup(&m->arena, path);
    if (!m->path)
        return err_set(e, HP_ENOMEM, "%s: out of memory", path);
    if (stat(path, &s) < 0) {
        int code = errno == ENOENT || errno == ENOTDIR ? HP_ENOENT
                   : errno == EACCES                   ? HP_EDENIED
                                                       : HP_EIO;
        return err_set(e, code, "%s: %s", path, strerror(errno));
    }
    m->form = S_ISDIR(s.st_mode) ? FORM_HUB : FORM_GGUF;
    int rc = m->form == FORM_HUB ? open_hub(m, e) : open_gguf(m, e);
    if (rc < 0 || m->need == GGUF_KEYS)
        return rc;
    rc = graph_build(&m->facts, &m->weights, m->expert_groups, &m->arena, &m->graph, e);
    return rc < 0 ? rc : index_weights(m, e);
}

/* What to do where nobody who knew better has said it. */
static void hint_at_file(int code, struct err *e)
{
    if (!e || *e->hint)
        return;
    if (code == HP_EUNSUPPORTED)
        err_hint(e, "take a model, or a file of this one, of a kind that is known, or a newer "
                    "hodgepodge");
    else if (code == HP_EPARSE)
        err_hint(e, "the file was changed, or is not whole: fetch it again, or convert the model "
                    "anew");
}

static int open_as(const char *path, enum gguf_need need, int expert_groups, struct model **out,
                   struct err *e)
{
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, HP_ENOMEM, "%s: out of memory", path);
    m->need = need;
    m->expert_groups = expert_groups;
    int rc = open_all(m, path, e);
    int unread =
        model_check(m, e); /* a header that could not be read is not one that makes no sense */
    rc = unread < 0 ? unread : rc;
    hint_at_file(rc, e);
    if (rc < 0)
        model_close(&m);
    *out = m;
    return rc;
}

int model_open(const char *path, struct model **out, struct err *e)
{
    return open_as(path, GGUF_WEIGHTS, 1, out, e);
}

int model_open_divided(const char *path, int expert_groups, struct model **out, struct err *e)
{
    return open_as(path, GGUF_WEIGHTS, expert_groups, out, e);
}

int model_open_sizes(const char *path, int expert_groups, struct model **out, struct err *e)
{
    return open_as(path, GGUF_SIZES, expert_groups, out, e);
}

int model_open_text(const char *path, struct model **out, struct err *e)
{
    return open_as(path, GGUF_KEYS, 1, out, e);
}

struct model *model_share(struct model *m)
{
    atomic_fetch_add(&m->shares, 1);
    return m;
}

void model_close(struct model **model)
{
    struct model *m = *model;
    *model = NULL;
    if (!m || atomic_fetch_sub(&m->shares, 1) > 0)
        return;
    tokenizer_destroy(&m->tokenizer);
    template_destroy(&m->chat.compiled);
    template_destroy(&m->tool_chat.compiled);
    for (int i = 0; i < m->n_files; i++)
        mapped_file_close(&m->maps[i]);
    model_parts_close(m);
    gguf_free(&m->gguf);
    hub_close(&m->hub);
    arena_free(&m->arena);
    free(m);
}

static int files_check(const struct model *m,
                       int (*check)(const struct mapped_file *, const char *, struct err *),
                       struct err *e)
{
    int rc = 0;
    for (int i = 0; i < m->n_files && rc == 0; i++)
        rc = check(&m->maps[i], m->files[i].name, e);
    return rc;
}

int model_check(const struct model *m, struct err *e)
{
    return files_check(m, mapped_file_check, e);
}

int model_glance(const struct model *m, struct err *e)
{
    return files_check(m, mapped_file_glance, e);
}

/* ---- what it holds ---- */

const char *model_path(const struct model *m)
{
    return m->path;
}

const struct model_config *model_config(const struct model *m)
{
    return &m->facts.config;
}

const struct graph *model_graph(const struct model *m)
{
    return &m->graph;
}

const char *model_chat_template(const struct model *m)
{
    return m->chat.source;
}

const char *model_tool_template(const struct model *m)
{
    return m->tool_chat.source ? m->tool_chat.source : m->chat.source;
}

const struct model_file *model_files(const struct model *m, int *count)
{
    *count = m->n_files;
    return m->files;
}

uint64_t model_files_bytes(const struct model *m)
{
    uint64_t sum = 0;
    for (int i = 0; i < m->n_files; i++)
        sum += m->files[i].bytes;
    return sum;
}

const struct model_range *model_heads(const struct model *m, int *count)
{
    *count = m->n_heads;
    return m->heads;
}

const struct weight *model_weights(const struct model *m, int *count)
{
    *count = (int)m->weights.n_weights;
    return m->weights.weights;
}

void model_layers_weights(const struct model *m, int first, int end,
                          void (*each)(void *ctx, const struct weight *w), void *ctx)
{
    graph_layers_weights(&m->graph, m->previous_use, first, end, each, ctx);
}
