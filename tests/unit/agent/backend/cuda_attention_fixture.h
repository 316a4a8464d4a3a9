/* Attention of the cuda backend over pages, against the plain one: shapes that tests go through. */
#ifndef HP_TESTS_UNIT_AGENT_BACKEND_CUDA_ATTENTION_FIXTURE_H
#define HP_TESTS_UNIT_AGENT_BACKEND_CUDA_ATTENTION_FIXTURE_H

#include "tests/share.h"
#include "tests/unit/agent/backend/cuda_fixture.h"

enum { CUDA_ATTENTION_PAGES = 8 };

struct cuda_attention_case {
    struct op_attention a;
    enum kv_format format;
    uint32_t first, count; /* tokens before the batch that is looked at, and in it */
    float sink;            /* of the first head, and times its number of the others; 0: none */
};

static inline size_t attention_width(const struct op_attention *a)
{
    return (size_t)a->heads * (size_t)(a->value_dim ? a->value_dim : a->head_dim);
}

/* What was in the pages before is no number. */
static inline void pool_spoil(struct device *d, const struct kv_group *g, const uint32_t *pages)
{
    const struct backend *b = d->backend;
    const struct kv_part all = {.n_blocks = g->layout.n_blocks,
                                .count = CUDA_ATTENTION_PAGES * KV_PAGE_TOKENS};
    size_t bytes = CUDA_ATTENTION_PAGES * b->kv_page_bytes(d, &g->layout);
    uint8_t *spoilt = malloc(bytes);
    struct stream *s;
    struct err e = {0};
    memset(spoilt, 0xff, bytes);
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    b->kv_import(s, g, pages, &all, spoilt);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->stream_destroy(&s);
    free(spoilt);
}

static inline void attention_run(struct device *d, const struct cuda_attention_case *c, float *out,
                                 uint8_t *exported)
{
    const struct backend *b = d->backend;
    size_t hd = (size_t)c->a.head_dim, kv = (size_t)c->a.kv_heads * hd, q = (size_t)c->a.heads * hd;
    float sinks[8];
    for (int h = 0; h < 8; h++)
        sinks[h] = c->sink * (float)(h + 1);
    struct weight w = vector_make(sinks, (uint64_t)c->a.heads);
    struct err e = {0};
    struct kv_group g = {.layout = {.n_blocks = 2,
                                    .n_kv_heads = c->a.kv_heads,
                                    .head_dim = c->a.head_dim,
                                    .value_dim = c->a.value_dim,
                                    .format = c->format,
                                    .window = c->a.window}};
    uint32_t pages[CUDA_ATTENTION_PAGES] = {3, 0, 2, 1, 7, 4, 6, 5};
    const uint32_t *by_group[] = {pages};
    assert_int_equal(
        b->memory_alloc(d, CUDA_ATTENTION_PAGES * b->kv_page_bytes(d, &g.layout), &g.pool, &e), 0);
    pool_spoil(d, &g, pages);
    const struct graph_op op = {.kind = OP_ATTENTION,
                                .n_inputs = c->a.value_dim ? 2 : 3,
                                .n_weights = c->sink != 0,
                                .u.attention = c->a};
    for (uint32_t first = 0, n; first < c->first + c->count; first += n) {
        n = first < c->first ? c->first : c->count;
        float *rows[3] = {op_random(n * q, first + 1, 1), op_random(n * kv, first + 2, 1),
                          op_random(n * kv, first + 3, 1)};
        const struct attention_run run = {
            .n_tokens = n, .first_position = first, .pages = by_group};
        const struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &g};
        for (uint32_t p = 0; p < kv_first_seen(c->a.window, first) / KV_PAGE_TOKENS; p++)
            pages[p] = KV_NO_PAGE; /* given back */
        op_run_once(
            d, &op, (struct op_rows[]){{rows[0], n, q}, {rows[1], n, kv}, {rows[2], n, kv}},
            (struct op_weight[]){{c->sink != 0 ? &w : NULL, WEIGHT_VECTOR}, {NULL, WEIGHT_VECTOR}},
            &batch, out, n, attention_width(&c->a));
        for (int i = 0; i < 3; i++)
            free(rows[i]);
    }
    struct stream *s;
    uint32_t seen = kv_first_seen(c->a.window, c->first) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    const struct kv_part part = {
        .n_blocks = 1, .first = seen + 1, .count = c->first + c->count - 1 - seen};
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    b->kv_export(s, &g, pages, &part, exported);
    b->kv_import(s, &g, pages, &part, exported);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->stream_destroy(&s);
    b->memory_release(d, &g.pool);
}

/* Tiles are f16's work. */
static inline float attention_bound(const struct cuda_attention_case *c)
{
    int dim = c->a.head_dim;
    bool tiled = c->count >= 16 && c->format != KV_F32 && c->a.value_dim == 0 &&
                 (dim == 64 || dim == 96 || dim == 128 || dim == 256);
    return tiled ? 2e-3f : 2e-5f;
}

static inline void cuda_attention_compare(const struct cuda_attention_case *cases, size_t n_cases)
{
    static const struct device_config plain = {.backend = "plain"};
    struct device *devices[2] = {cuda_open(0)};
    struct err e = {0};
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    for (size_t i = 0; i < n_cases; i += (size_t)test_stride()) {
        const struct cuda_attention_case *c = &cases[i];
        size_t n = c->count * attention_width(&c->a),
               most = (c->first + c->count) * (size_t)(c->a.heads * c->a.head_dim);
        float *out[2];
        uint8_t *kept[2];
        for (int k = 0; k < 2; k++) {
            out[k] = calloc(most + 1, sizeof **out);
            kept[k] = calloc(most + 1, 8);
            attention_run(devices[k], c, out[k], kept[k]);
        }
        assert_memory_equal(kept[0], kept[1], most * 8);
        for (size_t k = 0; k < n; k++)
            if (!(fabsf(out[0][k] - out[1][k]) <= attention_bound(c)))
                fail_msg("case %zu: element %zu is %g instead of %g", i, k, (double)out[0][k],
                         (double)out[1][k]);
        for (int k = 0; k < 2; k++)
            free(out[k]), free(kept[k]);
    }
    device_close(&devices[0]), device_close(&devices[1]);
}

#endif
