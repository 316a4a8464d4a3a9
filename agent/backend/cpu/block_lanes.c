#include "agent/backend/cpu/block_lanes.h"

#include <string.h>

/* Bytes of a block before and behind those that go by fours. */
struct odd_bytes {
    size_t head, tail;
};

static struct odd_bytes odd_bytes_of(enum dtype t)
{
    const struct dtype_info *info = dtype_info(t);
    size_t odd = info->block_bytes % 4;
    return info->block_elements == SUPERBLOCK_ELEMENTS ? (struct odd_bytes){0, odd}
                                                       : (struct odd_bytes){odd, 0};
}

/* Lane l of a block: the bytes of `row`. */
static void lane_put(struct odd_bytes odd, size_t bytes, size_t lanes, size_t l, const uint8_t *row,
                     uint8_t *block)
{
    memcpy(block + l * odd.head, row, odd.head);
    for (size_t i = odd.head; i + 4 <= bytes; i += 4)
        memcpy(block + i * lanes + l * 4, row + i, 4);
    memcpy(block + (bytes - odd.tail) * lanes + l * odd.tail, row + bytes - odd.tail, odd.tail);
}

void block_lanes_put(enum dtype t, size_t lanes, const uint8_t *rows, size_t row_bytes,
                     size_t n_blocks, uint8_t *out)
{
    size_t bytes = dtype_info(t)->block_bytes;
    struct odd_bytes odd = odd_bytes_of(t);
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t l = 0; l < lanes; l++)
            lane_put(odd, bytes, lanes, l, rows + l * row_bytes + b * bytes,
                     out + b * lanes * bytes);
}
