#include "coordinator/pools/pool_admission.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "coordinator/api_keys.h"
#include "coordinator/pools/pool_lengths.h"
#include "coordinator/pools/pool_load.h"
#include "coordinator/pools/pool_times.h"

/* ---- requests ---- */

/* How many requests of one sample it is; the sizes of all inputs are the model's. */
static int samples_count(const struct pool_model *m, const struct pool_call *call, uint32_t *n,
                         struct err *e)
{
    *n = 1;
    if (!m->batches)
        return 0;
    int64_t first = call->inputs[0].dims[0];
    for (int i = 0; i < m->facts.n_inputs; i++)
        if (call->inputs[i].dims[0] != first)
            return err_set(e, HP_EINVAL, "inputs of %lld and of %lld samples", (long long)first,
                           (long long)call->inputs[i].dims[0]);
    if (first < 1 || first > POOL_MAX_SAMPLES)
        return err_set(e, HP_EINVAL, "a request has 1 to %d samples, this one %lld",
                       POOL_MAX_SAMPLES, (long long)first);
    *n = (uint32_t)first;
    return 0;
}

int pool_model_check(const struct pool_service *s, const struct pool_spec *spec, int model,
                     struct err *e)
{
    if (!s->current)
        return err_set(e, HP_EBUSY, "the pools are being prepared%s%s", s->failure.code ? ": " : "",
                       s->failure.code ? s->failure.text : "");
    if (spec != s->current->spec)
        return err_set(e, HP_EBUSY, "\"%.200s\" is being prepared", spec->models[model].facts.name);
    return pool_plan_serves(s->current, model)
               ? 0
               : err_set(e, HP_EBUSY, "no plan serves \"%s\" with the agents that there are",
                         s->current->topology.models[model].name);
}

/* Whoever read a request may have done so by what was served before, or by what will be. */
static int facts_check(const struct pool_model *m, const struct pool_call *call, struct err *e)
{
    if (!call->facts || infer_model_is_like(&m->facts, call->facts))
        return 0;
    return err_set(e, HP_EBUSY,
                   "\"%.200s\" is another model since this request came: look at its tensors, and "
                   "ask again",
                   m->facts.name);
}

static int request_arrive(struct pool_plan *p, const struct pool_request *r, int64_t now_ns,
                          struct err *e)
{
    for (uint32_t i = 0; i < r->n_samples; i++)
        if (dispatch_arrive_by(p->dispatch, r->line, pool_tag_of(r, i), now_ns, r->due_ns) < 0)
            return err_set(e, HP_EBUSY, "too many requests wait");
    p->wake_ns[r->line] = now_ns;
    return 0;
}

/* The limits of the client's key, as it stands now. */
static int key_check(const struct coord *c, const struct pool_call *call, uint64_t tokens,
                     uint32_t *retry_after_s, struct err *e)
{
    double wait_s = 0;
    int rc = api_keys_check(c, call->client, 0, tokens, &wait_s, e);
    if (rc < 0)
        *retry_after_s = wait_s > 1 ? (uint32_t)ceil(wait_s) : 1;
    return rc;
}

/* What a call asks for, once it has been found to be possible. */
struct pool_asked {
    struct pool_spec *spec;
    int model;
    uint32_t samples;
    int64_t length; /* of its sequences; 0: the model's inputs have one size */
    uint64_t tokens;
};

static int call_check(const struct coord *c, const struct pool_call *call, struct pool_asked *out,
                      uint32_t *retry_after_s, struct err *e)
{
    struct pool_asked a = {.samples = 1};
    int rc = api_keys_may_use(c, call->client, call->model, e);
    if (rc < 0)
        return rc;
    a.spec = pool_spec_of(c->pools, call->model, &a.model);
    if (!a.spec)
        return err_set(e, HP_ENOENT, "there is no model \"%.200s\"", call->model);
    const struct pool_model *m = &a.spec->models[a.model];
    rc = pool_model_check(c->pools, a.spec, a.model, e);
    rc = rc < 0 ? rc : facts_check(m, call, e);
    rc = rc < 0 ? rc : samples_count(m, call, &a.samples, e);
    rc = rc < 0 ? rc : pool_length_of(m, call->inputs, &a.length, e);
    a.tokens = (uint64_t)a.samples * (uint64_t)(a.length ? a.length : 1);
    rc = rc < 0 ? rc : key_check(c, call, a.tokens, retry_after_s, e);
    *out = a;
    return rc;
}

/* Among the requests of the service. NULL: no memory. */
static struct pool_request *request_add(struct coord *c, const struct pool_call *call,
                                        const struct pool_asked *a, int64_t now_ns)
{
    struct pool_service *s = c->pools;
    struct pool_plan *p = s->current;
    struct pool_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    int64_t slo_ns = p->topology.models[a->model].slo_ns, timeout_ns = (int64_t)call->timeout_ns;
    int64_t came = call->waited_ns < (uint64_t)now_ns ? now_ns - (int64_t)call->waited_ns : 0;
    bool own = call->timeout_ns && call->timeout_ns < (uint64_t)slo_ns;
    int size = pool_length_size(&a->spec->models[a->model], a->length);
    *r = (struct pool_request){.id = c->next_request++,
                               .spec = pool_spec_use(a->spec),
                               .model = a->model,
                               .call = *call,
                               .line = pool_line_find(p, a->model, size),
                               .length = a->length,
                               .tokens = a->tokens,
                               .n_samples = a->samples,
                               .left = a->samples,
                               .arrived_ns = came,
                               .deadline_ns = came + (own ? timeout_ns : slo_ns)};
    r->due_ns = pool_times_due(p, r->line, came, r->deadline_ns);
    snprintf(r->client, sizeof r->client, "%s", call->client ? call->client : "");
    HASH_ADD(hh, s->requests, id, sizeof r->id, r);
    if (map_has_added(r))
        return r;
    pool_spec_release(&r->spec);
    free(r);
    return NULL;
}

int pool_request_open(struct coord *c, const struct pool_call *call, uint64_t *id,
                      uint32_t *retry_after_s, struct err *e)
{
    struct pool_service *s = c->pools;
    struct pool_asked asked = {0};
    int rc = call_check(c, call, &asked, retry_after_s, e);
    if (rc < 0)
        return rc;
    int64_t now = (int64_t)coord_clock(c);
    struct pool_request *r = request_add(c, call, &asked, now);
    if (!r)
        return err_no_memory(e, "a request");
    if ((rc = request_arrive(s->current, r, now, e)) < 0) {
        pool_request_free(s, r); /* with those of its samples that wait already */
        return rc;
    }
    asked.spec->models[asked.model].counts.arrived++;
    pool_load_note(s->current, r->line, asked.samples);
    api_keys_count_tokens(c, r->client, r->tokens, 0);
    s->wake_ns = now;
    *id = r->id;
    return 0;
}

void pool_request_cancel(struct coord *c, uint64_t id)
{
    struct pool_request *r = c->pools ? pool_request_of(c->pools, id) : NULL;
    if (r)
        pool_request_free(c->pools, r);
}
