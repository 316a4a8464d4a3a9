/* Copies between host and GPU and within it; number formats are turned into one another on the GPU.
 */
#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

static struct gpu_rows rows_of(const struct tensor *t)
{
    return (struct gpu_rows){tensor_row(t, 0), t->strides[0]};
}

/* The same number format on both sides. */
static void bytes_copy(struct cuda_stream *s, const struct tensor *to, const struct tensor *from)
{
    size_t bytes = dtype_bytes(to->dtype, tensor_width(to));
    const struct cuda_rows there = {tensor_row(to, 0), bytes,
                                    dtype_bytes(to->dtype, to->strides[0]), to->shape[0]},
                           here = {tensor_row(from, 0), bytes,
                                   dtype_bytes(from->dtype, from->strides[0]), to->shape[0]};
    if (from->on_host)
        cuda_staged_send(s, &there, &here);
    else if (to->on_host)
        cuda_staged_fetch(s, &there, &here);
    else
        cuda_note(s, gpu_copy(s->stream, GPU_WITHIN, there.data, there.pitch, here.data, here.pitch,
                              bytes, there.rows));
}

/* On the device, one side float32. */
static void formats_copy(struct cuda_stream *s, const struct tensor *to, const struct tensor *from)
{
    struct gpu_shape shape = {(uint32_t)to->shape[0], (uint32_t)tensor_width(to)};
    if (to->dtype == DTYPE_F32)
        gpu_widen(s->stream, (int)from->dtype, tensor_row(from, 0),
                  dtype_bytes(from->dtype, from->strides[0]), rows_of(to), shape);
    else
        gpu_narrow(s->stream, (int)to->dtype, rows_of(from), tensor_row(to, 0),
                   dtype_bytes(to->dtype, to->strides[0]), shape);
    cuda_note(s, gpu_launched());
}

/* A room of the stream's as rows like those of `t`. */
static bool rows_room(struct cuda_stream *s, struct cuda_room *r, enum dtype dtype,
                      const struct tensor *t, struct tensor *out)
{
    uint64_t bytes = dtype_bytes(dtype, t->shape[0] * tensor_width(t));
    if (!cuda_room_want(s, r, bytes, false))
        return false;
    *out = tensor_rows((struct memory){r->device, bytes}, dtype, t->shape[0], tensor_width(t));
    return true;
}

void cuda_copy(struct stream *stream, const struct tensor *to, const struct tensor *from)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    struct tensor room;
    cuda_note(s, gpu_use(s->device->ordinal));
    if (to->shape[0] == 0 || tensor_width(to) == 0)
        return;
    if (to->dtype == from->dtype) {
        bytes_copy(s, to, from);
    } else if (from->dtype != DTYPE_F32 && to->dtype != DTYPE_F32) {
        if (rows_room(s, &s->wide, DTYPE_F32, to, &room)) {
            cuda_copy(stream, &room, from);
            cuda_copy(stream, to, &room);
        }
    } else if (from->on_host) {
        if (rows_room(s, &s->narrow, from->dtype, from, &room)) {
            bytes_copy(s, &room, from);
            formats_copy(s, to, &room);
        }
    } else if (to->on_host) {
        if (rows_room(s, &s->narrow, to->dtype, to, &room)) {
            formats_copy(s, &room, from);
            bytes_copy(s, to, &room);
        }
    } else {
        formats_copy(s, to, from);
    }
}
