/* A pool of threads that run one function together: the caller is thread 0. Between calls a thread spins for microseconds, then parks, so that
 * decode's many short operators start at once and an idle pool costs nothing. */
#ifndef HP_AGENT_BACKEND_CPU_THREADS_H
#define HP_AGENT_BACKEND_CPU_THREADS_H

#include "common/status.h"

#include <stddef.h>

struct threads;

/* `n` threads in all (1 to THREADS_MAX), n - 1 of them its own, allowed on `cores` (NULL: wherever the process may run). */
enum { THREADS_MAX = 256 };
int threads_create(int n, const int *cores, int n_cores, struct threads **out, struct err *e);
void threads_destroy(struct threads **t);
int threads_count(const struct threads *t);

/* Calls fn(ctx, thread) once on every thread, and returns when all are done. One caller at a time. */
void threads_run(struct threads *t, void (*fn)(void *ctx, int thread), void *ctx);

/* The part of n items, in units of `grain`, that falls to `thread` of `count`: [*begin, *end). */
static inline void threads_part(size_t n, size_t grain, int thread, int count, size_t *begin, size_t *end)
{
    size_t units = (n + grain - 1) / grain, each = units / (size_t)count, more = units % (size_t)count, i = (size_t)thread;
    size_t first = i * each + (i < more ? i : more), last = first + each + (i < more ? 1 : 0);
    *begin = first * grain < n ? first * grain : n;
    *end = last * grain < n ? last * grain : n;
}

#endif
