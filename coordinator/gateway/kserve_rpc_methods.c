#include <inttypes.h>
#include <string.h>

#include "coordinator/gateway/kserve_rpc_int.h"
#include "coordinator/gateway/protobuf_write.h"
#include "model/files/protobuf.h"

static const char service[] = "/inference.GRPCInferenceService/";

/* ---- answers ---- */

static void write_live(const struct kserve_asked *a, struct buffer *out)
{
    (void)a;
    pb_put_number(out, 1, true);
}

static void write_server_ready(const struct kserve_asked *a, struct buffer *out)
{
    pb_put_number(out, 1, kserve_server_ready(a->kserve, NULL) == 0);
}

/* As Triton: what is not there is not ready, and no error. */
static void write_ready(const struct kserve_asked *a, struct buffer *out)
{
    pb_put_number(out, 1, a->m && kserve_model_ready(a->kserve, a->m, NULL) == 0);
}

static void write_server(const struct kserve_asked *a, struct buffer *out)
{
    static const char *const extensions[] = {"model_repository", "model_configuration",
                                             "statistics"};
    (void)a;
    pb_put_text(out, 1, KSERVE_SERVER_NAME);
    pb_put_text(out, 2, HP_VERSION);
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        pb_put_text(out, 3, extensions[i]);
}

static void write_metadata(const struct kserve_asked *a, struct buffer *out)
{
    infer_message_metadata(a->m, out);
}

static void write_config(const struct kserve_asked *a, struct buffer *out)
{
    infer_message_config(a->m, out);
}

/* RepositoryIndexRequest.ready: models alone that are. */
static bool index_is_of_ready(const struct buffer *message)
{
    struct pb p = pb_of(message->size ? message->data : (const uint8_t *)"", message->size);
    struct pb_field f;
    bool ready = false;
    while (pb_next(&p, &f))
        if (f.number == 2 && f.wire == PB_VARINT)
            ready = f.value != 0;
    return ready;
}

static void write_index(const struct kserve_asked *a, struct buffer *out)
{
    const struct infer_model *models[KSERVE_MAX_MODELS];
    int n = a->kserve->models(a->kserve->ctx, a->client, models);
    bool ready_alone = index_is_of_ready(a->message);
    for (int i = 0; i < n; i++) {
        struct err why = {0};
        bool ready = kserve_model_ready(a->kserve, models[i], &why) == 0;
        struct buffer row = {0};
        if (ready_alone && !ready)
            continue;
        pb_put_text(&row, 1, models[i]->name);
        pb_put_text(&row, 2, "1");
        pb_put_text(&row, 3, ready ? "READY" : "LOADING");
        pb_put_text(&row, 4, why.text);
        pb_put_message(out, 1, &row);
    }
}

static void count_write(struct buffer *out, uint32_t field, const struct kserve_count *c)
{
    struct buffer duration = {0};
    pb_put_number(&duration, 1, c->count);
    pb_put_number(&duration, 2, c->ns);
    pb_put_message(out, field, &duration);
}

static void model_statistics_write(const struct kserve_backend *k, const struct infer_model *m,
                                   struct buffer *out)
{
    const struct kserve_statistics s = k->statistics(k->ctx, m);
    const struct kserve_count *const counts[] = {&s.success, &s.fail,    &s.queue,
                                                 &s.input,   &s.compute, &s.output};
    struct buffer row = {0}, all = {0};
    for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++)
        count_write(&all, i + 1, counts[i]);
    pb_put_text(&row, 1, m->name);
    pb_put_text(&row, 2, "1");
    pb_put_number(&row, 3, s.last_ms);
    pb_put_number(&row, 4, s.inferences);
    pb_put_number(&row, 5, s.executions ? s.executions : s.success.count);
    pb_put_message(&row, 6, &all);
    pb_put_message(out, 1, &row);
}

static void write_statistics(const struct kserve_asked *a, struct buffer *out)
{
    const struct infer_model *models[KSERVE_MAX_MODELS];
    int n = a->kserve->models(a->kserve->ctx, a->client, models);
    for (int i = 0; i < n; i++)
        if (!a->m || strcmp(a->m->name, models[i]->name) == 0)
            model_statistics_write(a->kserve, models[i], out);
}

/* ---- methods ---- */

static const struct kserve_method methods[] = {
    {"ServerLive", .open = true, .answer = write_live},
    {"ServerReady", .open = true, .answer = write_server_ready},
    {"ServerMetadata", .answer = write_server},
    {"ModelReady", NAMES_ANY, .answer = write_ready},
    {"ModelMetadata", NAMES_ONE, .answer = write_metadata},
    {"ModelConfig", NAMES_ONE, .answer = write_config},
    {"ModelStatistics", NAMES_OR_NOT, .answer = write_statistics},
    {"RepositoryIndex", .answer = write_index},
    {"ModelInfer", NAMES_ONE, .counts = true},
};

const struct kserve_method *kserve_method_find(const char *path)
{
    if (!path || strncmp(path, service, sizeof service - 1) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(path + sizeof service - 1, methods[i].name) == 0)
            return &methods[i];
    return NULL;
}

void kserve_method_missing(const char *path, struct err *e)
{
    struct buffer names = {0};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        buffer_printf(&names, "%s%s", i ? ", " : "", methods[i].name);
    err_set(e, HP_EUNSUPPORTED, "there is no method %.160s; of %.*s there is %s", path ? path : "",
            (int)sizeof service - 3, service + 1, buffer_cstr(&names));
    buffer_free(&names);
}

/* As over HTTP: whether the model that the message names is for the client, there, and of that
 * version. */
static int model_check(const struct kserve_method *method, struct kserve_asked *a, struct err *e)
{
    const struct kserve_backend *k = a->kserve;
    const char *name = a->head->model;
    if (method->naming == NAMES_NONE || (method->naming == NAMES_OR_NOT && !name[0]))
        return 0;
    bool there = method->naming != NAMES_ANY,
         other = a->head->version[0] && strcmp(a->head->version, "1") != 0;
    int rc = k->may_use ? k->may_use(k->ctx, a->client, name, e) : 0;
    if (rc == 0 && !(a->m = kserve_model_find(k, a->client, name)) && there)
        rc = kserve_model_missing(k, a->client, name, e);
    if (rc == 0 && other && there)
        rc = err_set(e, HP_ENOENT, "model \"%.200s\" has version 1 alone", name);
    if (other)
        a->m = NULL;
    return rc;
}

static int size_check(const struct kserve_method *method, const struct infer_model *m, size_t size,
                      struct err *e)
{
    uint64_t most = method->answer ? KSERVE_BODY_BYTES : infer_body_limit(m);
    if (size <= most)
        return 0;
    return err_set(e, HP_ELIMIT,
                   "the request's message is too large: this request may have %" PRIu64 " bytes",
                   most);
}

int kserve_method_answer(const struct kserve_method *method, const struct kserve_backend *kserve,
                         const char *client, const struct buffer *message,
                         const struct infer_model **m, struct buffer *out, struct err *e)
{
    struct infer_message_head head = {0};
    struct kserve_asked asked = {kserve, client, message, &head, NULL};
    int rc = method->naming == NAMES_NONE ? 0 : infer_message_head(message, &head, e);
    rc = rc < 0 ? rc : model_check(method, &asked, e);
    rc = rc < 0 ? rc : size_check(method, asked.m, message->size, e);
    if (rc < 0)
        return rc;
    *m = asked.m;
    if (!method->answer)
        return HP_PENDING;
    method->answer(&asked, out);
    return 0;
}
