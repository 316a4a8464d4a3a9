/* A member of a cluster, or a stranger, with a socket of its own: it dials a data_tcp endpoint,
 * proves itself if it can, and then says what it likes. For hostile tests alone: it checks nothing
 * that it is told. */
#ifndef HP_TESTS_RAW_H
#define HP_TESTS_RAW_H

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "transport/data_address.h"
#include "transport/data_tcp_int.h"

struct raw {
    int fd;
    struct key_pair keys;
    uint8_t key[KEY_BYTES];
    struct tcp_seal sealer, opener;
};

static inline int raw_dial(const struct data_address *to)
{
    struct sockaddr_storage at;
    socklen_t size = tcp_sockaddr(to->host, to->port, &at);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, size) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* True when the other end closes the connection within `ms`; what it says before is read and
 * forgotten. */
static inline bool raw_is_closed_within(int fd, double ms)
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

/* Whoever it talks to may have hung up meanwhile. */
static inline void raw_send(int fd, const void *bytes, size_t size)
{
    ssize_t n = size ? send(fd, bytes, size, MSG_NOSIGNAL) : 0;
    (void)n;
}

static inline bool raw_receive(int fd, void *bytes, size_t size)
{
    return recv(fd, bytes, size, MSG_WAITALL) == (ssize_t)size;
}

static inline bool raw_init(struct raw *r, const struct key_pair *keys)
{
    *r = (struct raw){.fd = -1, .keys = *keys};
    return key_decode(keys->public_key, r->key, NULL) == 0;
}

/* Dials and proves itself. False when it is refused. */
static inline bool raw_prove(struct raw *r, const struct data_address *to)
{
    struct handshake h;
    struct handshake_result result;
    uint8_t second[HANDSHAKE_SECOND_BYTES];
    size_t n;
    r->fd = raw_dial(to);
    if (handshake_initiate(&h, &r->keys, to->key, HANDSHAKE_TCP, handshake_ciphers(), NULL) < 0)
        return false;
    raw_send(r->fd, handshake_output(&h, &n), HANDSHAKE_FIRST_BYTES);
    handshake_sent(&h);
    if (!raw_receive(r->fd, second, sizeof second) ||
        handshake_read(&h, second, sizeof second, NULL) < 0)
        return false;
    raw_send(r->fd, handshake_output(&h, &n), HANDSHAKE_THIRD_BYTES);
    handshake_sent(&h);
    handshake_result(&h, &result);
    return tcp_seal_init(&r->sealer, result.cipher, result.send_key, true, NULL) == 0 &&
           tcp_seal_init(&r->opener, result.cipher, result.receive_key, false, NULL) == 0;
}

/* Writes a sealed record; returns its size. */
static inline size_t raw_seal(struct raw *r, int kind, uint32_t number, const void *text,
                              size_t size, uint8_t *out)
{
    uint32_t length = (uint32_t)size | (uint32_t)kind << 24;
    memcpy(out, &length, 4);
    memcpy(out + 4, &number, 4);
    if (!tcp_seal_close(&r->sealer, out, TCP_HEAD_BYTES, text, size, NULL, 0, out + TCP_HEAD_BYTES))
        abort();
    return TCP_HEAD_BYTES + size + SEAL_BYTES;
}

static inline void raw_say(struct raw *r, int kind, uint32_t number, const void *text, size_t size)
{
    static uint8_t record[TCP_RECORD_BYTES];
    raw_send(r->fd, record, raw_seal(r, kind, number, text, size, record));
}

/* Reads one record; its kind, or 0 when the connection has ended. */
static inline int raw_hear(struct raw *r, uint8_t *text, size_t *size)
{
    static uint8_t record[TCP_RECORD_BYTES];
    uint32_t length;
    if (!raw_receive(r->fd, record, TCP_HEAD_BYTES))
        return 0;
    memcpy(&length, record, 4);
    *size = length & 0xffffff;
    if (*size > TCP_TEXT_BYTES || !raw_receive(r->fd, record + TCP_HEAD_BYTES, *size + SEAL_BYTES))
        return 0;
    if (!tcp_seal_open(&r->opener, record, TCP_HEAD_BYTES, record + TCP_HEAD_BYTES, *size, text))
        abort();
    return (int)(length >> 24);
}

/* Reads on until a record of this kind comes. */
static inline bool raw_hear_kind(struct raw *r, int wanted)
{
    static uint8_t text[TCP_TEXT_BYTES];
    size_t size;
    int kind;
    while ((kind = raw_hear(r, text, &size)) != 0 && kind != wanted)
        ;
    return kind != 0;
}

static inline void raw_hello(struct raw *r)
{
    uint8_t hello[HELLO_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 1};
    hello[16] = 1;
    raw_say(r, RECORD_HELLO, 0, hello, sizeof hello);
}

static inline void raw_close(struct raw *r)
{
    if (r->fd >= 0)
        close(r->fd);
    tcp_seal_fini(&r->sealer);
    tcp_seal_fini(&r->opener);
    r->fd = -1;
}

static inline void raw_header(uint8_t out[FRAME_HEADER_BYTES], uint64_t session,
                              uint64_t payload_bytes)
{
    struct frame_header h = {
        .kind = FRAME_KV, .session = session, .dtype = FRAME_BYTES, .payload_bytes = payload_bytes};
    frame_header_encode(&h, out);
}

/* ---- what a member must not say: each of these costs it its connection ---- */

enum { RAW_SESSION = 77 };

static const uint8_t raw_zeros[TCP_TEXT_BYTES];

static inline void raw_lie_huge(struct raw *r)
{
    uint8_t head[TCP_HEAD_BYTES] = {0xff, 0xff, 0xff, RECORD_FRAME};
    raw_hello(r);
    raw_send(r->fd, head, sizeof head);
}

static inline void raw_lie_kind(struct raw *r)
{
    raw_hello(r);
    raw_say(r, 200, 0, raw_zeros, 100);
}

static inline void raw_lie_before_greeting(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    raw_header(text, RAW_SESSION, 0);
    raw_say(r, RECORD_FRAME, 0, text, sizeof text);
}

static inline void raw_lie_twice_greeted(struct raw *r)
{
    raw_hello(r);
    raw_hello(r);
}

static inline void raw_lie_header(struct raw *r)
{
    raw_hello(r);
    raw_say(r, RECORD_FRAME, 0, raw_zeros, FRAME_HEADER_BYTES);
}

static inline void raw_lie_size(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES + 10] = {0};
    raw_header(text, RAW_SESSION, 1 << 20);
    raw_hello(r);
    raw_say(r, RECORD_FRAME, 0, text, sizeof text);
}

static inline void raw_lie_small_announced(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    raw_header(text, RAW_SESSION, 100);
    raw_hello(r);
    raw_say(r, RECORD_ANNOUNCE, 1, text, sizeof text);
}

static inline void raw_lie_too_many(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    raw_header(text, RAW_SESSION, 1 << 30);
    raw_hello(r);
    for (uint32_t i = 1; i <= TCP_MAX_ANNOUNCED + 1; i++)
        raw_say(r, RECORD_ANNOUNCE, i, text, sizeof text);
}

static inline void raw_lie_same_number(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    raw_header(text, RAW_SESSION, 1 << 20);
    raw_hello(r);
    raw_say(r, RECORD_ANNOUNCE, 1, text, sizeof text);
    raw_say(r, RECORD_ANNOUNCE, 1, text, sizeof text);
}

static inline void raw_lie_not_granted(struct raw *r)
{
    raw_hello(r);
    raw_say(r, RECORD_PAYLOAD, 1, raw_zeros, 1000);
}

static inline void raw_lie_more_than_announced(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES];
    raw_header(text, RAW_SESSION, TCP_CHUNK_BYTES + 10);
    raw_hello(r);
    raw_say(r, RECORD_ANNOUNCE, 1, text, sizeof text);
    raw_hear_kind(r, RECORD_GRANT);
    raw_say(r, RECORD_PAYLOAD, 1, raw_zeros, TCP_CHUNK_BYTES);
    raw_say(r, RECORD_PAYLOAD, 1, raw_zeros, 11);
}

static inline void raw_lie_grant(struct raw *r)
{
    raw_hello(r);
    raw_say(r, RECORD_GRANT, 1, "\1", 1);
}

static inline void raw_lie_repeated_record(struct raw *r)
{
    uint8_t text[FRAME_HEADER_BYTES], record[200];
    raw_header(text, 1, 0); /* of a session that is dropped, so that only the record matters */
    raw_hello(r);
    size_t n = raw_seal(r, RECORD_FRAME, 0, text, sizeof text, record);
    raw_send(r->fd, record, n);
    raw_send(r->fd, record, n);
}

static const struct {
    const char *what;
    void (*lie)(struct raw *);
} raw_lies[] = {
    {"a record of 16 MiB", raw_lie_huge},
    {"a record of no kind", raw_lie_kind},
    {"a frame before the greeting", raw_lie_before_greeting},
    {"two greetings", raw_lie_twice_greeted},
    {"a header of zeros", raw_lie_header},
    {"a header that names another size", raw_lie_size},
    {"a small frame, announced", raw_lie_small_announced},
    {"more announcements than there may be", raw_lie_too_many},
    {"a number that is taken", raw_lie_same_number},
    {"payload that was not granted", raw_lie_not_granted},
    {"more payload than announced", raw_lie_more_than_announced},
    {"a grant of nothing", raw_lie_grant},
    {"a record sent twice", raw_lie_repeated_record},
};

enum { RAW_LIES = sizeof raw_lies / sizeof *raw_lies };

#endif
