/* Products with weights in blocks for AMX: those of many rows by tiles of 8-bit integers,
 * everything else as with AVX-512. The sums of a run are the same integers, and the rest is
 * computed in the same order, so that results are to the bit those of blocks_avx512.c. */
#include <immintrin.h>

#include "agent/backend/cpu/blocks.h"

#define BLOCKS blocks_amx
#define SIGNED_AS_IS 0

#include "agent/backend/cpu/blocks_simd.inc"

#define FEW_REGISTERS 0
#include "agent/backend/cpu/blocks_512.inc"

#define PANEL_SIDES 2
#define PANEL_ROWS BLOCK_TILE
#define PANEL_PRODUCTS "agent/backend/cpu/blocks_tiles.inc"

#include "agent/backend/cpu/blocks_vnni.inc"
