/* The runtime's calls: streams that run late and in seeded turns, events, copies, faults at will.
 */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "cuda_on_cpu_int.h"

using namespace cuda_on_cpu;

struct CUevent_st {
    uint64_t recorded, reached; /* times */
    double when_s;              /* reached last */
};

enum { RUNTIME_VERSION = 13000 };

static struct {
    std::recursive_mutex lock;
    std::atomic<int> guests; /* who wants it for a moment, as no kernel would keep them from */
    std::vector<cudaStream_t> streams;
    uint16_t numbers; /* streams that have one */
    bool ready, lost;
    double
        percents; /* of the multiprocessors, as MPS gives them from the first use on; 0: not used */
    int devices, driver; /* its version as CUDA counts; 0: there is none */
    uint64_t calls, call_fails, mallocs, malloc_fails;
    std::string lost_file; /* once it is there all calls fail */
    double clock_s;        /* what kernels have taken that are told what they take */
} box;

/* Kernels whose names have a word: what they take, and how often they have run. */
struct kernel_clock {
    double takes_s;
    uint64_t runs;
};
static std::map<std::string, kernel_clock> clocks;

uint64_t cuda_on_cpu::setting(const char *name, uint64_t otherwise)
{
    const char *all = getenv("CUDA_ON_CPU"), *at = all ? strstr(all, name) : nullptr;
    return at && at[strlen(name)] == '=' ? strtoull(at + strlen(name) + 1, nullptr, 10) : otherwise;
}

/* The text up to the next comma. */
static std::string setting_text(const char *name)
{
    const char *all = getenv("CUDA_ON_CPU"), *at = all ? strstr(all, name) : nullptr;
    if (!at || at[strlen(name)] != '=')
        return "";
    at += strlen(name) + 1;
    return std::string(at, strcspn(at, ","));
}

int cuda_on_cpu::capability()
{
    return (int)setting("capability", 80);
}

int cuda_on_cpu::device_count()
{
    return box.devices;
}

bool cuda_on_cpu::malloc_fails()
{
    return ++box.mallocs == box.malloc_fails;
}

static void box_ready()
{
    if (box.ready)
        return;
    box.ready = true;
    box.driver = (int)setting("driver", RUNTIME_VERSION);
    box.devices = (int)setting("devices", 1);
    box.call_fails = setting("call_fails", 0);
    box.lost_file = setting_text("lost_file");
    box.malloc_fails = setting("malloc_fails", 0);
    draw_seed(setting("seed", 1));
    memory_limit(setting("memory", (uint64_t)1 << 30));
}

/* Each call begins here: what it answers instead of doing its work. */
static cudaError_t call_begin()
{
    box_ready();
    if (box.driver < RUNTIME_VERSION)
        return cudaErrorInsufficientDriver;
    box.calls++;
    box.lost = box.lost || (box.call_fails && box.calls >= box.call_fails) ||
               (!box.lost_file.empty() && access(box.lost_file.c_str(), F_OK) == 0);
    return box.lost ? cudaErrorIllegalAddress : cudaSuccess;
}
#define CALL                                                                                       \
    runtime_call held;                                                                             \
    if (held.failure != cudaSuccess)                                                               \
    return held.failure
/* What ends keeping, as CUDA has it for the thread that keeps. */
#define CALL_NOT_KEPT(stream)                                                                      \
    CALL;                                                                                          \
    if (graph_spoil(stream))                                                                       \
    return cudaErrorStreamCaptureUnsupported

cuda_on_cpu::runtime_call::runtime_call()
{
    box.lock.lock();
    failure = call_begin();
}

cuda_on_cpu::runtime_call::~runtime_call()
{
    box.lock.unlock();
}

/* Takes the box between two pieces of work. */
struct guest_lock {
    guest_lock()
    {
        box.guests++;
        box.lock.lock();
        box.guests--;
    }
    ~guest_lock() { box.lock.unlock(); }
};

extern "C" {
/* Reads CUDA_ON_CPU anew, as a process that starts would: for tests. */
void cuda_on_cpu_restart()
{
    box.ready = box.lost = false;
    box.calls = box.mallocs = 0;
    clocks.clear();
}
/* From now on events tell a clock that runs while such kernels do ("NAME, N blocks"), and for no
 * other reason, until the next restart: for tests of what is measured. */
void cuda_on_cpu_kernel_takes(const char *word, double seconds)
{
    clocks[word] = {seconds, 0};
}
/* Those since then. */
uint64_t cuda_on_cpu_kernel_runs(const char *word)
{
    return clocks[word].runs;
}
/* From the so manieth call from now on (1: the next) all fail, as when the GPU falls off the bus.
 */
void cuda_on_cpu_lose(uint64_t after)
{
    box.call_fails = box.calls + after;
}
uint64_t cuda_on_cpu_calls()
{
    return box.calls;
}
uint64_t cuda_on_cpu_mallocs()
{
    return box.mallocs;
}
/* Kernels that have run. */
uint64_t cuda_on_cpu_launches()
{
    return now.launch;
}
}

/* ---- time ---- */

void cuda_on_cpu::clock_run(const cuda_on_cpu_kernel &kernel)
{
    std::string said = kernel.name + (", " + std::to_string(kernel.grid.x)) + " blocks";
    for (auto &one : clocks)
        if (said.find(one.first) != std::string::npos) {
            one.second.runs++;
            box.clock_s += one.second.takes_s;
        }
}

static double clock_now()
{
    if (!clocks.empty())
        return box.clock_s;
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/* ---- work ---- */

static bool stream_can_run(cudaStream_t s)
{
    return !s->queue.empty() &&
           (!s->queue.front().waits || s->queue.front().waits->reached >= s->queue.front().until);
}

/* A stream that is destroyed goes with the last of its work. */
static void streams_sweep()
{
    for (size_t i = 0; i < box.streams.size(); i++)
        if (box.streams[i]->gone && box.streams[i]->queue.empty()) {
            delete box.streams[i];
            box.streams.erase(box.streams.begin() + (long)i--);
        }
}

/* Between two pieces of work: whoever wants the box for a moment has it. */
static void guests_serve(bool *open)
{
    enum { TURNS = 1000 };
    if (box.guests == 0)
        return;
    if (*open)
        memory_open(*open = false);
    box.lock.unlock();
    for (int i = 0; i < TURNS && box.guests > 0; i++)
        std::this_thread::yield();
    box.lock.lock();
}

/* Until it is over: a piece of work of any stream after the other. */
static void work_until(const std::function<bool()> &over)
{
    bool open = false;
    while (!over()) {
        guests_serve(&open);
        if (over())
            break;
        std::vector<cudaStream_t> can;
        for (cudaStream_t s : box.streams)
            if (stream_can_run(s))
                can.push_back(s);
        if (can.empty())
            die(nullptr, "a stream waits for an event that nobody records");
        if (!open)
            memory_open(open = true);
        cudaStream_t s = can[draw((unsigned)can.size())];
        stream_work w = std::move(s->queue.front());
        s->queue.pop_front();
        now.stream = s;
        if (w.run)
            w.run();
    }
    if (open)
        memory_open(false);
    streams_sweep();
}

static bool work_is_over()
{
    for (cudaStream_t s : box.streams)
        if (!s->queue.empty())
            return false;
    return true;
}

static void work_add(cudaStream_t s, std::function<void()> run)
{
    green_note(s);
    if (!graph_add(s, run))
        s->queue.push_back({std::move(run), nullptr, 0});
}

void cuda_on_cpu_launch(const cuda_on_cpu_kernel &kernel, cudaStream_t s, void *closure,
                        size_t bytes, void (*call)(void *))
{
    std::lock_guard<std::recursive_mutex> held(box.lock);
    std::shared_ptr<void> own(closure,
                              free); /* also where a device is lost with work in its queue */
    if (call_begin() != cudaSuccess)
        return;
    work_add(s, [=] { kernel_run(kernel, own.get(), bytes, call); });
}

bool cuda_on_cpu::stream_add(cudaStream_t s, std::function<void()> run)
{
    std::lock_guard<std::recursive_mutex> held(box.lock);
    if (call_begin() != cudaSuccess)
        return false;
    work_add(s, std::move(run));
    return true;
}

/* ---- devices ---- */

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    default: return "invalid argument";
    }
}

cudaError_t cudaGetLastError()
{
    return box.lost ? cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 0;
    CALL;
    *n = box.devices;
    return box.devices ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
    guest_lock guest;
    CALL;
    const char *mps = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    if (box.percents <= 0)
        box.percents = mps ? atof(mps) : 100;
    return device >= 0 && device < box.devices ? cudaSuccess : cudaErrorInvalidDevice;
}

/* What a block may have once it has been asked for; a multiprocessor has 1 KiB more, but Turing. */
static size_t shared_most()
{
    int c = capability();
    return (size_t)(c >= 90              ? 227
                    : c == 86 || c == 89 ? 99
                    : c >= 80            ? 163
                    : c == 75            ? 64
                                         : 96)
           << 10;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device)
{
    CALL;
    if (device < 0 || device >= box.devices)
        return cudaErrorInvalidDevice;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "CUDA stand-in");
    out->totalGlobalMem = memory_limit_bytes();
    out->sharedMemPerMultiprocessor = shared_most() + (capability() >= 80 ? 1 << 10 : 0);
    out->major = capability() / 10;
    out->minor = capability() % 10;
    out->multiProcessorCount = (int)(setting("sms", 1) * box.percents / 100);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *out)
{
    std::lock_guard<std::recursive_mutex> held(box.lock);
    box_ready();
    *out = box.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *out)
{
    *out = RUNTIME_VERSION;
    return cudaSuccess;
}

/* ---- shared memory of blocks ---- */

static std::map<const void *, size_t> shared_allowed; /* by kernel */

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value)
{
    std::lock_guard<std::recursive_mutex> held(box.lock);
    if (value < 0 || (size_t)value > shared_most())
        return cudaErrorInvalidValue;
    shared_allowed[kernel] = (size_t)value;
    return cudaSuccess;
}

void cuda_on_cpu_shared_check(const char *name, const void *kernel, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> held(box.lock);
    size_t most = shared_allowed.count(kernel) ? shared_allowed[kernel] : 0;
    if (bytes > (most > 48 << 10 ? most : 48 << 10))
        die(nullptr, "%s asks for %zu bytes of shared memory, which nobody has allowed it", name,
            bytes);
}

/* ---- memory ---- */

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    CALL;
    *free_bytes = memory_free_bytes();
    *total = memory_limit_bytes();
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    CALL_NOT_KEPT(nullptr);
    *out = malloc_fails() ? nullptr : memory_take(bytes);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cuda_on_cpu_arena(void **out, size_t bytes, size_t *stretch)
{
    CALL_NOT_KEPT(nullptr);
    *stretch = 2;
    *out = malloc_fails() ? nullptr : memory_take(bytes, 2 * bytes);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cuda_on_cpu_arena_take(void *p, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> held(box.lock);
    if (malloc_fails())
        return cudaErrorMemoryAllocation;
    memory_part(p, bytes, true);
    return cudaSuccess;
}

void cuda_on_cpu_arena_give(void *p, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> held(box.lock);
    memory_part(p, bytes, false);
}

cudaError_t cudaFree(void *p)
{
    runtime_call held;
    if (held.failure != cudaSuccess) {
        memory_give(p); /* with a GPU that is lost its memory goes, too */
        return held.failure;
    }
    if (graph_spoil(nullptr))
        return cudaErrorStreamCaptureUnsupported;
    if (!p)
        return cudaSuccess;
    work_until(work_is_over);
    return memory_give(p) ? cudaSuccess : cudaErrorInvalidValue;
}

/* Of so many bytes and more, between host and device: a frame's rows, but no table. */
enum { LARGE_COPY_BYTES = 64 << 10 };
static std::atomic<uint64_t> large_copies[2]; /* to the device, to the host */

static void copy_count(size_t bytes, cudaMemcpyKind kind)
{
    if (bytes >= LARGE_COPY_BYTES && kind != cudaMemcpyDeviceToDevice)
        large_copies[kind == cudaMemcpyDeviceToHost]++;
}

extern "C" {
uint64_t cuda_on_cpu_large_copies(int to_host)
{
    return large_copies[to_host != 0];
}
/* What another part of the box does that reaches a device's memory by itself, at once and whatever
 * streams have yet to do. */
int cuda_on_cpu_reach(void *host, void *device, size_t bytes, int to_device)
{
    guest_lock guest;
    CALL;
    memory_check("a transport", device, bytes, to_device);
    memory_open(true);
    memcpy(to_device ? device : host, to_device ? host : device, bytes);
    memory_open(false);
    if (to_device)
        memory_written(device, bytes);
    return cudaSuccess;
}
}

static void copy_run(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    bool into = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
         out_of = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if ((!into && memory_is_device(to)) || (!out_of && memory_is_device(from)))
        die(nullptr, "a copy takes an address of the device for one of the host");
    if (out_of)
        memory_check("a copy", from, bytes, false);
    if (into)
        memory_check("a copy", to, bytes, true);
    earlier_end();
    memmove(to, from, bytes);
    if (into)
        memory_written(to, bytes);
}

/* Bytes a second that come from the host now; 0: any number. */
static double upload_rate()
{
    double rate = 0;
    std::string path = setting_text("upload");
    FILE *f = path.empty() ? nullptr : fopen(path.c_str(), "r");
    if (f && fscanf(f, "%lf", &rate) != 1)
        rate = 0;
    if (f)
        fclose(f);
    return rate;
}

/* What comes from the host takes its time, and holds up nobody else. */
static void upload_pace(size_t bytes, cudaMemcpyKind kind)
{
    const double turn_s = 0.02;
    double left = kind == cudaMemcpyHostToDevice ? (double)bytes : 0, rate;
    while (left >= 1 && (rate = upload_rate()) > 0) { /* less: of rounding */
        double s = left / rate < turn_s ? left / rate : turn_s;
        std::this_thread::sleep_for(std::chrono::duration<double>(s));
        left -= rate * s;
    }
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    upload_pace(bytes, kind);
    CALL;
    copy_count(bytes, kind);
    work_add(s, [=] { copy_run(to, from, bytes, kind); });
    return kind == cudaMemcpyDeviceToHost && !host_is_pinned(to, bytes) ? cudaStreamSynchronize(s)
                                                                        : cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    CALL;
    if (width > to_pitch || width > from_pitch)
        return cudaErrorInvalidValue;
    copy_count(width * height, kind);
    work_add(s, [=] {
        for (size_t r = 0; r < height; r++)
            copy_run((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width, kind);
    });
    return kind == cudaMemcpyDeviceToHost && !host_is_pinned(to, (height - 1) * to_pitch + width)
               ? cudaStreamSynchronize(s)
               : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t s)
{
    CALL;
    work_add(s, [=] {
        memory_check("a memset", at, bytes, true);
        earlier_end();
        memset(at, value, bytes);
        memory_written(at, bytes);
    });
    return cudaSuccess;
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    CALL;
    *out = new CUstream_st{};
    (*out)->number = box.numbers < UINT16_MAX ? ++box.numbers : 0;
    box.streams.push_back(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    std::lock_guard<std::recursive_mutex> held(box.lock);
    green_leave(s);
    s->gone = true;
    if (box.lost)
        s->queue.clear();
    streams_sweep();
    return box.lost ? cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    CALL_NOT_KEPT(s);
    work_until([=] { return s->queue.empty(); });
    earlier_seen(s, work_is_over());
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t v, unsigned)
{
    CALL_NOT_KEPT(s);
    s->queue.push_back({nullptr, v, v->recorded});
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    CALL;
    if (!(flags & cudaEventDisableTiming) && !setting("moments", 1))
        return cudaErrorNotSupported;
    *out = new CUevent_st{};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t v)
{
    std::lock_guard<std::recursive_mutex> held(box.lock);
    if (!box.lost)
        work_until([=] { return v->reached >= v->recorded; });
    delete v;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t v, cudaStream_t s)
{
    CALL_NOT_KEPT(s);
    uint64_t turn = ++v->recorded;
    work_add(s, [=] {
        v->reached = turn;
        v->when_s = clock_now();
    });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t v)
{
    CALL;
    uint64_t turn = v->recorded;
    work_until([=] { return v->reached >= turn; });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t v)
{
    CALL;
    return v->reached >= v->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    CALL;
    if (!from->reached || !to->reached || from->reached < from->recorded ||
        to->reached < to->recorded)
        return cudaErrorNotReady;
    *ms = (float)((to->when_s - from->when_s) * 1e3);
    return cudaSuccess;
}
