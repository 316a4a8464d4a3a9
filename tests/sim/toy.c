#include "tests/sim/toy.h"

#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "common/manifest.h"

bool toy_few_words;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t state = a ^ (b * 0xD6E8FEB86659FD93u);
    return random_next(&state);
}

uint64_t toy_position(struct toy_memory *m, int first, int end, uint64_t x)
{
    for (int l = first; l < end; l++) {
        m->mixed[l] = mix(m->mixed[l] + (uint64_t)l, x);
        x = mix(m->mixed[l], x + 1);
    }
    m->length++;
    return x;
}

void toy_scores(uint64_t x, uint32_t token, uint32_t width, struct score *out)
{
    for (uint32_t i = 0; i < width; i++)
        out[i] = (struct score){i ? (uint32_t)((x + i) % TOY_VOCABULARY) : token % 31 + 1,
                                -(float)(x % 1000 + i) / 8};
}

size_t toy_run(const uint32_t *prompt, size_t n, bool ignore_end, uint32_t *out, size_t max)
{
    struct toy_memory m = {0};
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++)
        x = toy_position(&m, 0, TOY_LAYERS, prompt[i]);
    for (size_t i = 0; i < max; i++) {
        out[i] = toy_token(x);
        if (out[i] == TOY_END && !ignore_end)
            return i + 1;
        x = toy_position(&m, 0, TOY_LAYERS, out[i]);
    }
    return max;
}

void toy_manifest(const char *name, struct buffer *out)
{
    static const uint8_t head[16] = "toy";
    struct manifest_file file = {"toy.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest_chunk chunks[TOY_LAYERS];
    struct digest digests[TOY_LAYERS];
    for (int i = 0; i < TOY_LAYERS; i++) {
        digests[i] = digest_of(&i, sizeof i);
        chunks[i] = (struct manifest_chunk){
            0, 64 + 100 * (uint64_t)i, 100, {digests[i].bytes, DIGEST_BYTES}};
    }
    struct manifest m = {
        .name = name, .files = {&file, 1}, .heads = {&first, 1}, .chunks = {chunks, TOY_LAYERS}};
    manifest_encode(&m, out);
}

static const struct layer_facts layers[TOY_LAYERS] = {
    {"embed", "embed", 1000, 500, 0, 8, 0, 0, 0, 0, 0, 0, 0},
    {"blk.0.attn", "attn", 4000, 2000, 64, 8, 4000, 0, 0, 0, 0, 0, 0},
    {"blk.0.mlp", "mlp", 8000, 4000, 0, 8, 8000, 0, 0, 0, 0, 0, 0},
    {"blk.1.attn", "attn", 4000, 2000, 64, 8, 4000, 0, 0, 0, 0, 0, 0},
    {"blk.1.mlp", "mlp", 8000, 4000, 0, 8, 8000, 0, 0, 0, 0, 0, 0},
    {"blk.2.attn", "attn", 4000, 2000, 64, 8, 4000, 0, 0, 0, 0, 0, 0},
    {"blk.2.mlp", "mlp", 8000, 4000, 0, 8, 8000, 0, 0, 0, 0, 0, 0},
    {"blk.3.attn", "attn", 4000, 2000, 64, 8, 4000, 0, 0, 0, 0, 0, 0},
    {"blk.3.mlp", "mlp", 8000, 4000, 0, 8, 8000, 0, 0, 0, 0, 0, 0},
    {"head", "head", 1000, 500, 0, 4, 1000, 0, 0, 0, 0, 0, 0},
};
static const uint32_t end_ids[] = {TOY_END};

/* Each layer keeps what it remembers of a position: one block of one group a layer. */
#define B(n)                                                                                       \
    {                                                                                              \
        n                                                                                          \
    }
static const uint32_t kv_before[TOY_LAYERS + 1][MODEL_KV_GROUPS] = {
    B(0), B(1), B(2), B(3), B(4), B(5), B(6), B(7), B(8), B(9), B(10)};
#undef B

const struct model_facts toy_facts = {.architecture = "toy",
                                      .layers = layers,
                                      .kv_before = kv_before,
                                      .n_layers = TOY_LAYERS,
                                      .vocabulary = TOY_VOCABULARY,
                                      .width = TOY_WIDTH,
                                      .context = TOY_CONTEXT,
                                      .end_ids = end_ids,
                                      .n_end_ids = 1};
