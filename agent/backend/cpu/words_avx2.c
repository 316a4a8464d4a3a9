/* Products by 16-bit integers for AVX2. */
#include "agent/backend/cpu/words_256.inc"

#define WORDS words_avx2
#define i_dot(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))

#include "agent/backend/cpu/words_simd.inc"
