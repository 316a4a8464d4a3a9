#include "agent/engine/kv_shape.h"

bool kv_shape_group_as(struct kv_shape_group *g, enum kv_format format)
{
    uint64_t elements = kv_format_elements(g->format, g->token_bytes);
    if (format == KV_Q8_0 && elements % KV_Q8_ELEMENTS)
        return false;
    g->token_bytes = (uint32_t)kv_format_bytes(format, elements);
    g->format = format;
    return true;
}

void kv_shape_narrow(struct kv_shape *s, enum kv_format format)
{
    for (uint32_t i = 0; i < s->n_groups; i++) {
        struct kv_shape_group as = s->groups[i];
        if (kv_shape_group_as(&as, format) && as.token_bytes < s->groups[i].token_bytes)
            s->groups[i] = as;
    }
}

/* All that the stage has of a group, and that a later token may see. */
static struct kv_range range_whole(const struct kv_shape *s, uint32_t group, uint32_t length)
{
    const struct kv_shape_group *g = &s->groups[group];
    uint32_t first = kv_first_seen(g->window, length) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    return (struct kv_range){.group = group,
                             .first_block = g->first_block,
                             .n_blocks = g->n_blocks,
                             .first = first,
                             .count = length - first};
}

uint64_t kv_shape_bytes(const struct kv_shape *s, const struct kv_range *r)
{
    if (r->group >= s->n_groups || r->count > UINT32_MAX - r->first)
        return 0;
    const struct kv_shape_group *g = &s->groups[r->group];
    uint32_t before = r->first_block - g->first_block;
    if (r->first_block < g->first_block || before > g->n_blocks ||
        r->n_blocks > g->n_blocks - before)
        return 0;
    return (uint64_t)r->n_blocks * r->count * g->token_bytes;
}

uint64_t kv_shape_whole_bytes(const struct kv_shape *s, uint32_t length)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        struct kv_range all = range_whole(s, g, length);
        bytes += kv_shape_bytes(s, &all);
    }
    return bytes;
}

static uint32_t count_fitting(uint64_t most_bytes, uint64_t each, uint32_t limit)
{
    uint64_t n = each ? most_bytes / each : limit;
    return n < 1 ? 1 : n < limit ? (uint32_t)n : limit;
}

bool kv_shape_next(const struct kv_shape *s, uint32_t length, uint64_t most_bytes,
                   struct kv_cursor *at, struct kv_range *out)
{
    uint32_t end = at->upto ? at->upto : length;
    for (; at->group < s->n_groups;
         *at = (struct kv_cursor){.group = at->group + 1, .from = at->from, .upto = at->upto}) {
        struct kv_range all = range_whole(s, at->group, length);
        uint64_t page = (uint64_t)s->groups[at->group].token_bytes * KV_PAGE_TOKENS;
        uint32_t begin = all.first > at->from ? all.first : at->from;
        at->first = at->first < begin ? begin : at->first;
        if (!all.n_blocks || at->first >= end)
            continue;
        *out = all;
        out->first = at->first;
        out->first_block += at->block;
        out->n_blocks = count_fitting(most_bytes, page, all.n_blocks - at->block);
        uint32_t pages =
            out->n_blocks == all.n_blocks
                ? count_fitting(most_bytes, page * all.n_blocks, length / KV_PAGE_TOKENS + 1)
                : 1;
        uint32_t left = end - at->first;
        out->count = left / KV_PAGE_TOKENS < pages ? left : pages * KV_PAGE_TOKENS;
        at->block += out->n_blocks;
        if (at->block == all.n_blocks) {
            at->block = 0;
            at->first += out->count;
        }
        return true;
    }
    return false;
}
