#include "agent/engine/spill_file.h"

#include <string.h>

static const char magic[8] = "HPSPILL1";
enum { GROUP_BYTES = 20 };

static uint64_t head_bytes(uint32_t n_groups, uint32_t n_pages)
{
    return sizeof magic + DIGEST_BYTES + 8 + (uint64_t)n_groups * GROUP_BYTES +
           (uint64_t)n_pages * DIGEST_BYTES;
}

static uint64_t whole_bytes(const struct spill_head *h)
{
    return kv_shape_whole_bytes(&h->shape, h->n_pages * KV_PAGE_TOKENS);
}

static uint32_t page_seen(uint32_t window, uint32_t n_pages)
{
    return kv_first_seen(window, n_pages * KV_PAGE_TOKENS) / KV_PAGE_TOKENS;
}

uint32_t spill_file_least(const struct spill_head *h)
{
    uint32_t least = 1;
    for (uint32_t g = 0; g < h->shape.n_groups; g++) {
        uint32_t window = h->shape.groups[g].window;
        while (h->shape.groups[g].n_blocks && least < h->n_pages &&
               page_seen(window, least) < page_seen(window, h->n_pages))
            least++;
    }
    return least;
}

uint64_t spill_file_bytes(const struct spill_head *h)
{
    return head_bytes(h->shape.n_groups, h->n_pages) + whole_bytes(h) + DIGEST_BYTES;
}

uint8_t *spill_file_begin(struct buffer *b, const struct spill_head *h)
{
    buffer_append(b, magic, sizeof magic);
    buffer_append(b, h->identity.bytes, DIGEST_BYTES);
    buffer_append(b, &h->n_pages, sizeof h->n_pages);
    buffer_append(b, &h->shape.n_groups, sizeof h->shape.n_groups);
    for (uint32_t i = 0; i < h->shape.n_groups; i++) {
        const struct kv_shape_group *g = &h->shape.groups[i];
        uint32_t words[] = {g->first_block, g->n_blocks, g->window, g->token_bytes,
                            (uint32_t)g->format};
        buffer_append(b, words, sizeof words);
    }
    buffer_append(b, h->pages, h->n_pages * sizeof *h->pages);
    return buffer_extend(b, (size_t)whole_bytes(h) + DIGEST_BYTES);
}

void spill_file_seal(uint8_t *data, size_t size)
{
    struct digest d = digest_of(data, size - DIGEST_BYTES);
    memcpy(data + size - DIGEST_BYTES, d.bytes, DIGEST_BYTES);
}

static void group_read(struct reader *r, struct kv_shape_group *g)
{
    g->first_block = reader_u32(r);
    g->n_blocks = reader_u32(r);
    g->window = reader_u32(r);
    g->token_bytes = reader_u32(r);
    g->format = (enum kv_format)reader_u32(r);
}

int spill_file_head(const void *data, size_t size, struct spill_head *out, size_t *begin,
                    struct err *e)
{
    struct reader r = reader_of(data, size);
    const uint8_t *name = reader_take(&r, sizeof magic), *identity = reader_take(&r, DIGEST_BYTES);
    *out = (struct spill_head){.n_pages = reader_u32(&r)};
    out->shape.n_groups = reader_u32(&r);
    bool good = !r.failed && memcmp(name, magic, sizeof magic) == 0 && out->n_pages &&
                out->n_pages <= SPILL_PAGES_MAX && out->shape.n_groups <= KV_GROUPS_MAX;
    for (uint32_t i = 0; good && i < out->shape.n_groups; i++)
        group_read(&r, &out->shape.groups[i]);
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
