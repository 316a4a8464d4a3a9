/* Models made of nothing but chunks. */
#ifndef HP_TESTS_AGENT_STORE_FIXTURE_H
#define HP_TESTS_AGENT_STORE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/manifest.h"
#include "tests/unit/folder.h"

enum { TEST_CHUNK = 1000 };

/* Chunk c of the content `seed`: the same for every model that asks for it. */
static inline void test_chunk_bytes(uint32_t seed, uint8_t out[TEST_CHUNK])
{
    uint64_t state = seed;
    for (size_t i = 0; i < TEST_CHUNK; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out[i] = (uint8_t)(state >> 56);
    }
}

/* A model of one file: a head of 100 bytes (all `seeds[0]`), then n chunks with the contents of
 * `seeds`. */
static inline struct buffer test_manifest(const char *name, const uint32_t *seeds, uint32_t n)
{
    struct arena arena = {0};
    struct buffer out = {0};
    uint8_t bytes[TEST_CHUNK], head_bytes[100];
    memset(head_bytes, (int)seeds[0], sizeof head_bytes);
    struct manifest_file file = {name, 100 + (uint64_t)n * TEST_CHUNK};
    struct manifest_head head = {0, 0, {head_bytes, sizeof head_bytes}};
    struct manifest_chunk *chunks = calloc(n, sizeof *chunks);
    for (uint32_t i = 0; i < n; i++) {
        test_chunk_bytes(seeds[i], bytes);
        struct digest d = digest_of(bytes, sizeof bytes);
        chunks[i] =
            (struct manifest_chunk){0,
                                    100 + (uint64_t)i * TEST_CHUNK,
                                    TEST_CHUNK,
                                    {arena_memdup(&arena, d.bytes, sizeof d.bytes), DIGEST_BYTES}};
    }
    struct manifest m = {
        .name = name, .files = {&file, 1}, .heads = {&head, 1}, .chunks = {chunks, n}};
    manifest_encode(&m, &out);
    free(chunks);
    arena_free(&arena);
    return out;
}

#endif
