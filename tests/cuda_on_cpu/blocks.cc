/* Kernels: blocks one after the other, threads of a block as fibers that give way at barriers and
 * shuffles. */
#include <algorithm>
#include <sys/mman.h>
#include <vector>

#include "cuda_on_cpu_int.h"

#ifndef __x86_64__
#error "CUDA on the CPU switches fibers of x86-64 alone"
#endif

cuda_on_cpu_place cuda_on_cpu_here;

/* Keeps what a call keeps, leaves this stack for that one. */
extern "C" void cuda_on_cpu_switch(void **from, void *to);
asm(".text\n"
    ".hidden cuda_on_cpu_switch\n"
    ".globl cuda_on_cpu_switch\n"
    ".type cuda_on_cpu_switch,@function\n"
    "cuda_on_cpu_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp,(%rdi)\n  mov %rsi,%rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size cuda_on_cpu_switch,.-cuda_on_cpu_switch\n");

namespace cuda_on_cpu
{

enum { THREADS_MAX = 1024, STACK_BYTES = 32 << 10 };
enum fiber_state { FIBER_READY, FIBER_AT_BARRIER, FIBER_AT_WARP, FIBER_DONE };

struct fiber {
    void *stack;
    fiber_state state;
    const void *pc; /* where it waits */
    dim3 thread;
};
struct warp {
    unsigned lanes, arrived;
    uint64_t given[32], all[32];
};

static struct {
    fiber fibers[THREADS_MAX];
    warp warps[32];
    uint8_t *stacks;
    void *scheduler;
    int n, current, done, at_barrier;
    void *closure;
    void (*call)(void *);
    uint64_t seed;
} blocks;

__thread bool runs_kernels;

void draw_seed(uint64_t seed)
{
    blocks.seed = seed * 2 + 1;
}

unsigned draw(unsigned n)
{
    blocks.seed = blocks.seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((blocks.seed >> 33) % n);
}

bool earlier_are_over()
{
    return !now.early || now.waited[now.thread];
}

static uint32_t seen[UINT16_MAX + 1]; /* by number of a stream: launches that all come after */

void earlier_end()
{
    now.stream->over = now.launch;
}

void earlier_seen(cudaStream_t s, bool alone)
{
    s->over = now.launch;
    if (alone && s->number)
        seen[s->number] = now.launch;
}

bool launch_is_over(uint16_t stream, uint32_t launch)
{
    bool own = stream && stream == now.stream->number;
    return launch <= seen[stream] || (own && launch <= now.stream->over);
}

static void fiber_leave(fiber_state state, const void *pc)
{
    fiber &f = blocks.fibers[blocks.current];
    f.state = state;
    f.pc = pc;
    cuda_on_cpu_switch(&f.stack, blocks.scheduler);
}

static void fiber_main()
{
    now.on = true;
    blocks.call(blocks.closure);
    if (!earlier_are_over())
        die(nullptr, "a thread of a kernel that is launched early ends without a wait for others");
    fiber_leave(FIBER_DONE, nullptr);
    __builtin_trap();
}

static void fiber_prepare(int i, dim3 block)
{
    fiber &f = blocks.fibers[i];
    void **top = (void **)(blocks.stacks + (size_t)(i + 1) * STACK_BYTES);
    *--top = nullptr; /* a call leaves the stack so */
    *--top = (void *)fiber_main;
    top -= 6;
    f.stack = top;
    f.state = FIBER_READY;
    unsigned n = (unsigned)i;
    f.thread = dim3(n % block.x, n / block.x % block.y, n / block.x / block.y);
    blocks.warps[i / 32].lanes |= 1u << i % 32;
}

static void fiber_enter(int i)
{
    blocks.current = i;
    now.thread = i;
    cuda_on_cpu_here.thread = blocks.fibers[i].thread;
    now.on = true;
    cuda_on_cpu_switch(&blocks.scheduler, blocks.fibers[i].stack);
    now.on = false;
}

static void place_take(int i)
{
    now.thread = i;
    cuda_on_cpu_here.thread = blocks.fibers[i].thread;
}

/* Nobody can go on: all wait at one barrier, or something is wrong. */
static void barrier_pass()
{
    int waits = -1, other = -1;
    for (int i = 0; i < blocks.n; i++) {
        if (blocks.fibers[i].state == FIBER_AT_BARRIER)
            waits = waits < 0 || blocks.fibers[waits].pc == blocks.fibers[i].pc ? i : waits;
        else
            other = i;
        if (blocks.fibers[i].state == FIBER_AT_WARP) {
            place_take(i);
            die(blocks.fibers[i].pc, "lanes of a warp wait for others that never come");
        }
    }
    for (int i = 0; i < blocks.n; i++)
        if (other < 0 && blocks.fibers[i].pc != blocks.fibers[waits].pc) {
            place_take(i);
            die(blocks.fibers[i].pc, "threads of a block wait at different barriers");
        }
    if (other >= 0) {
        place_take(waits);
        die(blocks.fibers[waits].pc, "a barrier that thread %d never reaches: it has ended", other);
    }
    now.epoch++;
    for (int i = 0; i < blocks.n; i++)
        blocks.fibers[i].state = FIBER_READY;
}

static void block_run(dim3 block)
{
    static int order[THREADS_MAX];
    memset(blocks.warps, 0, sizeof blocks.warps);
    memset(now.warp_epochs, 0, sizeof now.warp_epochs);
    memset(now.waited, 0, sizeof now.waited);
    now.block++;
    now.epoch++;
    blocks.n = (int)(block.x * block.y * block.z);
    copies_forget(blocks.n);
    products_forget(blocks.n);
    for (int i = 0; i < blocks.n; i++) {
        fiber_prepare(i, block);
        order[i] = i;
    }
    for (int i = blocks.n - 1; i > 0; i--)
        std::swap(order[i], order[draw((unsigned)i + 1)]);
    for (;;) {
        bool ran = false, over = true;
        for (int i = 0; i < blocks.n; i++) {
            if (blocks.fibers[order[i]].state == FIBER_READY) {
                fiber_enter(order[i]);
                ran = true;
            }
            over = over && blocks.fibers[order[i]].state == FIBER_DONE;
        }
        if (over)
            return;
        if (!ran)
            barrier_pass();
    }
}

static void launch_check(const char *kernel, dim3 grid, dim3 block, size_t shared)
{
    size_t threads = (size_t)block.x * block.y * block.z;
    if (threads == 0 || threads > THREADS_MAX || block.z > 64 || grid.x == 0 || grid.y == 0 ||
        grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        die(nullptr, "%s: a grid of %u x %u x %u blocks of %zu threads with %zu bytes cannot be",
            kernel, grid.x, grid.y, grid.z, threads, shared);
}

void kernel_run(const cuda_on_cpu_kernel &kernel, void *closure, size_t bytes, void (*call)(void *))
{
    const dim3 grid = kernel.grid, block = kernel.block;
    launch_check(kernel.name, grid, block, kernel.shared);
    if (!blocks.stacks) {
        blocks.stacks =
            (uint8_t *)mmap(nullptr, (size_t)THREADS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        now.stacks = blocks.stacks;
        now.stacks_end = blocks.stacks + (size_t)THREADS_MAX * STACK_BYTES;
    }
    now.kernel = kernel.name;
    now.early = kernel.early;
    if (!kernel.early)
        earlier_end();
    now.launch++;
    now.closure = (const uint8_t *)closure;
    now.closure_end = now.closure + bytes;
    now.dynamic_end = now.dynamic + kernel.shared;
    blocks.closure = closure;
    blocks.call = call;
    cuda_on_cpu_here.block_dim = block;
    cuda_on_cpu_here.grid_dim = grid;
    runs_kernels = true;
    uint64_t n = (uint64_t)grid.x * grid.y * grid.z, first = draw((unsigned)n);
    for (uint64_t k = 0; k < n; k++) {
        uint64_t i = (first + k) % n;
        cuda_on_cpu_here.block = dim3((unsigned)(i % grid.x), (unsigned)(i / grid.x % grid.y),
                                      (unsigned)(i / grid.x / grid.y));
        block_run(block);
    }
    now.kernel = nullptr;
    runs_kernels = false;
    clock_run(kernel);
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

void __syncthreads()
{
    fiber_leave(FIBER_AT_BARRIER, __builtin_return_address(0));
}

void cuda_on_cpu_earlier_wait()
{
    now.waited[now.thread] = true;
}

unsigned cuda_on_cpu_lane()
{
    return (unsigned)now.thread % 32;
}

unsigned cuda_on_cpu_lanes()
{
    return blocks.warps[now.thread / 32].lanes;
}

const uint64_t *cuda_on_cpu::warp_exchange(unsigned mask, uint64_t value, const void *pc)
{
    warp &w = blocks.warps[now.thread / 32];
    int first = now.thread / 32 * 32;
    if ((mask & w.lanes) != w.lanes)
        die(pc, "a mask of %08x leaves lanes of the warp out: this stand-in knows whole warps",
            mask);
    w.given[now.thread % 32] = value;
    w.arrived |= 1u << now.thread % 32;
    if (w.arrived != w.lanes) {
        fiber_leave(FIBER_AT_WARP, pc);
        return w.all;
    }
    memcpy(w.all, w.given, sizeof w.all);
    w.arrived = 0;
    now.warp_epochs[now.thread / 32]++;
    for (int i = first; i < first + 32 && i < blocks.n; i++)
        if (i != now.thread)
            blocks.fibers[i].state = FIBER_READY;
    return w.all;
}

uint64_t cuda_on_cpu_exchange(unsigned mask, uint64_t value, unsigned from)
{
    const uint64_t *all = warp_exchange(mask, value, __builtin_return_address(0));
    return from < 32 && (cuda_on_cpu_lanes() >> from & 1) ? all[from] : value;
}

void __syncwarp(unsigned mask)
{
    warp_exchange(mask, 0, __builtin_return_address(0));
}

unsigned __ballot_sync(unsigned mask, int vote)
{
    const uint64_t *all = warp_exchange(mask, vote != 0, __builtin_return_address(0));
    unsigned bits = 0;
    for (int i = 0; i < 32; i++)
        bits |= (unsigned)(all[i] & 1) << i;
    return bits & cuda_on_cpu_lanes();
}

void *cuda_on_cpu_dynamic_shared()
{
    return now.dynamic;
}

float __half2float(__half h)
{
    unsigned sign = (unsigned)(h.bits & 0x8000) << 16, e = h.bits >> 10 & 31, m = h.bits & 0x3ff;
    if (e == 31)
        return __uint_as_float(sign | 0x7f800000u | m << 13);
    if (e)
        return __uint_as_float(sign | (e + 112) << 23 | m << 13);
    float small = (float)m * 5.9604644775390625e-8f;
    return sign ? -small : small;
}

__half __float2half_rn(float f)
{
    unsigned bits = __float_as_uint(f), sign = bits >> 16 & 0x8000, mag = bits & 0x7fffffff;
    if (mag > 0x7f800000)
        return {(unsigned short)(sign | 0x7fff)};
    if (mag >= 0x477ff000)
        return {(unsigned short)(sign | 0x7c00)};
    if (mag < 0x38800000) /* subnormal: the adder rounds to even */
        return {
            (unsigned short)(sign | (__float_as_uint(__uint_as_float(mag) + 0.5f) - 0x3f000000))};
    return {(unsigned short)(sign | ((mag - 0x38000000 + 0xfff + (mag >> 13 & 1)) >> 13))};
}
