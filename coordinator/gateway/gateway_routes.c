/* The gateway's paths: who answers which, and what is said of one that nobody answers. */
#include <stdio.h>
#include <string.h>

#include "coordinator/gateway/cluster_api.h"
#include "coordinator/gateway/gateway_int.h"
#include "coordinator/gateway/metrics.h"
#include "coordinator/gateway/model_list.h"
#include "coordinator/gateway/page.h"
#include "coordinator/gateway/ready.h"
#include "coordinator/gateway/slots.h"

/* ---- who answers ---- */

static void text_reply(struct http_exchange *x, const char *type, const char *text)
{
    http_reply(x, 200, type, text, strlen(text));
}

static void get_health(const struct gateway_call *c)
{
    text_reply(c->x, "application/json", "{\"status\": \"ok\"}");
}

static void get_ready(const struct gateway_call *c)
{
    const char *name = *c->rest ? c->rest : http_query(c->x, "model");
    ready_reply(c->g->requests, c->g->pools.pools, c->x, c->client, name, c->g->draining,
                access_allowed(&c->g->access, http_request_of(c->x)));
}

static void get_metrics(const struct gateway_call *c)
{
    struct http_figures http = http_figures(c->g->http);
    metrics_reply(c->g->requests, &http, &c->g->openai.latency, c->x);
}

static void get_models(const struct gateway_call *c)
{
    model_list_reply(&c->g->openai, c->x, c->client, *c->rest ? c->rest : NULL);
}

static void post_completion(const struct gateway_call *c)
{
    openai_complete(&c->g->openai, c->x, c->route->dialect, c->route->chat, c->client);
}

static void get_stream(const struct gateway_call *c)
{
    openai_resume(&c->g->openai, c->x, c->rest, c->client);
}

static void post_embedding(const struct gateway_call *c)
{
    openai_embed(&c->g->openai, c->x, c->route->form, c->client);
}

static void post_text(const struct gateway_call *c)
{
    text_api_post(&c->g->openai, c->x, c->route->task, c->client);
}

static void get_ollama_list(const struct gateway_call *c)
{
    model_list_reply_ollama(&c->g->openai, c->x, c->client, c->route->running);
}

/* A browser gets the page. Ollama's clients look here whether anybody is there, and read no more
 * than the status. */
static void get_root(const struct gateway_call *c)
{
    const char *accept = http_request_of(c->x)->accept;
    if (accept && strstr(accept, "text/html")) {
        page_reply(c->x, "index.html");
        return;
    }
    text_reply(c->x, "text/plain; charset=utf-8",
               "Ollama is running (hodgepodge " HP_VERSION ")\n");
}

static void get_docs(const struct gateway_call *c)
{
    page_reply(c->x, "index.html"); /* which goes on to them */
}

static void get_page(const struct gateway_call *c)
{
    page_reply(c->x, c->rest);
}

/* Held to the table below by tests/docs_test.py, to the answers by tests/proc/openapi_test.py. */
static void get_openapi(const struct gateway_call *c)
{
    page_reply(c->x, "openapi.json");
}

static void get_document(const struct gateway_call *c)
{
    cluster_document_reply(c->g->requests, c->x, c->route->document, c->rest);
}

static void get_plan(const struct gateway_call *c)
{
    cluster_plan_reply(c->g->requests, c->x, c->rest);
}

static void get_live(const struct gateway_call *c)
{
    live_open(&c->g->live, c->x);
}

static void any_kserve(const struct gateway_call *c)
{
    kserve_request(&c->g->kserve, c->x, http_request_of(c->x), c->client);
}

static void get_props(const struct gateway_call *c)
{
    text_api_props(&c->g->openai, c->x, c->client, http_query(c->x, "model"));
}

static void get_slots(const struct gateway_call *c)
{
    const char *fails = http_query(c->x, "fail_on_no_slot");
    slots_reply(&c->g->openai, c->x, c->client, http_query(c->x, "model"),
                fails && strcmp(fails, "1") == 0);
}

static void get_tokenizer_info(const struct gateway_call *c)
{
    text_api_tokenizer_info(&c->g->openai, c->x, c->client, http_query(c->x, "model"));
}

static void get_version(const struct gateway_call *c)
{
    text_reply(c->x, "application/json", "{\"version\":\"" HP_VERSION "\"}");
}

/* ---- which ---- */

static const struct gateway_route routes[] = {
    {"GET", "/", get_root, .open = true},
    {"GET", "/page/", get_page, .open = true},
    {"GET", "/docs", get_docs, .open = true},
    {"GET", "/openapi.json", get_openapi, .open = true},
    {"GET", "/health", get_health, .open = true},
    {"GET", "/ready", get_ready, .open = true},
    {"GET", "/ready/", get_ready, .open = true},
    {"GET", "/metrics", get_metrics, .whole = true},
    {"GET", "/v1/models", get_models, .open = false},
    {"GET", "/v1/models/", get_models, .open = false},
    {"POST", "/v1/chat/completions", post_completion, .dialect = &dialect_openai, .chat = true},
    {"POST", "/v1/completions", post_completion, .dialect = &dialect_openai},
    {"POST", "/v1/responses", post_completion, .dialect = &dialect_responses, .chat = true},
    {"GET", "/v1/streams/", get_stream, .open = false},
    {"POST", "/v1/embeddings", post_embedding, .form = EMBEDDING_OPENAI},
    {"POST", "/v1/messages", post_completion, .dialect = &dialect_messages, .chat = true},
    {"POST", "/v1/messages/count_tokens", post_text, .task = TEXT_COUNT},
    {"POST", "/api/chat", post_completion, .dialect = &dialect_ollama_chat, .chat = true},
    {"POST", "/api/generate", post_completion, .dialect = &dialect_ollama_generate, .chat = true},
    {"POST", "/api/embed", post_embedding, .form = EMBEDDING_OLLAMA},
    {"POST", "/api/embeddings", post_embedding, .form = EMBEDDING_OLLAMA_ONE},
    {"POST", "/api/show", post_text, .task = TEXT_SHOW},
    {"POST", "/api/pull", post_text, .task = TEXT_PULL},
    {"GET", "/api/tags", get_ollama_list, .open = false},
    {"GET", "/api/ps", get_ollama_list, .running = true},
    {"GET", "/api/version", get_version, .open = false},
    {"GET", "/api/hp/cluster", get_document, .document = DOCUMENT_CLUSTER, .whole = true},
    {"GET", "/api/hp/topology", get_document, .document = DOCUMENT_TOPOLOGY, .whole = true},
    {"GET", "/api/hp/agents/", get_document, .document = DOCUMENT_AGENT, .whole = true},
    {"GET", "/api/hp/deployments/", get_document, .document = DOCUMENT_DEPLOYMENT, .whole = true},
    {"GET", "/api/hp/plans/", get_plan, .whole = true},
    {"GET", "/api/hp/live", get_live, .whole = true},
    {"GET", "/v2", any_kserve, .kserve = true},
    {"GET", "/v2/health/live", any_kserve, .kserve = true, .open = true},
    {"GET", "/v2/health/ready", any_kserve, .kserve = true, .open = true},
    {"GET", "/v2/models/", any_kserve, .kserve = true},
    {"POST", "/v2/models/", any_kserve, .kserve = true},
    {"POST", "/v2/repository/index", any_kserve, .kserve = true, .looks = true},
    {"POST", "/v1/rerank", post_embedding, .form = EMBEDDING_RERANK},
    {"POST", "/rerank", post_embedding, .form = EMBEDDING_RERANK},
    {"POST", "/v1/reranking", post_embedding, .form = EMBEDDING_RERANK},
    {"POST", "/reranking", post_embedding, .form = EMBEDDING_RERANK},
    {"POST", "/v1/score", post_embedding, .form = EMBEDDING_SCORE},
    {"POST", "/score", post_embedding, .form = EMBEDDING_SCORE},
    {"POST", "/embedding", post_embedding, .form = EMBEDDING_LLAMA},
    {"POST", "/embeddings", post_embedding, .form = EMBEDDING_LLAMA},
    {"POST", "/completion", post_completion, .dialect = &dialect_llama},
    {"POST", "/completions", post_completion, .dialect = &dialect_llama},
    {"POST", "/chat/completions", post_completion, .dialect = &dialect_openai, .chat = true},
    {"POST", "/responses", post_completion, .dialect = &dialect_responses, .chat = true},
    {"GET", "/models", get_models, .open = false},
    {"POST", "/infill", post_completion, .dialect = &dialect_llama_infill},
    {"GET", "/slots", get_slots, .open = false},
    {"GET", "/ping", get_health, .open = true},
    {"GET", "/v1/health", get_health, .open = true},
    {"POST", "/tokenize", post_text, .task = TEXT_TOKENIZE},
    {"POST", "/detokenize", post_text, .task = TEXT_DETOKENIZE},
    {"POST", "/apply-template", post_text, .task = TEXT_TEMPLATE},
    {"GET", "/props", get_props, .open = false},
    {"GET", "/tokenizer_info", get_tokenizer_info, .open = false},
    {"GET", "/version", get_version, .open = false},
};

const char *gateway_route_rest(const struct gateway_route *route, const char *path)
{
    size_t n = strlen(route->path);
    if (n == 1)
        return strcmp(route->path, path) == 0 ? path + n : NULL;
    if (strncmp(route->path, path, n) != 0)
        return NULL;
    return (route->path[n - 1] == '/') == (path[n] != '\0') ? path + n : NULL;
}

static bool method_is(const struct gateway_route *route, const char *method)
{
    return strcmp(method, route->method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* What is said of a path that is not there: mostly a base URL with one /v1 too few or too many. */
static const char *path_hint(const char *path)
{
    if (strncmp(path, "/v1/v1/", 7) == 0 || strncmp(path, "/v1/api/", 8) == 0)
        return ": give this client the address without /v1";
    if (strncmp(path, "/api/", 5) == 0)
        return "; of Ollama's there is POST /api/chat, /api/generate, /api/embed, /api/embeddings, "
               "/api/show and /api/pull, GET /api/tags, /api/ps and /api/version";
    if (strncmp(path, "/v2/", 4) == 0)
        return "; of KServe's v2 protocol there is GET /v2, /v2/models/NAME and, below it, /ready, "
               "/config and /stats, POST /v2/models/NAME/infer, and POST /v2/repository/index, "
               "which lists the models";
    return "; there is POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, "
           "/v1/messages, /v1/rerank, /v1/score, /completion, /infill, /embedding, "
           "/tokenize, /detokenize and /apply-template, GET /v1/models, /v1/streams/ID, /props, "
           "/slots, /tokenizer_info, "
           "/health, /ready "
           "and /metrics";
}

const struct gateway_route *gateway_route_find(struct http_exchange *x,
                                               const struct http_request *r)
{
    const char *allowed = NULL;
    char text[500];
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!gateway_route_rest(&routes[i], r->path))
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
