#include "agent/engine/network/network_device.h"

#include <stdlib.h>
#include <xxhash.h>

#include "common/vector.h"

struct network_kept {
    const void *data; /* of the host, from which it came first */
    uint64_t bytes, hash;
    bool stays; /* known by where it lies, else by its hash */
    struct memory there;
};

int network_device_open(struct device *device, int part, int parts, struct network_device **out,
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
    b->loader_enter(device);
    int rc = d->arrays->stream_create(device, part, parts, &d->stream, e);
    if (rc < 0)
        free(d);
    else
        *out = d;
    return rc;
}

void network_device_close(struct network_device **self)
{
    struct network_device *d = *self;
    *self = NULL;
    if (!d)
        return;
    d->backend->stream_destroy(&d->stream); /* and nothing is under way */
    for (int i = 0; i < d->n_kept; i++)
        d->backend->memory_release(d->device, &d->kept[i].there);
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

static const struct network_kept *kept_find(const struct network_device *d,
                                            const struct network_kept *wanted)
{
    for (int i = 0; i < d->n_kept; i++)
        if (d->kept[i].bytes == wanted->bytes && d->kept[i].stays == wanted->stays &&
            (wanted->stays ? d->kept[i].data == wanted->data : d->kept[i].hash == wanted->hash))
            return &d->kept[i];
    return NULL;
}

static int kept_add(struct network_device *d, struct network_kept *k, struct err *e)
{
    uint64_t room = backend_memory_bytes(d->backend, k->bytes);
    int rc = d->backend->memory_alloc(d->device, room, &k->there, e);
    if (rc < 0)
        return rc;
    if (!vector_push(d->kept, d->n_kept, d->room_kept, *k)) {
        d->backend->memory_release(d->device, &k->there);
        return err_no_memory(e, "a network's weights");
    }
    network_device_send(d, k->there.data, k->data, k->bytes);
    d->kept_bytes += k->there.bytes;
    return 0;
}

int network_device_keep(struct network_device *d, const void *data, uint64_t bytes, bool stays,
                        const void **out, struct err *e)
{
    struct network_kept own = {
        .data = data, .bytes = bytes, .stays = stays, .hash = stays ? 0 : XXH3_64bits(data, bytes)};
    const struct network_kept *had = kept_find(d, &own);
    int rc = had ? 0 : kept_add(d, &own, e);
    *out = had ? had->there.data : own.there.data;
    return rc;
}

uint64_t network_device_bytes(const struct network_device *d)
{
    return d ? d->arena.bytes + d->kept_bytes : 0;
}
