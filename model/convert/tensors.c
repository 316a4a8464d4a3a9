/* The tensors of a model by the names that GGUF has for them, and how their rows follow from what
 * is read. */
#include <stdio.h>
#include <string.h>

#include "model/convert/convert_int.h"
#include "model/graph/builder_int.h"

static int list_failed(struct err *e)
{
    return err_no_memory(e, "the list of tensors");
}

/* A row for one tensor, whose name is copied; NULL: want of memory. */
static struct convert_tensor *tensor_add(struct convert_list *l, const char *name)
{
    if (l->n == l->room) {
        int more = l->room ? 2 * l->room : 256;
        struct convert_tensor *larger = arena_alloc(l->arena, (size_t)more, sizeof *larger);
        if (!larger)
            return NULL;
        if (l->n)
            memcpy(larger, l->tensors, (size_t)l->n * sizeof *larger);
        l->tensors = larger;
        l->room = more;
    }
    struct convert_tensor *t = &l->tensors[l->n];
    *t = (struct convert_tensor){.name = arena_strdup(l->arena, name)};
    return t->name ? t : NULL;
}

/* One tensor that is read as it is. */
static int parts_one(struct convert_list *l, struct convert_tensor *t, const struct weight *w,
                     struct err *e)
{
    const struct weight **parts = arena_alloc(l->arena, 1, sizeof *parts);
    if (!parts)
        return list_failed(e);
    parts[0] = w;
    t->parts = parts;
    t->n_parts = 1;
    return 0;
}

/* Shape and view of a tensor that is written as it is read. */
static void tensor_whole(struct convert_tensor *t)
{
    const struct weight *w = t->parts[0];
    t->n_dims = w->n_dims;
    memcpy(t->shape, w->shape, sizeof t->shape);
    if (t->n_parts > 1) {
        t->n_dims = 3;
        t->shape[0] = (uint64_t)t->n_parts;
        t->shape[1] = w->shape[0];
        t->shape[2] = w->shape[1];
    }
    uint64_t rows = t->n_dims > 1 ? t->shape[t->n_dims - 2] : 1;
    t->view = (struct convert_view){.stride = rows,
                                    .row_step = 1,
                                    .rows = rows,
                                    .column_step = 1,
                                    .columns = t->shape[t->n_dims - 1]};
}

/* Rows become columns. */
static void tensor_turn(struct convert_tensor *t)
{
    uint64_t rows = t->shape[t->n_dims - 2];
    t->shape[t->n_dims - 2] = t->shape[t->n_dims - 1];
    t->shape[t->n_dims - 1] = rows;
    t->view.turned = true;
}

/* A factor table that a config gives and a GGUF file has as a tensor: [n] float32. */
static int list_factors(struct convert_list *l, const char *name, const float *factors, size_t n,
                        struct err *e)
{
    struct weight *w = arena_alloc(l->arena, 1, sizeof *w);
    struct convert_tensor *t = w ? tensor_add(l, name) : NULL;
    if (!t)
        return list_failed(e);
    *w = (struct weight){.name = t->name,
                         .dtype = DTYPE_F32,
                         .format = dtype_info(DTYPE_F32)->name,
                         .n_dims = 1,
                         .shape = {n},
                         .bytes = n * sizeof *factors,
                         .file = -1,
                         .data = (const uint8_t *)factors};
    int rc = parts_one(l, t, w, e);
    if (rc < 0)
        return rc;
    tensor_whole(t);
    l->n++;
    return 0;
}

/* ---- a GGUF file ---- */

static int list_copy(const struct model *m, struct convert_list *l, struct err *e)
{
    int n, rc = 0;
    const struct weight *w = model_weights(m, &n);
    for (int i = 0; i < n && rc == 0; i++) {
        struct convert_tensor *t = tensor_add(l, w[i].name);
        if (!t)
            return list_failed(e);
        rc = parts_one(l, t, &w[i], e);
        if (rc < 0)
            return rc;
        tensor_whole(t);
        l->n++;
    }
    return rc;
}

/* ---- a folder ---- */

struct folder_listing {
    struct convert_list *l;
    struct graph_builder names; /* for names alone */
    const struct family *from, *to;
    const struct model_config *config;
    struct err *e;
};

/* "experts.*.up.weight": all there are, with a number for the `*`. */
static int parts_numbered(struct folder_listing *g, struct convert_tensor *t, const char *full)
{
    int n = g->config->experts.n;
    const char *star = strchr(full, '*');
    const struct weight **parts = arena_alloc(g->l->arena, (size_t)n + 1, sizeof *parts);
    if (!parts)
        return list_failed(g->e);
    for (int i = 0; i < n; i++) {
        char name[BUILDER_NAME_BYTES];
        snprintf(name, sizeof name, "%.*s%d%s", (int)(star - full), full, i, star + 1);
        parts[i] = weight_table_find(g->names.table, name);
        if (!parts[i])
            return i ? err_set(g->e, HP_EPARSE, "%s: tensor %s is missing", g->names.table->file,
                               name)
                     : 0;
    }
    t->parts = parts;
    t->n_parts = n;
    return 0;
}

static enum weight_cut cut_of(const struct family *f, const char *name)
{
    for (const struct weight_cut_row *row = f->cuts; row && row->name; row++)
        if (strcmp(row->name, name) == 0)
            return row->cut;
    return CUT_NONE;
}

/* Every second row, or element of a row where rows are vectors: gate and up by turns. */
static void cut_by_turns(struct convert_tensor *t, uint64_t first, bool rows)
{
    struct convert_view *v = &t->view;
    if (v->turned ? rows : !rows) {
        v->column_first = first;
        v->column_step = 2;
        v->columns /= 2;
    } else {
        v->row_first = first;
        v->row_step = 2;
        v->rows /= 2;
    }
    t->shape[t->n_dims - (rows ? 2 : 1)] /= 2;
}

/* A part of the rows that each head has. */
static void cut_heads(struct convert_tensor *t, const struct model_config *c, bool keys)
{
    uint64_t plain = (uint64_t)c->latent.plain, value = (uint64_t)c->latent.value;
    t->view.stride = plain + value;
    t->view.row_first = keys ? 0 : plain;
    t->view.rows = keys ? plain : value;
    t->n_dims = 3;
    t->shape[2] = t->shape[1];
    t->shape[1] = t->view.rows;
    t->shape[0] = (uint64_t)c->n_heads;
    if (keys)
        tensor_turn(t);
}

static void tensor_cut(struct convert_tensor *t, enum weight_cut cut, const struct model_config *c)
{
    switch (cut) {
    case CUT_NONE:
    case CUT_UNWRITTEN: return;
    case CUT_EVEN_ROWS: cut_by_turns(t, 0, true); return;
    case CUT_ODD_ROWS: cut_by_turns(t, 1, true); return;
    case CUT_EVEN_ELEMENTS: cut_by_turns(t, 0, false); return;
    case CUT_ODD_ELEMENTS: cut_by_turns(t, 1, false); return;
    case CUT_HEAD_KEYS: cut_heads(t, c, true); return;
    case CUT_HEAD_VALUES: cut_heads(t, c, false); return;
    }
}

static bool has_ending(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n >= m && strcmp(name + n - m, ending) == 0;
}

static bool is_among(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

static void tensor_order(const struct folder_listing *g, struct convert_tensor *t, const char *name,
                         bool weight)
{
    static const char *const tables[] = {"token_embd", "position_embd", "output", NULL},
                             *const rotating[] = {"attn_q", "attn_k", NULL};
    bool is_stack = t->n_dims == 3 && t->n_parts == 1;
    bool turned =
        is_stack ? g->from->experts_turned[FORM_HUB] && t->parts[0]->stored != WEIGHT_MXFP4_APART
                 : t->n_dims == 2 && g->from->turned[FORM_HUB] && !is_among(name, tables);
    if (weight && turned)
        tensor_turn(t);
    if (g->from->rope[FORM_HUB] == ROPE_HALVES && g->to->rope[FORM_GGUF] == ROPE_PAIRS &&
        is_among(name, rotating)) {
        t->head_dim = (uint64_t)g->config->head_dim;
        t->rotated = (uint64_t)g->config->rope.dims;
    }
    t->one_more = weight && has_ending(name, "_norm") && g->from->norms_of_one[FORM_HUB] &&
                  !g->to->norms_of_one[FORM_GGUF];
}

/* The tensor that GGUF calls so, where the folder has it. */
static int tensor_find(struct folder_listing *g, const char *name, const char *ending)
{
    char full[BUILDER_NAME_BYTES], written[BUILDER_NAME_BYTES];
    size_t length = strlen(name);
    bool whole = name[length - 1] == '!';
    enum weight_cut cut = cut_of(g->from, name);
    int rc = 0;
    if (cut == CUT_UNWRITTEN)
        return 0;
    builder_weight_name(&g->names, name, ending, full);
    int n = g->names.block < 0 ? 0 : snprintf(written, sizeof written, "blk.%d.", g->names.block);
    snprintf(written + n, sizeof written - (size_t)n, "%.*s%s%s", (int)length - whole, name,
             whole ? "" : ".", whole ? "" : ending);
    const struct weight *w = weight_table_find(g->names.table, full);
    if (!w && !(strchr(full, '*') && g->config->experts.n > 0))
        return 0;
    struct convert_tensor *t = tensor_add(g->l, written);
    if (!t)
        return list_failed(g->e);
    rc = w ? parts_one(g->l, t, w, g->e) : parts_numbered(g, t, full);
    if (rc < 0 || !t->parts)
        return rc;
    tensor_whole(t);
    tensor_order(g, t, name, strcmp(ending, "weight") == 0);
    tensor_cut(t, cut, g->config);
    g->l->n++;
    return 0;
}

/* A name that says itself how it ends is looked for once. */
static int names_find(struct folder_listing *g, int block)
{
    int rc = 0;
    g->names.block = block;
    for (const struct weight_name *row = g->from->names; row->in[FORM_GGUF] && rc == 0; row++) {
        const char *in_file = row->in[FORM_HUB], *written = row->in[FORM_GGUF];
        bool whole = in_file[strlen(in_file) - 1] == '!' || written[strlen(written) - 1] == '!';
        rc = tensor_find(g, written, "weight");
        if (rc == 0 && !whole)
            rc = tensor_find(g, written, "bias");
    }
    return rc;
}

/* Where embeddings are tied, a head of its own is a copy. */
static void copy_drop(struct convert_list *l, const struct model_config *c)
{
    int kept = 0;
    for (int i = 0; i < l->n; i++)
        if (!c->tied_embeddings || strcmp(l->tensors[i].name, "output.weight") != 0)
            l->tensors[kept++] = l->tensors[i];
    l->n = kept;
}

static int factors_list(struct convert_list *l, const struct rope_config *r, struct err *e)
{
    size_t n = (size_t)r->dims / 2;
    int rc = 0;
    if (r->long_factors) {
        rc = list_factors(l, "rope_factors_long.weight", r->long_factors, n, e);
        return rc < 0 ? rc : list_factors(l, "rope_factors_short.weight", r->factors, n, e);
    }
    return r->factors && !r->yarn ? list_factors(l, "rope_freqs.weight", r->factors, n, e) : 0;
}

static int list_of_folder(const struct model *m, struct convert_list *l, struct err *e)
{
    const struct family *from = m->facts.family;
    struct folder_listing g = {
        .l = l, .from = from, .to = from, .config = &m->facts.config, .e = e};
    g.names = (struct graph_builder){
        .facts = &m->facts, .table = (struct weight_table *)(uintptr_t)&m->weights, .e = e};
    const char *name = family_written(from);
    int rc = family_find(FORM_GGUF, m->path, name, strlen(name), &g.to, e);
    rc = rc < 0 ? rc : factors_list(l, &m->facts.config.rope, e);
    for (int block = -1; block < m->facts.config.n_blocks && rc == 0; block++)
        rc = names_find(&g, block);
    copy_drop(l, &m->facts.config);
    return rc;
}

int convert_list_make(const struct model *m, struct convert_list *out, struct err *e)
{
    return m->form == FORM_GGUF ? list_copy(m, out, e) : list_of_folder(m, out, e);
}
