/* What data_tcp refuses, and what it keeps: strangers and lying members with sockets of their own against endpoints of this process. */
#include "data_fixture.h"

#include "transport/data_address.h"
#include "transport/data_tcp_int.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SESSION = 77 };

/* ---- a member, or a stranger, with a socket of its own ------------------------------------------------------------------------- */

struct raw {
    int fd;
    struct key_pair keys;
    uint8_t key[KEY_BYTES];
    struct tcp_seal sealer, opener;
};

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
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(a.port)};
    inet_pton(AF_INET, a.host, &at.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* True when the other end closes the connection within `ms`; what it says before is read and forgotten. */
static bool is_closed_within(int fd, double ms)
{
    double until = (double)env_now_ns(&env_real) * 1e-6 + ms * env_time_scale();
    for (double left; (left = until - (double)env_now_ns(&env_real) * 1e-6) > 0;) {
        uint8_t bytes[4096];
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, (int)left + 1) > 0 && recv(fd, bytes, sizeof bytes, 0) <= 0)
            return true;
    }
    return false;
}

static void say(int fd, const void *bytes, size_t size)
{
    if (size > 0 && send(fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
        assert_true(errno == EPIPE || errno == ECONNRESET);
}

static bool hear(int fd, void *bytes, size_t size) { return recv(fd, bytes, size, MSG_WAITALL) == (ssize_t)size; }

static void raw_keys(struct raw *r)
{
    *r = (struct raw){.fd = -1};
    assert_int_equal(key_pair_create(&r->keys, NULL), 0);
    assert_int_equal(key_decode(r->keys.public_key, r->key, NULL), 0);
}

/* Dials and proves itself. False when it is refused. */
static bool raw_prove(struct raw *r, const struct end *to)
{
    struct data_address a = address_of(to);
    struct handshake h;
    struct handshake_result result;
    uint8_t second[HANDSHAKE_SECOND_BYTES];
    size_t n;
    r->fd = dial(to);
    assert_int_equal(handshake_initiate(&h, &r->keys, a.key, HANDSHAKE_TCP, handshake_ciphers(), NULL), 0);
    say(r->fd, handshake_output(&h, &n), HANDSHAKE_FIRST_BYTES);
    handshake_sent(&h);
    if (!hear(r->fd, second, sizeof second))
        return false;
    assert_int_equal(handshake_read(&h, second, sizeof second, NULL), 0);
    say(r->fd, handshake_output(&h, &n), HANDSHAKE_THIRD_BYTES);
    handshake_sent(&h);
    handshake_result(&h, &result);
    return tcp_seal_init(&r->sealer, result.cipher, result.send_key, true, NULL) == 0 &&
           tcp_seal_init(&r->opener, result.cipher, result.receive_key, false, NULL) == 0;
}

static size_t raw_seal(struct raw *r, int kind, uint32_t number, const void *text, size_t size, uint8_t *out)
{
    uint32_t length = (uint32_t)size | (uint32_t)kind << 24;
    memcpy(out, &length, 4);
    memcpy(out + 4, &number, 4);
    assert_true(tcp_seal_close(&r->sealer, out, TCP_HEAD_BYTES, text, size, NULL, 0, out + TCP_HEAD_BYTES));
    return TCP_HEAD_BYTES + size + SEAL_BYTES;
}

static void raw_say(struct raw *r, int kind, uint32_t number, const void *text, size_t size)
{
    static uint8_t record[TCP_RECORD_BYTES];
    say(r->fd, record, raw_seal(r, kind, number, text, size, record));
}

/* Reads one record; its kind, or 0 when the connection has ended. */
static int raw_hear(struct raw *r, uint8_t *text, size_t *size)
{
    static uint8_t record[TCP_RECORD_BYTES];
    uint32_t length;
    if (!hear(r->fd, record, TCP_HEAD_BYTES))
        return 0;
    memcpy(&length, record, 4);
    *size = length & 0xffffff;
    assert_true(*size <= TCP_TEXT_BYTES);
    if (!hear(r->fd, record + TCP_HEAD_BYTES, *size + SEAL_BYTES))
        return 0;
    assert_true(tcp_seal_open(&r->opener, record, TCP_HEAD_BYTES, record + TCP_HEAD_BYTES, *size, text));
    return (int)(length >> 24);
}

/* Reads on until a record of this kind comes. */
static bool raw_hear_kind(struct raw *r, int wanted)
{
    static uint8_t text[TCP_TEXT_BYTES];
    size_t size;
    int kind;
    while ((kind = raw_hear(r, text, &size)) != 0 && kind != wanted)
        ;
    return kind != 0;
}

static void raw_hello(struct raw *r)
{
    uint8_t hello[HELLO_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 1};
    hello[16] = 1;
    raw_say(r, RECORD_HELLO, 0, hello, sizeof hello);
}

static void raw_close(struct raw *r)
{
    if (r->fd >= 0)
        close(r->fd);
    tcp_seal_fini(&r->sealer);
    tcp_seal_fini(&r->opener);
    r->fd = -1;
}

static void header_of(uint8_t out[FRAME_HEADER_BYTES], uint64_t session, uint64_t payload_bytes)
{
    struct frame_header h = {.kind = FRAME_KV, .session = session, .dtype = FRAME_BYTES, .payload_bytes = payload_bytes};
    frame_header_encode(&h, out);
}

static void admit_key(struct end *end, const uint8_t key[KEY_BYTES])
{
    assert_in_range(end->n_friends, 0, 7);
    memcpy(end->friends[end->n_friends++], key, KEY_BYTES);
    assert_int_equal(data_peers_allow(end->d, (const uint8_t (*)[KEY_BYTES])end->friends, (size_t)end->n_friends, NULL), 0);
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
    assert_int_equal(look_at(&c->a, &c->a.failed) + look_at(&c->a, &c->a.downs) + look_at(&c->b, &c->b.downs), 0);
}

static void couple_close(struct couple *c)
{
    data_disconnect(&c->link);
    data_close(&c->a.d);
    data_close(&c->b.d);
}

/* ---- strangers -------------------------------------------------------------------------------------------------------------------- */

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
        say(fd, garbage, sizes[i]);
        if (sizes[i] < HANDSHAKE_FIRST_BYTES)
            shutdown(fd, SHUT_WR);
        assert_true(is_closed_within(fd, 1000));
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
    say(half, first, n / 2);
    say(unfinished, first, n);
    assert_true(is_closed_within(silent, 3000));
    assert_true(is_closed_within(half, 1000));
    assert_true(is_closed_within(unfinished, 1000));
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
    assert_true(raw_prove(&r, &c.b));
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
    assert_int_equal(a.failed, 1);
    assert_non_null(strstr(a.why.text, "does not admit this process's key"));
    assert_int_equal(refused(&b), 1);
    data_disconnect(&link);
    data_close(&a.d);
    data_close(&b.d);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
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
    say(fd, first, n);
    say(fd, more, sizeof more);
    double before = cpu_seconds();
    assert_true(is_closed_within(fd, 2000));
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

/* ---- what a listener on the wire can do ----------------------------------------------------------------------------------------------- */

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
        say(t->fds[!from], bytes, (size_t)n);
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
    assert_int_equal(bind(t->listener, (struct sockaddr *)&at, size) | listen(t->listener, 1) | getsockname(t->listener, (struct sockaddr *)&at, &size), 0);
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
    data_post(link, &(struct frame_header){.kind = FRAME_KV, .session = SESSION}, secret, on_done, &a);
    assert_true(wait_for(&b, &b.frames, 1));
    data_disconnect(&link);
    data_close(&a.d);
    pthread_join(t.thread, NULL);
    assert_null(memmem(t.forth, t.n_forth, "SSSSSSSS", 8)); /* nobody on the way reads it */
    int fd = dial(&b);
    say(fd, t.forth, t.n_forth);
    assert_true(is_closed_within(fd, 3000));
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
    static const size_t at[] = {20, 120, 160, 148 + 41 + 2, 148 + 41 + 20, 148 + 41 + 8 + 80 + 64 + 3};
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

/* ---- members that lie -------------------------------------------------------------------------------------------------------------------- */

static uint8_t text_zero[TCP_TEXT_BYTES];

static void lie_huge(struct raw *r)
{
    uint8_t head[TCP_HEAD_BYTES] = {0xff, 0xff, 0xff, RECORD_FRAME};
    raw_hello(r);
    say(r->fd, head, sizeof head);
}

static void lie_kind(struct raw *r)
{
    raw_hello(r);
    raw_say(r, 200, 0, text_zero, 100);
}

static void lie_before_greeting(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    header_of(text, SESSION, 0);
    raw_say(r, RECORD_FRAME, 0, text, sizeof text);
}

static void lie_twice_greeted(struct raw *r)
{
    raw_hello(r);
    raw_hello(r);
}

static void lie_header(struct raw *r)
{
    raw_hello(r);
    raw_say(r, RECORD_FRAME, 0, text_zero, FRAME_HEADER_BYTES);
}

static void lie_size(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES + 10] = {0};
    header_of(text, SESSION, 1 << 20);
    raw_hello(r);
    raw_say(r, RECORD_FRAME, 0, text, sizeof text);
}

static void lie_small_announced(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    header_of(text, SESSION, 100);
    raw_hello(r);
    raw_say(r, RECORD_ANNOUNCE, 1, text, sizeof text);
}

static void lie_too_many(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    header_of(text, SESSION, 1 << 30);
    raw_hello(r);
    for (uint32_t i = 1; i <= TCP_MAX_ANNOUNCED + 1; i++)
        raw_say(r, RECORD_ANNOUNCE, i, text, sizeof text);
}

static void lie_same_number(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    header_of(text, SESSION, 1 << 20);
    raw_hello(r);
    raw_say(r, RECORD_ANNOUNCE, 1, text, sizeof text);
    raw_say(r, RECORD_ANNOUNCE, 1, text, sizeof text);
}

static void lie_not_granted(struct raw *r)
{
    raw_hello(r);
    raw_say(r, RECORD_PAYLOAD, 1, text_zero, 1000);
}

static void lie_more_than_announced(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    header_of(text, SESSION, TCP_CHUNK_BYTES + 10);
    raw_hello(r);
    raw_say(r, RECORD_ANNOUNCE, 1, text, sizeof text);
    assert_true(raw_hear_kind(r, RECORD_GRANT));
    raw_say(r, RECORD_PAYLOAD, 1, text_zero, TCP_CHUNK_BYTES);
    raw_say(r, RECORD_PAYLOAD, 1, text_zero, 11);
}

static void lie_grant(struct raw *r)
{
    raw_hello(r);
    raw_say(r, RECORD_GRANT, 1, "\1", 1);
}

static void lie_repeated_record(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES], record[200];
    header_of(text, 1, 0); /* of a session that is dropped, so that only the record matters */
    raw_hello(r);
    size_t n = raw_seal(r, RECORD_FRAME, 0, text, sizeof text, record);
    say(r->fd, record, n);
    say(r->fd, record, n);
}

static void a_member_that_lies_loses_its_connection_and_nobody_else_does(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        void (*lie)(struct raw *);
    } lies[] = {
        {"a record of 16 MiB", lie_huge},
        {"a record of no kind", lie_kind},
        {"a frame before the greeting", lie_before_greeting},
        {"two greetings", lie_twice_greeted},
        {"a header of zeros", lie_header},
        {"a header that names another size", lie_size},
        {"a small frame, announced", lie_small_announced},
        {"more announcements than there may be", lie_too_many},
        {"a number that is taken", lie_same_number},
        {"payload that was not granted", lie_not_granted},
        {"more payload than announced", lie_more_than_announced},
        {"a grant of nothing", lie_grant},
        {"a record sent twice", lie_repeated_record},
    };
    struct couple c;
    couple_open(&c);
    couple_talks(&c);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct raw r;
        raw_keys(&r);
        c.b.n_friends = 1; /* `a` */
        admit_key(&c.b, r.key);
        assert_true(raw_prove(&r, &c.b));
        lies[i].lie(&r);
        if (!is_closed_within(r.fd, 2000))
            fail_msg("%s is tolerated", lies[i].what);
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
    assert_true(raw_prove(&r, &c.b));
    raw_hello(&r);
    header_of(text, SESSION, 1 << 20);
    raw_say(&r, RECORD_ANNOUNCE, 1, text, sizeof text);
    assert_true(raw_hear_kind(&r, RECORD_GRANT));
    bool closed = false;
    for (int i = 0; i < 30 && !closed; i++) { /* its heart beats, so silence is not the reason */
        raw_say(&r, RECORD_BEAT, 0, NULL, 0);
        closed = is_closed_within(r.fd, TCP_STALL_MS / 20);
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
    assert_true(raw_prove(&r, &a));
    raw_hello(&r);
    struct data_address where = {.kind = DATA_KIND_TCP, .host = "127.0.0.1", .port = 9};
    memcpy(where.key, r.key, KEY_BYTES);
    size_t n = data_address_print(&where, text);
    assert_true(raw_hear_kind(&r, RECORD_HELLO));
    nanosleep(&(struct timespec){0, 50000000}, NULL); /* the greeting is there; what is posted goes over this connection */
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

/* ---- what must go on working ---------------------------------------------------------------------------------------------------------------- */

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
        assert_int_equal(look_at(&a, &a.failed) + look_at(&b, &b.failed) + look_at(&a, &a.downs) + look_at(&b, &b.downs), 0);
        for (int k = 0; k < 500 && sockets_of_this_process() > before + 4; k++)
            nanosleep(&(struct timespec){0, 10000000}, NULL);
        assert_int_equal(sockets_of_this_process(), before + 4); /* two listeners, both ends of one connection */
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
    struct data_config c = {.port = where.port, .keys = b.keys, .callbacks = {&b, on_frame, on_down}};
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
    uint8_t key[32] = {1}, head[TCP_HEAD_BYTES] = {0}, text[32] = "a record", sealed[32 + SEAL_BYTES], opened[32];
    static const enum handshake_cipher ciphers[] = {HANDSHAKE_AES256_GCM, HANDSHAKE_CHACHA20_POLY1305};
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
    struct data_config taken = {.port = address_of(&a).port, .keys = a.keys}, name = {.host = "localhost", .keys = a.keys}, keyless = {.port = 0};
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
