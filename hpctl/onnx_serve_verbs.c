/* `hpctl model serve`: an ONNX model behind the KServe v2 protocol, on this machine without a
 * cluster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "agent/backend/cpu/threads.h"
#include "agent/engine/network/network_engine.h"
#include "common/env.h"
#include "common/host_limits.h"
#include "common/json.h"
#include "coordinator/gateway/kserve.h"
#include "coordinator/gateway/listen_address.h"
#include "coordinator/gateway/origin.h"
#include "hpctl/onnx_jobs.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"
#include "model/onnx/network.h"

enum {
    FREE_INPUT_BYTES = 64 << 20, /* of all inputs, where the model leaves sizes free */
    BODIES_AT_ONCE = 8,
    STOP_MS = 5000,  /* what runs has to come to its end when the server ends */
    FLUSH_MS = 1000, /* that clients have to take their answers when it ends */
    NAME_BYTES = 200,
    SLO_MOST_S = 1000000
};

struct onnx_serve {
    struct threads *threads;
    struct onnx_network *network; /* NULL once the engine has it */
    char name[NAME_BYTES];
    struct infer_model model;
    struct onnx_jobs jobs;
    struct kserve_backend backend;
    struct http_server *http;
    uv_loop_t loop;
    uv_signal_t stop_signals[2];
};

static void backend_infer(void *ctx, struct http_exchange *x, const struct infer_model *m,
                          const char *client, size_t json_bytes)
{
    (void)m, (void)client; /* there is one model, for everybody */
    onnx_jobs_take(&((struct onnx_serve *)ctx)->jobs, x, json_bytes);
}

static int backend_models(void *ctx, const char *client, const struct infer_model **out)
{
    (void)client; /* there are no keys */
    out[0] = &((struct onnx_serve *)ctx)->model;
    return 1;
}

static struct kserve_statistics backend_statistics(void *ctx, const struct infer_model *m)
{
    (void)m; /* there is one */
    return ((struct onnx_serve *)ctx)->jobs.statistics;
}

/* ---- who may ask ---- */

/* Pages of other sites do not: a browser sends forms and plain text to anybody without asking. */
static const char *stranger_why(const struct http_request *r)
{
    static const struct origin_names none = {0};
    static const char *const types[] = {"application/json", "application/octet-stream"};
    size_t n = r->content_type ? strcspn(r->content_type, "; \t") : 0;
    if ((r->host && !host_is_own(r->host, &none)) ||
        (r->origin && !origin_is_own(r->origin, &none)))
        return "pages of other hosts may not use this server";
    for (size_t i = 0; r->content_type && i < sizeof types / sizeof *types; i++)
        if (strlen(types[i]) == n && strncasecmp(types[i], r->content_type, n) == 0)
            return NULL;
    return r->content_type && strcmp(r->method, "POST") == 0
               ? "Content-Type must be application/json or application/octet-stream"
               : NULL;
}

static uint64_t on_begin(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    struct onnx_serve *s = ctx;
    const char *why = stranger_why(r), *encoded = http_encoding_why(r);
    if (!why && !encoded)
        return kserve_begin(&s->backend, x, r, NULL);
    kserve_error(x, why ? 403 : 415, why ? why : encoded);
    return 0;
}

static void on_request(void *ctx, struct http_exchange *x, const struct http_request *r)
{
    kserve_request(&((struct onnx_serve *)ctx)->backend, x, r, NULL);
}

static void on_refused(void *ctx, struct http_exchange *x, int http_status, const char *why)
{
    char text[256];
    struct onnx_serve *s = ctx;
    snprintf(text, sizeof text, "%s: up to %llu bytes are taken", why,
             (unsigned long long)infer_body_limit(&s->model));
    kserve_error(x, http_status, http_status == 413 ? text : why);
}

/* ---- start and end ---- */

static void tensors_fill(const struct onnx *o, const int *values, int n, struct infer_tensor *out)
{
    for (int i = 0; i < n; i++) {
        const struct onnx_value *v = &o->values[values[i]];
        out[i] = (struct infer_tensor){.name = v->name, .type = v->type, .n_dims = v->n_dims};
        if (v->n_dims > ND_DIMS_MAX)
            out[i].n_dims = -1;
        for (int d = 0; d < out[i].n_dims; d++)
            out[i].dims[d] = v->dims[d].size;
    }
}

/* What a request's inputs may have: what they have where the model says it, else a bound. */
static uint64_t inputs_limit(const struct infer_model *m)
{
    uint64_t all = 0;
    for (int i = 0; i < m->n_inputs; i++) {
        struct ndarray a;
        const struct infer_tensor *t = &m->inputs[i];
        if (t->type == 0 || ndarray_shape(&a, t->type, t->n_dims, t->dims, NULL) < 0)
            return FREE_INPUT_BYTES;
        all += ndarray_bytes(&a);
        if (all > FREE_INPUT_BYTES)
            return all > UINT32_MAX ? UINT32_MAX : all;
    }
    return all;
}

static int model_fill(struct onnx_serve *s, struct err *e)
{
    const struct onnx *o = network_onnx(s->network);
    struct infer_tensor *inputs = calloc((size_t)o->n_inputs + 1, sizeof *inputs);
    struct infer_tensor *outputs = calloc((size_t)o->n_outputs + 1, sizeof *outputs);
    s->model = (struct infer_model){.name = s->name,
                                    .inputs = inputs,
                                    .outputs = outputs,
                                    .n_inputs = o->n_inputs,
                                    .n_outputs = o->n_outputs};
    s->jobs.model = &s->model;
    s->jobs.outputs = calloc((size_t)o->n_outputs + 1, sizeof *s->jobs.outputs);
    if (!inputs || !outputs || !s->jobs.outputs)
        return err_no_memory(e, "a model's tensors");
    tensors_fill(o, o->inputs, o->n_inputs, inputs);
    tensors_fill(o, o->outputs, o->n_outputs, outputs);
    s->model.limit_bytes = inputs_limit(&s->model);
    return 0;
}

static int name_read(const struct invocation *in, char name[NAME_BYTES], struct err *e)
{
    const char *file = strrchr(in->arguments[0], '/');
    file = file ? file + 1 : in->arguments[0];
    const char *given = invocation_option_or(in, "name", file);
    size_t n = strlen(given);
    if (given == file && n > 5 && strcmp(file + n - 5, ".onnx") == 0)
        n -= 5;
    if (n == 0 || n >= NAME_BYTES || memchr(given, '/', n))
        return err_set(e, HP_EUSAGE, "--name: a name has 1 to %d bytes and no \"/\"",
                       NAME_BYTES - 1);
    snprintf(name, NAME_BYTES, "%.*s", (int)n, given);
    return 0;
}

static int serve_open(const struct invocation *in, struct onnx_serve *s, struct err *e)
{
    uint64_t memory, threads;
    double slo_s = 0;
    int rc = invocation_u64(in, "waiting", 64, &s->jobs.most_waiting, e);
    rc = rc < 0 ? rc
                : invocation_range(in, "threads", (uint64_t)threads_possible(), 1, THREADS_MAX,
                                   &threads, e);
    rc = rc < 0 ? rc : invocation_duration(in, "slo", 0, &slo_s, e);
    s->jobs.slo_ns = (uint64_t)(slo_s < SLO_MOST_S ? slo_s * 1e9 : SLO_MOST_S * 1e9);
    rc = rc < 0 ? rc : name_read(in, s->name, e);
    if (!host_memory_free("", &memory))
        memory = host_memory_default();
    rc = rc < 0 ? rc : network_open(in->arguments[0], memory, &s->network, e);
    rc = rc < 0 ? rc : model_fill(s, e);
    if (rc == 0)
        network_stop_on(s->network, &s->jobs.gives_up);
    rc = rc < 0 ? rc : threads_create((int)threads, NULL, 0, &s->threads, e);
    return rc < 0 ? rc : network_engine_open(&s->network, s->threads, NULL, &s->jobs.engine, e);
}

static void serve_close(struct onnx_serve *s)
{
    free(s->jobs.outputs);
    free((void *)(uintptr_t)s->model.inputs);
    free((void *)(uintptr_t)s->model.outputs);
    network_engine_close(&s->jobs.engine);
    network_close(&s->network);
    threads_destroy(&s->threads);
}

/* What waits is refused; what runs is answered before the program ends, if that takes no longer
 * than STOP_MS. */
static void on_signal(uv_signal_t *signal, int number)
{
    struct onnx_serve *s = signal->data;
    (void)number; /* both stop it */
    onnx_jobs_stop(&s->jobs);
    uv_stop(&s->loop);
}

static int started_print(const struct invocation *in, const struct onnx_serve *s, const char *host,
                         struct err *e)
{
    char at[HOST_BYTES + 32];
    bool is_v6 = strchr(host, ':') != NULL;
    snprintf(at, sizeof at, "http://%s%s%s:%d", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
             http_port(s->http));
    int rc = 0;
    if (in->json || in->output)
        rc = invocation_print_json(
            in, json_pack("{s:s, s:o}", "http", at, "model", json_text(s->name)), e);
    else
        printf("%s is served at %s/v2/models/%s; ^C ends it\n", in->arguments[0], at, s->name);
    fflush(stdout);
    return rc;
}

static int signals_start(struct onnx_serve *s, struct err *e)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        s->stop_signals[i].data = s;
        if (uv_signal_init(&s->loop, &s->stop_signals[i]) < 0 ||
            uv_signal_start(&s->stop_signals[i], on_signal, numbers[i]) < 0)
            return err_set(e, HP_EIO, "signals cannot be waited for");
    }
    return 0;
}

static void on_walk(uv_handle_t *handle, void *ctx)
{
    (void)ctx; /* nothing is left of what it would be for */
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* What runs is computed to its end, and clients take what was answered, for a while. */
static void answers_flush(struct onnx_serve *s)
{
    uint64_t now = env_now_ns(&env_real), stop_ns = now + STOP_MS * 1000000ull,
             until_ns = now + FLUSH_MS * 1000000ull;
    while (s->jobs.running || (http_figures(s->http).exchanges > 0 && now < until_ns)) {
        now = env_now_ns(&env_real);
        if (now > stop_ns)
            atomic_store(&s->jobs.gives_up, true);
        uv_run(&s->loop, UV_RUN_NOWAIT);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

static int serve_run(const struct invocation *in, struct onnx_serve *s, struct err *e)
{
    char host[HOST_BYTES];
    int port = 0;
    int rc = listen_address_read(invocation_option_or(in, "listen", "127.0.0.1:0"), host, &port, e);
    if (rc < 0)
        return rc;
    if (!host_is_loopback(host))
        return err_set(e, HP_EUSAGE,
                       "--listen: %s is not of loopback: this server asks nobody for a key", host);
    if (uv_loop_init(&s->loop) < 0)
        return err_no_memory(e, "a loop");
    struct http_handler handler = {s, on_begin, on_request, on_refused, NULL};
    struct http_limits limits = {.bodies_bytes = BODIES_AT_ONCE * infer_body_limit(&s->model)};
    s->jobs.loop = &s->loop;
    s->backend = (struct kserve_backend){.ctx = s,
                                         .models = backend_models,
                                         .statistics = backend_statistics,
                                         .infer = backend_infer};
    rc = signals_start(s, e);
    rc = rc < 0 ? rc : http_start(&s->loop, host, port, &limits, NULL, &handler, &s->http, e);
    rc = rc < 0 ? rc : started_print(in, s, host, e);
    if (rc == 0)
        uv_run(&s->loop, UV_RUN_DEFAULT);
    if (s->http)
        answers_flush(s);
    if (s->http)
        http_stop(&s->http);
    uv_walk(&s->loop, on_walk, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    return rc;
}

static int serve_verb(struct invocation *in, struct err *e)
{
    struct onnx_serve s = {0};
    int rc = serve_open(in, &s, e);
    rc = rc < 0 ? rc : serve_run(in, &s, e);
    serve_close(&s);
    return rc;
}

static const struct command_option serve_options[] = {
    {"name", "NAME", "the model's name in paths (the file's stem)", 0},
    {"listen", "HOST:PORT", "an address of loopback; port 0 is any free one (127.0.0.1:0)", 0},
    {"threads", "N", "threads to compute with (as many as cores)", 0},
    {"waiting", "N", "requests that may wait; more are answered with 503 (64)", 0},
    {"slo", "TIME",
     "a request that by what was measured would take longer, waiting included, is refused at once "
     "with 429, e.g. 50ms (none)",
     0},
    {0},
};

const struct command onnx_serve_verbs[] = {
    {.path = "model serve",
     .arguments = "MODEL.onnx",
     .min_arguments = 1,
     .max_arguments = 1,
     .summary = "an ONNX model over HTTP, by the KServe v2 protocol",
     .details = "Serves on this machine alone, until it is interrupted: metadata, readiness, "
                "infer with JSON and with binary tensors, repository index and statistics, below "
                "/v2. Requests run one after the other; with --slo, or a timeout of their own, "
                "those that would be late are refused. tritonclient[http] works as it is.",
     .examples = "  hpctl model serve resnet50.onnx --listen 127.0.0.1:8000\n"
                 "  hpctl model serve resnet50.onnx --name resnet --slo 50ms -o json",
     .options = serve_options,
     .run = serve_verb},
    {0},
};
