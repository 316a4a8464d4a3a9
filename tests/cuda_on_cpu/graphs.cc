/* Graphs: work of a stream that is kept instead of done, in its order, and put on a stream as often
 * as it is asked for. What the thread that keeps must not do meanwhile spoils it, as CUDA has it.
 */
#include <vector>

#include "cuda_on_cpu_int.h"

using namespace cuda_on_cpu;

struct CUgraph_st {
    std::vector<std::function<void()>> work;
    bool spoilt;
};
struct CUgraphExec_st {
    std::vector<std::function<void()>> work;
};

static thread_local cudaStream_t kept_here; /* the stream whose work this thread keeps */
static uint64_t launches, ready;            /* those that are ready to be launched */

extern "C" uint64_t cuda_on_cpu_graph_launches()
{
    return launches;
}

bool cuda_on_cpu::graph_add(cudaStream_t s, const std::function<void()> &run)
{
    if (s->keeps)
        s->keeps->work.push_back(run);
    return s->keeps;
}

bool cuda_on_cpu::graph_spoil(cudaStream_t s)
{
    cudaStream_t kept = s && s->keeps ? s : s ? nullptr : kept_here;
    if (kept)
        kept->keeps->spoilt = true;
    return kept;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    runtime_call held;
    if (held.failure != cudaSuccess)
        return held.failure;
    if (s->keeps || kept_here)
        return cudaErrorStreamCaptureUnsupported;
    s->keeps = new CUgraph_st{{}, false};
    kept_here = s;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    runtime_call held;
    cudaGraph_t g = s->keeps;
    *out = nullptr;
    s->keeps = nullptr; /* also on a device that is lost */
    kept_here = nullptr;
    cudaError_t rc = held.failure != cudaSuccess ? held.failure
                     : !g                        ? cudaErrorInvalidValue
                     : g->spoilt                 ? cudaErrorStreamCaptureInvalidated
                                                 : cudaSuccess;
    if (rc == cudaSuccess)
        *out = g;
    else
        delete g;
    return rc;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long)
{
    runtime_call held;
    if (held.failure != cudaSuccess)
        return held.failure;
    if (!setting("graphs", 1))
        return cudaErrorNotSupported;
    if (ready >= setting("graphs_most", UINT64_MAX))
        return cudaErrorMemoryAllocation;
    ready++;
    *out = new CUgraphExec_st{g->work};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s)
{
    runtime_call held;
    if (held.failure != cudaSuccess)
        return held.failure;
    launches++;
    stream_add(s, earlier_end);
    for (const std::function<void()> &run : g->work)
        stream_add(s, run);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    runtime_call held;
    delete g;
    return held.failure;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g)
{
    runtime_call held;
    ready--;
    delete g;
    return held.failure;
}
