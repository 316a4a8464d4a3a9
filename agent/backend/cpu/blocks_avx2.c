/* Products with weights in blocks for AVX2. */
#include <immintrin.h>

#include "agent/backend/cpu/blocks.h"

#define BLOCKS blocks_avx2
#define SIGNED_AS_IS 1

/* Lane i: the sum of products of bytes 4 i to 4 i + 3. Pairs of products are added in 16 bits,
 * which is enough for 128 times 127 twice: signed weights give their signs to the inputs. */
static inline __attribute__((always_inline)) __m256i run_dot(bool is_signed, __m256i w, __m256i x)
{
    __m256i pairs = is_signed ? _mm256_maddubs_epi16(_mm256_sign_epi8(w, w), _mm256_sign_epi8(x, w))
                              : _mm256_maddubs_epi16(w, x);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

#include "agent/backend/cpu/blocks_simd.inc"
