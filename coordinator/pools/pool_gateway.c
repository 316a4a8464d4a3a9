/* What a gateway asks of pools. */
#include "coordinator/api_keys.h"
#include "coordinator/pools/pool_admission.h"
#include "coordinator/pools/pool_texts.h"
#include "coordinator/pools/pools.h"

/* Those of a spec that is what a client gets who asks for them by name. */
static int spec_models(const struct coord *c, const char *client, const struct pool_spec *s,
                       const struct infer_model **out, int n)
{
    struct err ignored;
    int model;
    for (int i = 0; s && i < s->workload.n_models && n < POOL_MAX_MODELS; i++) {
        const char *name = s->workload.models[i].name;
        if (pool_spec_of(c->pools, name, &model) == s &&
            api_keys_may_use(c, client, name, &ignored) == 0)
            out[n++] = &s->models[i].facts;
    }
    return n;
}

static int requests_models(void *ctx, const char *client, const struct infer_model **out)
{
    const struct coord *c = ctx;
    const struct pool_spec *serves = c->pools && c->pools->current ? c->pools->current->spec : NULL,
                           *applied = c->pools ? c->pools->spec : NULL;
    int n = spec_models(c, client, serves, out, 0);
    return applied == serves ? n : spec_models(c, client, applied, out, n);
}

static int requests_may_use(void *ctx, const char *client, const char *model, struct err *e)
{
    return api_keys_may_use(ctx, client, model, e);
}

static int requests_ready(void *ctx, const struct infer_model *m, struct err *e)
{
    const struct coord *c = ctx;
    int model;
    const struct pool_spec *s = c->pools ? pool_spec_of(c->pools, m->name, &model) : NULL;
    return s ? pool_model_check(c->pools, s, model, e)
             : err_set(e, HP_EBUSY, "\"%.200s\" is not there any more", m->name);
}

static int requests_text(void *ctx, const char *client, const char *name, struct pool_text *out,
                         struct err *e)
{
    return pool_text_find(ctx, client, name, out, e);
}

static struct pool_statistics requests_statistics(void *ctx, const struct infer_model *m)
{
    const struct coord *c = ctx;
    int model;
    const struct pool_spec *s = pool_spec_of(c->pools, m->name, &model);
    if (!s)
        return (struct pool_statistics){0};
    const struct pool_counts *n = &s->models[model].counts;
    return (struct pool_statistics){.success = n->on_time + n->late,
                                    .fail = n->dropped + n->failed,
                                    .samples = n->batched,
                                    .batches = n->batches,
                                    .total_ns = n->total_ns,
                                    .queue_ns = n->queue_ns,
                                    .compute_ns = n->compute_ns,
                                    .last_unix_s = n->last_unix_s};
}

static int requests_infer(void *ctx, const struct pool_call *call, uint64_t *id,
                          uint32_t *retry_after_s, struct err *e)
{
    struct coord *c = ctx;
    int rc = pool_request_open(c, call, id, retry_after_s, e);
    if (rc == 0 && c->config.wake)
        c->config.wake(c->config.wake_ctx);
    return rc;
}

static void requests_cancel(void *ctx, uint64_t id)
{
    pool_request_cancel(ctx, id);
}

void pools_requests(struct coord *c, struct pool_requests *out)
{
    *out = (struct pool_requests){.ctx = c,
                                  .models = requests_models,
                                  .may_use = requests_may_use,
                                  .ready = requests_ready,
                                  .text = requests_text,
                                  .statistics = requests_statistics,
                                  .infer = requests_infer,
                                  .cancel = requests_cancel};
}
