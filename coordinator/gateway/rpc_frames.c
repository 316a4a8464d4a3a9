#include "coordinator/gateway/rpc_frames.h"

enum frame_type {
    FRAME_HEADERS = 1,
    FRAME_RESET = 3,
    FRAME_SETTINGS = 4,
    FRAME_PROMISE = 5,
    FRAME_PING = 6,
    FRAME_MORE_HEADERS = 9
};

enum { FLAG_ANSWER = 1, FLAG_END_HEADERS = 4 };

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

bool rpc_frames_began(const struct rpc_frames *f)
{
    return f->preface == sizeof preface - 1;
}

/* ---- turns ---- */

static void turns_refill(struct rpc_turns *t, uint32_t per_s, uint64_t now_ns)
{
    double more = t->then_ns == 0 ? per_s : (double)(now_ns - t->then_ns) * 1e-9 * per_s;
    t->left = t->left + more < per_s ? t->left + more : per_s;
    t->then_ns = now_ns;
}

/* Before the last byte of its head passes, which may be its last at all. */
static bool frame_waits(struct rpc_frames *f, struct rpc_turns *resets)
{
    bool is_reset = f->head[3] == FRAME_RESET;
    bool asks =
        (f->head[3] == FRAME_SETTINGS || f->head[3] == FRAME_PING) && !(f->head[4] & FLAG_ANSWER);
    f->waits = false;
    if (f->n_head + 1u < sizeof f->head || !(is_reset || asks))
        return false;
    f->waits = f->asks.left < 1 || (is_reset && resets->left < 1);
    if (!f->waits) {
        f->asks.left--;
        resets->left -= is_reset;
    }
    return f->waits;
}

/* ---- frames ---- */

static bool block_fits(struct rpc_frames *f)
{
    f->block_bytes += f->left; /* below 2^15 + 2^24 */
    f->block_frames++;
    bool fits = f->block_bytes <= RPC_BLOCK_BYTES && f->block_frames <= RPC_BLOCK_FRAMES;
    if (f->head[4] & FLAG_END_HEADERS)
        f->block_bytes = f->block_frames = 0;
    return fits;
}

static bool head_take(struct rpc_frames *f)
{
    f->n_head = 0;
    f->left = (uint32_t)f->head[0] << 16 | (uint32_t)f->head[1] << 8 | f->head[2];
    return (f->head[3] != FRAME_HEADERS && f->head[3] != FRAME_PROMISE &&
            f->head[3] != FRAME_MORE_HEADERS) ||
           block_fits(f);
}

/* A byte of the connection's beginning, or of a frame's head. */
static bool byte_take(struct rpc_frames *f, uint8_t byte)
{
    if (!rpc_frames_began(f))
        return byte == (uint8_t)preface[f->preface++];
    f->head[f->n_head++] = byte;
    return f->n_head < sizeof f->head || head_take(f);
}

ptrdiff_t rpc_frames_pass(struct rpc_frames *f, struct rpc_turns *resets, uint64_t now_ns,
                          const uint8_t *bytes, size_t n)
{
    size_t at = 0;
    turns_refill(&f->asks, RPC_ASKS_PER_S, now_ns);
    turns_refill(resets, RPC_RESETS_PER_S, now_ns);
    while (at < n) {
        size_t some = f->left < n - at ? f->left : n - at;
        f->left -= (uint32_t)some;
        at += some;
        if (at == n || frame_waits(f, resets))
            break;
        if (!byte_take(f, bytes[at++]))
            return -1;
    }
    return (ptrdiff_t)at;
}
