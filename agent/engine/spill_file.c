#include "agent/engine/spill_file.h"

#include <string.h>

static const char magic[8] = "HPSPILL2";
enum { GROUP_BYTES = 24 };

static uint64_t head_bytes(uint32_t n_groups, uint32_t n_pages)
{
    return sizeof magic + DIGEST_BYTES + 12 + (uint64_t)n_groups * GROUP_BYTES +
           (uint64_t)n_pages * DIGEST_BYTES;
}

uint32_t spill_page_seen(const struct kv_shape *s, uint32_t group, uint32_t n_pages)
{
    return kv_first_seen(s->groups[group].window, n_pages * KV_PAGE_TOKENS) / KV_PAGE_TOKENS;
}

struct spill_head spill_head_whole(const struct digest *identity, const struct digest *pages,
                                   uint32_t n_pages, const struct kv_shape *shape)
{
    struct spill_head h = {
        .identity = *identity, .n_pages = n_pages, .pages = pages, .shape = *shape};
    for (uint32_t g = 0; g < shape->n_groups; g++)
        h.from[g] = spill_page_seen(shape, g, n_pages);
    return h;
}

uint64_t spill_file_bytes(const struct spill_head *h)
{
    uint64_t all = head_bytes(h->shape.n_groups, h->n_pages) + DIGEST_BYTES, group;
    for (uint32_t g = 0; g < h->shape.n_groups; g++) {
        const struct kv_shape_group *s = &h->shape.groups[g];
        uint64_t tokens = (uint64_t)(h->n_pages - h->from[g]) * KV_PAGE_TOKENS;
        if (__builtin_mul_overflow((uint64_t)s->n_blocks * s->token_bytes, tokens, &group) ||
            __builtin_add_overflow(all, group, &all))
            return 0;
    }
    return all;
}

uint8_t *spill_file_begin(struct buffer *b, const struct spill_head *h)
{
    uint64_t bytes = spill_file_bytes(h), before = head_bytes(h->shape.n_groups, h->n_pages);
    if (!bytes)
        return NULL;
    buffer_append(b, magic, sizeof magic);
    buffer_append(b, h->identity.bytes, DIGEST_BYTES);
    buffer_append(b, &h->n_pages, sizeof h->n_pages);
    buffer_append(b, &h->first, sizeof h->first);
    buffer_append(b, &h->shape.n_groups, sizeof h->shape.n_groups);
    for (uint32_t i = 0; i < h->shape.n_groups; i++) {
        const struct kv_shape_group *g = &h->shape.groups[i];
        uint32_t words[] = {g->first_block, g->n_blocks,         g->window,
                            g->token_bytes, (uint32_t)g->format, h->from[i]};
        buffer_append(b, words, sizeof words);
    }
    buffer_append(b, h->pages, h->n_pages * sizeof *h->pages);
    return buffer_extend(b, (size_t)(bytes - before));
}

void spill_file_seal(uint8_t *data, size_t size)
{
    struct digest d = digest_of(data, size - DIGEST_BYTES);
    memcpy(data + size - DIGEST_BYTES, d.bytes, DIGEST_BYTES);
}

static void group_read(struct reader *r, struct kv_shape_group *g, uint32_t *from)
{
    g->first_block = reader_u32(r);
    g->n_blocks = reader_u32(r);
    g->window = reader_u32(r);
    g->token_bytes = reader_u32(r);
    g->format = (enum kv_format)reader_u32(r);
    *from = reader_u32(r);
}

int spill_file_head(const void *data, size_t size, struct spill_head *out, size_t *begin,
                    struct err *e)
{
    struct reader r = reader_of(data, size);
    const uint8_t *name = reader_take(&r, sizeof magic), *identity = reader_take(&r, DIGEST_BYTES);
    *out = (struct spill_head){.n_pages = reader_u32(&r)};
    out->first = reader_u32(&r);
    out->shape.n_groups = reader_u32(&r);
    bool good = !r.failed && memcmp(name, magic, sizeof magic) == 0 && out->n_pages &&
                out->n_pages <= SPILL_PAGES_MAX && out->first <= out->n_pages &&
                out->shape.n_groups <= KV_GROUPS_MAX;
    for (uint32_t i = 0; good && i < out->shape.n_groups; i++) {
        group_read(&r, &out->shape.groups[i], &out->from[i]);
        good = out->from[i] <= out->n_pages;
    }
    const uint8_t *pages = good ? reader_take(&r, (size_t)out->n_pages * DIGEST_BYTES) : NULL;
    if (!pages)
        return err_set(e, HP_EPARSE, "these %zu bytes are no spilled keys and values", size);
    memcpy(out->identity.bytes, identity, DIGEST_BYTES);
    out->pages = (const struct digest *)pages; /* bytes alone: aligned wherever they are */
    *begin = r.at;
    return 0;
}

int spill_file_check(const void *data, size_t size, struct err *e)
{
    struct spill_head h;
    size_t begin;
    int rc = spill_file_head(data, size, &h, &begin, e);
    if (rc < 0)
        return rc;
    if (size != spill_file_bytes(&h))
        return err_set(e, HP_EPARSE, "spilled keys and values have %zu bytes, not %llu", size,
                       (unsigned long long)spill_file_bytes(&h));
    struct digest d = digest_of(data, size - DIGEST_BYTES);
    return memcmp(d.bytes, (const uint8_t *)data + size - DIGEST_BYTES, DIGEST_BYTES) == 0
               ? 0
               : err_set(e, HP_EPARSE, "spilled keys and values (%zu bytes) have changed", size);
}

bool spill_file_next(const struct spill_head *h, struct kv_cursor *at, struct kv_range *out)
{
    for (; at->group < h->shape.n_groups; *at = (struct kv_cursor){.group = at->group + 1}) {
        const struct kv_shape_group *g = &h->shape.groups[at->group];
        uint32_t page = h->from[at->group] + at->first;
        if (!g->n_blocks || page >= h->n_pages)
            continue;
        *out = (struct kv_range){at->group, g->first_block + at->block, 1, page * KV_PAGE_TOKENS,
                                 KV_PAGE_TOKENS};
        at->block = (at->block + 1) % g->n_blocks;
        at->first += at->block == 0;
        return true;
    }
    return false;
}

struct spill_wanted spill_wanted_of(const struct kv_shape *s, uint32_t n_pages, uint32_t kept)
{
    struct spill_wanted w = {{0}, {0}};
    for (uint32_t g = 0; g < s->n_groups; g++) {
        uint32_t seen = spill_page_seen(s, g, n_pages);
        w.least[g] = seen > kept ? seen : kept;
        w.upto[g] = s->groups[g].n_blocks ? n_pages : 0;
    }
    return w;
}

bool spill_wanted_has(const struct spill_wanted *w, const struct kv_range *piece)
{
    uint32_t page = piece->first / KV_PAGE_TOKENS;
    return page >= w->least[piece->group] && page < w->upto[piece->group];
}

bool spill_wanted_pass(struct spill_wanted *w, const struct spill_head *h)
{
    bool any = false;
    for (uint32_t g = 0; g < h->shape.n_groups; g++) {
        if (h->from[g] >= w->upto[g])
            continue;
        any = any || w->upto[g] > w->least[g];
        w->upto[g] = h->from[g];
    }
    return any;
}

bool spill_shape_same(const struct kv_shape *a, const struct kv_shape *b)
{
    bool same = a->n_groups == b->n_groups;
    for (uint32_t i = 0; same && i < a->n_groups; i++) {
        const struct kv_shape_group *p = &a->groups[i], *q = &b->groups[i];
        same = p->first_block == q->first_block && p->n_blocks == q->n_blocks &&
               p->window == q->window && p->token_bytes == q->token_bytes && p->format == q->format;
    }
    return same;
}
