#include "agent/backend/cpu/nn.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/nn_int.h"
#include "agent/backend/cpu/threads.h"

/* Less than this is done before another thread has begun: about ten microseconds of a core. */
enum { LEAST_WORK = 1 << 19, LEAST_ELEMENTS = 1 << 16 };

int nn_product_run(const struct nn_product *p)
{
    return dnnl_sgemm('N', 'T', p->rows, p->outputs, p->inputs, 1, p->x, p->x_stride, p->w,
                      p->w_stride, 1, p->y, p->y_stride) == dnnl_success
               ? 0
               : HP_EDEVICE;
}

int nn_threads(const struct nn *n)
{
    return n->n_threads;
}

void nn_begin(const struct nn *n)
{
    if (n->set_openmp_threads)
        n->set_openmp_threads(1);
}

/* Tests have small networks computed as large ones are. */
static double least_work(void)
{
    const char *tested = getenv("HP_TEST_LEAST_WORK");
    return tested ? strtod(tested, NULL) : LEAST_WORK;
}

static dnnl_status_t streams_make(struct nn *n)
{
    dnnl_status_t rc = dnnl_engine_create(&n->engine, dnnl_cpu, 0);
    for (int i = 0; i < n->n_threads && rc == dnnl_success; i++)
        rc = dnnl_stream_create(&n->streams[i], n->engine, dnnl_stream_in_order);
    return rc;
}

int nn_create(struct threads *threads, struct nn **out, struct err *e)
{
    struct nn *n = calloc(1, sizeof *n);
    if (!n)
        return err_no_memory(e, "oneDNN");
    n->threads = threads;
    n->n_threads = threads ? threads_count(threads) : 1;
    n->least_work = least_work();
    n->streams = calloc((size_t)n->n_threads, sizeof *n->streams);
    if (!n->streams) {
        nn_destroy(&n);
        return err_no_memory(e, "oneDNN");
    }
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&n->set_openmp_threads, &symbol, sizeof symbol);
    nn_begin(n);
    dnnl_status_t rc = streams_make(n);
    if (rc != dnnl_success) {
        nn_destroy(&n);
        return err_set(e, HP_EDEVICE, "oneDNN cannot use this CPU (status %d)", (int)rc);
    }
    *out = n;
    return 0;
}

void nn_destroy(struct nn **self)
{
    struct nn *n = *self;
    *self = NULL;
    if (!n)
        return;
    for (int i = 0; n->streams && i < n->n_threads; i++)
        if (n->streams[i])
            dnnl_stream_destroy(n->streams[i]);
    if (n->engine)
        dnnl_engine_destroy(n->engine);
    free(n->streams);
    free(n);
}

void nn_piece_free(struct nn_piece *p)
{
    for (int i = 0; i < p->n_args; i++)
        dnnl_memory_destroy(p->args[i].memory);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    *p = (struct nn_piece){0};
}

void nn_op_free(struct nn_op **self)
{
    struct nn_op *op = *self;
    *self = NULL;
    if (!op)
        return;
    for (int i = 0; i < op->n_pieces; i++)
        nn_piece_free(&op->pieces[i]);
    free(op->pieces);
    free(op);
}

/* ---- weights, and running ---- */

size_t nn_op_weight_bytes(const struct nn_op *op)
{
    return op->has_weights ? dnnl_memory_desc_get_size(&op->packed) : 0;
}

int nn_op_pieces(const struct nn_op *op)
{
    return op->n_pieces;
}

static size_t piece_scratch(const struct nn_op *op)
{
    return (op->scratch_bytes + 63) / 64 * 64;
}

size_t nn_op_scratch_bytes(const struct nn_op *op)
{
    return piece_scratch(op) * (size_t)op->n_pieces;
}

/* oneDNN takes what it only reads without const. */
static void *without_const(const void *data)
{
    union {
        const void *in;
        void *out;
    } u = {data};
    return u.out;
}

int nn_op_pack(struct nn *n, const struct nn_op *op, const float *weights, void *out, struct err *e)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t reorder = NULL;
    dnnl_memory_t from = NULL, to = NULL;
    dnnl_status_t rc = dnnl_reorder_primitive_desc_create(&pd, &op->given, n->engine, &op->packed,
                                                          n->engine, NULL);
    if (rc == dnnl_success) {
        rc = dnnl_primitive_create(&reorder, pd);
        dnnl_primitive_desc_destroy(pd);
    }
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&from, &op->given, n->engine, without_const(weights));
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&to, &op->packed, n->engine, out);
    if (rc == dnnl_success) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
        rc = dnnl_primitive_execute(reorder, n->streams[0], 2, args);
    }
    if (rc == dnnl_success)
        rc = dnnl_stream_wait(n->streams[0]);
    if (from)
        dnnl_memory_destroy(from);
    if (to)
        dnnl_memory_destroy(to);
    if (reorder)
        dnnl_primitive_destroy(reorder);
    return rc == dnnl_success
               ? 0
               : err_set(e, HP_EDEVICE, "oneDNN cannot pack weights (status %d)", (int)rc);
}

void nn_op_bind(struct nn_op *op, int slot, const void *data)
{
    for (int k = 0; k < op->n_pieces; k++) {
        struct nn_piece *p = &op->pieces[k];
        ptrdiff_t offset = slot == NN_SCRATCH ? k * (ptrdiff_t)piece_scratch(op) : p->offsets[slot];
        for (int i = 0; i < p->n_args; i++)
            if (p->slots[i] == slot)
                dnnl_memory_set_data_handle(p->args[i].memory,
                                            data ? (char *)without_const(data) + offset : NULL);
    }
}

struct pieces_run {
    const struct nn *n;
    const struct nn_op *op;
    atomic_int status;
};

static void piece_run(void *ctx, int thread, uint32_t part)
{
    struct pieces_run *r = ctx;
    const struct nn_piece *p = &r->op->pieces[part];
    nn_begin(r->n);
    dnnl_status_t rc =
        dnnl_primitive_execute(p->primitive, r->n->streams[thread], p->n_args, p->args);
    if (rc != dnnl_success)
        atomic_store(&r->status, (int)rc);
}

int nn_op_run(struct nn *n, const struct nn_op *op, struct err *e)
{
    const struct nn_piece *p = op->pieces;
    dnnl_status_t rc;
    if (op->n_pieces == 1) {
        rc = dnnl_primitive_execute(p->primitive, n->streams[0], p->n_args, p->args);
    } else {
        struct pieces_run r = {n, op, dnnl_success};
        threads_run(n->threads, (uint32_t)op->n_pieces, piece_run, &r);
        rc = (dnnl_status_t)atomic_load(&r.status);
    }
    return rc == dnnl_success ? 0 : err_set(e, HP_EDEVICE, "oneDNN failed (status %d)", (int)rc);
}

/* ---- loops ---- */

struct parts_run {
    void (*fn)(void *ctx, int part, int parts);
    void *ctx;
    int n;
};

static void loop_part(void *ctx, int thread, uint32_t part)
{
    const struct parts_run *r = ctx;
    (void)thread;
    r->fn(r->ctx, (int)part, r->n);
}

void nn_parts_run(const struct nn *n, int64_t elements, void (*fn)(void *ctx, int part, int parts),
                  void *ctx)
{
    double least = n->least_work * LEAST_ELEMENTS / LEAST_WORK, parts = (double)elements / least;
    if (n->n_threads == 1 || parts < 2) {
        fn(ctx, 0, 1);
        return;
    }
    struct parts_run r = {fn, ctx, parts < n->n_threads ? (int)parts : n->n_threads};
    threads_run(n->threads, (uint32_t)r.n, loop_part, &r);
}
