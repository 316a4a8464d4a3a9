/* How quantised matrices lie in memory for products of few rows: `lanes` rows of weights side by
 * side, four bytes of each, so that a vector has the same four bytes of as many outputs, a scale of
 * each, and nothing is added across lanes. Same bytes, same number of them.
 *
 * Rows [0, rows / lanes * lanes) lie in groups of `lanes`, group g at g * lanes * row_bytes; rows
 * that are left over lie behind them as in the file. In a group block b of all its rows is at
 * b * lanes * block_bytes. There, bytes 4 j to 4 j + 3 of row l are at (j * lanes + l) * 4, behind
 * the odd bytes of all rows, where a block of 32 has such (the halves or bytes that scale Q8_0,
 * Q4_0, Q5_0, IQ4_NL, MXFP4); in superblocks (Q3_K, Q6_K) the odd bytes come last. */
#ifndef HP_AGENT_BACKEND_CPU_BLOCK_LANES_H
#define HP_AGENT_BACKEND_CPU_BLOCK_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "model/dtype/dtype.h"

enum { BLOCK_LANES_MAX = 16 };

/* A group of `lanes` rows of n_blocks blocks each, row_bytes apart, into `out`. */
void block_lanes_put(enum dtype t, size_t lanes, const uint8_t *rows, size_t row_bytes,
                     size_t n_blocks, uint8_t *out);

#endif
