/* Products with weights in blocks for AMX: those of many rows by tiles of 8-bit integers, several
 * tiles of rows at once, everything else as with AVX-512. The sums of a run are the same integers,
 * and the rest is computed in the same order, so that results are to the bit those of
 * blocks_avx512.c. */
#include <immintrin.h>

#include "agent/backend/cpu/blocks.h"

#define BLOCKS blocks_amx
#define SIGNED_AS_IS 0

#include "agent/backend/cpu/blocks_simd.inc"

#define FEW_REGISTERS 0
#include "agent/backend/cpu/blocks_512.inc"

/* Bytes of panels have a sign where the format has no least values, and none where it has: weights
 * lose what they are too great by when their panel is made. */
INLINE int panel_bias(enum dtype t)
{
    return -byte_offset(t);
}

#define panel_has_sign(t) (!has_least(t))

/* Rows lie one after the other. */
#define tile_values_put(out, r, bytes)                                                             \
    _mm256_storeu_si256((__m256i *)(void *)((uint8_t *)(out)->values + (size_t)(r)*BLOCK_RUN),     \
                        bytes)
#define tile_values_get(run, r)                                                                    \
    _mm256_loadu_si256(                                                                            \
        (const __m256i *)(const void *)((const uint8_t *)(run)->values + (size_t)(r)*BLOCK_RUN))

#define PANEL_SIDES 2
#define PANEL_PRODUCTS "agent/backend/cpu/blocks_tiles.inc"

#include "agent/backend/cpu/blocks_vnni.inc"
