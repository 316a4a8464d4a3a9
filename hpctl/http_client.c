#include "hpctl/http_client.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/env.h"
#include "hpctl/client.h"
#include "hpctl/interrupts.h"
#include "hpctl/reach.h"
#include "hpctl/sse.h"

enum {
    WHOLE_BYTES = 256 << 20,
    CONNECT_MS = 10000,
    /* An answer may take its time. Who says nothing for so long is asked whether it is there, each
     * ASK_MS, and without an answer to that nobody waits any longer. */
    SILENT_MS = 30000,
    ASK_MS = 10000,
    GONE_MS = 60000,
};

struct exchange {
    const struct context *where;
    uint64_t heard_ns, asked_ns;
    struct buffer whole; /* an answer that is no stream */
    bool done;           /* a stream has come to its end */
    struct sse stream;
    http_event_fn on_event;
    void *ctx;
    struct err *e;
    CURL *curl;
    long status; /* of the answer */
    int rc;
};

int http_error_of(const json_t *value, long status, struct err *e)
{
    const json_t *error = json_object_get(value, "error");
    const char *message = json_string_value(json_object_get(error, "message")),
               *code = json_string_value(json_object_get(error, "code"));
    int rc = status == 404                    ? HP_ENOENT
             : status == 401 || status == 403 ? HP_EDENIED
             : status == 503                  ? HP_ELINK
             : status == 429                  ? HP_EBUSY
                                              : HP_EINVAL;
    if (code && status_of_word(code) != HP_EBUG)
        rc = status_of_word(code);
    if (json_is_string(error)) /* as KServe says it */
        message = json_string_value(error);
    return err_set(e, rc, "%s", message ? message : "the gateway refused without saying why");
}

json_t *http_json(const char *bytes, size_t size)
{
    return json_loadb(bytes, size, JSON_ALLOW_NUL, NULL);
}

static int on_data(void *ctx, const char *data, size_t n, struct err *e)
{
    struct exchange *x = ctx;
    if (strcmp(data, "[DONE]") == 0) {
        x->done = true;
        return 0;
    }
    json_t *event = http_json(data, n);
    if (!event)
        return err_set(e, HP_EPROTO, "the gateway sent an event that is not JSON");
    int rc = json_object_get(event, "error") ? http_error_of(event, 200, e)
                                             : x->on_event(x->ctx, event, e);
    json_decref(event);
    return rc;
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *ctx)
{
    struct exchange *x = ctx;
    long status = 0;
    x->heard_ns = env_now_ns(&env_real);
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    if (x->on_event && status == 200)
        x->rc = sse_take(&x->stream, bytes, size * count, on_data, x, x->e);
    else if (x->whole.size + size * count > WHOLE_BYTES)
        x->rc = err_set(x->e, HP_ELIMIT, "the gateway sent an answer of more than %d MiB",
                        WHOLE_BYTES >> 20);
    else
        buffer_append(&x->whole, bytes, size * count);
    return x->rc < 0 ? 0 : size * count;
}

/* What to do where nobody listens at the API's address. */
static void hint_where_to_look(const struct context *where, struct err *e)
{
    const char *api = reach_of_url(where->http), *port = strrchr(api, ':');
    if (where->local_dir[0])
        err_hint(e, "does the coordinator run? `hpctl local ls`, `hpctl ps`");
    else if (reach_is_loopback(api) && !reach_is_loopback(where->control))
        err_hint(e,
                 "that is the coordinator's own box: start hp-coordinator with --http 0.0.0.0%s "
                 "there, and export the context again",
                 port ? port : ":8080");
    else
        err_hint(e, "does hp-coordinator run there, with this address as --http? Beyond loopback "
                    "its API starts with the first key: `hpctl key create NAME`");
}

static int answer_refused(const struct exchange *x, const json_t *answer)
{
    const char *own = getenv("HP_API_KEY");
    int rc = http_error_of(answer, x->status, x->e);
    if (x->status == 401 && own && *own)
        err_hint(x->e, "it is the one in HP_API_KEY: unset that and hpctl has a key of its own, or "
                       "`hpctl key create NAME` makes another");
    else if (x->status == 404)
        err_hint(x->e, "`hpctl ps` lists what is deployed, `hpctl pools` what pools serve");
    return rc;
}

static int exchange_finish(struct exchange *x, CURLcode code, const struct context *where,
                           const char *url, json_t **result)
{
    long status = 0;
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    x->status = status;
    if (interrupts_heard())
        return err_set(x->e, HP_ECANCELED, "interrupted");
    if (x->rc < 0)
        return x->rc;
    if (code != CURLE_OK) {
        curl_off_t connected = 0;
        curl_easy_getinfo(x->curl, CURLINFO_CONNECT_TIME_T, &connected);
        err_set(x->e, connected ? HP_ELINK : HP_ENOCLUSTER, "%s: %s", url,
                curl_easy_strerror(code));
        if (code == CURLE_PEER_FAILED_VERIFICATION)
            err_hint(x->e, "the API's certificate is of nobody whom this box trusts, or of another "
                           "name: HP_CA_FILE=FILE names a PEM file of its authority");
        else
            hint_where_to_look(where, x->e);
        return x->e->code;
    }
    json_t *value =
        status != 200 || !x->on_event ? http_json(buffer_cstr(&x->whole), x->whole.size) : NULL;
    int rc = status == 200 ? 0 : answer_refused(x, value);
    if (rc == 0 && x->on_event && !x->done)
        rc = err_set(x->e, HP_ELINK, "the answer broke off before its end: ask again");
    if (rc == 0 && result && !x->on_event)
        *result = json_incref(value);
    json_decref(value);
    return rc;
}

struct curl_slist *http_headers(const struct context *where)
{
    const char *own = getenv("HP_API_KEY"), *key = own && *own ? own : where->api_key;
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct buffer bearer = {0};
    if (*key) {
        buffer_printf(&bearer, "Authorization: Bearer %s", key);
        headers = curl_slist_append(headers, buffer_cstr(&bearer));
    }
    buffer_free(&bearer);
    return headers;
}

/* ---- exchanges ---- */

static void http_trust(CURL *curl, const struct context *where)
{
    const char *own = getenv("HP_CA_FILE"), *file = own && *own ? own : where->http_ca;
    if (*file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, file);
}

CURL *http_transfer(const struct context *where, curl_write_callback take, void *ctx)
{
    CURL *curl = curl_easy_init();
    if (!curl)
        return NULL;
    http_trust(curl, where);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, ctx);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, ctx);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    return curl;
}

static int health_ask(const struct context *where, struct err *e)
{
    char url[400];
    struct exchange x = {.e = e, .curl = curl_easy_init()};
    if (!x.curl)
        return err_no_memory(e, "a request");
    snprintf(url, sizeof url, "%s/health", where->http);
    curl_easy_setopt(x.curl, CURLOPT_URL, url);
    curl_easy_setopt(x.curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(x.curl, CURLOPT_WRITEDATA, &x);
    http_trust(x.curl, where);
    curl_easy_setopt(x.curl, CURLOPT_TIMEOUT_MS, 3000L);
    curl_easy_setopt(x.curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(x.curl, CURLOPT_NOPROXY, "*");
    int rc = exchange_finish(&x, curl_easy_perform(x.curl), where, url, NULL);
    curl_easy_cleanup(x.curl);
    buffer_free(&x.whole);
    sse_free(&x.stream);
    return rc;
}

static bool has_passed(uint64_t since_ns, int wait_ms)
{
    return (double)(env_now_ns(&env_real) - since_ns) * 1e-6 > wait_ms * env_time_scale();
}

static bool server_is_gone(struct exchange *x)
{
    struct err why = {0};
    if (!has_passed(x->heard_ns, SILENT_MS) || !has_passed(x->asked_ns, ASK_MS))
        return false;
    if (health_ask(x->where, &why) == 0)
        x->heard_ns = env_now_ns(&env_real);
    x->asked_ns = env_now_ns(&env_real);
    return has_passed(x->heard_ns, GONE_MS);
}

/* Called about once a second. */
static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct exchange *x = ctx;
    (void)a, (void)b, (void)c, (void)d;
    if (!interrupts_heard() && server_is_gone(x)) {
        x->rc = err_set(x->e, HP_ETIMEOUT, "%s: no sign of it for %.0f s", x->where->http,
                        GONE_MS * 1e-3 * env_time_scale());
        hint_where_to_look(x->where, x->e);
    }
    return interrupts_heard() || x->rc < 0;
}

/* One exchange, a GET where there is no text; Ctrl-C ends it. */
static int exchange_run(struct exchange *x, const struct context *where, const char *path,
                        const char *text, json_t **result)
{
    char url[400];
    struct curl_slist *headers = http_headers(where);
    struct sigaction before;
    snprintf(url, sizeof url, "%s%s", where->http, path);
    x->where = where;
    x->heard_ns = env_now_ns(&env_real);
    interrupts_hear(&before);
    curl_easy_setopt(x->curl, CURLOPT_URL, url);
    curl_easy_setopt(x->curl, CURLOPT_HTTPHEADER, headers);
    http_trust(x->curl, where);
    if (text)
        curl_easy_setopt(x->curl, CURLOPT_POSTFIELDS, text);
    curl_easy_setopt(x->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(x->curl, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(x->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(x->curl, CURLOPT_XFERINFODATA, x);
    curl_easy_setopt(x->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(x->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(x->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(x->curl, CURLOPT_NOPROXY, "*");
    int rc = exchange_finish(x, curl_easy_perform(x->curl), where, url, result);
    sigaction(SIGINT, &before, NULL);
    curl_slist_free_all(headers);
    return rc;
}

int http_answers(const struct context *where, struct err *e)
{
    interrupts_forget();
    return health_ask(where, e);
}

int api_key_make(struct context *where, struct err *e)
{
    char host[40] = "box", name[64];
    struct client *client;
    json_t *made = NULL;
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "hpctl-%s-%08llx", host,
             (unsigned long long)(env_random_u64(&env_real) & 0xffffffff));
    int rc = client_open(where->name, &client, e);
    if (rc < 0)
        return rc;
    rc = client_get(client, "key.create", json_pack("{s:s}", "name", name), &made, e);
    client_close(&client);
    const char *key = rc == 0 ? json_string_value(json_object_get(made, "key")) : NULL;
    if (rc == 0 && (!key || strlen(key) >= sizeof where->api_key))
        rc = err_set(e, HP_EPROTO, "the coordinator made no API key");
    if (rc == 0) {
        snprintf(where->api_key, sizeof where->api_key, "%s", key);
        rc = context_save(where, false, e);
    }
    json_decref(made);
    return rc;
}

/* An exchange, and once more with a key of our own where the API wants one and there was none. */
static int http_ask(struct context *where, const char *path, const char *text,
                    http_event_fn on_event, void *ctx, json_t **result, struct err *e)
{
    struct exchange x = {.on_event = on_event, .ctx = ctx, .e = e, .curl = curl_easy_init()};
    int rc = x.curl ? exchange_run(&x, where, path, text, result) : err_no_memory(e, "a request");
    const char *own = getenv("HP_API_KEY");
    if (rc == HP_EDENIED && x.status == 401 && !(own && *own) && !interrupts_heard() &&
        (rc = api_key_make(where, e)) == 0) {
        x.whole.size = 0;
        sse_free(&x.stream);
        *e = (struct err){0};
        rc = exchange_run(&x, where, path, text, result);
    }
    if (x.curl)
        curl_easy_cleanup(x.curl);
    buffer_free(&x.whole);
    sse_free(&x.stream);
    return rc;
}

int http_post(struct context *where, const char *path, json_t *body, http_event_fn on_event,
              void *ctx, json_t **result, struct err *e)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    int rc = text ? http_ask(where, path, text, on_event, ctx, result, e)
                  : err_no_memory(e, "a request");
    free(text);
    return rc;
}

int http_get(struct context *where, const char *path, json_t **result, struct err *e)
{
    return http_ask(where, path, NULL, NULL, NULL, result, e);
}
