#include "hpctl/infer_run.h"

#include <curl/curl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "hpctl/http_client.h"
#include "hpctl/load_loop.h"
#include "hpctl/shown.h"

enum { HEAD_BYTES = 65536 };

/* One request under way. */
struct infer_stream {
    struct infer_driver *driver;
    struct infer_stream *next; /* of those that are idle */
    size_t index;              /* of the plan */
    CURL *curl;
    struct buffer head; /* of the answer: its JSON, and not all of the tensors behind it */
};

struct infer_driver {
    struct infer_run *run;
    struct load_loop loop;
    size_t next;                              /* of the plan, to be sent */
    struct curl_slist *headers[INFER_MODELS]; /* of a request */
    char urls[INFER_MODELS][600];
    struct infer_stream **streams; /* all that were made */
    struct infer_stream *idle;
    size_t n_streams;
};

static void result_close(struct infer_run *r, struct infer_result *to, enum load_outcome outcome,
                         const char *kind, const char *text)
{
    to->outcome = outcome;
    to->cause = load_cause_of(r->causes, &r->n_causes, kind, text);
}

/* ---- what comes ---- */

static void pair_read(const json_t *pair, double out[2])
{
    out[0] = json_number_value(json_array_get(pair, 0));
    out[1] = json_number_value(json_array_get(pair, 1));
}

static bool stages_read(struct infer_run *r, const json_t *stages, struct infer_result *to)
{
    const json_t *from;
    size_t i, n = json_array_size(stages);
    to->stages = arena_alloc(&r->arena, n + 1, sizeof *to->stages);
    if (!to->stages)
        return false;
    json_array_foreach(stages, i, from)
    {
        struct infer_stage *s = &to->stages[i];
        s->share = (int)number_member(from, "share");
        s->arrived_s = number_member(from, "arrived_s");
        pair_read(json_object_get(from, "planned_transfer_s"), s->planned_transfer_s);
        pair_read(json_object_get(from, "planned_s"), s->planned_s);
        pair_read(json_object_get(from, "ran_s"), s->ran_s);
    }
    to->n_stages = (int)n;
    return true;
}

/* Tensors follow the JSON. */
static json_t *head_json(const struct buffer *head)
{
    return json_loadb((const char *)head->data, head->size, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK,
                      NULL);
}

static void answer_read(struct infer_stream *s, struct infer_result *to)
{
    struct infer_run *r = s->driver->run;
    json_t *answer = head_json(&s->head), *t = json_object_get(answer, "timings");
    to->end_s = load_loop_now_s(&s->driver->loop);
    to->came_s = number_member(t, "at_s");
    to->batched_s = number_member(t, "sent_s");
    to->total_s = number_member(t, "total_s");
    to->plan = (uint64_t)number_member(t, "plan");
    to->batch = (uint32_t)number_member(t, "batch");
    to->samples = (int)number_member(t, "samples");
    if (!json_is_object(t))
        result_close(r, to, LOAD_FAILED, "answer", "it does not say what it took");
    else if (!stages_read(r, json_object_get(t, "stages"), to))
        result_close(r, to, LOAD_FAILED, "hpctl", "no memory for what an answer says");
    else
        to->outcome = LOAD_DONE;
    json_decref(answer);
}

static void answer_refused(struct infer_stream *s, struct infer_result *to, long status)
{
    char kind[48];
    struct err why = {0};
    json_t *answer = head_json(&s->head);
    int rc = http_error_of(answer, status, &why);
    snprintf(kind, sizeof kind, "%ld %s", status,
             strncmp(why.text, "too late", 8) == 0 ? "too late" : status_word(rc));
    to->end_s = load_loop_now_s(&s->driver->loop);
    result_close(s->driver->run, to, LOAD_REFUSED, kind, why.text);
    json_decref(answer);
}

static void stream_finish(struct infer_stream *s, CURLcode code)
{
    struct infer_driver *d = s->driver;
    struct infer_result *to = &d->run->results[s->index];
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        result_close(d->run, to, LOAD_FAILED, "connection", curl_easy_strerror(code));
    else if (status == 200)
        answer_read(s, to);
    else
        answer_refused(s, to, status);
    curl_multi_remove_handle(d->loop.multi, s->curl);
    d->loop.n_open--;
    s->next = d->idle;
    d->idle = s;
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *ctx)
{
    struct infer_stream *s = ctx;
    size_t n = size * count, room = HEAD_BYTES > s->head.size ? HEAD_BYTES - s->head.size : 0;
    buffer_append(&s->head, bytes, n < room ? n : room);
    return n;
}

/* ---- what goes ---- */

static struct infer_stream *stream_create(struct infer_driver *d)
{
    struct infer_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->driver = d;
    s->curl = http_transfer(d->run->where, on_bytes, s);
    if (!s->curl) {
        free(s);
        return NULL;
    }
    d->streams[d->n_streams++] = s;
    return s;
}

static void stream_destroy(struct infer_stream *s)
{
    curl_multi_remove_handle(s->driver->loop.multi, s->curl);
    curl_easy_cleanup(s->curl);
    buffer_free(&s->head);
    free(s);
}

static int infer_send(struct infer_driver *d, size_t index, struct err *e)
{
    struct infer_run *r = d->run;
    struct infer_result *to = &r->results[index];
    int model = r->plan->requests[index].model;
    const struct infer_target_model *m = &r->target->models[model];
    const struct buffer *body = &m->bodies[index % (size_t)m->n_bodies];
    if (d->loop.n_open >= r->most_open) {
        result_close(r, to, LOAD_UNSENT, "hpctl",
                     "had as many requests open as it may (--max-open, or its limit of files)");
        return 0;
    }
    struct infer_stream *s = d->idle ? d->idle : stream_create(d);
    if (!s)
        return err_no_memory(e, "a request");
    if (s == d->idle)
        d->idle = s->next;
    s->index = index;
    s->head.size = 0;
    curl_easy_setopt(s->curl, CURLOPT_URL, d->urls[model]);
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, d->headers[model]);
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, (const char *)body->data);
    to->outcome = LOAD_OPEN;
    to->sent_s = load_loop_now_s(&d->loop);
    d->loop.n_open++;
    return curl_multi_add_handle(d->loop.multi, s->curl) == CURLM_OK
               ? 0
               : err_no_memory(e, "a request");
}

/* ---- the loop ---- */

static double request_due_s(void *ctx, double now_s)
{
    const struct infer_driver *d = ctx;
    const struct infer_plan *p = d->run->plan;
    (void)now_s;
    return d->next < p->n ? p->requests[d->next].at_s : INFINITY;
}

static int request_send(void *ctx, struct err *e)
{
    struct infer_driver *d = ctx;
    return infer_send(d, d->next++, e);
}

static void stream_over(void *transfer, CURLcode code)
{
    stream_finish(transfer, code);
}

/* ---- life ---- */

static int model_prepare(struct infer_driver *d, int i, struct err *e)
{
    const struct infer_target_model *m = &d->run->target->models[i];
    char length[80];
    snprintf(length, sizeof length, "Inference-Header-Content-Length: %zu", m->json_bytes);
    snprintf(d->urls[i], sizeof d->urls[i], "%s/v2/models/%s/infer", d->run->where->http, m->name);
    struct curl_slist *h = http_headers(d->run->where), *more = curl_slist_append(h, length);
    d->headers[i] = more ? more : h;
    more = more ? curl_slist_append(more, "Expect:") : NULL; /* large bodies go at once */
    return more ? 0 : err_no_memory(e, "a load");
}

static int driver_open(struct infer_driver *d, struct err *e)
{
    struct infer_run *r = d->run;
    size_t files = load_connections_most();
    r->most_open = r->most_open < files ? r->most_open : files;
    int rc = load_loop_open(&d->loop, r->most_open, e);
    if (rc < 0)
        return rc;
    r->results = calloc(r->plan->n, sizeof *r->results);
    d->streams = calloc(r->most_open, sizeof *d->streams);
    if (!r->results || !d->streams)
        return err_no_memory(e, "a load");
    for (size_t i = 0; i < r->plan->n; i++)
        r->results[i].cause = -1;
    for (int i = 0; i < r->target->n && rc == 0; i++)
        rc = model_prepare(d, i, e);
    return rc;
}

static void driver_close(struct infer_driver *d)
{
    for (size_t i = 0; i < d->n_streams; i++)
        stream_destroy(d->streams[i]);
    load_loop_close(&d->loop);
    for (int i = 0; i < INFER_MODELS; i++)
        curl_slist_free_all(d->headers[i]);
    free(d->streams);
}

static double processor_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int infer_run(struct infer_run *r, struct err *e)
{
    struct infer_driver *d = calloc(1, sizeof *d);
    if (!d)
        return err_no_memory(e, "a load");
    d->run = r;
    const struct load_work work = {.due_s = request_due_s,
                                   .send = request_send,
                                   .over = stream_over,
                                   .ctx = d,
                                   .last_s = r->plan->seconds + r->patience_s,
                                   .progress = r->progress,
                                   .progress_ctx = r->ctx};
    int rc = driver_open(d, e);
    double processor_s = processor_now_s();
    if (rc == 0) {
        rc = load_loop_run(&d->loop, &work, &r->interrupted, e);
        r->seconds = load_loop_now_s(&d->loop);
    }
    r->processor_s = processor_now_s() - processor_s;
    driver_close(d);
    free(d);
    return rc;
}

void infer_run_free(struct infer_run *r)
{
    free(r->results);
    r->results = NULL;
    arena_free(&r->arena);
}
