/* Kernels and calls that are wrong, one of each kind that the stand-in knows: `faults NAME` ends as
 * the stand-in ends a process, `faults` lists the names. "none" is right, and ends with 0. */
#include <cstdio>
#include <cuda_runtime.h>

#define LAUNCH_EARLY(kernel, blocks, threads)                                                      \
    cuda_on_cpu_launcher_of(#kernel, kernel, blocks, threads, 0, stream, true)
#define LAUNCH(kernel, blocks, threads)                                                            \
    cuda_on_cpu_launcher_of(#kernel, kernel, blocks, threads, 0, stream)

static cudaStream_t stream, other;
static float *data, *more, *raw;
enum { COUNT = 64 };

__global__ void right(float *x, float *sums)
{
    __shared__ float parts[COUNT];
    parts[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float v = parts[(threadIdx.x + 1) % COUNT];
    for (int by = 16; by; by /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, by);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&sums[0], v);
}
__global__ void past_the_end(float *x)
{
    x[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}
__global__ void before_it(float *x)
{
    x[(int)threadIdx.x - 1] += 1;
}
__global__ void unwritten(const float *x, float *out)
{
    out[threadIdx.x] = x[threadIdx.x];
}
__global__ void host_memory(const float *x, float *out)
{
    out[threadIdx.x] = x[threadIdx.x];
}
__global__ void no_barrier(float *x)
{
    __shared__ float parts[COUNT];
    parts[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = parts[(threadIdx.x + 1) % COUNT];
}
__global__ void write_after_read(float *x)
{
    __shared__ float part;
    if (threadIdx.x == 0)
        part = x[0];
    __syncthreads();
    float v = part;
    if (threadIdx.x == 1)
        part = v + 1;
    x[threadIdx.x] = v;
}
__global__ void shared_unwritten(float *x)
{
    __shared__ float parts[COUNT];
    if (threadIdx.x == 0)
        parts[0] = x[0];
    __syncthreads();
    x[threadIdx.x] = parts[threadIdx.x];
}
__global__ void blocks_race(float *x)
{
    if (threadIdx.x == 0)
        x[0] = x[0] + (float)blockIdx.x;
}
__global__ void barrier_left_out(float *x)
{
    if (threadIdx.x < 32)
        __syncthreads();
    x[threadIdx.x] = 1;
}
__global__ void lanes_left_out(float *x)
{
    float v = x[threadIdx.x];
    if (threadIdx.x % 32 < 16)
        v = __shfl_xor_sync(0xffffffffu, v, 1);
    x[threadIdx.x] = v;
}

static void run_none()
{
    LAUNCH(right, 3, COUNT)(data, more);
}
static void run_past_the_end()
{
    LAUNCH(past_the_end, 2, COUNT)(data);
}
static void run_before_it()
{
    LAUNCH(before_it, 1, COUNT)(data);
}
static void run_unwritten()
{
    LAUNCH(unwritten, 1, COUNT)(raw, data);
}
static void run_freed()
{
    cudaFree(more);
    LAUNCH(unwritten, 1, COUNT)(more, data);
}
static void run_host_memory()
{
    float *mine = (float *)calloc(COUNT, sizeof *mine);
    LAUNCH(host_memory, 1, COUNT)(mine, data);
}
static void run_no_barrier()
{
    LAUNCH(no_barrier, 1, COUNT)(data);
}
static void run_write_after_read()
{
    LAUNCH(write_after_read, 1, COUNT)(data);
}
static void run_shared_unwritten()
{
    LAUNCH(shared_unwritten, 1, COUNT)(data);
}
static void run_blocks_race()
{
    LAUNCH(blocks_race, 4, COUNT)(data);
}
static void run_barrier_left_out()
{
    LAUNCH(barrier_left_out, 1, COUNT)(data);
}
static void run_lanes_left_out()
{
    LAUNCH(lanes_left_out, 1, COUNT)(data);
}
static void run_host_touches()
{
    *(volatile float *)data = 1;
}
static void run_copy_past_the_end()
{
    float values[COUNT + 1] = {0};
    cudaMemcpyAsync(data, values, sizeof values, cudaMemcpyHostToDevice, stream);
    cudaStreamSynchronize(stream);
}
/* Streams run late: what another stream has not done yet is not there. */
static void run_no_event()
{
    float values[COUNT];
    cudaMemsetAsync(raw, 0, COUNT * sizeof *raw, other);
    cudaMemcpyAsync(values, raw, sizeof values, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
}
static void run_event()
{
    float values[COUNT];
    cudaEvent_t done;
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    cudaMemsetAsync(raw, 0, COUNT * sizeof *raw, other);
    cudaEventRecord(done, other);
    cudaStreamWaitEvent(stream, done, 0);
    cudaMemcpyAsync(values, raw, sizeof values, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    cudaEventDestroy(done);
}

__global__ void early_right(const float *given, const float *x, float *out)
{
    float v = given[threadIdx.x];
    cuda_on_cpu_earlier_wait();
    out[threadIdx.x] = v + x[threadIdx.x];
}
__global__ void early_read(const float *x, float *out)
{
    float v = x[threadIdx.x];
    cuda_on_cpu_earlier_wait();
    out[threadIdx.x] = v;
}
__global__ void early_write(float *out)
{
    out[threadIdx.x] = 1;
    cuda_on_cpu_earlier_wait();
}
__global__ void early_end(const float *x, float *out)
{
    if (threadIdx.x == COUNT - 1)
        return;
    cuda_on_cpu_earlier_wait();
    out[threadIdx.x] = x[threadIdx.x];
}
static void run_early()
{
    LAUNCH(right, 1, COUNT)(data, more);
    LAUNCH_EARLY(early_right, 1, COUNT)(data, more, raw);
}
static void run_early_read()
{
    LAUNCH_EARLY(early_right, 1, COUNT)(data, more, raw);
    LAUNCH_EARLY(early_read, 1, COUNT)(raw, more);
}
/* What a kernel has written that is over by something between: a copy, a kernel that waits for all,
 * the start of a graph. */
static void run_early_copy()
{
    LAUNCH_EARLY(early_right, 1, COUNT)(data, more, raw);
    cudaMemsetAsync(more, 0, COUNT * sizeof *more, stream);
    LAUNCH_EARLY(early_read, 1, COUNT)(raw, data);
}
static void run_early_between()
{
    LAUNCH_EARLY(early_right, 1, COUNT)(data, more, raw);
    LAUNCH(right, 1, COUNT)(data, more);
    LAUNCH_EARLY(early_read, 1, COUNT)(raw, data);
}
/* Each start reads what the one before has written. */
static void run_early_graph()
{
    cudaGraph_t kept;
    cudaGraphExec_t ready;
    cudaMemsetAsync(raw, 0, COUNT * sizeof *raw, stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    LAUNCH_EARLY(early_read, 1, COUNT)(raw, more);
    LAUNCH_EARLY(early_right, 1, COUNT)(data, more, raw);
    cudaStreamEndCapture(stream, &kept);
    cudaGraphInstantiateWithFlags(&ready, kept, 0);
    for (int i = 0; i < 3; i++)
        cudaGraphLaunch(ready, stream);
    cudaStreamSynchronize(stream);
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(kept);
}
/* The one between may be as little over. */
static void run_early_second()
{
    LAUNCH_EARLY(early_right, 1, COUNT)(data, more, raw);
    LAUNCH_EARLY(early_right, 1, COUNT)(data, data, more);
    LAUNCH_EARLY(early_read, 1, COUNT)(raw, more);
}
/* Of the kernel that waited for all nobody says that it is over. */
static void run_early_last()
{
    LAUNCH(unwritten, 1, COUNT)(data, raw);
    LAUNCH_EARLY(early_read, 1, COUNT)(raw, more);
}
static void on_other(const float *x, float *out)
{
    cudaStream_t own = stream;
    stream = other;
    LAUNCH(unwritten, 1, COUNT)(x, out);
    stream = own;
}
/* A copy is no end of what other streams do. */
static void run_early_other()
{
    on_other(data, more);
    cudaMemsetAsync(raw, 0, COUNT * sizeof *raw, stream);
    LAUNCH_EARLY(early_read, 1, COUNT)(more, raw);
}
/* The host may wait for what another stream does. */
static void run_early_seen()
{
    on_other(data, more);
    cudaStreamSynchronize(other);
    LAUNCH_EARLY(early_read, 1, COUNT)(more, raw);
}
static void run_early_write()
{
    LAUNCH_EARLY(early_write, 1, COUNT)(raw);
}
static void run_early_end()
{
    LAUNCH_EARLY(early_end, 1, COUNT)(data, more);
}

static const struct {
    const char *name;
    void (*run)();
} faults[] = {
    {"early", run_early},
    {"early_copy", run_early_copy},
    {"early_between", run_early_between},
    {"early_graph", run_early_graph},
    {"early_seen", run_early_seen},
    {"early_read", run_early_read},
    {"early_second", run_early_second},
    {"early_last", run_early_last},
    {"early_other", run_early_other},
    {"early_write", run_early_write},
    {"early_end", run_early_end},
    {"none", run_none},
    {"event", run_event},
    {"past_the_end", run_past_the_end},
    {"before_it", run_before_it},
    {"unwritten", run_unwritten},
    {"freed", run_freed},
    {"host_memory", run_host_memory},
    {"no_barrier", run_no_barrier},
    {"write_after_read", run_write_after_read},
    {"shared_unwritten", run_shared_unwritten},
    {"blocks_race", run_blocks_race},
    {"barrier_left_out", run_barrier_left_out},
    {"lanes_left_out", run_lanes_left_out},
    {"host_touches", run_host_touches},
    {"copy_past_the_end", run_copy_past_the_end},
    {"no_event", run_no_event},
};

int main(int argc, char **argv)
{
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) ||
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) ||
        cudaMalloc((void **)&data, COUNT * sizeof *data) ||
        cudaMalloc((void **)&more, COUNT * sizeof *more) ||
        cudaMalloc((void **)&raw, COUNT * sizeof *raw))
        return 2;
    cudaMemsetAsync(data, 0, COUNT * sizeof *data, stream);
    cudaMemsetAsync(more, 0, COUNT * sizeof *more, stream);
    cudaStreamSynchronize(stream);
    for (const auto &f : faults) {
        if (argc < 2)
            puts(f.name);
        else if (strcmp(argv[1], f.name) == 0) {
            f.run();
            return cudaStreamSynchronize(stream) ? 3 : 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
