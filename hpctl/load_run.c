#include "hpctl/load_run.h"

#include <signal.h>
#include <stdlib.h>

#include "common/env.h"
#include "hpctl/http_client.h"
#include "hpctl/load_stream.h"

const char *const load_outcomes[] = {"unsent", "open", "done", "refused", "failed", NULL};

enum { MOST_WAIT_MS = 100, PROGRESS_MS = 250 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int which)
{
    (void)which;
    interrupted = 1;
}

/* ---- the loop ---- */

static void messages_take(struct load_driver *d)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(d->multi, &left));) {
        struct load_stream *s = NULL;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
        if (m->msg == CURLMSG_DONE)
            load_stream_finish(s, m->data.result);
    }
}

/* Whether there are requests that are still to be sent. */
static bool more_come(const struct load_driver *d, size_t next, double now_s)
{
    const struct load_plan *p = d->run->plan;
    return next < p->n && (!d->run->clients || now_s < p->seconds);
}

/* Whether the next request is to be sent now. */
static bool next_is_due(const struct load_driver *d, size_t next, double now_s)
{
    return more_come(d, next, now_s) &&
           (d->run->clients ? d->n_open < d->run->clients
                            : d->run->plan->requests[next].at_s <= now_s);
}

/* How long the loop may sleep: until the next arrival, or until it looks around again. */
static int sleep_ms(const struct load_driver *d, size_t next, double now_s)
{
    const struct load_plan *p = d->run->plan;
    double until_ms = MOST_WAIT_MS;
    if (!d->run->clients && next < p->n)
        until_ms = (p->requests[next].at_s - now_s) * 1e3;
    return until_ms <= 0 ? 0 : until_ms > MOST_WAIT_MS ? MOST_WAIT_MS : (int)until_ms;
}

static int driver_loop(struct load_driver *d, struct err *e)
{
    struct load_run *r = d->run;
    const struct load_plan *p = r->plan;
    size_t next = 0;
    double shown_s = 0, now_s = 0;
    int running, rc = 0;
    while (rc == 0 && !interrupted && (more_come(d, next, now_s) || d->n_open > 0)) {
        now_s = load_now_s(d);
        while (rc == 0 && next_is_due(d, next, now_s))
            rc = load_request_send(d, next++, e);
        if (!more_come(d, next, now_s) && now_s > p->seconds + r->patience_s)
            break;
        if (r->progress && now_s - shown_s > PROGRESS_MS * 1e-3) {
            shown_s = now_s;
            r->progress(r->ctx, now_s, d->n_open);
        }
        if (rc == 0 && curl_multi_perform(d->multi, &running) != CURLM_OK)
            rc = err_no_memory(e, "requests");
        messages_take(d);
        rc = rc == 0 ? load_streams_ask_again(d, e) : rc;
        if (more_come(d, next, now_s) || d->n_open > 0)
            curl_multi_poll(d->multi, NULL, 0, sleep_ms(d, next, load_now_s(d)), NULL);
    }
    r->seconds = load_now_s(d);
    r->interrupted = interrupted;
    return rc;
}

static int driver_open(struct load_driver *d, struct err *e)
{
    struct load_run *r = d->run;
    size_t files = load_connections_most();
    r->most_open = r->most_open < files ? r->most_open : files;
    r->results = calloc(r->plan->n, sizeof *r->results);
    d->streams = calloc(r->most_open, sizeof *d->streams);
    d->multi = curl_multi_init();
    d->headers = http_headers(r->where);
    if (!r->results || !d->streams || !d->multi || !d->headers)
        return err_no_memory(e, "a load");
    for (size_t i = 0; i < r->plan->n; i++)
        r->results[i].cause = -1;
    snprintf(d->url, sizeof d->url, "%s/v1/completions", r->where->http);
    curl_multi_setopt(d->multi, CURLMOPT_MAXCONNECTS, (long)r->most_open);
    return 0;
}

static void driver_close(struct load_driver *d)
{
    for (size_t i = 0; i < d->n_streams; i++)
        load_stream_destroy(d->streams[i]);
    if (d->multi)
        curl_multi_cleanup(d->multi);
    curl_slist_free_all(d->headers);
    free(d->streams);
}

int load_run(struct load_run *r, struct err *e)
{
    struct load_driver d = {.run = r, .name = env_random_u64(&env_real)};
    struct sigaction stop = {.sa_handler = on_interrupt}, before;
    interrupted = 0;
    sigaction(SIGINT, &stop, &before);
    int rc = driver_open(&d, e);
    d.start_ns = env_now_ns(&env_real);
    if (rc == 0)
        rc = driver_loop(&d, e);
    driver_close(&d);
    sigaction(SIGINT, &before, NULL);
    return rc;
}

void load_run_free(struct load_run *r)
{
    free(r->results);
    r->results = NULL;
}
