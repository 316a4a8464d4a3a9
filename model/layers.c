#include "model/layers.h"

#include <stdio.h>
#include <string.h>

#include "model/layers_int.h"

struct build {
    const struct model_facts *facts;
    struct weight_table *table;
    struct arena *arena;
    struct err *e;
    struct graph *graph;
    struct graph_op *ops;
    struct graph_layer *layers;
};

static int out_of_memory(struct build *b)
{
    return err_set(b->e, HP_ENOMEM, "%s: out of memory for the graph", b->table->file);
}

static void set_widths(struct graph *g, const struct model_config *c)
{
    int q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    const int widths[V_COUNT] = {
        [V_IDS] = 1,
        [V_X] = c->width,
        [V_NORM] = c->width,
        [V_Q] = q,
        [V_K] = kv,
        [V_V] = kv,
        [V_ATTN] = q,
        [V_GATE] = c->mlp_width,
        [V_UP] = c->mlp_width,
        [V_LOGITS] = c->vocabulary,
    };
    memcpy(g->value_width, widths, sizeof widths);
}

static void weight_name(const struct build *b, const char *name, int block, const char *ending,
                        char *out, size_t size)
{
    if (block < 0)
        snprintf(out, size, "%s.%s", name, ending);
    else
        snprintf(out, size, "%s%d.%s.%s", b->facts->family->block_prefix[b->facts->form], block,
                 name, ending);
}

/* [outputs, inputs] of an operator's weight; a vector has no rows. */
static void weight_shape(const struct build *b, const struct op_recipe *r, uint64_t *rows,
                         uint64_t *columns)
{
    const int *width = b->graph->value_width;
    *rows = r->kind == OP_EMBED    ? (uint64_t)width[V_LOGITS]
            : r->kind == OP_MATMUL ? (uint64_t)width[r->out]
                                   : 0;
    *columns = (uint64_t)width[r->kind == OP_EMBED ? r->out : r->in];
}

static int take_weights(struct build *b, const struct op_recipe *r, struct graph_op *op)
{
    enum model_form form = b->facts->form;
    const char *name = r->weight[form];
    if (!name)
        return 0;
    if (b->facts->config.tied_embeddings && r->tied[form])
        name = r->tied[form];
    char full[192];
    uint64_t rows, columns;
    weight_shape(b, r, &rows, &columns);
    weight_name(b, name, op->block, "weight", full, sizeof full);
    int rc = weight_table_take(b->table, full, rows, columns, &op->weight, b->e);
    enum bias_policy bias = b->facts->bias[r->bias];
    if (rc < 0 || bias == BIAS_NEVER)
        return rc;
    weight_name(b, name, op->block, "bias", full, sizeof full);
    if (bias == BIAS_AS_FOUND && !weight_table_find(b->table, full))
        return 0;
    return weight_table_take(b->table, full, 0, rows, &op->bias, b->e);
}

static int recipe_length(const struct op_recipe *r)
{
    int n = 0;
    while (r[n].kind != OP_KIND_COUNT)
        n++;
    return n;
}

static int add_layer(struct build *b, const struct op_recipe *recipe, int block,
                     const char *class_name)
{
    struct graph *g = b->graph;
    struct graph_layer *l = &b->layers[g->n_layers];
    *l = (struct graph_layer){
        .class_name = class_name, .first_op = g->n_ops, .n_ops = recipe_length(recipe)};
    l->name = block < 0 ? class_name : arena_printf(b->arena, "blk.%d.%s", block, class_name);
    if (!l->name)
        return out_of_memory(b);
    for (int i = 0; i < l->n_ops; i++) {
        const struct op_recipe *r = &recipe[i];
        struct graph_op *op = &b->ops[g->n_ops++];
        *op = (struct graph_op){.kind = r->kind,
                                .in = r->in,
                                .in2 = r->in2,
                                .out = r->out,
                                .accumulate = r->accumulate,
                                .block = block};
        int rc = take_weights(b, r, op);
        if (rc < 0)
            return rc;
        l->param_bytes += (op->weight ? op->weight->bytes : 0) + (op->bias ? op->bias->bytes : 0);
        if (r->kind == OP_MATMUL)
            l->flops_per_token += 2.0 * g->value_width[r->in] * g->value_width[r->out];
        if (r->kind == OP_ATTENTION)
            l->state_bytes_per_token +=
                sizeof(uint16_t) * (uint64_t)(g->value_width[V_K] + g->value_width[V_V]);
    }
    l->output_bytes_per_token = sizeof(float) * (uint64_t)g->value_width[V_X];
    g->n_layers++;
    return 0;
}

static int add_layers(struct build *b)
{
    const struct architecture *family = b->facts->family;
    int rc = add_layer(b, family->embed, -1, "embed");
    for (int block = 0; block < b->facts->config.n_blocks && rc == 0; block++) {
        rc = add_layer(b, family->attention, block, "attn");
        rc = rc < 0 ? rc : add_layer(b, family->mlp, block, "mlp");
    }
    rc = rc < 0 ? rc : add_layer(b, family->head, -1, "head");
    if (rc == 0) /* what leaves the head is one token's id */
        b->layers[b->graph->n_layers - 1].output_bytes_per_token = sizeof(uint32_t);
    return rc;
}

static bool ends_with(const char *s, const char *ending)
{
    size_t n = strlen(s), m = strlen(ending);
    return n >= m && strcmp(s + n - m, ending) == 0;
}

static void ignore_unneeded(struct build *b)
{
    const struct model_facts *f = b->facts;
    for (const char *const *ending = f->family->unneeded[f->form]; ending && *ending; ending++)
        for (size_t i = 0; i < b->table->n_weights; i++)
            if (ends_with(b->table->weights[i].name, *ending))
                weight_table_ignore(b->table, &b->table->weights[i]);
    /* Where embeddings are tied by config.json, a head of its own is a copy that older writers
     * left. */
    for (const struct op_recipe *r = f->family->head; r->kind != OP_KIND_COUNT; r++) {
        char name[192];
        if (!f->config.tied_embeddings || !r->tied[f->form])
            continue;
        weight_name(b, r->weight[f->form], -1, "weight", name, sizeof name);
        const struct weight *copy = weight_table_find(b->table, name);
        if (copy)
            weight_table_ignore(b->table, copy);
    }
}

int graph_build(const struct model_facts *f, struct weight_table *t, struct arena *arena,
                struct graph *out, struct err *e)
{
    const struct model_config *c = &f->config;
    const struct architecture *family = f->family;
    struct build b = {.facts = f, .table = t, .arena = arena, .e = e, .graph = out};
    *out = (struct graph){0};
    /* A block has several tensors: memory for the graph stays in proportion to what the file has,
     * whatever its header says. */
    if ((size_t)c->n_blocks > t->n_weights)
        return err_set(e, HP_EPARSE,
                       "%s: %d blocks, but only %zu tensors: tensor %s%d... is missing", t->file,
                       c->n_blocks, t->n_weights, family->block_prefix[f->form], c->n_blocks - 1);
    int per_block = recipe_length(family->attention) + recipe_length(family->mlp);
    int n_ops =
        recipe_length(family->embed) + c->n_blocks * per_block + recipe_length(family->head);
    b.ops = arena_alloc(arena, (size_t)n_ops, sizeof *b.ops);
    b.layers = arena_alloc(arena, 2 * (size_t)c->n_blocks + 2, sizeof *b.layers);
    if (!b.ops || !b.layers)
        return out_of_memory(&b);
    out->ops = b.ops;
    out->layers = b.layers;
    set_widths(out, c);
    int rc = add_layers(&b);
    if (rc < 0)
        return rc;
    ignore_unneeded(&b);
    return weight_table_refuse_unused(t, family->name, e);
}
