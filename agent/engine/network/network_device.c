#include "agent/engine/network/network_device.h"

#include <stdlib.h>
#include <xxhash.h>

#include "common/vector.h"

struct network_kept {
    const void *data; /* of the host, from which it came first; NULL: known by its hash alone */
    struct network_alike key;
    struct memory *there;
};

int network_device_open(struct device *device, int part, int parts,
                        const struct network_account *account, struct network_device **out,
                        struct err *e)
{
    const struct backend *b = device->backend;
    *out = NULL;
    if (!b->arrays)
        return err_set(e, HP_EUNSUPPORTED, "the %s backend runs no networks", b->name);
    struct network_device *d = calloc(1, sizeof *d);
    if (!d)
        return err_no_memory(e, "a device for a network");
    *d = (struct network_device){.device = device, .backend = b, .arrays = b->arrays};
    if (account)
        d->account = *account;
    b->loader_enter(device);
    int rc = d->arrays->stream_create(device, part, parts, &d->stream, e);
    if (rc < 0)
        free(d);
    else
        *out = d;
    return rc;
}

static void kept_release(void *ctx, void *made)
{
    struct device *device = ctx;
    struct memory *there = made;
    device->backend->memory_release(device, there);
    free(there);
}

static void kept_drop(const struct network_device *d, const struct network_kept *k)
{
    network_memory_drop(&d->account, &k->key, kept_release, d->device, k->there);
}

void network_device_clear(struct network_device *d)
{
    network_device_wait(d, &(struct err){0});
    while (d->n_kept > 0)
        kept_drop(d, &d->kept[--d->n_kept]);
    d->kept_bytes = 0;
}

void network_device_close(struct network_device **self)
{
    struct network_device *d = *self;
    *self = NULL;
    if (!d)
        return;
    d->backend->stream_destroy(&d->stream); /* and nothing is under way */
    while (d->n_kept > 0)
        kept_drop(d, &d->kept[--d->n_kept]);
    if (d->arena.data)
        d->backend->memory_release(d->device, &d->arena);
    free(d->kept);
    free(d);
}

int network_device_arena(struct network_device *d, uint64_t bytes, struct err *e)
{
    if (bytes <= d->arena.bytes)
        return 0;
    int rc = network_device_wait(d, e);
    if (rc == 0 && d->arena.data)
        d->backend->memory_release(d->device, &d->arena);
    return rc < 0 ? rc
                  : d->backend->memory_alloc(d->device, backend_memory_bytes(d->backend, bytes),
                                             &d->arena, e);
}

/* A run of bytes, as floats: they are copied and nothing else. */
static struct tensor bytes_there(void *data, uint64_t bytes)
{
    return tensor_rows((struct memory){data, bytes}, DTYPE_F32, 1, bytes / sizeof(float));
}

void network_device_send(struct network_device *d, void *to, const void *from, uint64_t bytes)
{
    const struct tensor here = tensor_on_host(from, DTYPE_F32, 1, bytes / sizeof(float)),
                        there = bytes_there(to, bytes);
    d->backend->copy(d->stream, &there, &here);
    d->sends = true;
}

void network_device_fetch(struct network_device *d, void *to, const void *from, uint64_t bytes)
{
    union {
        const void *in;
        void *out;
    } at = {from};
    const struct tensor here = tensor_on_host(to, DTYPE_F32, 1, bytes / sizeof(float)),
                        there = bytes_there(at.out, bytes);
    d->backend->copy(d->stream, &here, &there);
}

int network_device_wait(struct network_device *d, struct err *e)
{
    d->sends = false;
    return d->backend->stream_wait(d->stream, e);
}

/* ---- what is kept ---- */

static const struct network_kept *kept_find(const struct network_device *d,
                                            const struct network_kept *wanted)
{
    for (int i = 0; i < d->n_kept; i++) {
        const struct network_kept *k = &d->kept[i];
        if (k->key.bytes == wanted->key.bytes && k->data == wanted->data &&
            (wanted->data || k->key.hash == wanted->key.hash))
            return k;
    }
    return NULL;
}

/* A copy that is there when others hear of it. */
struct kept_copy {
    struct network_device *d;
    const void *data;
    uint64_t bytes;
};

static int kept_make(void *ctx, void **out, struct err *e)
{
    const struct kept_copy *c = ctx;
    struct network_device *d = c->d;
    struct memory *there = calloc(1, sizeof *there);
    if (!there)
        return err_no_memory(e, "a network's weights");
    int rc =
        d->backend->memory_alloc(d->device, backend_memory_bytes(d->backend, c->bytes), there, e);
    if (rc == 0) {
        network_device_send(d, there->data, c->data, c->bytes);
        rc = d->account.memory ? network_device_wait(d, e) : 0;
    }
    if (rc < 0)
        kept_release(d->device, there);
    else
        *out = there;
    return rc;
}

static int kept_add(struct network_device *d, struct network_kept *k, const void *data,
                    struct err *e)
{
    struct kept_copy copy = {d, data, k->key.bytes};
    void *made;
    int rc = network_memory_hold(&d->account, &k->key, 0, "weights", kept_make, &copy, &made, e);
    if (rc < 0)
        return rc;
    k->there = made;
    if (!vector_push(d->kept, d->n_kept, d->room_kept, *k)) {
        network_device_wait(d, &(struct err){0});
        kept_drop(d, k);
        return err_no_memory(e, "a network's weights");
    }
    d->kept_bytes += k->there->bytes;
    return 0;
}

int network_device_keep(struct network_device *d, const void *data, uint64_t bytes, bool stays,
                        const void **out, struct err *e)
{
    struct network_kept own = {.data = stays ? data : NULL, .key = {.bytes = bytes}};
    own.key.hash = stays ? 0 : XXH3_64bits(data, bytes);
    const struct network_kept *had = kept_find(d, &own);
    int rc = 0;
    if (!had) {
        own.key.hash = stays ? XXH3_64bits(data, bytes) : own.key.hash;
        rc = kept_add(d, &own, data, e);
    }
    *out = had ? had->there->data : rc == 0 ? own.there->data : NULL;
    return rc;
}

uint64_t network_device_bytes(const struct network_device *d)
{
    return d ? d->arena.bytes + d->kept_bytes : 0;
}
