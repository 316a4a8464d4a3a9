/* CUDA on the CPU: what our .cu files use of CUDA's language and runtime, for a C++ compiler
 * without CUDA. The same sources are compiled with `-x c++ -fsanitize=thread -I
 * tests/cuda_on_cpu`: the compiler then calls a function at each load and store, which
 * cuda_on_cpu.cc answers instead of ThreadSanitizer's library, so that kernels stay as they are
 * and every access is looked at.
 *
 * Blocks run one after the other in a seeded order, their threads as fibers in a seeded order.
 * Streams run late, in seeded turns: when somebody waits. Device memory cannot be touched by the
 * host. What is wrong ends the process with a line on standard error that names kernel, block,
 * thread and line:
 *
 *   - an access of a kernel outside of what was allocated, or to memory of the host that was not
 *     pinned for it
 *   - a read of device or shared memory that nobody has written
 *   - two threads of a block at one shared word, or of a launch at one word of device memory, one
 *     of them writing, with nothing between that orders them
 *   - a barrier that not all threads of a block reach, or a shuffle that not all its lanes reach
 *   - an access of the host to device memory
 *
 * The variable CUDA_ON_CPU sets "seed=N,memory=BYTES,devices=N,malloc_fails=N,call_fails=N,
 * driver=0,lost_file=PATH,capability=N,graphs=0,graphs_most=N,sms=N,green=0,upload=PATH": memory of
 * a device, the allocation that fails, the call from which on all fail as if the GPU had fallen off
 * the bus, a box without a driver, a file that makes all calls fail once it is there, graphs that
 * are never ready, how many may be ready at once, multiprocessors, a driver that makes no parts of
 * them (cuda.h), and a file that says how many bytes a second come from the host, any number while
 * it is not there. Words are 4 bytes. */
#ifndef HP_TESTS_CUDA_ON_CPU_CUDA_RUNTIME_H
#define HP_TESTS_CUDA_ON_CPU_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#define CUDA_ON_CPU 1
#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};

/* Of the thread that runs. */
struct cuda_on_cpu_place {
    dim3 thread, block, block_dim, grid_dim;
};
extern cuda_on_cpu_place cuda_on_cpu_here;
#define threadIdx (cuda_on_cpu_here.thread)
#define blockIdx (cuda_on_cpu_here.block)
#define blockDim (cuda_on_cpu_here.block_dim)
#define gridDim (cuda_on_cpu_here.grid_dim)
#define warpSize 32

void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);
/* What lane `from` of the warp gives; its own value where there is no such lane. */
uint64_t cuda_on_cpu_exchange(unsigned mask, uint64_t value, unsigned from);
unsigned cuda_on_cpu_lane();
unsigned cuda_on_cpu_lanes(); /* of this warp, as a mask */
void *cuda_on_cpu_dynamic_shared();
/* Copies to shared memory that arrive at once, or not before they are waited for. */
void cuda_on_cpu_copy_async(void *shared, const void *global, size_t bytes);
void cuda_on_cpu_copy_group_end();
void cuda_on_cpu_copy_groups_wait(int but);
/* What tensor cores do with a warp's fragments of 16 x 16 and 16 x 8 f16 or bf16
 * (mma.sync.m16n8k16). */
void cuda_on_cpu_tensor_multiply(float *sums, const unsigned *a, unsigned b0, unsigned b1,
                                 bool bf16);
/* The same of bytes, 16 x 32 and 32 x 8 (mma.sync.m16n8k32), or 16 of these 32 (m16n8k16); those of
 * the first may have no sign. */
struct cuda_on_cpu_bytes {
    unsigned depth;
    bool no_sign;
};
void cuda_on_cpu_tensor_multiply_bytes(int *out, const unsigned *a, unsigned b0, unsigned b1,
                                       const int *begin, cuda_on_cpu_bytes how);
/* Products of a warpgroup (wgmma), done at once or not before they are waited for; matrices in
 * shared memory are swizzled by 128 bytes. */
void cuda_on_cpu_group_multiply(float (*sums)[4], int columns, const uint8_t *a, const uint8_t *b,
                                bool add);
void cuda_on_cpu_group_multiply_kept(float (*sums)[4], int columns, const unsigned *a,
                                     const uint8_t *b, unsigned beside);
void cuda_on_cpu_group_end();
void cuda_on_cpu_group_wait(int but);
/* Once for each access that is no plain load or store. */
void cuda_on_cpu_atomic(void *at, size_t bytes);

template <class T> __forceinline__ T cuda_on_cpu_shuffle(unsigned mask, T value, unsigned from)
{
    uint64_t bits = 0;
    static_assert(sizeof value <= sizeof bits, "a lane gives 8 bytes");
    memcpy(&bits, &value, sizeof value);
    bits = cuda_on_cpu_exchange(mask, bits, from);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> __forceinline__ T __shfl_sync(unsigned mask, T value, int from)
{
    return cuda_on_cpu_shuffle(mask, value, (unsigned)from % 32);
}
template <class T> __forceinline__ T __shfl_xor_sync(unsigned mask, T value, int with)
{
    return cuda_on_cpu_shuffle(mask, value, cuda_on_cpu_lane() ^ (unsigned)with);
}
template <class T> __forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned by)
{
    return cuda_on_cpu_shuffle(mask, value, cuda_on_cpu_lane() + by);
}
unsigned __ballot_sync(unsigned mask, int vote);
static inline int __any_sync(unsigned mask, int vote)
{
    return __ballot_sync(mask, vote) != 0;
}
static inline int __all_sync(unsigned mask, int vote)
{
    return __ballot_sync(mask, vote) == (mask & cuda_on_cpu_lanes());
}
/* What the compiler's hooks are not called for. */
#define CUDA_ON_CPU_UNSEEN __attribute__((noinline, no_sanitize("thread")))
template <class T> CUDA_ON_CPU_UNSEEN T atomicAdd(T *at, T value)
{
    cuda_on_cpu_atomic(at, sizeof *at);
    T was = *(volatile T *)at;
    *(volatile T *)at = was + value;
    return was;
}
template <class T> CUDA_ON_CPU_UNSEEN T atomicMax(T *at, T value)
{
    cuda_on_cpu_atomic(at, sizeof *at);
    T was = *(volatile T *)at;
    *(volatile T *)at = was > value ? was : value;
    return was;
}

template <class T> CUDA_ON_CPU_UNSEEN T atomicMin(T *at, T value)
{
    cuda_on_cpu_atomic(at, sizeof *at);
    T was = *(volatile T *)at;
    *(volatile T *)at = was < value ? was : value;
    return was;
}

/* ---- numbers ---- */

/* Rounded each by itself: never two in one. */
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dsub_rn(double a, double b)
{
    return a - b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

static inline float __int_as_float(int bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline float __uint_as_float(unsigned bits)
{
    return __int_as_float((int)bits);
}
static inline unsigned __float_as_uint(float f)
{
    unsigned bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
static inline int __float_as_int(float f)
{
    return (int)__float_as_uint(f);
}
struct __half {
    unsigned short bits;
};
static inline __half __ushort_as_half(unsigned short bits)
{
    return __half{bits};
}
static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}
float __half2float(__half h);
__half __float2half_rn(float f);

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which)
{
    uint64_t all = (uint64_t)high << 32 | low;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned byte = (unsigned)(all >> (which >> i * 4 & 7) * 8) & 0xff;
        out |= (which >> i * 4 & 8 ? (byte & 0x80 ? 0xffu : 0) : byte) << i * 8;
    }
    return out;
}
static inline int __dp4a(int a, int b, int sum)
{
    for (int i = 0; i < 4; i++)
        sum += (int)(int8_t)(a >> i * 8) * (int)(int8_t)(b >> i * 8);
    return sum;
}

/* ---- the runtime ---- */

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorUnknown = 999,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};
enum { cudaStreamNonBlocking = 1, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount;
};
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device);
cudaError_t cudaDriverGetVersion(int *out);
cudaError_t cudaRuntimeGetVersion(int *out);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *p);
/* Memory that is given out in parts (arena.c), which alone may be touched. Places lie twice as far
 * apart as they would, so that behind each part as many bytes are nobody's. */
cudaError_t cuda_on_cpu_arena(void **out, size_t bytes, size_t *stretch);
cudaError_t cuda_on_cpu_arena_take(void *p, size_t bytes);
void cuda_on_cpu_arena_give(void *p, size_t bytes);
cudaError_t cudaMallocHost(void **out, size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t v, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t v);
cudaError_t cudaEventRecord(cudaEvent_t v, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t v);
cudaError_t cudaEventQuery(cudaEvent_t v);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t g,
                                          unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g);

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
/* Without it a block has no more than 48 KiB of shared memory. */
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what, int value);

/* ---- launches ---- */

/* Ends the process where a launch asks for more shared memory than its kernel may have. */
void cuda_on_cpu_shared_check(const char *name, const void *kernel, size_t bytes);

/* Owns `closure`, made with malloc; call() runs one thread of the kernel. */
struct cuda_on_cpu_kernel {
    const char *name;
    dim3 grid, block;
    size_t shared;
    bool early; /* may begin before those before it on the stream are over */
};
void cuda_on_cpu_launch(const cuda_on_cpu_kernel &kernel, cudaStream_t s, void *closure,
                        size_t bytes, void (*call)(void *closure));
/* Of a thread of a kernel that is launched early: from here on what others write is there. */
void cuda_on_cpu_earlier_wait();

template <class F> void cuda_on_cpu_enqueue(const cuda_on_cpu_kernel &kernel, cudaStream_t s, F run)
{
    void *closure = malloc(sizeof run);
    new (closure) F(run);
    cuda_on_cpu_launch(kernel, s, closure, sizeof run, [](void *at) { (*(F *)at)(); });
}

/* CUDA_LAUNCH((kernel<...>), grid, block, shared bytes, stream)(arguments): what <<<>>> is to nvcc.
 */
template <class... P> struct cuda_on_cpu_launcher {
    cuda_on_cpu_kernel how;
    void (*kernel)(P...);
    cudaStream_t stream;
    void operator()(P... p) const
    {
        auto k = kernel;
        cuda_on_cpu_shared_check(how.name, (const void *)kernel, how.shared);
        cuda_on_cpu_enqueue(how, stream, [=] { k(p...); });
    }
};
template <class... P>
cuda_on_cpu_launcher<P...> cuda_on_cpu_launcher_of(const char *name, void (*kernel)(P...),
                                                   dim3 grid, dim3 block, size_t shared,
                                                   cudaStream_t s, bool early = false)
{
    return {{name, grid, block, shared, early}, kernel, s};
}

#endif
