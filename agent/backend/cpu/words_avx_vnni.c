/* Products by 16-bit integers for CPUs that have VNNI in vectors of 256 bits and no AVX-512. */
#include "agent/backend/cpu/words_256.inc"

#define WORDS words_avx_vnni
#define i_dot _mm256_dpwssd_avx_epi32

#include "agent/backend/cpu/words_simd.inc"
