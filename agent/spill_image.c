#include "agent/spill_image.h"

#include <stdlib.h>
#include <string.h>

struct spill_image *spill_image_of(struct buffer b, atomic_ullong *counted)
{
    struct spill_image *i = b.failed ? NULL : calloc(1, sizeof *i);
    if (!i) {
        buffer_free(&b);
        return NULL;
    }
    atomic_init(&i->holders, 1);
    i->counted = counted;
    i->bytes = b.size;
    i->b = b;
    atomic_fetch_add(counted, i->bytes);
    return i;
}

struct spill_image *spill_image_make(const struct spill_head *h, atomic_ullong *counted,
                                     uint8_t **keys)
{
    struct buffer b = {0};
    uint8_t *at = spill_file_begin(&b, h);
    struct spill_image *i = at ? spill_image_of(b, counted) : NULL;
    if (!at)
        buffer_free(&b);
    *keys = i ? at : NULL;
    return i;
}

struct spill_image *spill_image_cut(const struct spill_image *whole, const struct spill_head *h)
{
    struct spill_head all;
    struct kv_cursor at = {0};
    struct kv_range r;
    uint8_t *to;
    size_t from;
    if (spill_file_head(whole->b.data, whole->b.size, &all, &from, NULL) < 0)
        return NULL;
    struct spill_image *i = spill_image_make(h, whole->counted, &to);
    while (i && spill_file_next(&all, &at, &r)) {
        size_t bytes = (size_t)kv_shape_bytes(&all.shape, &r);
        if (r.first / KV_PAGE_TOKENS >= h->from[r.group]) {
            memcpy(to, whole->b.data + from, bytes);
            to += bytes;
        }
        from += bytes;
    }
    return i;
}

struct spill_image *spill_image_hold(struct spill_image *i)
{
    atomic_fetch_add(&i->holders, 1);
    return i;
}

void spill_image_release(struct spill_image *i)
{
    if (!i || atomic_fetch_sub(&i->holders, 1) > 1)
        return;
    atomic_fetch_sub(i->counted, i->bytes);
    buffer_free(&i->b);
    free(i);
}

void spill_found_release(struct spill_found *f)
{
    while (f && f->n)
        spill_image_release(f->images[--f->n]);
    free(f);
}
