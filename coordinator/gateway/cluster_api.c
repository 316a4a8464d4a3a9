#include "coordinator/gateway/cluster_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/openai.h"

static void error_reply(struct http_exchange *x, const struct err *e)
{
    openai_error(x, openai_status_of(e->code), e->text, NULL, status_word(e->code));
}

void cluster_document_reply(const struct requests *r, struct http_exchange *x,
                            enum request_document which, const char *name)
{
    struct buffer out = {0};
    struct err e = {0};
    int rc = r->document(r->ctx, which, name, &out, &e);
    http_header(x, "Cache-Control", "no-store");
    if (rc < 0)
        error_reply(x, &e);
    else
        http_reply(x, 200, "application/json", buffer_cstr(&out), out.size);
    buffer_free(&out);
}

/* ---- plans ---- */

/* A plan that is being made, and who waits for it. */
struct plan_asked {
    struct http_exchange *x; /* NULL: gone */
};

static void plan_client_gone(void *ctx)
{
    ((struct plan_asked *)ctx)->x = NULL;
}

/* That there is no plan is an answer, too. */
static void plan_missing_reply(struct http_exchange *x, const struct err *why)
{
    struct buffer out = {0};
    buffer_printf(&out, "{\"infeasible\":");
    json_write_text(&out, why->text);
    buffer_printf(&out, "}");
    openai_reply_json(x, 200, &out);
}

static void plan_made(void *ctx, const char *json, size_t n, const struct err *why)
{
    struct plan_asked *a = ctx;
    struct http_exchange *x = a->x;
    free(a);
    if (!x)
        return;
    http_header(x, "Cache-Control", "no-store");
    if (!why)
        http_reply(x, 200, "application/json", json, n);
    else if (why->code == HP_EINFEASIBLE)
        plan_missing_reply(x, why);
    else
        error_reply(x, why);
}

void cluster_plan_reply(const struct requests *r, struct http_exchange *x, const char *deployment)
{
    const char *without = http_query(x, "without");
    struct plan_asked *a = malloc(sizeof *a);
    struct err e = {0};
    struct request_what_if w = {deployment, without ? without : "", plan_made, a};
    int rc =
        !a ? err_no_memory(&e, "a plan")
        : strlen(w.without) > CLUSTER_API_WITHOUT_BYTES
            ? err_set(&e, HP_ELIMIT, "\"without\" has at most %d bytes", CLUSTER_API_WITHOUT_BYTES)
            : r->what_if(r->ctx, &w, &e);
    if (rc < 0) {
        free(a);
        error_reply(x, &e);
        return;
    }
    a->x = x;
    http_on_gone(x, plan_client_gone, a);
}
