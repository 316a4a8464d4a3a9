/* Which keys and values of a sequence are meant: one struct in orders, frames and stages. */
#ifndef HP_COMMON_KV_RANGE_H
#define HP_COMMON_KV_RANGE_H

#include <stdint.h>

/* Keys and values are kept, shared and sent in pages of so many tokens. */
enum { KV_PAGE_TOKENS = 64 };

/* Sequences that a stage keeps at most, beside those that run, for others to begin with. */
enum { KV_KEPT_MAX = 256 };

/* Tokens [first, first + count) in blocks [first_block, first_block + n_blocks) of a group of
 * layers whose keys and values look alike. Groups are numbered over the model in the order of their
 * first layers, blocks within their group: both mean the same on every stage. */
struct kv_range {
    uint32_t group, first_block, n_blocks, first, count;
};

/* The first position that a token at `position` sees, where it sees itself and the window - 1
 * before it; window 0: all before it. */
static inline uint32_t kv_first_seen(uint32_t window, uint32_t position)
{
    return window && position >= window ? position - window + 1 : 0;
}

#endif
