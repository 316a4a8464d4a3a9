#include "coordinator/pools/pool_results.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/api_keys.h"
#include "coordinator/pools/pool_lengths.h"

/* ---- requests ---- */

static void request_refuse(struct coord *c, struct pool_request *r, const struct err *why)
{
    struct pool_call call = r->call;
    if (!r->began_ns)
        api_keys_return_tokens(c, r->client, r->tokens);
    pool_request_free(c->pools, r);
    call.failed(call.ctx, why);
}

void pool_request_fail(struct coord *c, struct pool_request *r, const struct err *why)
{
    if (!r)
        return;
    r->spec->models[r->model].counts.failed++;
    request_refuse(c, r, why);
}

void pool_request_drop(struct coord *c, struct pool_request *r, const struct err *why)
{
    r->spec->models[r->model].counts.dropped++;
    request_refuse(c, r, why);
}

static void request_answer(struct coord *c, struct pool_request *r, struct infer_times *times)
{
    int64_t now = (int64_t)coord_clock(c);
    struct pool_call call = r->call;
    struct pool_counts *n = &r->spec->models[r->model].counts;
    struct ndarray *outputs = r->outputs;
    n->on_time += now <= r->deadline_ns;
    n->late += now > r->deadline_ns;
    n->total_ns += (uint64_t)(now - r->arrived_ns);
    n->queue_ns += r->began_ns > r->arrived_ns ? (uint64_t)(r->began_ns - r->arrived_ns) : 0;
    n->compute_ns += (uint64_t)r->compute_ns;
    n->last_unix_s = coord_unix_s(c);
    times->arrived_ns = r->arrived_ns;
    times->answered_ns = now;
    times->deadline_ns = r->deadline_ns;
    r->outputs = NULL;
    pool_request_free(c->pools, r);
    call.answered(call.ctx, outputs, times);
}

/* ---- outputs ---- */

/* Whether an output is as long as the padded inputs were: then it is cut back. */
static bool output_is_padded(const struct pool_model *m, int i, const struct frame_tensor *t,
                             int64_t padded)
{
    int axis = m->n_lengths ? m->output_axes[i] : -1;
    return axis >= 0 && axis < (int)t->n_dims && (int64_t)t->dims[axis] == padded;
}

static int outputs_make(struct pool_request *r, const struct frame_tensor *tensors, int64_t padded,
                        struct err *e)
{
    const struct pool_model *m = &r->spec->models[r->model];
    int rc = 0;
    if (r->outputs)
        return 0;
    r->outputs = calloc((size_t)m->facts.n_outputs + 1, sizeof *r->outputs);
    if (!r->outputs)
        return err_no_memory(e, "an answer");
    for (int i = 0; rc == 0 && i < m->facts.n_outputs; i++) {
        int64_t dims[FRAME_TENSOR_DIMS];
        memcpy(dims, tensors[i].dims, sizeof dims);
        if (output_is_padded(m, i, &tensors[i], padded))
            dims[m->output_axes[i]] = r->length;
        if (m->batches)
            dims[0] = r->n_samples;
        rc = ndarray_make(&r->outputs[i], (enum ndarray_type)tensors[i].type,
                          (int)tensors[i].n_dims, dims, FRAME_MAX_PAYLOAD_BYTES, e);
    }
    return rc;
}

/* Sample `at` of the batch is sample `sample` of the request. */
static int sample_take(struct pool_request *r, uint32_t sample, const struct frame_tensor *tensors,
                       int at, int64_t padded, struct err *e)
{
    const struct pool_model *m = &r->spec->models[r->model];
    int rc = outputs_make(r, tensors, padded, e);
    for (int i = 0; rc == 0 && i < m->facts.n_outputs; i++) {
        struct ndarray made;
        int64_t dims[FRAME_TENSOR_DIMS];
        memcpy(dims, tensors[i].dims, sizeof dims);
        rc = ndarray_shape(&made, (enum ndarray_type)tensors[i].type, (int)tensors[i].n_dims, dims,
                           e);
        if (rc < 0)
            break;
        bool cut = output_is_padded(m, i, &tensors[i], padded);
        struct pool_stretch s =
            pool_stretch_of(&made, m->batches, cut ? m->output_axes[i] : -1, r->length);
        if (s.rows * s.to_bytes * r->n_samples != ndarray_bytes(&r->outputs[i]))
            return err_set(e, HP_EPROTO, "output \"%s\" has other sizes than before",
                           m->facts.outputs[i].name);
        pool_stretch_copy(&s, (uint8_t *)r->outputs[i].data + sample * s.rows * s.to_bytes,
                          (const uint8_t *)tensors[i].data + (size_t)at * s.rows * s.from_bytes);
    }
    return rc;
}

/* Whoever is answered reads the values by the type that the model's file says. */
static int tensors_check(const struct pool_model *m, const struct frame_tensor *tensors, int n,
                         int samples, struct err *e)
{
    if (n != m->facts.n_outputs)
        return err_set(e, HP_EPROTO, "%d outputs came of \"%s\", which has %d", n, m->facts.name,
                       m->facts.n_outputs);
    for (int i = 0; i < n; i++) {
        struct ndarray a;
        const struct frame_tensor *t = &tensors[i];
        int64_t dims[FRAME_TENSOR_DIMS];
        memcpy(dims, t->dims, sizeof dims);
        bool good =
            t->type == (uint32_t)m->facts.outputs[i].type &&
            ndarray_shape(&a, (enum ndarray_type)t->type, (int)t->n_dims, dims, NULL) == 0 &&
            ndarray_bytes(&a) == t->bytes &&
            (!m->batches || (t->n_dims > 0 && t->dims[0] == samples));
        if (!good)
            return err_set(e, HP_EPROTO, "output \"%s\" of \"%s\" is not what the model makes",
                           m->facts.outputs[i].name, m->facts.name);
    }
    return 0;
}

int pool_results_give(struct coord *c, struct pool_model *m, const struct pool_batch *b,
                      const struct frame_tensor *tensors, int n, int64_t padded, double compute_s,
                      struct infer_times *times, struct err *e)
{
    int rc = tensors_check(m, tensors, n, b->n_parts, e);
    m->counts.batches += rc == 0;
    for (int k = 0; rc == 0 && k < b->n_parts; k++) {
        struct pool_request *r = pool_request_of(c->pools, b->parts[k].request);
        if (!r)
            continue; /* nobody waits for it any more */
        if ((rc = sample_take(r, b->parts[k].sample, tensors, k, padded, e)) < 0)
            break;
        m->counts.batched++;
        r->compute_ns += (int64_t)(compute_s * 1e9 / r->n_samples);
        if (--r->left == 0)
            request_answer(c, r, times);
    }
    return rc;
}

void pool_batch_end(struct coord *c, struct pool_plan *p, struct pool_batch *b,
                    const struct err *why)
{
    struct pool_part *parts = b->parts;
    int n = b->n_parts;
    b->parts = NULL;
    pool_batch_free(p, b);
    for (int k = 0; why && k < n; k++)
        pool_request_fail(c, pool_request_of(c->pools, parts[k].request), why);
    free(parts);
}
