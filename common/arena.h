/* What dies together: allocations that are freed all at once. Not thread-safe. Memory is zeroed. */
#ifndef HP_COMMON_ARENA_H
#define HP_COMMON_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_block;
struct arena {
    struct arena_block *head;
    size_t used_bytes;  /* handed out so far */
    size_t limit_bytes; /* 0: none; beyond it arena_alloc gives NULL */
    bool out_of_memory; /* it gave NULL for want of memory, not because of the limit */
};

/* A zero-initialised `struct arena` is ready for use. Every call gives memory aligned for any type,
 * or NULL when memory or the limit ran out. `count * size` is checked for overflow. */
void *arena_alloc(struct arena *a, size_t count, size_t size);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
void *arena_memdup(struct arena *a, const void *p, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Frees all; the arena is empty and ready again, its limit kept. */
void arena_free(struct arena *a);
/* The same, but keeps one block for what comes next: for what is filled again and again. */
void arena_reset(struct arena *a);

#endif
