/* Weights on their way to the GPU. What anybody has allocated, pages of a file most of all, goes
 * there at a tenth of the bus's rate if the driver copies it: threads bring it, piece by piece, to
 * memory that the GPU reads by itself, while it reads the pieces before. */
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"
#include "common/spread.h"

enum { PIECE_BYTES = 4 << 20, PIECES_EACH = CUDA_PIECES / CUDA_CARRIERS };

struct carriage {
    struct cuda_device *device;
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
    atomic_ullong next; /* byte that nobody has taken */
    atomic_int failed;
};

static int piece_carry(struct carriage *u, struct cuda_piece *p, uint64_t at)
{
    struct cuda_device *d = u->device;
    uint64_t left = u->bytes - at, n = left < PIECE_BYTES ? left : PIECE_BYTES;
    int rc = p->going ? gpu_event_wait(p->read) : 0;
    if (rc)
        return rc;
    memcpy(p->host, u->from + at, n);
    rc = gpu_copy(d->load_stream, GPU_TO_DEVICE, u->to + at, n, p->host, n, n, 1);
    rc = rc ? rc : gpu_event_record(p->read, d->load_stream);
    p->going = rc == 0;
    return rc;
}

static void pieces_carry(void *ctx, int carrier)
{
    struct carriage *u = ctx;
    struct cuda_piece *own = &u->device->pieces[carrier * PIECES_EACH];
    int rc = gpu_use(u->device->ordinal), turn = 0;
    while (!rc && !atomic_load(&u->failed)) {
        uint64_t at = atomic_fetch_add(&u->next, PIECE_BYTES);
        if (at >= u->bytes)
            break;
        rc = piece_carry(u, &own[turn++ % PIECES_EACH], at);
    }
    if (rc)
        atomic_store(&u->failed, rc);
}

/* Of how many threads they are there. */
static int pieces_have(struct cuda_device *d, int carriers)
{
    for (int i = 0; i < carriers * PIECES_EACH; i++) {
        struct cuda_piece *p = &d->pieces[i];
        if ((!p->read && gpu_event_create(&p->read) != 0) ||
            (!p->host && gpu_host_alloc(&p->host, PIECE_BYTES) != 0))
            return i / PIECES_EACH;
    }
    return carriers;
}

void cuda_pieces_free(struct cuda_device *d)
{
    for (int i = 0; i < CUDA_PIECES; i++) {
        if (d->pieces[i].read)
            gpu_event_destroy(d->pieces[i].read);
        if (d->pieces[i].host)
            gpu_host_free(d->pieces[i].host);
        d->pieces[i] = (struct cuda_piece){0};
    }
}

/* CUDA's error; all copies are over. */
static int threads_carry(struct cuda_device *d, void *to, const void *from, uint64_t bytes,
                         int carriers)
{
    struct carriage u = {.device = d, .to = to, .from = from, .bytes = bytes};
    spread_run(carriers, pieces_carry, &u);
    int rc = gpu_stream_wait(d->load_stream), failed = atomic_load(&u.failed);
    for (int i = 0; i < CUDA_PIECES; i++)
        d->pieces[i].going = false;
    return failed ? failed : rc;
}

int cuda_upload(struct cuda_device *d, void *to, const void *from, uint64_t bytes, struct err *e)
{
    uint64_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    pthread_mutex_lock(&d->load_lock);
    int rc = gpu_use(d->ordinal);
    int carriers = rc || pieces < 2 ? 0 : pieces_have(d, spread_threads(CUDA_CARRIERS, pieces));
    if (!rc && carriers > 0) {
        rc = threads_carry(d, to, from, bytes, carriers);
    } else {
        rc = rc ? rc : gpu_copy(d->load_stream, GPU_TO_DEVICE, to, bytes, from, bytes, bytes, 1);
        rc = rc ? rc : gpu_stream_wait(d->load_stream);
    }
    pthread_mutex_unlock(&d->load_lock);
    return rc ? cuda_fail(rc, d, "writing to its memory", e) : 0;
}
