#include "model/files/protobuf.h"

#include <string.h>

enum { VARINT_BYTES_MAX = 10, FIELD_NUMBER_MAX = (1 << 29) - 1 };

bool pb_next_varint(struct pb *p, uint64_t *v)
{
    *v = 0;
    if (p->failed || p->at == p->end)
        return false;
    for (int i = 0; i < VARINT_BYTES_MAX && p->at < p->end; i++) {
        uint8_t byte = *p->at++;
        if (i == VARINT_BYTES_MAX - 1 && byte > 1)
            break; /* more than 64 bits */
        *v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80)
            return true;
    }
    p->failed = true;
    return false;
}

static bool fixed_take(struct pb *p, void *v, size_t n)
{
    if (p->failed || p->at == p->end)
        return false;
    if (pb_size(p) < n) {
        p->failed = true;
        return false;
    }
    memcpy(v, p->at, n);
    p->at += n;
    return true;
}

bool pb_next_fixed32(struct pb *p, uint32_t *v)
{
    return fixed_take(p, v, sizeof *v);
}

bool pb_next_fixed64(struct pb *p, uint64_t *v)
{
    return fixed_take(p, v, sizeof *v);
}

float pb_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

double pb_double(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static bool value_read(struct pb *p, struct pb_field *f)
{
    uint32_t narrow = 0;
    switch (f->wire) {
    case PB_VARINT: return pb_next_varint(p, &f->value);
    case PB_FIXED64: return pb_next_fixed64(p, &f->value);
    case PB_FIXED32:
        if (!pb_next_fixed32(p, &narrow))
            return false;
        f->value = narrow;
        return true;
    case PB_BYTES:
        if (!pb_next_varint(p, &f->value) || f->value > pb_size(p))
            return false;
        f->bytes = (struct pb){p->at, p->at + f->value, false};
        p->at += f->value;
        return true;
    }
    return false; /* groups, which nobody writes */
}

bool pb_next(struct pb *p, struct pb_field *f)
{
    uint64_t tag;
    if (!pb_next_varint(p, &tag))
        return false;
    *f = (struct pb_field){.number = (uint32_t)(tag >> 3), .wire = (enum pb_wire)(tag & 7)};
    if (tag >> 3 == 0 || tag >> 3 > FIELD_NUMBER_MAX || !value_read(p, f))
        p->failed = true;
    return !p->failed;
}
