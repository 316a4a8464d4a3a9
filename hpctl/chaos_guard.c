#include "hpctl/chaos_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fs.h"
#include "hpctl/local_process.h"

struct chaos_held {
    atomic_bool lasts;
    pid_t pid;
    uint64_t started;
    bool bounds_files;
    struct rlimit files;
};

void chaos_guard_hold(struct chaos_guard *g, pid_t pid, uint64_t started,
                      const struct rlimit *files)
{
    g->held->pid = pid;
    g->held->started = started;
    g->held->bounds_files = files != NULL;
    if (files)
        g->held->files = *files;
    atomic_store(&g->held->lasts, true);
}

void chaos_guard_drop(struct chaos_guard *g)
{
    atomic_store(&g->held->lasts, false);
}

/* ---- the other process ---- */

static void held_heal(const struct chaos_held *h)
{
    if (!atomic_load(&h->lasts) || !local_process_is_alive(h->pid, h->started))
        return;
    if (h->bounds_files)
        prlimit(h->pid, RLIMIT_FSIZE, &h->files, NULL);
    kill(h->pid, SIGCONT);
}

/* In a session of its own: neither Ctrl-C nor the terminal's end reaches it. */
static _Noreturn void guard_run(const struct chaos_held *h, int told)
{
    char nothing;
    setsid();
    while (read(told, &nothing, 1) < 0 && errno == EINTR)
        ;
    held_heal(h);
    _exit(0);
}

/* ---- beginning and end ---- */

/* A lock on the folder itself, which the other process has, too: until all is healed. */
static int folder_lock(const char *folder, int *out, struct err *e)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fs_error(folder, "open", e);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *out = fd;
        return 0;
    }
    int rc = errno == EWOULDBLOCK
                 ? err_set(e, HP_EBUSY, "another hpctl chaos disturbs the cluster in %s", folder)
                 : fs_error(folder, "lock", e);
    close(fd);
    return rc;
}

static int process_fork(struct chaos_guard *g, struct err *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return err_set(e, HP_EIO, "cannot watch over chaos: %s", strerror(errno));
    g->pid = fork();
    if (g->pid == 0) {
        close(ends[1]);
        guard_run(g->held, ends[0]);
    }
    close(ends[0]);
    g->told = ends[1];
    if (g->pid > 0)
        return 0;
    close(ends[1]);
    g->pid = 0;
    return err_set(e, HP_EIO, "cannot watch over chaos: %s", strerror(errno));
}

int chaos_guard_open(struct chaos_guard *g, const char *folder, struct err *e)
{
    int lock = -1, rc = folder_lock(folder, &lock, e);
    if (rc < 0)
        return rc;
    void *shared =
        mmap(NULL, sizeof *g->held, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared != MAP_FAILED) {
        g->held = shared;
        atomic_init(&g->held->lasts, false);
        rc = process_fork(g, e);
    } else {
        rc = err_no_memory(e, "chaos");
    }
    close(lock); /* the other process has it */
    if (rc < 0)
        chaos_guard_close(g);
    return rc;
}

void chaos_guard_close(struct chaos_guard *g)
{
    if (g->pid) {
        close(g->told);
        waitpid(g->pid, NULL, 0);
    }
    if (g->held)
        munmap(g->held, sizeof *g->held);
    *g = (struct chaos_guard){0};
}
