/* Memory of the host that copies reach by themselves. A copy from the device to any other has ended
 * when the call for it returns, as CUDA has it. */
#include <map>

#include "cuda_on_cpu_int.h"

using namespace cuda_on_cpu;

static std::map<const char *, size_t> pinned; /* bytes by address; while a call is answered */

bool cuda_on_cpu::host_is_pinned(const void *p, size_t bytes)
{
    auto after = pinned.upper_bound((const char *)p);
    if (after == pinned.begin())
        return false;
    auto it = std::prev(after);
    return (const char *)p + bytes <= it->first + it->second;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    runtime_call held;
    if (held.failure != cudaSuccess)
        return held.failure;
    if (graph_spoil(nullptr))
        return cudaErrorStreamCaptureUnsupported;
    *out = malloc_fails() ? nullptr : calloc(1, bytes ? bytes : 1);
    if (*out)
        pinned[(const char *)*out] = bytes;
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *p)
{
    runtime_call held;
    pinned.erase((const char *)p);
    free(p); /* the host's, whatever became of the device */
    return held.failure;
}
