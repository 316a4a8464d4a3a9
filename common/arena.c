#include "common/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(max_align_t) unsigned char data[];
};

enum { BLOCK_BYTES = 64 * 1024 };

void *arena_alloc(struct arena *a, size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n) || n > (size_t)1 << 48)
        return NULL;
    n = (n + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    if (a->limit_bytes && n > a->limit_bytes - a->used_bytes)
        return NULL;
    struct arena_block *b = a->head;
    if (!b || b->size - b->used < n) {
        size_t block = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        b = malloc(sizeof *b + block);
        if (!b) {
            a->out_of_memory = true;
            return NULL;
        }
        b->used = 0;
        b->size = block;
        /* A large allocation must not hide the room left in the block before it. */
        if (a->head && block > BLOCK_BYTES) {
            b->next = a->head->next;
            a->head->next = b;
        } else {
            b->next = a->head;
            a->head = b;
        }
    }
    void *p = b->data + b->used;
    b->used += n;
    a->used_bytes += n;
    return memset(p, 0, n);
}

void *arena_memdup(struct arena *a, const void *p, size_t n)
{
    void *copy = arena_alloc(a, n ? n : 1, 1);
    return copy && n ? memcpy(copy, p, n) : copy;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *copy = n < (size_t)-1 ? arena_alloc(a, n + 1, 1) : NULL;
    return copy && n ? memcpy(copy, s, n) : copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *s = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1, 1);
    if (!s)
        return NULL;
    va_start(args, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, args);
    va_end(args);
    return s;
}

void arena_reset(struct arena *a)
{
    struct arena_block *kept = NULL;
    while (a->head) {
        struct arena_block *b = a->head;
        a->head = b->next;
        if (!kept && b->size == BLOCK_BYTES)
            kept = b;
        else
            free(b);
    }
    if (kept) {
        kept->next = NULL;
        kept->used = 0;
    }
    a->head = kept;
    a->used_bytes = 0;
    a->out_of_memory = false;
}

void arena_free(struct arena *a)
{
    while (a->head) {
        struct arena_block *next = a->head->next;
        free(a->head);
        a->head = next;
    }
    a->used_bytes = 0;
    a->out_of_memory = false;
}
