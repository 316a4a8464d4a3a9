/* Matrix products: which way each goes, and the room that it takes. Few rows multiply weights where
 * they lie (decode.cu); many go through cuBLASLt as f16 or bf16, a panel of outputs at a time where
 * weights have to be turned into that; float32 throughout, what is asked for, turned matrices and a
 * box without cuBLASLt take kernels of our own (products.cu). */
#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

enum { PANEL_BYTES = 64 << 20, PANEL_LEAST = 64, HALF_BYTES = 2, ROOM_ALIGNMENT = 256 };

/* For cuBLASLt, as its documentation advises. */
static uint64_t work_bytes(const struct cuda_device *d)
{
    return (uint64_t)(d->facts.major >= 9 ? 32 : 4) << 20;
}

static uint64_t bytes_align(uint64_t bytes)
{
    return (bytes + ROOM_ALIGNMENT - 1) / ROOM_ALIGNMENT * ROOM_ALIGNMENT;
}

/* Ampere and later multiply bf16, which no value is too large for. */
static bool half_is_bf16(const struct cuda_device *d, enum dtype t)
{
    return t != DTYPE_F16 && d->facts.major >= 8;
}

/* Whether weights are what is multiplied, as they lie. */
static bool half_is_there(const struct cuda_device *d, enum dtype t)
{
    return t == DTYPE_F16 || (t == DTYPE_BF16 && half_is_bf16(d, t));
}

/* Many rows as f16 or bf16. */
static bool goes_as_halves(const struct cuda_device *d, enum dtype t, bool f32, uint32_t rows)
{
    return d->has_blas && !f32 && rows > GPU_DECODE_ROWS &&
           (t == DTYPE_F16 || t == DTYPE_BF16 || gpu_decode_by_integers((int)t));
}

/* Where in the room a product's parts lie. */
struct matmul_room {
    uint32_t panel; /* outputs at a time */
    uint64_t in_bytes, panel_bytes, bytes;
};

static struct matmul_room room_of(const struct cuda_device *d, enum dtype t, uint64_t inputs,
                                  uint64_t outputs, uint32_t rows)
{
    uint64_t most = PANEL_BYTES / (inputs * HALF_BYTES) / PANEL_LEAST * PANEL_LEAST;
    most = most < PANEL_LEAST ? PANEL_LEAST : most;
    struct matmul_room r = {.panel = (uint32_t)outputs};
    if (!half_is_there(d, t) && most < outputs)
        r.panel = (uint32_t)most;
    r.in_bytes = bytes_align(rows * inputs * HALF_BYTES);
    r.panel_bytes = half_is_there(d, t) ? 0 : bytes_align(r.panel * inputs * HALF_BYTES);
    r.bytes = r.in_bytes + r.panel_bytes + work_bytes(d);
    return r;
}

uint64_t cuda_matmul_scratch_bytes(const struct device *device, const struct weight *w,
                                   enum weight_use use, bool f32, uint32_t rows)
{
    const struct cuda_device *d = (const struct cuda_device *)device;
    uint64_t outputs = weight_shape_rows(w), inputs = weight_shape_columns(w),
             bytes = CUDA_SPLIT_BYTES; /* attention takes the same room by turns */
    if (f32 || use != WEIGHT_MATMUL)
        return 0;
    if (gpu_decode_by_integers((int)w->dtype)) {
        uint64_t numbers = gpu_decode_input_bytes((uint32_t)inputs, GPU_DECODE_ROWS);
        bytes = numbers > bytes ? numbers : bytes;
    }
    if (goes_as_halves(d, w->dtype, f32, rows)) {
        uint64_t halves = room_of(d, w->dtype, inputs, outputs, rows).bytes;
        bytes = halves > bytes ? halves : bytes;
    }
    uint64_t groups = cuda_groups_scratch_bytes(d, w, f32, rows);
    return cuda_steps_bytes(groups > bytes ? groups : bytes);
}

/* ---- many rows ---- */

/* `there`: the rows are in the scratch as halves already. */
static void halves_run(struct cuda_stream *s, const struct cuda_weight *w,
                       const struct gpu_product *p, bool there)
{
    const struct cuda_device *d = s->device;
    struct matmul_room room = room_of(d, w->dtype, p->inputs, p->outputs, p->rows);
    uint8_t *in = s->scratch.device, *panel = in + room.in_bytes, *work = panel + room.panel_bytes;
    bool bf16 = half_is_bf16(d, w->dtype);
    if (!there)
        gpu_narrow(s->stream, bf16 ? DTYPE_BF16 : DTYPE_F16, p->in, in,
                   (uint64_t)p->inputs * HALF_BYTES, (struct gpu_shape){p->rows, p->inputs});
    for (uint32_t c = 0, n; c < p->outputs; c += n) {
        n = p->outputs - c < room.panel ? p->outputs - c : room.panel;
        struct gpu_half_product one = {
            .bf16 = bf16,
            .inputs = p->inputs,
            .outputs = n,
            .rows = p->rows,
            .weight = p->weight + c * p->row_bytes,
            .in = in,
            .addend = p->addend.data ? (struct gpu_rows){p->addend.data + c, p->addend.stride}
                                     : (struct gpu_rows){0},
            .out = {p->out.data + c, p->out.stride},
            .bias = p->bias ? p->bias + c : NULL,
            .work = work,
            .work_bytes = work_bytes(d),
        };
        if (!half_is_there(d, w->dtype)) {
            const struct gpu_expansion e = {.dtype = p->dtype,
                                            .weight = p->weight + c * p->row_bytes,
                                            .row_bytes = p->row_bytes,
                                            .rows = n,
                                            .width = p->inputs,
                                            .bf16 = bf16,
                                            .out = panel};
            gpu_expand(s->stream, &e);
            one.weight = panel;
        }
        cuda_note(s, gpu_blas_run(s->blas, s->stream, &one));
    }
}

/* ---- all ---- */

static bool halves_fit(const struct cuda_stream *s, const struct cuda_weight *w,
                       const struct gpu_product *p)
{
    const struct gpu_half_product whole = {.inputs = p->inputs,
                                           .outputs = p->outputs,
                                           .rows = p->rows,
                                           .addend = p->addend,
                                           .out = p->out,
                                           .bias = p->bias};
    return s->blas && !p->turned && goes_as_halves(s->device, w->dtype, w->f32, p->rows) &&
           gpu_blas_fits(&whole);
}

static struct gpu_product product_of(const struct cuda_op *op, const struct tensor *in,
                                     const struct tensor *out)
{
    const struct cuda_weight *w = (const struct cuda_weight *)op->request.weights[0],
                             *bias = (const struct cuda_weight *)op->request.weights[1];
    bool adds = op->request.op->n_inputs > 1;
    return (struct gpu_product){
        .dtype = (int)w->dtype,
        .weight = w->data,
        .row_bytes = w->row_bytes,
        .turned = w->use == WEIGHT_MATMUL_TURNED,
        .inputs = (uint32_t)tensor_width(&in[0]),
        .outputs = (uint32_t)tensor_width(out),
        .rows = (uint32_t)out->shape[0],
        .in = {tensor_row(&in[0], 0), in[0].strides[0]},
        .addend = adds ? (struct gpu_rows){tensor_row(&in[1], 0), in[1].strides[0]}
                       : (struct gpu_rows){0},
        .out = {tensor_row(out, 0), out->strides[0]},
        .bias = bias ? bias->data : NULL,
        .tensor_cores = !w->f32 && op->device->facts.major >= 8,
    };
}

static struct cuda_form form_of(const struct cuda_stream *s, const struct cuda_weight *w,
                                const struct gpu_product *p)
{
    struct cuda_form f = {
        .rows = p->in, .n_rows = p->rows, .width = p->inputs, .form = GPU_FORM_NONE};
    if (halves_fit(s, w, p)) {
        f.form = half_is_bf16(s->device, w->dtype) ? GPU_FORM_BF16 : GPU_FORM_F16;
        f.room_bytes = room_of(s->device, w->dtype, p->inputs, p->outputs, p->rows).bytes;
    } else if (!w->f32 && !p->turned && p->rows <= GPU_DECODE_ROWS) {
        f.form = gpu_decode_form(p->dtype, p->rows, s->device->facts.major >= 8);
        f.room_bytes = gpu_decode_input_bytes(p->inputs, GPU_DECODE_ROWS);
    }
    return f;
}

struct cuda_form cuda_matmul_form(const struct cuda_stream *s, const struct cuda_op *op,
                                  const struct tensor *in, const struct tensor *out)
{
    const struct gpu_product p = product_of(op, in, out);
    return form_of(s, (const struct cuda_weight *)op->request.weights[0], &p);
}

void cuda_matmul_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch)
{
    const struct cuda_weight *w = (const struct cuda_weight *)op->request.weights[0];
    struct gpu_product p = product_of(op, in, out);
    const struct cuda_form form = form_of(s, w, &p);
    bool there = cuda_form_is_there(s, &form);
    (void)batch;
    if (form.form != GPU_FORM_NONE && !there && !cuda_scratch_take(s, form.room_bytes))
        return;
    if (form.form == GPU_FORM_F16 || form.form == GPU_FORM_BF16) {
        halves_run(s, w, &p, there);
    } else {
        p.form = form.form;
        p.numbers = form.form != GPU_FORM_NONE ? s->scratch.device : NULL;
        p.numbers_made = there;
        cuda_product_run(s, &p);
    }
    if (form.form != GPU_FORM_NONE)
        cuda_form_note(s, &form);
}

/* ---- several matrices ---- */

static struct gpu_product product_of_call(const struct op_call *c)
{
    return product_of((const struct cuda_op *)c->op, c->inputs, &c->out);
}

/* Whether nothing that one of them writes is the other's. */
static bool calls_are_apart(const struct op_call *a, const struct op_call *b)
{
    const struct cuda_op *of = (const struct cuda_op *)b->op;
    bool apart = !cuda_rows_meet(&a->out, &b->out);
    for (int i = 0; i < of->request.op->n_inputs; i++)
        apart = apart && !cuda_rows_meet(&a->out, &b->inputs[i]);
    return apart;
}

/* Whether a product's matrix may be one of several that start with p's. */
static bool goes_with(const struct gpu_product *p, const struct gpu_product *more)
{
    return more->dtype == p->dtype && more->row_bytes == p->row_bytes &&
           more->inputs == p->inputs && more->rows == p->rows && more->in.data == p->in.data &&
           more->in.stride == p->in.stride && gpu_decode_fits(more);
}

/* The products after the first that go with it. */
static void more_add(struct gpu_product *p, const struct op_call *const *calls, int n)
{
    for (int i = 1; i < n; i++) {
        struct gpu_product more = product_of_call(calls[i]);
        more.numbers = p->numbers;
        bool fits = goes_with(p, &more);
        for (int k = 0; k < i; k++)
            fits =
                fits && calls_are_apart(calls[k], calls[i]) && calls_are_apart(calls[i], calls[k]);
        if (!fits)
            return;
        p->more[p->n_more++] =
            (struct gpu_product_more){more.weight, more.outputs, more.addend, more.out, more.bias};
    }
}

int cuda_matmuls_run(struct cuda_stream *s, const struct op_call *const *calls, int n)
{
    if (n < 2 || calls[0]->out.shape[0] == 0 || calls[0]->out.shape[0] > GPU_DECODE_ROWS)
        return 0;
    const struct cuda_weight *w =
        (const struct cuda_weight *)((const struct cuda_op *)calls[0]->op)->request.weights[0];
    struct gpu_product p = product_of_call(calls[0]);
    const struct cuda_form form = form_of(s, w, &p);
    bool there = cuda_form_is_there(s, &form);
    p.form = form.form;
    p.numbers = form.form != GPU_FORM_NONE ? s->scratch.device : NULL;
    p.numbers_made = there;
    if (form.form != GPU_FORM_NONE && !p.numbers && !there)
        return 0; /* the first makes the room */
    if (!gpu_decode_fits(&p))
        return 0;
    more_add(&p, calls, n);
    if (p.n_more == 0)
        return 0;
    for (uint32_t i = 0; i <= p.n_more; i++)
        cuda_form_written(s, &calls[i]->out);
    if (form.form != GPU_FORM_NONE && !there && !cuda_scratch_take(s, form.room_bytes))
        return (int)p.n_more + 1;
    if (form.form != GPU_FORM_NONE)
        p.numbers = s->scratch.device;
    cuda_product_run(s, &p);
    if (form.form != GPU_FORM_NONE)
        cuda_form_note(s, &form);
    return (int)p.n_more + 1;
}
