#include "coordinator/gateway/pool_infer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/env.h"

struct pool_infer {
    struct piece piece;
    struct pool_infer_desk *desk;
    const struct pool_infer_caller *how;
    void *caller;     /* NULL: it is gone */
    atomic_bool gone; /* the same, for a lane */
    uint64_t came_ns;
    int64_t left_ns;    /* of the caller's deadline, when it came */
    struct arena arena; /* of the model's copy */
    struct infer_model model;
    const char *client;
    struct buffer body, answer;
    size_t body_bytes, json_bytes, answer_json_bytes;
    struct infer_request request;
    struct ndarray *outputs; /* [model.n_outputs] */
    uint64_t id;             /* in the pools; 0: it is not there */
    int status;
    struct err error;
};

/* ---- the model, as it was when the request came ---- */

static bool tensors_copy(struct arena *a, const struct infer_tensor *from, int n,
                         const struct infer_tensor **out)
{
    struct infer_tensor *copy = arena_memdup(a, from, (size_t)n * sizeof *from);
    for (int i = 0; copy && i < n; i++)
        copy[i].name = arena_strdup(a, from[i].name);
    *out = copy;
    return copy && !a->out_of_memory;
}

static bool model_copy(struct pool_infer *p, const struct infer_model *m, const char *client)
{
    p->model = *m;
    p->model.name = arena_strdup(&p->arena, m->name);
    p->client = arena_strdup(&p->arena, client);
    return tensors_copy(&p->arena, m->inputs, m->n_inputs, &p->model.inputs) &&
           tensors_copy(&p->arena, m->outputs, m->n_outputs, &p->model.outputs);
}

/* ---- the end ---- */

static void infer_free(struct pool_infer *p)
{
    p->desk->open--;
    p->desk->bytes -= p->body_bytes;
    for (int i = 0; p->outputs && i < p->model.n_outputs; i++)
        ndarray_free(&p->outputs[i]);
    free(p->outputs);
    infer_request_free(&p->request);
    buffer_free(&p->body);
    buffer_free(&p->answer);
    arena_free(&p->arena);
    free(p);
}

static void infer_fail_after(struct pool_infer *p, const struct err *why, uint32_t retry_after_s)
{
    if (p->caller)
        p->how->fail(p->caller, why, retry_after_s);
    infer_free(p);
}

static void infer_fail(struct pool_infer *p, const struct err *why)
{
    infer_fail_after(p, why, 1);
}

/* ---- the answer ---- */

static void answer_write(struct piece *piece)
{
    struct pool_infer *p = (struct pool_infer *)piece;
    p->answer_json_bytes = p->how->write(&p->model, &p->request, p->outputs, &p->answer);
}

static void answer_written(struct piece *piece, const struct err *why)
{
    struct pool_infer *p = (struct pool_infer *)piece;
    if (why) {
        infer_fail(p, why);
        return;
    }
    if (p->caller)
        p->how->answer(p->caller, &p->answer, p->answer_json_bytes);
    infer_free(p);
}

/* Small pieces at once, large ones in a lane. */
static void piece_do(struct pool_infer *p, size_t bytes, void (*run)(struct piece *),
                     void (*done)(struct piece *, const struct err *))
{
    struct err e = {0};
    p->piece.run = run;
    p->piece.done = done;
    if (bytes < LANES_LARGE_BYTES) {
        run(&p->piece);
        done(&p->piece, NULL);
    } else if (lanes_add(p->desk->lanes, &p->piece, bytes, &e) < 0) {
        done(&p->piece, &e);
    }
}

/* False: no memory for times that were asked for. */
static bool times_keep(struct infer_request *r, const struct infer_times *times)
{
    if (!r->timings)
        return true;
    r->times = malloc(sizeof *r->times);
    if (r->times)
        *r->times = *times;
    return r->times != NULL;
}

static void on_answered(void *ctx, struct ndarray *outputs, const struct infer_times *times)
{
    struct pool_infer *p = ctx;
    struct err e = {0};
    size_t bytes = 0;
    p->id = 0;
    p->outputs = outputs;
    if (!times_keep(&p->request, times)) {
        err_no_memory(&e, "the times of a request");
        infer_fail(p, &e);
        return;
    }
    for (int i = 0; i < p->model.n_outputs; i++)
        bytes += ndarray_bytes(&outputs[i]);
    piece_do(p, bytes, answer_write, answer_written);
}

static void on_failed(void *ctx, const struct err *why)
{
    struct pool_infer *p = ctx;
    p->id = 0;
    infer_fail(p, why);
}

/* ---- the request ---- */

static void body_read(struct piece *piece)
{
    struct pool_infer *p = (struct pool_infer *)piece;
    if (atomic_load(&p->gone)) {
        p->status = err_set(&p->error, HP_ECANCELED, "the client is gone");
        return;
    }
    p->status = p->how->read(&p->model, &p->body, p->json_bytes, &p->request, &p->error);
}

/* The request's own, or its caller's, if that one is sooner; 0: none. */
static uint64_t timeout_ns(const struct pool_infer *p)
{
    uint64_t own = p->request.timeout_us < UINT64_MAX / 1000 ? p->request.timeout_us * 1000 : 0;
    uint64_t left = p->left_ns > 0 ? (uint64_t)p->left_ns : 1;
    return p->left_ns == INT64_MAX || (own > 0 && own < left) ? own : left;
}

static void request_put(struct pool_infer *p)
{
    struct pool_call call = {.client = p->client,
                             .model = p->model.name,
                             .facts = &p->model,
                             .inputs = p->request.inputs,
                             .timeout_ns = timeout_ns(p),
                             .waited_ns = env_now_ns(&env_real) - p->came_ns,
                             .ctx = p,
                             .answered = on_answered,
                             .failed = on_failed};
    struct err e = {0};
    uint32_t retry_after_s = 1;
    if (p->desk->pools->infer(p->desk->pools->ctx, &call, &p->id, &retry_after_s, &e) < 0)
        infer_fail_after(p, &e, retry_after_s);
}

static void body_was_read(struct piece *piece, const struct err *why)
{
    struct pool_infer *p = (struct pool_infer *)piece;
    if (why || p->status < 0)
        infer_fail(p, why ? why : &p->error);
    else if (!p->caller)
        infer_free(p);
    else
        request_put(p);
}

void pool_infer_leave(struct pool_infer *p)
{
    p->caller = NULL;
    atomic_store(&p->gone, true);
    if (!p->id)
        return; /* it is being read or written */
    p->desk->pools->cancel(p->desk->pools->ctx, p->id);
    infer_free(p);
}

/* Bodies are held until they are answered. */
static bool desk_has_room(const struct pool_infer_desk *d, size_t body_bytes)
{
    return d->open < POOL_INFER_MOST &&
           (d->bytes == 0 || d->bytes + body_bytes <= POOL_INFER_BYTES);
}

struct pool_infer *pool_infer_open(struct pool_infer_desk *desk,
                                   const struct pool_infer_caller *how, void *caller,
                                   const struct infer_model *m, const char *client,
                                   struct buffer *body, size_t json_bytes, int64_t left_ns)
{
    struct pool_infer *p = desk_has_room(desk, body->size) ? calloc(1, sizeof *p) : NULL;
    struct err e = {0};
    if (!p || !model_copy(p, m, client)) {
        if (p)
            arena_free(&p->arena);
        free(p);
        buffer_free(body);
        err_set(&e, HP_EBUSY, "too many requests are under way: try again later");
        how->fail(caller, &e, 1);
        return NULL;
    }
    p->desk = desk;
    desk->open++;
    p->how = how;
    p->caller = caller;
    p->left_ns = left_ns;
    p->json_bytes = json_bytes;
    p->came_ns = env_now_ns(&env_real);
    p->body = *body;
    p->body_bytes = body->size;
    desk->bytes += body->size;
    *body = (struct buffer){0};
    return p;
}

void pool_infer_run(struct pool_infer *p)
{
    piece_do(p, p->body.size, body_read, body_was_read);
}

/* ---- callers by HTTP ---- */

static void http_answer(void *caller, struct buffer *answer, size_t json_bytes)
{
    kserve_answer(caller, answer, json_bytes);
}

static void http_fail(void *caller, const struct err *why, uint32_t retry_after_s)
{
    kserve_fail(caller, why, retry_after_s);
}

static void on_gone(void *ctx)
{
    pool_infer_leave(ctx);
}

static void backend_infer(void *ctx, struct http_exchange *x, const struct infer_model *m,
                          const char *client, size_t json_bytes)
{
    static const struct pool_infer_caller how = {infer_request_read, infer_answer_write,
                                                 http_answer, http_fail};
    struct buffer body = http_take_body(x);
    struct pool_infer *p = pool_infer_open(ctx, &how, x, m, client, &body, json_bytes, INT64_MAX);
    if (!p)
        return;
    http_on_gone(x, on_gone, p);
    pool_infer_run(p);
}

/* ---- the table ---- */

static int backend_models(void *ctx, const char *client, const struct infer_model **out)
{
    const struct pool_infer_desk *desk = ctx;
    return desk->pools ? desk->pools->models(desk->pools->ctx, client, out) : 0;
}

static int backend_may_use(void *ctx, const char *client, const char *model, struct err *e)
{
    const struct pool_infer_desk *desk = ctx;
    return desk->pools ? desk->pools->may_use(desk->pools->ctx, client, model, e) : 0;
}

static int backend_ready(void *ctx, const struct infer_model *m, struct err *e)
{
    const struct pool_infer_desk *desk = ctx;
    return desk->pools->ready(desk->pools->ctx, m, e);
}

static struct kserve_statistics backend_statistics(void *ctx, const struct infer_model *m)
{
    const struct pool_infer_desk *desk = ctx;
    const struct pool_statistics s = desk->pools->statistics(desk->pools->ctx, m);
    return (struct kserve_statistics){.success = {s.success, s.total_ns},
                                      .fail = {s.fail, 0},
                                      .queue = {s.success, s.queue_ns},
                                      .compute = {s.success, s.compute_ns},
                                      .inferences = s.samples,
                                      .executions = s.batches,
                                      .last_ms = s.last_unix_s * 1000};
}

struct kserve_backend pool_infer_backend(struct pool_infer_desk *desk)
{
    return (struct kserve_backend){.ctx = desk,
                                   .models = backend_models,
                                   .may_use = backend_may_use,
                                   .ready = backend_ready,
                                   .statistics = backend_statistics,
                                   .infer = backend_infer};
}
