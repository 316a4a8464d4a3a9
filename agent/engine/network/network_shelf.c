#include "agent/engine/network/network_shelf.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/vector.h"

struct shelf_block {
    uint64_t hash;
    size_t bytes;
    void *data;
    bool used;
};

struct network_shelf {
    struct shelf_block *blocks, *arenas;
    int n_blocks, room_blocks, n_arenas, room_arenas;
};

struct network_shelf *network_shelf_create(void)
{
    return calloc(1, sizeof(struct network_shelf));
}

void network_shelf_destroy(struct network_shelf **self)
{
    struct network_shelf *s = *self;
    *self = NULL;
    if (!s)
        return;
    for (int i = 0; i < s->n_blocks; i++)
        free(s->blocks[i].data);
    for (int i = 0; i < s->n_arenas; i++)
        free(s->arenas[i].data);
    free(s->blocks);
    free(s->arenas);
    free(s);
}

const void *network_shelf_keep(struct network_shelf *s, void *data, size_t bytes)
{
    struct shelf_block b = {.hash = XXH3_64bits(data, bytes), .bytes = bytes, .data = data};
    for (int i = 0; i < s->n_blocks; i++)
        if (s->blocks[i].hash == b.hash && s->blocks[i].bytes == bytes &&
            memcmp(s->blocks[i].data, data, bytes) == 0) {
            free(data);
            return s->blocks[i].data;
        }
    if (vector_push(s->blocks, s->n_blocks, s->room_blocks, b))
        return data;
    free(data);
    return NULL;
}

void network_shelf_use(struct network_shelf *s, const void *data)
{
    for (int i = 0; i < s->n_blocks; i++)
        s->blocks[i].used |= s->blocks[i].data == data;
}

void network_shelf_trim(struct network_shelf *s)
{
    int kept = 0;
    for (int i = 0; i < s->n_blocks; i++) {
        struct shelf_block b = s->blocks[i];
        if (b.used) {
            b.used = false;
            s->blocks[kept++] = b;
        } else {
            free(b.data);
        }
    }
    s->n_blocks = kept;
}

void *network_shelf_arena(struct network_shelf *s, uint64_t bytes)
{
    for (int i = 0; i < s->n_arenas; i++)
        if (s->arenas[i].bytes >= bytes)
            return s->arenas[i].data;
    struct shelf_block b = {.bytes = bytes, .data = aligned_alloc(64, bytes)};
    if (b.data && vector_push(s->arenas, s->n_arenas, s->room_arenas, b))
        return b.data;
    free(b.data);
    return NULL;
}

uint64_t network_shelf_bytes(const struct network_shelf *s)
{
    uint64_t bytes = 0;
    for (int i = 0; i < s->n_blocks; i++)
        bytes += s->blocks[i].bytes;
    for (int i = 0; i < s->n_arenas; i++)
        bytes += s->arenas[i].bytes;
    return bytes;
}
