#include "agent/engine/network/network_rows.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "agent/backend/backend.h"
#include "agent/backend/cpu/kernels.h"
#include "agent/backend/cpu/nn.h"
#include "common/vector.h"

/* Floats of weights that are unpacked at a time: they stay in the second-level cache. From so many
 * rows on that pays. */
enum { PANEL_FLOATS = 1 << 17, PANEL_LEAST_OUTPUTS = 16, PANEL_ROWS = 64 };

struct rows_operator {
    const struct graph_op *of;
    struct device_weight *weights[OP_WEIGHTS_MAX];
    struct device_op *op; /* NULL: a table, which is read where it lies */
    bool is_table;        /* and counted so */
    float *bias;          /* of a product by panels; NULL: none */
};

struct network_rows {
    struct network_account account;
    uint64_t limit_bytes;
    const struct network_device *there; /* NULL: a device of this CPU, of its own */
    struct device *device;              /* NULL: nothing was loaded yet */
    struct stream *stream;
    const struct cpu_kernels *kernels; /* NULL: a CPU without any, where the device does all */
    struct rows_operator *list;
    int n, room;
    float *panels; /* one for each thread */
    size_t panel_floats;
    uint64_t bytes;
};

int network_rows_create(uint64_t limit_bytes, const struct network_device *there,
                        const struct network_account *account, struct network_rows **out,
                        struct err *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_no_memory(e, "a network's weights");
    if (account)
        (*out)->account = *account;
    (*out)->limit_bytes = limit_bytes;
    (*out)->there = there;
    return 0;
}

/* Its threads keep to the caller's cores. */
static int device_make(struct network_rows *r, const struct nn *nn, struct err *e)
{
    const struct device_config c = {
        .backend = "cpu", .n_threads = nn_threads(nn), .memory_bytes = r->limit_bytes};
    if (r->there) {
        r->device = r->there->device;
        r->stream = r->there->stream;
        return 0;
    }
    int rc = device_open(&c, &r->device, e);
    rc = rc < 0 ? rc : r->device->backend->stream_create(r->device, &r->stream, e);
    if (rc == 0 && kernels_choose(NULL, &r->kernels, &(struct err){0}) < 0)
        r->kernels = NULL;
    if (rc < 0)
        device_close(&r->device);
    return rc;
}

/* ---- weights ---- */

/* Of the same file it is known by where it lies in it. */
static uint64_t weight_place(const struct weight *w, uint64_t hash)
{
    const uint64_t place[] = {w->offset, w->bytes, (uint64_t)w->file, w->first_row, w->shape[0]};
    hash = XXH64(place, sizeof place, hash);
    hash = XXH64(w->name, strlen(w->name), hash);
    for (int i = 0; i < w->n_parts && w->parts; i++)
        hash = weight_place(w->parts[i], hash);
    return hash;
}

/* And as what it is loaded on a device: `use`, or on this CPU where it lies. */
static struct network_alike weight_key(const struct network_rows *r, const struct weight *w,
                                       enum weight_use use)
{
    return (struct network_alike){weight_place(w, r->there ? 1 + (uint64_t)use : 0),
                                  weight_dtype_bytes(w)};
}

struct weight_loading {
    struct device *device;
    const struct weight *of;
    enum weight_use use;
};

static int weight_make(void *ctx, void **out, struct err *e)
{
    const struct weight_loading *l = ctx;
    struct device_weight *made = NULL;
    int rc = l->device->backend->weight_load(l->device, l->of, l->use, true, &made, e);
    *out = made;
    return rc;
}

static void weight_release(void *ctx, void *made)
{
    struct device *d = ctx;
    struct device_weight *w = made;
    d->backend->weight_free(d, &w);
}

/* On a device what others have, or a first copy; here a first look, and a note of what lies mapped.
 */
static int weight_hold(struct network_rows *r, const struct weight *w, enum weight_use use,
                       struct device_weight **out, struct err *e)
{
    struct weight_loading l = {r->device, w, use};
    const struct network_alike key = weight_key(r, w, use);
    void *made = NULL;
    int rc = network_memory_hold(&r->account, &key, r->there ? 0 : key.bytes, w->name,
                                 r->there ? weight_make : NULL, &l, &made, e);
    if (rc < 0 || r->there) {
        *out = made;
        return rc;
    }
    rc = weight_make(&l, &made, e);
    if (rc < 0)
        network_memory_drop(&r->account, &key, NULL, NULL, NULL);
    *out = made;
    return rc;
}

static void weight_drop(struct network_rows *r, const struct weight *w, enum weight_use use,
                        struct device_weight *made)
{
    const struct network_alike key = weight_key(r, w, use);
    if (!r->there)
        weight_release(r->device, made);
    network_memory_drop(&r->account, &key, r->there ? weight_release : NULL, r->device, made);
}

/* ---- operators ---- */

static void operator_free(struct network_rows *r, struct rows_operator *o)
{
    if (o->op)
        r->device->backend->op_release(&o->op);
    for (int i = 0; i < o->of->n_weights; i++)
        if (o->weights[i])
            weight_drop(r, o->of->weights[i], graph_op_weight_use(o->of, i), o->weights[i]);
    if (o->is_table) {
        const struct network_alike key = weight_key(r, o->of->weights[0], WEIGHT_ROWS);
        network_memory_drop(&r->account, &key, NULL, NULL, NULL);
    }
    free(o->bias);
}

void network_rows_clear(struct network_rows *r)
{
    while (r->n > 0)
        operator_free(r, &r->list[--r->n]);
    if (r->stream && !r->there)
        r->device->backend->stream_destroy(&r->stream);
    if (r->device && !r->there)
        device_close(&r->device); /* and what products scratched in */
    r->device = NULL;
    r->stream = NULL;
    r->bytes = 0;
}

void network_rows_destroy(struct network_rows **self)
{
    struct network_rows *r = *self;
    *self = NULL;
    if (!r)
        return;
    network_rows_clear(r);
    free(r->list);
    free(r->panels);
    free(r);
}

static const struct rows_operator *operator_find(const struct network_rows *r,
                                                 const struct graph_op *of)
{
    for (int i = 0; i < r->n; i++)
        if (r->list[i].of == of)
            return &r->list[i];
    return NULL;
}

static int operator_load(struct network_rows *r, struct rows_operator *o, struct err *e)
{
    const struct backend *b = r->device->backend;
    struct op_request request = {.op = o->of};
    int rc = backend_require(b, o->of, e);
    for (int i = 0; i < o->of->n_weights && rc == 0; i++) {
        const struct weight *w = o->of->weights[i];
        rc = w ? weight_hold(r, w, graph_op_weight_use(o->of, i), &o->weights[i], e) : 0;
        request.weights[i] = o->weights[i];
    }
    return rc < 0 ? rc : b->op_prepare(r->device, &request, &o->op, e);
}

/* A table is the host's, which reads some rows of it. */
static int table_count(struct network_rows *r, struct rows_operator *o, struct err *e)
{
    const struct weight *w = o->of->weights[0];
    const struct network_alike key = weight_key(r, w, WEIGHT_ROWS);
    void *none;
    int rc = r->there
                 ? 0
                 : network_memory_hold(&r->account, &key, key.bytes, w->name, NULL, NULL, &none, e);
    o->is_table = rc == 0 && !r->there;
    return rc;
}

/* ---- products of many rows ---- */

static bool is_by_panels(const struct network_rows *r, const struct graph_op *op)
{
    return r->kernels && op->kind == OP_MATMUL && !op->u.matmul.turned &&
           op->weights[0]->stored == WEIGHT_PLAIN;
}

/* Outputs of a panel. */
static size_t panel_outputs(const struct weight *w)
{
    size_t inputs = (size_t)weight_shape_columns(w), n = PANEL_FLOATS / inputs;
    n -= n % PANEL_LEAST_OUTPUTS;
    return n < PANEL_LEAST_OUTPUTS ? PANEL_LEAST_OUTPUTS : n;
}

static bool weight_is_floats(const struct weight *w)
{
    return w->dtype == DTYPE_F32 && (uintptr_t)w->data % sizeof(float) == 0;
}

static int panels_load(struct network_rows *r, const struct nn *nn, struct rows_operator *o,
                       struct err *e)
{
    const struct weight *w = o->of->weights[0],
                        *bias = o->of->n_weights > 1 ? o->of->weights[1] : NULL;
    size_t floats = panel_outputs(w) * (size_t)weight_shape_columns(w);
    if (floats > r->panel_floats && !weight_is_floats(w)) {
        floats = (floats + 15) / 16 * 16;
        free(r->panels);
        r->panels = aligned_alloc(64, (size_t)nn_threads(nn) * floats * sizeof *r->panels);
        r->panel_floats = r->panels ? floats : 0;
        if (!r->panels)
            return err_no_memory(e, "panels of weights");
    }
    if (!bias)
        return 0;
    o->bias = malloc((size_t)weight_shape_columns(bias) * sizeof *o->bias);
    return o->bias ? weight_rows_f32(bias, 0, 1, o->bias, e) : err_no_memory(e, "a bias");
}

/* Rows [first, first + n) of the weights as floats. */
static const float *panel_make(const struct network_rows *r, const struct weight *w, size_t first,
                               size_t n, float *panel)
{
    size_t columns = (size_t)weight_shape_columns(w);
    if (weight_is_floats(w))
        return (const float *)(const void *)w->data + first * columns;
    kernels_unpack(r->kernels, w->dtype, w->data + dtype_bytes(w->dtype, first * columns),
                   n * columns, panel);
    return panel;
}

/* What products are added to lies where they go. */
static void addends_put(const struct rows_operator *o, const float *addend, int64_t rows,
                        size_t outputs, float *out)
{
    if (addend)
        memcpy(out, addend, (size_t)rows * outputs * sizeof *out);
    for (int64_t i = 0; i < rows; i++, out += outputs)
        for (size_t c = 0; c < outputs; c++)
            out[c] = (addend ? out[c] : 0) + (o->bias ? o->bias[c] : 0);
}

/* A product, whose panels threads share out: which of them makes one changes nothing. */
struct panels_job {
    const struct network_rows *r;
    const struct weight *w;
    const struct nn *nn;
    const float *x;
    float *out;
    int64_t rows;
    atomic_int code;
};

static void panels_part(void *ctx, int part, int parts)
{
    struct panels_job *job = ctx;
    size_t outputs = (size_t)weight_shape_rows(job->w),
           inputs = (size_t)weight_shape_columns(job->w), step = panel_outputs(job->w);
    nn_begin(job->nn);
    for (size_t c = (size_t)part * step; c < outputs; c += (size_t)parts * step) {
        size_t n = outputs - c < step ? outputs - c : step;
        const float *panel =
            panel_make(job->r, job->w, c, n, job->r->panels + (size_t)part * job->r->panel_floats);
        const struct nn_product p = {.x = job->x,
                                     .w = panel,
                                     .y = job->out + c,
                                     .rows = job->rows,
                                     .inputs = (int64_t)inputs,
                                     .outputs = (int64_t)n,
                                     .x_stride = (int64_t)inputs,
                                     .w_stride = (int64_t)inputs,
                                     .y_stride = (int64_t)outputs};
        if (nn_product_run(&p) < 0)
            atomic_store(&job->code, HP_EDEVICE);
    }
}

static int panels_run(struct network_rows *r, const struct nn *nn, const struct rows_operator *o,
                      const void *const *in, int64_t rows, float *out, struct err *e)
{
    const struct weight *w = o->of->weights[0];
    struct panels_job job = {.r = r, .w = w, .nn = nn, .x = in[0], .out = out, .rows = rows};
    int64_t outputs = (int64_t)weight_shape_rows(w);
    addends_put(o, o->of->n_inputs > 1 ? in[1] : NULL, rows, (size_t)outputs, out);
    nn_parts_run(nn, rows * outputs, panels_part, &job);
    return atomic_load(&job.code) == 0 ? 0 : err_set(e, HP_EDEVICE, "oneDNN: a product failed");
}

/* ---- any of them ---- */

int network_rows_load(struct network_rows *r, const struct nn *nn, const struct onnx_rows *o,
                      struct err *e)
{
    struct rows_operator own = {.of = o->op};
    if (operator_find(r, o->op))
        return 0;
    int rc = r->device ? 0 : device_make(r, nn, e);
    if (rc < 0)
        return rc;
    rc = o->op->kind == OP_EMBED ? table_count(r, &own, e) : operator_load(r, &own, e);
    if (rc == 0 && is_by_panels(r, o->op))
        rc = panels_load(r, nn, &own, e);
    if (rc == 0 && !vector_push(r->list, r->n, r->room, own))
        rc = err_no_memory(e, "a network's weights");
    if (rc < 0)
        operator_free(r, &own);
    else
        r->bytes += onnx_rows_bytes(o);
    return rc;
}

static int table_run(const struct weight *table, const int64_t *ids, int64_t rows, float *out,
                     struct err *e)
{
    uint64_t n = weight_shape_rows(table), width = weight_shape_columns(table);
    int rc = 0;
    for (int64_t i = 0; i < rows && rc == 0; i++)
        rc = ids[i] < 0 || (uint64_t)ids[i] >= n
                 ? err_set(e, HP_EINVAL, "index %lld of %llu rows", (long long)ids[i],
                           (unsigned long long)n)
                 : weight_rows_f32(table, (uint64_t)ids[i], 1, out + (uint64_t)i * width, e);
    return rc;
}

/* Which experts rows take may come from another machine: products write by these numbers. */
int network_rows_route_check(const struct onnx_rows *o, const float *route, int64_t rows,
                             struct err *e)
{
    const struct graph_op *op = o->op;
    int used = op->u.experts.used;
    float n = (float)op->weights[0]->n_parts;
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < used; k++)
            if (!(route[i * 2 * used + k] >= 0 && route[i * 2 * used + k] < n))
                return err_set(e, HP_EINVAL, "expert %g of %g", (double)route[i * 2 * used + k],
                               (double)n);
    return 0;
}

static struct tensor value_tensor(const struct onnx_rows *o, int value, const void *data,
                                  int64_t rows)
{
    uint64_t width = graph_value_width(&o->graph->values[value]), n = (uint64_t)rows;
    union {
        const void *in;
        void *out;
    } at = {data};
    return tensor_rows((struct memory){at.out, n * width * sizeof(float)}, DTYPE_F32, n, width);
}

int network_rows_put(struct network_rows *r, const struct onnx_rows *o, const void *const *in,
                     int64_t rows, float *out, struct err *e)
{
    const struct rows_operator *own = operator_find(r, o->op);
    struct tensor inputs[OP_INPUTS_MAX];
    if (!own)
        return err_set(e, HP_EBUG, "a %s of another part", op_kind_info(o->op->kind)->name);
    for (int i = 0; i < o->op->n_inputs; i++)
        inputs[i] = value_tensor(o, o->op->inputs[i], in[i], rows);
    struct tensor made = value_tensor(o, o->op->outputs[0], out, rows);
    r->device->backend->op_run(r->stream, own->op, inputs, &made, NULL);
    return 0;
}

int network_rows_run(struct network_rows *r, const struct nn *nn, const struct onnx_rows *o,
                     const void *const *in, int64_t rows, float *out, struct err *e)
{
    const struct rows_operator *own = operator_find(r, o->op);
    if (!own)
        return err_set(e, HP_EBUG, "a %s of another part", op_kind_info(o->op->kind)->name);
    if (o->op->kind == OP_EMBED)
        return table_run(o->op->weights[0], in[0], rows, out, e);
    if (rows >= PANEL_ROWS && is_by_panels(r, o->op))
        return panels_run(r, nn, own, in, rows, out, e);
    int rc = o->op->kind == OP_EXPERT_MATMUL ? network_rows_route_check(o, in[1], rows, e) : 0;
    rc = rc < 0 ? rc : network_rows_put(r, o, in, rows, out, e);
    return rc < 0 ? rc : r->device->backend->stream_wait(r->stream, e);
}

uint64_t network_rows_bytes(const struct network_rows *r)
{
    return r ? r->bytes : 0;
}
