/* Records that come. The head is measured before its text is awaited, the seal is checked before a
 * frame's header is looked at, the header before a buffer is taken; payload is opened from the read
 * buffer straight into the frame's own. What a proven peer may not say ends its connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "transport/data_tcp_int.h"

struct head {
    enum tcp_record kind;
    uint32_t number;
    size_t bytes;
};

/* What each kind's text may measure. */
static const struct {
    size_t least, most;
} text_bytes[RECORD_END] = {
    [RECORD_HELLO] = {HELLO_BYTES, HELLO_BYTES},
    [RECORD_FRAME] = {FRAME_HEADER_BYTES, TCP_TEXT_BYTES},
    [RECORD_ANNOUNCE] = {FRAME_HEADER_BYTES, FRAME_HEADER_BYTES},
    [RECORD_GRANT] = {1, 1},
    [RECORD_PAYLOAD] = {1, TCP_CHUNK_BYTES},
    [RECORD_BEAT] = {0, 0},
    [RECORD_BYE] = {1, 1},
};

static int head_read(const uint8_t *bytes, struct head *out)
{
    uint32_t length;
    memcpy(&length, bytes, 4);
    memcpy(&out->number, bytes + 4, 4);
    out->kind = (enum tcp_record)(length >> 24);
    out->bytes = length & 0xffffff;
    bool good = out->kind >= RECORD_HELLO && out->kind < RECORD_END &&
                out->bytes >= text_bytes[out->kind].least &&
                out->bytes <= text_bytes[out->kind].most;
    return good ? 0 : HP_EPROTO;
}

/* ---- large frames ---- */

static struct tcp_arrival *arrival_find(const struct tcp_conn *c, uint32_t number)
{
    for (struct tcp_arrival *a = c->arrivals; a; a = a->next)
        if (a->number == number)
            return a;
    return NULL;
}

/* A buffer was refused though none of its budget is out, so that none will come back either. */
static bool memory_is_out(struct data_pool *p, enum pool_use use)
{
    pthread_mutex_lock(&p->lock);
    bool out = p->budgets[use].out_bytes == 0;
    pthread_mutex_unlock(&p->lock);
    return out;
}

/* Those that wait get their buffers, in order; one that is refused goes before the later ones of
 * its budget, and holds up no other budget's. */
static void grant_waiting(struct tcp_conn *c)
{
    bool spent[POOL_USES] = {false};
    for (struct tcp_arrival *a = c->arrivals; a; a = a->next) {
        enum pool_use use = data_pool_use_of(a->header.kind, a->header.payload_bytes);
        if (a->state != ARRIVAL_WAITS || spent[use])
            continue;
        if ((a->payload = data_receive_buffer(&c->endpoint->base, &a->header))) {
            a->state = ARRIVAL_GRANT_DUE;
            c->moved_ms = c->endpoint->clock_ms;
            c->dirty = true;
        } else if (memory_is_out(&c->endpoint->base.pool, use)) {
            tcp_conn_broken(c, HP_ENOMEM, "out of memory for a frame of %llu bytes",
                            (unsigned long long)a->header.payload_bytes);
            return;
        } else {
            spent[use] = true;
        }
    }
}

static int announcement_take(struct tcp_conn *c, const struct head *head, const uint8_t *text)
{
    struct frame_header h;
    if (frame_header_decode(text, FRAME_HEADER_BYTES, &h, NULL) < 0 ||
        h.payload_bytes <= DATA_CONTROL_BYTES) {
        data_count_malformed(&c->endpoint->base);
        return tcp_conn_broken(c, HP_EPROTO, "it announces a frame with a malformed header");
    }
    if (c->n_arrivals >= TCP_MAX_ANNOUNCED || arrival_find(c, head->number))
        return tcp_conn_broken(c, HP_EPROTO, "it announces more than %d frames at once",
                               TCP_MAX_ANNOUNCED);
    struct tcp_arrival *a = tcp_arrival_get(c->endpoint), **at = &c->arrivals;
    if (!a)
        return tcp_conn_broken(c, HP_ENOMEM, "out of memory for a frame");
    *a = (struct tcp_arrival){.number = head->number, .header = h};
    while (*at)
        at = &(*at)->next;
    *at = a;
    c->n_arrivals++;
    if (data_session_admit(&c->endpoint->base, h.session, c->peer->key) < 0) {
        a->state = ARRIVAL_DENY_DUE;
        c->dirty = true;
        return 0;
    }
    grant_waiting(c);
    return 0;
}

/* The next bytes of a granted frame, opened where they belong. */
static int payload_take(struct tcp_conn *c, const struct head *head, const uint8_t *record)
{
    struct tcp_arrival *a = arrival_find(c, head->number);
    if (!a || a->state != ARRIVAL_COMES || a->header.payload_bytes - a->got_bytes < head->bytes)
        return tcp_conn_broken(c, HP_EPROTO, "it sends payload that was not granted");
    if (!tcp_seal_open(&c->opener, record, TCP_HEAD_BYTES, record + TCP_HEAD_BYTES, head->bytes,
                       a->payload->bytes + a->got_bytes))
        return tcp_conn_broken(c, HP_ECORRUPT, "a record's seal is broken");
    a->got_bytes += head->bytes;
    c->moved_ms = c->endpoint->clock_ms;
    if (a->got_bytes < a->header.payload_bytes)
        return 0;
    struct data_buffer *payload = a->payload;
    struct frame_header h = a->header;
    a->payload = NULL;
    tcp_arrival_free(c, a);
    tcp_frame_deliver(c->endpoint, &h, payload);
    return 0;
}

/* ---- small frames ---- */

/* HP_PENDING: there is no room for its payload now; the record stays where it is. */
static int small_take(struct tcp_conn *c, const struct head *head, const uint8_t *text)
{
    struct tcp_endpoint *d = c->endpoint;
    struct frame_header h;
    size_t size = head->bytes - FRAME_HEADER_BYTES;
    struct data_buffer *payload = NULL;
    if (frame_header_decode(text, FRAME_HEADER_BYTES, &h, NULL) < 0 || h.payload_bytes != size) {
        data_count_malformed(&d->base);
        return tcp_conn_broken(c, HP_EPROTO, "it sends a frame with a malformed header");
    }
    if (!c->parked && data_session_admit(&d->base, h.session, c->peer->key) < 0)
        return 0;
    if (size && !(payload = data_receive_buffer(&d->base, &h))) {
        if (memory_is_out(&d->base.pool, data_pool_use_of(h.kind, size)))
            return tcp_conn_broken(c, HP_ENOMEM, "out of memory for a frame of %zu bytes", size);
        if (!c->parked)
            data_count_full(&d->base);
        return HP_PENDING;
    }
    if (size)
        memcpy(payload->bytes, text + FRAME_HEADER_BYTES, size);
    tcp_frame_deliver(d, &h, payload);
    return 0;
}

/* ---- records ---- */

static int text_take(struct tcp_conn *c, const struct head *head, const uint8_t *text)
{
    if (c->greeted == (head->kind == RECORD_HELLO))
        return tcp_conn_broken(c, HP_EPROTO, "it does not begin with one greeting");
    switch (head->kind) {
    case RECORD_HELLO: tcp_conn_hello(c, text); return 0;
    case RECORD_FRAME: return small_take(c, head, text);
    case RECORD_ANNOUNCE: return announcement_take(c, head, text);
    case RECORD_GRANT: tcp_conn_granted(c, head->number, text[0] == 1); return 0;
    case RECORD_BYE: tcp_conn_bye(c, text[0]); return 0;
    default: return 0;
    }
}

/* One record of the read buffer. 0: taken; HP_PENDING: not all of it is there, or it waits for
 * room; negative: the connection is gone. */
static int record_take(struct tcp_conn *c)
{
    struct head head;
    uint8_t *record = c->in + c->in_start;
    size_t have = c->in_end - c->in_start;
    if (have < TCP_HEAD_BYTES)
        return HP_PENDING;
    if (head_read(record, &head) < 0)
        return tcp_conn_broken(c, HP_EPROTO, "it sends a record of no known kind or size");
    size_t size = TCP_HEAD_BYTES + head.bytes + SEAL_BYTES;
    if (have < size) {
        tcp_conn_low_water(c, size - have);
        return HP_PENDING;
    }
    int rc;
    if (head.kind == RECORD_PAYLOAD) {
        rc = payload_take(c, &head, record);
    } else {
        uint8_t *text = record + TCP_HEAD_BYTES;
        if (!c->parked &&
            !tcp_seal_open(&c->opener, record, TCP_HEAD_BYTES, text, head.bytes, text))
            return tcp_conn_broken(c, HP_ECORRUPT, "a record's seal is broken");
        rc = text_take(c, &head, text);
        if (rc == HP_PENDING && !c->parked)
            c->parked_ms = c->endpoint->clock_ms;
        c->parked = rc == HP_PENDING;
    }
    if (rc == 0 && !c->dead)
        c->in_start += size;
    return c->dead ? HP_ELINK : rc;
}

/* True when it ended because it needs more bytes. */
static bool records_take(struct tcp_conn *c)
{
    int rc;
    while ((rc = record_take(c)) == 0)
        ;
    if (rc < 0)
        return false;
    if (c->in_start == c->in_end)
        c->in_start = c->in_end = 0;
    else if (TCP_READ_BYTES - c->in_start < TCP_RECORD_BYTES) {
        memmove(c->in, c->in + c->in_start, c->in_end - c->in_start);
        c->in_end -= c->in_start;
        c->in_start = 0;
    }
    return !c->parked;
}

void tcp_conn_read(struct tcp_conn *c)
{
    if (c->parked)
        return;
    ssize_t n = recv(c->fd, c->in + c->in_end, TCP_READ_BYTES - c->in_end, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        tcp_conn_broken(c, HP_ELINK, "%s", strerror(errno));
    else if (n == 0)
        tcp_conn_broken(c, HP_ELINK, "it closed the connection");
    if (c->dead)
        return;
    c->heard_ms = c->endpoint->clock_ms;
    c->in_end += (size_t)n;
    tcp_conn_low_water(c, 0);
    if (!records_take(c) && !c->dead)
        tcp_conn_ask(c, c->events & ~(uint32_t)EPOLLIN);
}

void tcp_conn_room(struct tcp_conn *c)
{
    grant_waiting(c);
    if (c->dead || !c->parked || !records_take(c))
        return;
    c->heard_ms = c->endpoint->clock_ms;
    tcp_conn_ask(c, c->events | EPOLLIN);
}
