#include "hpctl/infer_run.h"

#include <curl/curl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"
#include "hpctl/http_client.h"
#include "hpctl/shown.h"

enum { MOST_WAIT_MS = 100, PROGRESS_MS = 250, EVENTS = 128, HEAD_BYTES = 65536 };

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
    uint64_t start_ns;
    CURLM *multi;
    int epoll, timer;
    double curl_due_s;                        /* curl wants to be called then; INFINITY: no */
    struct curl_slist *headers[INFER_MODELS]; /* of a request */
    char urls[INFER_MODELS][600];
    struct infer_stream **streams; /* all that were made */
    struct infer_stream *idle;
    size_t n_streams, n_open;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int which)
{
    (void)which;
    interrupted = 1;
}

static double driver_now_s(const struct infer_driver *d)
{
    return (double)(env_now_ns(&env_real) - d->start_ns) * 1e-9;
}

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
    to->end_s = driver_now_s(s->driver);
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
    to->end_s = driver_now_s(s->driver);
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
    curl_multi_remove_handle(d->multi, s->curl);
    d->n_open--;
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
    curl_multi_remove_handle(s->driver->multi, s->curl);
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
    if (d->n_open >= r->most_open) {
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
    to->sent_s = driver_now_s(d);
    d->n_open++;
    return curl_multi_add_handle(d->multi, s->curl) == CURLM_OK ? 0 : err_no_memory(e, "a request");
}

/* ---- the loop ---- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
    struct infer_driver *d = ctx;
    struct epoll_event ev = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(d->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    ev.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    epoll_ctl(d->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev);
    curl_multi_assign(d->multi, fd, d);
    return 0;
}

static int on_curl_timer(CURLM *multi, long ms, void *ctx)
{
    struct infer_driver *d = ctx;
    (void)multi;
    d->curl_due_s = ms < 0 ? INFINITY : driver_now_s(d) + (double)ms * 1e-3;
    return 0;
}

static void messages_take(struct infer_driver *d)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(d->multi, &left));) {
        struct infer_stream *s = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
        if (m->msg == CURLMSG_DONE)
            stream_finish(s, m->data.result);
    }
}

static void curl_due_run(struct infer_driver *d)
{
    int running;
    if (d->curl_due_s > driver_now_s(d))
        return;
    d->curl_due_s = INFINITY;
    curl_multi_socket_action(d->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

/* Until something comes, the next arrival is due, or a moment has passed. */
static void events_wait(struct infer_driver *d, size_t next)
{
    const struct infer_plan *p = d->run->plan;
    struct epoll_event events[EVENTS];
    uint64_t rung;
    int running;
    double wait_s = MOST_WAIT_MS * 1e-3, now_s = driver_now_s(d);
    if (next < p->n)
        wait_s = fmin(wait_s, p->requests[next].at_s - now_s);
    wait_s = fmin(wait_s, d->curl_due_s - now_s);
    struct itimerspec at = {.it_value.tv_nsec = wait_s > 1e-9 ? (long)(wait_s * 1e9) : 1};
    timerfd_settime(d->timer, 0, &at, NULL);
    int n = epoll_wait(d->epoll, events, EVENTS, 2 * MOST_WAIT_MS);
    for (int i = 0; i < n; i++) {
        unsigned got = events[i].events;
        int bits = (got & EPOLLIN ? CURL_CSELECT_IN : 0) | (got & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (got & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        if (events[i].data.fd != d->timer)
            curl_multi_socket_action(d->multi, events[i].data.fd, bits, &running);
        else if (read(d->timer, &rung, sizeof rung) < 0)
            continue; /* it was set anew meanwhile */
    }
}

static int driver_loop(struct infer_driver *d, struct err *e)
{
    struct infer_run *r = d->run;
    const struct infer_plan *p = r->plan;
    size_t next = 0;
    double shown_s = 0;
    int rc = 0;
    while (rc == 0 && !interrupted && (next < p->n || d->n_open > 0)) {
        double now_s = driver_now_s(d);
        while (rc == 0 && next < p->n && p->requests[next].at_s <= now_s)
            rc = infer_send(d, next++, e);
        if (next == p->n && now_s > p->seconds + r->patience_s)
            break;
        if (r->progress && now_s - shown_s > PROGRESS_MS * 1e-3) {
            shown_s = now_s;
            r->progress(r->ctx, now_s, d->n_open);
        }
        curl_due_run(d);
        events_wait(d, next);
        messages_take(d);
    }
    r->seconds = driver_now_s(d);
    r->interrupted = interrupted;
    return rc;
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
    struct epoll_event ev = {.events = EPOLLIN};
    int rc = 0;
    r->most_open = r->most_open < files ? r->most_open : files;
    r->results = calloc(r->plan->n, sizeof *r->results);
    d->streams = calloc(r->most_open, sizeof *d->streams);
    d->multi = curl_multi_init();
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    d->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    d->curl_due_s = INFINITY;
    if (!r->results || !d->streams || !d->multi)
        return err_no_memory(e, "a load");
    ev.data.fd = d->timer;
    if (d->epoll < 0 || d->timer < 0 || epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->timer, &ev) < 0)
        return err_set(e, HP_EIO, "cannot wait for connections: no descriptors are left");
    for (size_t i = 0; i < r->plan->n; i++)
        r->results[i].cause = -1;
    for (int i = 0; i < r->target->n && rc == 0; i++)
        rc = model_prepare(d, i, e);
    curl_multi_setopt(d->multi, CURLMOPT_MAXCONNECTS, (long)r->most_open);
    curl_multi_setopt(d->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(d->multi, CURLMOPT_SOCKETDATA, d);
    curl_multi_setopt(d->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(d->multi, CURLMOPT_TIMERDATA, d);
    return rc;
}

static void driver_close(struct infer_driver *d)
{
    for (size_t i = 0; i < d->n_streams; i++)
        stream_destroy(d->streams[i]);
    if (d->multi)
        curl_multi_cleanup(d->multi);
    for (int i = 0; i < INFER_MODELS; i++)
        curl_slist_free_all(d->headers[i]);
    if (d->epoll >= 0)
        close(d->epoll);
    if (d->timer >= 0)
        close(d->timer);
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
    struct sigaction stop = {.sa_handler = on_interrupt}, before;
    if (!d)
        return err_no_memory(e, "a load");
    d->run = r;
    interrupted = 0;
    sigaction(SIGINT, &stop, &before);
    int rc = driver_open(d, e);
    d->start_ns = env_now_ns(&env_real);
    double processor_s = processor_now_s();
    if (rc == 0)
        rc = driver_loop(d, e);
    r->processor_s = processor_now_s() - processor_s;
    driver_close(d);
    free(d);
    sigaction(SIGINT, &before, NULL);
    return rc;
}

void infer_run_free(struct infer_run *r)
{
    free(r->results);
    r->results = NULL;
    arena_free(&r->arena);
}
