#include "model/model.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/utf8.h"
#include "model/architecture.h"
#include "model/gguf.h"
#include "model/hub.h"
#include "model/layers_int.h"
#include "model/mapped_file.h"
#include "model/safetensors.h"
#include "model/template.h"
#include "model/weight_table.h"

struct model_template {
    const char *source; /* NULL: none */
    struct chat_template *compiled;
    bool failed; /* and why */
    struct err failure;
};

struct model {
    struct arena arena; /* all of what follows that is not named as something else's */
    const char *path;
    enum model_form form;
    enum gguf_need need; /* GGUF_KEYS: model_open_text */
    struct gguf gguf;
    struct hub hub;
    struct model_file *files;
    struct mapped_file *maps; /* [n_files]; empty for small files */
    int n_files;
    struct model_range *heads;
    int n_heads;
    struct weight_table weights;
    struct model_facts facts;
    struct graph graph;
    int *previous_use; /* [n_ops]: the operator before that has the same weight, or -1 */
    struct model_template chat,
        tool_chat; /* the second where the file has one of its own for requests with tools */
    struct tokenizer *tokenizer;
    atomic_uint shares; /* owners beside the first */
};

static int out_of_memory(const struct model *m, struct err *e)
{
    return err_set(e, HP_ENOMEM, "%s: out of memory", m->path);
}

static int make_files(struct model *m, int n, struct err *e)
{
    m->files = arena_alloc(&m->arena, (size_t)n, sizeof *m->files);
    m->maps = arena_alloc(&m->arena, (size_t)n, sizeof *m->maps);
    m->heads = arena_alloc(&m->arena, (size_t)n + 1, sizeof *m->heads);
    if (!m->files || !m->maps || !m->heads)
        return out_of_memory(m, e);
    m->n_files = n;
    return 0;
}

static void add_head(struct model *m, int file, uint64_t offset, uint64_t bytes)
{
    m->heads[m->n_heads++] = (struct model_range){file, offset, bytes};
}

/* ---- GGUF
 * ------------------------------------------------------------------------------------------------------
 */

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

/* The header, and the one tensor that opening reads. */
static void gguf_heads(struct model *m)
{
    uint64_t bytes = m->files[0].bytes;
    add_head(m, 0, 0, m->gguf.data_offset < bytes ? m->gguf.data_offset : bytes);
    const struct weight *factors = weight_table_find(&m->weights, "rope_freqs.weight");
    if (factors)
        add_head(m, 0, factors->offset, factors->bytes);
}

static int open_gguf(struct model *m, struct err *e)
{
    int rc = make_files(m, 1, e);
    rc = rc < 0 ? rc : mapped_file_open(m->path, &m->maps[0], e);
    if (rc < 0)
        return rc;
    const char *slash = strrchr(m->path, '/');
    m->files[0] = (struct model_file){slash ? slash + 1 : m->path, m->maps[0].bytes};
    rc = gguf_parse_for(m->path, m->maps[0].data, m->maps[0].bytes, m->need, &m->gguf, e);
    if (rc < 0 || m->need == GGUF_KEYS)
        return rc < 0 ? rc : gguf_template(m, e);
    rc = weight_table_make(m->path, m->gguf.weights, m->gguf.n_weights, &m->arena, &m->weights, e);
    rc = rc < 0 ? rc : facts_from_gguf(&m->gguf, m->path, &m->weights, &m->arena, &m->facts, e);
    if (rc < 0)
        return rc;
    gguf_heads(m);
    return gguf_template(m, e);
}

/* ---- a folder
 * --------------------------------------------------------------------------------------------------
 */

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
    int rc = hub_open(m->path, &m->arena, &m->hub, e);
    m->chat.source = rc < 0 ? NULL : m->hub.chat_template;
    m->tool_chat.source = rc < 0 ? NULL : m->hub.tool_template;
    if (rc < 0 || m->need == GGUF_KEYS)
        return rc;
    rc = facts_from_hub(&m->hub.config_at, &m->arena, &m->facts, e);
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
    return rc < 0 ? rc : hub_index_check(&m->hub, &m->weights, e);
}

/* ---- opening and closing
 * --------------------------------------------------------------------------------------- */

static int find_previous_uses(struct model *m, struct err *e)
{
    const struct graph *g = &m->graph;
    int *last = malloc((m->weights.n_weights + 1) * sizeof *last);
    m->previous_use = arena_alloc(&m->arena, (size_t)g->n_ops, sizeof *m->previous_use);
    if (!last || !m->previous_use) {
        free(last);
        return out_of_memory(m, e);
    }
    for (size_t i = 0; i < m->weights.n_weights; i++)
        last[i] = -1;
    for (int i = 0; i < g->n_ops; i++) {
        m->previous_use[i] = -1;
        if (!g->ops[i].weight)
            continue;
        int *at = &last[g->ops[i].weight - m->weights.weights];
        m->previous_use[i] = *at;
        *at = i;
    }
    free(last);
    return 0;
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
    rc = graph_build(&m->facts, &m->weights, &m->arena, &m->graph, e);
    return rc < 0 ? rc : find_previous_uses(m, e);
}

static int open_as(const char *path, enum gguf_need need, struct model **out, struct err *e)
{
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, HP_ENOMEM, "%s: out of memory", path);
    m->need = need;
    int rc = open_all(m, path, e);
    int unread =
        model_check(m, e); /* a header that could not be read is not one that makes no sense */
    rc = unread < 0 ? unread : rc;
    if (rc < 0)
        model_close(&m);
    *out = m;
    return rc;
}

int model_open(const char *path, struct model **out, struct err *e)
{
    return open_as(path, GGUF_WEIGHTS, out, e);
}
int model_open_sizes(const char *path, struct model **out, struct err *e)
{
    return open_as(path, GGUF_SIZES, out, e);
}
int model_open_text(const char *path, struct model **out, struct err *e)
{
    return open_as(path, GGUF_KEYS, out, e);
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
    gguf_free(&m->gguf);
    hub_close(&m->hub);
    arena_free(&m->arena);
    free(m);
}

int model_check(const struct model *m, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < m->n_files && rc == 0; i++)
        rc = mapped_file_check(&m->maps[i], m->files[i].name, e);
    return rc;
}

/* ---- what it holds
 * --------------------------------------------------------------------------------------------- */

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

const struct model_file *model_files(const struct model *m, int *count)
{
    *count = m->n_files;
    return m->files;
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
    const struct graph *g = &m->graph;
    if (first < 0 || end > g->n_layers || first >= end)
        return;
    int first_op = g->layers[first].first_op,
        end_op = g->layers[end - 1].first_op + g->layers[end - 1].n_ops;
    for (int i = first_op; i < end_op; i++) {
        if (g->ops[i].weight && m->previous_use[i] < first_op)
            each(ctx, g->ops[i].weight);
        if (g->ops[i].bias) /* a bias has one matrix */
            each(ctx, g->ops[i].bias);
    }
}

/* ---- tokenizer and template
 * ------------------------------------------------------------------------------------ */

int model_tokenizer(struct model *m, const struct tokenizer **out, struct err *e)
{
    int rc = 0;
    if (!m->tokenizer)
        rc = m->form == FORM_HUB ? tokenizer_from_hub(m->path, &m->tokenizer, e)
                                 : tokenizer_from_gguf(&m->gguf, m->path, &m->tokenizer, e);
    *out = rc < 0 ? NULL : m->tokenizer;
    return rc;
}

static int compile_template(const struct model *m, struct model_template *t, struct err *e)
{
    if (t->compiled)
        return 0;
    if (!t->source)
        return err_set(e, HP_EUNSUPPORTED, "%s: the model has no chat template", m->path);
    if (!t->failed) {
        int rc = template_compile(t->source, strlen(t->source), &t->compiled, &t->failure);
        if (rc == 0)
            return 0;
        err_at(&t->failure, "%s: chat template", m->path);
        t->failed = rc != HP_ENOMEM; /* which may be had next time */
    }
    if (e)
        *e = t->failure;
    return t->failure.code;
}

int model_text_prepare(struct model *m, struct err *e)
{
    const struct tokenizer *t;
    compile_template(m, &m->chat, NULL);
    compile_template(m, &m->tool_chat, NULL);
    return model_tokenizer(m, &t, e);
}

/* A new object with everything that the template sees; NULL when memory ran out or a token's text
 * is not UTF-8. */
static json_t *template_variables(const json_t *messages, bool add_generation_prompt,
                                  const struct tokenizer *t, const json_t *extra)
{
    json_t *v = json_object();
    bool bad = json_object_set(v, "messages", (json_t *)messages) < 0;
    bad |= json_object_set_new(v, "add_generation_prompt", json_boolean(add_generation_prompt)) < 0;
    /* Templates are written for a caller that always hands these in: "tools is not none" must be
     * false without them. */
    bad |= json_object_set_new(v, "tools", json_null()) < 0;
    bad |= json_object_set_new(v, "documents", json_null()) < 0;
    bad |= json_object_set_new(v, "bos_token", json_string(tokenizer_bos_text(t))) < 0;
    bad |= json_object_set_new(v, "eos_token", json_string(tokenizer_eos_text(t))) < 0;
    if (*tokenizer_pad_text(t))
        bad |= json_object_set_new(v, "pad_token", json_string(tokenizer_pad_text(t))) < 0;
    if (*tokenizer_unknown_text(t))
        bad |= json_object_set_new(v, "unk_token", json_string(tokenizer_unknown_text(t))) < 0;
    bad |= extra && json_object_update(v, (json_t *)extra) < 0;
    if (!bad)
        return v;
    json_decref(v);
    return NULL;
}

/* What is not UTF-8 cannot be a variable; everything else that fails is want of memory. */
static int variables_failed(const struct model *m, const struct tokenizer *t, struct err *e)
{
    const char *texts[] = {tokenizer_bos_text(t), tokenizer_eos_text(t), tokenizer_pad_text(t),
                           tokenizer_unknown_text(t)};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (utf8_valid_prefix(texts[i], strlen(texts[i])) < strlen(texts[i]))
            return err_set(e, HP_EINVAL, "%s: a token that templates are given is not UTF-8",
                           m->path);
    return err_set(e, HP_ENOMEM, "%s: no memory for the template's variables", m->path);
}

int model_chat_render(struct model *m, const json_t *messages, bool add_generation_prompt,
                      const json_t *extra, struct buffer *out, struct err *e)
{
    const struct tokenizer *t;
    const json_t *tools = extra ? json_object_get(extra, "tools") : NULL;
    bool with_tools = m->tool_chat.source && ((tools && !json_is_null(tools)) || !m->chat.source);
    struct model_template *chosen = with_tools ? &m->tool_chat : &m->chat;
    int rc = compile_template(m, chosen, e);
    rc = rc < 0 ? rc : model_tokenizer(m, &t, e);
    if (rc < 0)
        return rc;
    json_t *variables = template_variables(messages, add_generation_prompt, t, extra);
    if (!variables)
        return variables_failed(m, t, e);
    rc = template_render(chosen->compiled, variables, NULL, out, e);
    json_decref(variables);
    return rc;
}
