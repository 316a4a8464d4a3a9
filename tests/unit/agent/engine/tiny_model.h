/* A LLaMA of a few thousand random weights, made in memory: for tests of the engine that need no
 * file. */
#ifndef HP_TESTS_UNIT_AGENT_ENGINE_TINY_MODEL_H
#define HP_TESTS_UNIT_AGENT_ENGINE_TINY_MODEL_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/env.h"
#include "model/graph/builder.h"

enum {
    TINY_BLOCKS = 3,
    TINY_LAYERS = 2 * TINY_BLOCKS + 2,
    TINY_VOCABULARY = 50,
    TINY_WIDTH = 40,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_HEAD_DIM = 12,
    TINY_MLP = 56,
    TINY_WEIGHTS = 1 + TINY_BLOCKS * 9 + 1
};

struct tiny_model {
    struct arena arena;
    struct graph graph;
    struct family_facts facts;
    struct model_config config;
    struct weight weights[TINY_WEIGHTS];
    int n_weights;
    uint64_t seed;
};

/* A matrix, or a norm's vector where there is one row. */
static inline void tiny_weight(struct tiny_model *m, const char *prefix, const char *name,
                               uint64_t rows, uint64_t columns)
{
    struct weight *w = &m->weights[m->n_weights++];
    float *values = calloc(rows * columns, sizeof *values);
    assert(values);
    for (uint64_t i = 0; i < rows * columns; i++)
        values[i] = (float)(random_unit(&m->seed) - 0.5) * (rows == 1 ? 0.2f : 0.6f) +
                    (rows == 1 ? 1.0f : 0.0f);
    *w = (struct weight){.name = arena_printf(&m->arena, "%s%s.weight", prefix, name),
                         .dtype = DTYPE_F32,
                         .format = "F32",
                         .n_dims = rows == 1 ? 1 : 2,
                         .bytes = rows * columns * sizeof *values,
                         .file = -1};
    w->shape[0] = rows == 1 ? columns : rows;
    w->shape[1] = rows == 1 ? 0 : columns;
    w->data = (const uint8_t *)values;
}

static inline void tiny_block(struct tiny_model *m, int block)
{
    int q = TINY_HEADS * TINY_HEAD_DIM, kv = TINY_KV_HEADS * TINY_HEAD_DIM;
    const char *prefix = arena_printf(&m->arena, "blk.%d.", block);
    tiny_weight(m, prefix, "attn_norm", 1, TINY_WIDTH);
    tiny_weight(m, prefix, "attn_q", (uint64_t)q, TINY_WIDTH);
    tiny_weight(m, prefix, "attn_k", (uint64_t)kv, TINY_WIDTH);
    tiny_weight(m, prefix, "attn_v", (uint64_t)kv, TINY_WIDTH);
    tiny_weight(m, prefix, "attn_output", TINY_WIDTH, (uint64_t)q);
    tiny_weight(m, prefix, "ffn_norm", 1, TINY_WIDTH);
    tiny_weight(m, prefix, "ffn_gate", TINY_MLP, TINY_WIDTH);
    tiny_weight(m, prefix, "ffn_up", TINY_MLP, TINY_WIDTH);
    tiny_weight(m, prefix, "ffn_down", TINY_WIDTH, TINY_MLP);
}

/* Embedding and head are one weight, as in tied models. */
static inline struct tiny_model *tiny_model_make(uint64_t seed)
{
    struct tiny_model *m = calloc(1, sizeof *m);
    struct weight_table table;
    struct err e = {0};
    assert(m);
    m->seed = seed;
    m->config = (struct model_config){
        .architecture = "llama",
        .name = "tiny",
        .vocabulary = TINY_VOCABULARY,
        .width = TINY_WIDTH,
        .n_blocks = TINY_BLOCKS,
        .n_heads = TINY_HEADS,
        .n_kv_heads = TINY_KV_HEADS,
        .head_dim = TINY_HEAD_DIM,
        .mlp_width = TINY_MLP,
        .context = 4096,
        .norm_epsilon = 1e-5f,
        .tied_embeddings = true,
        .rope = {.style = ROPE_HALVES, .dims = TINY_HEAD_DIM, .base = 10000, .scale = 1}};
    m->facts =
        (struct family_facts){.family = &family_llama, .form = FORM_GGUF, .config = m->config};
    tiny_weight(m, "", "token_embd", TINY_VOCABULARY, TINY_WIDTH);
    for (int b = 0; b < TINY_BLOCKS; b++)
        tiny_block(m, b);
    tiny_weight(m, "", "output_norm", 1, TINY_WIDTH);
    int rc = weight_table_make("tiny", m->weights, (size_t)m->n_weights, &m->arena, &table, &e);
    rc = rc < 0 ? rc : graph_build(&m->facts, &table, 1, &m->arena, &m->graph, &e);
    assert(rc == 0 && m->graph.n_layers == TINY_LAYERS && m->n_weights == TINY_WEIGHTS);
    (void)rc;
    return m;
}

static inline void tiny_model_free(struct tiny_model **m)
{
    for (int i = 0; i < (*m)->n_weights; i++)
        free((void *)(uintptr_t)(*m)->weights[i].data);
    arena_free(&(*m)->arena);
    free(*m);
    *m = NULL;
}

#endif
