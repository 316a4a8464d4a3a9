/* What a proven peer may say over data_tcp: any records in any order, sealed as they should be, so
 * that the input reaches what lies behind the seals; or any bytes at all. The first byte of the
 * input: 1 raw bytes, 2 no greeting, 4 a pool that holds next to nothing, 8 frames are kept until
 * the end. Then records: kind (0x80: with a good header, made from the next 16 bytes), number, u16
 * length, text. */
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/log.h"
#include "transport/data_tcp_int.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SESSION = 7, RAW = 1, UNGREETED = 2, NARROW = 4, KEEP = 8, KEPT = 256 };

struct tcp_side {
    struct tcp_endpoint d;
    struct tcp_conn *conn;
    struct tcp_seal sealer;
    int fd; /* the peer's */
    bool keep;
    struct data_buffer *kept[KEPT];
    int n_kept, posted, done;
};

static struct tcp_side side;

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    (void)ctx;
    if (h->payload_bytes != (payload ? payload->size : 0) || h->session != SESSION)
        abort();
    if (side.keep && payload && side.n_kept < KEPT)
        side.kept[side.n_kept++] = payload;
    else
        data_buffer_release(&side.d.base, payload);
}

static void on_done(void *ctx, int status)
{
    (void)ctx, (void)status;
    side.done++;
}

static void no_room(struct data_endpoint *d)
{
    (void)d;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    log_set_level(LOG_ERROR);
    return sodium_init() < 0;
}

static void post(struct tcp_peer *peer, size_t size)
{
    struct tcp_frame *f = calloc(1, sizeof *f);
    struct frame_header h = {
        .kind = FRAME_KV, .session = 1, .dtype = FRAME_BYTES, .payload_bytes = size};
    f->payload = data_buffer_get(&side.d.base, size);
    if (!f->payload) { /* the narrow pool's budget of frames to send is spent */
        free(f);
        return;
    }
    side.posted++;
    f->done = on_done;
    frame_header_encode(&h, f->header);
    tcp_queue_put(size > DATA_CONTROL_BYTES ? &peer->large : &peer->small, f);
}

static void side_open(uint8_t how)
{
    static const struct data_ops ops = {.room = no_room};
    struct data_config c = {.pool_limit_bytes = how & NARROW ? 4096 : 64 << 20,
                            .callbacks = {.frame = on_frame}};
    struct handshake_result r = {.cipher = HANDSHAKE_CHACHA20_POLY1305, .peer = {9}};
    int fds[2];
    memset(&side, 0, sizeof side);
    side.keep = how & KEEP;
    data_base_init(&side.d.base, &ops, &c);
    side.d.orders_tail = &side.d.orders;
    side.d.time_scale = 1;
    side.d.clock_ms = 1000;
    side.d.epoll = epoll_create1(0);
    data_allow(&side.d.base, SESSION, NULL, NULL);
    struct tcp_peer *peer = tcp_peer_get(&side.d, r.peer);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0 ||
        !(side.conn = tcp_conn_open(&side.d, peer, fds[0], true, &r)))
        abort();
    side.fd = fds[1];
    fcntl(side.fd, F_SETFL, O_NONBLOCK);
    tcp_seal_init(&side.sealer, r.cipher, r.receive_key, true, NULL);
    post(peer, 100);
    post(peer, 200000);
    post(peer, 70000);
}

/* Lets the connection read, act and write; what it writes is thrown away. */
static void side_turn(void)
{
    static uint8_t rubbish[1 << 16];
    for (int i = 0; i < 6 && !side.conn->dead; i++) {
        tcp_conn_read(side.conn);
        if (!side.conn->dead)
            tcp_conn_room(side.conn);
        if (!side.conn->dead)
            tcp_conn_write(side.conn);
        while (read(side.fd, rubbish, sizeof rubbish) > 0)
            ;
    }
}

static void record_say(int kind, uint32_t number, const uint8_t *text, size_t size)
{
    static uint8_t record[TCP_HEAD_BYTES + (1 << 17)];
    uint32_t length = (uint32_t)size | (uint32_t)kind << 24;
    memcpy(record, &length, 4);
    memcpy(record + 4, &number, 4);
    tcp_seal_close(&side.sealer, record, TCP_HEAD_BYTES, text, size, NULL, 0,
                   record + TCP_HEAD_BYTES);
    ssize_t n = write(side.fd, record, TCP_HEAD_BYTES + size + SEAL_BYTES);
    (void)n;
    side_turn();
}

/* A header that passes its own hash, from 16 bytes of input. */
static void header_make(const uint8_t *from, size_t text_bytes, uint8_t out[FRAME_HEADER_BYTES])
{
    struct frame_header h = {.kind = from[0] % (FRAME_KIND_END + 1),
                             .session = from[1] % 4 ? SESSION : from[1],
                             .n_runs = from[2],
                             .dtype = from[3] % 5};
    uint32_t bytes;
    memcpy(&bytes, from + 4, 4);
    h.payload_bytes = from[8] & 1 ? text_bytes : bytes;
    frame_header_encode(&h, out);
}

static void records_say(const uint8_t *data, size_t size)
{
    static uint8_t text[FRAME_HEADER_BYTES + (1 << 16)];
    while (size >= 4 && !side.conn->dead) {
        int kind = data[0];
        uint16_t wanted;
        memcpy(&wanted, data + 2, 2);
        uint32_t number = data[1];
        data += 4, size -= 4;
        size_t n = wanted < size ? wanted : size, head = 0;
        if (kind & 0x80 && n >= 16) {
            header_make(data, n - 16, text);
            data += 16, size -= 16, n -= 16;
            head = FRAME_HEADER_BYTES;
        }
        memcpy(text + head, data, n);
        size_t grown = kind & 0x40 ? wanted : n; /* a long text needs no long input */
        if (grown > n)
            memset(text + head + n, 0, grown - n);
        record_say(kind & 0x3f, number, text, head + grown);
        data += n, size -= n;
    }
}

static void side_close(void)
{
    tcp_conn_break(side.conn, &(struct err){HP_ELINK, "the end", ""});
    for (int i = 0; i < side.n_kept; i++)
        data_buffer_release(&side.d.base, side.kept[i]);
    while (side.d.dead) {
        struct tcp_watch *w = side.d.dead;
        side.d.dead = w->next_dead;
        w->free(w);
    }
    struct data_stats stats;
    data_stats(&side.d.base, &stats);
    if (stats.buffers_bytes != 0 || side.done != side.posted)
        abort(); /* a buffer is lost, or a post was never answered */
    tcp_frames_free(&side.d);
    free(side.d.peers);
    tcp_seal_fini(&side.sealer);
    close(side.fd);
    close(side.d.epoll);
    data_base_fini(&side.d.base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t hello[HELLO_BYTES] = {1};
    if (size == 0)
        return 0;
    side_open(data[0]);
    if (!(data[0] & UNGREETED))
        record_say(RECORD_HELLO, 0, hello, sizeof hello);
    if (data[0] & RAW) {
        ssize_t n = write(side.fd, data + 1, size - 1);
        (void)n;
        side_turn();
    } else {
        records_say(data + 1, size - 1);
    }
    side_close();
    return 0;
}
