/* Products with weights in blocks for AVX-512 with VNNI. */
#include <immintrin.h>

#include "agent/backend/cpu/blocks.h"

#define BLOCKS blocks_avx512
#define SIGNED_AS_IS 0

#include "agent/backend/cpu/blocks_simd.inc"

#define FEW_REGISTERS 0
#include "agent/backend/cpu/blocks_512.inc"

#define PANEL_SIDES 2
#define PANEL_ROWS 6

#define DIRECT_MAKERS DIRECT_MAKER(q4_k, DTYPE_Q4_K)
#define DIRECT_MAKE_TABLE                                                                          \
    {                                                                                              \
        [DTYPE_Q4_K] = direct_make_q4_k                                                            \
    }
#define DIRECT_DOTS                                                                                \
    DIRECT_DOT(q8_0, DTYPE_Q8_0)                                                                   \
    DIRECT_DOT(q4_k, DTYPE_Q4_K)
#define DIRECT_TABLE                                                                               \
    {                                                                                              \
        [DTYPE_Q8_0] = direct_dot_q8_0, [DTYPE_Q4_K] = direct_dot_q4_k                             \
    }

#include "agent/backend/cpu/blocks_vnni.inc"
