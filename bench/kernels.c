/* What one core makes of its arithmetic and its memory: prefill's matrix products against the
 * core's peak, which a loop of multiply-adds on registers measures in the same run (of
 * integers for quantised formats, where there is VNNI), decode's matrix-vector products against
 * what reading memory takes, and attention against both. Processor time, best of a few rounds,
 * since others may use this machine too.
 *
 *     kernels [LEVEL [FORMAT ..]]     of avx512_bf16, avx512, avx_vnni and avx2 all, or one,
 *                                     and all formats, or these
 */
#include "agent/backend/cpu/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "bench/fill.h"
#include "bench/machine.h"

enum { ROWS = 256, INPUTS = 2048, LARGE_OUTPUTS = 32000 };

/* ---- the kernels ---- */

struct bench_product {
    double flops_per_s, bytes_per_s;
};

/* Best of a few rounds of one product; 0 where there is no memory for it. */
static struct bench_product measure(struct device *d, enum dtype t, size_t outputs, uint32_t rows,
                                    bool f32)
{
    const struct backend *b = d->backend;
    const struct dtype_info *info = dtype_info(t);
    uint64_t bytes = outputs * INPUTS / info->block_elements * info->block_bytes;
    uint8_t *data = calloc(1, bytes);
    struct weight w = {.name = "w",
                       .dtype = t,
                       .n_dims = 2,
                       .shape = {outputs, INPUTS},
                       .bytes = bytes,
                       .file = -1,
                       .data = data};
    struct device_weight *loaded = NULL;
    struct stream *s = NULL;
    struct memory x = {0}, y = {0};
    struct device_op *op = NULL;
    static const struct graph_op row = {.kind = OP_MATMUL, .n_inputs = 1, .n_outputs = 1};
    struct bench_product best = {0};
    struct err e = {0};
    if (data)
        weights_fill(t, data, bytes);
    if (data && b->stream_create(d, &s, &e) == 0 &&
        b->weight_load(d, &w, WEIGHT_MATMUL, f32, &loaded, &e) == 0 &&
        b->memory_alloc(d, (uint64_t)rows * INPUTS * sizeof(float), &x, &e) == 0 &&
        b->memory_alloc(d, (uint64_t)rows * outputs * sizeof(float), &y, &e) == 0 &&
        b->op_prepare(d, &(struct op_request){.op = &row, .weights = {loaded}}, &op, &e) == 0) {
        struct tensor in = tensor_rows(x, DTYPE_F32, rows, INPUTS),
                      out = tensor_rows(y, DTYPE_F32, rows, outputs);
        inputs_fill(x.data, (uint64_t)rows * INPUTS, INPUTS);
        for (int i = 0; i < ROUNDS; i++) {
            double start = seconds();
            b->op_run(s, op, &in, &out, NULL);
            double took = seconds() - start, flops = 2.0 * rows * (double)outputs * INPUTS / took;
            if (flops > best.flops_per_s)
                best = (struct bench_product){
                    flops, (double)b->weight_resident_bytes(d, &w, WEIGHT_MATMUL, f32) / took};
        }
    }
    if (op)
        b->op_release(&op);
    b->memory_release(d, &y);
    b->memory_release(d, &x);
    b->weight_free(d, &loaded);
    if (s)
        b->stream_destroy(&s);
    free(data);
    return best;
}

/* ---- attention ---- */

enum { HEADS = 32, KV_HEADS = 4, HEAD_DIM = 64, BLOCKS = 4, SLICE = 128 };

/* One operator's best time for `rows` new tokens behind `cached` ones, each round by the cache of
 * another layer, and what it reads of the cache; 0 where there is no memory for it. */
static double attention_seconds(struct device *d, enum kv_format format, uint32_t cached,
                                uint32_t rows)
{
    const struct backend *b = d->backend;
    struct kv_layout l = {
        .n_blocks = BLOCKS, .n_kv_heads = KV_HEADS, .head_dim = HEAD_DIM, .format = format};
    uint32_t n_pages = (cached + rows + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS,
             *pages = calloc(n_pages, sizeof *pages);
    const uint32_t *const of_run[] = {pages};
    struct attention_run run = {.n_tokens = rows, .first_position = cached, .pages = of_run};
    static const struct graph_op row = {
        .kind = OP_ATTENTION,
        .n_inputs = 3,
        .n_outputs = 1,
        .u.attention = {.heads = HEADS, .kv_heads = KV_HEADS, .head_dim = HEAD_DIM}};
    struct memory pool = {0}, x = {0};
    struct stream *s = NULL;
    struct device_op *op = NULL;
    struct err e = {0};
    double best = 0;
    for (uint32_t i = 0; pages && i < n_pages; i++)
        pages[i] = n_pages - 1 - i;
    if (pages && b->stream_create(d, &s, &e) == 0 &&
        b->memory_alloc(d, n_pages * b->kv_page_bytes(d, &l), &pool, &e) == 0 &&
        b->memory_alloc(d, (uint64_t)rows * HEADS * HEAD_DIM * 4 * sizeof(float), &x, &e) == 0) {
        struct memory part = {x.data, x.bytes / 4};
        struct kv_group group = {l, pool};
        struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &group};
        struct tensor in[3], out;
        memset(pool.data, 0x2c, pool.bytes); /* halves of about 0.07; in 8 bits 3 */
        inputs_fill(x.data, x.bytes / sizeof(float), INPUTS);
        for (int i = 0; i < 3; i++, part.data = (uint8_t *)part.data + part.bytes)
            in[i] = tensor_rows(part, DTYPE_F32, rows, (i == 0 ? HEADS : KV_HEADS) * HEAD_DIM);
        out = tensor_rows(part, DTYPE_F32, rows, HEADS * HEAD_DIM);
        for (int i = 0; i < 2 * BLOCKS; i++) {
            struct op_request r = {.op = &row, .kv_block = i % BLOCKS};
            if (b->op_prepare(d, &r, &op, &e) < 0)
                break;
            double start = seconds();
            b->op_run(s, op, in, &out, &batch);
            double took = seconds() - start;
            best = best == 0 || took < best ? took : best;
            b->op_release(&op);
        }
    }
    b->memory_release(d, &x);
    b->memory_release(d, &pool);
    if (s)
        b->stream_destroy(&s);
    free(pages);
    return best;
}

static void bench_attention(struct device *d, const char *kernels, enum kv_format format,
                            double peak, double memory)
{
    static const uint32_t lengths[] = {1024, 8192, 32768};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        double n = lengths[i], decode = attention_seconds(d, format, lengths[i], 1),
               prefill = attention_seconds(d, format, lengths[i], SLICE),
               flops = 4.0 * HEADS * HEAD_DIM * n,
               bytes = 2.0 * n * (double)kv_format_bytes(format, KV_HEADS * HEAD_DIM);
        printf("%-12s attention in %-4s behind %5u tokens: %d more %6.1f GFLOP/s = %3.0f %% of the "
               "peak; "
               "one more %7.3f ms, %5.1f GB/s = %3.0f %% of reading, %5.1f GFLOP/s\n",
               kernels, kv_format_word(format), lengths[i], SLICE, flops * SLICE / prefill * 1e-9,
               100 * flops * SLICE / prefill / peak, decode * 1e3, bytes / decode * 1e-9,
               100 * bytes / decode / memory, flops / decode * 1e-9);
    }
}

/* What was asked for. */
struct bench_wish {
    const char *level;
    char **formats;
    int n_formats; /* 0: all, and attention */
};

static bool wish_has(const struct bench_wish *wish, const char *format)
{
    for (int i = 0; i < wish->n_formats; i++)
        if (strcmp(wish->formats[i], format) == 0)
            return true;
    return wish->n_formats == 0;
}

/* `integers` is the peak of what quantised formats are multiplied with. */
static void bench_level(const struct bench_wish *wish, const char *kernels, double peak,
                        double integers, double memory, bool f32)
{
    static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,   DTYPE_Q8_0,
                                       DTYPE_Q4_K, DTYPE_Q6_K,   DTYPE_Q5_K,   DTYPE_Q4_0,
                                       DTYPE_Q4_1, DTYPE_Q5_0,   DTYPE_Q5_1,   DTYPE_Q2_K,
                                       DTYPE_Q3_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
    struct device_config c = {.n_threads = 1, .kernels = kernels};
    struct device *d;
    struct err e = {0};
    if (device_open(&c, &d, &e) < 0) {
        printf("%-12s %s\n", kernels, e.text);
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!wish_has(wish, dtype_info(types[i])->name))
            continue;
        struct bench_product prefill = measure(d, types[i], INPUTS, ROWS, f32),
                             decode = measure(d, types[i], LARGE_OUTPUTS, 1, f32);
        bool by_integers = !f32 && dtype_info(types[i])->block_elements > 1;
        printf(
            "%-12s %-5s %-6s prefill %6.1f GFLOP/s = %3.0f %% of the %s peak; decode %5.1f GB/s of "
            "weights = %3.0f %% of reading\n",
            kernels, f32 ? "f32" : "auto", dtype_info(types[i])->name, prefill.flops_per_s * 1e-9,
            100 * prefill.flops_per_s / (by_integers ? integers : peak),
            by_integers && integers > peak ? "integer" : "float", decode.bytes_per_s * 1e-9,
            100 * decode.bytes_per_s / memory);
    }
    for (int i = 0; !f32 && wish->n_formats == 0 && i < 2; i++)
        bench_attention(d, kernels, i ? KV_Q8_0 : KV_F16, peak, memory);
    device_close(&d);
}

/* Wanted, and there on this CPU. */
static bool wish_takes(const struct bench_wish *wish, const char *level)
{
    const struct cpu_kernels *kernels;
    struct err e = {0};
    return (!wish->level || strcmp(wish->level, level) == 0) &&
           kernels_choose(level, &kernels, &e) == 0;
}

int main(int argc, char **argv)
{
    struct bench_wish wish = {argc > 1 ? argv[1] : NULL, argv + 2, argc > 2 ? argc - 2 : 0};
    double memory = memory_bytes_per_s().best;
    printf("memory is read at %.1f GB/s; products of %d rows by %d inputs, and of one row by "
           "%d outputs\n",
           memory * 1e-9, ROWS, INPUTS, LARGE_OUTPUTS);
    if (wish_takes(&wish, "avx512_bf16"))
        bench_level(&wish, "avx512_bf16", best_of(peak_bf16), best_of(peak_vnni), memory, false);
    if (wish_takes(&wish, "avx512"))
        for (int f32 = 0; f32 < 2; f32++)
            bench_level(&wish, "avx512", best_of(peak_avx512), best_of(peak_vnni), memory, f32);
    if (wish_takes(&wish, "avx_vnni"))
        bench_level(&wish, "avx_vnni", best_of(peak_avx2), best_of(peak_avx_vnni), memory, false);
    if (wish_takes(&wish, "avx2"))
        for (int f32 = 0; f32 < 2; f32++)
            bench_level(&wish, "avx2", best_of(peak_avx2), best_of(peak_avx2), memory, f32);
    return 0;
}
