/* A LLaMA of a few thousand random weights, made in memory: for tests of the engine that need no
 * file. */
#ifndef HP_TESTS_UNIT_AGENT_ENGINE_TINY_MODEL_H
#define HP_TESTS_UNIT_AGENT_ENGINE_TINY_MODEL_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "model/layers.h"

enum {
    TINY_BLOCKS = 3,
    TINY_LAYERS = 2 * TINY_BLOCKS + 2,
    TINY_VOCABULARY = 50,
    TINY_WIDTH = 40,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_HEAD_DIM = 12,
    TINY_MLP = 56,
    TINY_OPS = 1 + TINY_BLOCKS * 13 + 2,
    TINY_WEIGHTS = 1 + TINY_BLOCKS * 9 + 1
};

struct tiny_model {
    struct graph graph;
    struct model_config config;
    struct graph_op ops[TINY_OPS];
    struct graph_layer layers[TINY_LAYERS];
    struct weight weights[TINY_WEIGHTS];
    int n_weights;
    uint64_t seed;
};

static inline struct weight *tiny_weight(struct tiny_model *m, const char *name, uint64_t rows,
                                         uint64_t columns)
{
    struct weight *w = &m->weights[m->n_weights++];
    float *values = calloc(rows * columns, sizeof *values);
    assert(values);
    for (uint64_t i = 0; i < rows * columns; i++)
        values[i] = (float)(random_unit(&m->seed) - 0.5) * (rows == 1 ? 0.2f : 0.6f) +
                    (rows == 1 ? 1.0f : 0.0f);
    *w = (struct weight){.name = name,
                         .dtype = DTYPE_F32,
                         .n_dims = rows == 1 ? 1 : 2,
                         .bytes = rows * columns * sizeof *values,
                         .file = -1};
    w->shape[0] = rows == 1 ? columns : rows;
    w->shape[1] = rows == 1 ? 0 : columns;
    w->data = (const uint8_t *)values;
    return w;
}

static inline void tiny_op(struct tiny_model *m, struct graph_op op)
{
    struct graph_layer *l = &m->layers[m->graph.n_layers - 1];
    m->ops[m->graph.n_ops++] = op;
    l->n_ops++;
}

static inline void tiny_layer(struct tiny_model *m, const char *name)
{
    m->layers[m->graph.n_layers++] =
        (struct graph_layer){.name = name, .class_name = name, .first_op = m->graph.n_ops};
}

static inline void tiny_product(struct tiny_model *m, enum graph_value in, enum graph_value out,
                                int rows, int columns, int block)
{
    struct graph_op op = {
        .kind = OP_MATMUL, .in = in, .out = out, .block = block, .accumulate = out == V_X};
    op.weight = tiny_weight(m, "matrix", (uint64_t)rows, (uint64_t)columns);
    tiny_op(m, op);
}

static inline void tiny_norm(struct tiny_model *m, int block)
{
    tiny_op(m, (struct graph_op){.kind = OP_RMS_NORM,
                                 .in = V_X,
                                 .out = V_NORM,
                                 .block = block,
                                 .weight = tiny_weight(m, "norm", 1, TINY_WIDTH)});
}

static inline void tiny_block(struct tiny_model *m, int b)
{
    int q = TINY_HEADS * TINY_HEAD_DIM, kv = TINY_KV_HEADS * TINY_HEAD_DIM;
    tiny_layer(m, "attn");
    tiny_norm(m, b);
    tiny_product(m, V_NORM, V_Q, q, TINY_WIDTH, b);
    tiny_product(m, V_NORM, V_K, kv, TINY_WIDTH, b);
    tiny_product(m, V_NORM, V_V, kv, TINY_WIDTH, b);
    tiny_op(m, (struct graph_op){.kind = OP_ROPE, .in = V_Q, .out = V_Q, .block = b});
    tiny_op(m, (struct graph_op){.kind = OP_ROPE, .in = V_K, .out = V_K, .block = b});
    tiny_op(m, (struct graph_op){.kind = OP_ATTENTION, .in = V_Q, .out = V_ATTN, .block = b});
    tiny_product(m, V_ATTN, V_X, TINY_WIDTH, q, b);
    tiny_layer(m, "mlp");
    tiny_norm(m, b);
    tiny_product(m, V_NORM, V_GATE, TINY_MLP, TINY_WIDTH, b);
    tiny_product(m, V_NORM, V_UP, TINY_MLP, TINY_WIDTH, b);
    tiny_op(m, (struct graph_op){
                   .kind = OP_SILU_MUL, .in = V_GATE, .in2 = V_UP, .out = V_GATE, .block = b});
    tiny_product(m, V_GATE, V_X, TINY_WIDTH, TINY_MLP, b);
}

/* Embedding and head are one weight, as in tied models. */
static inline struct tiny_model *tiny_model_make(uint64_t seed)
{
    static const int width[V_COUNT] = {1,
                                       TINY_WIDTH,
                                       TINY_WIDTH,
                                       TINY_HEADS * TINY_HEAD_DIM,
                                       TINY_KV_HEADS * TINY_HEAD_DIM,
                                       TINY_KV_HEADS * TINY_HEAD_DIM,
                                       TINY_HEADS * TINY_HEAD_DIM,
                                       TINY_MLP,
                                       TINY_MLP,
                                       TINY_VOCABULARY};
    struct tiny_model *m = calloc(1, sizeof *m);
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
    memcpy(m->graph.value_width, width, sizeof width);
    tiny_layer(m, "embed");
    struct weight *embedding = tiny_weight(m, "embedding", TINY_VOCABULARY, TINY_WIDTH);
    tiny_op(m, (struct graph_op){
                   .kind = OP_EMBED, .in = V_IDS, .out = V_X, .block = -1, .weight = embedding});
    for (int b = 0; b < TINY_BLOCKS; b++)
        tiny_block(m, b);
    tiny_layer(m, "head");
    tiny_norm(m, -1);
    tiny_op(
        m, (struct graph_op){
               .kind = OP_MATMUL, .in = V_NORM, .out = V_LOGITS, .block = -1, .weight = embedding});
    m->graph.ops = m->ops;
    m->graph.layers = m->layers;
    assert(m->graph.n_ops == TINY_OPS && m->graph.n_layers == TINY_LAYERS &&
           m->n_weights == TINY_WEIGHTS);
    return m;
}

static inline void tiny_model_free(struct tiny_model **m)
{
    for (int i = 0; i < (*m)->n_weights; i++)
        free((void *)(uintptr_t)(*m)->weights[i].data);
    free(*m);
    *m = NULL;
}

#endif
