/* Failing allocations, counted down: a test hands in a function that makes, uses and frees
 * something, and the harness runs it with its first allocation failing, then with its second, and
 * so on, until it gets through with none that failed. Each time from then on once alone, and once
 * with all that follow.
 *
 * What must hold every time: no crash and no failed assertion, 0 or HP_ENOMEM as the answer, every
 * allocation freed and every descriptor closed. A failure names the allocation by its number and
 * the lines of code that asked for it.
 *
 * A program is a harness by its name: NAME_faults_test.c or faults_test.c (the Makefile links it
 * with --wrap). It includes this header in one file. Counted are the allocations of our own code,
 * each piece of an arena (common/arena.h), and those of jansson (through common/json.c), on the
 * thread that calls; other libraries and other threads get their memory. HP_FAULTS_VERBOSE=1 tells
 * how many each test went through; HP_FAULTS_STEP=5 fails every fifth alone, where time is short.
 */
#ifndef HP_TESTS_UNIT_FAULTS_H
#define HP_TESTS_UNIT_FAULTS_H

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/status.h"
#include "tests/test.h"

enum {
    FAULTS_TABLE = 1 << 16,
    FAULTS_FRAMES = 40,
    FAULTS_MOST = 20000,
    FAULTS_DESCRIPTORS = 512,
    FAULTS_GRAVES = 64
};

/* ---- what fails ---- */

static _Thread_local struct {
    bool armed;     /* this thread's allocations count */
    size_t count;   /* so far in this run */
    size_t fail_at; /* this one fails; 0: none */
    bool then_on;   /* and all after it */
    size_t watch;   /* whose lines of code are kept */
    int n_frames;
    void *frames[FAULTS_FRAMES];
    const char *what;
} faults;

struct faults_block {
    const void *p;
    size_t number, bytes;
};
static struct faults_block
    faults_blocks[FAULTS_TABLE]; /* open addressing; a grave has p == faults_blocks */
static size_t faults_n_blocks;
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;

static inline size_t faults_place(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 48) & (FAULTS_TABLE - 1);
}

static inline void faults_note(const void *p, size_t bytes)
{
    if (!p || !faults.armed)
        return;
    pthread_mutex_lock(&faults_lock);
    size_t i = faults_place(p);
    while (faults_blocks[i].p && faults_blocks[i].p != faults_blocks)
        i = (i + 1) & (FAULTS_TABLE - 1);
    faults_blocks[i] = (struct faults_block){p, faults.count, bytes};
    if (++faults_n_blocks > FAULTS_TABLE / 2)
        abort(); /* too large a test for this harness */
    pthread_mutex_unlock(&faults_lock);
}

static inline void faults_forget(const void *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&faults_lock);
    for (size_t i = faults_place(p); faults_n_blocks && faults_blocks[i].p;
         i = (i + 1) & (FAULTS_TABLE - 1))
        if (faults_blocks[i].p == p) {
            faults_blocks[i].p = faults_blocks;
            faults_n_blocks--;
            break;
        }
    pthread_mutex_unlock(&faults_lock);
}

/* Counts an allocation; true when it is the one that fails. */
static inline bool faults_strike(void)
{
    if (!faults.armed)
        return false;
    faults.count++;
    if (faults.count == faults.watch)
        faults.n_frames = backtrace(faults.frames, FAULTS_FRAMES);
    return faults.fail_at &&
           (faults.then_on ? faults.count >= faults.fail_at : faults.count == faults.fail_at);
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
void __wrap_free(void *p);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

void *__wrap_malloc(size_t n)
{
    void *p = faults_strike() ? NULL : __real_malloc(n);
    faults_note(p, n);
    return p;
}

void *__wrap_calloc(size_t count, size_t n)
{
    void *p = faults_strike() ? NULL : __real_calloc(count, n);
    faults_note(p, count * n);
    return p;
}

void *__wrap_realloc(void *p, size_t n)
{
    if (faults_strike())
        return NULL;
    faults_forget(p);
    void *grown = __real_realloc(p, n);
    faults_note(grown, n);
    return grown;
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    void *p = faults_strike() ? NULL : __real_aligned_alloc(alignment, n);
    faults_note(p, n);
    return p;
}

/* What is freed is zeroed and kept for a while, so that who goes on using it does not get away with
 * it: to jansson, which no sanitizer sees into, zeros are an object without a table. */
static inline void *faults_grave(void *p)
{
    static void *graves[FAULTS_GRAVES];
    static size_t next;
    memset(p, 0, malloc_usable_size(p));
    pthread_mutex_lock(&faults_lock);
    void *oldest = graves[next];
    graves[next] = p;
    next = (next + 1) % FAULTS_GRAVES;
    pthread_mutex_unlock(&faults_lock);
    return oldest;
}

void __wrap_free(void *p)
{
    faults_forget(p);
    __real_free(p && faults.armed ? faults_grave(p) : p);
}

char *__wrap_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = __wrap_malloc(len + 1);
    if (copy) {
        memcpy(copy, s, len);
        copy[len] = '\0';
    }
    return copy;
}

char *__wrap_strdup(const char *s)
{
    return __wrap_strndup(s, SIZE_MAX);
}

/* Arenas take their memory in large blocks: what is taken out of them counts by itself. */
void *__real_arena_alloc(struct arena *a, size_t count, size_t size);
void *__real_arena_memdup(struct arena *a, const void *p, size_t n);
char *__real_arena_strndup(struct arena *a, const char *s, size_t n);
void *__wrap_arena_alloc(struct arena *a, size_t count, size_t size);
void *__wrap_arena_memdup(struct arena *a, const void *p, size_t n);
char *__wrap_arena_strndup(struct arena *a, const char *s, size_t n);
char *__wrap_arena_strdup(struct arena *a, const char *s);
char *__wrap_arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static inline bool faults_strike_arena(struct arena *a)
{
    bool fails = faults_strike();
    a->out_of_memory = a->out_of_memory || fails;
    return fails;
}

void *__wrap_arena_alloc(struct arena *a, size_t count, size_t size)
{
    return faults_strike_arena(a) ? NULL : __real_arena_alloc(a, count, size);
}
void *__wrap_arena_memdup(struct arena *a, const void *p, size_t n)
{
    return faults_strike_arena(a) ? NULL : __real_arena_memdup(a, p, n);
}
char *__wrap_arena_strndup(struct arena *a, const char *s, size_t n)
{
    return faults_strike_arena(a) ? NULL : __real_arena_strndup(a, s, n);
}
char *__wrap_arena_strdup(struct arena *a, const char *s)
{
    return __wrap_arena_strndup(a, s, strlen(s));
}

char *__wrap_arena_printf(struct arena *a, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return n < 0 || (size_t)n >= sizeof text ? NULL : __wrap_arena_strndup(a, text, (size_t)n);
}

/* ---- what is said of it ---- */

/* The lines of code of the allocation that was watched; ours alone, found by addr2line where there
 * is one. */
static inline void faults_lines_print(void)
{
    char command[4096];
    size_t at = 0;
    Dl_info self, info;
    if (!faults.n_frames || !dladdr((void *)(uintptr_t)faults_lines_print, &self))
        return;
    at += (size_t)snprintf(command, sizeof command, "addr2line -fpse '%s'", self.dli_fname);
    for (int i = 1; i < faults.n_frames && at < sizeof command - 32; i++)
        if (dladdr(faults.frames[i], &info) && info.dli_fbase == self.dli_fbase)
            at += (size_t)snprintf(command + at, sizeof command - at, " %#zx",
                                   (size_t)((char *)faults.frames[i] - (char *)info.dli_fbase) - 1);
    snprintf(command + at, sizeof command - at, " >&2");
    if (system(command) != 0)
        fprintf(stderr, "%s\n", command);
}

static inline void faults_on_crash(int number)
{
    signal(number, SIG_DFL);
    faults.armed = false;
    fprintf(stderr, "%s: %s when allocation %zu%s fails:\n", faults.what, strsignal(number),
            faults.fail_at, faults.then_on ? " and all after it" : "");
    faults_lines_print();
    raise(number);
}

static inline int faults_descriptors(void)
{
    int n = 0;
    for (int i = 0; i < FAULTS_DESCRIPTORS; i++)
        n += fcntl(i, F_GETFD) >= 0;
    return n;
}

static inline int faults_run(int (*run)(void *ctx), void *ctx, size_t fail_at, bool then_on,
                             size_t watch)
{
    faults.count = 0;
    faults.fail_at = fail_at;
    faults.then_on = then_on;
    faults.watch = watch;
    faults.n_frames = 0;
    faults.armed = true;
    int rc = run(ctx);
    faults.armed = false;
    return rc;
}

static inline void faults_leaks_print(int (*run)(void *ctx), void *ctx)
{
    size_t fail_at = faults.fail_at, leaked = 0;
    for (size_t i = 0; i < FAULTS_TABLE; i++)
        if (faults_blocks[i].p && faults_blocks[i].p != faults_blocks &&
            (!leaked || faults_blocks[i].number < leaked))
            leaked = faults_blocks[i].number;
    fprintf(stderr, "left behind by allocation %zu:\n", leaked);
    faults_run(run, ctx, fail_at, faults.then_on, leaked);
    faults_lines_print();
}

/* One run; false, and said on standard error, when it did not hold. */
static inline bool faults_try(int (*run)(void *ctx), void *ctx, size_t fail_at, bool then_on)
{
    int descriptors = faults_descriptors();
    memset(faults_blocks, 0, sizeof faults_blocks);
    faults_n_blocks = 0;
    int rc = faults_run(run, ctx, fail_at, then_on, fail_at);
    bool failed = faults.count >= fail_at, good = rc == 0 || (failed && rc == HP_ENOMEM);
    int open = faults_descriptors() - descriptors;
    if (good && !faults_n_blocks && !open)
        return true;
    fprintf(stderr,
            "%s answers %s (%d), leaves %zu blocks and %d descriptors when allocation %zu%s %s\n",
            faults.what, status_word(rc), rc, faults_n_blocks, open, fail_at,
            then_on ? " and all after it" : "", failed ? "fails:" : "is never reached");
    faults_lines_print();
    if (faults_n_blocks)
        faults_leaks_print(run, ctx);
    return false;
}

/* Through all of them: what faults_each asserts. */
static inline bool faults_hold(const char *what, int (*run)(void *ctx), void *ctx)
{
    faults.what = what;
    void (*abort_before)(int) = signal(SIGABRT, faults_on_crash);
    void (*segv_before)(int) = signal(SIGSEGV, faults_on_crash);
    bool good = true;
    const char *step = getenv("HP_FAULTS_STEP");
    size_t n = 0;
    do {
        n += step && n ? strtoul(step, NULL, 10) : 1;
        good = n < FAULTS_MOST && faults_try(run, ctx, n, false) && faults_try(run, ctx, n, true);
    } while (good && faults.count >= n);
    signal(SIGABRT, abort_before);
    signal(SIGSEGV, segv_before);
    if (good && getenv("HP_FAULTS_VERBOSE"))
        fprintf(stderr, "%s: %zu allocations\n", what, n - 1);
    return good;
}

/* See the head. `run` is called many times and must leave nothing behind; it returns 0, or
 * HP_ENOMEM when an allocation failed. */
static inline void faults_each(const char *what, int (*run)(void *ctx), void *ctx)
{
    if (!faults_hold(what, run, ctx))
        fail_msg("%s does not bear failing allocations: see standard error", what);
}

#endif
