/* What data_tcp refuses, and what it keeps: strangers and lying members with sockets of their own
 * against endpoints of this process. */
#include <arpa/inet.h>
#include <dirent.h>
#include <sys/resource.h>

#include "data_fixture.h"
#include "tests/attack/raw.h"

enum { SESSION = RAW_SESSION };

static struct data_address address_of(const struct end *end)
{
    struct data_address a;
    size_t size;
    const uint8_t *text = data_address(end->d, &size);
    assert_int_equal(data_address_parse(text, size, &a, NULL), 0);
    return a;
}

static int dial(const struct end *to)
{
    struct data_address a = address_of(to);
    int fd = raw_dial(&a);
    assert_true(fd >= 0);
    return fd;
}

static void raw_keys(struct raw *r)
{
    struct key_pair keys;
    assert_int_equal(key_pair_create(&keys, NULL), 0);
    assert_true(raw_init(r, &keys));
}

static bool prove(struct raw *r, const struct end *to)
{
    struct data_address a = address_of(to);
    return raw_prove(r, &a);
}

static void admit_key(struct end *end, const uint8_t key[KEY_BYTES])
{
    assert_in_range(end->n_friends, 0, 7);
    memcpy(end->friends[end->n_friends++], key, KEY_BYTES);
    assert_int_equal(data_peers_allow(end->d, (const uint8_t(*)[KEY_BYTES])end->friends,
                                      (size_t)end->n_friends, NULL),
                     0);
}

static uint64_t refused(const struct end *end)
{
    struct data_stats stats;
    data_stats(end->d, &stats);
    return stats.refused_strangers;
}

static bool refused_reaches(const struct end *end, uint64_t n)
{
    for (int i = 0; i < 1000 && refused(end) < n; i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    return refused(end) >= n;
}

/* Two endpoints that talk; whatever is done to the second, they must go on talking. */
struct couple {
    struct end a, b;
    struct data_link *link;
    int posted;
};

static void couple_open(struct couple *c)
{
    c->posted = 0;
    open_end(&c->a, data_open_tcp, 0);
    open_end(&c->b, data_open_tcp, 0);
    data_allow(c->b.d, SESSION, NULL, NULL);
    c->link = link_to(&c->a, &c->b);
}

static void couple_talks(struct couple *c)
{
    post(&c->a, c->link, SESSION, 1000);
    post(&c->a, c->link, SESSION, 200000);
    c->posted += 2;
    assert_true(wait_for(&c->b, &c->b.frames, c->posted));
    assert_true(wait_for(&c->a, &c->a.done, c->posted));
    assert_int_equal(look_at(&c->a, &c->a.failed) + look_at(&c->a, &c->a.downs) +
                         look_at(&c->b, &c->b.downs),
                     0);
}

static void couple_close(struct couple *c)
{
    data_disconnect(&c->link);
    data_close(&c->a.d);
    data_close(&c->b.d);
}

/* ---- strangers
 * --------------------------------------------------------------------------------------------------------------------
 */

static void garbage_is_refused_and_counted(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 77, HANDSHAKE_FIRST_BYTES, 4096, 100000};
    static uint8_t garbage[100000];
    struct couple c;
    couple_open(&c);
    couple_talks(&c);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizeof garbage; k++)
            garbage[k] = (uint8_t)(k * k + i);
        int fd = dial(&c.b);
        raw_send(fd, garbage, sizes[i]);
        if (sizes[i] < HANDSHAKE_FIRST_BYTES)
            shutdown(fd, SHUT_WR);
        assert_true(raw_is_closed_within(fd, 1000));
        close(fd);
        couple_talks(&c);
    }
    assert_int_equal(refused(&c.b), sizeof sizes / sizeof *sizes);
    couple_close(&c);
}

static void silence_and_half_a_handshake_end_within_three_seconds(void **state)
{
    (void)state;
    struct couple c;
    struct raw r;
    struct handshake h;
    size_t n;
    couple_open(&c);
    raw_keys(&r);
    admit_key(&c.b, r.key);
    struct data_address a = address_of(&c.b);
    int silent = dial(&c.b), half = dial(&c.b), unfinished = dial(&c.b);
    handshake_initiate(&h, &r.keys, a.key, HANDSHAKE_TCP, handshake_ciphers(), NULL);
    const uint8_t *first = handshake_output(&h, &n);
    raw_send(half, first, n / 2);
    raw_send(unfinished, first, n);
    assert_true(raw_is_closed_within(silent, 3000));
    assert_true(raw_is_closed_within(half, 1000));
    assert_true(raw_is_closed_within(unfinished, 1000));
    assert_true(refused_reaches(&c.b, 3));
    close(silent);
    close(half);
    close(unfinished);
    couple_talks(&c);
    couple_close(&c);
}

static void a_member_is_admitted_through_a_crowd_of_ten_thousand(void **state)
{
    (void)state;
    enum { CROWD = 10000, OPEN = 400 };
    static int fds[OPEN];
    struct couple c;
    couple_open(&c);
    for (int i = 0; i < CROWD; i++) {
        if (i >= OPEN)
            close(fds[i % OPEN]);
        fds[i % OPEN] = dial(&c.b);
        if (i % 1000 == 500)
            couple_talks(&c); /* the first time, this connects */
    }
    struct raw r;
    raw_keys(&r);
    admit_key(&c.b, r.key);
    assert_true(prove(&r, &c.b));
    raw_close(&r);
    for (int i = 0; i < OPEN; i++)
        close(fds[i]);
    couple_talks(&c);
    assert_true(refused_reaches(&c.b, CROWD - 1000));
    couple_close(&c);
}

static void an_unknown_key_is_refused_after_a_second_and_told(void **state)
{
    (void)state;
    struct end a, b;
    size_t size;
    struct data_link *link;
    open_end(&a, data_open_tcp, 0);
    open_end(&b, data_open_tcp, 0);
    const uint8_t *address = data_address(b.d, &size);
    assert_int_equal(data_connect(a.d, address, size, &link, NULL), 0);
    post(&a, link, SESSION, 10);
    assert_true(wait_for(&a, &a.downs, 1));
    assert_true(wait_for(&a, &a.failed, 1));
    assert_non_null(strstr(a.why.text, "does not admit this process's key"));
    assert_true(refused_reaches(&b, 1));
    assert_int_equal(refused(&b), 1);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void who_is_held_and_goes_on_talking_costs_nothing(void **state)
{
    (void)state;
    struct end b;
    struct raw r;
    struct handshake h;
    size_t n;
    uint8_t more[100] = {0};
    open_end(&b, data_open_tcp, 0);
    raw_keys(&r); /* nobody admits it */
    struct data_address a = address_of(&b);
    handshake_initiate(&h, &r.keys, a.key, HANDSHAKE_TCP, handshake_ciphers(), NULL);
    int fd = dial(&b);
    const uint8_t *first = handshake_output(&h, &n);
    raw_send(fd, first, n);
    raw_send(fd, more, sizeof more);
    double before = cpu_seconds();
    assert_true(raw_is_closed_within(fd, 2000));
    assert_true(cpu_seconds() - before < 0.2 * env_time_scale());
    close(fd);
    data_close(&b.d);
}

static void a_key_whose_news_is_late_is_admitted(void **state)
{
    (void)state;
    struct end a, b;
    struct raw r;
    size_t size;
    struct data_link *link;
    open_end(&a, data_open_tcp, 0);
    open_end(&b, data_open_tcp, 0);
    data_allow(b.d, SESSION, NULL, NULL);
    raw_keys(&r);
    admit_key(&b, r.key); /* somebody else */
    const uint8_t *address = data_address(b.d, &size);
    assert_int_equal(data_connect(a.d, address, size, &link, NULL), 0);
    post(&a, link, SESSION, 10);
    nanosleep(&(struct timespec){0, 200000000}, NULL); /* the peer dials meanwhile */
    assert_int_equal(look_at(&b, &b.frames), 0);
    admit(&b, &a);
    assert_true(wait_for(&b, &b.frames, 1));
    assert_int_equal(look_at(&a, &a.downs), 0);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void a_key_that_leaves_the_set_loses_its_connection(void **state)
{
    (void)state;
    struct couple c;
    couple_open(&c);
    couple_talks(&c);
    assert_int_equal(data_peers_allow(c.b.d, NULL, 0, NULL), 0);
    assert_true(wait_for(&c.a, &c.a.downs, 1));
    couple_close(&c);
}

/* ---- what a listener on the wire can do
 * -----------------------------------------------------------------------------------------------
 */

struct tap {
    int listener;
    struct data_address to;
    uint8_t forth[1 << 16];
    size_t n_forth;
    size_t flip_at; /* offset of the byte to change on its way; SIZE_MAX: none */
    int fds[2];
    pthread_t thread;
};

static void *tap_run(void *ctx)
{
    struct tap *t = ctx;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(t->to.port)};
    inet_pton(AF_INET, t->to.host, &at.sin_addr);
    t->fds[0] = accept(t->listener, NULL, NULL);
    t->fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(t->fds[1], (struct sockaddr *)&at, sizeof at) != 0)
        return NULL;
    for (;;) {
        uint8_t bytes[16384];
        struct pollfd p[2] = {{t->fds[0], POLLIN, 0}, {t->fds[1], POLLIN, 0}};
        poll(p, 2, -1);
        int from = p[0].revents ? 0 : 1;
        ssize_t n = recv(t->fds[from], bytes, sizeof bytes, 0);
        if (n <= 0)
            break;
        if (from == 0 && t->flip_at >= t->n_forth && t->flip_at < t->n_forth + (size_t)n)
            bytes[t->flip_at - t->n_forth] ^= 1;
        if (from == 0 && t->n_forth + (size_t)n <= sizeof t->forth) {
            memcpy(t->forth + t->n_forth, bytes, (size_t)n);
            t->n_forth += (size_t)n;
        }
        raw_send(t->fds[!from], bytes, (size_t)n);
    }
    close(t->fds[0]);
    close(t->fds[1]);
    return NULL;
}

/* A link from `a` to `b` by way of the tap. */
static struct data_link *tap_open(struct tap *t, struct end *a, struct end *b, size_t flip_at)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    char text[DATA_ADDRESS_TEXT];
    struct data_link *link = NULL;
    memset(t, 0, sizeof *t);
    t->flip_at = flip_at;
    t->to = address_of(b);
    t->listener = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    assert_int_equal(bind(t->listener, (struct sockaddr *)&at, size) | listen(t->listener, 1) |
                         getsockname(t->listener, (struct sockaddr *)&at, &size),
                     0);
    assert_int_equal(pthread_create(&t->thread, NULL, tap_run, t), 0);
    struct data_address by = t->to;
    by.port = ntohs(at.sin_port);
    size_t n = data_address_print(&by, text);
    admit(b, a);
    assert_int_equal(data_connect(a->d, (const uint8_t *)text, n, &link, NULL), 0);
    return link;
}

static void what_was_recorded_opens_nothing_and_says_nothing(void **state)
{
    (void)state;
    static struct tap t;
    struct end a, b;
    open_end(&a, data_open_tcp, 0);
    open_end(&b, data_open_tcp, 0);
    data_allow(b.d, SESSION, NULL, NULL);
    struct data_link *link = tap_open(&t, &a, &b, SIZE_MAX);
    struct data_buffer *secret = data_buffer_get(a.d, 64);
    memset(secret->bytes, 'S', 64);
    data_post(link, &(struct frame_header){.kind = FRAME_KV, .session = SESSION}, secret, on_done,
              &a);
    assert_true(wait_for(&b, &b.frames, 1));
    data_disconnect(&link);
    data_close(&a.d);
    pthread_join(t.thread, NULL);
    assert_null(memmem(t.forth, t.n_forth, "SSSSSSSS", 8)); /* nobody on the way reads it */
    int fd = dial(&b);
    raw_send(fd, t.forth, t.n_forth);
    assert_true(raw_is_closed_within(fd, 3000));
    close(fd);
    assert_true(refused_reaches(&b, 1));
    assert_int_equal(look_at(&b, &b.frames), 1);
    close(t.listener);
    data_close(&b.d);
}

static void a_byte_that_is_changed_on_its_way_ends_the_connection(void **state)
{
    (void)state;
    /* within: FIRST, THIRD, the greeting, the head of the frame's record, its text, its seal */
    static const size_t at[] = {20,           120,           160,
                                148 + 41 + 2, 148 + 41 + 20, 148 + 41 + 8 + 80 + 64 + 3};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        static struct tap t;
        struct end a, b;
        open_end(&a, data_open_tcp, 0);
        open_end(&b, data_open_tcp, 0);
        data_allow(b.d, SESSION, NULL, NULL);
        struct data_link *link = tap_open(&t, &a, &b, at[i]);
        post(&a, link, SESSION, 64);
        assert_true(wait_for(&a, &a.downs, 1));
        assert_int_equal(look_at(&b, &b.frames), 0);
        data_disconnect(&link);
        data_close(&a.d);
        pthread_join(t.thread, NULL);
        close(t.listener);
        data_close(&b.d);
    }
}

/* ---- members that lie
 * --------------------------------------------------------------------------------------------------------------------
 */

static void a_member_that_lies_loses_its_connection_and_nobody_else_does(void **state)
{
    (void)state;
    struct couple c;
    couple_open(&c);
    couple_talks(&c);
    for (size_t i = 0; i < RAW_LIES; i++) {
        struct raw r;
        raw_keys(&r);
        c.b.n_friends = 1; /* `a` */
        admit_key(&c.b, r.key);
        assert_true(prove(&r, &c.b));
        raw_lies[i].lie(&r);
        if (!raw_is_closed_within(r.fd, 2000))
            fail_msg("%s is tolerated", raw_lies[i].what);
        raw_close(&r);
        couple_talks(&c);
    }
    struct data_stats stats;
    data_stats(c.b.d, &stats);
    assert_int_equal(stats.buffers_bytes, 0); /* no buffer stayed with them */
    couple_close(&c);
}

static void a_member_that_announces_and_sends_nothing_is_dropped(void **state)
{
    (void)state;
    struct couple c;
    struct raw r;
    uint8_t text[FRAME_HEADER_BYTES];
    couple_open(&c);
    raw_keys(&r);
    admit_key(&c.b, r.key);
    assert_true(prove(&r, &c.b));
    raw_hello(&r);
    raw_header(text, SESSION, 1 << 20);
    raw_say(&r, RECORD_ANNOUNCE, 1, text, sizeof text);
    assert_true(raw_hear_kind(&r, RECORD_GRANT));
    bool closed = false;
    for (int i = 0; i < 30 && !closed; i++) { /* its heart beats, so silence is not the reason */
        raw_say(&r, RECORD_BEAT, 0, NULL, 0);
        closed = raw_is_closed_within(r.fd, TCP_STALL_MS / 20);
    }
    assert_true(closed);
    raw_close(&r);
    couple_talks(&c);
    couple_close(&c);
}

static void a_session_bound_to_another_key_is_foreign(void **state)
{
    (void)state;
    struct couple c;
    struct end other;
    uint8_t key[KEY_BYTES];
    couple_open(&c);
    open_end(&other, data_open_tcp, 0);
    key_decode(other.keys.public_key, key, NULL);
    assert_int_equal(data_allow(c.b.d, SESSION, key, NULL), 0);
    struct data_link *link = link_to(&other, &c.b);
    post(&c.a, c.link, SESSION, 100);
    post(&c.a, c.link, SESSION, 1 << 20);
    assert_true(wait_for(&c.a, &c.a.done, 2));
    post(&other, link, SESSION, 100);
    post(&other, link, SESSION, 1 << 20);
    assert_true(wait_for(&c.b, &c.b.frames, 2));
    struct data_stats stats;
    data_stats(c.b.d, &stats);
    assert_int_equal(stats.dropped_foreign, 2);
    assert_int_equal(stats.frames_received, 2);
    data_disconnect(&link);
    data_close(&other.d);
    couple_close(&c);
}

static void a_peer_that_falls_silent_is_noticed_within_three_seconds(void **state)
{
    (void)state;
    struct end a;
    struct raw r;
    struct data_link *link;
    char text[DATA_ADDRESS_TEXT];
    open_end(&a, data_open_tcp, 0);
    raw_keys(&r);
    admit_key(&a, r.key);
    assert_true(prove(&r, &a));
    raw_hello(&r);
    struct data_address where = {.kind = DATA_KIND_TCP, .host = "127.0.0.1", .port = 9};
    memcpy(where.key, r.key, KEY_BYTES);
    size_t n = data_address_print(&where, text);
    assert_true(raw_hear_kind(&r, RECORD_HELLO));
    nanosleep(&(struct timespec){0, 50000000},
              NULL); /* the greeting is there; what is posted goes over this connection */
    assert_int_equal(data_connect(a.d, (const uint8_t *)text, n, &link, NULL), 0);
    uint64_t started = env_now_ns(&env_real);
    post(&a, link, SESSION, 100);
    assert_true(wait_for(&a, &a.downs, 1));
    double took_s = (double)(env_now_ns(&env_real) - started) * 1e-9;
    assert_true(took_s > 1 && took_s < 3 * env_time_scale());
    assert_int_equal(a.why.code, HP_ETIMEOUT);
    assert_non_null(strstr(a.why.text, "nothing was heard"));
    raw_close(&r);
    data_disconnect(&link);
    data_close(&a.d);
}

/* ---- what must go on working
 * ----------------------------------------------------------------------------------------------------------------
 */

static int sockets_of_this_process(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[300], target[64];
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t size = readlink(path, target, sizeof target);
        n += size > 7 && memcmp(target, "socket:", 7) == 0;
    }
    closedir(dir);
    return n;
}

static void two_that_dial_each_other_lose_nothing_and_keep_one_connection(void **state)
{
    (void)state;
    enum { TURNS = 40 };
    int before = sockets_of_this_process();
    for (int i = 0; i < TURNS; i++) {
        struct end a, b;
        open_end(&a, data_open_tcp, 0);
        open_end(&b, data_open_tcp, 0);
        data_allow(a.d, SESSION, NULL, NULL);
        data_allow(b.d, SESSION, NULL, NULL);
        struct data_link *there = link_to(&a, &b), *back = link_to(&b, &a);
        for (int k = 0; k < 3; k++) {
            post(&a, there, SESSION, k == 1 ? 300000 : 100);
            post(&b, back, SESSION, k == 2 ? 300000 : 100);
        }
        assert_true(wait_for(&a, &a.frames, 3) && wait_for(&b, &b.frames, 3));
        assert_true(wait_for(&a, &a.done, 3) && wait_for(&b, &b.done, 3));
        assert_int_equal(look_at(&a, &a.failed) + look_at(&b, &b.failed) + look_at(&a, &a.downs) +
                             look_at(&b, &b.downs),
                         0);
        for (int k = 0; k < 500 && sockets_of_this_process() > before + 4; k++)
            nanosleep(&(struct timespec){0, 10000000}, NULL);
        assert_int_equal(sockets_of_this_process(),
                         before + 4); /* two listeners, both ends of one connection */
        data_disconnect(&there);
        data_disconnect(&back);
        data_close(&a.d);
        data_close(&b.d);
    }
}

static void a_peer_that_was_started_anew_is_found_again(void **state)
{
    (void)state;
    struct end a, b;
    open_end(&a, data_open_tcp, 0);
    open_end(&b, data_open_tcp, 0);
    data_allow(b.d, SESSION, NULL, NULL);
    struct data_link *link = link_to(&a, &b);
    post(&a, link, SESSION, 100);
    assert_true(wait_for(&b, &b.frames, 1));
    struct data_address where = address_of(&b);
    data_close(&b.d);
    assert_true(wait_for(&a, &a.downs, 1));
    data_disconnect(&link);
    struct data_config c = {
        .port = where.port, .keys = b.keys, .callbacks = {&b, on_frame, on_down}};
    struct err e = {0};
    if (data_open_tcp(&c, &b.d, &e) < 0)
        fail_msg("%s", e.text);
    data_allow(b.d, SESSION, NULL, NULL);
    b.n_friends = 0;
    link = link_to(&a, &b);
    post(&a, link, SESSION, 100);
    assert_true(wait_for(&b, &b.frames, 2));
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static void what_is_done_arrives_though_its_sender_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct end a, b;
        open_end(&a, data_open_tcp, 0);
        open_end(&b, data_open_tcp, 0);
        data_allow(b.d, SESSION, NULL, NULL);
        struct data_link *link = link_to(&a, &b);
        for (int k = 0; k < 4; k++)
            post(&a, link, SESSION, 3 << 20);
        assert_true(wait_for(&a, &a.done, 4));
        data_disconnect(&link);
        data_close(&a.d);
        assert_true(wait_for(&b, &b.frames, 4));
        data_close(&b.d);
    }
}

static void frames_to_oneself_arrive(void **state)
{
    (void)state;
    struct end a;
    size_t size;
    struct data_link *link;
    open_end(&a, data_open_tcp, 0);
    data_allow(a.d, SESSION, NULL, NULL);
    const uint8_t *address = data_address(a.d, &size);
    assert_int_equal(data_connect(a.d, address, size, &link, NULL), 0);
    post(&a, link, SESSION, 0);
    post(&a, link, SESSION, 100);
    post(&a, link, SESSION, 1 << 20);
    assert_true(wait_for(&a, &a.frames, 3));
    assert_true(wait_for(&a, &a.done, 3));
    assert_int_equal(a.failed, 0);
    data_disconnect(&link);
    data_close(&a.d);
}

static void keys_are_replaced_every_so_many_records(void **state)
{
    (void)state;
    struct tcp_seal out, in;
    uint8_t key[32] = {1}, head[TCP_HEAD_BYTES] = {0}, text[32] = "a record",
            sealed[32 + SEAL_BYTES], opened[32];
    static const enum handshake_cipher ciphers[] = {HANDSHAKE_AES256_GCM,
                                                    HANDSHAKE_CHACHA20_POLY1305};
    for (int i = 0; i < 2; i++) {
        tcp_seal_init(&out, ciphers[i], key, true, NULL);
        tcp_seal_init(&in, ciphers[i], key, false, NULL);
        out.number = in.number = SEAL_RECORDS_PER_KEY - 2;
        for (int k = 0; k < 4; k++) {
            assert_true(tcp_seal_close(&out, head, sizeof head, text, 32, NULL, 0, sealed));
            assert_true(tcp_seal_open(&in, head, sizeof head, sealed, 32, opened));
            assert_memory_equal(opened, text, 32);
        }
        assert_memory_not_equal(out.key, key, 32);
        assert_true(tcp_seal_close(&out, head, sizeof head, text, 32, NULL, 0, sealed));
        head[0] = 1; /* the clear head counts */
        assert_false(tcp_seal_open(&in, head, sizeof head, sealed, 32, opened));
        head[0] = 0;
        tcp_seal_fini(&out);
        tcp_seal_fini(&in);
    }
}

static void what_cannot_be_opened_says_why(void **state)
{
    (void)state;
    struct end a;
    struct data_endpoint *d = NULL;
    struct data_link *link;
    struct err e = {0};
    open_end(&a, data_open_tcp, 0);
    struct data_config taken = {.port = address_of(&a).port, .keys = a.keys},
                       name = {.host = "localhost", .keys = a.keys}, keyless = {.port = 0};
    assert_int_equal(data_open_tcp(&taken, &d, &e), HP_EBUSY);
    assert_non_null(strstr(e.hint, "--data-port"));
    assert_int_equal(data_open_tcp(&name, &d, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "numeric"));
    assert_int_equal(data_open_tcp(&keyless, &d, &e), HP_EINVAL);
    struct data_address other = address_of(&a);
    char text[DATA_ADDRESS_TEXT];
    other.kind = DATA_KIND_UCX;
    size_t n = data_address_print(&other, text);
    assert_int_equal(data_connect(a.d, (const uint8_t *)text, n, &link, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "UCX"));
    data_close(&a.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_is_refused_and_counted),
        cmocka_unit_test(silence_and_half_a_handshake_end_within_three_seconds),
        cmocka_unit_test(a_member_is_admitted_through_a_crowd_of_ten_thousand),
        cmocka_unit_test(an_unknown_key_is_refused_after_a_second_and_told),
        cmocka_unit_test(who_is_held_and_goes_on_talking_costs_nothing),
        cmocka_unit_test(a_key_whose_news_is_late_is_admitted),
        cmocka_unit_test(a_key_that_leaves_the_set_loses_its_connection),
        cmocka_unit_test(what_was_recorded_opens_nothing_and_says_nothing),
        cmocka_unit_test(a_byte_that_is_changed_on_its_way_ends_the_connection),
        cmocka_unit_test(a_member_that_lies_loses_its_connection_and_nobody_else_does),
        cmocka_unit_test(a_member_that_announces_and_sends_nothing_is_dropped),
        cmocka_unit_test(a_session_bound_to_another_key_is_foreign),
        cmocka_unit_test(a_peer_that_falls_silent_is_noticed_within_three_seconds),
        cmocka_unit_test(two_that_dial_each_other_lose_nothing_and_keep_one_connection),
        cmocka_unit_test(a_peer_that_was_started_anew_is_found_again),
        cmocka_unit_test(what_is_done_arrives_though_its_sender_closes),
        cmocka_unit_test(frames_to_oneself_arrive),
        cmocka_unit_test(keys_are_replaced_every_so_many_records),
        cmocka_unit_test(what_cannot_be_opened_says_why),
    };
    return cmocka_run_group_tests_name("data_tcp", tests, NULL, NULL);
}
