/* What may pass of the bytes that a client of HTTP/2 sends, before a library that parses them sees
 * any: the connection's first 24 bytes, and each frame's head. A library may keep a block of
 * headers until its end comes, and calls that were begun and taken back, or answers that it owes,
 * until it finds time for them: so a block is bounded, and what takes a call back or wants an
 * answer has to wait its turn where there is much of it. Pure. */
#ifndef HP_COORDINATOR_GATEWAY_RPC_FRAMES_H
#define HP_COORDINATOR_GATEWAY_RPC_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RPC_BLOCK_BYTES = 32768, /* of a block of headers, as sent */
    RPC_BLOCK_FRAMES = 64,   /* that it may come in */
    RPC_ASKS_PER_S = 1024,   /* resets, pings and settings of a connection; a second's at once */
    RPC_RESETS_PER_S = 8192  /* of all connections together; a second's at once */
};

/* What may still pass; begins as zeros. */
struct rpc_turns {
    double left;
    uint64_t then_ns;
};

/* One connection's; begins as zeros. */
struct rpc_frames {
    uint8_t preface, n_head; /* bytes that have passed of each */
    uint8_t head[9];
    bool waits;    /* for its turn */
    uint32_t left; /* of the frame's payload */
    uint32_t block_bytes, block_frames;
    struct rpc_turns asks;
};

/* How many of the bytes may pass now, which are taken to have passed; fewer where it `waits`. -1:
 * the connection has to end. `resets` is of all connections. */
ptrdiff_t rpc_frames_pass(struct rpc_frames *f, struct rpc_turns *resets, uint64_t now_ns,
                          const uint8_t *bytes, size_t n);
/* Whether the client has said that it speaks HTTP/2. */
bool rpc_frames_began(const struct rpc_frames *f);

#endif
