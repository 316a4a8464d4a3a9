/* Frames of the data channel: any header and payload from the network. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/dtype/dtype.h"
#include "transport/frame_tensors.h"

/* Rows as Q8: whatever is not refused is as large as its scales say. */
static void rows_widen(const uint8_t *payload, uint64_t bytes)
{
    float out[Q8_WIRE_ELEMENTS];
    for (; bytes >= Q8_WIRE_BYTES; bytes -= Q8_WIRE_BYTES, payload += Q8_WIRE_BYTES) {
        bool bad = dtype_bad_block(DTYPE_Q8_WIRE, payload, Q8_WIRE_ELEMENTS) >= 0;
        dtype_info(DTYPE_Q8_WIRE)->to_f32(payload, Q8_WIRE_ELEMENTS, out);
        float scale;
        memcpy(&scale, payload, sizeof scale);
        for (int i = 0; !bad && i < Q8_WIRE_ELEMENTS; i++)
            assert((int8_t)payload[8 + i] == Q8_WIRE_KEPT || fabsf(out[i]) <= 127 * scale);
    }
}

/* Whatever is not refused lies within the payload. */
static void tensors_read(const struct frame_header *h, const uint8_t *payload)
{
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor tensors[8];
    int n;
    if (frame_tensors_decode(h, payload, legs, tensors, 8, &n, NULL) < 0)
        return;
    for (int i = 0; i < n; i++) {
        const uint8_t *data = tensors[i].data;
        assert(data >= payload && data + tensors[i].bytes <= payload + h->payload_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame_header h;
    struct err e;
    if (size < FRAME_HEADER_BYTES || frame_header_decode(data, FRAME_HEADER_BYTES, &h, &e) < 0) {
        /* The hash keeps most inputs out: fuzz what lies behind it as well. */
        h = (struct frame_header){.kind = FRAME_ACTIVATION,
                                  .n_runs = size ? data[0] : 0,
                                  .n_tokens = size > 1 ? data[1] : 0};
    }
    const uint8_t *payload = size > 2 ? data + 2 : data;
    h.payload_bytes = size > 2 ? size - 2 : 0;
    struct batch_run *runs = calloc(FRAME_MAX_RUNS, sizeof *runs);
    struct frame_token *tokens = calloc(FRAME_MAX_RUNS, sizeof *tokens);
    frame_runs_decode(&h, payload, runs, &e);
    frame_tokens_decode(&h, payload, tokens, &e);
    struct kv_range kv;
    frame_kv_decode(&h, payload, &kv, &e);
    tensors_read(&h, payload);
    rows_widen(payload, h.payload_bytes);
    free(runs);
    free(tokens);
    return 0;
}
