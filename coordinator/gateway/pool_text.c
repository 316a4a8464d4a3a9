#include "coordinator/gateway/pool_text.h"

#include <stdlib.h>

#include "model/text_network.h"

struct pool_text_request {
    const struct pool_requests *pools;
    struct pool_text_ask ask; /* its texts are not looked at again */
    struct ndarray inputs[2]; /* ids and mask */
    int n_outputs;
    uint64_t id;
};

static void request_free(struct pool_text_request *r)
{
    for (int i = 0; i < 2; i++)
        ndarray_free(&r->inputs[i]);
    free(r);
}

static void on_answered(void *ctx, struct ndarray *outputs, const struct infer_times *times)
{
    struct pool_text_request *r = ctx;
    const struct pool_text_ask ask = r->ask;
    int n = r->n_outputs;
    (void)times;
    request_free(r);
    ask.answered(ask.ctx, outputs);
    for (int i = 0; i < n; i++)
        ndarray_free(&outputs[i]);
    free(outputs);
}

static void on_failed(void *ctx, const struct err *why)
{
    struct pool_text_request *r = ctx;
    const struct pool_text_ask ask = r->ask;
    request_free(r);
    ask.failed(ask.ctx, why);
}

static int inputs_make(struct pool_text_request *r, struct err *e)
{
    const int64_t dims[] = {1, (int64_t)r->ask.n};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = ndarray_make(&r->inputs[i], ND_I64, 2, dims, UINT64_MAX, e);
    for (size_t i = 0; rc == 0 && i < r->ask.n; i++) {
        ((int64_t *)r->inputs[0].data)[i] = r->ask.ids[i];
        ((int64_t *)r->inputs[1].data)[i] = 1;
    }
    return rc;
}

int pool_text_open(const struct pool_requests *pools, const struct pool_text_ask *ask,
                   struct pool_text_request **out, uint32_t *retry_after_s, struct err *e)
{
    struct pool_text now;
    int rc = pools->text(pools->ctx, ask->client, ask->name, &now, e);
    if (rc == 0 && now.model != ask->model)
        rc = err_set(e, HP_ESTALE, "\"%s\" was applied anew in this moment: try again", ask->name);
    struct pool_text_request *r = rc < 0 ? NULL : calloc(1, sizeof *r);
    if (!r)
        return rc < 0 ? rc : err_no_memory(e, "a text");
    r->pools = pools;
    r->ask = *ask;
    r->n_outputs = now.rows ? TEXT_OUTPUTS_ROW : TEXT_OUTPUTS_SCORES;
    const struct pool_call call = {.client = ask->client,
                                   .model = ask->name,
                                   .inputs = r->inputs,
                                   .waited_ns = ask->waited_ns,
                                   .ctx = r,
                                   .answered = on_answered,
                                   .failed = on_failed};
    rc = inputs_make(r, e);
    rc = rc < 0 ? rc : pools->infer(pools->ctx, &call, &r->id, retry_after_s, e);
    if (rc < 0)
        request_free(r);
    else
        *out = r;
    return rc;
}

void pool_text_cancel(struct pool_text_request **self)
{
    struct pool_text_request *r = *self;
    *self = NULL;
    if (!r)
        return;
    r->pools->cancel(r->pools->ctx, r->id);
    request_free(r);
}
