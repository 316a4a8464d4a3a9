/* A device's memory: taken of the GPU once, when the device is opened, and given out in parts, each
 * in the first gap that has room. So what the device may use is there from then on, whatever others
 * take of the GPU later, and neither loading nor unloading makes the GPU wait. */
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"
#include "common/vector.h"

/* Each allocation by itself: tools that look at the accesses of kernels (compute-sanitizer) then
 * know where each ends. */
static bool parts_are_apart(void)
{
    const char *said = getenv("HP_TEST_CUDA_APART");
    return said && strcmp(said, "1") == 0;
}

void cuda_arena_init(struct cuda_arena *a)
{
    pthread_mutex_init(&a->lock, NULL);
}

int cuda_arena_open(struct cuda_arena *a, uint64_t bytes)
{
    a->apart = parts_are_apart();
    if (a->apart)
        return 0;
    void *base = NULL;
    int rc = gpu_arena_create(&base, cuda_steps_bytes(bytes), &a->stretch);
    a->base = base;
    a->bytes = cuda_steps_bytes(bytes);
    return rc;
}

void cuda_arena_fini(struct cuda_arena *a)
{
    if (a->base)
        gpu_free(a->base);
    free(a->parts);
    pthread_mutex_destroy(&a->lock);
}

/* Where the gap before part i begins, and its bytes; i == a->n: the last one. */
static uint64_t gap_at(const struct cuda_arena *a, size_t i, uint64_t *bytes)
{
    uint64_t from = i ? a->parts[i - 1].at + a->parts[i - 1].bytes : 0;
    *bytes = (i < a->n ? a->parts[i].at : a->bytes) - from;
    return from;
}

static bool part_insert(struct cuda_arena *a, size_t i, uint64_t at, uint64_t bytes)
{
    if (!vector_reserve(a->parts, a->room, a->n + 1))
        return false;
    memmove(a->parts + i + 1, a->parts + i, (a->n - i) * sizeof *a->parts);
    a->parts[i] = (struct cuda_arena_part){at, bytes};
    a->n++;
    return true;
}

static int part_find(struct cuda_arena *a, uint64_t bytes, void **out)
{
    uint64_t whole = cuda_steps_bytes(bytes), room;
    for (size_t i = 0; i <= a->n; i++) {
        uint64_t at = gap_at(a, i, &room);
        if (room < whole)
            continue;
        *out = a->base + at * a->stretch;
        int rc = gpu_arena_take(*out, bytes);
        if (rc == 0 && !part_insert(a, i, at, whole)) {
            gpu_arena_give(*out, bytes);
            rc = GPU_NO_MEMORY;
        }
        return rc;
    }
    return GPU_NO_MEMORY;
}

int cuda_arena_take(struct cuda_arena *a, uint64_t bytes, void **out)
{
    if (a->apart)
        return gpu_alloc(out, bytes);
    pthread_mutex_lock(&a->lock);
    int rc = part_find(a, bytes, out);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

void cuda_arena_give(struct cuda_arena *a, void *p, uint64_t bytes)
{
    if (a->apart) {
        gpu_free(p); /* of a device that is lost: so is this */
        return;
    }
    uint64_t at = (uint64_t)((uint8_t *)p - a->base) / a->stretch;
    pthread_mutex_lock(&a->lock);
    size_t i = 0;
    while (i < a->n && a->parts[i].at != at)
        i++;
    if (i < a->n) {
        gpu_arena_give(p, bytes);
        vector_remove(a->parts, a->n, i);
    }
    pthread_mutex_unlock(&a->lock);
}

uint64_t cuda_arena_largest(struct cuda_arena *a)
{
    uint64_t most = 0, room;
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i <= a->n; i++) {
        gap_at(a, i, &room);
        most = room > most ? room : most;
    }
    pthread_mutex_unlock(&a->lock);
    return most;
}
