/* How many pages of keys and values are reserved for sequences, where some begin with others'
 * pages: a page that several have counts once. Agents count so what they promise
 * (agent/engine/kv_cache.h), the coordinator what it may order (coordinator/growth.h); told the
 * same in the same order both come to the same number, without a message about it.
 *
 * A page here is only a name. A sequence that begins with others' tokens shares with them the pages
 * that are full of those; the page where it goes on is its own, since it writes there. No more real
 * pages are ever in use than are counted. */
#ifndef HP_COMMON_KV_ACCOUNT_H
#define HP_COMMON_KV_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/kv_range.h"

/* Zero-initialised: nothing is counted. */
struct kv_account {
    struct kv_account_page {
        uint32_t holders, growing; /* how many have it; of them, those that are not kept */
    } * pages;
    uint32_t n_pages, room_pages;
    uint32_t *spare; /* [n_spare]: pages that nobody has */
    uint32_t n_spare, room_spare;
    uint32_t used, used_growing; /* pages that somebody has; that one has who is not kept */
};

/* What one sequence has. Zero-initialised: nothing. */
struct kv_holding {
    uint32_t *pages; /* [n_pages] */
    uint32_t n_pages;
    bool kept; /* does not grow any more, and makes room for those that do */
};

static inline uint32_t kv_pages_for(uint64_t tokens)
{
    return (uint32_t)(tokens / KV_PAGE_TOKENS + (tokens % KV_PAGE_TOKENS != 0));
}
/* Pages that a sequence of up to `tokens` adds when its first `shared` ones are another's. */
static inline uint32_t kv_account_need(uint64_t tokens, uint64_t shared)
{
    return kv_pages_for(tokens) - (uint32_t)(shared / KV_PAGE_TOKENS);
}

/* The same, of pages that those which are not kept have: what it adds once everything that is kept
 * is gone but for what it shares. `from` NULL: it shares with one that is not kept, or nothing. */
uint32_t kv_account_growth(const struct kv_account *a, uint64_t tokens,
                           const struct kv_holding *from, uint64_t shared);

/* Counts a sequence of up to `tokens`, which begins with the first `shared` of `from` (NULL: with
 * nothing, and then `shared` is 0). False: no memory, and nothing has changed. */
bool kv_account_open(struct kv_account *a, struct kv_holding *h, uint64_t tokens,
                     const struct kv_holding *from, uint64_t shared);
/* Counts it for up to `tokens` from now on; for fewer than it has nothing changes. False: no
 * memory, and nothing has changed. */
bool kv_account_grow(struct kv_account *a, struct kv_holding *h, uint64_t tokens);
/* From now on it has no more than pages for its first `tokens`, and is kept. */
void kv_account_keep(struct kv_account *a, struct kv_holding *h, uint64_t tokens);
void kv_account_close(struct kv_account *a, struct kv_holding *h);
/* Pages that nobody else has. */
uint32_t kv_account_alone(const struct kv_account *a, const struct kv_holding *h);
/* Every holding of it is closed, or is of no use any more. */
void kv_account_free(struct kv_account *a);

#endif
