#include "agent/backend/plain/kv_convert.h"

#include "agent/backend/plain/loops.h"

enum { CONVERT_CHUNK = 1024 }; /* elements, whole blocks of every format */

static const enum dtype dtypes[] = {
    [KV_F16] = DTYPE_F16, [KV_F32] = DTYPE_F32, [KV_Q8_0] = DTYPE_Q8_0};

void kv_convert(enum kv_format from, const void *in, size_t n, enum kv_format to, void *out)
{
    const struct dtype_info *source = dtype_info(dtypes[from]);
    const struct dtype_info *target = dtype_info(dtypes[to]);
    const uint8_t *at = in;
    uint8_t *put = out;
    for (size_t done = 0; done < n; done += CONVERT_CHUNK) {
        float numbers[CONVERT_CHUNK];
        size_t count = n - done < CONVERT_CHUNK ? n - done : CONVERT_CHUNK;
        source->to_f32(at, count, numbers);
        if (to == KV_Q8_0)
            loop_q8_0(numbers, count, put);
        else
            target->from_f32(numbers, count, put);
        at += kv_format_bytes(from, count);
        put += kv_format_bytes(to, count);
    }
}
