/* Where each chunk of a stage comes from: first from this box (the store, a shared path), then from
 * peers, and what nobody has is wanted from whoever uploads. It decides and does no I/O;
 * store_worker.c does what it says. Time is handed in. */
#ifndef HP_AGENT_FETCH_H
#define HP_AGENT_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum {
    FETCH_MAX_PEERS = 64,          /* of more, the first count */
    FETCH_ASK_CHUNKS = 8,          /* asked of a peer at once */
    FETCH_PEER_OUTSTANDING = 16,   /* chunks on their way from one peer */
    FETCH_PEER_SILENCE_MS = 10000, /* a peer that answers nothing for so long is given up */
    FETCH_ASK_AGAIN_MS =
        250, /* of silence: asked again, then after twice as long, and so on. A peer drops what it
              * is asked for before it has heard that it is to answer us */
    FETCH_ASK_AGAIN_HEARD_MS =
        1000, /* the least for a peer that has answered something: its link may be slow */
    FETCH_ASK_AGAIN_MOST_MS = 8000,
};

struct fetch;

/* `chunks` (numbers of the manifest, rising) are copied. HP_ENOMEM. */
int fetch_create(const uint32_t *chunks, const uint32_t *chunk_bytes, size_t n, int n_peers,
                 struct fetch **out, struct err *e);
void fetch_destroy(struct fetch **f);

/* The next chunk that was not looked for on this box; false when all were. Then say fetch_arrived
 * or fetch_not_here. */
bool fetch_local_next(struct fetch *f, uint32_t *chunk);
void fetch_not_here(struct fetch *f, uint32_t chunk);
/* The chunk is in the store now, whoever brought it (from_peer -1: not a peer). */
void fetch_arrived(struct fetch *f, uint32_t chunk, int from_peer, uint64_t now_ns);

/* What to ask of whom: fills up to FETCH_ASK_CHUNKS and returns how many; 0: nothing now. */
size_t fetch_ask(struct fetch *f, uint64_t now_ns, int *peer, uint32_t chunks[FETCH_ASK_CHUNKS]);
/* What fetch_ask gave was not asked after all (no buffer, no memory): it may be asked again. */
void fetch_unask(struct fetch *f, int peer, const uint32_t *chunks, size_t n);
/* The peer does not have it, or sent what is not it. */
void fetch_refused(struct fetch *f, uint32_t chunk, int peer, uint64_t now_ns);
void fetch_peer_lost(struct fetch *f, int peer);
/* Asks again, or gives up, peers that are silent. */
void fetch_tick(struct fetch *f, uint64_t now_ns);

/* Looks at what arrived once more: what the store has lost since (`has` says no) begins anew. How
 * many. */
size_t fetch_recheck(struct fetch *f, bool (*has)(const void *ctx, uint32_t chunk),
                     const void *ctx);

bool fetch_is_done(const struct fetch *f);
uint64_t fetch_done_bytes(const struct fetch *f);
uint64_t fetch_total_bytes(const struct fetch *f);
/* Chunks that no source has, once every source has been asked for every chunk; *count is 0 before.
 * Valid until the next call. */
const uint32_t *fetch_wanted(struct fetch *f, size_t *count);

#endif
