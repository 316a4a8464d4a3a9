/* Products with weights in blocks for AVX-512 with VNNI, 32 bytes at once: as fast as 64 where a
 * vector of 64 takes two turns, and every format's runs are of 32. */
#include <immintrin.h>

#include "agent/backend/cpu/blocks.h"

#define BLOCKS blocks_avx512
#define SIGNED_AS_IS 0

/* Lane i: the sum of products of bytes 4 i to 4 i + 3, weights unsigned. */
static inline __attribute__((always_inline)) __m256i run_dot(bool is_signed, __m256i w, __m256i x)
{
    (void)is_signed; /* such weights came with 128 more */
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, x);
}

#include "agent/backend/cpu/blocks_simd.inc"
