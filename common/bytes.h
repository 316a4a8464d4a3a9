/* Bounded little-endian reader and writer over bytes that somebody else owns. A reader that ran
 * past its end stays `failed` and gives zeros, so that a parser may check once per record. */
#ifndef HP_COMMON_BYTES_H
#define HP_COMMON_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct reader {
    const uint8_t *data;
    size_t size, at;
    bool failed;
};

static inline struct reader reader_of(const void *data, size_t size)
{
    return (struct reader){(const uint8_t *)data, size, 0, false};
}

/* `n` bytes in place, or NULL and failed. */
static inline const uint8_t *reader_take(struct reader *r, size_t n)
{
    if (r->failed || n > r->size - r->at) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->data + r->at;
    r->at += n;
    return p;
}

#define HP_READER(type, name)                                                                      \
    static inline type reader_##name(struct reader *r)                                             \
    {                                                                                              \
        type v = 0;                                                                                \
        const uint8_t *p = reader_take(r, sizeof v);                                               \
        if (p)                                                                                     \
            memcpy(&v, p, sizeof v);                                                               \
        return v;                                                                                  \
    }
HP_READER(uint8_t, u8)
HP_READER(uint16_t, u16)
HP_READER(uint32_t, u32)
HP_READER(uint64_t, u64)
HP_READER(int64_t, i64)
HP_READER(float, f32)
HP_READER(double, f64)
#undef HP_READER

/* Grows as needed. Zero-initialised is empty. A failed allocation leaves it `failed` and drops what
 * follows. */
struct buffer {
    uint8_t *data;
    size_t size, capacity;
    bool failed;
};

/* Copies bytes, or prints text without a NUL, behind what is there. */
void buffer_append(struct buffer *b, const void *data, size_t n);
void buffer_printf(struct buffer *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Room for `n` more bytes, counted as written; NULL when failed. */
uint8_t *buffer_extend(struct buffer *b, size_t n);
/* A NUL after the last byte, not counted; "" when failed. */
const char *buffer_cstr(struct buffer *b);
void buffer_free(struct buffer *b);

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "wire and file formats are read in place: little-endian hosts only");

#endif
