#include "hpctl/waiting.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/env.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"

enum { FIRST_MS = 1000, TICK_MS = 500 };

struct waiting {
    struct progress_bar bar; /* the thread's, until that has ended */
    char what[120];
    double limit_s;
    uint64_t since_ns;
    pthread_t thread;
    pthread_mutex_t lock; /* of `ends` */
    pthread_cond_t changed;
    bool ends;
};

static void waiting_show(struct waiting *w)
{
    double s = (double)(env_now_ns(&env_real) - w->since_ns) / 1e9;
    progress_show(&w->bar, shown_of("%s: %.0f s", w->what, s).s, s, w->limit_s);
}

static struct timespec time_in(uint64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    t.tv_sec += (time_t)(ms / 1000) + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static void *waiting_run(void *ctx)
{
    struct waiting *w = ctx;
    struct timespec next = time_in(FIRST_MS);
    pthread_mutex_lock(&w->lock);
    while (!w->ends)
        if (pthread_cond_timedwait(&w->changed, &w->lock, &next) != 0) {
            waiting_show(w);
            next = time_in(TICK_MS);
        }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Signals are for the thread that works. */
static int thread_start(struct waiting *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, waiting_run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void waiting_free(struct waiting *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

struct waiting *waiting_begin(const char *what, double limit_s, bool quiet)
{
    struct waiting *w = quiet ? NULL : calloc(1, sizeof *w);
    pthread_condattr_t monotonic;
    if (!w)
        return NULL;
    progress_init(&w->bar, false);
    snprintf(w->what, sizeof w->what, "%s", what);
    w->limit_s = limit_s;
    w->since_ns = env_now_ns(&env_real);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (thread_start(w) == 0)
        return w;
    waiting_free(w);
    return NULL;
}

void waiting_end(struct waiting **waiting)
{
    struct waiting *w = *waiting;
    *waiting = NULL;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    progress_end(&w->bar);
    waiting_free(w);
}
