#include "agent/engine/kv_cache.h"

#include <stdlib.h>
#include <string.h>

static uint64_t pages_for(uint64_t tokens, uint32_t max_sequences)
{
    return tokens / KV_PAGE_TOKENS + (tokens % KV_PAGE_TOKENS != 0) + max_sequences;
}

uint64_t kv_cache_bytes(const struct device *d, const struct kv_layout *l, uint64_t tokens,
                        uint32_t max_sequences)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(pages_for(tokens, max_sequences), d->backend->kv_page_bytes(d, l),
                               &bytes))
        return UINT64_MAX;
    return bytes;
}

int kv_cache_init(struct kv_cache *c, struct device *d, const struct kv_layout *l, uint64_t tokens,
                  uint32_t max_sequences, struct err *e)
{
    uint64_t n_pages = pages_for(tokens, max_sequences);
    *c = (struct kv_cache){
        .device = d, .layout = *l, .capacity_tokens = tokens, .max_sequences = max_sequences};
    if (n_pages > UINT32_MAX)
        return err_set(e, HP_EINVAL,
                       "a KV cache of %llu tokens is larger than this build can count",
                       (unsigned long long)tokens);
    c->n_pages = (uint32_t)n_pages;
    c->free_pages = calloc(c->n_pages, sizeof *c->free_pages);
    c->sequences = calloc(max_sequences, sizeof *c->sequences);
    if (!c->free_pages || !c->sequences) {
        kv_cache_fini(c);
        return err_set(e, HP_ENOMEM, "no memory for the table of a KV cache of %llu tokens",
                       (unsigned long long)tokens);
    }
    for (uint32_t i = 0; i < c->n_pages; i++)
        c->free_pages[i] = c->n_pages - 1 - i;
    c->n_free = c->n_pages;
    if (l->n_blocks == 0)
        return 0;
    int rc = d->backend->memory_alloc(d, kv_cache_bytes(d, l, tokens, max_sequences), &c->pool, e);
    if (rc < 0) {
        err_at(e, "KV cache of %llu tokens", (unsigned long long)tokens);
        kv_cache_fini(c);
    }
    return rc;
}

void kv_cache_fini(struct kv_cache *c)
{
    for (uint32_t i = 0; c->sequences && i < c->max_sequences; i++)
        free(c->sequences[i].pages);
    free(c->sequences);
    free(c->free_pages);
    if (c->pool.data)
        c->device->backend->memory_release(c->device, &c->pool);
    *c = (struct kv_cache){0};
}

struct kv_sequence *kv_cache_find(const struct kv_cache *c, uint64_t id)
{
    for (uint32_t i = 0; i < c->max_sequences; i++)
        if (c->sequences[i].pages && c->sequences[i].id == id)
            return &c->sequences[i];
    return NULL;
}

static struct kv_sequence *free_slot(const struct kv_cache *c)
{
    for (uint32_t i = 0; i < c->max_sequences; i++)
        if (!c->sequences[i].pages)
            return &c->sequences[i];
    return NULL;
}

int kv_cache_open(struct kv_cache *c, uint64_t id, uint32_t max_tokens, struct err *e)
{
    if (max_tokens == 0)
        return err_set(e, HP_EINVAL, "a sequence needs room for at least one token");
    if (kv_cache_find(c, id))
        return err_set(e, HP_EEXIST, "sequence %llu is open already", (unsigned long long)id);
    if (max_tokens > c->capacity_tokens)
        return err_set(e, HP_EINFEASIBLE,
                       "a sequence of %u tokens does not fit: the KV cache holds %llu in all",
                       max_tokens, (unsigned long long)c->capacity_tokens);
    struct kv_sequence *s = free_slot(c);
    if (!s)
        return err_set(e, HP_EBUSY, "all %u sequences are in use", c->max_sequences);
    if (max_tokens > c->capacity_tokens - c->reserved_tokens)
        return err_set(e, HP_EBUSY, "%llu of %llu tokens of KV cache are free, %u are needed",
                       (unsigned long long)(c->capacity_tokens - c->reserved_tokens),
                       (unsigned long long)c->capacity_tokens, max_tokens);
    uint32_t n_pages = max_tokens / KV_PAGE_TOKENS + (max_tokens % KV_PAGE_TOKENS != 0);
    uint32_t *pages = calloc(n_pages, sizeof *pages);
    if (!pages)
        return err_set(e, HP_ENOMEM, "no memory for a sequence");
    for (uint32_t i = 0; i < n_pages; i++)
        pages[i] = c->free_pages[--c->n_free];
    c->reserved_tokens += max_tokens;
    *s = (struct kv_sequence){
        .id = id, .max_tokens = max_tokens, .n_pages = n_pages, .pages = pages};
    return 0;
}

void kv_cache_close(struct kv_cache *c, uint64_t id)
{
    struct kv_sequence *s = kv_cache_find(c, id);
    if (!s)
        return;
    for (uint32_t i = s->n_pages; i-- > 0;)
        c->free_pages[c->n_free++] = s->pages[i];
    c->reserved_tokens -= s->max_tokens;
    free(s->pages);
    *s = (struct kv_sequence){0};
}
