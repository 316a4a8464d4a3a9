/* How quantised matrices lie in memory for products of few rows: `lanes` rows of weights side by
 * side, four bytes of each, so that a vector has the same four bytes of as many outputs, a scale of
 * each, and nothing is added across lanes. Same bytes, and as many but for a last group that rows
 * do not fill, which has zeros for those that it lacks.
 *
 * Group g lies at g * lanes * row_bytes. In a group block b of all its rows is at
 * b * lanes * block_bytes: first the odd bytes of all rows, where a block's bytes are no multiple
 * of four (all of them scale the block), then quads, four bytes of all rows, in the order in which
 * a product reads them: a row's as in the file but for Q2_K, Q3_K and Q6_K, whose scales come first
 * and whose high bits come before the low ones that they belong to. Memory that is read from one
 * end to the other is read several times as fast. */
#ifndef HP_AGENT_BACKEND_CPU_BLOCK_LANES_H
#define HP_AGENT_BACKEND_CPU_BLOCK_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "model/dtype/dtype.h"

enum { BLOCK_LANES_MAX = 16 };

/* A group of n_rows rows, at most `lanes`, of n_blocks blocks each, row_bytes apart, into `out`. */
void block_lanes_put(enum dtype t, size_t lanes, const uint8_t *rows, size_t n_rows,
                     size_t row_bytes, size_t n_blocks, uint8_t *out);
/* The same for rows of plain formats: `piece` bytes of each of `lanes` rows in turn; row_bytes is a
 * multiple of piece. */
void plain_side_put(size_t piece, size_t lanes, const uint8_t *rows, size_t n_rows,
                    size_t row_bytes, uint8_t *out);
/* Rows that lie in memory for so many. */
static inline size_t block_lanes_rows(size_t lanes, size_t rows)
{
    return (rows + lanes - 1) / lanes * lanes;
}

#endif
