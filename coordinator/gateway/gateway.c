#include "coordinator/gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/gateway/http.h"
#include "coordinator/gateway/metrics.h"
#include "coordinator/gateway/openai.h"

struct gateway {
    struct http_server *http;
    const struct requests *requests;
    bool beyond_loopback;
};

/* ---- routes: one row each ---------------------------------------------------------------------------------------------------------- */

static void get_health(struct gateway *g, struct http_exchange *x, const char *rest, const char *body, size_t n)
{
    (void)g, (void)rest, (void)body, (void)n;
    static const char text[] = "{\"status\": \"ok\"}";
    http_reply(x, 200, "application/json", text, sizeof text - 1, 0);
}

static void get_metrics(struct gateway *g, struct http_exchange *x, const char *rest, const char *body, size_t n)
{
    (void)rest, (void)body, (void)n;
    metrics_reply(g->requests, x);
}

static void get_models(struct gateway *g, struct http_exchange *x, const char *rest, const char *body, size_t n)
{
    (void)body, (void)n;
    openai_models(g->requests, x, *rest ? rest : NULL);
}

static void post_chat(struct gateway *g, struct http_exchange *x, const char *rest, const char *body, size_t n)
{
    (void)rest;
    openai_complete(g->requests, x, true, body, n);
}

static void post_completion(struct gateway *g, struct http_exchange *x, const char *rest, const char *body, size_t n)
{
    (void)rest;
    openai_complete(g->requests, x, false, body, n);
}

static const struct route {
    const char *method, *path; /* a path that ends in "/" serves what lies below it */
    void (*handle)(struct gateway *g, struct http_exchange *x, const char *rest, const char *body, size_t n);
    bool open; /* needs no key */
} routes[] = {
    {"GET", "/health", get_health, true},
    {"GET", "/metrics", get_metrics, false},
    {"GET", "/v1/models", get_models, false},
    {"GET", "/v1/models/", get_models, false},
    {"POST", "/v1/chat/completions", post_chat, false},
    {"POST", "/v1/completions", post_completion, false},
};

/* What follows the route's path, or NULL when it is another. */
static const char *match(const struct route *route, const char *path)
{
    size_t n = strlen(route->path);
    if (strncmp(route->path, path, n) != 0)
        return NULL;
    return (route->path[n - 1] == '/') == (path[n] != '\0') ? path + n : NULL;
}

static bool is_allowed(struct gateway *g, const struct route *route, const char *bearer)
{
    if (route->open || !g->beyond_loopback)
        return true;
    return bearer && g->requests->api_key_allowed(g->requests->ctx, bearer);
}

static void on_request(void *ctx, struct http_exchange *x, const char *method, const char *path, const char *bearer, const char *body, size_t n)
{
    struct gateway *g = ctx;
    const char *allowed = NULL;
    char text[256];
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const char *rest = match(&routes[i], path);
        if (!rest)
            continue;
        if (strcmp(method, routes[i].method) != 0 && !(strcmp(method, "HEAD") == 0 && strcmp(routes[i].method, "GET") == 0)) {
            allowed = routes[i].method;
            continue;
        }
        if (is_allowed(g, &routes[i], bearer))
            routes[i].handle(g, x, rest, body, n);
        else
            openai_error(x, 401, bearer ? "this API key is not known here" : "an API key is needed: Authorization: Bearer KEY", NULL, "invalid_api_key");
        return;
    }
    if (allowed)
        snprintf(text, sizeof text, "%.120s takes %s, not %.16s", path, allowed, method);
    else
        snprintf(text, sizeof text, "there is nothing at %.160s", path);
    openai_error(x, allowed ? 405 : 404, text, NULL, NULL);
}

static void on_refused(void *ctx, struct http_exchange *x, int http_status, const char *why)
{
    (void)ctx;
    openai_error(x, http_status, why, NULL, "limit");
}

/* ---- starting and stopping ------------------------------------------------------------------------------------------------------------ */

/* "HOST:PORT" or "[v6]:PORT" */
static int split_address(const char *listen, char host[256], int *port, struct err *e)
{
    const char *colon = strrchr(listen, ':');
    char *end;
    long p = colon ? strtol(colon + 1, &end, 10) : -1;
    size_t n = colon ? (size_t)(colon - listen) : 0;
    bool bracketed = n > 2 && listen[0] == '[' && listen[n - 1] == ']';
    if (!colon || colon[1] == '\0' || *end || p < 0 || p > 65535 || n == 0 || n >= 256) {
        err_set(e, HP_EUSAGE, "\"%s\" is not an address HOST:PORT", listen);
        return err_hint(e, "for example 127.0.0.1:8080, or port 0 for any free one");
    }
    snprintf(host, 256, "%.*s", (int)(bracketed ? n - 2 : n), listen + bracketed);
    *port = (int)p;
    return 0;
}

static bool is_loopback(const char *host) { return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0; }

int gateway_start(uv_loop_t *loop, const char *listen, const struct requests *requests, struct gateway **out, struct err *e)
{
    char host[256];
    int port = 0;
    int rc = split_address(listen, host, &port, e);
    if (rc < 0)
        return rc;
    if (!is_loopback(host) && requests->api_keys(requests->ctx) == 0) {
        err_set(e, HP_EDENIED, "the HTTP API does not listen beyond loopback (%s) without API keys", host);
        return err_hint(e, "make one with `hpctl key create`, or listen on 127.0.0.1");
    }
    struct gateway *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, HP_ENOMEM, "out of memory for the gateway");
    g->requests = requests;
    g->beyond_loopback = !is_loopback(host);
    struct http_handler handler = {g, on_request, on_refused};
    if ((rc = http_start(loop, host, port, &handler, &g->http, e)) < 0) {
        free(g);
        return rc;
    }
    log_info("gateway", "listening", "http=%s:%d keys_needed=%s", host, http_port(g->http), g->beyond_loopback ? "yes" : "no");
    *out = g;
    return 0;
}

int gateway_port(const struct gateway *g) { return http_port(g->http); }

void gateway_stop(struct gateway **g)
{
    if (!*g)
        return;
    http_stop(&(*g)->http);
    free(*g);
    *g = NULL;
}
