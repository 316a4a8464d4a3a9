#include "agent/chunk_index.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t *digest_of_chunk(const struct manifest *m, uint32_t chunk)
{
    return ((const struct manifest_chunk *)m->chunks.items)[chunk].digest.data;
}

static int by_digest(const void *a, const void *b, void *manifest)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int order = memcmp(digest_of_chunk(manifest, x), digest_of_chunk(manifest, y), DIGEST_BYTES);
    return order ? order : (x > y) - (x < y);
}

int chunk_index_make(const struct manifest *m, struct chunk_index *out, struct err *e)
{
    uint32_t *numbers = calloc(m->chunks.count + 1, sizeof *numbers);
    if (!numbers)
        return err_no_memory(e, "the index of a model's chunks");
    for (uint32_t i = 0; i < m->chunks.count; i++)
        numbers[i] = i;
    qsort_r(numbers, m->chunks.count, sizeof *numbers, by_digest, (void *)(uintptr_t)m);
    *out = (struct chunk_index){m, numbers};
    return 0;
}

void chunk_index_free(struct chunk_index *x)
{
    free(x->by_digest);
    *x = (struct chunk_index){0};
}

size_t chunk_index_find(const struct chunk_index *x, const uint8_t *digest,
                        const uint32_t **numbers)
{
    size_t low = 0, high = x->by_digest ? x->manifest->chunks.count : 0, n = high, end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memcmp(digest_of_chunk(x->manifest, x->by_digest[middle]), digest, DIGEST_BYTES) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (end = low; end < n; end++)
        if (memcmp(digest_of_chunk(x->manifest, x->by_digest[end]), digest, DIGEST_BYTES) != 0)
            break;
    *numbers = n ? x->by_digest + low : NULL;
    return end - low;
}
