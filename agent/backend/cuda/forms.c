/* Rows that lie in a stream's scratch as products want them: products of the same rows find them
 * there, and whoever makes rows that a product reads next makes these besides. They are known while
 * operators are put on the stream together, and no longer. */
#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

int cuda_stream_reserve(struct stream *stream, uint64_t scratch_bytes, struct err *e)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    int rc = scratch_bytes ? cuda_take(s->device, scratch_bytes, "scratch of its kernels",
                                       &s->scratch.device, e)
                           : 0;
    s->scratch.bytes = rc < 0 ? 0 : scratch_bytes;
    return rc;
}

void *cuda_scratch_take(struct cuda_stream *s, uint64_t bytes)
{
    s->formed.form = GPU_FORM_NONE;
    return cuda_room_take(s, &s->scratch, bytes) ? s->scratch.device : NULL;
}

bool cuda_form_is_there(const struct cuda_stream *s, const struct cuda_form *f)
{
    const struct cuda_form *have = &s->formed;
    return f->form != GPU_FORM_NONE && have->form == f->form && have->rows.data == f->rows.data &&
           have->rows.stride == f->rows.stride && have->n_rows == f->n_rows &&
           have->width == f->width && s->scratch.bytes >= f->room_bytes;
}

void cuda_form_note(struct cuda_stream *s, const struct cuda_form *f)
{
    s->formed = *f;
    if (!s->together)
        s->formed.form = GPU_FORM_NONE;
}

struct gpu_formed cuda_form_make(struct cuda_stream *s, const struct cuda_form *f)
{
    void *to = f->form != GPU_FORM_NONE ? cuda_scratch_take(s, f->room_bytes) : NULL;
    return (struct gpu_formed){
        .to = to,
        .form = to ? f->form : GPU_FORM_NONE,
        .rows = gpu_form_rows(f->form, f->n_rows),
    };
}

/* Where a tensor's rows begin and end. */
static const uint8_t *rows_end(const struct tensor *t)
{
    return (const uint8_t *)tensor_row(t, t->shape[0] - 1) + tensor_width(t) * sizeof(float);
}

bool cuda_rows_meet(const struct tensor *a, const struct tensor *b)
{
    return a->shape[0] && b->shape[0] && (const uint8_t *)tensor_row(a, 0) < rows_end(b) &&
           (const uint8_t *)tensor_row(b, 0) < rows_end(a);
}

void cuda_form_written(struct cuda_stream *s, const struct tensor *out)
{
    struct cuda_form *f = &s->formed;
    if (f->form == GPU_FORM_NONE || out->shape[0] == 0)
        return;
    const uint8_t *first = (const uint8_t *)f->rows.data,
                  *end = first + ((f->n_rows - 1) * f->rows.stride + f->width) * sizeof(float);
    if ((const uint8_t *)tensor_row(out, 0) < end && first < rows_end(out))
        f->form = GPU_FORM_NONE;
}
