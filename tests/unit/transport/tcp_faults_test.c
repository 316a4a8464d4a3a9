/* What the thread of data_tcp does, without that thread: two endpoints of this process that are
 * turned by hand, with every allocation failing once. */
#include <sodium.h>
#include <sys/epoll.h>

#include "tests/unit/faults.h"
#include "transport/data_tcp_int.h"

enum { SESSION = 7, TURNS = 600 };

struct hand {
    struct tcp_endpoint d;
    int frames, downs, done, failed;
};

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct hand *hand = ctx;
    (void)h;
    hand->frames++;
    data_buffer_release(&hand->d.base, payload);
}

static void on_down(void *ctx, struct data_link *link, const struct err *why)
{
    struct hand *hand = ctx;
    (void)link, (void)why;
    hand->downs++;
}

static void on_done(void *ctx, int status)
{
    struct hand *hand = ctx;
    hand->done++;
    hand->failed += status != 0;
}

static void no_room(struct data_endpoint *d)
{
    (void)d;
}

static int hand_open(struct hand *hand, struct err *e)
{
    static const struct data_ops ops = {.room = no_room};
    struct tcp_endpoint *d = &hand->d;
    memset(hand, 0, sizeof *hand);
    struct data_config c = {.callbacks = {hand, on_frame, on_down}};
    data_base_init(&d->base, &ops, &c);
    d->orders_tail = &d->orders;
    d->time_scale = 1;
    d->clock_ms = 1000;
    d->listener = -1;
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    int rc = key_pair_create(&d->keys, e);
    rc = rc < 0 ? rc : key_decode(d->keys.public_key, d->key, e);
    randombytes_buf(&d->instance, sizeof d->instance);
    rc = rc < 0 ? rc : tcp_listen(d, "127.0.0.1", 0, e);
    return rc < 0 ? rc : data_allow(&d->base, SESSION, NULL, e);
}

static void hand_turn(struct hand *hand)
{
    struct tcp_endpoint *d = &hand->d;
    struct epoll_event events[16];
    int n = epoll_wait(d->epoll, events, 16, 0);
    d->clock_ms += 10;
    for (int i = 0; i < n; i++) {
        struct tcp_watch *w = events[i].data.ptr;
        w->ready(w, events[i].events);
    }
    tcp_proofs_tick(d);
    tcp_conns_tick(d);
    tcp_peers_tick(d);
    tcp_listen_again(d);
    for (struct tcp_conn *c = d->conns, *next; c; c = next) {
        next = c->next;
        if (c->dirty)
            tcp_conn_write(c);
    }
}

static void hand_close(struct hand *hand)
{
    struct tcp_endpoint *d = &hand->d;
    d->closing = true;
    while (d->conns)
        tcp_conn_break(d->conns, &(struct err){HP_ELINK, "the end", ""});
    tcp_proofs_drop(d);
    for (struct tcp_peer *peer = d->peers; peer; peer = peer->next)
        tcp_peer_fail(peer, &(struct err){HP_ELINK, "the end", ""});
    while (d->dead) {
        struct tcp_watch *w = d->dead;
        d->dead = w->next_dead;
        w->free(w);
    }
    while (d->peers) {
        struct tcp_peer *peer = d->peers;
        d->peers = peer->next;
        free(peer);
    }
    tcp_frames_free(d);
    close(d->epoll);
    if (d->listener >= 0)
        close(d->listener);
    data_base_fini(&d->base);
}

/* False for want of memory. */
static bool post(struct hand *from, struct tcp_link *link, size_t size)
{
    struct tcp_frame *f = tcp_frame_get(&from->d);
    struct data_buffer *payload = f && size ? data_buffer_get(&from->d.base, size) : NULL;
    if (!f || (size && !payload)) {
        free(f);
        return false;
    }
    *f = (struct tcp_frame){.order = {.is_frame = true, .link = link},
                            .payload = payload,
                            .done = on_done,
                            .done_ctx = from};
    frame_header_encode(
        &(struct frame_header){
            .kind = FRAME_KV, .session = SESSION, .dtype = FRAME_BYTES, .payload_bytes = size},
        f->header);
    tcp_peer_post(&from->d, f);
    return true;
}

/* Dials, proves, greets, sends a small frame and two large ones. All arrive, or whoever posted them
 * is told. */
static int frames_carried(void *ctx)
{
    static struct hand a, b;
    struct err e = {0};
    int posted = 0;
    (void)ctx;
    int rc = hand_open(&a, &e), rc_b = hand_open(&b, &e);
    rc = rc < 0 ? rc : rc_b;
    struct tcp_link *link = rc == 0 ? calloc(1, sizeof *link) : NULL;
    if (link) {
        link->base.endpoint = &a.d.base;
        rc = data_address_parse(b.d.base.address, b.d.base.address_size, &link->where, &e);
        uint8_t(*keys)[KEY_BYTES] = &a.d.key;
        b.d.base.ops = &(struct data_ops){.room = no_room};
        rc = rc < 0 ? rc : data_peers_allow(&b.d.base, (const uint8_t(*)[KEY_BYTES])keys, 1, &e);
        for (size_t i = 0; rc == 0 && i < 3; i++)
            posted += post(&a, link, i * 100000);
        for (int i = 0; i < TURNS && a.done < posted && rc == 0; i++) {
            hand_turn(&a);
            hand_turn(&b);
        }
        for (int i = 0; i < 50 && rc == 0 && b.frames < 3; i++)
            hand_turn(&b);
    }
    bool whole = rc == 0 && link && posted == 3 && b.frames == 3 && a.failed == 0,
         told = a.done == posted;
    if (link)
        tcp_peer_link_gone(link);
    hand_close(&a);
    hand_close(&b);
    return !told && rc == 0 ? HP_EBUG : whole ? 0 : HP_ENOMEM;
}

TEST(the_tcp_thread_bears_failing_allocations)
{
    faults_each("frames over TCP", frames_carried, NULL);
}

/* A frame of each kind there: without payload, in one record, announced. */
static void frames_exchange(struct hand *a, struct hand *b, struct tcp_link *link)
{
    int frames = b->frames, done = a->done;
    for (size_t i = 0; i < 3; i++)
        assert_true(post(a, link, i * 100000 + i));
    for (int i = 0; i < TURNS && (a->done < done + 3 || b->frames < frames + 3); i++) {
        hand_turn(a);
        hand_turn(b);
    }
    assert_int_equal(b->frames, frames + 3);
    assert_int_equal(a->done, done + 3);
}

TEST(frames_allocate_nothing_once_others_have_been)
{
    enum { WARM = 4, COUNTED = 50 };
    static struct hand a, b;
    struct tcp_link *link = calloc(1, sizeof *link);
    struct err e = {0};
    assert_int_equal(hand_open(&a, &e) | hand_open(&b, &e), 0);
    assert_non_null(link);
    link->base.endpoint = &a.d.base;
    assert_int_equal(data_address_parse(b.d.base.address, b.d.base.address_size, &link->where, &e),
                     0);
    assert_int_equal(data_peers_allow(&b.d.base, &a.d.key, 1, &e), 0);
    for (int i = 0; i < WARM; i++)
        frames_exchange(&a, &b, link);
    faults.armed = true;
    faults.count = 0;
    for (int i = 0; i < COUNTED; i++)
        frames_exchange(&a, &b, link);
    faults.armed = false;
    assert_int_equal(faults.count, 0);
    tcp_peer_link_gone(link);
    hand_close(&a);
    hand_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tcp_thread_bears_failing_allocations),
        cmocka_unit_test(frames_allocate_nothing_once_others_have_been)};
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
