/* Owns the agent's devices: an executor for each, on cores of its own. */
#include <pthread.h>
#include <sched.h>

#include "agent/engine/network/network_memory.h"
#include "agent/shell_int.h"
#include "common/host_limits.h"

/* ---- memory of a device that the data channel reaches ---- */

/* Threads of a transport have one GPU in use. */
enum memory_kind shell_devices_memory(const struct agent *a)
{
    enum memory_kind found = MEMORY_HOST;
    int n = 0;
    for (int i = 0; i < discover_device_count(&a->config.share); i++) {
        const struct backend *b = discover_device_at(&a->config.share, i).backend;
        if (b && b->memory_kind != MEMORY_HOST) {
            found = b->memory_kind;
            n++;
        }
    }
    return n == 1 && !a->config.direct_off ? found : MEMORY_HOST;
}

static bool share_has_gpu(const struct agent *a)
{
    for (int i = 0; i < discover_device_count(&a->config.share); i++) {
        const struct backend *b = discover_device_at(&a->config.share, i).backend;
        if (b && b->memory_kind != MEMORY_HOST)
            return true;
    }
    return false;
}

void shell_devices_say(const struct agent *a, json_t *choices)
{
    enum memory_kind kind = shell_devices_memory(a);
    bool direct = kind != MEMORY_HOST && data_takes(a->data, kind);
    const char *why = direct                          ? "UCX lists CUDA memory"
                      : a->config.direct_off          ? "--gpu-direct off"
                      : kind == MEMORY_HOST           ? "the agent has several GPUs"
                      : a->config.hub                 ? "all is in one process"
                      : a->data_kind == DATA_KIND_TCP ? "tcp seals frames on the host"
                                                      : "UCX lists no CUDA memory";
    if (share_has_gpu(a))
        json_array_append_new(
            choices, json_pack("{s:s, s:s, s:s}", "what", "rows of large frames", "how",
                               direct ? "GPU-direct" : "by pinned host memory", "why", why));
}

/* ---- executors ---- */

/* A thread begins on the cores of whoever starts it: so this one goes there for a moment. */
static int executor_start(struct agent *a, unsigned i, struct executor_config *x, struct err *e)
{
    const struct discover_share *share = &a->config.share;
    struct discover_device own = discover_device_at(share, (int)i);
    cpu_set_t before, cores;
    CPU_ZERO(&cores);
    for (int k = 0; k < own.n_cores; k++)
        CPU_SET((size_t)share->cores[own.first_core + k], &cores);
    bool moves = a->n_devices > 1 && own.n_cores > 0 &&
                 pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0;
    if (moves && pthread_setaffinity_np(pthread_self(), sizeof cores, &cores) != 0)
        return err_set(e, HP_EDEVICE, "device %s: cannot keep to its cores", own.name);
    x->direct = own.backend && own.backend->memory_kind != MEMORY_HOST &&
                data_takes(a->data, own.backend->memory_kind);
    x->device.backend = own.backend ? own.backend->name : "cpu";
    x->device.of = own.backend;
    x->device.ordinal = own.ordinal;
    x->device.part = own.part;
    x->device.host_bytes = own.host_bytes;
    x->device.small_bytes = own.small_bytes;
    x->device.n_threads = own.n_threads;
    x->device.cores = share->cores + own.first_core;
    x->device.n_cores = own.n_cores;
    x->device.memory_bytes = own.memory_bytes;
    int rc = executor_create(x, &a->executors[i], e);
    rc = rc < 0 ? rc : network_memory_create(executor_device(a->executors[i]), &a->memories[i], e);
    if (moves)
        pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    return rc;
}

int shell_devices_open(struct agent *a, struct err *e)
{
    struct executor_config x = {.device = {.kernels = a->config.kernels},
                                .data = a->data,
                                .paced = a->paced,
                                .spills = a->spills,
                                .serves_early = a->config.serves_early,
                                .report = shell_on_executor,
                                .ctx = a};
    int rc = 0;
    a->n_devices = (unsigned)discover_device_count(&a->config.share);
    if (a->paced && a->n_devices > 1)
        return err_set(e, HP_EUSAGE, "an agent that stands for a device (--pace) has one device");
    for (unsigned i = 0; rc == 0 && i < a->n_devices; i++)
        rc = executor_start(a, i, &x, e);
    return rc;
}

void shell_devices_close(struct agent *a)
{
    for (unsigned i = 0; i < a->n_devices; i++) {
        network_memory_destroy(&a->memories[i]);
        if (a->executors[i])
            executor_stop(a->executors[i]);
    }
}

void shell_devices_free(struct agent *a)
{
    for (unsigned i = 0; i < a->n_devices; i++)
        executor_destroy(&a->executors[i]);
}

void shell_devices_meter(struct agent *a, struct agent_event *ev)
{
    uint64_t free_bytes = 0, box = UINT64_MAX;
    for (unsigned i = 0; i < a->n_devices; i++) {
        uint64_t own = executor_memory_free(a->executors[i]);
        a->device_free_bytes[i] = own;
        free_bytes = own > UINT64_MAX - free_bytes ? UINT64_MAX : free_bytes + own;
    }
    /* A paced device's memory is not the box's: what runs here is a small model that stands in for
     * a large one. */
    if (!a->paced && host_memory_free("", &box))
        a->box_free_bytes = box;
    else if (!a->paced)
        box = a->box_free_bytes; /* no descriptor left, or no /proc: as it was */
    ev->u.meter.memory_free_bytes = free_bytes < box ? free_bytes : box;
    ev->u.meter.device_free_bytes = a->device_free_bytes;
}
