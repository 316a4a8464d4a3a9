/* A process beside `hpctl chaos` which heals what lasts when that is killed, or its terminal goes:
 * a process that was stopped goes on, and its files may grow again. One chaos at a time disturbs a
 * cluster: two would each take for normal what the other one does. */
#ifndef HP_HPCTL_CHAOS_GUARD_H
#define HP_HPCTL_CHAOS_GUARD_H

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/status.h"

struct chaos_held;

/* Begins as zeros. */
struct chaos_guard {
    struct chaos_held *held; /* what lasts, in memory that both processes have */
    int told;                /* it ends with this hpctl */
    pid_t pid;               /* 0: there is none */
};

/* Of the cluster in this folder; while this hpctl has one thread. HP_EBUSY: another chaos has it;
 * HP_ENOMEM; errors as of fs.h. */
int chaos_guard_open(struct chaos_guard *g, const char *folder, struct err *e);
void chaos_guard_close(struct chaos_guard *g);

/* From now on this process would be let go on, and where `files` is not NULL its files grow as far
 * as that says. */
void chaos_guard_hold(struct chaos_guard *g, pid_t pid, uint64_t started,
                      const struct rlimit *files);
/* It has been healed. */
void chaos_guard_drop(struct chaos_guard *g);

#endif
