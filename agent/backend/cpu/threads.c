#include "agent/backend/cpu/threads.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long a thread spins before it parks: some microseconds, which nobody else notices, and while
 * a step goes on as long as other operators and other threads' last parts take. A core that has
 * gone to sleep is woken late, most of all under a hypervisor, and dozens of times a step, so a
 * thread stays with a step from its first operator to its last. Not on the core of a thread that it
 * waits for: that one would wait for the spinning. */
enum { SPIN_NS = 10000, SPIN_IN_STEP_NS = 200000, PAUSES_A_LOOK = 16, NO_CORE = -1 };

struct worker {
    struct threads *pool;
    pthread_t thread;
    int index;
    atomic_int core; /* where it was last seen awake; NO_CORE while it is parked */
};

struct threads {
    int n, n_started;
    pthread_mutex_t sleep; /* guards parking on either side */
    pthread_cond_t work, done;
    /* What runs. Changed only while no part is left, so whoever has taken a part may read it. */
    void (*fn)(void *ctx, int thread, uint32_t part);
    void *ctx;
    uint32_t n_parts;
    atomic_uint_fast64_t left;   /* round << 32 | parts that nobody has taken */
    atomic_uint_fast32_t undone; /* parts that are not done */
    atomic_bool stopping;
    atomic_bool in_step;    /* from threads_run on until threads_rest */
    atomic_int caller_core; /* where it was last seen */
    pthread_mutex_t caller; /* who has the pool: the caller, or the guest for a few parts */
    atomic_uint wanted;     /* the caller waits for it, or has it */
    atomic_bool has_guest;
    pthread_t guest;
    struct worker workers[];
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool take_part(struct threads *t, uint32_t *part)
{
    uint_fast64_t left = atomic_load(&t->left);
    do {
        if ((uint32_t)left == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&t->left, &left, left - 1));
    *part = t->n_parts - (uint32_t)left;
    return true;
}

/* Parts are taken until none is left. Whoever ends the last one tells the caller, who may be
 * parked. */
static void thread_work(struct threads *t, int thread)
{
    uint32_t part;
    while (take_part(t, &part)) {
        t->fn(t->ctx, thread, part);
        if (atomic_fetch_sub(&t->undone, 1) == 1 && thread != 0) {
            pthread_mutex_lock(&t->sleep);
            pthread_cond_signal(&t->done);
            pthread_mutex_unlock(&t->sleep);
        }
    }
}

static bool something_to_do(struct threads *t)
{
    return (uint32_t)atomic_load(&t->left) > 0 || atomic_load(&t->stopping);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Whether thread `self` may keep its core from others for as long as a step's operators take. */
static bool may_stay(struct threads *t, int self)
{
    int core = sched_getcpu();
    if (!atomic_load(&t->in_step))
        return false;
    if (self > 0)
        return atomic_load(&t->caller_core) != core;
    for (int i = 0; i < t->n_started; i++)
        if (atomic_load(&t->workers[i].core) == core)
            return false;
    return true;
}

/* Whether it is so while thread `self` spins. */
static bool spin_until(struct threads *t, int self, bool (*is_so)(struct threads *t))
{
    uint64_t began_ns = now_ns(), spun_ns;
    do {
        for (int i = 0; i < PAUSES_A_LOOK; i++) {
            if (is_so(t))
                return true;
            pause_briefly();
        }
        spun_ns = now_ns() - began_ns;
    } while (spun_ns < SPIN_NS || (spun_ns < SPIN_IN_STEP_NS && may_stay(t, self)));
    return false;
}

static void worker_park(struct worker *w)
{
    struct threads *t = w->pool;
    atomic_store(&w->core, NO_CORE);
    pthread_mutex_lock(&t->sleep);
    if (!something_to_do(t))
        pthread_cond_wait(&t->work, &t->sleep);
    pthread_mutex_unlock(&t->sleep);
}

/* Who is woken too late for an operator stays for the next one. */
static void wait_for_work(struct worker *w)
{
    while (!spin_until(w->pool, w->index, something_to_do))
        worker_park(w);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct threads *t = w->pool;
    while (!atomic_load(&t->stopping)) {
        atomic_store(&w->core, sched_getcpu());
        thread_work(t, w->index);
        wait_for_work(w);
    }
    return NULL;
}

static bool all_done(struct threads *t)
{
    return atomic_load(&t->undone) == 0;
}

static void wait_until_done(struct threads *t)
{
    if (spin_until(t, 0, all_done))
        return;
    pthread_mutex_lock(&t->sleep);
    while (!all_done(t))
        pthread_cond_wait(&t->done, &t->sleep);
    pthread_mutex_unlock(&t->sleep);
}

static void run_on_pool(struct threads *t, uint32_t n_parts,
                        void (*fn)(void *ctx, int thread, uint32_t part), void *ctx)
{
    t->fn = fn;
    t->ctx = ctx;
    t->n_parts = n_parts;
    atomic_store(&t->in_step, true);
    atomic_store(&t->caller_core, sched_getcpu());
    atomic_store(&t->undone, n_parts);
    pthread_mutex_lock(&t->sleep);
    atomic_store(&t->left, ((atomic_load(&t->left) >> 32) + 1) << 32 | n_parts);
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->sleep);
    thread_work(t, 0);
    wait_until_done(t);
}

/* Parts from `first` on, as if they were all. */
struct some_parts {
    void (*fn)(void *ctx, int thread, uint32_t part);
    void *ctx;
    uint32_t first;
};

static void some_part(void *ctx, int thread, uint32_t part)
{
    const struct some_parts *s = ctx;
    s->fn(s->ctx, thread, s->first + part);
}

/* Looks again before every few parts whether somebody wants the pool. */
static void run_as_guest(struct threads *t, uint32_t n_parts,
                         void (*fn)(void *ctx, int thread, uint32_t part), void *ctx)
{
    for (uint32_t part = 0; part < n_parts;) {
        uint32_t n = n_parts - part < (uint32_t)t->n ? n_parts - part : (uint32_t)t->n;
        struct some_parts some = {fn, ctx, part};
        if (n == 1 || atomic_load(&t->wanted) || pthread_mutex_trylock(&t->caller) != 0) {
            fn(ctx, t->n, part++);
            continue;
        }
        run_on_pool(t, n, some_part, &some);
        pthread_mutex_unlock(&t->caller);
        part += n;
    }
}

void threads_guest_enter(struct threads *t)
{
    t->guest = pthread_self();
    atomic_store(&t->has_guest, true);
}

void threads_run(struct threads *t, uint32_t n_parts,
                 void (*fn)(void *ctx, int thread, uint32_t part), void *ctx)
{
    if (atomic_load(&t->has_guest) && pthread_equal(pthread_self(), t->guest)) {
        run_as_guest(t, n_parts, fn, ctx);
        return;
    }
    if (t->n == 1 || n_parts <= 1) {
        for (uint32_t part = 0; part < n_parts; part++)
            fn(ctx, 0, part);
        return;
    }
    atomic_fetch_add(&t->wanted, 1);
    pthread_mutex_lock(&t->caller);
    run_on_pool(t, n_parts, fn, ctx);
    pthread_mutex_unlock(&t->caller);
    atomic_fetch_sub(&t->wanted, 1);
}

void threads_rest(struct threads *t)
{
    atomic_store(&t->in_step, false);
}

int threads_count(const struct threads *t)
{
    return t->n;
}

int threads_possible(void)
{
    cpu_set_t allowed;
    int n = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return n < THREADS_MAX ? n : THREADS_MAX;
}

struct parts threads_parts(const struct threads *t, size_t n, size_t grain, size_t most)
{
    enum { PARTS_A_THREAD = 4 };
    size_t units = (n + grain - 1) / grain, parts = t->n == 1 ? 1 : (size_t)t->n * PARTS_A_THREAD;
    size_t size = (units + parts - 1) / parts * grain;
    if (most > 0 && size > most)
        size = most;
    struct parts p = {.n = n, .size = size};
    p.count = size == 0 ? 0 : (uint32_t)((n + size - 1) / size);
    return p;
}

static int start_worker(struct threads *t, int index, const cpu_set_t *allowed)
{
    struct worker *w = &t->workers[index - 1];
    w->pool = t;
    w->index = index;
    atomic_init(&w->core, NO_CORE);
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
    pthread_mutex_init(&t->caller, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    for (int i = 1; i < n; i++)
        if (start_worker(t, i, cores && n_cores > 0 ? &allowed : NULL) != 0) {
            threads_destroy(&t);
            return err_set(e, HP_EDEVICE, "cannot start thread %d of %d on the cores given", i + 1,
                           n);
        }
    *out = t;
    return 0;
}

void threads_keep(struct threads *t, int i, const cpu_set_t *cores)
{
    pthread_setaffinity_np(t->workers[i - 1].thread, sizeof *cores, cores);
}

void threads_destroy(struct threads **pool)
{
    struct threads *t = *pool;
    *pool = NULL;
    if (!t)
        return;
    pthread_mutex_lock(&t->sleep);
    atomic_store(&t->stopping, true);
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->sleep);
    for (int i = 0; i < t->n_started; i++)
        pthread_join(t->workers[i].thread, NULL);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->sleep);
    pthread_mutex_destroy(&t->caller);
    free(t);
}
