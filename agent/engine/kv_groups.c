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

static int attention_count(const struct graph_op *op, bool before, bool within,
                           enum kv_format format, struct kv_groups *out, struct err *e)
{
    const struct op_attention *a = &op->u.attention;
    int i = kv_groups_find(out, a);
    if (format == KV_Q8_0 && a->head_dim % KV_Q8_ELEMENTS) {
        err_set(e, HP_EUNSUPPORTED,
                "keys of %d elements cannot be kept as q8_0, which has a scale for every %d",
                a->head_dim, KV_Q8_ELEMENTS);
        return err_hint(e, "deploy with --kv f16");
    }
    if (i == KV_GROUPS_MAX)
        return err_set(e, HP_EUNSUPPORTED,
                       "a model whose layers have more than %d kinds of keys and values",
                       KV_GROUPS_MAX);
    if (i == out->n)
        out->layouts[out->n++] = (struct kv_layout){.n_kv_heads = a->kv_heads,
                                                    .head_dim = a->head_dim,
                                                    .value_dim = a->value_dim,
                                                    .format = format,
                                                    .window = a->window};
    out->first_block[i] += before;
    out->layouts[i].n_blocks += within;
    return 0;
}

int kv_groups_make(const struct graph *g, int first_layer, int end_layer, enum kv_format format,
                   struct kv_groups *out, struct err *e)
{
    int rc = 0;
    *out = (struct kv_groups){0};
    for (int l = 0; l < g->n_layers; l++)
        for (int i = 0; i < g->layers[l].n_ops && rc == 0; i++) {
            const struct graph_op *op = &g->ops[g->layers[l].first_op + i];
            if (op->kind == OP_ATTENTION)
                rc = attention_count(op, l < first_layer, l >= first_layer && l < end_layer, format,
                                     out, e);
        }
    return rc;
}

struct kv_shape kv_groups_shape(const struct kv_groups *k)
{
    struct kv_shape s = {.n_groups = (uint32_t)k->n};
    for (int i = 0; i < k->n; i++) {
        const struct kv_layout *l = &k->layouts[i];
        s.groups[i] = (struct kv_shape_group){
            .first_block = (uint32_t)k->first_block[i],
            .n_blocks = (uint32_t)l->n_blocks,
            .window = l->window,
            .token_bytes = (uint32_t)((uint64_t)(kv_layout_parts(l) * l->n_kv_heads) *
                                      kv_format_bytes(l->format, (uint64_t)l->head_dim)),
            .format = l->format};
    }
    return s;
}
