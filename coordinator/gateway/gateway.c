#include "coordinator/gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/env.h"
#include "common/host_address.h"
#include "common/log.h"
#include "coordinator/gateway/access.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/http.h"
#include "coordinator/gateway/listen_address.h"
#include "coordinator/gateway/metrics.h"
#include "coordinator/gateway/openai.h"
#include "coordinator/gateway/ready.h"
#include "coordinator/gateway/text_api.h"

enum {
    DRAIN_LOOK_MS = 20,
    DRAIN_FLUSH_MS = 1000,
    BODIES_AT_ONCE = 16,
    CONNECTIONS_PER_ADDRESS = 1024
};

struct gateway {
    struct http_server *http;
    uv_loop_t *loop;
    struct gateway_config config;
    struct access access;
    struct openai openai;
    const struct requests *requests;
    bool draining, stopped;
    uv_timer_t drain, pulse;
    int handles; /* of these, open */
    uint64_t drain_until_ns;
    void (*drained)(void *ctx);
    void *drained_ctx;
};

/* ---- routes: one row each ---- */

static void get_health(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)g, (void)rest;
    static const char text[] = "{\"status\": \"ok\"}";
    http_reply(x, 200, "application/json", text, sizeof text - 1);
}

static void get_ready(struct gateway *g, struct http_exchange *x, const char *rest)
{
    const char *name = *rest ? rest : http_query(x, "model");
    ready_reply(g->requests, x, name, g->draining, access_allowed(&g->access, http_request_of(x)));
}

static void get_metrics(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    struct http_figures http = http_figures(g->http);
    metrics_reply(g->requests, &http, &g->openai.latency, x);
}

static void get_models(struct gateway *g, struct http_exchange *x, const char *rest)
{
    openai_models(g->requests, x, *rest ? rest : NULL);
}

static void completion_post(struct gateway *g, struct http_exchange *x, const struct dialect *d,
                            bool chat)
{
    char client[REQUEST_CLIENT_BYTES];
    access_client(&g->access, http_request_of(x), client);
    openai_complete(&g->openai, x, d, chat, client);
}

static void post_chat(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    completion_post(g, x, &dialect_openai, true);
}

static void post_completion(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    completion_post(g, x, &dialect_openai, false);
}

static void post_messages(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    completion_post(g, x, &dialect_messages, true);
}

static void post_ollama_chat(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    completion_post(g, x, &dialect_ollama_chat, true);
}

static void post_ollama_generate(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    completion_post(g, x, &dialect_ollama_generate, true);
}

static void ollama_list_reply(struct gateway *g, struct http_exchange *x, bool running)
{
    struct request_model models[REQUEST_MAX_MODELS];
    struct buffer out = {0};
    int n = g->requests->models(g->requests->ctx, models, REQUEST_MAX_MODELS);
    ollama_write_tags(&out, models, n < REQUEST_MAX_MODELS ? n : REQUEST_MAX_MODELS, running);
    http_reply(x, 200, "application/json", buffer_cstr(&out), out.failed ? 0 : out.size);
    buffer_free(&out);
}

static void get_ollama_tags(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    ollama_list_reply(g, x, false);
}

static void get_ollama_ps(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    ollama_list_reply(g, x, true);
}

/* Ollama's clients look here whether anybody is there, and read no more than the status. */
static void get_root(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)g, (void)rest;
    static const char text[] = "Ollama is running (hodgepodge " HP_VERSION ")\n";
    http_reply(x, 200, "text/plain; charset=utf-8", text, sizeof text - 1);
}

static void post_ollama_show(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    text_api_post(&g->openai, x, TEXT_SHOW);
}

static void post_ollama_pull(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    text_api_post(&g->openai, x, TEXT_PULL);
}

static void post_count(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    text_api_post(&g->openai, x, TEXT_COUNT);
}

static void embedding_post(struct gateway *g, struct http_exchange *x, enum embedding_form form)
{
    char client[REQUEST_CLIENT_BYTES];
    access_client(&g->access, http_request_of(x), client);
    openai_embed(&g->openai, x, form, client);
}

static void post_embeddings(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    embedding_post(g, x, EMBEDDING_OPENAI);
}

static void post_ollama_embed(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    embedding_post(g, x, EMBEDDING_OLLAMA);
}

static void post_ollama_embedding(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    embedding_post(g, x, EMBEDDING_OLLAMA_ONE);
}

static void post_tokenize(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    text_api_post(&g->openai, x, TEXT_TOKENIZE);
}

static void post_detokenize(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    text_api_post(&g->openai, x, TEXT_DETOKENIZE);
}

static void post_template(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    text_api_post(&g->openai, x, TEXT_TEMPLATE);
}

static void get_props(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)rest;
    text_api_props(g->requests, x, http_query(x, "model"));
}

static void get_version(struct gateway *g, struct http_exchange *x, const char *rest)
{
    (void)g, (void)rest;
    static const char text[] = "{\"version\":\"" HP_VERSION "\"}";
    http_reply(x, 200, "application/json", text, sizeof text - 1);
}

static const struct route {
    const char *method, *path; /* a path that ends in "/" serves what lies below it, but for "/" */
    void (*handle)(struct gateway *g, struct http_exchange *x, const char *rest);
    bool open; /* needs no key, and is answered to the end */
} routes[] = {
    {"GET", "/", get_root, true},
    {"GET", "/health", get_health, true},
    {"GET", "/ready", get_ready, true},
    {"GET", "/ready/", get_ready, true},
    {"GET", "/metrics", get_metrics, false},
    {"GET", "/v1/models", get_models, false},
    {"GET", "/v1/models/", get_models, false},
    {"POST", "/v1/chat/completions", post_chat, false},
    {"POST", "/v1/completions", post_completion, false},
    {"POST", "/v1/embeddings", post_embeddings, false},
    {"POST", "/v1/messages", post_messages, false},
    {"POST", "/v1/messages/count_tokens", post_count, false},
    {"POST", "/api/chat", post_ollama_chat, false},
    {"POST", "/api/generate", post_ollama_generate, false},
    {"POST", "/api/embed", post_ollama_embed, false},
    {"POST", "/api/embeddings", post_ollama_embedding, false},
    {"POST", "/api/show", post_ollama_show, false},
    {"POST", "/api/pull", post_ollama_pull, false},
    {"GET", "/api/tags", get_ollama_tags, false},
    {"GET", "/api/ps", get_ollama_ps, false},
    {"GET", "/api/version", get_version, false},
    {"POST", "/tokenize", post_tokenize, false},
    {"POST", "/detokenize", post_detokenize, false},
    {"POST", "/apply-template", post_template, false},
    {"GET", "/props", get_props, false},
    {"GET", "/version", get_version, false},
};

/* What follows the route's path, or NULL when it is another. */
static const char *route_rest(const struct route *route, const char *path)
{
    size_t n = strlen(route->path);
    if (n == 1)
        return strcmp(route->path, path) == 0 ? path + n : NULL;
    if (strncmp(route->path, path, n) != 0)
        return NULL;
    return (route->path[n - 1] == '/') == (path[n] != '\0') ? path + n : NULL;
}

static bool method_is(const struct route *route, const char *method)
{
    return strcmp(method, route->method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* What is said of a path that is not there: mostly a base URL with one /v1 too few or too many. */
static const char *path_hint(const char *path)
{
    static const char *const below_v1[] = {"/chat/completions", "/completions", "/models",
                                           "/embeddings"};
    for (size_t i = 0; i < sizeof below_v1 / sizeof *below_v1; i++)
        if (strcmp(path, below_v1[i]) == 0)
            return ": the API lies below /v1";
    if (strncmp(path, "/v1/v1/", 7) == 0 || strncmp(path, "/v1/api/", 8) == 0)
        return ": give this client the address without /v1";
    if (strncmp(path, "/api/", 5) == 0)
        return "; of Ollama's there is POST /api/chat, /api/generate, /api/embed, /api/embeddings, "
               "/api/show and /api/pull, GET /api/tags, /api/ps and /api/version";
    return "; there is POST /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/messages, "
           "/tokenize, /detokenize and /apply-template, GET /v1/models, /props, /health, /ready "
           "and /metrics";
}

/* The route, or an answer that there is none. */
static const struct route *route_find(struct http_exchange *x, const struct http_request *r)
{
    const char *allowed = NULL;
    char text[400];
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!route_rest(&routes[i], r->path))
            continue;
        if (method_is(&routes[i], r->method))
            return &routes[i];
        allowed = routes[i].method;
    }
    if (allowed) {
        http_header(x, "Allow", strcmp(allowed, "GET") == 0 ? "GET, HEAD" : allowed);
        snprintf(text, sizeof text, "%.120s takes %s, not %.16s", r->path, allowed, r->method);
        openai_error(x, 405, text, NULL, "method_not_allowed");
        return NULL;
    }
    snprintf(text, sizeof text, "there is nothing at %.160s%s", r->path, path_hint(r->path));
    openai_error(x, 404, text, NULL, "not_found");
    return NULL;
}

/* ---- at the headers ---- */

static uint64_t body_limit(const struct gateway *g, const struct http_request *r)
{
    struct request_model models[REQUEST_MAX_MODELS];
    uint64_t most = g->config.max_body_bytes ? g->config.max_body_bytes : GATEWAY_BODY_BYTES;
    if (g->config.max_body_bytes || (r->length_known && r->body_bytes <= most))
        return most;
    int n = g->requests->models(g->requests->ctx, models, REQUEST_MAX_MODELS);
    for (int i = 0; i < n && i < REQUEST_MAX_MODELS; i++)
        if (models[i].context < UINT32_MAX &&
            models[i].context * GATEWAY_BODY_BYTES_PER_TOKEN > most)
            most = models[i].context * GATEWAY_BODY_BYTES_PER_TOKEN;
    return most;
}

static uint64_t on_begin(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    struct gateway *g = ctx;
    if (access_refuse_stranger(&g->access, x, r))
        return 0;
    const struct route *route = route_find(x, r);
    if (!route)
        return 0;
    http_set_data(x, (void *)(uintptr_t)route);
    if (g->draining) {
        http_header(x, "Connection", "close");
        if (!route->open) {
            openai_error(x, 503, "the coordinator is stopping: try again later", NULL, "stopping");
            return 0;
        }
    }
    if ((!route->open && access_refuse_keyless(&g->access, x, r)) || access_refuse_type(x, r))
        return 0;
    return strcmp(route->method, "POST") == 0 ? body_limit(g, r) : 0;
}

static void on_request(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    const struct route *route = http_data(x);
    route->handle(ctx, x, route_rest(route, r->path));
}

static void on_refused(void *ctx, struct http_exchange *x, int http_status, const char *why)
{
    struct gateway *g = ctx;
    char text[200];
    if (http_status == 413)
        snprintf(text, sizeof text, "%s: this request may have %llu bytes", why,
                 (unsigned long long)body_limit(g, http_request_of(x)));
    else
        snprintf(text, sizeof text, "%s", why);
    openai_error(x, http_status, text, NULL,
                 http_status == 413   ? "limit"
                 : http_status == 503 ? "busy"
                                      : "invalid");
}

/* ---- starting ---- */

static struct gateway *gateway_create(uv_loop_t *loop, const struct gateway_config *config,
                                      const struct requests *requests)
{
    struct gateway *g = calloc(1, sizeof *g);
    struct lanes *lanes = g ? lanes_create(requests) : NULL;
    if (!lanes) {
        free(g);
        return NULL;
    }
    g->loop = loop;
    g->config = *config;
    g->access = (struct access){
        .requests = requests, .names = {config->hosts, config->n_hosts}, .open = config->open};
    g->requests = requests;
    g->openai = (struct openai){.requests = requests, .lanes = lanes, .loop = loop};
    return g;
}

static struct http_limits limits_of(const struct gateway *g)
{
    uint64_t body = g->config.max_body_bytes > GATEWAY_BODY_BYTES ? g->config.max_body_bytes
                                                                  : GATEWAY_BODY_BYTES;
    /* On loopback all have one address. */
    return (struct http_limits){.bodies_bytes = BODIES_AT_ONCE * body,
                                .connections_per_address =
                                    g->access.beyond_loopback ? CONNECTIONS_PER_ADDRESS : 0};
}

static void on_pulse(uv_timer_t *timer)
{
    openai_pulse(&((struct gateway *)timer->data)->openai);
}

int gateway_start(uv_loop_t *loop, const struct gateway_config *config,
                  const struct requests *requests, struct gateway **out, struct err *e)
{
    char host[256];
    int port = 0;
    int rc = listen_address_read(config->listen, host, &port, e);
    if (rc < 0)
        return rc;
    if (!host_is_loopback(host) && requests->api_keys(requests->ctx) == 0) {
        err_set(e, HP_EDENIED, "the HTTP API does not listen beyond loopback (%s) without API keys",
                host);
        return err_hint(
            e, "`hpctl key create NAME` makes one, and the API starts; or listen on 127.0.0.1");
    }
    struct gateway *g = gateway_create(loop, config, requests);
    if (!g)
        return err_set(e, HP_ENOMEM, "out of memory for the gateway");
    g->access.beyond_loopback = !host_is_loopback(host);
    struct http_handler handler = {g, on_begin, on_request, on_refused};
    struct http_limits limits = limits_of(g);
    if ((rc = http_start(loop, host, port, &limits, &handler, &g->http, e)) < 0) {
        lanes_close(&g->openai.lanes);
        free(g);
        return rc;
    }
    uv_timer_init(loop, &g->drain);
    uv_timer_init(loop, &g->pulse);
    g->drain.data = g->pulse.data = g;
    g->handles = 2;
    uv_timer_start(&g->pulse, on_pulse, OPENAI_PULSE_MS, OPENAI_PULSE_MS);
    log_info("gateway", "listening", "http=%s:%d keys_needed=%s", host, http_port(g->http),
             access_key_needed(&g->access) ? "yes" : "no");
    *out = g;
    return 0;
}

int gateway_port(const struct gateway *g)
{
    return http_port(g->http);
}

/* ---- stopping ---- */

static void on_drain(uv_timer_t *timer)
{
    struct gateway *g = timer->data;
    uint64_t now = env_now_ns(&env_real);
    struct err why = {0};
    if ((g->openai.open || g->openai.embeddings) && now >= g->drain_until_ns) {
        err_set(&why, HP_ECANCELED, "the coordinator is stopping: try again later");
        openai_fail_all(&g->openai, &why);
        openai_embeddings_fail(&g->openai, &why);
    }
    if (http_figures(g->http).exchanges > 0 &&
        now < g->drain_until_ns + DRAIN_FLUSH_MS * 1000000ull)
        return;
    uv_timer_stop(timer);
    g->drained(g->drained_ctx);
}

void gateway_drain(struct gateway *g, uint64_t patience_ms, void (*drained)(void *ctx), void *ctx)
{
    g->draining = true;
    g->drained = drained;
    g->drained_ctx = ctx;
    g->drain_until_ns = env_now_ns(&env_real) + patience_ms * 1000000u;
    uv_timer_start(&g->drain, on_drain, 0, DRAIN_LOOK_MS);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct gateway *g = handle->data;
    if (--g->handles > 0)
        return;
    latency_free(&g->openai.latency);
    free(g);
}

void gateway_stop(struct gateway **out)
{
    struct gateway *g = *out;
    *out = NULL;
    if (!g)
        return;
    http_stop(&g->http);
    lanes_close(&g->openai.lanes);
    uv_close((uv_handle_t *)&g->drain, on_timer_closed);
    uv_close((uv_handle_t *)&g->pulse, on_timer_closed);
}
