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

#define LANES 8
#define IVEC __m256i
#define FVEC __m256
#define i_load load32
#define i_and _mm256_and_si256
#define i_or _mm256_or_si256
#define i_and_or(a, b, c) _mm256_or_si256(_mm256_and_si256(a, b), c)
#define i_xor _mm256_xor_si256
#define i_shr _mm256_srli_epi32
#define i_shl _mm256_slli_epi32
#define i_set8(byte) _mm256_set1_epi8((char)(byte))
#define i_set32 _mm256_set1_epi32
#define i_looked_up looked_up
#define f_load _mm256_loadu_ps
#define f_store _mm256_storeu_ps
#define f_zero _mm256_setzero_ps
#define f_set1 _mm256_set1_ps
#define f_add _mm256_add_ps
#define f_mul _mm256_mul_ps
#define f_fma _mm256_fmadd_ps
#define f_fnma _mm256_fnmadd_ps
#define f_of_ints _mm256_cvtepi32_ps

/* Bits 0 to 3, each spread by the product to the place of 16 in a byte. */
INLINE __m256i i_fifths(__m256i bits, int quad)
{
    __m256i four = _mm256_and_si256(_mm256_srli_epi32(bits, 4 * quad), _mm256_set1_epi32(0xf));
    return _mm256_and_si256(_mm256_mullo_epi32(four, _mm256_set1_epi32(0x02040810)),
                            _mm256_set1_epi8(16));
}

INLINE __m256 f_halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE __m256 f_low_halves(__m256i lanes)
{
    __m256i low = _mm256_and_si256(lanes, _mm256_set1_epi32(0xffff)),
            packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}

/* Halves of powers of two, of which the two least are subnormal. */
INLINE __m256 f_powers(const uint8_t *p)
{
    return eight_powers(p, 1);
}

/* How many sums of two products fit into 16 bits together. */
INLINE int pairs_together(enum dtype t)
{
    switch (t) {
    case DTYPE_Q8_0:
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS: return 1;
    case DTYPE_Q6_K: return 2;
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q5_K: return 4;
    default: return 8;
    }
}

/* Sums of products of n quads, and of four inputs for each that all lanes share. */
INLINE __m256i quads_dot(enum dtype t, const __m256i *w, int n, const int8_t *x)
{
    __m256i sum = _mm256_setzero_si256(), pairs = sum;
    UNROLLED for (int j = 0; j < n; j++)
    {
        int four;
        memcpy(&four, x + 4 * j, sizeof four);
        __m256i in = _mm256_set1_epi32(four),
                two = is_signed(t) ? _mm256_maddubs_epi16(_mm256_sign_epi8(w[j], w[j]),
                                                          _mm256_sign_epi8(in, w[j]))
                                   : _mm256_maddubs_epi16(w[j], in);
        pairs = j % pairs_together(t) ? _mm256_add_epi16(pairs, two) : two;
        if ((j + 1) % pairs_together(t) == 0 || j + 1 == n) {
            __m256i four_wide = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            sum = j < pairs_together(t) ? four_wide : _mm256_add_epi32(sum, four_wide);
        }
    }
    return sum;
}

#include "agent/backend/cpu/blocks_lanes.inc"
