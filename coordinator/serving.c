#include "coordinator/serving.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/admission.h"
#include "coordinator/api_keys.h"
#include "coordinator/documents.h"
#include "coordinator/effects.h"
#include "coordinator/metrics.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement_what_if.h"
#include "coordinator/shares.h"
#include "coordinator/stream_records.h"
#include "coordinator/streams.h"
#include "coordinator/works.h"

/* One that is broken is tried again at a time that is known; until others serve nobody knows. */
static uint32_t retry_after_s(const struct coord *c, const struct deployment *d)
{
    if (d->state != DEPLOYMENT_BROKEN || d->until_ns <= coord_now(c))
        return shares_retry_after_s(d);
    return (uint32_t)((d->until_ns - coord_now(c)) / 1000000000u) + 1;
}

/* Whole seconds, at least one. */
static uint32_t seconds_up(double s)
{
    return s > 1 ? (uint32_t)ceil(s) : 1;
}

/* The same where the client's key has to wait longer. */
static uint32_t client_retry_after_s(const struct coord *c, const struct deployment *d,
                                     const char *client)
{
    uint32_t own = retry_after_s(c, d), keys = seconds_up(api_keys_wait_s(c, client));
    return keys > own ? keys : own;
}

static void request_model_fill(const struct coord *c, const struct deployment *d,
                               const char *client, struct request_model *out)
{
    *out = (struct request_model){
        .name = d->name,
        .state = deployment_states[d->state].word,
        .state_text = d->why.text,
        .serving = deployment_serves(d) &&
                   d->model->open, /* after a start its files are still being opened */
        .waits = !deployment_serves(d) && deployment_takes(d) && d->model->open,
        .created_s = d->created_s,
        .context = d->context,
        .slots = (uint32_t)d->max_sequences,
        .busy = (uint32_t)d->n_active,
        .retry_after_s = client_retry_after_s(c, d, client),
        .vocabulary = d->model->open ? d->model->facts.vocabulary : 0,
        .embeds = d->model->open && d->model->facts.pooling != 0,
        .content = d->model->id,
        .model = d->model->open ? d->model->facts.handle : NULL,
    };
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct request_model *)a)->name, ((const struct request_model *)b)->name);
}

/* What is ending is there no more. */
static bool deployment_is_listed(const struct coord *c, const struct deployment *d,
                                 const char *client)
{
    struct err ignored;
    return d->state < DEPLOYMENT_STOPPING && deployment_has_face(d) &&
           api_keys_may_use(c, client, d->name, &ignored) == 0;
}

static int requests_models(void *ctx, const char *client, struct request_model *out, int max)
{
    struct coord *c = ctx;
    int n = 0;
    for (size_t i = 0; i < c->n_deployments && n < max; i++)
        if (deployment_is_listed(c, c->deployments[i], client))
            request_model_fill(c, c->deployments[i], client, &out[n++]);
    qsort(out, (size_t)n, sizeof *out, by_name);
    return n;
}

enum { NAMES_SHOWN = 4 }; /* in an error */

static int requests_find(void *ctx, const char *client, const char *name, struct request_model *out,
                         struct err *e)
{
    struct coord *c = ctx;
    int rc = api_keys_may_use(c, client, name, e);
    struct deployment *d = rc < 0 ? NULL : deployment_find(c, name);
    if (rc < 0)
        return rc;
    if (d && deployment_has_face(d)) {
        request_model_fill(c, d, client, out);
        return 0;
    }
    char names[NAMES_SHOWN * (DEPLOYMENT_NAME + 4)] = "", more[40] = "";
    size_t used = 0, n = 0;
    for (size_t i = 0; i < c->n_deployments; i++) {
        if (!deployment_is_listed(c, c->deployments[i], client))
            continue;
        if (n++ < NAMES_SHOWN)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s\"%s\"",
                                     n > 1 ? ", " : "", c->deployments[i]->name);
    }
    if (n == 0)
        return err_set(e, HP_ENOENT, "no model \"%.100s\" is deployed here; there is none", name);
    if (n > NAMES_SHOWN)
        snprintf(more, sizeof more, " and %zu more (/v1/models)", n - NAMES_SHOWN);
    return err_set(e, HP_ENOENT, "no model \"%.100s\" is deployed here; there is %s%s", name, names,
                   more);
}

/* Something is to be taken. */
static void shell_wake(const struct coord *c)
{
    if (c->config.wake)
        c->config.wake(c->config.wake_ctx);
}

static int requests_open(void *ctx, const struct request_spec *r, uint64_t *id, struct err *e)
{
    coord_woke(ctx);
    int rc = admission_request_open(ctx, r, id, e);
    shell_wake(ctx);
    return rc;
}

static void requests_cancel(void *ctx, uint64_t id, bool satisfied, struct request_usage *usage)
{
    coord_woke(ctx);
    admission_request_cancel(ctx, id, satisfied, usage);
    shell_wake(ctx);
}

static bool requests_usage(void *ctx, uint64_t id, struct request_usage *out)
{
    const struct sequence *s = sequence_of_request(ctx, id);
    if (s)
        *out = sequence_usage(ctx, s);
    return s;
}

static int requests_begin(void *ctx, const char *client, uint32_t *retry_after_s, struct err *e)
{
    double wait_s;
    coord_woke(ctx);
    int rc = api_keys_check(ctx, client, 1, 1, &wait_s, e);
    *retry_after_s = seconds_up(wait_s);
    if (rc == 0)
        api_keys_count_request(ctx, client);
    return rc;
}

static bool requests_limits(void *ctx, const char *client, struct request_limits *out)
{
    return api_keys_view(ctx, client, out);
}

static int requests_api_keys(void *ctx)
{
    return (int)((struct coord *)ctx)->n_api_keys;
}

static bool requests_api_key_allowed(void *ctx, const char *key, char name[REQUEST_KEY_NAME_BYTES])
{
    const struct api_key *k = api_keys_find(ctx, key);
    if (k && name)
        snprintf(name, REQUEST_KEY_NAME_BYTES, "%s", k->name);
    return k != NULL;
}

static void requests_metrics(void *ctx,
                             void (*row)(void *, const char *, const char *, const char *,
                                         const char *, double),
                             void *out)
{
    metrics_rows(ctx, row, out);
}

static int requests_document(void *ctx, enum request_document which, const char *name,
                             struct buffer *out, struct err *e)
{
    coord_woke(ctx);
    return document_write(ctx, which, name, out, e);
}

static int requests_what_if(void *ctx, const struct request_what_if *w, struct err *e)
{
    coord_woke(ctx);
    int rc = placement_what_if(ctx, w, e);
    shell_wake(ctx);
    return rc;
}

static int requests_work(void *ctx, const struct model *model, struct coord_work *w, struct err *e)
{
    struct coord *c = ctx;
    coord_woke(c);
    struct model_slot *uses = NULL;
    for (size_t i = 0; model && i < c->n_models; i++)
        if (c->models[i]->open && c->models[i]->facts.handle == model)
            uses = c->models[i];
    if (model && !uses)
        return err_set(e, HP_ENOENT, "this model is not open any more");
    int rc = works_add(c, w, uses, e);
    shell_wake(c);
    return rc;
}

static void requests_streams(void *ctx, void (*each)(void *out, const struct request_before *s),
                             void *out)
{
    streams_each(ctx, each, out);
}

static uint64_t requests_attach(void *ctx, uint64_t stream,
                                const struct request_callbacks *callbacks)
{
    uint64_t id = streams_attach(ctx, stream, callbacks);
    shell_wake(ctx);
    return id;
}

static void requests_forget(void *ctx, uint64_t stream)
{
    stream_record_forget(ctx, stream);
    shell_wake(ctx);
}

void serving_requests(struct coord *core, struct requests *out)
{
    *out = (struct requests){.ctx = core,
                             .models = requests_models,
                             .find = requests_find,
                             .begin = requests_begin,
                             .limits = requests_limits,
                             .open = requests_open,
                             .cancel = requests_cancel,
                             .usage = requests_usage,
                             .api_keys = requests_api_keys,
                             .api_key_allowed = requests_api_key_allowed,
                             .metrics = requests_metrics,
                             .document = requests_document,
                             .what_if = requests_what_if,
                             .work = requests_work,
                             .streams = requests_streams,
                             .attach = requests_attach,
                             .forget = requests_forget};
}
