#include "hpctl/load_stream.h"

#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "hpctl/http_client.h"

enum { AGAIN_MS = 100 };

static struct load_result *stream_result(const struct load_stream *s)
{
    return &s->driver->run->results[s->index];
}

/* ---- what comes ---- */

static void result_close(struct load_run *r, struct load_result *to, enum load_outcome outcome,
                         const char *kind, const char *text)
{
    to->outcome = outcome;
    to->cause = load_cause_of(r->causes, &r->n_causes, kind, text);
}

static void usage_take(struct load_result *to, const json_t *event)
{
    const json_t *usage = json_object_get(event, "usage"), *t = json_object_get(event, "timings"),
                 *details = json_object_get(usage, "prompt_tokens_details");
    to->answer_tokens = (uint32_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    to->cached_tokens = (uint32_t)json_integer_value(json_object_get(details, "cached_tokens"));
    to->waited_s = json_number_value(json_object_get(t, "waited_s"));
    to->prefill_s = json_number_value(json_object_get(t, "prefill_s"));
    to->planned_s = json_number_value(json_object_get(t, "planned_s"));
    to->decode_s = json_number_value(json_object_get(t, "decode_s"));
}

static int on_event(void *ctx, const char *data, size_t n, struct err *e)
{
    struct load_stream *s = ctx;
    struct load_result *to = stream_result(s);
    double now_s = load_loop_now_s(&s->driver->loop);
    if (strcmp(data, "[DONE]") == 0) {
        s->ended = true;
        return 0;
    }
    json_t *event = http_json(data, n);
    if (!event)
        return err_set(e, HP_EPROTO, "an event that is not JSON");
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *text = json_object_get(choice, "text");
    size_t text_bytes = json_string_length(text);
    bool last = json_is_string(json_object_get(choice, "finish_reason"));
    s->lost_s = 0;
    int rc = json_object_get(event, "error") ? http_error_of(event, 200, e) : 0;
    if (rc == 0 && to->first_s == 0 && (last || text_bytes))
        to->first_s = now_s; /* an answer may have no text */
    if (rc == 0 && last)
        to->end_s = now_s;
    if (rc == 0 && text_bytes && s->driver->run->heard)
        s->driver->run->heard(s->driver->run->ctx, s->index, json_string_value(text), text_bytes,
                              now_s);
    if (rc == 0 && json_is_object(json_object_get(event, "usage")))
        usage_take(to, event);
    json_decref(event);
    return rc;
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *ctx)
{
    struct load_stream *s = ctx;
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        buffer_append(&s->whole, bytes, size * count);
    else if (sse_take(&s->events, bytes, size * count, on_event, s, &s->why) < 0)
        return 0;
    return size * count;
}

static void stream_refused(struct load_stream *s, long status)
{
    char kind[48];
    json_t *answer = http_json(buffer_cstr(&s->whole), s->whole.size);
    struct err why = {0};
    int rc = http_error_of(answer, status, &why);
    snprintf(kind, sizeof kind, "%ld %s", status, status_word(rc));
    result_close(s->driver->run, stream_result(s), LOAD_REFUSED, kind, why.text);
    json_decref(answer);
}

/* Those that resume name their request, and where they are. */
static bool stream_headers_set(struct load_stream *s)
{
    struct load_driver *d = s->driver;
    struct curl_slist *list = NULL, *more;
    char line[SSE_ID_BYTES + 32];
    bool good = d->run->resumes;
    for (const struct curl_slist *h = d->headers; good && h; h = h->next) {
        good = (more = curl_slist_append(list, h->data)) != NULL;
        list = good ? more : list;
    }
    for (int i = 0; good && i < (s->events.id[0] ? 2 : 1); i++) {
        if (i == 0)
            snprintf(line, sizeof line, "Idempotency-Key: hpctl-%016llx-%zu",
                     (unsigned long long)d->name, s->index);
        else
            snprintf(line, sizeof line, "Last-Event-ID: %s", s->events.id);
        good = (more = curl_slist_append(list, line)) != NULL;
        list = good ? more : list;
    }
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, list ? list : d->headers);
    curl_slist_free_all(s->headers);
    s->headers = list;
    return good || !d->run->resumes;
}

/* What broke off, or found nobody who could say more now. */
static bool stream_asks_again(struct load_stream *s, CURLcode code, long status)
{
    struct load_driver *d = s->driver;
    double now_s = load_loop_now_s(&d->loop);
    bool broke = code != CURLE_OK || (status == 200 && !s->ended), later = status == 503;
    if (!d->run->resumes || s->why.code < 0 || !(broke || later))
        return false;
    s->lost_s = s->lost_s > 0 ? s->lost_s : now_s;
    if (now_s - s->lost_s > LOAD_RESUME_S)
        return false;
    curl_multi_remove_handle(d->loop.multi, s->curl);
    s->again_s = now_s + AGAIN_MS * 1e-3;
    s->next = d->waiting;
    d->waiting = s;
    return true;
}

int load_streams_ask_again(struct load_driver *d, struct err *e)
{
    struct load_stream *s, **link = &d->waiting;
    double now_s = load_loop_now_s(&d->loop);
    while ((s = *link) != NULL) {
        if (s->again_s > now_s) {
            link = &s->next;
            continue;
        }
        *link = s->next;
        s->whole.size = s->events.line.size = s->events.data.size = 0;
        s->events.any = s->ended = false;
        s->events.coming[0] = '\0';
        if (!stream_headers_set(s) || curl_multi_add_handle(d->loop.multi, s->curl) != CURLM_OK)
            return err_no_memory(e, "a request");
    }
    return 0;
}

void load_stream_finish(struct load_stream *s, CURLcode code)
{
    struct load_driver *d = s->driver;
    struct load_result *to = stream_result(s);
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (stream_asks_again(s, code, status))
        return;
    if (s->why.code < 0)
        result_close(d->run, to, LOAD_FAILED, status_word(s->why.code), s->why.text);
    else if (code != CURLE_OK)
        result_close(d->run, to, LOAD_FAILED, "connection", curl_easy_strerror(code));
    else if (status != 200)
        stream_refused(s, status);
    else if (!s->ended || to->end_s == 0)
        result_close(d->run, to, LOAD_FAILED, "connection", "the stream ended before its answer");
    else
        to->outcome = LOAD_DONE;
    curl_multi_remove_handle(d->loop.multi, s->curl);
    d->loop.n_open--;
    s->next = d->idle;
    d->idle = s;
}

/* ---- what goes ---- */

static struct load_stream *stream_create(struct load_driver *d)
{
    struct load_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->driver = d;
    s->curl = http_transfer(d->run->where, on_bytes, s);
    if (!s->curl) {
        free(s);
        return NULL;
    }
    curl_easy_setopt(s->curl, CURLOPT_URL, d->url);
    d->streams[d->n_streams++] = s;
    return s;
}

void load_stream_destroy(struct load_stream *s)
{
    curl_multi_remove_handle(s->driver->loop.multi, s->curl);
    curl_easy_cleanup(s->curl);
    sse_free(&s->events);
    buffer_free(&s->body);
    buffer_free(&s->whole);
    curl_slist_free_all(s->headers);
    free(s);
}

static void body_write(const struct load_run *r, size_t index, struct buffer *out)
{
    buffer_printf(out, "{\"model\":\"%s\",\"prompt\":", r->deployment);
    load_prompt_write(r->plan, index, r->seed, r->common, r->vocabulary, out);
    buffer_printf(out,
                  ",\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
                  "\"stream_options\":{\"include_usage\":true}}",
                  r->plan->requests[index].answer_tokens);
}

int load_request_send(struct load_driver *d, size_t index, struct err *e)
{
    struct load_run *r = d->run;
    struct load_result *to = &r->results[index];
    if (d->loop.n_open >= r->most_open) {
        result_close(r, to, LOAD_UNSENT, "hpctl",
                     "had as many streams open as it may (--max-open, or its limit of files)");
        return 0;
    }
    struct load_stream *s = d->idle ? d->idle : stream_create(d);
    if (!s)
        return err_no_memory(e, "a request");
    if (s == d->idle)
        d->idle = s->next;
    s->index = index;
    s->body.size = s->whole.size = 0;
    sse_free(&s->events);
    s->events = (struct sse){0};
    s->why = (struct err){0};
    s->ended = false;
    s->lost_s = 0;
    body_write(r, index, &s->body);
    if (s->body.failed || !stream_headers_set(s))
        return err_no_memory(e, "a request");
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDSIZE, (long)s->body.size);
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, buffer_cstr(&s->body));
    to->outcome = LOAD_OPEN;
    to->sent_s = load_loop_now_s(&d->loop);
    d->loop.n_open++;
    return curl_multi_add_handle(d->loop.multi, s->curl) == CURLM_OK
               ? 0
               : err_no_memory(e, "a request");
}
