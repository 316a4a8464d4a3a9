/* Parts of a GPU: green contexts of the driver's interface, which the runtime finds. Streams are of
 * a part; memory and kernels are of the GPU's own context. A GPU is cut once for each number of
 * parts, since only what comes of one cut may be put together. */
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <mutex>

#include "agent/backend/cuda/gpu.h"

#if CUDA_VERSION >= 12050

enum { CUTS_MOST = 64, ENTRIES_SINCE = CUDA_VERSION >= 13000 ? 13000 : 12040 };

struct gpu_part {
    CUgreenCtx green;
};

/* Of the driver; NULL: it has no such function. */
static struct {
    decltype(&cuInit) init;
    decltype(&cuDeviceGet) device;
    decltype(&cuDeviceGetAttribute) attribute;
    decltype(&cuDeviceGetDevResource) resource;
    decltype(&cuDevSmResourceSplitByCount) split;
    decltype(&cuDevResourceGenerateDesc) describe;
    decltype(&cuGreenCtxCreate) create;
    decltype(&cuGreenCtxDestroy) destroy;
    decltype(&cuGreenCtxStreamCreate) stream;
} driver;

struct gpu_cut {
    int ordinal, n;
    CUdevResource parts[GPU_CUT_MOST];
};
static std::mutex lock; /* of all below */
static gpu_cut cuts[CUTS_MOST];
static int n_cuts;

template <class F> static bool entry_find(const char *name, F *out)
{
    void *found = NULL;
    cudaDriverEntryPointQueryResult how;
    if (cudaGetDriverEntryPointByVersion(name, &found, ENTRIES_SINCE, cudaEnableDefault, &how))
        cudaGetLastError(); /* then there is none */
    memcpy(out, &found, sizeof found);
    return found;
}

static bool driver_find()
{
    return entry_find("cuInit", &driver.init) && entry_find("cuDeviceGet", &driver.device) &&
           entry_find("cuDeviceGetAttribute", &driver.attribute) &&
           entry_find("cuDeviceGetDevResource", &driver.resource) &&
           entry_find("cuDevSmResourceSplitByCount", &driver.split) &&
           entry_find("cuDevResourceGenerateDesc", &driver.describe) &&
           entry_find("cuGreenCtxCreate", &driver.create) &&
           entry_find("cuGreenCtxDestroy", &driver.destroy) &&
           entry_find("cuGreenCtxStreamCreate", &driver.stream);
}

/* How many multiprocessors a part has at least, and of how many it is a multiple: as the driver
 * says, or its documentation of the compute capability. */
static int steps_find(CUdevice device, const CUdevResource *all, int *least, int *step)
{
    int major = 0,
        rc = driver.attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    *least = major >= 9 ? 8 : major == 8 ? 4 : 2;
    *step = major >= 9 ? 8 : 2;
#if CUDA_VERSION >= 13000
    if (all->sm.minSmPartitionSize && all->sm.smCoscheduledAlignment) {
        *least = (int)all->sm.minSmPartitionSize;
        *step = (int)all->sm.smCoscheduledAlignment;
    }
#else
    (void)all;
#endif
    return rc;
}

static int facts_read(int ordinal, int cut, CUdevResource *all, gpu_part_facts *out)
{
    CUdevice device;
    int step = 1;
    if (!driver.stream && !driver_find())
        return GPU_NO_PARTS;
    int rc = driver.init(0);
    rc = rc ? rc : driver.device(&device, ordinal);
    rc = rc ? rc : driver.resource(device, all, CU_DEV_RESOURCE_TYPE_SM);
    rc = rc ? rc : steps_find(device, all, &out->least, &step);
    if (rc)
        return rc;
    out->all = (int)all->sm.smCount;
    out->each = out->all / cut / step * step;
    out->each = out->each < out->least ? 0 : out->each;
    return 0;
}

int gpu_part_facts_read(int ordinal, int cut, struct gpu_part_facts *out)
{
    std::lock_guard<std::mutex> held(lock);
    CUdevResource all;
    return facts_read(ordinal, cut, &all, out);
}

/* The GPU's parts, cut now or before. */
static int cut_find(int ordinal, int n, gpu_cut **out)
{
    CUdevResource all;
    gpu_part_facts facts;
    unsigned made = (unsigned)n;
    for (int i = 0; i < n_cuts; i++)
        if (cuts[i].ordinal == ordinal && cuts[i].n == n) {
            *out = &cuts[i];
            return 0;
        }
    int rc = facts_read(ordinal, n, &all, &facts);
    if (rc || !facts.each || n > GPU_CUT_MOST || n_cuts == CUTS_MOST)
        return rc ? rc : GPU_NO_PARTS;
    gpu_cut *c = &cuts[n_cuts];
    rc = driver.split(c->parts, &made, &all, NULL, 0, (unsigned)facts.each);
    if (rc || made < (unsigned)n)
        return rc ? rc : GPU_NO_PARTS;
    c->ordinal = ordinal;
    c->n = n;
    n_cuts++;
    *out = c;
    return 0;
}

int gpu_part_open(int ordinal, int cut, int first, int count, struct gpu_part **out)
{
    std::lock_guard<std::mutex> held(lock);
    gpu_cut *c = NULL;
    CUdevice device;
    CUdevResourceDesc text;
    CUgreenCtx green;
    int rc = cut_find(ordinal, cut, &c);
    rc = rc ? rc : driver.device(&device, ordinal);
    rc = rc ? rc : driver.describe(&text, c->parts + first, (unsigned)count);
    rc = rc ? rc : driver.create(&green, text, device, CU_GREEN_CTX_DEFAULT_STREAM);
    if (rc == 0)
        *out = new gpu_part{green};
    return rc;
}

void gpu_part_close(struct gpu_part *p)
{
    driver.destroy(p->green); /* of a device that is lost: so is this */
    delete p;
}

int gpu_part_stream_create(struct gpu_part *p, struct CUstream_st **out)
{
    return driver.stream(out, p->green, CU_STREAM_NON_BLOCKING, 0);
}

#else /* this CUDA knows none */

int gpu_part_facts_read(int, int, struct gpu_part_facts *)
{
    return GPU_NO_PARTS;
}

int gpu_part_open(int, int, int, int, struct gpu_part **)
{
    return GPU_NO_PARTS;
}

void gpu_part_close(struct gpu_part *) {}

int gpu_part_stream_create(struct gpu_part *, struct CUstream_st **)
{
    return GPU_NO_PARTS;
}

#endif
