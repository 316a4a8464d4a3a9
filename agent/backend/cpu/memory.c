/* The CPU's memory: what counts against the device's limit, and scratch. */
#include <stdlib.h>
#include <sys/mman.h>

#include "agent/backend/cpu/cpu_int.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Where so many are used. */
static uint64_t memory_left_beside(const struct cpu_device *d, uint64_t used)
{
    if (!d->limit_bytes)
        return UINT64_MAX;
    used += atomic_load(&d->inputs_bytes) + atomic_load(&d->gathered_bytes) +
            atomic_load(&d->private_bytes) * (unsigned)threads_count(d->threads);
    return d->limit_bytes > used ? d->limit_bytes - used : 0;
}

uint64_t cpu_memory_left(const struct device *device)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    return memory_left_beside(d, atomic_load(&d->used_bytes));
}

/* Others may do so at once. */
int cpu_memory_reserve(struct cpu_device *d, uint64_t bytes, const char *what, struct err *e)
{
    unsigned long long used = atomic_load(&d->used_bytes);
    do {
        uint64_t left = memory_left_beside(d, used);
        if (bytes > left)
            return err_set(e, HP_ENOMEM,
                           "%s needs %llu bytes, and %llu of the limit of %llu are left: %llu "
                           "bytes are missing",
                           what, (unsigned long long)bytes, (unsigned long long)left,
                           (unsigned long long)d->limit_bytes, (unsigned long long)(bytes - left));
    } while (!atomic_compare_exchange_weak(&d->used_bytes, &used, used + bytes));
    return 0;
}

int cpu_device_memory_reserve(struct device *device, uint64_t bytes, const char *what,
                              struct err *e)
{
    return cpu_memory_reserve((struct cpu_device *)device, bytes, what, e);
}

void cpu_device_memory_unreserve(struct device *device, uint64_t bytes)
{
    atomic_fetch_sub(&((struct cpu_device *)device)->used_bytes, bytes);
}

int cpu_memory_alloc(struct cpu_device *d, uint64_t bytes, const char *what, void **out,
                     struct err *e)
{
    int rc = cpu_memory_reserve(d, bytes, what, e);
    if (rc < 0)
        return rc;
    void *p =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        atomic_fetch_sub(&d->used_bytes, bytes);
        return err_set(e, HP_ENOMEM, "%s: the system has no %llu bytes of memory left", what,
                       (unsigned long long)bytes);
    }
    numa_take(d->numa, p, bytes);
    if (bytes >= HUGE_PAGE_BYTES)
        madvise(p, bytes, MADV_HUGEPAGE);
    *out = p;
    return 0;
}

void cpu_memory_free(struct cpu_device *d, void *p, uint64_t bytes)
{
    munmap(p, bytes ? bytes : 1);
    atomic_fetch_sub(&d->used_bytes, bytes);
}

static void scratch_count(struct cpu_device *d, const struct scratch *s)
{
    unsigned long long most = atomic_load(&d->private_bytes);
    if (s == &d->inputs)
        atomic_store(&d->inputs_bytes, s->bytes);
    else if (s == &d->gathered)
        atomic_store(&d->gathered_bytes, s->bytes);
    else
        while (s->bytes > most && !atomic_compare_exchange_weak(&d->private_bytes, &most, s->bytes))
            ;
}

void *scratch_get(struct cpu_device *d, struct scratch *s, size_t bytes)
{
    if (bytes <= s->bytes)
        return s->data;
    free(s->data);
    s->bytes = (bytes + 4095) / 4096 * 4096;
    s->data = aligned_alloc(4096, s->bytes);
    if (!s->data)
        s->bytes = 0;
    scratch_count(d, s);
    return s->data;
}

bool scratch_get_all(struct cpu_device *d, size_t bytes)
{
    bool all = true;
    for (int i = 0; i < threads_count(d->threads); i++)
        all = scratch_get(d, &d->private[i], bytes) != NULL && all;
    return all;
}

int cpu_device_memory_alloc(struct device *device, uint64_t bytes, struct memory *out,
                            struct err *e)
{
    struct memory m = {.bytes = bytes};
    int rc = cpu_memory_alloc((struct cpu_device *)device, bytes, "a tensor", &m.data, e);
    if (rc == 0)
        *out = m;
    return rc;
}

void cpu_device_memory_release(struct device *device, struct memory *m)
{
    if (m->data)
        cpu_memory_free((struct cpu_device *)device, m->data, m->bytes);
    *m = (struct memory){0};
}
