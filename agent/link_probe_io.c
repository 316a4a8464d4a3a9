#include "agent/link_probe_io.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "agent/link_probe.h"
#include "common/env.h"

/* One end of a probe; session 0: there is none. */
struct probe_end {
    uint64_t session;
    struct data_link *link;
};

struct link_probe_io {
    struct data_endpoint *data;
    link_probe_io_done_fn done;
    void *ctx;
    pthread_mutex_t lock; /* guards what follows against the endpoint's thread; never held while a
                             link is dropped or `done` is called */
    struct probe_end echo, measure;
    uint64_t id;
    bool running;
    struct link_probe probe;
};

int link_probe_io_create(struct data_endpoint *data, link_probe_io_done_fn done, void *ctx,
                         struct link_probe_io **out, struct err *e)
{
    struct link_probe_io *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, HP_ENOMEM, "no memory for probes of links");
    p->data = data;
    p->done = done;
    p->ctx = ctx;
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return 0;
}

/* Puts `next` in the place of an end and drops what was there. */
static void end_replace(struct link_probe_io *p, struct probe_end *end, struct probe_end next)
{
    pthread_mutex_lock(&p->lock);
    struct probe_end old = *end;
    *end = next;
    bool other = old.session && old.session != p->echo.session && old.session != p->measure.session;
    pthread_mutex_unlock(&p->lock);
    if (other)
        data_revoke(p->data, old.session);
    data_disconnect(&old.link);
}

void link_probe_io_destroy(struct link_probe_io **pp)
{
    struct link_probe_io *p = *pp;
    if (!p)
        return;
    end_replace(p, &p->echo, (struct probe_end){0});
    end_replace(p, &p->measure, (struct probe_end){0});
    pthread_mutex_destroy(&p->lock);
    free(p);
    *pp = NULL;
}

static int end_open(struct link_probe_io *p, uint64_t session, const uint8_t *address, size_t size,
                    struct probe_end *out, struct err *e)
{
    *out = (struct probe_end){.session = session};
    int rc = session && size ? data_allow(p->data, session, NULL, e)
                             : err_set(e, HP_EPROTO, "a probe without a session or an address");
    rc = rc < 0 ? rc : data_connect(p->data, address, size, &out->link, e);
    if (rc < 0 && session)
        data_revoke(p->data, session);
    return rc;
}

int link_probe_io_echo(struct link_probe_io *p, uint64_t session, const uint8_t *address,
                       size_t size, struct err *e)
{
    struct probe_end end;
    int rc = end_open(p, session, address, size, &end, e);
    if (rc == 0)
        end_replace(p, &p->echo, end);
    return rc;
}

/* Under the lock. False when the pool has no buffer: that frame is never echoed, and the probe is
 * given up in time. */
static void frames_send(struct link_probe_io *p, const struct link_probe_send *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct frame_header h = {.kind = FRAME_PROBE,
                                 .dtype = FRAME_BYTES,
                                 .session = p->measure.session,
                                 .batch = s->number + i,
                                 .sent_ns = env_now_ns(&env_real)};
        struct data_buffer *b = s->bytes ? data_buffer_get(p->data, s->bytes) : NULL;
        if (s->bytes && !b)
            return;
        if (b)
            memset(b->bytes, 0, b->size); /* what was in it before is nobody's business there */
        data_post(p->measure.link, &h, b, NULL, NULL);
    }
}

int link_probe_io_measure(struct link_probe_io *p, uint64_t id, uint64_t session,
                          const uint8_t *address, size_t size, struct err *e)
{
    struct probe_end end;
    int rc = end_open(p, session, address, size, &end, e);
    if (rc < 0)
        return rc;
    end_replace(p, &p->measure, end);
    pthread_mutex_lock(&p->lock);
    p->id = id;
    p->running = true;
    struct link_probe_send s = link_probe_begin(&p->probe, env_now_ns(&env_real));
    frames_send(p, &s);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

void link_probe_io_end(struct link_probe_io *p, uint64_t session)
{
    struct probe_end none = {0};
    if (p->echo.session == session)
        end_replace(p, &p->echo, none);
    if (p->measure.session == session)
        end_replace(p, &p->measure, none);
}

static void give_up(struct link_probe_io *p, struct data_link *link, uint64_t before_ns, int code,
                    const char *text)
{
    struct err e = {0};
    pthread_mutex_lock(&p->lock);
    bool over = p->running && (!link || link == p->measure.link) && p->probe.begun_ns <= before_ns;
    uint64_t id = p->id;
    if (over)
        p->running = false;
    pthread_mutex_unlock(&p->lock);
    if (!over)
        return;
    err_set(&e, code, "%s", text);
    p->done(p->ctx, id, code, &e, 0, 0);
}

void link_probe_io_tick(struct link_probe_io *p)
{
    uint64_t limit = LINK_PROBE_LIMIT_MS * UINT64_C(1000000), now = env_now_ns(&env_real);
    if (now > limit)
        give_up(p, NULL, now - limit, HP_ETIMEOUT, "the probes of this link are not all echoed");
}

void link_probe_io_link_down(struct link_probe_io *p, struct data_link *link)
{
    give_up(p, link, UINT64_MAX, HP_ELINK, "the link broke");
}

static void echo_back(struct link_probe_io *p, const struct frame_header *h)
{
    pthread_mutex_lock(&p->lock);
    if (p->echo.link && p->echo.session == h->session) {
        struct frame_header back = {.kind = FRAME_PROBE_ECHO,
                                    .dtype = FRAME_BYTES,
                                    .session = h->session,
                                    .batch = h->batch,
                                    .sent_ns = h->sent_ns};
        data_post(p->echo.link, &back, NULL, NULL, NULL);
    }
    pthread_mutex_unlock(&p->lock);
}

static void echo_came(struct link_probe_io *p, const struct frame_header *h)
{
    pthread_mutex_lock(&p->lock);
    bool ours = p->running && p->measure.link && p->measure.session == h->session;
    if (ours) {
        struct link_probe_send s = link_probe_echo(&p->probe, h->batch, env_now_ns(&env_real));
        frames_send(p, &s);
    }
    bool done = ours && link_probe_done(&p->probe);
    double latency = link_probe_latency_s(&p->probe), bandwidth = link_probe_bandwidth(&p->probe);
    uint64_t id = p->id;
    if (done)
        p->running = false;
    pthread_mutex_unlock(&p->lock);
    if (done)
        p->done(p->ctx, id, 0, NULL, latency, bandwidth);
}

void link_probe_io_frame(struct link_probe_io *p, const struct frame_header *h,
                         struct data_buffer *payload)
{
    if (payload)
        data_buffer_release(p->data, payload);
    if (h->kind == FRAME_PROBE)
        echo_back(p, h);
    else
        echo_came(p, h);
}
