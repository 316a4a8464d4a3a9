/* What one core of this machine can do: a loop of multiply-adds on registers for arithmetic, and
 * reading memory. Benchmarks divide by what they measured of it in the same run. Processor time of
 * a few rounds, since others may use this machine too: the best, and of reading also the median. */
#ifndef HP_BENCH_MACHINE_H
#define HP_BENCH_MACHINE_H

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 8 };

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

enum { CHAINS = 12, TURNS = 1000000 };

__attribute__((target("avx512f,avx512bf16"))) static inline double peak_bf16(void)
{
    __m512 sums[CHAINS];
    __m512bh x = (__m512bh)_mm512_set1_epi32(0);
    for (int i = 0; i < CHAINS; i++)
        sums[i] = _mm512_set1_ps((float)i);
    double start = seconds();
    for (int turn = 0; turn < TURNS; turn++)
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sums[i] =
            _mm512_dpbf16_ps(sums[i], x, x);
    double took = seconds() - start;
    float keep[16];
    for (int i = 1; i < CHAINS; i++)
        sums[0] = _mm512_add_ps(sums[0], sums[i]);
    _mm512_storeu_ps(keep, sums[0]);
    return keep[0] < 0 ? 0 : 64.0 * CHAINS * TURNS / took;
}

/* Of integers: eight bits times eight, summed in 32. */
__attribute__((target("avx512f,avx512vnni"))) static inline double peak_vnni(void)
{
    __m512i sums[CHAINS], x = _mm512_set1_epi8(1);
    for (int i = 0; i < CHAINS; i++)
        sums[i] = _mm512_set1_epi32(i);
    double start = seconds();
    for (int turn = 0; turn < TURNS; turn++)
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sums[i] =
            _mm512_dpbusd_epi32(sums[i], x, x);
    double took = seconds() - start;
    for (int i = 1; i < CHAINS; i++)
        sums[0] = _mm512_add_epi32(sums[0], sums[i]);
    return _mm512_reduce_add_epi32(sums[0]) == 1 ? 0 : 128.0 * CHAINS * TURNS / took;
}

/* The same in vectors of 256 bits. */
__attribute__((target("avx2,avxvnni"))) static inline double peak_avx_vnni(void)
{
    __m256i sums[CHAINS], x = _mm256_set1_epi8(1);
    int keep[8];
    for (int i = 0; i < CHAINS; i++)
        sums[i] = _mm256_set1_epi32(i);
    double start = seconds();
    for (int turn = 0; turn < TURNS; turn++)
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sums[i] =
            _mm256_dpbusd_avx_epi32(sums[i], x, x);
    double took = seconds() - start;
    for (int i = 1; i < CHAINS; i++)
        sums[0] = _mm256_add_epi32(sums[0], sums[i]);
    _mm256_storeu_si256((__m256i *)(void *)keep, sums[0]);
    return keep[0] == 1 ? 0 : 64.0 * CHAINS * TURNS / took;
}

__attribute__((target("avx512f"))) static inline double peak_avx512(void)
{
    __m512 sums[CHAINS], x = _mm512_set1_ps(0.5f);
    for (int i = 0; i < CHAINS; i++)
        sums[i] = _mm512_set1_ps((float)i);
    double start = seconds();
    for (int turn = 0; turn < TURNS; turn++)
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sums[i] =
            _mm512_fmadd_ps(sums[i], x, x);
    double took = seconds() - start;
    for (int i = 1; i < CHAINS; i++)
        sums[0] = _mm512_add_ps(sums[0], sums[i]);
    float keep[16];
    _mm512_storeu_ps(keep, sums[0]);
    return keep[0] < 0 ? 0 : 32.0 * CHAINS * TURNS / took;
}

__attribute__((target("avx2,fma"))) static inline double peak_avx2(void)
{
    __m256 sums[CHAINS], x = _mm256_set1_ps(0.5f);
    for (int i = 0; i < CHAINS; i++)
        sums[i] = _mm256_set1_ps((float)i);
    double start = seconds();
    for (int turn = 0; turn < TURNS; turn++)
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sums[i] =
            _mm256_fmadd_ps(sums[i], x, x);
    double took = seconds() - start;
    for (int i = 1; i < CHAINS; i++)
        sums[0] = _mm256_add_ps(sums[0], sums[i]);
    float keep[8];
    _mm256_storeu_ps(keep, sums[0]);
    return keep[0] < 0 ? 0 : 16.0 * CHAINS * TURNS / took;
}

static inline double best_of(double (*measured)(void))
{
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double v = measured();
        best = v > best ? v : best;
    }
    return best;
}

static inline int by_speed(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bytes that are read in a second. */
struct memory_speed {
    double best, median;
};

#define MEMORY_READ_BYTES ((size_t)1 << 30) /* far beyond any cache */

/* Huge pages, all written; free() ends them. NULL: no memory. */
static inline void *memory_room(void)
{
    void *from = aligned_alloc((size_t)2 << 20, MEMORY_READ_BYTES);
    if (from) {
        madvise(from, MEMORY_READ_BYTES, MADV_HUGEPAGE);
        memset(from, 1, MEMORY_READ_BYTES);
    }
    return from;
}

/* Seconds of reading the room once; INFINITY where that could not be. */
__attribute__((target("avx2"))) static inline double memory_read_s(const void *room)
{
    const __m256i *from = room;
    __m256i sums[4] = {_mm256_setzero_si256()};
    double start = seconds();
    for (size_t at = 0; from && at < MEMORY_READ_BYTES / sizeof *from; at += 4)
        _Pragma("GCC unroll 4") for (size_t j = 0; j < 4; j++) sums[j] =
            _mm256_xor_si256(sums[j], _mm256_load_si256(from + at + j));
    double took = seconds() - start;
    sums[0] = _mm256_or_si256(_mm256_or_si256(sums[0], sums[1]), _mm256_or_si256(sums[2], sums[3]));
    return from && _mm256_testz_si256(sums[0], sums[0]) ? took : INFINITY;
}

static inline struct memory_speed memory_speed_of(double speeds[ROUNDS])
{
    qsort(speeds, ROUNDS, sizeof *speeds, by_speed);
    return (struct memory_speed){.best = speeds[ROUNDS - 1], .median = speeds[ROUNDS / 2]};
}

static inline struct memory_speed memory_bytes_per_s(void)
{
    void *room = memory_room();
    double speeds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        speeds[i] = (double)MEMORY_READ_BYTES / memory_read_s(room);
    free(room);
    return memory_speed_of(speeds);
}

/* What this CPU's widest multiply-adds give, and what they multiply; 0 without any. */
static inline double peak_flops_per_s(const char **of)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bf16"))
        return *of = "bf16", best_of(peak_bf16);
    *of = "float32";
    if (__builtin_cpu_supports("avx512f"))
        return best_of(peak_avx512);
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? best_of(peak_avx2) : 0;
}

#endif
