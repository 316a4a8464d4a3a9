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
    int keeps;     /* how often it was kept */
    bool is_alike; /* the account's, which other networks may have */
    bool used;
};

struct network_shelf {
    struct network_account account;
    struct shelf_block *blocks, *arenas;
    int n_blocks, room_blocks, n_arenas, room_arenas;
};

struct network_shelf *network_shelf_create(const struct network_account *account)
{
    struct network_shelf *s = calloc(1, sizeof *s);
    if (s && account)
        s->account = *account;
    return s;
}

/* ---- blocks ---- */

static int data_take(void *ctx, void **out, struct err *e)
{
    (void)e;
    *out = ctx;
    return 0;
}

static void data_free(void *ctx, void *data)
{
    (void)ctx;
    free(data);
}

static void block_free(const struct network_shelf *s, const struct shelf_block *b)
{
    const struct network_alike key = {b->hash, b->bytes};
    if (b->is_alike) {
        network_memory_drop(&s->account, &key, data_free, NULL, b->data);
        return;
    }
    free(b->data);
    network_memory_give(&s->account, b->bytes);
}

/* The account's, where somebody has the same bytes already. */
static int block_hold(const struct network_shelf *s, struct shelf_block *b, struct err *e)
{
    static const char what[] = "packed weights";
    const struct network_alike key = {b->hash, b->bytes};
    void *there;
    int rc = network_memory_hold(&s->account, &key, b->bytes, what, data_take, b->data, &there, e);
    if (rc < 0)
        return rc;
    b->is_alike = there == b->data || memcmp(there, b->data, b->bytes) == 0;
    if (!b->is_alike) { /* of the same hash by chance */
        network_memory_drop(&s->account, &key, data_free, NULL, there);
        return network_memory_take(&s->account, b->bytes, what, e);
    }
    if (there != b->data)
        free(b->data);
    b->data = there;
    return 0;
}

static struct shelf_block *block_find(struct network_shelf *s, const struct shelf_block *b)
{
    for (int i = 0; i < s->n_blocks; i++)
        if (s->blocks[i].hash == b->hash && s->blocks[i].bytes == b->bytes &&
            memcmp(s->blocks[i].data, b->data, b->bytes) == 0)
            return &s->blocks[i];
    return NULL;
}

int network_shelf_keep(struct network_shelf *s, void *data, size_t bytes, const void **out,
                       struct err *e)
{
    struct shelf_block b = {
        .hash = XXH3_64bits(data, bytes), .bytes = bytes, .data = data, .keeps = 1};
    struct shelf_block *had = block_find(s, &b);
    if (had) {
        free(data);
        had->keeps++;
        *out = had->data;
        return 0;
    }
    int rc = block_hold(s, &b, e);
    if (rc < 0) {
        free(data);
    } else if (!vector_push(s->blocks, s->n_blocks, s->room_blocks, b)) {
        block_free(s, &b);
        rc = err_no_memory(e, "packed weights");
    }
    *out = rc == 0 ? b.data : NULL;
    return rc;
}

void network_shelf_drop(struct network_shelf *s, const void *data)
{
    int i = 0;
    while (i < s->n_blocks && s->blocks[i].data != data)
        i++;
    if (i == s->n_blocks || --s->blocks[i].keeps > 0)
        return;
    block_free(s, &s->blocks[i]);
    vector_remove(s->blocks, s->n_blocks, i);
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
            block_free(s, &b);
        }
    }
    s->n_blocks = kept;
}

/* ---- arenas ---- */

int network_shelf_arena(struct network_shelf *s, uint64_t bytes, void **out, struct err *e)
{
    static const char what[] = "values of batches";
    for (int i = 0; i < s->n_arenas; i++)
        if (s->arenas[i].bytes >= bytes) {
            *out = s->arenas[i].data;
            return 0;
        }
    int rc = network_memory_take(&s->account, bytes, what, e);
    if (rc < 0)
        return rc;
    struct shelf_block b = {.bytes = bytes, .data = aligned_alloc(64, bytes)};
    if (!b.data || !vector_push(s->arenas, s->n_arenas, s->room_arenas, b)) {
        free(b.data);
        network_memory_give(&s->account, bytes);
        return err_no_memory(e, "%s", what);
    }
    *out = b.data;
    return 0;
}

void network_shelf_arenas_free(struct network_shelf *s)
{
    while (s->n_arenas > 0) {
        const struct shelf_block *b = &s->arenas[--s->n_arenas];
        free(b->data);
        network_memory_give(&s->account, b->bytes);
    }
}

/* ---- all ---- */

void network_shelf_clear(struct network_shelf *s)
{
    while (s->n_blocks > 0)
        block_free(s, &s->blocks[--s->n_blocks]);
    network_shelf_arenas_free(s);
}

void network_shelf_destroy(struct network_shelf **self)
{
    struct network_shelf *s = *self;
    *self = NULL;
    if (!s)
        return;
    network_shelf_clear(s);
    free(s->blocks);
    free(s->arenas);
    free(s);
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
