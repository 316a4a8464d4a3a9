/* The KV cache of a stage: which sequences are open, and which pages of the groups' pools are
 * theirs. A page is taken when tokens come that stand in it, counts who has it, and is copied
 * before one of several writes to it (as in PagedAttention, SOSP 2023, section 4.3). What stands in
 * a page is the backend's business.
 *
 * Whoever opens a sequence says what it may become, and how much of that is reserved: growth within
 * what is reserved never fails for want of pages, and none goes beyond it. What sequences share is
 * counted once (common/kv_account.h). Of a group with a window only the pages that a token to come
 * may see are kept, and the pool is no larger than that.
 *
 * A sequence that has ended may be kept for others to begin with. It has only the pages that it
 * filled, and none of the places of those that run, unless a window made some pool no larger than
 * these need. */
#ifndef HP_AGENT_ENGINE_KV_CACHE_H
#define HP_AGENT_ENGINE_KV_CACHE_H

#include "agent/engine/kv_groups.h"
#include "common/kv_account.h"

/* What a cache is to have room for. */
struct kv_room {
    uint64_t tokens; /* of all sequences */
    uint32_t max_sequences;
    uint32_t ahead_tokens; /* of one sequence, that may be under way and be taken back */
};

/* Pages [first, end) of the list are there. */
struct kv_pages {
    uint32_t first, end;
};

struct kv_sequence {
    uint64_t id;
    uint32_t length;     /* tokens whose keys and values are there, or will be */
    uint32_t settled;    /* of these: tokens that nobody takes back any more */
    uint32_t max_tokens; /* that it may become; its holding says what is reserved */
    uint32_t reach;      /* with what it was opened as that */
    uint32_t began;      /* with so many tokens */
    uint32_t lent;       /* pages: of these, the first ones, which others have, too */
    uint8_t *awaited;    /* of what it began with, what has not been imported (kv_transfer.h) */
    uint32_t n_awaited;
    uint32_t *places;                     /* what the lists lie in; NULL: the slot is free */
    const uint32_t *pages[KV_GROUPS_MAX]; /* KV_NO_PAGE where there is none (yet, or any more) */
    struct kv_pages held[KV_GROUPS_MAX];
    struct kv_holding holding; /* what is counted for it */
};

struct kv_pool {
    uint32_t n_pages, n_free;
    uint32_t *free_pages; /* [n_free] */
    uint32_t *holders;    /* [n_pages]: sequences that have the page */
};

struct kv_cache {
    struct device *device;
    struct kv_groups kinds;
    struct kv_group groups[KV_GROUPS_MAX]; /* as batches are given them */
    struct kv_pool pools[KV_GROUPS_MAX];   /* none where the stage has no block of the group */
    struct kv_room room;
    struct kv_account account;
    bool narrow; /* some pool has room for max_sequences alone, the kept ones among them */
    struct kv_sequence *sequences; /* [max_sequences + KV_KEPT_MAX]: behind max_sequences those that
                                      are kept */
};

/* Bytes of all pools. A group has pages for all tokens, and for each sequence one that it may leave
 * unfilled; with a window no more than each sequence may hold at once. */
uint64_t kv_cache_bytes(const struct device *d, const struct kv_groups *k,
                        const struct kv_room *room);

/* Fills *c. HP_ENOMEM, HP_EINVAL for sizes beyond 2^32 pages. */
int kv_cache_init(struct kv_cache *c, struct device *d, const struct kv_groups *k,
                  const struct kv_room *room, struct err *e);
void kv_cache_fini(struct kv_cache *c);

/* Counts max_tokens as reserved. The sequence begins with `length` tokens, whose pages are taken
 * and whose keys and values are to be imported. HP_EINVAL, HP_EEXIST, HP_EBUSY when there is no
 * room now, HP_EINFEASIBLE when there never is, HP_ENOMEM. */
int kv_cache_open(struct kv_cache *c, uint64_t id, uint32_t max_tokens, uint32_t length,
                  struct err *e);
/* The same, with `reserved` tokens counted for now and, unless `from` is 0, with the first `length`
 * tokens of that sequence, whose pages both have from now on. Also HP_ENOENT (no such sequence),
 * HP_EBUSY (its own have not all been imported), HP_EINVAL (it has not so many that are settled, or
 * has given back what a token after these would see). */
int kv_cache_open_some(struct kv_cache *c, uint64_t id, uint32_t max_tokens, uint32_t reserved,
                       uint32_t length, uint64_t from, struct err *e);
/* A sequence that was just opened with whole pages begins with `length` tokens, at most those that
 * are reserved: keys and values of the others are to be imported. HP_ENOENT, HP_EINVAL, HP_EBUSY,
 * HP_ENOMEM: then it is to be closed. */
int kv_cache_await(struct kv_cache *c, uint64_t id, uint32_t length, struct err *e);
/* Counts `tokens` for an open one, if these are more. HP_EINVAL: not open, kept, or beyond what it
 * may become; HP_EBUSY, HP_ENOMEM: then nothing has changed. */
int kv_cache_reserve(struct kv_cache *c, uint64_t id, uint32_t tokens, struct err *e);
void kv_cache_close(struct kv_cache *c, uint64_t id);
/* The sequence runs no more: its first `length` tokens are kept, until it is closed. One that is
 * kept may be made shorter so. HP_ENOENT, HP_EINVAL (kv_cache_open_some could not give so many),
 * HP_EBUSY (KV_KEPT_MAX are kept): then nothing has changed. */
int kv_cache_keep(struct kv_cache *c, uint64_t id, uint32_t length, struct err *e);
/* NULL when it is not open. Valid until it is closed. */
struct kv_sequence *kv_cache_find(const struct kv_cache *c, uint64_t id);

/* Pages for n more tokens, all of them the sequence's own from where those begin: pages that others
 * have too are copied on `stream`. Its length stays. HP_EINVAL beyond max_tokens, HP_EBUSY (no page
 * is left, which is a bug): then nothing has changed. */
int kv_cache_grow(struct kv_cache *c, struct stream *stream, struct kv_sequence *s, uint32_t n,
                  struct err *e);
/* Back to its first `length` tokens: pages behind these are given back. */
void kv_cache_cut(struct kv_cache *c, struct kv_sequence *s, uint32_t length);
/* Nobody takes the first `length` tokens back any more: pages wholly behind what a later token sees
 * are given back. */
void kv_cache_settle(struct kv_cache *c, struct kv_sequence *s, uint32_t length);
/* Whether all tokens [first, first + count) have pages in that group. */
bool kv_cache_has(const struct kv_sequence *s, int group, uint32_t first, uint32_t count);

#endif
