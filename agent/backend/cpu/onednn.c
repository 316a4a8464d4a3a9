#include "agent/backend/cpu/onednn.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

/* Shapes that a thread keeps ready. Slices have few sizes, and a shape that was pushed out is made
 * again in about 0.3 ms. */
enum { SHAPES = 256 };

struct shape {
    size_t rows, inputs, outputs;
    bool accumulate;
};

struct product {
    struct shape shape;
    dnnl_primitive_t primitive; /* NULL: empty */
    dnnl_memory_t x, panels, out, scratch;
    size_t scratch_bytes;
};

struct onednn_thread {
    dnnl_stream_t stream;
    void *scratch;
    size_t scratch_bytes;
    struct product products[SHAPES];
};

struct onednn {
    dnnl_engine_t engine;
    void (*set_openmp_threads)(int n);
    int n_threads;
    struct onednn_thread threads[];
};

#define WORD_OF(x) #x
#define WORD(x) WORD_OF(x)
const char *onednn_version(void)
{
    return "oneDNN " WORD(DNNL_VERSION_MAJOR) "." WORD(DNNL_VERSION_MINOR) "." WORD(
        DNNL_VERSION_PATCH);
}

int onednn_create(int n_threads, struct onednn **out, struct err *e)
{
    struct onednn *o = calloc(1, sizeof *o + (size_t)n_threads * sizeof *o->threads);
    if (!o)
        return err_set(e, HP_ENOMEM, "no memory for oneDNN's tables");
    o->n_threads = n_threads;
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&o->set_openmp_threads, &symbol, sizeof symbol);
    dnnl_status_t rc = dnnl_engine_create(&o->engine, dnnl_cpu, 0);
    for (int i = 0; i < n_threads && rc == dnnl_success; i++)
        rc = dnnl_stream_create(&o->threads[i].stream, o->engine, dnnl_stream_in_order);
    if (rc != dnnl_success) {
        onednn_destroy(&o);
        return err_set(e, HP_EDEVICE, "oneDNN cannot use this CPU (status %d)", (int)rc);
    }
    *out = o;
    return 0;
}

static void product_clear(struct product *p)
{
    if (!p->primitive)
        return;
    dnnl_memory_destroy(p->x);
    dnnl_memory_destroy(p->panels);
    dnnl_memory_destroy(p->out);
    dnnl_memory_destroy(p->scratch);
    dnnl_primitive_destroy(p->primitive);
    memset(p, 0, sizeof *p);
}

void onednn_destroy(struct onednn **self)
{
    struct onednn *o = *self;
    *self = NULL;
    if (!o)
        return;
    for (int i = 0; i < o->n_threads; i++) {
        struct onednn_thread *t = &o->threads[i];
        for (int j = 0; j < SHAPES; j++)
            product_clear(&t->products[j]);
        if (t->stream)
            dnnl_stream_destroy(t->stream);
        free(t->scratch);
    }
    if (o->engine)
        dnnl_engine_destroy(o->engine);
    free(o);
}

static dnnl_status_t product_describe(const struct shape *s, dnnl_engine_t engine,
                                      dnnl_primitive_desc_t *out)
{
    dnnl_dims_t x_dims = {(dnnl_dim_t)s->rows, (dnnl_dim_t)s->inputs};
    dnnl_dims_t w_dims = {(dnnl_dim_t)s->inputs, (dnnl_dim_t)s->outputs};
    dnnl_dims_t out_dims = {(dnnl_dim_t)s->rows, (dnnl_dim_t)s->outputs};
    dnnl_memory_desc_t x, w, y;
    dnnl_matmul_desc_t product;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    dnnl_status_t rc = dnnl_primitive_attr_create(&attr);
    if (rc != dnnl_success)
        return rc;
    rc = dnnl_post_ops_create(&post);
    if (rc != dnnl_success) {
        dnnl_primitive_attr_destroy(attr);
        return rc;
    }
    if (s->accumulate)
        rc = dnnl_post_ops_append_sum(post, 1.0f);
    if (rc == dnnl_success && (rc = dnnl_primitive_attr_set_post_ops(attr, post)) == dnnl_success &&
        (rc = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user)) ==
            dnnl_success &&
        (rc = dnnl_memory_desc_init_by_tag(&x, 2, x_dims, dnnl_bf16, dnnl_ab)) == dnnl_success &&
        (rc = dnnl_memory_desc_init_by_tag(&w, 2, w_dims, dnnl_bf16, dnnl_BA16a64b2a)) ==
            dnnl_success &&
        (rc = dnnl_memory_desc_init_by_tag(&y, 2, out_dims, dnnl_f32, dnnl_ab)) == dnnl_success &&
        (rc = dnnl_matmul_desc_init(&product, &x, &w, NULL, &y)) == dnnl_success)
        rc = dnnl_primitive_desc_create(out, &product, attr, engine, NULL);
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attr);
    return rc;
}

static dnnl_status_t memory_for(const_dnnl_primitive_desc_t pd, dnnl_query_t what,
                                dnnl_engine_t engine, dnnl_memory_t *out)
{
    return dnnl_memory_create(out, dnnl_primitive_desc_query_md(pd, what, 0), engine,
                              DNNL_MEMORY_NONE);
}

static dnnl_status_t product_make(struct product *p, const struct shape *s, dnnl_engine_t engine)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t rc = product_describe(s, engine, &pd);
    if (rc != dnnl_success)
        return rc;
    struct product made = {.shape = *s};
    rc = dnnl_primitive_create(&made.primitive, pd);
    if (rc == dnnl_success &&
        (rc = memory_for(pd, dnnl_query_src_md, engine, &made.x)) == dnnl_success &&
        (rc = memory_for(pd, dnnl_query_weights_md, engine, &made.panels)) == dnnl_success &&
        (rc = memory_for(pd, dnnl_query_dst_md, engine, &made.out)) == dnnl_success)
        rc = memory_for(pd, dnnl_query_scratchpad_md, engine, &made.scratch);
    made.scratch_bytes =
        dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    dnnl_primitive_desc_destroy(pd);
    if (rc == dnnl_success)
        *p = made;
    else
        product_clear(&made);
    return rc;
}

/* The product of a shape, made when it is not there. */
static dnnl_status_t product_get(struct onednn *o, struct onednn_thread *t, const struct shape *s,
                                 struct product **out)
{
    uint64_t mix = s->rows * 0x9e3779b97f4a7c15u ^ s->inputs * 0xc2b2ae3d27d4eb4fu ^
                   s->outputs * 0x165667b19e3779f9u ^ s->accumulate;
    struct product *p = &t->products[(mix ^ mix >> 29 ^ mix >> 47) % SHAPES];
    *out = p;
    if (p->primitive && p->shape.rows == s->rows && p->shape.inputs == s->inputs &&
        p->shape.outputs == s->outputs && p->shape.accumulate == s->accumulate)
        return dnnl_success;
    product_clear(p);
    dnnl_status_t rc = product_make(p, s, o->engine);
    if (rc != dnnl_success || p->scratch_bytes <= t->scratch_bytes)
        return rc;
    free(t->scratch);
    t->scratch_bytes = (p->scratch_bytes + 4095) / 4096 * 4096;
    t->scratch = aligned_alloc(4096, t->scratch_bytes);
    if (t->scratch)
        return dnnl_success;
    t->scratch_bytes = 0;
    return dnnl_out_of_memory;
}

int onednn_matmul(struct onednn *o, int thread, const uint16_t *x, size_t rows,
                  const uint16_t *panels, size_t inputs, size_t outputs, bool accumulate,
                  float *out)
{
    struct onednn_thread *t = &o->threads[thread];
    struct shape shape = {rows, inputs, outputs, accumulate};
    struct product *p;
    if (o->set_openmp_threads)
        o->set_openmp_threads(1);
    if (product_get(o, t, &shape, &p) != dnnl_success)
        return -1;
    union { /* oneDNN takes its inputs without const */
        const void *in;
        void *data;
    } x_data = {x}, panel_data = {panels};
    if (dnnl_memory_set_data_handle(p->x, x_data.data) != dnnl_success ||
        dnnl_memory_set_data_handle(p->panels, panel_data.data) != dnnl_success ||
        dnnl_memory_set_data_handle(p->out, out) != dnnl_success ||
        dnnl_memory_set_data_handle(p->scratch, t->scratch) != dnnl_success)
        return -1;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->x},
                                    {DNNL_ARG_WEIGHTS, p->panels},
                                    {DNNL_ARG_DST, p->out},
                                    {DNNL_ARG_SCRATCHPAD, p->scratch}};
    if (dnnl_primitive_execute(p->primitive, t->stream, sizeof args / sizeof *args, args) !=
        dnnl_success)
        return -1;
    return dnnl_stream_wait(t->stream) == dnnl_success ? 0 : -1;
}
