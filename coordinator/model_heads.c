#include "coordinator/model_heads.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/kv_format.h"
#include "common/manifest.h"
#include "model/graph/kinds.h"
#include "model/graph/section.h"
#include "transport/message.h"

enum { PATH_BYTES = FS_PATH_BYTES };

static int file_path(const char *folder, const char *id, const struct manifest *m, uint64_t file,
                     char out[PATH_BYTES], struct err *e)
{
    int n = snprintf(out, PATH_BYTES, "%s/%s/files/%s", folder, id,
                     ((const struct manifest_file *)m->files.items)[file].name);
    return n < PATH_BYTES ? 0 : err_set(e, HP_ELIMIT, "the name of a model's file is too long");
}

static int file_make(char path[PATH_BYTES], uint64_t bytes, struct err *e)
{
    int rc = fs_folder_above_make(path, 0755, e);
    if (rc < 0)
        return rc;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        rc = fs_error(path, "make this file", e);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int head_write(const char *path, const struct manifest_head *h, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC), rc = 0;
    if (fd < 0)
        return fs_error(path, "open", e);
    for (size_t done = 0; rc == 0 && done < h->data.size;) {
        ssize_t n = pwrite(fd, h->data.data + done, h->data.size - done, (off_t)(h->offset + done));
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            rc = fs_error(path, "write", e);
    }
    if (close(fd) != 0 && rc == 0)
        rc = fs_error(path, "write", e);
    return rc;
}

/* Whether a file has a head's bytes already: a restart writes nothing, so that a full disk does not
 * keep models from opening. */
static bool head_is_there(const char *path, uint64_t bytes, const struct manifest_head *h)
{
    struct stat st;
    uint8_t read[64 * 1024];
    size_t done = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool same = fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == bytes;
    while (same && done < h->data.size) {
        size_t want = h->data.size - done < sizeof read ? h->data.size - done : sizeof read;
        ssize_t n = pread(fd, read, want, (off_t)(h->offset + done));
        same = n > 0 && memcmp(read, h->data.data + done, (size_t)n) == 0;
        done += same ? (size_t)n : 0;
    }
    if (fd >= 0)
        close(fd);
    return same;
}

static bool heads_are_there(const char *folder, const char *id, const struct manifest *m)
{
    char path[PATH_BYTES];
    struct err ignored;
    const struct manifest_file *files = m->files.items;
    const struct manifest_head *heads = m->heads.items;
    struct stat st;
    for (size_t i = 0; i < m->files.count; i++)
        if (file_path(folder, id, m, i, path, &ignored) < 0 || stat(path, &st) != 0 ||
            (uint64_t)st.st_size != files[i].bytes)
            return false;
    for (size_t i = 0; i < m->heads.count; i++)
        if (heads[i].file >= m->files.count ||
            file_path(folder, id, m, heads[i].file, path, &ignored) < 0 ||
            !head_is_there(path, files[heads[i].file].bytes, &heads[i]))
            return false;
    return true;
}

static int heads_make(const char *folder, const char *id, const struct manifest *m, struct err *e)
{
    char path[PATH_BYTES];
    int rc = 0;
    if (heads_are_there(folder, id, m))
        return 0;
    for (size_t i = 0; rc == 0 && i < m->files.count; i++)
        if ((rc = file_path(folder, id, m, i, path, e)) == 0)
            rc = file_make(path, ((const struct manifest_file *)m->files.items)[i].bytes, e);
    const struct manifest_head *heads = m->heads.items;
    for (size_t i = 0; rc == 0 && i < m->heads.count; i++)
        if ((rc = file_path(folder, id, m, heads[i].file, path, e)) == 0)
            rc = head_write(path, &heads[i], e);
    return rc;
}

/* ---- facts ---- */

/* Blocks stay as they are; plain numbers stay, too, or become shorter ones where that is faster;
 * what has its scales in another tensor is put together, as two bytes where these may stand for
 * four. */
static void weight_count(void *ctx, const struct weight *w)
{
    struct layer_facts *l = ctx;
    uint64_t n = 1, bytes = weight_dtype_bytes(w);
    bool scaled = w->stored == WEIGHT_F8_E4M3 || w->stored == WEIGHT_F8_E5M2;
    for (int i = 0; i < w->n_dims; i++)
        n *= w->shape[i];
    l->elements += n;
    if (w->n_dims < 2)
        bytes = n * sizeof(float);
    l->kept_f32_bytes += bytes;
    l->kept_bytes += scaled && w->n_dims > 1 ? n * 2 : bytes;
}

static int tokens_text(void *ctx, const uint32_t *ids, size_t n, struct buffer *out)
{
    struct err ignored;
    return tokenizer_decode(ctx, ids, n, out, &ignored);
}

/* Bytes that a product with a matrix of experts takes for each token beside its values: the rows of
 * one expert side by side, what comes of them, and the order of all rows. At the most all tokens
 * take one expert. */
static uint64_t expert_rows_bytes(const struct graph *g)
{
    uint64_t most = 0;
    for (int i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        if (op->kind != OP_EXPERT_MATMUL)
            continue;
        const struct weight *one = op->weights[0]->parts[0];
        uint64_t bytes = (one->shape[0] + one->shape[1]) * sizeof(float) +
                         (uint64_t)op->u.experts.used * sizeof(uint32_t);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Bytes that an agent with all layers holds for each token of a batch; one with some of them holds
 * no more. */
static int workspace_count(const struct graph *g, struct model_facts *facts, struct err *e)
{
    static const uint64_t one_token[GRAPH_SEQUENCE_SYMBOLS] = {[GRAPH_TOKENS] = 1};
    struct graph_section s;
    int rc = graph_section_make(g, 0, g->n_layers, one_token, &s, e);
    if (rc < 0)
        return rc;
    facts->expert_rows_bytes_per_token = (double)expert_rows_bytes(g);
    facts->workspace_bytes_per_token =
        (double)graph_section_bytes(&s) + facts->expert_rows_bytes_per_token;
    graph_section_free(&s);
    return 0;
}

/* What crosses after each layer; NULL: no memory. The last one's goes nowhere. */
static struct pack_list *borders_list(const struct graph *g, struct arena *arena)
{
    struct pack_list *borders = arena_alloc(arena, (size_t)g->n_layers, sizeof *borders);
    for (int i = 0; borders && i < g->n_layers; i++) {
        const struct graph_layer *l = &g->layers[i];
        struct message_value *values = arena_alloc(arena, (size_t)l->n_outputs + 1, sizeof *values);
        if (!values)
            return NULL;
        for (int k = 0; k < l->n_outputs; k++) {
            const struct graph_value *v = &g->values[l->outputs[k]];
            values[k] = (struct message_value){v->name, graph_value_width(v), v->exact};
        }
        borders[i] = (struct pack_list){values, i + 1 < g->n_layers ? (size_t)l->n_outputs : 0};
    }
    return borders;
}

/* Names of the kinds of operators and of the number formats that the model's graph has. */
static const char *const *needs_list(const struct graph *g, struct arena *arena)
{
    bool kinds[OP_KIND_COUNT] = {0}, formats[DTYPE_WEIGHT_COUNT] = {0};
    const char **names = arena_alloc(arena, OP_KIND_COUNT + DTYPE_WEIGHT_COUNT + 1, sizeof *names);
    int n = 0;
    for (int i = 0; i < g->n_ops; i++) {
        kinds[g->ops[i].kind] = !op_kind_info(g->ops[i].kind)->is_view;
        for (int k = 0; k < g->ops[i].n_weights; k++)
            if (g->ops[i].weights[k] && g->ops[i].weights[k]->dtype < DTYPE_WEIGHT_COUNT)
                formats[g->ops[i].weights[k]->dtype] = true;
    }
    for (int i = 0; names && i < OP_KIND_COUNT; i++)
        if (kinds[i])
            names[n++] = op_kind_info((enum op_kind)i)->name;
    for (int i = 0; names && i < DTYPE_WEIGHT_COUNT; i++)
        if (formats[i])
            names[n++] = dtype_info((enum dtype)i)->name;
    if (names)
        names[n] = NULL;
    return names;
}

static void windows_fill(const struct graph *g, uint32_t windows[MODEL_WINDOWS + 1])
{
    for (int i = 0; i < g->n_ops; i++) {
        uint32_t own = g->ops[i].kind == OP_ATTENTION ? g->ops[i].u.attention.window : 0;
        int at = 0;
        while (at < MODEL_WINDOWS && windows[at] && windows[at] != own)
            at++;
        if (at < MODEL_WINDOWS)
            windows[at] = own ? own : windows[at];
    }
}

/* The widest of a layer's attentions; 0: one of them sees all. */
static uint32_t layer_window(const struct graph *g, const struct graph_layer *l)
{
    uint32_t most = 0;
    for (int i = 0; i < l->n_ops; i++) {
        const struct graph_op *op = &g->ops[l->first_op + i];
        if (op->kind == OP_ATTENTION && !op->u.attention.window)
            return 0;
        if (op->kind == OP_ATTENTION && op->u.attention.window > most)
            most = op->u.attention.window;
    }
    return most;
}

static uint32_t odd_head(const struct graph *g)
{
    for (int i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == OP_ATTENTION && g->ops[i].u.attention.head_dim % KV_Q8_ELEMENTS)
            return (uint32_t)g->ops[i].u.attention.head_dim;
    return 0;
}

/* The number of an attention's group among those that have been seen, in their order; one more
 * where it is like none of them. */
static int kv_group_find(const struct op_attention *const *seen, int n,
                         const struct op_attention *a)
{
    int i = 0;
    while (i < n && (seen[i]->kv_heads != a->kv_heads || seen[i]->head_dim != a->head_dim ||
                     seen[i]->value_dim != a->value_dim || seen[i]->window != a->window))
        i++;
    return i;
}

/* NULL: no memory, or more groups than agents know. */
static uint32_t (*kv_before_list(const struct graph *g, struct arena *arena))[MODEL_KV_GROUPS]
{
    const struct op_attention *seen[MODEL_KV_GROUPS];
    uint32_t(*before)[MODEL_KV_GROUPS] =
        arena_alloc(arena, (size_t)g->n_layers + 1, sizeof *before);
    int n = 0;
    if (before)
        memset(before[0], 0, sizeof *before);
    for (int l = 0; before && l < g->n_layers; l++) {
        memcpy(before[l + 1], before[l], sizeof *before);
        for (int i = 0; i < g->layers[l].n_ops; i++) {
            const struct graph_op *op = &g->ops[g->layers[l].first_op + i];
            if (op->kind != OP_ATTENTION)
                continue;
            int group = kv_group_find(seen, n, &op->u.attention);
            if (group == MODEL_KV_GROUPS)
                return NULL;
            seen[group] = &op->u.attention;
            n += group == n;
            before[l + 1][group]++;
        }
    }
    return before;
}

/* NULL: no memory. */
static const struct profile_part *parts_list(const struct graph *g, struct arena *arena)
{
    struct profile_part *parts = arena_alloc(arena, (size_t)g->n_layers, sizeof *parts);
    if (parts)
        graph_parts_list(g, parts);
    return parts;
}

/* NULL: no memory. */
static const struct layer_facts *layers_list(struct model *m, struct arena *arena)
{
    const struct graph *g = model_graph(m);
    struct layer_facts *layers = arena_alloc(arena, (size_t)g->n_layers, sizeof *layers);
    for (int i = 0; layers && i < g->n_layers; i++) {
        const struct graph_layer *l = &g->layers[i];
        layers[i] = (struct layer_facts){.name = l->name,
                                         .class_name = l->class_name,
                                         .param_bytes = l->param_bytes,
                                         .expert_bytes = l->expert_bytes,
                                         .experts = l->experts,
                                         .experts_used = l->experts_used,
                                         .window = layer_window(g, l),
                                         .state_bytes_per_token = l->state_bytes_per_token,
                                         .output_bytes_per_token = l->output_bytes_per_token,
                                         .flops_per_token = l->flops_per_token};
        model_layers_weights(m, i, i + 1, weight_count, &layers[i]);
    }
    return layers;
}

/* What the graph says, layer by layer. */
static int graph_facts_fill(struct model *m, bool divided, struct arena *arena,
                            struct model_facts *facts, struct err *e)
{
    const struct graph *g = model_graph(m);
    facts->n_layers = g->n_layers;
    facts->layers = layers_list(m, arena);
    facts->borders = borders_list(g, arena);
    facts->needs = needs_list(g, arena);
    facts->parts = divided ? parts_list(g, arena) : NULL;
    if (!facts->layers || !facts->borders || !facts->needs || (divided && !facts->parts))
        return err_set(e, HP_ENOMEM, "no memory for %d layers", g->n_layers);
    facts->kv_before = kv_before_list(g, arena);
    facts->odd_head = odd_head(g);
    windows_fill(g, facts->windows);
    return workspace_count(g, facts, e);
}

static int facts_fill(struct model *m, bool divided, struct arena *arena, struct model_facts *out,
                      struct err *e)
{
    const struct model_config *config = model_config(m);
    const struct tokenizer *t;
    int n_end, rc = model_text_prepare(m, e);
    rc = rc < 0 ? rc : model_tokenizer(m, &t, e);
    if (rc < 0)
        return rc;
    const uint32_t *end_ids = tokenizer_end_ids(t, &n_end);
    struct model_facts facts = {
        .architecture = config->architecture,
        .vocabulary = (uint32_t)config->vocabulary,
        .width = (uint32_t)config->width,
        .context = (uint32_t)config->context,
        .pooling = (uint32_t)config->pooling,
        .long_from = config->rope.long_factors ? (uint32_t)config->rope.long_from : 0,
        .end_ids = end_ids,
        .n_end_ids = (size_t)n_end,
        .handle = m,
        .text = tokens_text,
        .text_ctx = (void *)(uintptr_t)t};
    rc = graph_facts_fill(m, divided, arena, &facts, e);
    if (rc == 0)
        *out = facts;
    return rc;
}

int model_heads_open(const struct model_heads_order *o, struct arena *arena, struct model **out,
                     struct model_facts *facts, struct err *e)
{
    struct arena decoded = {0};
    struct manifest m;
    struct model *model = NULL;
    char path[PATH_BYTES];
    int rc = manifest_decode(o->manifest, o->manifest_size, &decoded, &m, e);
    if (rc == 0 && m.files.count == 0)
        rc = err_set(e, HP_EPARSE, "the manifest names no file");
    if (rc == 0 && (rc = heads_make(o->folder, o->id, &m, e)) == 0) {
        if (m.folder)
            snprintf(path, sizeof path, "%s/%s/files", o->folder, o->id);
        else
            rc = file_path(o->folder, o->id, &m, 0, path, e);
        rc = rc < 0 ? rc : model_open_divided(path, o->expert_groups, &model, e);
        if (rc == 0 && (rc = facts_fill(model, o->expert_groups > 1, arena, facts, e)) < 0)
            model_close(&model);
        if (rc < 0)
            err_rename(e, path, m.name);
    }
    arena_free(&decoded);
    if (rc == 0)
        *out = model;
    return rc;
}

/* ---- removing ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void model_heads_remove(const char *folder, const char *id)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, id) < (int)sizeof path)
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
