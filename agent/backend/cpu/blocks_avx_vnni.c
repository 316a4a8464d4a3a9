/* Products with weights in blocks for CPUs that have VNNI in vectors of 256 bits and no AVX-512. */
#include <immintrin.h>

#include "agent/backend/cpu/blocks.h"

#define BLOCKS blocks_avx_vnni
#define SIGNED_AS_IS 0

#include "agent/backend/cpu/blocks_simd.inc"

#define FEW_REGISTERS 1
#include "agent/backend/cpu/blocks_256.inc"
#define PANEL_SIDES 2
#define PANEL_ROWS 6
#define i_zero _mm256_setzero_si256
#define i_add32 _mm256_add_epi32
#define i_dot _mm256_dpbusd_avx_epi32

#include "agent/backend/cpu/blocks_vnni.inc"
