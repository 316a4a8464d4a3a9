#include "common/spread.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS_MOST = 64 };

struct spread_thread {
    void (*work)(void *ctx, int i);
    void *ctx;
    int i;
    pthread_t thread;
};

int spread_threads(int most, uint64_t parts)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    int n = cores < most ? cores : most;
    n = parts < (uint64_t)n ? (int)parts : n;
    return n < 1 ? 1 : n;
}

static void *thread_run(void *ctx)
{
    const struct spread_thread *t = ctx;
    t->work(t->ctx, t->i);
    return NULL;
}

void spread_run(int n, void (*work)(void *ctx, int i), void *ctx)
{
    struct spread_thread threads[THREADS_MOST];
    int started = 1;
    for (; started < n && started < THREADS_MOST; started++) {
        threads[started] = (struct spread_thread){work, ctx, started, 0};
        if (pthread_create(&threads[started].thread, NULL, thread_run, &threads[started]) != 0)
            break;
    }
    work(ctx, 0);
    for (int i = started; i < n; i++)
        work(ctx, i);
    for (int i = 1; i < started; i++)
        pthread_join(threads[i].thread, NULL);
}
