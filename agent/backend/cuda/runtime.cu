/* CUDA's runtime for C. */
#include <cstdio>
#include <cuda_runtime.h>

#include "agent/backend/cuda/gpu.h"

const char *gpu_error_text(int code)
{
    return cudaGetErrorString((cudaError_t)code);
}

int gpu_versions(int *driver, int *runtime)
{
    int rc = cudaDriverGetVersion(driver);
    return rc ? rc : cudaRuntimeGetVersion(runtime);
}

int gpu_count(int *n)
{
    return cudaGetDeviceCount(n);
}

int gpu_use(int ordinal)
{
    return cudaSetDevice(ordinal);
}

int gpu_facts_read(int ordinal, struct gpu_facts *out)
{
    cudaDeviceProp p;
    size_t free_bytes = 0, total = 0;
    int rc = cudaGetDeviceProperties(&p, ordinal);
    rc = rc ? rc : cudaMemGetInfo(&free_bytes, &total);
    if (rc)
        return rc;
    snprintf(out->name, sizeof out->name, "%.*s", GPU_NAME - 1, p.name);
    out->total_bytes = total;
    out->free_bytes = free_bytes;
    out->major = p.major;
    out->minor = p.minor;
    out->multiprocessors = p.multiProcessorCount;
    out->shared_bytes = (uint32_t)p.sharedMemPerMultiprocessor;
    return 0;
}

#ifdef CUDA_ON_CPU
bool gpu_overlaps_launches(void)
{
    return false;
}
#else
bool gpu_overlaps_launches(void)
{
    enum { DEVICES = 64 };
    static int majors[DEVICES]; /* 0: not asked yet */
    int ordinal = 0, major = 0;
    if (cudaGetDevice(&ordinal) || ordinal < 0 || ordinal >= DEVICES)
        return false;
    if (!__atomic_load_n(&majors[ordinal], __ATOMIC_RELAXED)) {
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal);
        __atomic_store_n(&majors[ordinal], major, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&majors[ordinal], __ATOMIC_RELAXED) >= 9;
}
#endif

int gpu_alloc(void **out, size_t bytes)
{
    int rc = cudaMalloc(out, bytes ? bytes : 1);
    if (rc)
        cudaGetLastError(); /* want of memory is told here alone */
    return rc;
}

int gpu_free(void *p)
{
    return cudaFree(p);
}

#ifdef CUDA_ON_CPU
int gpu_arena_create(void **out, size_t bytes, size_t *stretch)
{
    return cuda_on_cpu_arena(out, bytes, stretch);
}

int gpu_arena_take(void *p, size_t bytes)
{
    return cuda_on_cpu_arena_take(p, bytes);
}

void gpu_arena_give(void *p, size_t bytes)
{
    cuda_on_cpu_arena_give(p, bytes);
}
#else
int gpu_arena_create(void **out, size_t bytes, size_t *stretch)
{
    *stretch = 1;
    return gpu_alloc(out, bytes);
}

int gpu_arena_take(void *, size_t)
{
    return 0;
}

void gpu_arena_give(void *, size_t) {}
#endif

int gpu_host_alloc(void **out, size_t bytes)
{
    int rc = cudaMallocHost(out, bytes);
    if (rc)
        cudaGetLastError();
    return rc;
}

int gpu_host_free(void *p)
{
    return cudaFreeHost(p);
}

int gpu_stream_create(struct CUstream_st **out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamNonBlocking);
}

int gpu_stream_destroy(struct CUstream_st *s)
{
    return cudaStreamDestroy(s);
}

int gpu_stream_wait(struct CUstream_st *s)
{
    return cudaStreamSynchronize(s);
}

int gpu_event_create(struct CUevent_st **out)
{
    return cudaEventCreateWithFlags(out, cudaEventDisableTiming | cudaEventBlockingSync);
}

int gpu_event_destroy(struct CUevent_st *v)
{
    return cudaEventDestroy(v);
}

int gpu_event_record(struct CUevent_st *v, struct CUstream_st *s)
{
    return cudaEventRecord(v, s);
}

int gpu_event_wait(struct CUevent_st *v)
{
    return cudaEventSynchronize(v);
}

int gpu_event_done(struct CUevent_st *v)
{
    int rc = cudaEventQuery(v);
    if (rc == cudaErrorNotReady)
        cudaGetLastError(); /* no failure */
    return rc;
}

int gpu_moment_create(struct CUevent_st **out)
{
    int rc = cudaEventCreateWithFlags(out, cudaEventBlockingSync);
    if (rc)
        cudaGetLastError(); /* who cannot measure is told here alone */
    return rc;
}

int gpu_moments_between(struct CUevent_st *from, struct CUevent_st *to, double *seconds)
{
    float ms = 0;
    int rc = cudaEventElapsedTime(&ms, from, to);
    if (rc)
        cudaGetLastError();
    *seconds = (double)ms * 1e-3;
    return rc;
}

int gpu_keep_begin(struct CUstream_st *s)
{
    int rc = cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    if (rc)
        cudaGetLastError(); /* whoever cannot keep work does it */
    return rc;
}

int gpu_keep_end(struct CUstream_st *s, struct CUgraphExec_st **out)
{
    cudaGraph_t graph = NULL;
    int rc = cudaStreamEndCapture(s, &graph);
    rc = rc ? rc : cudaGraphInstantiateWithFlags(out, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (rc)
        cudaGetLastError();
    return rc;
}

int gpu_kept_start(struct CUgraphExec_st *g, struct CUstream_st *s)
{
    return cudaGraphLaunch(g, s);
}

int gpu_kept_free(struct CUgraphExec_st *g)
{
    return cudaGraphExecDestroy(g);
}

int gpu_copy(struct CUstream_st *s, enum gpu_way way, void *to, size_t to_pitch, const void *from,
             size_t from_pitch, size_t bytes, size_t rows)
{
    static const cudaMemcpyKind kinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                           cudaMemcpyDeviceToDevice};
    if (bytes == 0 || rows == 0)
        return 0;
    if (rows == 1 || (to_pitch == bytes && from_pitch == bytes))
        return cudaMemcpyAsync(to, from, bytes * rows, kinds[way], s);
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes, rows, kinds[way], s);
}

int gpu_zero(struct CUstream_st *s, void *p, size_t bytes)
{
    return bytes ? cudaMemsetAsync(p, 0, bytes, s) : 0;
}

int gpu_launched(void)
{
    return cudaGetLastError();
}
