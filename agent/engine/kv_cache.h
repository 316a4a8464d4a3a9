/* The KV cache of a stage: which sequences are open, and which pages of the pool are theirs. What
 * stands in a page is the backend's business. */
#ifndef HP_AGENT_ENGINE_KV_CACHE_H
#define HP_AGENT_ENGINE_KV_CACHE_H

#include "agent/backend/backend.h"

struct kv_sequence {
    uint64_t id;
    uint32_t length;     /* tokens whose keys and values are there */
    uint32_t max_tokens; /* reserved */
    uint32_t n_pages;
    uint32_t *pages; /* NULL: the slot is free */
};

struct kv_cache {
    struct device *device;
    struct kv_layout layout;
    struct memory pool; /* [n_pages] pages; none where the stage has no attention */
    uint32_t n_pages, n_free;
    uint32_t *free_pages; /* [n_free] */
    uint64_t capacity_tokens, reserved_tokens;
    uint32_t max_sequences;
    struct kv_sequence *sequences; /* [max_sequences] */
};

/* Bytes of the pool: pages for `tokens`, and for each sequence one that it may leave unfilled. */
uint64_t kv_cache_bytes(const struct device *d, const struct kv_layout *l, uint64_t tokens,
                        uint32_t max_sequences);

/* Fills *c. HP_ENOMEM, HP_EINVAL for sizes beyond 2^32 pages. */
int kv_cache_init(struct kv_cache *c, struct device *d, const struct kv_layout *l, uint64_t tokens,
                  uint32_t max_sequences, struct err *e);
void kv_cache_fini(struct kv_cache *c);

/* Reserves pages for max_tokens. HP_EEXIST, HP_EBUSY when there is no room now, HP_EINFEASIBLE when
 * there never is. */
int kv_cache_open(struct kv_cache *c, uint64_t id, uint32_t max_tokens, struct err *e);
void kv_cache_close(struct kv_cache *c, uint64_t id);
struct kv_sequence *kv_cache_find(const struct kv_cache *c, uint64_t id);

#endif
