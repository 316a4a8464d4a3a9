#include "coordinator/gateway/kserve.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/suggestion.h"
#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/json_write.h"

enum { MODEL_NAME_BYTES = 256 };

/* ---- answers ---- */

static void json_reply(struct http_exchange *x, int status, struct buffer *body)
{
    if (body->failed)
        http_reply(x, 503, "application/json", "{\"error\":\"no memory\"}", 21);
    else
        http_reply(x, status, "application/json", body->data, body->size);
    buffer_free(body);
}

void kserve_error(struct http_exchange *x, int http_status, const char *text)
{
    struct buffer out = {0};
    buffer_printf(&out, "{\"error\":");
    json_write_text(&out, text);
    buffer_printf(&out, "}");
    json_reply(x, http_status, &out);
}

static int status_of(int code)
{
    switch (code) {
    case HP_EINVAL:
    case HP_EPARSE:
    case HP_EUNSUPPORTED: return 400;
    case HP_EDENIED: return 403;
    case HP_ENOENT: return 404;
    case HP_ELIMIT: return 413;
    case HP_ERATE:
    case HP_EQUOTA:
    case HP_ETIMEOUT: return 429;
    case HP_ELINK:
    case HP_EBUSY:
    case HP_ENOMEM:
    case HP_ECANCELED: return 503;
    default: return 500;
    }
}

void kserve_fail(struct http_exchange *x, const struct err *e, uint32_t retry_after_s)
{
    char seconds[16];
    int status = status_of(e->code);
    snprintf(seconds, sizeof seconds, "%u", retry_after_s);
    if (status == 429 || status == 503)
        http_header(x, "Retry-After", seconds);
    kserve_error(x, status, e->text);
}

void kserve_answer(struct http_exchange *x, struct buffer *answer, size_t json_bytes)
{
    char length[32];
    bool binary = json_bytes < answer->size;
    snprintf(length, sizeof length, "%zu", json_bytes);
    if (answer->failed) {
        kserve_error(x, 503, "no memory for the answer");
    } else {
        if (binary)
            http_header(x, "Inference-Header-Content-Length", length);
        if (!http_reply_large(x, 200, binary ? "application/octet-stream" : "application/json",
                              answer))
            kserve_error(x, 503, "too many answers wait for their clients to take them");
    }
    buffer_free(answer);
}

/* ---- paths ---- */

enum kserve_verb {
    KSERVE_NONE,
    KSERVE_SERVER,
    KSERVE_LIVE,
    KSERVE_SERVER_READY,
    KSERVE_INDEX,
    KSERVE_STATISTICS,
    KSERVE_METADATA,
    KSERVE_CONFIG,
    KSERVE_READY,
    KSERVE_MODEL_STATISTICS,
    KSERVE_INFER
};

struct kserve_path {
    enum kserve_verb verb;
    bool post;
    char model[MODEL_NAME_BYTES]; /* "": of none */
    const char *version;          /* NULL: none is named */
};

static const struct {
    const char *path;
    enum kserve_verb verb;
    bool post;
} server_paths[] =
    {
        {"/v2", KSERVE_SERVER, false},
        {"/v2/health/live", KSERVE_LIVE, false},
        {"/v2/health/ready", KSERVE_SERVER_READY, false},
        {"/v2/models/stats", KSERVE_STATISTICS, false},
        {"/v2/repository/index", KSERVE_INDEX, true},
},
  model_paths[] = {
      {"", KSERVE_METADATA, false},    {"/config", KSERVE_CONFIG, false},
      {"/ready", KSERVE_READY, false}, {"/stats", KSERVE_MODEL_STATISTICS, false},
      {"/infer", KSERVE_INFER, true},
};

static struct kserve_path path_read(const char *path)
{
    static const char below[] = "/v2/models/", versions[] = "/versions/";
    struct kserve_path p = {0};
    if (strcmp(path, "/v2/") == 0)
        path = "/v2";
    for (size_t i = 0; i < sizeof server_paths / sizeof *server_paths; i++)
        if (strcmp(path, server_paths[i].path) == 0) {
            p.verb = server_paths[i].verb;
            p.post = server_paths[i].post;
            return p;
        }
    if (strncmp(path, below, sizeof below - 1) != 0)
        return p;
    const char *name = path + sizeof below - 1, *rest = name + strcspn(name, "/");
    if (rest == name || rest - name >= MODEL_NAME_BYTES)
        return p;
    memcpy(p.model, name, (size_t)(rest - name));
    if (strncmp(rest, versions, sizeof versions - 1) == 0) {
        p.version = rest + sizeof versions - 1;
        rest = p.version + strcspn(p.version, "/");
    }
    for (size_t i = 0; i < sizeof model_paths / sizeof *model_paths; i++)
        if (strcmp(rest, model_paths[i].path) == 0) {
            p.verb = model_paths[i].verb;
            p.post = model_paths[i].post;
        }
    return p;
}

const struct infer_model *kserve_model_find(const struct kserve_backend *k, const char *client,
                                            const char *name)
{
    const struct infer_model *models[KSERVE_MAX_MODELS];
    int n = k->models(k->ctx, client, models);
    for (int i = 0; i < n; i++)
        if (strcmp(models[i]->name, name) == 0)
            return models[i];
    return NULL;
}

int kserve_model_missing(const struct kserve_backend *k, const char *client, const char *name,
                         struct err *e)
{
    const struct infer_model *models[KSERVE_MAX_MODELS];
    struct suggestion near = {0};
    int n = k->models(k->ctx, client, models);
    for (int i = 0; i < n; i++)
        suggestion_try(&near, name, models[i]->name);
    return near.best ? err_set(e, HP_ENOENT, "there is no model \"%.200s\"; did you mean \"%s\"?",
                               name, near.best)
                     : err_set(e, HP_ENOENT, "there is no model \"%.200s\"", name);
}

int kserve_model_ready(const struct kserve_backend *k, const struct infer_model *m, struct err *e)
{
    return k->ready ? k->ready(k->ctx, m, e) : 0;
}

int kserve_server_ready(const struct kserve_backend *k, struct err *e)
{
    const struct infer_model *models[KSERVE_MAX_MODELS];
    int n = k->models(k->ctx, NULL, models), lacking = 0;
    for (int i = 0; i < n; i++)
        lacking += kserve_model_ready(k, models[i], NULL) < 0;
    return lacking ? err_set(e, HP_EBUSY, "%d of %d models are not ready", lacking, n) : 0;
}

/* Whether the model that the path names is for the client, and there. */
static bool model_check(const struct kserve_backend *k, struct http_exchange *x, const char *client,
                        const char *name)
{
    struct err e = {0};
    int rc = k->may_use ? k->may_use(k->ctx, client, name, &e) : 0;
    if (rc == 0 && !kserve_model_find(k, client, name))
        rc = kserve_model_missing(k, client, name, &e);
    if (rc < 0)
        kserve_fail(x, &e, 1);
    return rc == 0;
}

static void path_name(struct buffer *out, bool post, const char *below, const char *path)
{
    buffer_printf(out, "%s%s %s%s", out->size ? ", " : "", post ? "POST" : "GET", below, path);
}

static void nothing_reply(struct http_exchange *x, const char *path)
{
    struct buffer known = {0}, text = {0};
    for (size_t i = 0; i < sizeof server_paths / sizeof *server_paths; i++)
        path_name(&known, server_paths[i].post, "", server_paths[i].path);
    for (size_t i = 0; i < sizeof model_paths / sizeof *model_paths; i++)
        path_name(&known, model_paths[i].post, "/v2/models/NAME", model_paths[i].path);
    buffer_printf(&text, "there is nothing at %.160s; KServe's v2 protocol has %s", path,
                  buffer_cstr(&known));
    kserve_error(x, 404, buffer_cstr(&text));
    buffer_free(&known);
    buffer_free(&text);
}

/* True: the request names a model that is there, or none. */
static bool path_check(const struct kserve_backend *k, struct http_exchange *x,
                       const struct kserve_path *p, const struct http_request *r,
                       const char *client)
{
    char text[480];
    bool is_post = strcmp(r->method, "POST") == 0;
    if (p->verb == KSERVE_NONE) {
        nothing_reply(x, r->path);
    } else if (is_post != p->post ||
               (!is_post && strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0)) {
        http_header(x, "Allow", p->post ? "POST" : "GET, HEAD");
        snprintf(text, sizeof text, "%.160s takes %s, not %.16s", r->path, p->post ? "POST" : "GET",
                 r->method);
        kserve_error(x, 405, text);
    } else if (p->model[0] && !model_check(k, x, client, p->model)) {
        return false;
    } else if (p->version && (strcspn(p->version, "/") != 1 || p->version[0] != '1')) {
        snprintf(text, sizeof text, "model \"%.200s\" has version 1 alone", p->model);
        kserve_error(x, 404, text);
    } else {
        return true;
    }
    return false;
}

uint64_t kserve_begin(const struct kserve_backend *k, struct http_exchange *x,
                      const struct http_request *r, const char *client)
{
    struct kserve_path p = path_read(r->path);
    if (!path_check(k, x, &p, r, client))
        return 0;
    return p.verb == KSERVE_INFER ? infer_body_limit(kserve_model_find(k, client, p.model))
                                  : KSERVE_BODY_BYTES;
}

/* ---- what is there ---- */

static void server_reply(struct http_exchange *x)
{
    struct buffer out = {0};
    buffer_printf(&out, "{\"name\":\"" KSERVE_SERVER_NAME "\",\"version\":\"" HP_VERSION
                        "\",\"extensions\":[\"binary_tensor_data\",\"model_configuration\","
                        "\"model_repository\",\"statistics\"]}");
    json_reply(x, 200, &out);
}

/* Whether {"ready": true} asks for models alone that are ready. */
static int index_read(struct http_exchange *x, bool *ready_alone, struct err *e)
{
    struct buffer body = http_take_body(x);
    json_t *root = NULL;
    int rc =
        body.size ? body_measure_load_tensors((const char *)body.data, body.size, &root, e) : 0;
    const json_t *ready = json_object_get(root, "ready");
    *ready_alone = json_is_true(ready);
    if (rc == 0 && ready && !json_is_boolean(ready))
        rc = err_set(e, HP_EINVAL, "ready: must be true or false");
    json_decref(root);
    buffer_free(&body);
    return rc;
}

static void index_reply(const struct kserve_backend *k, struct http_exchange *x, const char *client)
{
    const struct infer_model *models[KSERVE_MAX_MODELS];
    struct buffer out = {0};
    struct err wrong = {0};
    bool ready_alone;
    if (index_read(x, &ready_alone, &wrong) < 0) {
        kserve_fail(x, &wrong, 1);
        return;
    }
    int n = k->models(k->ctx, client, models), said = 0;
    buffer_printf(&out, "[");
    for (int i = 0; i < n; i++) {
        struct err why = {0};
        bool ready = kserve_model_ready(k, models[i], &why) == 0;
        if (ready_alone && !ready)
            continue;
        buffer_printf(&out, "%s{\"name\":", said++ ? "," : "");
        json_write_text(&out, models[i]->name);
        buffer_printf(
            &out, ",\"version\":\"1\",\"state\":\"%s\",\"reason\":", ready ? "READY" : "LOADING");
        json_write_text(&out, why.text);
        buffer_printf(&out, "}");
    }
    buffer_printf(&out, "]");
    json_reply(x, 200, &out);
}

static void count_write(struct buffer *out, const char *name, const struct kserve_count *c)
{
    buffer_printf(out, "\"%s\":{\"count\":%llu,\"ns\":%llu}", name, (unsigned long long)c->count,
                  (unsigned long long)c->ns);
}

static void statistics_write(const struct kserve_backend *k, const struct infer_model *m,
                             struct buffer *out)
{
    const struct kserve_statistics s = k->statistics(k->ctx, m);
    const struct {
        const char *name;
        const struct kserve_count *count;
    } counts[] = {{"success", &s.success},       {"fail", &s.fail},
                  {"queue", &s.queue},           {"compute_input", &s.input},
                  {"compute_infer", &s.compute}, {"compute_output", &s.output}};
    buffer_printf(out, "{\"name\":");
    json_write_text(out, m->name);
    buffer_printf(out,
                  ",\"version\":\"1\",\"last_inference\":%llu,\"inference_count\":%llu,"
                  "\"execution_count\":%llu,\"inference_stats\":{",
                  (unsigned long long)s.last_ms, (unsigned long long)s.inferences,
                  (unsigned long long)(s.executions ? s.executions : s.success.count));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        buffer_printf(out, "%s", i ? "," : "");
        count_write(out, counts[i].name, counts[i].count);
    }
    buffer_printf(out, "},\"batch_stats\":[]}");
}

static void statistics_reply(const struct kserve_backend *k, struct http_exchange *x,
                             const char *client, const char *name)
{
    const struct infer_model *models[KSERVE_MAX_MODELS];
    struct buffer out = {0};
    int n = k->models(k->ctx, client, models), said = 0;
    buffer_printf(&out, "{\"model_stats\":[");
    for (int i = 0; i < n; i++)
        if (!name[0] || strcmp(name, models[i]->name) == 0) {
            buffer_printf(&out, "%s", said++ ? "," : "");
            statistics_write(k, models[i], &out);
        }
    buffer_printf(&out, "]}");
    json_reply(x, 200, &out);
}

/* ---- requests ---- */

/* Inference-Header-Content-Length, or SIZE_MAX. */
static bool inference_bytes_read(const char *text, size_t *out)
{
    char *end = NULL;
    *out = SIZE_MAX;
    if (!text)
        return true;
    errno = 0;
    unsigned long long n = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    if (!end || *end || errno != 0 || n >= SIZE_MAX)
        return false;
    *out = (size_t)n;
    return true;
}

static void infer_begin(const struct kserve_backend *k, struct http_exchange *x, const char *client,
                        const char *name)
{
    size_t json_bytes;
    const struct infer_model *m = kserve_model_find(k, client, name);
    if (!m)
        kserve_error(x, 404, "the model is not there any more");
    else if (!inference_bytes_read(http_request_of(x)->inference_bytes, &json_bytes))
        kserve_error(x, 400, "Inference-Header-Content-Length is not a number of bytes");
    else
        k->infer(k->ctx, x, m, client, json_bytes);
}

/* A document about one model. */
static void about_reply(const struct kserve_backend *k, struct http_exchange *x, const char *client,
                        const char *name,
                        void (*write)(const struct infer_model *m, struct buffer *out))
{
    struct buffer out = {0};
    const struct infer_model *m = kserve_model_find(k, client, name);
    if (!m) {
        kserve_error(x, 404, "the model is not there any more");
        return;
    }
    write(m, &out);
    json_reply(x, 200, &out);
}

/* `name` NULL: all models are asked about. */
static void ready_reply(const struct kserve_backend *k, struct http_exchange *x, const char *client,
                        const char *name)
{
    struct err why = {0};
    const struct infer_model *m = name ? kserve_model_find(k, client, name) : NULL;
    int rc = !name ? kserve_server_ready(k, &why)
             : m   ? kserve_model_ready(k, m, &why)
                   : err_set(&why, HP_EBUSY, "the model is not there any more");
    if (rc == 0)
        http_reply(x, 200, "application/json", "{}", 2);
    else
        kserve_fail(x, &why, 1);
}

void kserve_request(const struct kserve_backend *k, struct http_exchange *x,
                    const struct http_request *r, const char *client)
{
    struct kserve_path p = path_read(r->path);
    switch (p.verb) {
    case KSERVE_SERVER: server_reply(x); break;
    case KSERVE_INDEX: index_reply(k, x, client); break;
    case KSERVE_STATISTICS:
    case KSERVE_MODEL_STATISTICS: statistics_reply(k, x, client, p.model); break;
    case KSERVE_METADATA: about_reply(k, x, client, p.model, infer_metadata_write); break;
    case KSERVE_CONFIG: about_reply(k, x, client, p.model, infer_config_write); break;
    case KSERVE_INFER: infer_begin(k, x, client, p.model); break;
    case KSERVE_READY: ready_reply(k, x, client, p.model); break;
    case KSERVE_SERVER_READY: ready_reply(k, x, client, NULL); break;
    case KSERVE_LIVE:
    case KSERVE_NONE: http_reply(x, 200, "application/json", "{}", 2);
    }
}
