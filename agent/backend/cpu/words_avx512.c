/* Products by 16-bit integers for AVX-512 with VNNI and without bf16. */
#include <immintrin.h>

#define WORDS words_avx512
#define LANES 16
#define IVEC __m512i
#define FVEC __m512
#define i_load(p) _mm512_loadu_si512(p)
#define i_set32 _mm512_set1_epi32
#define i_zero _mm512_setzero_si512
#define i_dot _mm512_dpwssd_epi32
#define f_load _mm512_loadu_ps
#define f_store _mm512_storeu_ps
#define f_zero _mm512_setzero_ps
#define f_set1 _mm512_set1_ps
#define f_mul _mm512_mul_ps
#define f_fma _mm512_fmadd_ps
#define f_of_ints _mm512_cvtepi32_ps

#include "agent/backend/cpu/words_simd.inc"
