#include "agent/backend/cpu/threads.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* About 20 microseconds of pauses: longer than the gap between two operators, shorter than anyone else notices. */
enum { SPINS = 600 };

struct worker {
    struct threads *pool;
    pthread_t thread;
    int index;
};

struct threads {
    int n, n_started;
    pthread_mutex_t sleep; /* guards parking on either side */
    pthread_cond_t work, done;
    void (*fn)(void *ctx, int thread);
    void *ctx;
    atomic_uint round;     /* grows by one with every call */
    atomic_int busy;       /* workers that have not finished this round */
    atomic_bool stopping;
    struct worker workers[];
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Until a round other than `seen` begins. */
static unsigned next_round(struct threads *t, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned now = atomic_load(&t->round);
        if (now != seen)
            return now;
        pause_briefly();
    }
    pthread_mutex_lock(&t->sleep);
    while (atomic_load(&t->round) == seen)
        pthread_cond_wait(&t->work, &t->sleep);
    pthread_mutex_unlock(&t->sleep);
    return atomic_load(&t->round);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct threads *t = w->pool;
    for (unsigned seen = 0;;) {
        seen = next_round(t, seen);
        if (atomic_load(&t->stopping))
            return NULL;
        t->fn(t->ctx, w->index);
        if (atomic_fetch_sub(&t->busy, 1) == 1) {
            pthread_mutex_lock(&t->sleep);
            pthread_cond_signal(&t->done);
            pthread_mutex_unlock(&t->sleep);
        }
    }
}

static void begin_round(struct threads *t)
{
    pthread_mutex_lock(&t->sleep);
    atomic_fetch_add(&t->round, 1);
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->sleep);
}

void threads_run(struct threads *t, void (*fn)(void *ctx, int thread), void *ctx)
{
    if (t->n == 1) {
        fn(ctx, 0);
        return;
    }
    t->fn = fn;
    t->ctx = ctx;
    atomic_store(&t->busy, t->n - 1);
    begin_round(t);
    fn(ctx, 0);
    for (int i = 0; i < SPINS && atomic_load(&t->busy) > 0; i++)
        pause_briefly();
    if (atomic_load(&t->busy) > 0) {
        pthread_mutex_lock(&t->sleep);
        while (atomic_load(&t->busy) > 0)
            pthread_cond_wait(&t->done, &t->sleep);
        pthread_mutex_unlock(&t->sleep);
    }
}

int threads_count(const struct threads *t) { return t->n; }

static int start_worker(struct threads *t, int index, const cpu_set_t *allowed)
{
    struct worker *w = &t->workers[index - 1];
    *w = (struct worker){.pool = t, .index = index};
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0)
        return -1;
    if (allowed)
        pthread_attr_setaffinity_np(&attr, sizeof *allowed, allowed);
    int rc = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_attr_destroy(&attr);
    if (rc == 0)
        t->n_started++;
    return rc;
}

int threads_create(int n, const int *cores, int n_cores, struct threads **out, struct err *e)
{
    if (n < 1 || n > THREADS_MAX)
        return err_set(e, HP_EINVAL, "%d threads: 1 to %d can be used", n, THREADS_MAX);
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    for (int i = 0; i < n_cores && cores; i++) {
        if (cores[i] < 0 || cores[i] >= CPU_SETSIZE)
            return err_set(e, HP_EINVAL, "there is no core %d", cores[i]);
        CPU_SET((size_t)cores[i], &allowed);
    }
    struct threads *t = calloc(1, sizeof *t + (size_t)(n - 1) * sizeof *t->workers);
    if (!t)
        return err_set(e, HP_ENOMEM, "no memory for %d threads", n);
    t->n = n;
    pthread_mutex_init(&t->sleep, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    for (int i = 1; i < n; i++)
        if (start_worker(t, i, cores && n_cores > 0 ? &allowed : NULL) != 0) {
            threads_destroy(&t);
            return err_set(e, HP_EDEVICE, "cannot start thread %d of %d on the cores given", i + 1, n);
        }
    *out = t;
    return 0;
}

void threads_destroy(struct threads **pool)
{
    struct threads *t = *pool;
    *pool = NULL;
    if (!t)
        return;
    atomic_store(&t->stopping, true);
    begin_round(t);
    for (int i = 0; i < t->n_started; i++)
        pthread_join(t->workers[i].thread, NULL);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->sleep);
    free(t);
}
