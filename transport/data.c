#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/vector.h"
#include "transport/data_int.h"

#define STRANGERS_SAY_NS UINT64_C(1000000000)

void data_base_init(struct data_endpoint *d, const struct data_ops *ops,
                    const struct data_config *c)
{
    d->ops = ops;
    d->callbacks = c->callbacks;
    data_pool_init(&d->pool, c->pool_limit_bytes ? c->pool_limit_bytes : (uint64_t)1 << 30);
    pthread_mutex_init(&d->lock, NULL);
}

void data_base_fini(struct data_endpoint *d)
{
    data_pool_fini(&d->pool);
    free(d->address);
    free(d->peers);
    free(d->losses);
    pthread_mutex_destroy(&d->lock);
}

void data_close(struct data_endpoint **d)
{
    if (*d)
        (*d)->ops->close(*d);
    *d = NULL;
}

const uint8_t *data_address(const struct data_endpoint *d, size_t *size)
{
    *size = d->address_size;
    return d->address;
}

/* ---- sessions: an array in order of their numbers ---- */

static int session_place(const struct data_endpoint *d, uint64_t session)
{
    int lo = 0, hi = d->n_sessions;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (d->sessions[mid].session < session)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct data_session *data_session_find(struct data_endpoint *d, uint64_t session)
{
    int i = session_place(d, session);
    return i < d->n_sessions && d->sessions[i].session == session ? &d->sessions[i] : NULL;
}

static struct data_session *session_insert(struct data_endpoint *d, uint64_t session)
{
    if (d->n_sessions == DATA_MAX_SESSIONS)
        return NULL;
    int i = session_place(d, session);
    memmove(d->sessions + i + 1, d->sessions + i,
            (size_t)(d->n_sessions - i) * sizeof *d->sessions);
    d->sessions[i] = (struct data_session){.session = session};
    d->n_sessions++;
    return &d->sessions[i];
}

int data_allow(struct data_endpoint *d, uint64_t session, const uint8_t *from, struct err *e)
{
    pthread_mutex_lock(&d->lock);
    struct data_session *s = data_session_find(d, session);
    if (!s)
        s = session_insert(d, session);
    if (s && (s->bound = from != NULL))
        memcpy(s->from, from, KEY_BYTES);
    pthread_mutex_unlock(&d->lock);
    return s ? 0
             : err_set(e, HP_ELIMIT, "more than %d sessions share this data endpoint",
                       DATA_MAX_SESSIONS);
}

void data_revoke(struct data_endpoint *d, uint64_t session)
{
    pthread_mutex_lock(&d->lock);
    struct data_session *s = data_session_find(d, session);
    if (s) {
        memmove(s, s + 1, (size_t)(d->sessions + d->n_sessions - (s + 1)) * sizeof *s);
        d->n_sessions--;
    }
    pthread_mutex_unlock(&d->lock);
}

int data_session_admit(struct data_endpoint *d, uint64_t session, const uint8_t *from)
{
    pthread_mutex_lock(&d->lock);
    const struct data_session *s = data_session_find(d, session);
    bool allowed = s && (!s->bound || !from || memcmp(s->from, from, KEY_BYTES) == 0);
    d->stats.dropped_foreign += !allowed;
    pthread_mutex_unlock(&d->lock);
    return allowed ? 0 : HP_EDENIED;
}

int data_admit(struct data_endpoint *d, const uint8_t *bytes, size_t size, uint64_t payload_bytes,
               const uint8_t *from, struct frame_header *out)
{
    if (frame_header_decode(bytes, size, out, NULL) < 0 || out->payload_bytes != payload_bytes) {
        data_count_malformed(d);
        return HP_EPROTO;
    }
    return data_session_admit(d, out->session, from);
}

/* ---- what is lost on its way ---- */

static struct data_loss_row *loss_row(struct data_endpoint *d, const uint8_t peer[KEY_BYTES])
{
    for (size_t i = 0; i < d->n_losses; i++)
        if (memcmp(d->losses[i].now.peer, peer, KEY_BYTES) == 0)
            return &d->losses[i];
    struct data_loss_row *row =
        d->n_losses < DATA_MAX_PEERS ? vector_add(d->losses, d->n_losses, d->room_losses) : NULL;
    if (row) {
        *row = (struct data_loss_row){0};
        memcpy(row->now.peer, peer, KEY_BYTES);
    }
    return row;
}

void data_loss_add(struct data_endpoint *d, const uint8_t peer[KEY_BYTES], uint64_t segments,
                   uint64_t lost)
{
    pthread_mutex_lock(&d->lock);
    struct data_loss_row *row = loss_row(d, peer);
    if (row) { /* else nothing is known of this peer */
        row->now.segments += segments;
        row->now.lost += lost;
    }
    pthread_mutex_unlock(&d->lock);
}

size_t data_losses(struct data_endpoint *d, struct data_loss *out, size_t most)
{
    size_t n = 0;
    if (d->ops->count)
        d->ops->count(d);
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_losses && n < most; i++) {
        struct data_loss_row *row = &d->losses[i];
        if (row->now.segments - row->told_segments < DATA_LOSS_NEWS_SEGMENTS &&
            row->now.lost == row->told_lost)
            continue;
        row->told_segments = row->now.segments;
        row->told_lost = row->now.lost;
        out[n++] = row->now;
    }
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* ---- who may connect: keys in order ---- */

static int key_order(const void *a, const void *b)
{
    return memcmp(a, b, KEY_BYTES);
}

int data_peers_allow(struct data_endpoint *d, const uint8_t (*keys)[KEY_BYTES], size_t n,
                     struct err *e)
{
    if (n > DATA_MAX_PEERS)
        return err_set(e, HP_ELIMIT, "%zu peers are more than the %d that a data endpoint admits",
                       n, DATA_MAX_PEERS);
    uint8_t(*own)[KEY_BYTES] = malloc(n ? n * KEY_BYTES : 1);
    if (!own)
        return err_set(e, HP_ENOMEM, "out of memory for the keys of %zu peers", n);
    if (n) {
        memcpy(own, keys, n * KEY_BYTES);
        qsort(own, n, KEY_BYTES, key_order);
    }
    pthread_mutex_lock(&d->lock);
    uint8_t(*old)[KEY_BYTES] = d->peers;
    d->peers = own;
    d->n_peers = n;
    pthread_mutex_unlock(&d->lock);
    free(old);
    if (d->ops->peers_changed)
        d->ops->peers_changed(d);
    return 0;
}

bool data_peer_is_allowed(struct data_endpoint *d, const uint8_t key[KEY_BYTES])
{
    pthread_mutex_lock(&d->lock);
    bool allowed = d->n_peers && bsearch(key, d->peers, d->n_peers, KEY_BYTES, key_order);
    pthread_mutex_unlock(&d->lock);
    return allowed;
}

/* ---- buffers ---- */

void data_pool_limit(struct data_endpoint *d, uint64_t bytes)
{
    data_pool_resize(&d->pool, bytes);
    d->ops->room(d);
}

struct data_buffer *data_buffer_get(struct data_endpoint *d, size_t bytes)
{
    return data_pool_get(&d->pool, bytes <= DATA_CONTROL_BYTES ? POOL_CONTROL_SENT : POOL_SENT,
                         bytes);
}

struct data_buffer *data_receive_buffer(struct data_endpoint *d, const struct frame_header *h)
{
    return data_pool_get(&d->pool, data_pool_use_of(h->kind, h->payload_bytes), h->payload_bytes);
}

void data_buffer_release(struct data_endpoint *d, struct data_buffer *b)
{
    if (data_pool_release(&d->pool, b))
        d->ops->room(d);
}

int data_reserve_open(struct data_endpoint *d, size_t n, size_t bytes, struct data_reserve **out,
                      struct err *e)
{
    return data_pool_reserve(&d->pool, n, bytes, NULL, out, e);
}

/* ---- the rest of the face ---- */

int data_connect(struct data_endpoint *d, const uint8_t *address, size_t size,
                 struct data_link **out, struct err *e)
{
    static atomic_ullong numbers;
    int rc = d->ops->connect(d, address, size, out, e);
    if (rc == 0)
        (*out)->number = atomic_fetch_add(&numbers, 1) + 1;
    return rc;
}

uint64_t data_link_number(const struct data_link *link)
{
    return link->number;
}

void data_disconnect(struct data_link **link)
{
    if (*link)
        (*link)->endpoint->ops->disconnect(*link);
    *link = NULL;
}

void data_post(struct data_link *link, const struct frame_header *h, struct data_buffer *payload,
               data_done_fn done, void *done_ctx)
{
    struct frame_header own = *h;
    assert(!payload || !payload->device ||
           (link->endpoint->takes[data_pool_lent(payload)->kind] && !link->to_itself));
    own.payload_bytes = payload ? payload->size : 0;
    link->endpoint->ops->post(link, &own, payload, done, done_ctx);
}

void data_stats(const struct data_endpoint *d, struct data_stats *out)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&d->lock;
    pthread_mutex_lock(lock);
    *out = d->stats;
    pthread_mutex_unlock(lock);
    out->buffers_bytes = data_pool_out_bytes((struct data_pool *)&d->pool);
}

void data_count_received(struct data_endpoint *d, uint64_t bytes)
{
    pthread_mutex_lock(&d->lock);
    d->stats.frames_received++;
    d->stats.bytes_received += bytes;
    pthread_mutex_unlock(&d->lock);
}

void data_count_sent(struct data_endpoint *d, uint64_t bytes)
{
    pthread_mutex_lock(&d->lock);
    d->stats.frames_sent++;
    d->stats.bytes_sent += bytes;
    pthread_mutex_unlock(&d->lock);
}

void data_count_full(struct data_endpoint *d)
{
    pthread_mutex_lock(&d->lock);
    d->stats.dropped_full++;
    pthread_mutex_unlock(&d->lock);
}

void data_count_malformed(struct data_endpoint *d)
{
    pthread_mutex_lock(&d->lock);
    d->stats.dropped_malformed++;
    pthread_mutex_unlock(&d->lock);
}

void data_strangers_tell(struct data_endpoint *d, uint64_t now_ns)
{
    struct data_strangers *s = &d->strangers;
    if (s->unsaid == 0 || (s->said_ns && now_ns - s->said_ns < STRANGERS_SAY_NS))
        return;
    log_warn("data", "strangers_refused", "n=%llu last=\"%s\"", (unsigned long long)s->unsaid,
             s->last);
    s->unsaid = 0;
    s->said_ns = now_ns ? now_ns : 1;
}

void data_stranger_refused(struct data_endpoint *d, uint64_t now_ns, const char *from,
                           const char *why)
{
    pthread_mutex_lock(&d->lock);
    d->stats.refused_strangers++;
    pthread_mutex_unlock(&d->lock);
    snprintf(d->strangers.last, sizeof d->strangers.last, "%s: %s", from, why);
    d->strangers.unsaid++;
    data_strangers_tell(d, now_ns);
}
