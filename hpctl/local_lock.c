#include "hpctl/local_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fs.h"
#include "hpctl/context.h"
#include "hpctl/local_process.h"

enum { LOCK_PATIENCE_MS = 60000, LOOK_MS = 20 };

static int lock_await(int fd, const char *file, struct err *e)
{
    uint64_t from = env_now_ns(&env_real);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return fs_error(file, "lock", e);
        if (local_interrupted())
            return err_set(e, HP_ECANCELED, "interrupted");
        if ((double)(env_now_ns(&env_real) - from) / 1e6 > LOCK_PATIENCE_MS * env_time_scale()) {
            err_set(e, HP_EBUSY,
                    "another hpctl has been starting or ending a local cluster for "
                    "a minute");
            return err_hint(e, "wait for it, or end it: it holds %s", file);
        }
        local_pause_ms(LOOK_MS);
    }
    return 0;
}

int local_lock_take(int *out, struct err *e)
{
    char folder[2048], file[2100];
    *out = -1;
    int rc = context_folder("", folder, sizeof folder, e);
    if (rc < 0)
        return rc;
    snprintf(file, sizeof file, "%s/local.lock", folder);
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return fs_error(file, "write", e);
    if ((rc = lock_await(fd, file, e)) < 0)
        close(fd);
    else
        *out = fd;
    return rc;
}

void local_lock_drop(int *lock)
{
    if (*lock >= 0)
        close(*lock);
    *lock = -1;
}

void local_interrupt_delay(sigset_t *before)
{
    sigset_t held;
    local_interrupts(&held);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

void local_interrupt_allow(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
