/* What one core makes of its arithmetic and its memory: prefill's matrix products against the
 * core's peak, which a loop of multiply-adds on registers measures in the same run (of
 * integers for quantised formats, where there is VNNI), and decode's matrix-vector products against
 * what reading memory takes. Processor time, best of a few rounds, since others may use this
 * machine too. */
#include <stdio.h>
#include <stdlib.h>

#include "agent/backend/backend.h"
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
    for (uint64_t i = 0; data && i < bytes; i += 7)
        data[i] = (uint8_t)(i % 60);
    if (data && b->stream_create(d, &s, &e) == 0 &&
        b->weight_load(d, &w, WEIGHT_MATMUL, f32, &loaded, &e) == 0 &&
        b->memory_alloc(d, (uint64_t)rows * INPUTS * sizeof(float), &x, &e) == 0 &&
        b->memory_alloc(d, (uint64_t)rows * outputs * sizeof(float), &y, &e) == 0 &&
        b->op_prepare(d, &(struct op_request){.op = &row, .weights = {loaded}}, &op, &e) == 0) {
        struct tensor in = tensor_rows(x, DTYPE_F32, rows, INPUTS),
                      out = tensor_rows(y, DTYPE_F32, rows, outputs);
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

/* `integers` is the peak of what quantised formats are multiplied with. */
static void bench_level(const char *kernels, double peak, double integers, double memory, bool f32)
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
    device_close(&d);
}

int main(void)
{
    double memory = memory_bytes_per_s();
    __builtin_cpu_init();
    printf("memory is read at %.1f GB/s; products of %d rows by %d inputs, and of one row by "
           "%d outputs\n",
           memory * 1e-9, ROWS, INPUTS, LARGE_OUTPUTS);
    if (__builtin_cpu_supports("avx512bf16"))
        bench_level("avx512_bf16", best_of(peak_bf16), best_of(peak_vnni), memory, false);
    if (__builtin_cpu_supports("avx512vnni"))
        for (int f32 = 0; f32 < 2; f32++)
            bench_level("avx512", best_of(peak_avx512), best_of(peak_vnni), memory, f32);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        for (int f32 = 0; f32 < 2; f32++)
            bench_level("avx2", best_of(peak_avx2), best_of(peak_avx2), memory, f32);
    return 0;
}
