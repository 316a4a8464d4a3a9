/* Memory of a device, counted against its limit. */
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"

int cuda_fail(int code, const struct cuda_device *d, const char *what, struct err *e)
{
    return err_set(e, code == GPU_NO_MEMORY ? HP_ENOMEM : HP_EDEVICE,
                   "device %s: %s: %s (CUDA error %d)", d->title, what, gpu_error_text(code), code);
}

uint64_t cuda_memory_free(const struct device *device)
{
    const struct cuda_device *d = (const struct cuda_device *)device;
    uint64_t used = atomic_load(&d->used_bytes);
    return d->limit_bytes > used ? d->limit_bytes - used : 0;
}

static int memory_missing(const struct cuda_device *d, uint64_t bytes, uint64_t left,
                          const char *what, struct err *e)
{
    return err_set(e, HP_ENOMEM,
                   "device %s: %s needs %llu bytes, and %llu are left: %llu bytes are missing",
                   d->title, what, (unsigned long long)bytes, (unsigned long long)left,
                   (unsigned long long)(bytes > left ? bytes - left : bytes));
}

int cuda_memory_open(struct cuda_device *d, struct err *e)
{
    int rc = cuda_arena_open(&d->arena, d->limit_bytes);
    if (rc == GPU_NO_MEMORY)
        return memory_missing(d, d->limit_bytes, d->facts.free_bytes, "its memory", e);
    return rc ? cuda_fail(rc, d, "its memory", e) : 0;
}

/* There are as many bytes, but no gap between what is taken has so many. */
static int memory_scattered(struct cuda_device *d, uint64_t bytes, const char *what, struct err *e)
{
    uint64_t most = d->arena.apart ? 0 : cuda_arena_largest(&d->arena);
    if (most >= bytes) /* the host's is short */
        return err_set(e, HP_ENOMEM, "device %s: no memory to note %s", d->title, what);
    return err_set(e, HP_ENOMEM,
                   "device %s: %s needs %llu bytes in one piece, and the largest that is left of "
                   "%llu has %llu: %llu bytes are missing",
                   d->title, what, (unsigned long long)bytes,
                   (unsigned long long)cuda_memory_free(&d->base), (unsigned long long)most,
                   (unsigned long long)(bytes - most));
}

/* Counted before it is taken: owner and loader may do so at once. */
static bool memory_count(struct cuda_device *d, uint64_t bytes)
{
    if (atomic_fetch_add(&d->used_bytes, bytes) + bytes <= d->limit_bytes)
        return true;
    atomic_fetch_sub(&d->used_bytes, bytes);
    return false;
}

int cuda_take(struct cuda_device *d, uint64_t bytes, const char *what, void **out, struct err *e)
{
    bytes = bytes ? bytes : 1;
    uint64_t whole = cuda_steps_bytes(bytes);
    if (!memory_count(d, whole))
        return memory_missing(d, whole, cuda_memory_free(&d->base), what, e);
    int rc = gpu_use(d->ordinal);
    rc = rc ? rc : cuda_arena_take(&d->arena, bytes, out);
    if (rc == 0)
        return 0;
    atomic_fetch_sub(&d->used_bytes, whole);
    *out = NULL;
    return rc == GPU_NO_MEMORY ? memory_scattered(d, whole, what, e) : cuda_fail(rc, d, what, e);
}

void cuda_give(struct cuda_device *d, void *p, uint64_t bytes)
{
    bytes = bytes ? bytes : 1;
    uint64_t whole = cuda_steps_bytes(bytes);
    if (!p)
        return;
    gpu_use(d->ordinal);
    cuda_arena_give(&d->arena, p, bytes);
    atomic_fetch_sub(&d->used_bytes, whole);
}

uint64_t cuda_host_free(const struct cuda_device *d)
{
    uint64_t used = atomic_load(&d->host_used_bytes);
    return d->host_limit_bytes > used ? d->host_limit_bytes - used : 0;
}

bool cuda_host_take(struct cuda_device *d, uint64_t bytes, void **out)
{
    bool within = atomic_fetch_add(&d->host_used_bytes, bytes) + bytes <= d->host_limit_bytes;
    if (within && gpu_use(d->ordinal) == 0 && gpu_host_alloc(out, bytes) == 0)
        return true;
    atomic_fetch_sub(&d->host_used_bytes, bytes);
    return false;
}

void cuda_host_give(struct cuda_device *d, void *p, uint64_t bytes)
{
    gpu_use(d->ordinal);
    gpu_host_free(p);
    atomic_fetch_sub(&d->host_used_bytes, bytes);
}

int cuda_upload(struct cuda_device *d, void *to, const void *from, uint64_t bytes, struct err *e)
{
    pthread_mutex_lock(&d->load_lock);
    int rc = gpu_use(d->ordinal);
    rc = rc     ? rc
         : from ? gpu_copy(d->load_stream, GPU_TO_DEVICE, to, bytes, from, bytes, bytes, 1)
                : gpu_zero(d->load_stream, to, bytes);
    rc = rc ? rc : gpu_stream_wait(d->load_stream);
    pthread_mutex_unlock(&d->load_lock);
    return rc ? cuda_fail(rc, d, "writing to its memory", e) : 0;
}

int cuda_memory_alloc(struct device *device, uint64_t bytes, struct memory *out, struct err *e)
{
    struct cuda_device *d = (struct cuda_device *)device;
    void *data = NULL;
    int rc = cuda_take(d, bytes, "a tensor", &data, e);
    if (rc == 0 && (rc = cuda_upload(d, data, NULL, bytes, e)) < 0)
        cuda_give(d, data, bytes);
    if (rc == 0)
        *out = (struct memory){data, bytes};
    return rc;
}

void cuda_memory_release(struct device *d, struct memory *m)
{
    cuda_give((struct cuda_device *)d, m->data, m->bytes);
    *m = (struct memory){0};
}

void cuda_room_free(struct cuda_room *r)
{
    if (r->device)
        gpu_free(r->device);
    if (r->host)
        gpu_host_free(r->host);
    *r = (struct cuda_room){0};
}

/* Nothing is waited for or allocated while steps are kept. */
static bool room_may_move(struct cuda_stream *s)
{
    if (s->keeps)
        cuda_note(s, GPU_NO_MEMORY);
    return !s->keeps;
}

bool cuda_room_want(struct cuda_stream *s, struct cuda_room *r, size_t bytes, bool staged)
{
    size_t more = bytes + bytes / 2;
    if (bytes <= r->bytes)
        return true;
    if (!room_may_move(s))
        return false;
    cuda_note(s, gpu_stream_wait(s->stream));
    cuda_room_free(r);
    int rc = gpu_alloc(&r->device, more);
    if (!rc && staged)
        rc = gpu_host_alloc(&r->host, more);
    if (rc) {
        cuda_room_free(r);
        cuda_note(s, rc);
        return false;
    }
    r->bytes = more;
    return true;
}

void cuda_room_give(struct cuda_stream *s, struct cuda_room *r)
{
    cuda_give(s->device, r->device, r->bytes);
    *r = (struct cuda_room){0};
}

bool cuda_room_take(struct cuda_stream *s, struct cuda_room *r, size_t bytes)
{
    struct err e = {0};
    if (bytes <= r->bytes)
        return true;
    if (!room_may_move(s))
        return false;
    cuda_note(s, gpu_stream_wait(s->stream));
    cuda_room_give(s, r);
    s->moved++;
    if (cuda_take(s->device, bytes, "a product", &r->device, &e) < 0) {
        cuda_note(s, e.code == HP_ENOMEM ? GPU_NO_MEMORY : gpu_launched());
        cuda_note(s, GPU_LOST); /* where nothing is known of why */
        return false;
    }
    r->bytes = bytes;
    return true;
}
