#include "transport/frame_tensors.h"

#include <string.h>

/* After the legs: u32 number of tensors, 4 bytes of 0, then a row a tensor: type 0, dimensions 4,
 * sizes 8 (FRAME_TENSOR_DIMS of them, unused ones 0), bytes 72. Elements follow, aligned. */
enum { COUNT_BYTES = 8, ROW_BYTES = 80 };

static uint64_t aligned_at(uint64_t at)
{
    return (at + FRAME_TENSOR_ALIGNMENT - 1) / FRAME_TENSOR_ALIGNMENT * FRAME_TENSOR_ALIGNMENT;
}

static uint64_t table_end(int n_legs, int n)
{
    return (uint64_t)n_legs * FRAME_LEG_BYTES + COUNT_BYTES + (uint64_t)n * ROW_BYTES;
}

uint64_t frame_tensors_size(int n_legs, const struct frame_tensor *tensors, int n)
{
    uint64_t at = table_end(n_legs, n);
    for (int i = 0; i < n; i++) {
        if (tensors[i].bytes > FRAME_MAX_PAYLOAD_BYTES)
            return 0;
        at = aligned_at(at) + tensors[i].bytes;
    }
    return at > FRAME_MAX_PAYLOAD_BYTES ? 0 : at;
}

static void leg_encode(const struct frame_leg *leg, uint8_t out[FRAME_LEG_BYTES])
{
    memcpy(out, &leg->share, 4);
    memcpy(out + 4, &leg->peer, 4);
    memcpy(out + 8, &leg->send_ns, 8);
    memcpy(out + 16, &leg->start_ns, 8);
    memcpy(out + 24, &leg->arrived_ns, 8);
    memcpy(out + 32, &leg->began_ns, 8);
    memcpy(out + 40, &leg->ended_ns, 8);
}

static void leg_decode(const uint8_t in[FRAME_LEG_BYTES], struct frame_leg *leg)
{
    memcpy(&leg->share, in, 4);
    memcpy(&leg->peer, in + 4, 4);
    memcpy(&leg->send_ns, in + 8, 8);
    memcpy(&leg->start_ns, in + 16, 8);
    memcpy(&leg->arrived_ns, in + 24, 8);
    memcpy(&leg->began_ns, in + 32, 8);
    memcpy(&leg->ended_ns, in + 40, 8);
}

static void tensor_encode(const struct frame_tensor *t, uint8_t out[ROW_BYTES])
{
    int64_t dims[FRAME_TENSOR_DIMS] = {0};
    memcpy(dims, t->dims, t->n_dims * sizeof *dims);
    memcpy(out, &t->type, 4);
    memcpy(out + 4, &t->n_dims, 4);
    memcpy(out + 8, dims, sizeof dims);
    memcpy(out + 72, &t->bytes, 8);
}

void frame_tensors_encode(const struct frame_leg *legs, int n_legs,
                          const struct frame_tensor *tensors, int n, uint8_t *out)
{
    const uint32_t count[2] = {(uint32_t)n, 0};
    for (int i = 0; i < n_legs; i++)
        leg_encode(&legs[i], out + (size_t)i * FRAME_LEG_BYTES);
    uint8_t *rows = out + (size_t)n_legs * FRAME_LEG_BYTES + COUNT_BYTES;
    memcpy(rows - COUNT_BYTES, count, sizeof count);
    uint64_t at = table_end(n_legs, n);
    for (int i = 0; i < n; i++) {
        tensor_encode(&tensors[i], rows + (size_t)i * ROW_BYTES);
        memset(out + at, 0, aligned_at(at) - at);
        at = aligned_at(at);
        if (tensors[i].data && tensors[i].bytes)
            memcpy(out + at, tensors[i].data, tensors[i].bytes);
        at += tensors[i].bytes;
    }
}

static int tensor_decode(const uint8_t in[ROW_BYTES], int i, struct frame_tensor *t, struct err *e)
{
    memcpy(&t->type, in, 4);
    memcpy(&t->n_dims, in + 4, 4);
    memcpy(t->dims, in + 8, sizeof t->dims);
    memcpy(&t->bytes, in + 72, 8);
    if (t->n_dims > FRAME_TENSOR_DIMS || t->bytes > FRAME_MAX_PAYLOAD_BYTES)
        return err_set(e, HP_EPROTO, "tensor %d of a batch: %u dimensions, %llu bytes", i,
                       t->n_dims, (unsigned long long)t->bytes);
    for (uint32_t d = 0; d < t->n_dims; d++)
        if (t->dims[d] < 0)
            return err_set(e, HP_EPROTO, "tensor %d of a batch: a dimension of %lld", i,
                           (long long)t->dims[d]);
    return 0;
}

int frame_tensors_decode(const struct frame_header *h, const uint8_t *payload,
                         struct frame_leg legs[FRAME_MAX_LEGS], struct frame_tensor *tensors,
                         int max, int *n, struct err *e)
{
    uint32_t count;
    if (h->n_runs == 0 || h->n_runs > FRAME_MAX_LEGS || h->first_position > h->n_runs ||
        h->n_tokens == 0 || h->payload_bytes < table_end(h->n_runs, 0))
        return err_set(e, HP_EPROTO, "a batch of %u samples and %u legs, at leg %u, in %llu bytes",
                       h->n_tokens, h->n_runs, h->first_position,
                       (unsigned long long)h->payload_bytes);
    for (int i = 0; i < h->n_runs; i++)
        leg_decode(payload + (size_t)i * FRAME_LEG_BYTES, &legs[i]);
    const uint8_t *rows = payload + (size_t)h->n_runs * FRAME_LEG_BYTES + COUNT_BYTES;
    memcpy(&count, rows - COUNT_BYTES, sizeof count);
    if (max < 0 || count > (uint32_t)max || h->payload_bytes < table_end(h->n_runs, (int)count))
        return err_set(e, HP_EPROTO, "a batch of %u tensors in %llu bytes", count,
                       (unsigned long long)h->payload_bytes);
    uint64_t at = table_end(h->n_runs, (int)count);
    for (int i = 0; i < (int)count; i++) {
        int rc = tensor_decode(rows + (size_t)i * ROW_BYTES, i, &tensors[i], e);
        if (rc < 0)
            return rc;
        at = aligned_at(at);
        tensors[i].data = payload + at;
        at += tensors[i].bytes;
    }
    if (at != h->payload_bytes)
        return err_set(e, HP_EPROTO, "a batch's tensors take %llu of %llu bytes",
                       (unsigned long long)at, (unsigned long long)h->payload_bytes);
    *n = (int)count;
    return 0;
}
