/* Does a script's faults to a local cluster, beside the load that hears of them. Everything that
 * was killed, stopped, slowed, bounded or delayed is as before when it ends, however it ends. */
#ifndef HP_HPCTL_CHAOS_FAULTS_H
#define HP_HPCTL_CHAOS_FAULTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "hpctl/chaos_guard.h"
#include "hpctl/chaos_script.h"
#include "hpctl/local_cluster.h"

struct chaos_faults {
    struct local_cluster *cluster; /* its alone while it runs: processes that are started anew
                                      stand in it and in the cluster's file */
    struct chaos_script *script;   /* what becomes of each fault is written there */
    struct chaos_guard *guard;     /* should this hpctl be killed */
    uint64_t start_ns;             /* from when the script counts */
    double settled_s; /* after the last fault was healed, until all agents are ready; < 0: not */
    atomic_bool stop;
    pthread_t thread;
};

/* HP_ENOMEM. */
int chaos_faults_start(struct chaos_faults *f, struct err *e);
/* Ends: at once with `now`, which heals a fault that lasts, else after the script's last one; once
 * all agents are ready again, or half a minute later. */
void chaos_faults_end(struct chaos_faults *f, bool now);

#endif
