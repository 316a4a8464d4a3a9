/* What the files of the stand-in share: memory.cc knows what may be touched, blocks.cc runs
 * kernels, streams.cc orders work. */
#ifndef HP_TESTS_CUDA_ON_CPU_INT_H
#define HP_TESTS_CUDA_ON_CPU_INT_H

#include <deque>
#include <functional>

#include "cuda_runtime.h"

/* Work, and for what it waits. */
struct stream_work {
    std::function<void()> run;
    cudaEvent_t waits;
    uint64_t until;
};
struct CUstream_st {
    std::deque<stream_work> queue;
    cudaGraph_t keeps;           /* what takes work instead; nullptr: none */
    struct CUgreenCtx_st *green; /* whose it is; nullptr: the GPU's */
    bool gone;                   /* destroyed, and goes when its work is done */
    uint16_t number;             /* of all streams; 0: one too many to tell it from others */
    uint32_t over; /* launches up to this one, where they are the stream's, have ended before
                      anything that comes now begins */
};

namespace cuda_on_cpu
{

/* What runs a kernel now. */
struct kernel_now {
    bool on; /* accesses are looked at */
    const char *kernel;
    cudaStream_t stream; /* whose work is done */
    uint32_t launch;     /* counts launches */
    uint32_t block;      /* counts blocks of all launches */
    uint64_t epoch;      /* counts blocks and barriers of all launches */
    int thread;          /* of the block */
    uint32_t warp_epochs[32];
    bool early;        /* it may begin before others are over, for which each thread waits */
    bool waited[1024]; /* threads of the block that have */
    const uint8_t *closure, *closure_end; /* the kernel's arguments */
    const uint8_t *stacks, *stacks_end;   /* of the fibers */
    uint8_t *dynamic, *dynamic_end;       /* shared memory whose size the launch says */
};
extern kernel_now now;
/* Whether the thread that asks runs a kernel: others' accesses are nobody's business meanwhile. */
extern __thread bool runs_kernels __attribute__((tls_model("initial-exec")));

/* Ends the process: what is wrong, where in the kernel, and the line of `pc` (NULL: none). */
[[noreturn]] void die(const void *pc, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* memory.cc. One thread at a time. */
void memory_limit(size_t bytes);
size_t memory_limit_bytes();
size_t memory_free_bytes();
void *memory_take(size_t bytes, size_t room = 0); /* NULL: none left. room: of an arena */
/* A part of an arena is somebody's from now on, or nobody's. */
void memory_part(void *p, size_t bytes, bool taken);
bool memory_give(void *p); /* false: there is no such allocation */
bool memory_is_device(const void *p);
void memory_open(bool open); /* whether it may be touched */
/* For copies: [p, p + n) lies in one allocation, and was written where it is read. */
void memory_check(const char *what, const void *p, size_t n, bool writes);
void memory_written(const void *p, size_t n);
/* An access of the thread that runs. */
void touch(const void *at, size_t n, bool writes, const void *pc, bool atomic = false);

/* blocks.cc */
/* Whether the thread that runs may find what other kernels write. */
bool earlier_are_over();
/* Work of now.stream that waits for all before it and that what comes after waits for, as copies
 * are: kernels of the stream so far are over, also to those that are launched early. */
void earlier_end();
/* The host has seen the end of the stream's work. `alone`: and no stream has any that was put on it
 * before, so that all that runs from now on comes after. */
void earlier_seen(cudaStream_t s, bool alone);
/* Whether a launch of that stream has ended before one that is launched early now begins. Waits of
 * streams for events count for nothing: the backend has none. */
bool launch_is_over(uint16_t stream, uint32_t launch);
void kernel_run(const cuda_on_cpu_kernel &kernel, void *closure, size_t bytes,
                void (*call)(void *));
/* What all lanes of the warp give; until the next such call. */
const uint64_t *warp_exchange(unsigned mask, uint64_t value, const void *pc);
/* async.cc: a block begins; what the one before did not wait for is gone. */
void copies_forget(int threads);
/* warpgroup.cc: the same of products. */
void products_forget(int threads);
/* From 0 to n - 1, seeded. */
unsigned draw(unsigned n);
void draw_seed(uint64_t seed);

/* graphs.cc: takes what is put on a stream that is kept. False: it is not. */
bool graph_add(cudaStream_t s, const std::function<void()> &run);
/* Something that is not allowed while this thread keeps work, or while the stream is kept. */
bool graph_spoil(cudaStream_t s);

/* driver.cc: work of a stream is counted; a stream goes. */
void green_note(cudaStream_t s);
void green_leave(cudaStream_t s);

/* host.cc: memory that copies reach by themselves. */
bool host_is_pinned(const void *p, size_t bytes);

/* streams.cc: while it lives this thread alone answers a call; what it answers instead. */
struct runtime_call {
    runtime_call();
    ~runtime_call();
    runtime_call(const runtime_call &) = delete;
    cudaError_t failure;
};
/* work for later; false: the device is lost. */
bool stream_add(cudaStream_t s, std::function<void()> run);
void clock_run(const cuda_on_cpu_kernel &kernel); /* it has run */
int capability();                                 /* 75 is 7.5 */
int device_count();
bool malloc_fails(); /* this one */
uint64_t setting(const char *name, uint64_t otherwise);

} // namespace cuda_on_cpu

#endif
