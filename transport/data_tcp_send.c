/* Which record goes next: greeting, grants, small frames, announcements, payload, heartbeat,
 * farewell. A small frame waits for one record and for what the kernel holds unsent
 * (TCP_UNSENT_BYTES), however much is queued. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "transport/data_tcp_int.h"

enum { WRITES_PER_TURN = 8 };

static bool record_seal(struct tcp_conn *c, enum tcp_record kind, uint32_t number,
                        const uint8_t *first, size_t first_bytes, const uint8_t *second,
                        size_t second_bytes)
{
    uint8_t *head = c->out + c->out_end;
    uint32_t length = (uint32_t)(first_bytes + second_bytes) | (uint32_t)kind << 24;
    memcpy(head, &length, 4);
    memcpy(head + 4, &number, 4);
    if (!tcp_seal_close(&c->sealer, head, TCP_HEAD_BYTES, first, first_bytes, second, second_bytes,
                        head + TCP_HEAD_BYTES))
        return false;
    size_t size = TCP_HEAD_BYTES + first_bytes + second_bytes + SEAL_BYTES;
    c->out_end += size;
    c->sealed_bytes += size;
    return true;
}

static void put_record(struct tcp_conn *c, enum tcp_record kind, uint32_t number,
                       const uint8_t *first, size_t first_bytes, const uint8_t *second,
                       size_t second_bytes)
{
    if (!record_seal(c, kind, number, first, first_bytes, second, second_bytes))
        tcp_conn_broken(c, HP_EDEVICE, "libcrypto cannot seal a record");
}

static void put_hello(struct tcp_conn *c)
{
    uint8_t text[HELLO_BYTES];
    bool alone = c->peer->n_conns == 1 && !c->peer->dialling;
    uint64_t sequence = ++c->endpoint->hello_sequence;
    memcpy(text, &c->endpoint->instance, 8);
    memcpy(text + 8, &sequence, 8);
    text[16] = alone;
    c->hello_due = false;
    put_record(c, RECORD_HELLO, 0, text, sizeof text, NULL, 0);
}

/* Answers to announcements that are due. */
static bool put_grant(struct tcp_conn *c)
{
    for (struct tcp_arrival *a = c->arrivals; a; a = a->next) {
        uint8_t granted = a->state == ARRIVAL_GRANT_DUE;
        if (!granted && a->state != ARRIVAL_DENY_DUE)
            continue;
        put_record(c, RECORD_GRANT, a->number, &granted, 1, NULL, 0);
        if (c->dead)
            return false;
        a->state = ARRIVAL_COMES;
        if (!granted)
            tcp_arrival_free(c, a);
        return true;
    }
    return false;
}

/* Goes into the record that is sealed now, its last: it has left when the kernel has taken all of
 * it. */
static void frame_leaves(struct tcp_conn *c, struct tcp_frame *f, size_t text_bytes)
{
    f->leaves_at = c->sealed_bytes + TCP_HEAD_BYTES + text_bytes + SEAL_BYTES;
    tcp_queue_put(&c->leaving, f);
}

static bool put_small(struct tcp_conn *c)
{
    struct tcp_frame *f =
        c->peer->current == c && !c->retiring ? tcp_queue_take(&c->peer->small) : NULL;
    if (!f)
        return false;
    size_t size = f->payload ? f->payload->size : 0;
    frame_leaves(c, f, sizeof f->header + size);
    put_record(c, RECORD_FRAME, 0, f->header, sizeof f->header, size ? f->payload->bytes : NULL,
               size);
    return true;
}

static bool put_announcement(struct tcp_conn *c)
{
    if (c->peer->current != c || c->retiring || c->announced.count >= TCP_MAX_ANNOUNCED)
        return false;
    struct tcp_frame *f = tcp_queue_take(&c->peer->large);
    if (!f && c->announced.count <
                  TCP_MAX_ANNOUNCED /
                      2) /* chunks that wait for room never keep others from being announced */
        f = tcp_queue_take(&c->peer->background);
    if (!f)
        return false;
    f->number = ++c->next_number;
    tcp_queue_put(&c->announced, f);
    put_record(c, RECORD_ANNOUNCE, f->number, f->header, sizeof f->header, NULL, 0);
    return true;
}

/* The granted frame that goes on: the first that is no chunk of weights, else the first. */
static struct tcp_frame *next_granted(const struct tcp_conn *c)
{
    struct tcp_frame *chunk = NULL;
    for (struct tcp_frame *f = c->announced.head; f; f = f->next) {
        if (f->granted && !f->background)
            return f;
        if (f->granted && !chunk)
            chunk = f;
    }
    return chunk;
}

static bool put_payload(struct tcp_conn *c)
{
    struct tcp_frame *f = next_granted(c);
    if (!f)
        return false;
    size_t left = f->payload->size - f->sealed_bytes,
           n = left < TCP_CHUNK_BYTES ? left : TCP_CHUNK_BYTES;
    const uint8_t *bytes = f->payload->bytes + f->sealed_bytes;
    f->sealed_bytes += n;
    if (f->sealed_bytes == f->payload->size) {
        tcp_queue_remove(&c->announced, f);
        frame_leaves(c, f, n);
    }
    put_record(c, RECORD_PAYLOAD, f->number, bytes, n, NULL, 0);
    return true;
}

static void put_bye(struct tcp_conn *c)
{
    uint8_t why = (uint8_t)c->bye;
    c->bye_due = false;
    c->bye_sent = true;
    put_record(c, RECORD_BYE, 0, &why, 1, NULL, 0);
}

/* One more record, or false when there is none. */
static bool put_next(struct tcp_conn *c)
{
    if (c->hello_due)
        return put_hello(c), true;
    if (c->bye_sent) /* starts nothing more, but lets the peer finish */
        return c->bye == BYE_RETIRING && put_grant(c);
    if (c->greeted &&
        (put_grant(c) || (!c->dead && (put_small(c) || put_announcement(c) || put_payload(c)))))
        return true;
    if (c->dead)
        return false;
    if (c->bye_due && !c->announced.head)
        return put_bye(c), true;
    if (c->endpoint->clock_ms - c->sent_ms < TCP_BEAT_MS)
        return false;
    c->sent_ms = c->endpoint->clock_ms;
    return put_record(c, RECORD_BEAT, 0, NULL, 0, NULL, 0), true;
}

static void frames_left(struct tcp_conn *c)
{
    while (c->leaving.head && c->leaving.head->leaves_at <= c->left_bytes)
        tcp_frame_end(c->endpoint, tcp_queue_take(&c->leaving), 0);
}

static ssize_t kernel_give(const struct tcp_conn *c)
{
    return send(c->fd, c->out + c->out_start, c->out_end - c->out_start,
                MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* True when the kernel has all of it now. */
static bool sealed_given(struct tcp_conn *c, ssize_t n)
{
    c->out_start += (size_t)n;
    c->left_bytes += (uint64_t)n;
    c->sent_ms = c->pushed_ms = c->endpoint->clock_ms;
    frames_left(c);
    if (c->out_start < c->out_end)
        return false;
    c->out_start = c->out_end = 0;
    return true;
}

/* Gives the kernel what is sealed. False when it takes no more. */
static bool sealed_push(struct tcp_conn *c)
{
    ssize_t n = kernel_give(c);
    if (n >= 0)
        return sealed_given(c, n);
    if (errno != EAGAIN && errno != EINTR)
        tcp_conn_broken(c, HP_ELINK, "%s", strerror(errno));
    return false;
}

static bool nothing_is_ahead(const struct tcp_conn *c)
{
    return c->greeted && !c->dead && !c->dirty && !c->retiring && c->out_start == c->out_end &&
           !tcp_peer_has_queue(c->peer);
}

/* What goes wrong here the endpoint's thread finds as well, and says: nobody is called back from
 * here but whoever posted the frame. */
bool tcp_conn_send_now(struct tcp_conn *c, struct tcp_frame *f)
{
    size_t size = f->payload ? f->payload->size : 0;
    if (!nothing_is_ahead(c))
        return false;
    frame_leaves(c, f, sizeof f->header + size);
    if (!record_seal(c, RECORD_FRAME, 0, f->header, sizeof f->header,
                     size ? f->payload->bytes : NULL, size)) {
        tcp_queue_remove(&c->leaving, f);
        return false;
    }
    ssize_t n = kernel_give(c);
    c->dirty = !sealed_given(c, n < 0 ? 0 : n);
    return true;
}

/* Seals records until there is a good piece for the kernel. */
static void sealed_fill(struct tcp_conn *c)
{
    if (c->out_start == c->out_end) {
        c->pushed_ms = c->endpoint->clock_ms;
        while (!c->dead && c->out_end < TCP_CHUNK_BYTES && put_next(c))
            ;
    }
}

void tcp_conn_write(struct tcp_conn *c)
{
    c->dirty = false;
    for (int i = 0; i < WRITES_PER_TURN && !c->dead; i++) {
        sealed_fill(c);
        if (c->dead)
            return;
        if (c->out_start == c->out_end) {
            tcp_conn_ask(c, c->events & ~(uint32_t)EPOLLOUT);
            if (c->bye_sent && c->bye == BYE_CLOSING)
                shutdown(c->fd, SHUT_WR);
            else if (c->bye_sent && c->bye_came && !c->arrivals)
                tcp_conn_break(c, NULL); /* both have said goodbye, and nothing is on its way */
            return;
        }
        if (!sealed_push(c))
            break;
    }
    if (!c->dead)
        tcp_conn_ask(c, c->events | EPOLLOUT);
}

void tcp_conn_granted(struct tcp_conn *c, uint32_t number, bool granted)
{
    struct tcp_frame *f = c->announced.head;
    while (f && f->number != number)
        f = f->next;
    if (!f || f->granted) {
        tcp_conn_broken(c, HP_EPROTO, "it answers for a frame that was not announced");
        return;
    }
    if (granted) {
        f->granted = true;
        c->dirty = true;
        return;
    }
    tcp_queue_remove(&c->announced,
                     f); /* its session is none of the receiver's: gone, as a small one would be */
    tcp_frame_end(c->endpoint, f, 0);
    c->dirty = true;
}
