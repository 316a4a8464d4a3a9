#include "agent/store_answers.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/log.h"

enum { MAX_ADDRESS = 64 << 10 };

int store_answers_init(struct store_answers *a, struct err *e)
{
    *a = (struct store_answers){.ring = malloc(STORE_MAX_WANTS * sizeof *a->ring)};
    return a->ring ? 0 : err_set(e, HP_ENOMEM, "no memory for what peers ask the store");
}

void store_answers_fini(struct store_answers *a)
{
    free(a->ring);
    *a = (struct store_answers){0};
}

static struct store_want *want_at(const struct store_answers *a, size_t i)
{
    return &a->ring[(a->first + i) % STORE_MAX_WANTS];
}

static size_t wants_of(const struct store_answers *a, uint64_t link)
{
    size_t n = 0;
    for (size_t i = 0; i < a->count; i++)
        n += want_at(a, i)->link == link;
    return n;
}

void store_answers_want(struct store_answers *a, struct store_links *links,
                        const struct frame_header *h, const uint8_t *bytes, size_t size)
{
    struct reader r = reader_of(bytes, size);
    uint32_t n = reader_u32(&r);
    const uint8_t *digests = reader_take(&r, (size_t)n * DIGEST_BYTES);
    struct store_link *link;
    struct err e = {0};
    if (r.failed || r.at == r.size || r.size - r.at > MAX_ADDRESS) {
        log_warn_limited("store", "want_malformed", "bytes=%zu", size);
        return;
    }
    if (store_links_get(links, r.data + r.at, r.size - r.at, &link, &e) < 0) {
        log_warn_limited("store", "peer_unreachable", "text=\"%s\"", e.text);
        return;
    }
    size_t room = STORE_MAX_LINK_WANTS - wants_of(a, link->number);
    room = room < STORE_MAX_WANTS - a->count ? room : STORE_MAX_WANTS - a->count;
    for (uint32_t i = 0; i < n && i < room; i++) {
        struct store_want *w = want_at(a, a->count++);
        w->header = *h;
        w->link = link->number;
        memcpy(w->digest.bytes, digests + (size_t)i * DIGEST_BYTES, DIGEST_BYTES);
    }
    a->dropped += n > room ? n - room : 0;
}

enum want_fate { WANT_ANSWERED, WANT_GONE, WANT_LATER, WANT_NO_BUFFER };

static enum want_fate want_answer(const struct store_want *w, struct store_links *links,
                                  struct weight_store *s)
{
    struct store_link *link = store_links_find(links, w->link);
    if (!link || link->down)
        return WANT_GONE;
    if (store_link_under_way(link) >= STORE_LINK_UNDER_WAY)
        return WANT_LATER;
    size_t size = weight_store_size(s, &w->digest);
    struct data_buffer *b = data_buffer_get(links->data, DIGEST_BYTES + size);
    if (!b)
        return WANT_NO_BUFFER;
    memcpy(b->bytes, w->digest.bytes, DIGEST_BYTES);
    if (size && weight_store_read(s, &w->digest, b->bytes + DIGEST_BYTES, &size, NULL) < 0)
        size = 0; /* the digest alone: it is not here */
    b->size = DIGEST_BYTES + size;
    struct frame_header h = {.kind = FRAME_CHUNK,
                             .dtype = FRAME_BYTES,
                             .session = w->header.session,
                             .deployment = w->header.deployment,
                             .generation = w->header.generation,
                             .batch = w->header.batch};
    store_link_post(link, &h, b);
    return WANT_ANSWERED;
}

bool store_answers_step(struct store_answers *a, struct store_links *links, struct weight_store *s)
{
    for (size_t tries = a->count; tries > 0; tries--) {
        struct store_want w = *want_at(a, 0);
        enum want_fate fate = want_answer(&w, links, s);
        if (fate == WANT_NO_BUFFER)
            return false;
        a->first = (a->first + 1) % STORE_MAX_WANTS;
        a->count--;
        if (fate == WANT_LATER)
            *want_at(a, a->count++) = w; /* behind those of other links */
        if (fate == WANT_ANSWERED)
            return true;
    }
    return false;
}
