/* Counts what our own code allocates, on all threads, while it is told to: for tests that claim
 * that something allocates nothing. Libraries get their memory uncounted.
 *
 * A program counts by its name: NAME_allocations_test.c or allocations_test.c (the Makefile links
 * it with --wrap). It includes this header in one file. The first places that allocate are kept and
 * said on standard error, with their lines of code, when the claim does not hold. */
#ifndef HP_TESTS_UNIT_ALLOCATIONS_H
#define HP_TESTS_UNIT_ALLOCATIONS_H

#include <dlfcn.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/test.h"

enum { ALLOCATIONS_KEPT = 8, ALLOCATIONS_FRAMES = 24 };

static atomic_bool allocations_counted;
static atomic_size_t allocations_count;
static _Thread_local int allocations_excused; /* the test's own, on this thread */
static struct {
    int n;
    void *frames[ALLOCATIONS_FRAMES];
} allocations_kept[ALLOCATIONS_KEPT];

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

static inline void allocations_note(void)
{
    if (!atomic_load(&allocations_counted) || allocations_excused)
        return;
    size_t i = atomic_fetch_add(&allocations_count, 1);
    if (i >= ALLOCATIONS_KEPT)
        return;
    allocations_excused++;
    allocations_kept[i].n = backtrace(allocations_kept[i].frames, ALLOCATIONS_FRAMES);
    allocations_excused--;
}

void *__wrap_malloc(size_t n)
{
    allocations_note();
    return __real_malloc(n);
}
void *__wrap_calloc(size_t count, size_t n)
{
    allocations_note();
    return __real_calloc(count, n);
}
void *__wrap_realloc(void *p, size_t n)
{
    allocations_note();
    return __real_realloc(p, n);
}
void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    allocations_note();
    return __real_aligned_alloc(alignment, n);
}
char *__wrap_strdup(const char *s)
{
    allocations_note();
    return __real_strdup(s);
}
char *__wrap_strndup(const char *s, size_t n)
{
    allocations_note();
    return __real_strndup(s, n);
}

/* The lines of code of those that were kept; ours alone, found by addr2line where there is one. */
static inline void allocations_print(void)
{
    Dl_info self, info;
    if (!dladdr((void *)(uintptr_t)allocations_print, &self))
        return;
    for (size_t i = 0; i < ALLOCATIONS_KEPT && i < atomic_load(&allocations_count); i++) {
        char command[4096];
        size_t at =
            (size_t)snprintf(command, sizeof command, "addr2line -fpse '%s'", self.dli_fname);
        for (int k = 2; k < allocations_kept[i].n && at < sizeof command - 32; k++)
            if (dladdr(allocations_kept[i].frames[k], &info) && info.dli_fbase == self.dli_fbase)
                at += (size_t)snprintf(
                    command + at, sizeof command - at, " %#zx",
                    (size_t)((char *)allocations_kept[i].frames[k] - (char *)info.dli_fbase) - 1);
        snprintf(command + at, sizeof command - at, " >&2");
        fprintf(stderr, "allocation %zu:\n", i + 1);
        if (system(command) != 0)
            fprintf(stderr, "%s\n", command);
    }
}

static inline void allocations_begin(void)
{
    void *warm[1];
    backtrace(warm, 1); /* loads a library the first time */
    atomic_store(&allocations_count, 0);
    atomic_store(&allocations_counted, true);
}

/* How many since allocations_begin. */
static inline size_t allocations_end(void)
{
    atomic_store(&allocations_counted, false);
    return atomic_load(&allocations_count);
}

/* Fails the test when there were more than `most`. */
static inline void allocations_end_at_most(size_t most, const char *what)
{
    size_t n = allocations_end();
    if (n <= most)
        return;
    allocations_print();
    fail_msg("%s: %zu allocations, and at most %zu are fine: see standard error", what, n, most);
}

#endif
