#include "coordinator/gateway/protobuf_write.h"

#include <string.h>

#include "model/files/protobuf.h"

static void varint_put(struct buffer *out, uint64_t v)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        bytes[n++] = (uint8_t)(v | 0x80);
    bytes[n++] = (uint8_t)v;
    buffer_append(out, bytes, n);
}

static void tag_put(struct buffer *out, uint32_t field, enum pb_wire wire)
{
    varint_put(out, (uint64_t)field << 3 | wire);
}

void pb_put_number(struct buffer *out, uint32_t field, uint64_t value)
{
    tag_put(out, field, PB_VARINT);
    varint_put(out, value);
}

void pb_put_bytes(struct buffer *out, uint32_t field, const void *data, size_t n)
{
    tag_put(out, field, PB_BYTES);
    varint_put(out, n);
    if (n > 0)
        buffer_append(out, data, n);
}

void pb_put_text(struct buffer *out, uint32_t field, const char *text)
{
    pb_put_bytes(out, field, text, strlen(text));
}

void pb_put_numbers(struct buffer *out, uint32_t field, const int64_t *values, int n)
{
    struct buffer packed = {0};
    for (int i = 0; i < n; i++)
        varint_put(&packed, (uint64_t)values[i]);
    pb_put_message(out, field, &packed);
}

void pb_put_message(struct buffer *out, uint32_t field, struct buffer *message)
{
    if (message->failed)
        out->failed = true;
    else
        pb_put_bytes(out, field, message->data, message->size);
    buffer_free(message);
}
