#include "agent/engine/kv_transfer.h"

static int sequence_missing(uint64_t sequence, struct err *e)
{
    return err_set(e, HP_ENOENT, "sequence %llu is not open", (unsigned long long)sequence);
}

/* The range lies on this stage, and below `end`. */
static int range_check(const struct kv_cache *c, const struct kv_sequence *s,
                       const struct kv_range *r, uint32_t end, struct kv_part *part, struct err *e)
{
    struct kv_shape shape = kv_groups_shape(&c->kinds);
    if (!kv_shape_bytes(&shape, r))
        return err_set(e, HP_EINVAL,
                       "this stage does not have all of %u blocks of group %u, from block %u on, "
                       "for %u tokens from token %u on",
                       r->n_blocks, r->group, r->first_block, r->count, r->first);
    if (r->first + r->count > end || !kv_cache_has(s, (int)r->group, r->first, r->count))
        return err_set(e, HP_EINVAL,
                       "sequence %llu has %u tokens: not all of %u from token %u on are there",
                       (unsigned long long)s->id, end, r->count, r->first);
    *part = (struct kv_part){(int)(r->first_block - shape.groups[r->group].first_block),
                             (int)r->n_blocks, r->first, r->count};
    return 0;
}

int kv_transfer_export(const struct kv_cache *c, struct stream *stream, uint64_t sequence,
                       const struct kv_range *r, void *out, struct err *e)
{
    const struct kv_sequence *s = kv_cache_find(c, sequence);
    const struct backend *b = c->device->backend;
    struct kv_part part;
    if (!s)
        return sequence_missing(sequence, e);
    if (s->n_awaited)
        return err_set(e, HP_EBUSY, "the keys and values of sequence %llu have not all come",
                       (unsigned long long)sequence);
    int rc = range_check(c, s, r, s->length, &part, e); /* nothing is under way */
    if (rc < 0)
        return rc;
    b->kv_export(stream, &c->groups[r->group], s->pages[r->group], &part, out);
    return b->stream_wait(stream, e);
}

/* ---- what is awaited: a page of a block each ---- */

static uint32_t pages_of(uint32_t tokens)
{
    return tokens / KV_PAGE_TOKENS + (tokens % KV_PAGE_TOKENS != 0);
}

/* Pages of a group that the sequence began with; *first is the first of them. */
static uint32_t pages_begun(const struct kv_cache *c, const struct kv_sequence *s, int g,
                            uint32_t *first)
{
    *first = kv_first_seen(c->groups[g].layout.window, s->began) / KV_PAGE_TOKENS;
    return pages_of(s->began) - *first;
}

/* Whether page `page` of a block is awaited; to be written to. */
static uint8_t *awaited_at(const struct kv_cache *c, struct kv_sequence *s, int g, int block,
                           uint32_t page)
{
    size_t at = 0;
    uint32_t first, n;
    for (int i = 0; i < g; i++)
        at += (size_t)c->groups[i].layout.n_blocks * pages_begun(c, s, i, &first);
    n = pages_begun(c, s, g, &first);
    return &s->awaited[at + (size_t)block * n + (page - first)];
}

/* Counts or strikes out what of a part is awaited. */
static uint32_t part_awaited(const struct kv_cache *c, struct kv_sequence *s, int g,
                             const struct kv_part *part, bool strike)
{
    uint32_t n = 0, end = pages_of(part->first + part->count);
    for (int b = part->first_block; b < part->first_block + part->n_blocks; b++)
        for (uint32_t page = part->first / KV_PAGE_TOKENS; page < end; page++) {
            uint8_t *at = awaited_at(c, s, g, b, page);
            n += *at;
            *at = strike ? 0 : *at;
        }
    return n;
}

int kv_transfer_import(struct kv_cache *c, struct stream *stream, uint64_t sequence,
                       const struct kv_range *r, const void *data, struct err *e)
{
    struct kv_sequence *s = kv_cache_find(c, sequence);
    const struct backend *b = c->device->backend;
    uint32_t end = r->first + r->count;
    struct kv_part part;
    if (!s)
        return sequence_missing(sequence, e);
    if (!s->n_awaited) /* it is at work already, and this came twice */
        return s->awaited ? 0
                          : err_set(e, HP_EINVAL, "sequence %llu awaits no keys and values",
                                    (unsigned long long)sequence);
    int rc = range_check(c, s, r, s->began, &part, e);
    if (rc < 0)
        return rc;
    if (r->first % KV_PAGE_TOKENS || (end % KV_PAGE_TOKENS && end != s->began))
        return err_set(e, HP_EINVAL, "keys and values of tokens %u to %u are not of whole pages",
                       r->first, end - 1);
    if (part_awaited(c, s, (int)r->group, &part, false) == 0)
        return 0;
    if (r->first / KV_PAGE_TOKENS < s->lent)
        return err_set(e, HP_EINVAL, "the first %u pages of sequence %llu are others', too",
                       s->lent, (unsigned long long)sequence);
    b->kv_import(stream, &c->groups[r->group], s->pages[r->group], &part, data);
    rc = b->stream_wait(stream, e);
    if (rc == 0)
        s->n_awaited -= part_awaited(c, s, (int)r->group, &part, true);
    return rc;
}
