#include "common/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

uint8_t *buffer_extend(struct buffer *b, size_t n)
{
    size_t need;
    if (b->failed || __builtin_add_overflow(b->size, n, &need) || need > (size_t)1 << 48) {
        b->failed = true;
        return NULL;
    }
    if (need + 1 > b->capacity) {
        size_t capacity = b->capacity ? b->capacity : 256;
        while (capacity < need + 1)
            capacity *= 2;
        uint8_t *data = realloc(b->data, capacity);
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->capacity = capacity;
    }
    uint8_t *p = b->data + b->size;
    b->size = need;
    return p;
}

void buffer_append(struct buffer *b, const void *data, size_t n)
{
    uint8_t *p = n ? buffer_extend(b, n) : NULL;
    if (p)
        memcpy(p, data, n);
}

void buffer_printf(struct buffer *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    uint8_t *p = n < 0 ? NULL : buffer_extend(b, (size_t)n);
    if (!p)
        return;
    va_start(args, fmt);
    vsnprintf((char *)p, (size_t)n + 1, fmt, args);
    va_end(args);
}

const char *buffer_cstr(struct buffer *b)
{
    if (b->failed || !b->data)
        return "";
    b->data[b->size] = '\0';
    return (const char *)b->data;
}

void buffer_free(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer){0};
}
