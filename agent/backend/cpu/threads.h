/* A pool of threads that share out the parts of one piece of work: the caller is thread 0. Between
 * the calls of a step a thread spins for at most 0.2 ms, so that decode's many short operators
 * start at once, and behind its last one for microseconds; then it parks, and an idle pool costs
 * nothing.
 *
 * Parts go to whoever is free. On a machine that others use too, a thread that the system does not
 * run takes no part, and nobody waits for it: the caller does the rest. */
#ifndef HP_AGENT_BACKEND_CPU_THREADS_H
#define HP_AGENT_BACKEND_CPU_THREADS_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct threads;

/* `n` threads in all (1 to THREADS_MAX), n - 1 of them its own, allowed on `cores` (NULL: wherever
 * the process may run). */
enum { THREADS_MAX = 256 };
int threads_create(int n, const int *cores, int n_cores, struct threads **out, struct err *e);
void threads_destroy(struct threads **t);
int threads_count(const struct threads *t);
/* Cores that this process may use. */
int threads_possible(void);

/* Thread i, one of its own, keeps to these cores from now on, where the system lets it. */
void threads_keep(struct threads *t, int i, const cpu_set_t *cores);

/* Calls fn(ctx, thread, part) once for every part below n_parts, and returns when all are done.
 * Calls of one thread follow each other. One caller at a time, and beside it the guest. */
void threads_run(struct threads *t, uint32_t n_parts,
                 void (*fn)(void *ctx, int thread, uint32_t part), void *ctx);

/* A step ends here: whoever waits for work parks. The next call begins another. */
void threads_rest(struct threads *t);

/* Makes the calling thread the pool's one guest: its work goes on the pool only while nobody else
 * wants it, a few parts at a time, and otherwise on the guest alone, which is then thread number
 * threads_count(). */
void threads_guest_enter(struct threads *t);

/* How n items are cut into parts: units of `grain` items, and so many of them to a part that every
 * thread gets a few parts, but at most `most` items (0: any number). */
struct parts {
    size_t n, size; /* items in all and of a part; the last may have fewer */
    uint32_t count;
};
struct parts threads_parts(const struct threads *t, size_t n, size_t grain, size_t most);

static inline size_t parts_begin(const struct parts *p, uint32_t part)
{
    return part * p->size;
}
static inline size_t parts_end(const struct parts *p, uint32_t part)
{
    return (part + 1) * p->size < p->n ? (part + 1) * p->size : p->n;
}

#endif
