#include "coordinator/gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/host_address.h"
#include "common/log.h"
#include "coordinator/gateway/gateway_int.h"
#include "coordinator/gateway/kept_streams.h"
#include "coordinator/gateway/listen_address.h"
#include "coordinator/gateway/tls_files.h"

enum {
    DRAIN_LOOK_MS = 20,
    DRAIN_FLUSH_MS = 1000,
    BODIES_AT_ONCE = 16,
    CONNECTIONS_PER_ADDRESS = 1024
};

/* ---- at the headers ---- */

static uint64_t body_limit(const struct gateway *g, const struct http_request *r)
{
    struct request_model models[REQUEST_MAX_MODELS];
    uint64_t most = g->config.max_body_bytes ? g->config.max_body_bytes : GATEWAY_BODY_BYTES;
    if (g->config.max_body_bytes || (r->length_known && r->body_bytes <= most))
        return most;
    int n = g->requests->models(g->requests->ctx, NULL, models, REQUEST_MAX_MODELS);
    for (int i = 0; i < n && i < REQUEST_MAX_MODELS; i++)
        if (models[i].context < UINT32_MAX &&
            models[i].context * GATEWAY_BODY_BYTES_PER_TOKEN > most)
            most = models[i].context * GATEWAY_BODY_BYTES_PER_TOKEN;
    return most;
}

static uint64_t on_begin(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    struct gateway *g = ctx;
    if (access_refuse_stranger(&g->access, x, r) || access_grant_preflight(&g->access, x, r))
        return 0;
    const struct gateway_route *route = gateway_route_find(x, r);
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
    char client[REQUEST_CLIENT_BYTES];
    bool posts = strcmp(route->method, "POST") == 0;
    if ((!route->open && access_refuse_keyless(&g->access, x, r)) ||
        access_refuse_type(x, r, route->kserve) ||
        (route->whole && access_refuse_partial(&g->access, x, r)) ||
        (posts && !route->looks && access_refuse_spent(&g->access, x, r)))
        return 0;
    access_client(&g->access, r, client);
    if (route->kserve)
        return kserve_begin(&g->kserve, x, r, client);
    return posts ? body_limit(g, r) : 0;
}

static void on_request(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    const struct gateway_route *route = http_data(x);
    struct gateway_call call = {ctx, x, route, gateway_route_rest(route, r->path), ""};
    access_client(&((struct gateway *)ctx)->access, r, call.client);
    route->handle(&call);
}

static void on_headers(void *ctx, const struct http_exchange *x, http_header_fn add, void *out)
{
    const struct gateway *g = ctx;
    access_headers(&g->access, http_request_of(x), add, out);
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
                 : http_status == 408 ? "timeout"
                 : http_status == 503 ? "busy"
                                      : "invalid");
}

/* ---- starting ---- */

static struct gateway *gateway_create(uv_loop_t *loop, const struct gateway_config *config,
                                      const struct requests *requests)
{
    struct gateway *g = calloc(1, sizeof *g);
    struct lanes *lanes = g ? lanes_create(requests) : NULL;
    struct kept_streams *kept =
        lanes ? kept_streams_create(loop, requests, config->resume_ms) : NULL;
    if (!kept) {
        lanes_close(&lanes);
        free(g);
        return NULL;
    }
    g->loop = loop;
    g->config = *config;
    g->access = (struct access){.requests = requests,
                                .names = {config->hosts, config->n_hosts},
                                .origins = {config->origins, config->n_origins},
                                .open = config->open};
    g->requests = requests;
    g->pools = (struct pool_infer_desk){.pools = config->pools, .lanes = lanes};
    g->kserve = pool_infer_backend(&g->pools);
    g->openai = (struct openai){
        .requests = requests, .pools = config->pools, .lanes = lanes, .loop = loop, .kept = kept};
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

static int grpc_start(struct gateway *g, struct err *e)
{
    const struct kserve_rpc_config config = {.listen = g->config.grpc,
                                             .encrypted = g->config.certificate_file != NULL,
                                             .requests = g->requests,
                                             .open = g->config.open,
                                             .kserve = &g->kserve,
                                             .desk = &g->pools};
    return kserve_rpc_start(g->loop, &config, &g->rpc, e);
}

/* gRPC that waits for the first API key. */
static void grpc_retry(struct gateway *g)
{
    struct err e = {0};
    if (!g->config.grpc || g->rpc || g->draining || g->requests->api_keys(g->requests->ctx) == 0)
        return;
    if (grpc_start(g, &e) == 0)
        return;
    log_warn("gateway", "no_grpc", "why=\"%s\" do=\"%s\"", e.text, e.hint);
    g->config.grpc = NULL;
}

static void on_pulse(uv_timer_t *timer)
{
    struct gateway *g = timer->data;
    openai_pulse(&g->openai);
    kept_streams_tick(g->openai.kept);
    grpc_retry(g);
}

static int server_start(struct gateway *g, const char *host, int port, struct err *e)
{
    struct http_handler handler = {g, on_begin, on_request, on_refused, on_headers};
    struct http_limits limits = limits_of(g);
    struct tls_files *tls = NULL;
    const char *certificate = g->config.certificate_file;
    int rc = certificate ? tls_files_open(certificate, g->config.key_file, &tls, e) : 0;
    if (rc < 0)
        return rc;
    rc = http_start(g->loop, host, port, &limits, tls, &handler, &g->http, e);
    if (rc < 0)
        tls_files_close(&tls);
    return rc;
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
    rc = server_start(g, host, port, e);
    if (rc == 0 && config->grpc && (rc = grpc_start(g, e)) == HP_EDENIED) {
        log_warn("gateway", "no_grpc", "why=\"%s\" do=\"%s\"", e->text, e->hint);
        rc = 0;
    }
    if (rc < 0) {
        http_stop(&g->http);
        lanes_close(&g->openai.lanes);
        kept_streams_close(&g->openai.kept);
        free(g);
        return rc;
    }
    uv_timer_init(loop, &g->drain);
    uv_timer_init(loop, &g->pulse);
    live_init(&g->live, loop, requests);
    g->drain.data = g->pulse.data = g;
    g->handles = 3;
    uv_timer_start(&g->pulse, on_pulse, OPENAI_PULSE_MS, OPENAI_PULSE_MS);
    log_info("gateway", "listening", "%s=%s:%d keys_needed=%s",
             config->certificate_file ? "https" : "http", host, http_port(g->http),
             access_key_needed(&g->access) ? "yes" : "no");
    *out = g;
    return 0;
}

int gateway_port(const struct gateway *g)
{
    return http_port(g->http);
}

int gateway_grpc_port(const struct gateway *g)
{
    return g->rpc ? kserve_rpc_port(g->rpc) : 0;
}

/* ---- stopping ---- */

static bool answers_wait(const struct gateway *g)
{
    return http_figures(g->http).exchanges > 0 || (g->rpc && kserve_rpc_open(g->rpc) > 0);
}

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
    if (answers_wait(g) && now < g->drain_until_ns + DRAIN_FLUSH_MS * 1000000ull)
        return;
    uv_timer_stop(timer);
    g->drained(g->drained_ctx);
}

void gateway_drain(struct gateway *g, uint64_t patience_ms, void (*drained)(void *ctx), void *ctx)
{
    g->draining = true;
    if (g->rpc)
        kserve_rpc_drain(g->rpc);
    live_end(&g->live);
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
    kserve_rpc_stop(&g->rpc);
    lanes_close(&g->openai.lanes);
    kept_streams_close(&g->openai.kept);
    uv_close((uv_handle_t *)&g->drain, on_timer_closed);
    uv_close((uv_handle_t *)&g->pulse, on_timer_closed);
    g->live.timer.data = g;
    uv_close((uv_handle_t *)&g->live.timer, on_timer_closed);
}
