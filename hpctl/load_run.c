#include "hpctl/load_run.h"

#include <math.h>
#include <stdlib.h>

#include "common/env.h"
#include "hpctl/http_client.h"
#include "hpctl/load_stream.h"

const char *const load_outcomes[] = {"unsent", "open", "done", "refused", "failed", NULL};

enum { LOOK_MS = 100 }; /* how often it is looked for room, where so many clients send */

/* When the next request is to be sent: as it arrives, or when a client has nothing under way. */
static double request_due_s(void *ctx, double now_s)
{
    const struct load_driver *d = ctx;
    const struct load_run *r = d->run;
    if (d->next >= r->plan->n || (r->clients && now_s >= r->plan->seconds))
        return INFINITY;
    if (!r->clients)
        return r->plan->requests[d->next].at_s;
    return d->loop.n_open < r->clients ? now_s : now_s + LOOK_MS * 1e-3;
}

static int request_send(void *ctx, struct err *e)
{
    struct load_driver *d = ctx;
    return load_request_send(d, d->next++, e);
}

static void stream_over(void *transfer, CURLcode code)
{
    load_stream_finish(transfer, code);
}

static int streams_turn(void *ctx, struct err *e)
{
    return load_streams_ask_again(ctx, e);
}

static int driver_open(struct load_driver *d, struct err *e)
{
    struct load_run *r = d->run;
    size_t files = load_connections_most();
    r->most_open = r->most_open < files ? r->most_open : files;
    int rc = load_loop_open(&d->loop, r->most_open, e);
    if (rc < 0)
        return rc;
    r->results = calloc(r->plan->n, sizeof *r->results);
    d->streams = calloc(r->most_open, sizeof *d->streams);
    d->headers = http_headers(r->where);
    if (!r->results || !d->streams || !d->headers)
        return err_no_memory(e, "a load");
    for (size_t i = 0; i < r->plan->n; i++)
        r->results[i].cause = -1;
    snprintf(d->url, sizeof d->url, "%s/v1/completions", r->where->http);
    return 0;
}

static void driver_close(struct load_driver *d)
{
    for (size_t i = 0; i < d->n_streams; i++)
        load_stream_destroy(d->streams[i]);
    load_loop_close(&d->loop);
    curl_slist_free_all(d->headers);
    free(d->streams);
}

int load_run(struct load_run *r, struct err *e)
{
    struct load_driver d = {.run = r, .name = env_random_u64(&env_real)};
    const struct load_work work = {.due_s = request_due_s,
                                   .send = request_send,
                                   .over = stream_over,
                                   .turn = streams_turn,
                                   .ctx = &d,
                                   .last_s = r->plan->seconds + r->patience_s,
                                   .progress = r->progress,
                                   .progress_ctx = r->ctx};
    int rc = driver_open(&d, e);
    if (rc == 0) {
        rc = load_loop_run(&d.loop, &work, &r->interrupted, e);
        r->seconds = load_loop_now_s(&d.loop);
    }
    driver_close(&d);
    return rc;
}

void load_run_free(struct load_run *r)
{
    free(r->results);
    r->results = NULL;
}
