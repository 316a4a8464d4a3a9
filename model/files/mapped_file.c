#include "model/files/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Between two looks of mapped_file_glance: at a file behind a link, which is somebody else's; at
 * any other. */
enum { LOOK_LINKED_NS = 1000000, LOOK_NS = 10000000 };

/* ---- guarded mappings: read by the signal handler on whichever thread touched a byte that is not
 * there ---- */

struct guard {
    atomic_uintptr_t begin; /* 0: free */
    atomic_uintptr_t end;
    atomic_ullong broken_at; /* the first byte that could not be read, plus 1; 0: none */
};

static struct guard guards[MAPPED_FILE_MOST];
static pthread_mutex_t guards_lock = PTHREAD_MUTEX_INITIALIZER; /* of those who add */
static pthread_once_t handler_once = PTHREAD_ONCE_INIT;
static struct sigaction handler_before;
static uintptr_t page_bytes;

/* Zeros from the page of `at` to the mapping's end: what is computed from them is never used. */
static bool guard_break(struct guard *g, uintptr_t begin, uintptr_t end, uintptr_t at)
{
    unsigned long long none = 0;
    atomic_compare_exchange_strong(&g->broken_at, &none, (unsigned long long)(at - begin) + 1);
    uintptr_t page = at & ~(page_bytes - 1);
    return mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) != MAP_FAILED;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    int saved = errno;
    (void)context;
    for (size_t i = 0; i < MAPPED_FILE_MOST; i++) {
        uintptr_t begin = atomic_load(&guards[i].begin), end = atomic_load(&guards[i].end);
        if (begin && at >= begin && at < end && guard_break(&guards[i], begin, end, at)) {
            errno = saved;
            return; /* the instruction is done again and reads a zero */
        }
    }
    sigaction(number, &handler_before, NULL); /* happens again, and goes there */
    errno = saved;
}

static void handler_install(void)
{
    struct sigaction act = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, &handler_before);
}

static int guard_add(uintptr_t begin, uintptr_t end)
{
    int at = 0;
    pthread_once(&handler_once, handler_install);
    pthread_mutex_lock(&guards_lock);
    while (at < MAPPED_FILE_MOST && atomic_load(&guards[at].begin))
        at++;
    if (at < MAPPED_FILE_MOST) {
        atomic_store(&guards[at].broken_at, 0);
        atomic_store(&guards[at].end, end);
        atomic_store(&guards[at].begin, begin);
    }
    pthread_mutex_unlock(&guards_lock);
    return at < MAPPED_FILE_MOST ? at + 1 : 0;
}

/* ---- files ---- */

static int file_failed(struct err *e, const char *path)
{
    int code = errno == ENOENT || errno == ENOTDIR ? HP_ENOENT
               : errno == EACCES || errno == EPERM ? HP_EDENIED
                                                   : HP_EIO;
    return err_set(e, code, "%s: %s", path, strerror(errno));
}

/* A file as it was when it was opened, or when this process wrote to it last. */
struct mapped_watch {
    struct stat then;
    unsigned long long looked_ns, every_ns;
    bool written;
    struct mapped_watch *next;
    char path[];
};

static struct mapped_watch *watches;
static struct mapped_write *writes;                              /* under way */
static pthread_mutex_t watches_lock = PTHREAD_MUTEX_INITIALIZER; /* of both lists */

static int watch_add(const char *path, const struct stat *then, struct mapped_watch **out,
                     struct err *e)
{
    struct stat link;
    size_t n = strlen(path) + 1;
    struct mapped_watch *w = calloc(1, sizeof *w + n);
    if (!w)
        return err_no_memory(e, "%s", path);
    w->then = *then;
    w->every_ns = lstat(path, &link) == 0 && S_ISLNK(link.st_mode) ? LOOK_LINKED_NS : LOOK_NS;
    memcpy(w->path, path, n);
    pthread_mutex_lock(&watches_lock);
    w->next = watches;
    watches = w;
    pthread_mutex_unlock(&watches_lock);
    *out = w;
    return 0;
}

static void watch_remove(struct mapped_watch *w)
{
    pthread_mutex_lock(&watches_lock);
    struct mapped_watch **at = &watches;
    while (*at && *at != w)
        at = &(*at)->next;
    if (*at)
        *at = w->next;
    pthread_mutex_unlock(&watches_lock);
    free(w);
}

static bool file_is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Where another file has taken its place, the one that is mapped is as it was. */
static void watch_look(struct mapped_watch *w, const struct stat *now)
{
    if (file_is_same(now, &w->then) &&
        (now->st_size != w->then.st_size || now->st_mtim.tv_sec != w->then.st_mtim.tv_sec ||
         now->st_mtim.tv_nsec != w->then.st_mtim.tv_nsec))
        w->written = true;
}

/* What changes now is this process's doing. */
static bool watch_is_busy(const struct mapped_watch *w)
{
    const struct mapped_write *one = writes;
    while (one && !(one->there && file_is_same(&one->file, &w->then)))
        one = one->next;
    return one != NULL;
}

/* By the last look; a new one where that was `every_ns` ago. */
static bool watch_is_written(struct mapped_watch *w, unsigned long long every_ns)
{
    struct timespec t;
    struct stat now;
    clock_gettime(CLOCK_MONOTONIC, &t);
    unsigned long long now_ns =
        (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
    pthread_mutex_lock(&watches_lock);
    if (now_ns - w->looked_ns >= every_ns && !watch_is_busy(w)) {
        w->looked_ns = now_ns;
        if (stat(w->path, &now) == 0)
            watch_look(w, &now);
    }
    bool written = w->written;
    pthread_mutex_unlock(&watches_lock);
    return written;
}

void mapped_file_write_begin(const char *path, struct mapped_write *out)
{
    pthread_mutex_lock(&watches_lock);
    out->there = stat(path, &out->file) == 0;
    for (struct mapped_watch *w = watches; out->there && w; w = w->next)
        if (!watch_is_busy(w))
            watch_look(w, &out->file);
    out->next = writes;
    writes = out;
    pthread_mutex_unlock(&watches_lock);
}

void mapped_file_write_end(const char *path, struct mapped_write *done)
{
    pthread_mutex_lock(&watches_lock);
    struct mapped_write **at = &writes;
    while (*at != done)
        at = &(*at)->next;
    *at = done->next;
    done->there = stat(path, &done->file) == 0;
    for (struct mapped_watch *w = watches; done->there && w; w = w->next)
        if (file_is_same(&done->file, &w->then))
            w->then = done->file;
    pthread_mutex_unlock(&watches_lock);
}

static int file_map(int fd, const char *path, struct mapped_file *out, struct err *e)
{
    struct stat s;
    if (fstat(fd, &s) < 0)
        return file_failed(e, path);
    if (!S_ISREG(s.st_mode))
        return err_set(e, HP_EPARSE, "%s: not a regular file", path);
    if (s.st_size == 0)
        return err_set(e, HP_EPARSE, "%s: the file is empty", path);
    struct mapped_watch *watch = NULL;
    int rc = watch_add(path, &s, &watch, e);
    if (rc < 0)
        return rc;
    void *data = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        rc = file_failed(e, path);
        watch_remove(watch);
        return rc;
    }
    *out = (struct mapped_file){data, (uint64_t)s.st_size,
                                guard_add((uintptr_t)data, (uintptr_t)data + (uintptr_t)s.st_size),
                                watch};
    return 0;
}

int mapped_file_open(const char *path, struct mapped_file *out, struct err *e)
{
    *out = (struct mapped_file){0};
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe of that name must not hang us */
    if (fd < 0)
        return file_failed(e, path);
    int rc = file_map(fd, path, out, e);
    close(fd);
    return rc;
}

void mapped_file_close(struct mapped_file *m)
{
    if (m->guard)
        atomic_store(&guards[m->guard - 1].begin, 0);
    if (m->data)
        munmap((void *)(uintptr_t)m->data, (size_t)m->bytes);
    if (m->watch)
        watch_remove(m->watch);
    *m = (struct mapped_file){0};
}

static int file_check(const struct mapped_file *m, unsigned long long every_ns, const char *path,
                      struct err *e)
{
    unsigned long long broken = m->guard ? atomic_load(&guards[m->guard - 1].broken_at) : 0;
    if (!broken && m->watch && watch_is_written(m->watch, every_ns)) {
        err_set(e, HP_EIO, "%s: somebody wrote to the file while it is used", path);
        return err_hint(e,
                        "nothing that is computed from it counts; begin anew with what it is now");
    }
    if (!broken)
        return 0;
    int rc =
        err_set(e, HP_EIO,
                "%s: byte %llu could not be read: the file has become shorter, or its disk failed",
                path, broken - 1);
    err_hint(
        e,
        "nothing that was computed from it is used; restore the file, or take it from elsewhere");
    return rc;
}

int mapped_file_check(const struct mapped_file *m, const char *path, struct err *e)
{
    return file_check(m, 0, path, e);
}

int mapped_file_glance(const struct mapped_file *m, const char *path, struct err *e)
{
    return file_check(m, m->watch ? m->watch->every_ns : 0, path, e);
}
