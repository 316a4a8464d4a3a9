/* What may pass of HTTP/2 to a library that parses it, and the thread that carries it. */
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coordinator/gateway/rpc_frames.h"
#include "coordinator/gateway/rpc_guard.h"
#include "tests/test.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum { PREFACE_BYTES = 24, HEAD_BYTES = 9, SECOND_NS = 1000000000 };
enum { DATA = 0, HEADERS = 1, RESET = 3, SETTINGS = 4, PING = 6, MORE_HEADERS = 9 };
enum { END_HEADERS = 4 };

static size_t head_put(uint8_t *out, uint32_t n, uint8_t type, uint8_t flags)
{
    const uint8_t head[HEAD_BYTES] = {
        (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n, type, flags, 0, 0, 0, 1};
    memcpy(out, head, sizeof head);
    return sizeof head;
}

/* One connection's reading, behind its beginning. */
static struct rpc_frames begun(struct rpc_turns *resets)
{
    struct rpc_frames f = {0};
    assert_false(rpc_frames_began(&f));
    assert_int_equal(rpc_frames_pass(&f, resets, 1, (const uint8_t *)PREFACE, PREFACE_BYTES),
                     PREFACE_BYTES);
    assert_true(rpc_frames_began(&f));
    return f;
}

/* How many of n frames of this kind pass whole; -1: the connection ends. */
static int frames_pass(struct rpc_frames *f, struct rpc_turns *resets, uint64_t now_ns, int n,
                       uint32_t payload, uint8_t type, uint8_t flags)
{
    uint8_t *bytes = calloc(1, HEAD_BYTES + payload);
    int passed = 0;
    ptrdiff_t rc = 1;
    assert_non_null(bytes);
    head_put(bytes, payload, type, flags);
    for (; passed < n && rc > 0; passed += rc == (ptrdiff_t)(HEAD_BYTES + payload))
        rc = rpc_frames_pass(f, resets, now_ns, bytes, HEAD_BYTES + payload);
    free(bytes);
    return rc < 0 ? -1 : passed;
}

TEST(what_does_not_begin_as_http2_passes_no_further)
{
    struct rpc_turns resets = {0};
    struct rpc_frames f = {0};
    static const char asked[] = "PUT / HTTP/1.1\r\n";
    assert_int_equal(rpc_frames_pass(&f, &resets, 1, (const uint8_t *)asked, sizeof asked - 1), -1);
}

TEST(frames_pass_however_they_are_cut)
{
    uint8_t bytes[256];
    memcpy(bytes, PREFACE, PREFACE_BYTES);
    size_t n = PREFACE_BYTES;
    n += head_put(bytes + n, 0, SETTINGS, 0);
    n += head_put(bytes + n, 20, HEADERS, END_HEADERS);
    memset(bytes + n, 7, 20);
    n += 20;
    n += head_put(bytes + n, 30, DATA, 1);
    memset(bytes + n, 3, 30); /* a payload that would be heads of resets is none */
    n += 30;
    n += head_put(bytes + n, 8, PING, 0) + 8;
    for (size_t piece = 1; piece <= n; piece++) {
        struct rpc_turns resets = {0};
        struct rpc_frames f = {0};
        for (size_t at = 0; at < n; at += piece) {
            size_t some = piece < n - at ? piece : n - at;
            assert_int_equal(rpc_frames_pass(&f, &resets, 1, bytes + at, some), some);
        }
        assert_int_equal(f.left, 0);
        assert_true(f.asks.left == RPC_ASKS_PER_S - 2 && resets.left == RPC_RESETS_PER_S);
    }
}

TEST(a_block_of_headers_is_bounded_in_bytes_and_in_frames)
{
    struct rpc_turns resets = {0};
    struct rpc_frames f = begun(&resets);
    for (int i = 0; i < 1000; i++) /* each ends */
        assert_int_equal(frames_pass(&f, &resets, 1, 1, 16384, HEADERS, END_HEADERS), 1);
    assert_int_equal(frames_pass(&f, &resets, 1, 1, 16384, HEADERS, 0), 1);
    assert_int_equal(frames_pass(&f, &resets, 1, 1, 16384, MORE_HEADERS, 0), 1);
    assert_int_equal(frames_pass(&f, &resets, 1, 1, 1, MORE_HEADERS, 0), -1);
    f = begun(&resets);
    assert_int_equal(frames_pass(&f, &resets, 1, RPC_BLOCK_FRAMES, 0, MORE_HEADERS, 0),
                     RPC_BLOCK_FRAMES);
    assert_int_equal(frames_pass(&f, &resets, 1, 1, 0, MORE_HEADERS, 0), -1);
    f = begun(&resets); /* as said, not as sent */
    uint8_t head[HEAD_BYTES];
    head_put(head, 0xffffff, HEADERS, END_HEADERS);
    assert_int_equal(rpc_frames_pass(&f, &resets, 1, head, sizeof head), -1);
}

TEST(what_takes_calls_back_or_wants_answers_waits_its_turn)
{
    struct rpc_turns resets = {0};
    struct rpc_frames f = begun(&resets);
    static const struct {
        uint8_t type, flags;
        uint32_t payload;
        int at_once;
    } kinds[] = {{RESET, 0, 4, RPC_ASKS_PER_S},    {PING, 0, 8, RPC_ASKS_PER_S},
                 {SETTINGS, 0, 0, RPC_ASKS_PER_S}, {PING, 1, 8, 5000},
                 {SETTINGS, 1, 0, 5000},           {DATA, 0, 10, 5000}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        f = begun(&resets);
        assert_int_equal(frames_pass(&f, &resets, SECOND_NS, 5000, kinds[i].payload, kinds[i].type,
                                     kinds[i].flags),
                         kinds[i].at_once);
        assert_int_equal(f.waits, kinds[i].at_once < 5000);
        /* The head's last byte is what waits: it passes, and the payload, when there is a turn. */
        uint8_t rest[HEAD_BYTES] = {0};
        if (f.waits) {
            assert_int_equal(rpc_frames_pass(&f, &resets, SECOND_NS, rest, 1 + kinds[i].payload),
                             0);
            assert_int_equal(
                rpc_frames_pass(&f, &resets, 2ull * SECOND_NS, rest, 1 + kinds[i].payload),
                1 + kinds[i].payload);
            assert_false(f.waits);
        }
    }
}

TEST(resets_of_all_connections_are_bounded_together)
{
    struct rpc_turns resets = {0};
    int passed = 0;
    for (int i = 0; i < 20; i++) {
        struct rpc_frames f = begun(&resets);
        passed += frames_pass(&f, &resets, 1, RPC_ASKS_PER_S, 4, RESET, 0);
    }
    assert_int_equal(passed, RPC_RESETS_PER_S);
}

/* ---- the thread ---- */

struct guarded {
    struct rpc_guard *guard;
    int stranger, library;
};

static struct guarded guarded(void)
{
    struct guarded g = {.library = -1};
    int pair[2];
    assert_int_equal(rpc_guard_start(&g.guard, NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    g.stranger = pair[0];
    g.library = rpc_guard_take(g.guard, pair[1]);
    assert_true(g.library >= 0);
    assert_int_equal(rpc_guard_connection(g.guard, g.library), pair[1]);
    assert_int_equal(rpc_guard_connection(g.guard, 100000), -1);
    return g;
}

/* All n bytes, or as many as come before the end. */
static size_t bytes_read(int fd, uint8_t *out, size_t n)
{
    size_t at = 0;
    while (at < n) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 30000), 1);
        ssize_t some = recv(fd, out + at, n - at, 0);
        if (some <= 0)
            break;
        at += (size_t)some;
    }
    return at;
}

static void guarded_end(struct guarded *g)
{
    close(g->library);
    close(g->stranger);
    rpc_guard_stop(&g->guard);
    assert_null(g->guard);
}

TEST(bytes_pass_both_ways_and_ends_pass_too)
{
    struct guarded g = guarded();
    uint8_t got[64];
    assert_int_equal(send(g.library, "early", 5, 0), 5);
    assert_int_equal(send(g.stranger, PREFACE, PREFACE_BYTES, 0), PREFACE_BYTES);
    assert_int_equal(bytes_read(g.library, got, PREFACE_BYTES), PREFACE_BYTES);
    assert_memory_equal(got, PREFACE, PREFACE_BYTES);
    assert_int_equal(bytes_read(g.stranger, got, 5), 5);
    assert_memory_equal(got, "early", 5);
    assert_int_equal(send(g.library, "last", 4, 0), 4);
    close(g.library);
    assert_int_equal(bytes_read(g.stranger, got, sizeof got), 4);
    g.library = -1;
    guarded_end(&g);
}

TEST(who_does_not_read_loses_nothing_of_what_is_large)
{
    enum { MANY = 4 << 20 };
    struct guarded g = guarded();
    uint8_t *sent = malloc(MANY), *got = malloc(MANY);
    assert_true(sent && got);
    for (int i = 0; i < MANY; i++)
        sent[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    memcpy(sent, PREFACE, PREFACE_BYTES);
    head_put(sent + PREFACE_BYTES, MANY - PREFACE_BYTES - HEAD_BYTES, DATA, 0);
    for (int way = 0; way < 2; way++) {
        int from = way ? g.library : g.stranger, to = way ? g.stranger : g.library;
        size_t at = 0, read = 0;
        while (read < MANY) { /* what does not fit is sent once the other side has read */
            ssize_t some = at < MANY ? send(from, sent + at, MANY - at, MSG_DONTWAIT) : 0;
            at += some > 0 ? (size_t)some : 0;
            if (some <= 0)
                read += bytes_read(to, got + read, at - read < 100000 ? at - read : 100000);
        }
        assert_memory_equal(sent, got, MANY);
    }
    free(sent);
    free(got);
    guarded_end(&g);
}

/* Until what was sent on has been taken. */
static void sent_await(int fd)
{
    int left = 1;
    for (int i = 0; i < 30000 && left; i++) {
        assert_int_equal(ioctl(fd, SIOCOUTQ, &left), 0);
        usleep(1000);
    }
    assert_int_equal(left, 0);
}

/* As clients do, who tell how much they have read while they read. */
TEST(last_words_reach_a_stranger_who_goes_on_talking)
{
    static const uint8_t window[HEAD_BYTES + 4] = {0, 0, 4, 8};
    struct guarded g = guarded();
    static uint8_t some[65536], got[4 << 20];
    size_t n = 0;
    assert_int_equal(send(g.stranger, PREFACE, PREFACE_BYTES, 0), PREFACE_BYTES);
    assert_int_equal(bytes_read(g.library, got, PREFACE_BYTES), PREFACE_BYTES);
    struct pollfd room = {.fd = g.library, .events = POLLOUT};
    while (poll(&room, 1, 200) == 1) { /* until it is full on both sides of the guard */
        ssize_t more = send(g.library, some, sizeof some, MSG_DONTWAIT);
        n += more > 0 ? (size_t)more : 0;
    }
    assert_in_range(n, sizeof some, sizeof got - 1);
    close(g.library);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(send(g.stranger, window, sizeof window, MSG_NOSIGNAL), sizeof window);
        sent_await(g.stranger);
    }
    assert_int_equal(bytes_read(g.stranger, got, sizeof got), n);
    g.library = -1;
    guarded_end(&g);
}

TEST(a_stranger_of_http1_or_tls_is_told_what_this_is)
{
    static const char http[] = "GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n", tls[] = "\26\3\1\0\4hello";
    const char *const asked[] = {http, tls};
    const size_t sizes[] = {sizeof http - 1, 9};
    for (int i = 0; i < 2; i++) {
        struct guarded g = guarded();
        uint8_t got[1024] = {0};
        assert_int_equal(send(g.library, "binary", 6, 0), 6);
        assert_int_equal(send(g.stranger, asked[i], sizes[i], 0), sizes[i]);
        bytes_read(g.stranger, got, sizeof got - 1);
        assert_memory_equal(got, "HTTP/1.1 505 ", 13);
        assert_non_null(strstr((char *)got, "gRPC"));
        assert_int_equal(bytes_read(g.library, got, 1), 0);
        guarded_end(&g);
    }
}

TEST(headers_without_end_end_the_connection_and_no_other)
{
    struct guarded g = guarded();
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    int other = rpc_guard_take(g.guard, pair[1]);
    uint8_t bytes[PREFACE_BYTES + HEAD_BYTES], got[PREFACE_BYTES + HEAD_BYTES];
    memcpy(bytes, PREFACE, PREFACE_BYTES);
    head_put(bytes + PREFACE_BYTES, 40000, HEADERS, 0);
    assert_int_equal(send(g.stranger, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(bytes_read(g.library, got, sizeof got), 0);
    assert_int_equal(bytes_read(g.stranger, got, 1), 0);
    assert_int_equal(send(pair[0], PREFACE, PREFACE_BYTES, 0), PREFACE_BYTES);
    assert_int_equal(bytes_read(other, got, PREFACE_BYTES), PREFACE_BYTES);
    close(other);
    assert_int_equal(bytes_read(pair[0], got, 1), 0);
    close(pair[0]);
    guarded_end(&g);
}

TEST(what_waits_is_dropped_once_the_stranger_is_gone)
{
    enum { RESETS = 4000, RESET_BYTES = HEAD_BYTES + 4 };
    static uint8_t bytes[PREFACE_BYTES + RESETS * RESET_BYTES];
    struct guarded g = guarded();
    memcpy(bytes, PREFACE, PREFACE_BYTES);
    for (int i = 0; i < RESETS; i++)
        head_put(bytes + PREFACE_BYTES + i * RESET_BYTES, 4, RESET, 0);
    assert_int_equal(send(g.stranger, bytes, sizeof bytes, 0), sizeof bytes);
    shutdown(g.stranger, SHUT_WR);
    size_t came = bytes_read(g.library, bytes, sizeof bytes);
    assert_in_range(came, 1, sizeof bytes - 1);
    guarded_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_begin_as_http2_passes_no_further),
        cmocka_unit_test(frames_pass_however_they_are_cut),
        cmocka_unit_test(a_block_of_headers_is_bounded_in_bytes_and_in_frames),
        cmocka_unit_test(what_takes_calls_back_or_wants_answers_waits_its_turn),
        cmocka_unit_test(resets_of_all_connections_are_bounded_together),
        cmocka_unit_test(bytes_pass_both_ways_and_ends_pass_too),
        cmocka_unit_test(who_does_not_read_loses_nothing_of_what_is_large),
        cmocka_unit_test(last_words_reach_a_stranger_who_goes_on_talking),
        cmocka_unit_test(a_stranger_of_http1_or_tls_is_told_what_this_is),
        cmocka_unit_test(headers_without_end_end_the_connection_and_no_other),
        cmocka_unit_test(what_waits_is_dropped_once_the_stranger_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
