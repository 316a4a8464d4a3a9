/* Strangers at a data_tcp endpoint, and listeners on the wire: refused, counted, and none the
 * wiser.
 * Waits: until who says nothing is gone. */
#include <arpa/inet.h>
#include <sys/resource.h>

#include "tcp_fixture.h"

TEST(garbage_is_refused_and_counted)
{
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

TEST(silence_and_half_a_handshake_end_within_three_seconds)
{
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

TEST(a_member_is_admitted_through_a_crowd_of_ten_thousand)
{
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

TEST(an_unknown_key_is_refused_after_a_second_and_told)
{
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

TEST(who_is_held_and_goes_on_talking_costs_nothing)
{
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

/* ---- what a listener on the wire can do ---- */

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

TEST(what_was_recorded_opens_nothing_and_says_nothing)
{
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

TEST(a_byte_that_is_changed_on_its_way_ends_the_connection)
{
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_is_refused_and_counted),
        cmocka_unit_test(silence_and_half_a_handshake_end_within_three_seconds),
        cmocka_unit_test(a_member_is_admitted_through_a_crowd_of_ten_thousand),
        cmocka_unit_test(an_unknown_key_is_refused_after_a_second_and_told),
        cmocka_unit_test(who_is_held_and_goes_on_talking_costs_nothing),
        cmocka_unit_test(what_was_recorded_opens_nothing_and_says_nothing),
        cmocka_unit_test(a_byte_that_is_changed_on_its_way_ends_the_connection),
    };
    return cmocka_run_group_tests_name("tcp_strangers", tests, NULL, NULL);
}
