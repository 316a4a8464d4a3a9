/* Protocol Buffers' wire format, read in place: field after field of one message, nothing copied
 * and nothing nested by recursion. ONNX files are such messages; weights stay mapped where they
 * are, and a message inside a message is entered only by who asks for it.
 * https://protobuf.dev/programming-guides/encoding */
#ifndef HP_MODEL_FILES_PROTOBUF_H
#define HP_MODEL_FILES_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

struct pb {
    const uint8_t *at, *end;
    bool failed; /* bytes that are no fields, or end in the middle of one */
};

struct pb_field {
    uint32_t number;
    enum pb_wire wire;
    uint64_t value;  /* of all but PB_BYTES */
    struct pb bytes; /* of PB_BYTES */
};

static inline struct pb pb_of(const void *data, size_t size)
{
    return (struct pb){(const uint8_t *)data, (const uint8_t *)data + size, false};
}
static inline size_t pb_size(const struct pb *p)
{
    return (size_t)(p->end - p->at);
}

/* The next field; false at the end, and when it failed. */
bool pb_next(struct pb *p, struct pb_field *f);
/* The next of packed numbers, which have no tags. */
bool pb_next_varint(struct pb *p, uint64_t *v);
bool pb_next_fixed32(struct pb *p, uint32_t *v);
bool pb_next_fixed64(struct pb *p, uint64_t *v);
/* A fixed field's bits as the number they are. */
float pb_float(uint32_t bits);
double pb_double(uint64_t bits);

#endif
