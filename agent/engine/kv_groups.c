#include "agent/engine/kv_groups.h"

int kv_groups_find(const struct kv_groups *k, const struct op_attention *a)
{
    int i = 0;
    while (i < k->n &&
           (k->layouts[i].n_kv_heads != a->kv_heads || k->layouts[i].head_dim != a->head_dim ||
            k->layouts[i].value_dim != a->value_dim || k->layouts[i].window != a->window))
        i++;
    return i;
}

static int attention_count(const struct graph_op *op, bool before, bool within, bool f32,
                           struct kv_groups *out, struct err *e)
{
    const struct op_attention *a = &op->u.attention;
    int i = kv_groups_find(out, a);
    if (i == KV_GROUPS_MAX)
        return err_set(e, HP_EUNSUPPORTED,
                       "a model whose layers have more than %d kinds of keys and values",
                       KV_GROUPS_MAX);
    if (i == out->n)
        out->layouts[out->n++] = (struct kv_layout){.n_kv_heads = a->kv_heads,
                                                    .head_dim = a->head_dim,
                                                    .value_dim = a->value_dim,
                                                    .f32 = f32,
                                                    .window = a->window};
    out->first_block[i] += before;
    out->layouts[i].n_blocks += within;
    return 0;
}

int kv_groups_make(const struct graph *g, int first_layer, int end_layer, bool f32,
                   struct kv_groups *out, struct err *e)
{
    int rc = 0;
    *out = (struct kv_groups){0};
    for (int l = 0; l < g->n_layers; l++)
        for (int i = 0; i < g->layers[l].n_ops && rc == 0; i++) {
            const struct graph_op *op = &g->ops[g->layers[l].first_op + i];
            if (op->kind == OP_ATTENTION)
                rc = attention_count(op, l < first_layer, l >= first_layer && l < end_layer, f32,
                                     out, e);
        }
    return rc;
}

struct kv_shape kv_groups_shape(const struct kv_groups *k)
{
    struct kv_shape s = {.n_groups = (uint32_t)k->n};
    for (int i = 0; i < k->n; i++) {
        const struct kv_layout *l = &k->layouts[i];
        size_t element = l->f32 ? sizeof(float) : sizeof(uint16_t);
        s.groups[i] = (struct kv_shape_group){
            .first_block = (uint32_t)k->first_block[i],
            .n_blocks = (uint32_t)l->n_blocks,
            .window = l->window,
            .token_bytes = (uint32_t)((size_t)kv_layout_parts(l) * (size_t)l->n_kv_heads *
                                      (size_t)l->head_dim * element),
            .f32 = l->f32};
    }
    return s;
}
