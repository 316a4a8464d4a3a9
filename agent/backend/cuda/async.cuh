/* Copies from device memory to shared memory that run while a thread goes on (cp.async, Ampere and
 * later; before it a load and a store), and words of shared memory that lie anywhere. */
#ifndef HP_AGENT_BACKEND_CUDA_ASYNC_CUH
#define HP_AGENT_BACKEND_CUDA_ASYNC_CUH

#include "agent/backend/cuda/cuda.cuh"

/* A place in shared memory: 32 bits, with which a GPU counts faster than with addresses. */
#ifdef CUDA_ON_CPU
typedef const uint8_t *shared_at;
#else
typedef unsigned shared_at;
#endif

static __device__ __forceinline__ shared_at shared_at_of(const void *p)
{
#ifdef CUDA_ON_CPU
    return (const uint8_t *)p;
#else
    return (unsigned)__cvta_generic_to_shared(p);
#endif
}

static __device__ __forceinline__ unsigned shared_byte(shared_at at)
{
#ifdef CUDA_ON_CPU
    return *at;
#else
    unsigned out;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(out) : "r"(at) : "memory");
    return out;
#endif
}

static __device__ __forceinline__ unsigned short shared_half(shared_at at)
{
#ifdef CUDA_ON_CPU
    return *(const unsigned short *)at;
#else
    unsigned short out;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(out) : "r"(at) : "memory");
    return out;
#endif
}

static __device__ __forceinline__ unsigned shared_word(shared_at at)
{
#ifdef CUDA_ON_CPU
    return *(const unsigned *)at;
#else
    unsigned out;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(out) : "r"(at) : "memory");
    return out;
#endif
}

static __device__ __forceinline__ uint4 shared_quad(shared_at at)
{
#ifdef CUDA_ON_CPU
    return *(const uint4 *)at;
#else
    uint4 out;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "r"(at)
                 : "memory");
    return out;
#endif
}

static __device__ __forceinline__ void shared_quad_put(shared_at at, uint4 v)
{
#ifdef CUDA_ON_CPU
    *(uint4 *)(uintptr_t)at = v;
#else
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
#endif
}

/* Four bytes of a table of eight, by four numbers of four bits: a number above 7 gives 0, since no
 * byte of the table is above 127. */
static __device__ __forceinline__ unsigned table_bytes(unsigned low, unsigned high, unsigned which)
{
#ifdef CUDA_ON_CPU
    unsigned out = 0;
    for (int i = 0; i < 4; i++, which >>= 4)
        out |= (which & 8 ? 0 : (which & 4 ? high : low) >> (which & 3) * 8 & 0xff) << i * 8;
    return out;
#else
    unsigned out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(which));
    return out;
#endif
}

/* 16 bytes; both addresses are multiples of that. */
static __device__ __forceinline__ void async_copy_16(shared_at to, const void *global)
{
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_copy_async((void *)(uintptr_t)to, global, 16);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
#else
    shared_quad_put(to, *(const uint4 *)global);
#endif
}

/* Ends a group of this thread's copies. */
static __device__ __forceinline__ void async_group_end()
{
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_copy_group_end();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Until all of this thread's groups but the last `but` are there. */
template <int BUT> static __device__ __forceinline__ void async_groups_wait()
{
#if defined(CUDA_ON_CPU)
    cuda_on_cpu_copy_groups_wait(BUT);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(BUT) : "memory");
#endif
}

/* Where words lie that begin at any byte: the aligned one with their first byte, and by how many
 * bits they are shifted, of which the last 5 count. */
struct words_place {
    shared_at from;
    unsigned shift;
};

static __device__ __forceinline__ words_place words_at(shared_at at)
{
    words_place w = {at - ((unsigned)(uintptr_t)at & 3), (unsigned)(uintptr_t)at * 8};
#ifndef CUDA_ON_CPU
    asm("" : "+r"(w.from), "+r"(w.shift)); /* or each use counts anew where they are */
#endif
    return w;
}

/* N words, `plus` bytes after their place, a multiple of 4. Where they begin at a multiple of 4 the
 * word after them has no part in it: a GPU reads it all the same, which is less than to ask whether
 * it has. */
template <int N>
static __device__ __forceinline__ void words_take(const words_place &place, uint32_t plus,
                                                  unsigned *out)
{
    shared_at from = place.from + plus;
    unsigned low = shared_word(from);
#pragma unroll
    for (int i = 0; i < N; i++) {
#ifdef CUDA_ON_CPU
        unsigned high = i + 1 < N || place.shift % 32 ? shared_word(from + i * 4 + 4) : 0;
#else
        unsigned high = shared_word(from + i * 4 + 4);
#endif
        out[i] = __funnelshift_r(low, high, place.shift);
        low = high;
    }
}

/* The same, once. */
template <int N>
static __device__ __forceinline__ void words_read(shared_at at, uint32_t plus, unsigned *out)
{
    const words_place place = {at - ((unsigned)(uintptr_t)at & 3), (unsigned)(uintptr_t)at * 8};
    words_take<N>(place, plus, out);
}

#endif
