#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/graph/builder_int.h"

void builder_fail(struct graph_builder *b, int rc)
{
    b->rc = b->rc < 0 ? b->rc : rc;
}

static void out_of_memory(struct graph_builder *b)
{
    if (b->rc == 0)
        builder_fail(b,
                     err_set(b->e, HP_ENOMEM, "%s: out of memory for the graph", b->table->file));
}

/* Room for one more row of a table in the arena: the table, or a larger copy. NULL: the builder has
 * failed. */
static void *table_room(struct graph_builder *b, void *rows, int n, int *room, size_t row_bytes)
{
    if (b->rc < 0 || n < *room)
        return b->rc < 0 ? NULL : rows;
    int more = *room ? 2 * *room : 64;
    void *larger = arena_alloc(b->arena, (size_t)more, row_bytes);
    if (!larger) {
        out_of_memory(b);
        return NULL;
    }
    if (n > 0)
        memcpy(larger, rows, (size_t)n * row_bytes);
    *room = more;
    return larger;
}

/* ---- values ---- */

int builder_value_add(struct graph_builder *b, const char *name, enum dtype dtype,
                      enum graph_origin origin, const struct graph_dim *dims, int n_dims)
{
    struct graph_value *rows =
        table_room(b, b->values, b->n_values, &b->room_values, sizeof *b->values);
    struct graph_dim *own =
        rows ? arena_memdup(b->arena, dims, (size_t)n_dims * sizeof *dims) : NULL;
    if (!own || !name) {
        out_of_memory(b);
        return 0;
    }
    b->values = rows;
    rows[b->n_values] = (struct graph_value){name, dtype, origin, n_dims, own, false};
    return b->n_values++;
}

/* ---- layers ---- */

/* `name` and `class_name` may be NULL for want of memory. */
static void layer_add(struct graph_builder *b, int block, struct graph_layer layer)
{
    struct graph_layer *rows =
        table_room(b, b->layers, b->n_layers, &b->room_layers, sizeof *b->layers);
    if (!rows || !layer.name || !layer.class_name) {
        out_of_memory(b);
        return;
    }
    b->layers = rows;
    b->block = block;
    if (b->n_layers == 0)
        b->n_prelude_ops = b->n_ops;
    layer.first_op = b->n_ops;
    rows[b->n_layers++] = layer;
}

void graph_layer_begin(struct graph_builder *b, int block, const char *class_name)
{
    const char *name =
        block < 0 ? class_name : arena_printf(b->arena, "blk.%d.%s", block, class_name);
    layer_add(b, block, (struct graph_layer){.name = name, .class_name = class_name});
}

void graph_layer_part_begin(struct graph_builder *b, int block, const char *class_name, int part,
                            int n_parts)
{
    if (n_parts == 1) {
        graph_layer_begin(b, block, class_name);
        return;
    }
    layer_add(b, block,
              (struct graph_layer){
                  .name = arena_printf(b->arena, "blk.%d.%s.%d", block, class_name, part),
                  .class_name =
                      arena_printf(b->arena, "%s%s/%d", class_name, part ? "" : ".first", n_parts),
                  .whole_class = class_name,
                  .part = part,
                  .n_parts = n_parts});
}

void graph_output(struct graph_builder *b, int value)
{
    if (b->rc < 0)
        return;
    struct graph_layer *last = &b->layers[b->n_layers - 1];
    int *outputs = arena_alloc(b->arena, (size_t)last->n_outputs + 1, sizeof *outputs);
    if (!outputs) {
        out_of_memory(b);
        return;
    }
    if (last->n_outputs)
        memcpy(outputs, last->outputs, (size_t)last->n_outputs * sizeof *outputs);
    outputs[last->n_outputs++] = value;
    last->outputs = outputs;
    last->output_bytes_per_token = sizeof(uint32_t); /* what leaves the head is one token's id */
}

/* ---- weights ---- */

static const char *name_in_file(const struct graph_builder *b, const char *name)
{
    const struct weight_name *row = b->facts->family->names;
    while (row->in[FORM_GGUF] && strcmp(row->in[FORM_GGUF], name) != 0)
        row++;
    assert(row->in[FORM_GGUF] && row->in[b->facts->form]);
    return row->in[b->facts->form];
}

/* Norms of files that were made of TensorFlow's have "gamma" and "beta". */
static void old_name(const struct graph_builder *b, const char *ending,
                     char out[BUILDER_NAME_BYTES])
{
    const char *old = strcmp(ending, "weight") == 0 ? "gamma" : "beta";
    size_t n = strlen(out), m = strlen(ending);
    char other[BUILDER_NAME_BYTES];
    if (n <= m || strcmp(out + n - m, ending) != 0 || weight_table_find(b->table, out))
        return;
    snprintf(other, sizeof other, "%.*s%s", (int)(n - m), out, old);
    if (weight_table_find(b->table, other))
        snprintf(out, BUILDER_NAME_BYTES, "%s", other);
}

void builder_weight_name(const struct graph_builder *b, const char *name, const char *ending,
                         char out[BUILDER_NAME_BYTES])
{
    const struct family *family = b->facts->family;
    enum model_form form = b->facts->form;
    const char *stem = name_in_file(b, name);
    int length = (int)strlen(stem);
    bool whole = length > 0 && stem[length - 1] == '!';
    if (b->block < 0)
        snprintf(out, BUILDER_NAME_BYTES, "%.*s%s%s", length - whole, stem, whole ? "" : ".",
                 whole ? "" : ending);
    else
        snprintf(out, BUILDER_NAME_BYTES, "%s%d.%.*s%s%s", family->block_prefix[form], b->block,
                 length - whole, stem, whole ? "" : ".", whole ? "" : ending);
    const char *prefix = family->optional_prefix[form];
    size_t n = prefix ? strlen(prefix) : 0;
    if (n > 0 && strncmp(out, prefix, n) == 0 && !weight_table_find(b->table, out) &&
        weight_table_find(b->table, out + n))
        memmove(out, out + n, strlen(out + n) + 1);
    old_name(b, ending, out);
}

static const struct weight *tensor_take(struct graph_builder *b, const char *name,
                                        const char *ending, uint64_t rows, uint64_t columns)
{
    char full[BUILDER_NAME_BYTES];
    const struct weight *w = NULL;
    if (b->rc < 0)
        return NULL;
    builder_weight_name(b, name, ending, full);
    builder_fail(b, weight_table_take(b->table, full, rows, columns, &w, b->e));
    return w;
}

const struct weight *builder_weight_take(struct graph_builder *b, const char *name, uint64_t rows,
                                         uint64_t columns)
{
    return tensor_take(b, name, "weight", rows, columns);
}

const struct weight *builder_bias_take(struct graph_builder *b, const char *name,
                                       enum bias_policy policy, uint64_t width)
{
    char full[BUILDER_NAME_BYTES];
    if (b->rc < 0 || policy == BIAS_NEVER)
        return NULL;
    builder_weight_name(b, name, "bias", full);
    if (policy == BIAS_AS_FOUND && !weight_table_find(b->table, full))
        return NULL;
    return tensor_take(b, name, "bias", 0, width);
}

/* ---- experts ---- */

/* Slices of the one tensor that has them all. */
static int stack_cut(struct graph_builder *b, struct weight *stack, const struct weight **parts,
                     int n)
{
    struct weight *slices = arena_alloc(b->arena, (size_t)n, sizeof *slices);
    if (!slices)
        return HP_ENOMEM;
    for (int i = 0; i < n; i++) {
        slices[i] = *stack;
        slices[i].n_dims = 2;
        slices[i].shape[0] = stack->shape[1];
        slices[i].shape[1] = stack->shape[2];
        slices[i].bytes = stack->bytes / (uint64_t)n;
        slices[i].offset = stack->offset + (uint64_t)i * slices[i].bytes;
        slices[i].data = stack->data + (uint64_t)i * slices[i].bytes;
        slices[i].first_row = (uint64_t)i * stack->shape[1];
        parts[i] = &slices[i];
    }
    return 0;
}

/* "experts.*.up.weight" with a number for the `*`. */
static void numbered_name(const char *full, int number, char out[BUILDER_NAME_BYTES])
{
    const char *star = strchr(full, '*');
    snprintf(out, BUILDER_NAME_BYTES, "%.*s%d%s", (int)(star - full), full, number, star + 1);
}

/* With its scales, where these are a tensor of their own: of some experts their share. */
static uint64_t weight_file_bytes(const struct weight *w)
{
    uint64_t scales = w && w->scales ? w->scales->bytes : 0;
    if (scales && w->n_parts > 0 && w->scales->n_dims == 3 && w->scales->shape[0] > 0)
        scales = scales / w->scales->shape[0] * (uint64_t)w->n_parts;
    return w ? w->bytes + scales : 0;
}

bool builder_is_apart(const struct graph_builder *b, const char *name)
{
    char full[BUILDER_NAME_BYTES];
    builder_weight_name(b, name, "weight", full);
    const struct weight *w = weight_table_find(b->table, full);
    return w && w->stored == WEIGHT_MXFP4_APART;
}

static int numbered_take(struct graph_builder *b, const char *full, uint64_t rows, uint64_t columns,
                         struct weight *whole, const struct weight **parts, int n)
{
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        char name[BUILDER_NAME_BYTES];
        numbered_name(full, i, name);
        rc = weight_table_take(b->table, name, rows, columns, &parts[i], b->e);
        if (rc == 0)
            whole->bytes += weight_file_bytes(parts[i]);
    }
    if (rc < 0)
        return rc;
    whole->name = arena_strdup(b->arena, full);
    whole->dtype = parts[0]->dtype;
    whole->format = parts[0]->format;
    whole->stored = parts[0]->stored;
    whole->file = parts[0]->file;
    whole->n_dims = 3;
    whole->shape[0] = (uint64_t)n;
    whole->shape[1] = rows;
    whole->shape[2] = columns;
    return whole->name ? 0 : HP_ENOMEM;
}

/* Those of the group alone: what layers have of it are its parts. */
static const struct weight *experts_some(struct graph_builder *b, const struct weight *whole)
{
    struct weight *some = arena_memdup(b->arena, whole, sizeof *whole);
    if (!some) {
        out_of_memory(b);
        return NULL;
    }
    some->data = NULL;
    some->parts = whole->parts + b->experts_here.first;
    some->n_parts = b->experts_here.count;
    some->shape[0] = (uint64_t)some->n_parts;
    some->bytes = whole->bytes / (uint64_t)whole->n_parts * (uint64_t)some->n_parts;
    return some;
}

const struct weight *builder_experts_take(struct graph_builder *b, const char *name, uint64_t rows,
                                          uint64_t columns)
{
    char full[BUILDER_NAME_BYTES];
    const struct expert_config *c = &b->facts->config.experts;
    if (b->rc < 0)
        return NULL;
    const struct weight **parts = arena_alloc(b->arena, (size_t)c->n, sizeof *parts);
    struct weight *whole = arena_alloc(b->arena, 1, sizeof *whole);
    if (!parts || !whole) {
        out_of_memory(b);
        return NULL;
    }
    memset(whole, 0, sizeof *whole);
    builder_weight_name(b, name, "weight", full);
    int rc;
    if (strchr(full, '*')) {
        rc = numbered_take(b, full, rows, columns, whole, parts, c->n);
    } else {
        rc = weight_table_take_stack(b->table, full, (uint64_t)c->n, rows, columns, &whole, b->e);
        if (rc == 0 && whole->parts) /* another group's layer took it before */
            parts = (const struct weight **)(uintptr_t)whole->parts;
        else
            rc = rc < 0 ? rc : stack_cut(b, whole, parts, c->n);
    }
    if (rc == HP_ENOMEM)
        out_of_memory(b);
    builder_fail(b, rc);
    if (b->rc < 0)
        return NULL;
    whole->parts = parts;
    whole->n_parts = c->n;
    whole->n_parts_used = c->used;
    return b->experts_here.count ? experts_some(b, whole) : whole;
}

const struct weight *builder_heads_take(struct graph_builder *b, const char *name,
                                        const struct head_matrices *m)
{
    char full[BUILDER_NAME_BYTES];
    const struct weight *flat = NULL;
    struct weight *stack = NULL;
    if (b->rc < 0)
        return NULL;
    builder_weight_name(b, name, "weight", full);
    builder_fail(b, m->stride ? weight_table_take(b->table, full, m->heads * m->stride, m->columns,
                                                  &flat, b->e)
                              : weight_table_take_stack(b->table, full, m->heads, m->rows,
                                                        m->columns, &stack, b->e));
    const struct weight **parts = arena_alloc(b->arena, (size_t)m->heads, sizeof *parts);
    struct weight *slices = arena_alloc(b->arena, (size_t)m->heads + 1, sizeof *slices);
    if (!parts || !slices)
        out_of_memory(b);
    if (b->rc < 0)
        return NULL;
    const struct weight *of = m->stride ? flat : stack;
    uint64_t row_bytes = of->bytes / (m->heads * (m->stride ? m->stride : m->rows));
    for (uint64_t h = 0; h < m->heads; h++) {
        uint64_t offset = (h * (m->stride ? m->stride : m->rows) + m->first) * row_bytes;
        slices[h] = *of;
        slices[h].n_dims = 2;
        slices[h].shape[0] = m->rows;
        slices[h].shape[1] = m->columns;
        slices[h].bytes = m->rows * row_bytes;
        slices[h].offset = of->offset + offset;
        slices[h].data = of->data + offset;
        slices[h].first_row = h * (m->stride ? m->stride : m->rows) + m->first;
        parts[h] = &slices[h];
    }
    struct weight *whole = &slices[m->heads];
    *whole = *of;
    whole->data = NULL; /* its parts are what layers have */
    whole->n_dims = 3;
    whole->shape[0] = m->heads;
    whole->shape[1] = m->rows;
    whole->shape[2] = m->columns;
    whole->bytes = m->heads * m->rows * row_bytes;
    whole->parts = parts;
    whole->n_parts = (int)m->heads;
    return whole;
}

/* ---- operators ---- */

/* Its weights go to the end of the table of uses: a table that moves takes the operators' views of
 * it along when the graph is done. */
static void uses_add(struct graph_builder *b, const struct op_made *m)
{
    for (int i = 0; i < m->op.n_weights; i++) {
        const struct weight **rows =
            table_room(b, (void *)b->uses, b->n_uses, &b->room_uses, sizeof *b->uses);
        if (!rows)
            return;
        b->uses = rows;
        rows[b->n_uses++] = m->weights[i];
    }
}

/* What the layer's weights weigh, its products cost and its state takes. */
static void layer_count(struct graph_builder *b, const struct graph *view,
                        const struct graph_op *op, const struct op_made *m)
{
    static const uint64_t one_token[GRAPH_SEQUENCE_SYMBOLS] = {1, 1};
    const struct op_kind_info *kind = op_kind_info(op->kind);
    if (b->n_layers == 0)
        return;
    struct graph_layer *l = &b->layers[b->n_layers - 1];
    l->n_ops++;
    for (int i = 0; i < op->n_weights; i++)
        l->param_bytes += weight_file_bytes(m->weights[i]);
    if (op->kind == OP_EXPERT_MATMUL) {
        l->expert_bytes += weight_file_bytes(m->weights[0]);
        l->experts = op->u.experts.count ? op->u.experts.all : m->weights[0]->n_parts;
        l->experts_used = op->u.experts.used;
    }
    l->flops_per_token += graph_op_flops(view, op, one_token);
    if (kind->state_bytes_per_token)
        l->state_bytes_per_token += kind->state_bytes_per_token(op);
}

int builder_op_add(struct graph_builder *b, struct op_made m)
{
    struct graph_op *rows = table_room(b, b->ops, b->n_ops, &b->room_ops, sizeof *b->ops);
    int *numbers = rows ? arena_alloc(b->arena, (size_t)m.op.n_inputs + 1, sizeof *numbers) : NULL;
    if (!numbers) {
        out_of_memory(b);
        return 0;
    }
    memcpy(numbers, m.inputs, (size_t)m.op.n_inputs * sizeof *numbers);
    b->ops = rows;
    struct graph_op *op = &rows[b->n_ops];
    *op = m.op;
    op->inputs = numbers;
    op->outputs = numbers + m.op.n_inputs;
    op->n_outputs = 1;
    op->weights = m.weights; /* until the graph is done */
    const struct op_kind_info *kind = op_kind_info(op->kind);
    assert(op->n_inputs >= kind->min_inputs && op->n_inputs <= kind->max_inputs &&
           op->n_weights <= kind->max_weights);
    struct graph view = {.values = b->values};
    struct graph_dim dims[OP_DIMS_MAX];
    int n_dims = kind->shape(&view, op, dims);
    int made = builder_value_add(b, m.name, DTYPE_F32, VALUE_MADE, dims, n_dims);
    if (b->rc == 0)
        b->values[made].exact = kind->exact;
    view.values = b->values;
    numbers[op->n_inputs] = made;
    uses_add(b, &m);
    if (b->rc < 0)
        return 0;
    layer_count(b, &view, op, &m);
    op->weights = NULL;
    b->n_ops++;
    return made;
}

/* ---- the whole ---- */

static bool ends_with(const char *s, const char *ending)
{
    size_t n = strlen(s), m = strlen(ending);
    return n >= m && strcmp(s + n - m, ending) == 0;
}

/* A matrix of logits beside a model whose rows are pooled. */
static void ignore_head(struct graph_builder *b)
{
    const struct weight_name *row = b->facts->family->names;
    char full[BUILDER_NAME_BYTES];
    while (row->in[FORM_GGUF] && strcmp(row->in[FORM_GGUF], "output") != 0)
        row++;
    if (b->facts->config.pooling == POOLING_NONE || !row->in[FORM_GGUF])
        return;
    b->block = -1;
    builder_weight_name(b, "output", "weight", full);
    for (size_t i = 0; i < b->table->n_weights; i++)
        if (strcmp(b->table->weights[i].name, full) == 0)
            weight_table_ignore(b->table, &b->table->weights[i]);
}

static void ignore_unneeded(struct weight_table *t, const struct family_facts *f)
{
    for (const char *const *ending = f->family->unneeded[f->form]; ending && *ending; ending++)
        for (size_t i = 0; i < t->n_weights; i++)
            if (ends_with(t->weights[i].name, *ending))
                weight_table_ignore(t, &t->weights[i]);
}

int graph_build(const struct family_facts *f, struct weight_table *t, int expert_groups,
                struct arena *arena, struct graph *out, struct err *e)
{
    static const char *const symbols[GRAPH_SEQUENCE_SYMBOLS] = {
        [GRAPH_TOKENS] = "tokens", [GRAPH_WANTED] = "wanted"};
    struct graph_builder b = {.facts = f,
                              .table = t,
                              .arena = arena,
                              .e = e,
                              .block = -1,
                              .expert_groups = expert_groups,
                              .ids = -1,
                              .positions = -1,
                              .wanted = -1};
    *out = (struct graph){0};
    /* A block has several tensors: memory for the graph stays in proportion to what the file has,
     * whatever its header says. */
    if ((size_t)f->config.n_blocks > t->n_weights)
        return err_set(e, HP_EPARSE,
                       "%s: %d blocks, but only %zu tensors: tensor %s%d... is missing", t->file,
                       f->config.n_blocks, t->n_weights, f->family->block_prefix[f->form],
                       f->config.n_blocks - 1);
    f->family->build(&b);
    struct graph made = {.symbols = symbols,
                         .n_symbols = GRAPH_SEQUENCE_SYMBOLS,
                         .values = b.values,
                         .n_values = b.n_values,
                         .ops = b.ops,
                         .n_ops = b.n_ops,
                         .n_prelude_ops = b.n_prelude_ops,
                         .layers = b.layers,
                         .n_layers = b.n_layers,
                         .weight_uses = b.uses,
                         .n_weight_uses = b.n_uses};
    for (int i = 0, use = 0; i < b.n_ops; use += b.ops[i++].n_weights)
        b.ops[i].weights = b.uses ? b.uses + use : NULL;
    if (b.rc == 0 && graph_borders_find(&made, b.layers, arena) < 0)
        out_of_memory(&b);
    if (b.rc < 0)
        return b.rc;
    *out = made;
    ignore_unneeded(t, f);
    ignore_head(&b);
    return weight_table_refuse_unused(t, f->family->name, e);
}
