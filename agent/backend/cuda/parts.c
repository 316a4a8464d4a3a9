/* Parts of a GPU: what keeps a device to some of its multiprocessors. Green contexts, each device
 * of an agent its own; where the driver has none MPS, which keeps a whole process to one part of
 * its GPU, and which a process has to ask for before it uses a GPU at all. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/backend/cuda/cuda_int.h"

enum { GREEN_SINCE = 12040 }; /* an older driver is not even asked: MPS wants to be the first */
static struct {
    pthread_mutex_t lock;
    bool used; /* a GPU, by whatever device */
    bool by_mps;
    int ordinal;
    struct device_part part; /* by_mps: what all are kept to */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool parts_equal(const struct device_part *a, const struct device_part *b)
{
    return a->cut == b->cut && a->first == b->first && a->count == b->count;
}

void cuda_title_write(int ordinal, const struct device_part *p, char out[CUDA_TITLE])
{
    int of = p->cut ? p->cut / p->count : 1;
    if (of > 1)
        snprintf(out, CUDA_TITLE, "cuda:%d/share=1/%d", ordinal, of);
    else
        snprintf(out, CUDA_TITLE, "cuda:%d", ordinal);
}

/* Where MPS's daemon would listen. */
static bool mps_runs(char *path, size_t size)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    int n = snprintf(path, size, "%s/control", folder ? folder : "/tmp/nvidia-mps");
    return n > 0 && (size_t)n < size && access(path, F_OK) == 0;
}

static int mps_enter(int ordinal, const struct device_part *p, const char *title, struct err *e)
{
    char path[512], percents[32];
    if (process.by_mps && process.ordinal == ordinal && parts_equal(&process.part, p))
        return 0;
    if (!mps_runs(path, sizeof path)) {
        err_set(e, HP_EDEVICE,
                "device %s: the driver makes no green contexts for this GPU, and no MPS daemon "
                "listens at %s: a share needs one of the two",
                title, path);
        return err_hint(e, "`nvidia-cuda-mps-control -d` starts MPS; or leave the share out");
    }
    if (process.used) {
        err_set(e, HP_EDEVICE,
                "device %s: the driver makes no green contexts for this GPU, and MPS keeps a whole "
                "agent to one share, but this agent has another device of a GPU",
                title);
        return err_hint(e, "start an agent of its own for each share");
    }
    snprintf(percents, sizeof percents, "%.2f", 100.0 * p->count / p->cut);
    if (setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percents, 1) != 0)
        return err_set(e, HP_ENOMEM, "no memory for a share of a GPU");
    process.by_mps = true;
    process.ordinal = ordinal;
    process.part = *p;
    return 0;
}

static int whole_enter(int ordinal, const char *title, struct err *e)
{
    if (!process.by_mps)
        return 0;
    err_set(e, HP_EDEVICE, "device %s: MPS keeps this whole agent to its share of cuda:%d", title,
            process.ordinal);
    return err_hint(e, "start an agent of its own for cuda:%d", ordinal);
}

static int part_enter(int ordinal, const struct device_part *p, const char *title,
                      struct cuda_part_facts *out, struct err *e)
{
    struct gpu_part_facts f = {0};
    int driver = 0, runtime = 0;
    gpu_versions(&driver, &runtime);
    int rc = driver < GREEN_SINCE ? GPU_NO_PARTS : gpu_part_facts_read(ordinal, p->cut, &f);
    if (rc == GPU_NO_DEVICE)
        return 0; /* whoever uses it is told so */
    if (rc == GPU_NO_PARTS) {
        out->kept_by = "MPS";
        return mps_enter(ordinal, p, title, e);
    }
    if (rc)
        return err_set(e, HP_EDEVICE, "device %s: what parts it has: %s (CUDA error %d)", title,
                       gpu_error_text(rc), rc);
    if (!f.each)
        return err_set(e, HP_EDEVICE,
                       "device %s: cut into %d parts, its %d multiprocessors are too few: the "
                       "driver gives a part no fewer than %d",
                       title, p->cut, f.all, f.least);
    *out = (struct cuda_part_facts){"green context", f.each * p->count, f.all};
    return 0;
}

int cuda_part_enter(int ordinal, const struct device_part *p, struct cuda_part_facts *out,
                    struct err *e)
{
    char title[CUDA_TITLE];
    cuda_title_write(ordinal, p, title);
    *out = (struct cuda_part_facts){0};
    pthread_mutex_lock(&process.lock);
    int rc = p->cut ? part_enter(ordinal, p, title, out, e) : whole_enter(ordinal, title, e);
    process.used = process.used || rc == 0;
    pthread_mutex_unlock(&process.lock);
    return rc;
}
