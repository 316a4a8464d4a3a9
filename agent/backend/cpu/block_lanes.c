#include "agent/backend/cpu/block_lanes.h"

#include <string.h>

/* How the bytes of a block are taken: the odd ones, then by fours, a stretch after the other. */
struct block_order {
    size_t bytes, odd, odd_at, fours_at;
    struct {
        size_t first, count; /* fours */
    } stretches[5];
};

static struct block_order order_of(enum dtype t)
{
    size_t bytes = dtype_info(t)->block_bytes, odd = bytes % 4;
    switch (t) {
    case DTYPE_Q2_K: return (struct block_order){bytes, 0, 0, 0, {{20, 1}, {0, 20}}};
    case DTYPE_Q3_K: return (struct block_order){bytes, odd, bytes - odd, 0, {{24, 3}, {0, 24}}};
    case DTYPE_Q6_K:
        return (struct block_order){
            bytes, odd, bytes - odd, 0, {{48, 4}, {32, 8}, {0, 16}, {40, 8}, {16, 16}}};
    default: return (struct block_order){bytes, odd, 0, odd, {{0, bytes / 4}}};
    }
}

/* Lane l of a block: the bytes of `row`. */
static void lane_put(const struct block_order *o, size_t lanes, size_t l, const uint8_t *row,
                     uint8_t *block)
{
    memcpy(block + l * o->odd, row + o->odd_at, o->odd);
    block += o->odd * lanes + l * 4;
    for (size_t s = 0; s < sizeof o->stretches / sizeof *o->stretches; s++) {
        const uint8_t *from = row + o->fours_at + o->stretches[s].first * 4;
        for (size_t i = 0; i < o->stretches[s].count; i++, block += lanes * 4)
            memcpy(block, from + i * 4, 4);
    }
}

void block_lanes_put(enum dtype t, size_t lanes, const uint8_t *rows, size_t n_rows,
                     size_t row_bytes, size_t n_blocks, uint8_t *out)
{
    struct block_order o = order_of(t);
    if (n_rows < lanes)
        memset(out, 0, n_blocks * lanes * o.bytes);
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t l = 0; l < n_rows; l++)
            lane_put(&o, lanes, l, rows + l * row_bytes + b * o.bytes, out + b * lanes * o.bytes);
}

void plain_side_put(size_t piece, size_t lanes, const uint8_t *rows, size_t n_rows,
                    size_t row_bytes, uint8_t *out)
{
    if (n_rows < lanes)
        memset(out, 0, lanes * row_bytes);
    for (size_t at = 0; at < row_bytes; at += piece)
        for (size_t r = 0; r < n_rows; r++)
            memcpy(out + at * lanes + r * piece, rows + r * row_bytes + at, piece);
}
