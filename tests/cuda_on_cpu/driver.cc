/* The driver's interface: parts of the GPU. Multiprocessors are bits of a mask. What the driver
 * does not allow it refuses: parts of different cuts together, a part that is cut again, too few
 * multiprocessors. */
#include <map>
#include <memory>
#include <string>

#include "cuda.h"
#include "cuda_on_cpu_int.h"

using namespace cuda_on_cpu;

struct CUdevResourceDesc_st {
    uint64_t members;
};
struct CUgreenCtx_st {
    uint64_t members;
    int streams;
};

static unsigned splits;
static std::map<uint64_t, uint64_t> work; /* by the members of its stream */

/* Kernels, copies and events that were put on streams of just these multiprocessors; 0: of all. */
extern "C" uint64_t cuda_on_cpu_work(uint64_t members)
{
    runtime_call held;
    return work[members];
}

void cuda_on_cpu::green_note(cudaStream_t s)
{
    work[s->green ? s->green->members : 0]++;
}

void cuda_on_cpu::green_leave(cudaStream_t s)
{
    if (s->green)
        s->green->streams--;
}

#define CALL                                                                                       \
    runtime_call held;                                                                             \
    if (held.failure != cudaSuccess)                                                               \
    return (CUresult)held.failure

CUresult cuInit(unsigned)
{
    CALL;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    CALL;
    *out = ordinal;
    return ordinal >= 0 && ordinal < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute, CUdevice)
{
    CALL;
    *out = capability() / 10;
    return CUDA_SUCCESS;
}

/* As the driver's documentation has it, by compute capability. */
CUresult cuDeviceGetDevResource(CUdevice, CUdevResource *out, CUdevResourceType type)
{
    CALL;
    if (!setting("green", 1))
        return CUDA_ERROR_NOT_SUPPORTED;
    unsigned n = (unsigned)setting("sms", 1), major = (unsigned)capability() / 10;
    *out = {type, 0, n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0, {}};
    out->sm = {n < 64 ? n : 64, major >= 9 ? 8u : major == 8 ? 4u : 2u, major >= 9 ? 8u : 2u};
    return CUDA_SUCCESS;
}

/* The lowest multiprocessors of a mask, which loses them. */
static CUdevResource part_take(const CUdevResource *of, uint64_t *left, unsigned n)
{
    CUdevResource part = *of;
    part.split = splits;
    part.members = 0;
    part.sm.smCount = n;
    for (; n; n--) {
        part.members |= *left & -*left;
        *left &= *left - 1;
    }
    return part;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *n, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned, unsigned least)
{
    CALL;
    unsigned step = input->sm.smCoscheduledAlignment, each = (least + step - 1) / step * step;
    uint64_t left = input->members;
    each = each < input->sm.minSmPartitionSize ? input->sm.minSmPartitionSize : each;
    if (input->split)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    splits++;
    *n = *n < input->sm.smCount / each ? *n : input->sm.smCount / each;
    for (unsigned i = 0; i < *n; i++)
        result[i] = part_take(input, &left, each);
    if (remaining)
        *remaining = part_take(input, &left, input->sm.smCount - *n * each);
    return *n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources, unsigned n)
{
    CALL;
    static std::map<uint64_t, std::unique_ptr<CUdevResourceDesc_st>> made;
    uint64_t members = 0;
    for (unsigned i = 0; i < n; i++) {
        if (resources[i].split != resources[0].split)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        members |= resources[i].members;
    }
    std::unique_ptr<CUdevResourceDesc_st> &one = made[members];
    if (!one)
        one.reset(new CUdevResourceDesc_st{members});
    *out = one.get();
    return members ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc text, CUdevice, unsigned flags)
{
    CALL;
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    *out = new CUgreenCtx_st{text->members, 0};
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    runtime_call held;
    if (green->streams)
        die(nullptr, "a green context goes before its streams");
    delete green;
    return (CUresult)held.failure;
}

CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned flags, int)
{
    CALL;
    cudaError_t rc = cudaStreamCreateWithFlags(out, flags);
    if (rc == cudaSuccess) {
        (*out)->green = green;
        green->streams++;
    }
    return (CUresult)rc;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult *how)
{
    static const std::map<std::string, void *> entries = {
        {"cuInit", (void *)cuInit},
        {"cuDeviceGet", (void *)cuDeviceGet},
        {"cuDeviceGetAttribute", (void *)cuDeviceGetAttribute},
        {"cuDeviceGetDevResource", (void *)cuDeviceGetDevResource},
        {"cuDevSmResourceSplitByCount", (void *)cuDevSmResourceSplitByCount},
        {"cuDevResourceGenerateDesc", (void *)cuDevResourceGenerateDesc},
        {"cuGreenCtxCreate", (void *)cuGreenCtxCreate},
        {"cuGreenCtxDestroy", (void *)cuGreenCtxDestroy},
        {"cuGreenCtxStreamCreate", (void *)cuGreenCtxStreamCreate},
    };
    auto found = entries.find(name);
    *out = found == entries.end() ? nullptr : found->second;
    *how = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
