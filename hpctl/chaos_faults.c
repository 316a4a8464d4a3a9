#include "hpctl/chaos_faults.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "common/env.h"
#include "hpctl/chaos_links.h"
#include "hpctl/local_lock.h"
#include "hpctl/local_members.h"
#include "hpctl/local_process.h"
#include "hpctl/progress.h"

/* A slow agent runs SLOW_RUNS_MS of every SLOW_PERIOD_MS: less than most of what it computes, which
 * would be done in time between two long stops. */
enum { LOOK_MS = 10, SLOW_PERIOD_MS = 20, SLOW_RUNS_MS = 2, MOST_STARTS = 5 };

/* As the file has it now: others may have started what they found dead. */
static int cluster_read_again(struct local_cluster *c, struct err *e)
{
    static struct local_cluster now;
    int rc = local_load(c->name, &now, e);
    if (rc == 0 && now.n_agents == c->n_agents)
        *c = now;
    return rc;
}

static double faults_now_s(const struct chaos_faults *f)
{
    return (double)(env_now_ns(&env_real) - f->start_ns) * 1e-9;
}

/* Waits until then, or until it is to stop. */
static void wait_until(const struct chaos_faults *f, double at_s)
{
    while (!atomic_load(&f->stop) && faults_now_s(f) < at_s)
        local_pause_ms(LOOK_MS);
}

struct victim {
    struct local_agent *agent; /* NULL: the coordinator */
    pid_t pid;
    uint64_t started;
};

static struct victim victim_of(const struct chaos_faults *f, const struct chaos_fault *fault)
{
    struct local_cluster *c = f->cluster;
    struct local_agent *a = fault->agent < 0 ? NULL : &c->agents[fault->agent];
    return (struct victim){a, a ? a->pid : c->coordinator_pid,
                           a ? a->started : c->coordinator_started};
}

static void victim_kill(const struct victim *v)
{
    kill(v->pid, SIGKILL);
    while (local_process_is_alive(v->pid, v->started)) {
        waitpid(v->pid, NULL, WNOHANG); /* where it is a child of this hpctl */
        local_pause_ms(1);
    }
}

static int victim_begin(struct local_cluster *c, struct local_agent *a, struct err *e)
{
    int lock, rc = local_lock_take(&lock, e);
    rc = rc < 0 ? rc : cluster_read_again(c, e);
    bool runs = a ? local_process_is_alive(a->pid, a->started)
                  : local_process_is_alive(c->coordinator_pid, c->coordinator_started);
    if (rc == 0 && !runs)
        rc = a ? local_start_again(c, a, e) : local_start_coordinator(c, e);
    if (rc == 0 && !runs)
        rc = local_save(c, e);
    local_lock_drop(&lock);
    return rc;
}

/* A coordinator that starts at the same time may not answer yet. */
static int victim_start(const struct chaos_faults *f, const struct victim *v, struct err *e)
{
    int rc = HP_EBUSY;
    for (int i = 0; rc < 0 && i < MOST_STARTS; i++) {
        if (i)
            local_pause_ms(500);
        rc = victim_begin(f->cluster, v->agent, e);
    }
    return rc;
}

static void victim_stop(const struct chaos_faults *f, const struct victim *v, double until_s)
{
    chaos_guard_hold(f->guard, v->pid, v->started, NULL);
    kill(v->pid, SIGSTOP);
    wait_until(f, until_s);
    kill(v->pid, SIGCONT);
    chaos_guard_drop(f->guard);
}

static void victim_slow(const struct chaos_faults *f, const struct victim *v, double until_s)
{
    chaos_guard_hold(f->guard, v->pid, v->started, NULL);
    while (!atomic_load(&f->stop) && faults_now_s(f) < until_s) {
        kill(v->pid, SIGSTOP);
        local_pause_ms(SLOW_PERIOD_MS - SLOW_RUNS_MS);
        kill(v->pid, SIGCONT);
        local_pause_ms(SLOW_RUNS_MS);
    }
    chaos_guard_drop(f->guard);
}

/* Its files do not grow meanwhile. */
static int victim_fill(const struct chaos_faults *f, const struct victim *v, double until_s,
                       struct err *e)
{
    struct rlimit before;
    bool bounded = prlimit(v->pid, RLIMIT_FSIZE, NULL, &before) == 0;
    if (bounded) {
        const struct rlimit none = {0, before.rlim_max};
        chaos_guard_hold(f->guard, v->pid, v->started, &before);
        bounded = prlimit(v->pid, RLIMIT_FSIZE, &none, NULL) == 0;
        wait_until(f, until_s);
        bounded = prlimit(v->pid, RLIMIT_FSIZE, &before, NULL) == 0 && bounded;
        chaos_guard_drop(f->guard);
    }
    return bounded ? 0
                   : err_set(e, HP_EDENIED, "cannot bound the files of process %d", (int)v->pid);
}

/* The agent ends it by itself, too, should this hpctl be killed. */
static int victim_disturb_links(const struct chaos_faults *f, const struct victim *v,
                                const struct chaos_fault *fault, struct err *e)
{
    const struct chaos_links none = {.late_s = 0},
                             how = {.late_s = fault->kind == CHAOS_HANG ? INFINITY : fault->late_s,
                                    .lost = fault->lost,
                                    .for_s = fault->for_s};
    struct err gone = {0};
    int rc = chaos_links_disturb(v->pid, &how, e);
    if (rc < 0)
        return rc;
    wait_until(f, fault->begun_s + fault->for_s);
    chaos_links_disturb(v->pid, &none, &gone);
    return 0;
}

static int fault_do(struct chaos_faults *f, const struct chaos_fault *fault, const struct victim *v,
                    struct err *e)
{
    double until_s = fault->begun_s + fault->for_s;
    switch (fault->kind) {
    case CHAOS_KILL:
    case CHAOS_KILL_COORDINATOR:
        victim_kill(v);
        wait_until(f, until_s);
        return victim_start(f, v, e);
    case CHAOS_STOP:
    case CHAOS_STOP_COORDINATOR: victim_stop(f, v, until_s); return 0;
    case CHAOS_SLOW: victim_slow(f, v, until_s); return 0;
    case CHAOS_DELAY:
    case CHAOS_HANG:
    case CHAOS_LOSS: return victim_disturb_links(f, v, fault, e);
    default: return victim_fill(f, v, until_s, e);
    }
}

/* Until each has been heard of once more and is ready. */
static int agents_settle(const struct chaos_faults *f)
{
    struct progress_bar quiet;
    struct err ignored;
    int rc = 0;
    progress_init(&quiet, true);
    cluster_read_again(f->cluster, &ignored);
    for (int i = 0; rc == 0 && i < f->cluster->n_agents; i++)
        rc = local_wait_ready(f->cluster, &f->cluster->agents[i], &quiet, &ignored);
    return rc;
}

static void *faults_run(void *ctx)
{
    struct chaos_faults *f = ctx;
    double healed_s = 0;
    for (size_t i = 0; i < f->script->n; i++) {
        struct chaos_fault *fault = &f->script->faults[i];
        struct err e = {0};
        wait_until(f, fault->at_s);
        if (atomic_load(&f->stop))
            break;
        cluster_read_again(f->cluster, &e); /* else as it was known */
        struct victim v = victim_of(f, fault);
        fault->begun_s = faults_now_s(f);
        if (!local_process_is_alive(v.pid, v.started))
            snprintf(fault->why, sizeof fault->why, "it had ended by itself");
        else if (fault_do(f, fault, &v, &e) < 0)
            snprintf(fault->why, sizeof fault->why, "%s", e.text);
        fault->healed_s = healed_s = faults_now_s(f);
    }
    f->settled_s = agents_settle(f) == 0 ? faults_now_s(f) - healed_s : -1;
    return NULL;
}

int chaos_faults_start(struct chaos_faults *f, struct err *e)
{
    atomic_init(&f->stop, false);
    return pthread_create(&f->thread, NULL, faults_run, f) == 0 ? 0 : err_no_memory(e, "faults");
}

void chaos_faults_end(struct chaos_faults *f, bool now)
{
    if (now)
        atomic_store(&f->stop, true);
    pthread_join(f->thread, NULL);
}
