#include "coordinator/gateway/access.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "coordinator/gateway/limit_headers.h"
#include "coordinator/gateway/openai.h"

bool access_key_needed(const struct access *a)
{
    return a->beyond_loopback || (!a->open && a->requests->api_keys(a->requests->ctx) > 0);
}

bool access_allowed(const struct access *a, const struct http_request *r)
{
    return !access_key_needed(a) ||
           (r->bearer && a->requests->api_key_allowed(a->requests->ctx, r->bearer, NULL));
}

void access_client(const struct access *a, const struct http_request *r,
                   char client[REQUEST_CLIENT_BYTES])
{
    char name[REQUEST_KEY_NAME_BYTES];
    if (r->bearer && a->requests->api_key_allowed(a->requests->ctx, r->bearer, name))
        snprintf(client, REQUEST_CLIENT_BYTES, "key %s", name);
    else
        snprintf(client, REQUEST_CLIENT_BYTES, "address %s", r->client);
}

int access_check_key(const struct access *a, const struct http_request *r, struct err *e)
{
    if (access_allowed(a, r))
        return 0;
    return err_set(e, HP_EDENIED, "%s",
                   r->bearer ? "this API key is not known here"
                             : "an API key is needed: Authorization: Bearer KEY (`hpctl key create "
                               "NAME` makes one)");
}

int access_check_spent(const struct access *a, const struct http_request *r,
                       uint32_t *retry_after_s, struct err *e)
{
    char client[REQUEST_CLIENT_BYTES];
    access_client(a, r, client);
    return a->requests->begin(a->requests->ctx, client, retry_after_s, e);
}

bool access_refuse_stranger(const struct access *a, struct http_exchange *x,
                            const struct http_request *r)
{
    char text[400];
    if (a->beyond_loopback)
        return false;
    if (r->host && !host_is_own(r->host, &a->names)) {
        snprintf(
            text, sizeof text,
            "this API is not at \"%.200s\"; start the coordinator with --http-host NAME if it is",
            r->host);
        openai_error(x, 403, text, NULL, "host_not_allowed");
        return true;
    }
    if (r->origin && !origin_is_own(r->origin, &a->names) &&
        !origin_is_listed(r->origin, &a->origins)) {
        snprintf(
            text, sizeof text,
            "pages of \"%.200s\" may not use this API; --http-host NAME allows those of a host, "
            "--http-origin ORIGIN those of another",
            r->origin);
        openai_error(x, 403, text, NULL, "origin_not_allowed");
        return true;
    }
    return false;
}

bool access_refuse_keyless(const struct access *a, struct http_exchange *x,
                           const struct http_request *r)
{
    struct err e = {0};
    if (access_check_key(a, r, &e) == 0)
        return false;
    http_header(x, "WWW-Authenticate", "Bearer");
    openai_error(x, 401, e.text, NULL, "invalid_api_key");
    return true;
}

bool access_refuse_spent(const struct access *a, struct http_exchange *x,
                         const struct http_request *r)
{
    uint32_t retry_after_s;
    struct err e = {0};
    int rc = access_check_spent(a, r, &retry_after_s, &e);
    if (rc < 0)
        openai_error_after(x, openai_status_of(rc), retry_after_s, e.text, NULL, status_word(rc));
    return rc < 0;
}

bool access_refuse_partial(const struct access *a, struct http_exchange *x,
                           const struct http_request *r)
{
    char client[REQUEST_CLIENT_BYTES];
    struct request_limits limits;
    access_client(a, r, client);
    if (!a->requests->limits(a->requests->ctx, client, &limits) || !limits.some_models)
        return false;
    openai_error(x, 403,
                 "this API key may use some models; what is told here is about all of them, and "
                 "for keys that may use all",
                 NULL, "key_not_allowed");
    return true;
}

static bool origin_may_ask(const struct access *a, const struct http_request *r)
{
    return r->origin && origin_is_listed(r->origin, &a->origins);
}

static bool is_preflight(const struct http_request *r)
{
    return strcmp(r->method, "OPTIONS") == 0;
}

/* Keys travel in headers, so cookies are not asked for. */
static void origin_headers(const struct http_request *r, http_header_fn add, void *out)
{
    add(out, "Access-Control-Allow-Origin", r->origin);
    add(out, "Vary", "Origin");
    if (!is_preflight(r)) {
        add(out, "Access-Control-Expose-Headers",
            "x-request-id, request-id, Retry-After, Stream-Id, x-ratelimit-limit-requests, "
            "x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, "
            "x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, x-ratelimit-reset-tokens");
        return;
    }
    add(out, "Access-Control-Allow-Methods", "GET, POST");
    add(out, "Access-Control-Max-Age", "600");
    if (r->asks_headers)
        add(out, "Access-Control-Allow-Headers", r->asks_headers);
}

bool access_grant_preflight(const struct access *a, struct http_exchange *x,
                            const struct http_request *r)
{
    bool granted = is_preflight(r) && origin_may_ask(a, r);
    if (granted)
        http_reply(x, 204, "text/plain", "", 0);
    return granted;
}

void access_headers(const struct access *a, const struct http_request *r, http_header_fn add,
                    void *out)
{
    if (origin_may_ask(a, r))
        origin_headers(r, add, out);
    char client[REQUEST_CLIENT_BYTES];
    struct request_limits limits;
    if (!r->bearer)
        return;
    access_client(a, r, client);
    if (a->requests->limits(a->requests->ctx, client, &limits))
        limit_headers_add(&limits, add, out);
}

static bool type_is(const char *type, size_t n, const char *wanted)
{
    return n == strlen(wanted) && strncasecmp(type, wanted, n) == 0;
}

/* A browser says so in each of these, and no page can keep it from it: Origin with every POST,
 * Sec-Fetch-Site to loopback and over HTTPS, and "Mozilla/5.0". Older ones send not all of them. */
static bool is_browser(const struct http_request *r)
{
    return r->origin || r->fetch_site ||
           (r->user_agent && strncasecmp(r->user_agent, "Mozilla/", 8) == 0);
}

/* Browsers send forms and plain text to anybody without asking; JSON and bytes they do not. `curl
 * -d` calls JSON a form, too, as the tutorials of Ollama have it. */
bool access_refuse_type(struct http_exchange *x, const struct http_request *r, bool binary)
{
    const char *type = r->content_type, *encoded = http_encoding_why(r);
    bool posts = strcmp(r->method, "POST") == 0;
    if (posts && encoded)
        openai_error(x, 415, encoded, NULL, "unsupported_media_type");
    if (!posts || encoded || !type)
        return posts && encoded;
    size_t n = strcspn(type, "; \t");
    bool form = type_is(type, n, "application/x-www-form-urlencoded");
    if (type_is(type, n, "application/json") || (form && !is_browser(r)) ||
        (binary && type_is(type, n, "application/octet-stream")))
        return false;
    openai_error(x, 415,
                 form ? "the body must be JSON: Content-Type: application/json (what is called a "
                        "form is not taken from a browser)"
                      : "the body must be JSON: Content-Type: application/json",
                 NULL, "unsupported_media_type");
    return true;
}
