/* Graphs of a few operators on random weights, made in memory with the graph's constructors. One of
 * fixed shape, with what plain loops make of its inputs; and a sequence model one of whose cuts is
 * crossed by two values. */
#ifndef HP_TESTS_UNIT_AGENT_ENGINE_SMALL_GRAPH_H
#define HP_TESTS_UNIT_AGENT_ENGINE_SMALL_GRAPH_H

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/env.h"
#include "model/graph/builder_int.h"

enum { SMALL_WEIGHTS = 8 };

struct small_graph {
    struct arena arena;
    struct graph graph;
    struct family family;
    struct family_facts facts;
    struct model_config config;
    struct weight weights[SMALL_WEIGHTS];
    int n_weights;
    uint64_t seed;
};

#define SMALL_NAME(name)                                                                           \
    {                                                                                              \
        .in = { [FORM_GGUF] = name, [FORM_HUB] = name }                                            \
    }
static const struct weight_name small_names[] = {
    SMALL_NAME("norm"), SMALL_NAME("up"),   SMALL_NAME("down"),  SMALL_NAME("out_norm"),
    SMALL_NAME("embd"), SMALL_NAME("head"), SMALL_NAME("place"), {{NULL}}};

/* A matrix, or a vector where `rows` is 0. */
static inline const float *small_weight(struct small_graph *g, const char *name, uint64_t rows,
                                        uint64_t columns)
{
    struct weight *w = &g->weights[g->n_weights++];
    uint64_t n = (rows ? rows : 1) * columns;
    float *values = calloc(n, sizeof *values);
    assert(values && g->n_weights <= SMALL_WEIGHTS);
    for (uint64_t i = 0; i < n; i++)
        values[i] = (float)(random_unit(&g->seed) - 0.5);
    *w = (struct weight){.name = name,
                         .dtype = DTYPE_F32,
                         .format = "F32",
                         .n_dims = rows ? 2 : 1,
                         .shape = {rows ? rows : columns, rows ? columns : 0},
                         .bytes = n * sizeof *values,
                         .file = -1,
                         .data = (const uint8_t *)values};
    return values;
}

static inline const float *small_weight_of(const struct small_graph *g, const char *name)
{
    for (int i = 0; i < g->n_weights; i++)
        if (strcmp(g->weights[i].name, name) == 0)
            return (const float *)(const void *)g->weights[i].data;
    return NULL;
}

static inline void small_graph_build(struct small_graph *g)
{
    struct weight_table table;
    struct err e = {0};
    g->facts = (struct family_facts){.family = &g->family, .form = FORM_GGUF, .config = g->config};
    int rc = weight_table_make("small", g->weights, (size_t)g->n_weights, &g->arena, &table, &e);
    rc = rc < 0 ? rc : graph_build(&g->facts, &table, 1, &g->arena, &g->graph, &e);
    assert(rc == 0);
    (void)rc;
}

static inline void small_graph_free(struct small_graph **g)
{
    for (int i = 0; i < (*g)->n_weights; i++)
        free((void *)(uintptr_t)(*g)->weights[i].data);
    arena_free(&(*g)->arena);
    free(*g);
    *g = NULL;
}

/* ---- of fixed shape ---- */

enum { FIXED_ROWS = 6, FIXED_IN = 20, FIXED_MID = 32, FIXED_OUT = 16 };
#define FIXED_EPSILON 1e-5f

/* "mixed" = gelu(layer_norm(pixels) * up + bias) * down + beside; "result" = its rms norm. */
static inline void small_fixed_write(struct graph_builder *b)
{
    const struct graph_dim pixels[] = {{.size = FIXED_ROWS}, {.size = FIXED_IN}},
                           beside[] = {{.size = FIXED_ROWS}, {.size = FIXED_OUT}};
    int x = builder_value_add(b, "pixels", DTYPE_F32, VALUE_INPUT, pixels, 2);
    int y = builder_value_add(b, "beside", DTYPE_F32, VALUE_INPUT, beside, 2);
    graph_layer_begin(b, -1, "body");
    int h = graph_layer_norm(b, x, "norm");
    h = graph_gelu(b, graph_matmul(b, h, "up", FIXED_MID, BIAS_ALWAYS));
    int mixed = graph_add(b, graph_matmul(b, h, "down", FIXED_OUT, BIAS_NEVER), y);
    graph_layer_begin(b, -1, "head");
    graph_output(b, graph_rms_norm(b, mixed, "out_norm"));
    graph_output(b, mixed);
}

/* Names of its outputs, as the builder gives them. */
#define FIXED_RESULT "head.out_norm"
#define FIXED_MIXED "body.add"

static inline struct small_graph *small_fixed_make(uint64_t seed)
{
    struct small_graph *g = calloc(1, sizeof *g);
    assert(g);
    g->seed = seed;
    g->config = (struct model_config){.norm_epsilon = FIXED_EPSILON};
    g->family = (struct family){.name = "fixed",
                                .names = small_names,
                                .block_prefix = {"blk.", "blk."},
                                .build = small_fixed_write};
    small_weight(g, "norm.weight", 0, FIXED_IN);
    small_weight(g, "norm.bias", 0, FIXED_IN);
    small_weight(g, "up.weight", FIXED_MID, FIXED_IN);
    small_weight(g, "up.bias", 0, FIXED_MID);
    small_weight(g, "down.weight", FIXED_OUT, FIXED_MID);
    small_weight(g, "out_norm.weight", 0, FIXED_OUT);
    small_graph_build(g);
    return g;
}

/* One row through it, in double precision. */
static inline void small_fixed_row(const struct small_graph *g, const float *x, const float *beside,
                                   float *mixed, float *result)
{
    const float *norm = small_weight_of(g, "norm.weight"), *shift = small_weight_of(g, "norm.bias"),
                *up = small_weight_of(g, "up.weight"), *bias = small_weight_of(g, "up.bias"),
                *down = small_weight_of(g, "down.weight"),
                *out_norm = small_weight_of(g, "out_norm.weight");
    double mean = 0, variance = 0, n[FIXED_IN], h[FIXED_MID], squares = 0;
    for (int i = 0; i < FIXED_IN; i++)
        mean += (double)x[i] / FIXED_IN;
    for (int i = 0; i < FIXED_IN; i++)
        variance += ((double)x[i] - mean) * ((double)x[i] - mean) / FIXED_IN;
    for (int i = 0; i < FIXED_IN; i++)
        n[i] = ((double)x[i] - mean) / sqrt(variance + (double)FIXED_EPSILON) * (double)norm[i] +
               (double)shift[i];
    for (int o = 0; o < FIXED_MID; o++) {
        double v = (double)bias[o];
        for (int i = 0; i < FIXED_IN; i++)
            v += n[i] * (double)up[o * FIXED_IN + i];
        h[o] = 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    }
    for (int o = 0; o < FIXED_OUT; o++) {
        double v = (double)beside[o];
        for (int i = 0; i < FIXED_MID; i++)
            v += h[i] * (double)down[o * FIXED_MID + i];
        mixed[o] = (float)v;
        squares += v * v / FIXED_OUT;
    }
    for (int o = 0; o < FIXED_OUT; o++)
        result[o] =
            (float)((double)mixed[o] / sqrt(squares + (double)FIXED_EPSILON) * (double)out_norm[o]);
}

struct small_fixed_io {
    float pixels[FIXED_ROWS * FIXED_IN], beside[FIXED_ROWS * FIXED_OUT];
    float mixed[FIXED_ROWS * FIXED_OUT], result[FIXED_ROWS * FIXED_OUT]; /* as they should be */
};

static inline void small_fixed_fill(const struct small_graph *g, uint64_t seed,
                                    struct small_fixed_io *io)
{
    for (int i = 0; i < FIXED_ROWS * FIXED_IN; i++)
        io->pixels[i] = (float)(random_unit(&seed) * 4 - 2);
    for (int i = 0; i < FIXED_ROWS * FIXED_OUT; i++)
        io->beside[i] = (float)(random_unit(&seed) * 4 - 2);
    for (int r = 0; r < FIXED_ROWS; r++)
        small_fixed_row(g, io->pixels + r * FIXED_IN, io->beside + r * FIXED_OUT,
                        io->mixed + r * FIXED_OUT, io->result + r * FIXED_OUT);
}

/* ---- a cut that two values cross ---- */

enum { TWO_LAYERS = 4, TWO_CUT = 2, TWO_WIDTH = 64, TWO_MID = 128 };

/* After layer 1 both its input and what it made of it are read: the residual is added later. */
static inline void small_two_write(struct graph_builder *b)
{
    graph_layer_begin(b, -1, "embed");
    int x = graph_embed(b, graph_ids(b), "embd", b->facts->config.vocabulary, TWO_WIDTH);
    graph_layer_begin(b, -1, "wide");
    int h = graph_matmul(b, graph_rms_norm(b, x, "norm"), "up", TWO_MID, BIAS_NEVER);
    graph_layer_begin(b, -1, "narrow");
    x = graph_add(b, graph_matmul(b, graph_gelu(b, h), "down", TWO_WIDTH, BIAS_NEVER), x);
    graph_layer_begin(b, -1, "head");
    graph_output(b, graph_matmul(b, graph_rows(b, x, graph_wanted(b)), "head",
                                 b->facts->config.vocabulary, BIAS_NEVER));
}

static inline struct small_graph *small_two_make(int vocabulary, uint64_t seed)
{
    struct small_graph *g = calloc(1, sizeof *g);
    assert(g);
    g->seed = seed;
    g->config = (struct model_config){.vocabulary = vocabulary,
                                      .width = TWO_WIDTH,
                                      .n_heads = 1,
                                      .n_kv_heads = 1,
                                      .head_dim = TWO_WIDTH,
                                      .norm_epsilon = FIXED_EPSILON};
    g->family = (struct family){.name = "two",
                                .names = small_names,
                                .block_prefix = {"blk.", "blk."},
                                .build = small_two_write};
    small_weight(g, "embd.weight", (uint64_t)vocabulary, TWO_WIDTH);
    small_weight(g, "norm.weight", 0, TWO_WIDTH);
    small_weight(g, "up.weight", TWO_MID, TWO_WIDTH);
    small_weight(g, "down.weight", TWO_WIDTH, TWO_MID);
    small_weight(g, "head.weight", (uint64_t)vocabulary, TWO_WIDTH);
    small_graph_build(g);
    assert(g->graph.n_layers == TWO_LAYERS && g->graph.layers[TWO_CUT - 1].n_outputs == 2);
    return g;
}

/* ---- learned positions, and few of them ---- */

enum { PLACED_WIDTH = 16, PLACED_POSITIONS = 5 };

static inline void small_placed_write(struct graph_builder *b)
{
    graph_layer_begin(b, -1, "embed");
    int x = graph_embed(b, graph_ids(b), "embd", b->facts->config.vocabulary, PLACED_WIDTH);
    x = graph_add(b, x,
                  graph_embed(b, graph_positions(b), "place", PLACED_POSITIONS, PLACED_WIDTH));
    graph_layer_begin(b, -1, "head");
    graph_output(b, graph_matmul(b, graph_rows(b, x, graph_wanted(b)), "head",
                                 b->facts->config.vocabulary, BIAS_NEVER));
}

static inline struct small_graph *small_placed_make(int vocabulary, uint64_t seed)
{
    struct small_graph *g = calloc(1, sizeof *g);
    assert(g);
    g->seed = seed;
    g->config = (struct model_config){.vocabulary = vocabulary,
                                      .width = PLACED_WIDTH,
                                      .n_heads = 1,
                                      .n_kv_heads = 1,
                                      .head_dim = PLACED_WIDTH,
                                      .norm_epsilon = FIXED_EPSILON};
    g->family = (struct family){.name = "placed",
                                .names = small_names,
                                .block_prefix = {"blk.", "blk."},
                                .build = small_placed_write};
    small_weight(g, "embd.weight", (uint64_t)vocabulary, PLACED_WIDTH);
    small_weight(g, "place.weight", PLACED_POSITIONS, PLACED_WIDTH);
    small_weight(g, "head.weight", (uint64_t)vocabulary, PLACED_WIDTH);
    small_graph_build(g);
    return g;
}

#endif
