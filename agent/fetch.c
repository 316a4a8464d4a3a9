/* Owns the state of every chunk that a stage needs. Refuses to know files and sockets. */
#include "agent/fetch.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t ms = 1000000;

enum chunk_state { CHUNK_NEW, CHUNK_MISSING, CHUNK_ASKED, CHUNK_WANTED, CHUNK_HERE };

struct chunk {
    uint32_t number, bytes;
    uint8_t state;  /* enum chunk_state */
    int8_t peer;    /* ASKED: whom */
    uint64_t tried; /* bit of every peer that does not have it */
};

struct peer {
    bool lost, heard,
        owes; /* owes: was asked for something, again perhaps, and has said nothing since */
    uint32_t outstanding, asked_again;
    uint64_t heard_ns;     /* or when it was asked, having owed nothing before */
    uint64_t ask_again_ns; /* when what it owes is asked for again */
};

struct fetch {
    struct chunk *chunks;
    uint32_t *wanted;
    size_t n_chunks, count[CHUNK_HERE + 1];
    size_t next_new, next_missing; /* no chunk of that state lies before */
    int n_peers;
    struct peer peers[FETCH_MAX_PEERS];
    uint64_t done_bytes, total_bytes;
};

static void chunk_move(struct fetch *f, struct chunk *c, enum chunk_state to)
{
    if (c->state == CHUNK_ASKED)
        f->peers[c->peer].outstanding--;
    f->count[c->state]--;
    f->count[to]++;
    c->state = (uint8_t)to;
    if (to == CHUNK_MISSING && (size_t)(c - f->chunks) < f->next_missing)
        f->next_missing = (size_t)(c - f->chunks);
}

int fetch_create(const uint32_t *chunks, const uint32_t *chunk_bytes, size_t n, int n_peers,
                 struct fetch **out, struct err *e)
{
    struct fetch *f = calloc(1, sizeof *f);
    if (f) {
        f->chunks = calloc(n + 1, sizeof *f->chunks);
        f->wanted = calloc(n + 1, sizeof *f->wanted);
    }
    if (!f || !f->chunks || !f->wanted) {
        fetch_destroy(&f);
        return err_set(e, HP_ENOMEM, "no memory to fetch %zu chunks", n);
    }
    f->n_chunks = f->count[CHUNK_NEW] = n;
    f->n_peers = n_peers < FETCH_MAX_PEERS ? n_peers : FETCH_MAX_PEERS;
    for (size_t i = 0; i < n; i++) {
        f->chunks[i].number = chunks[i];
        f->chunks[i].bytes = chunk_bytes[i];
        f->total_bytes += chunk_bytes[i];
    }
    *out = f;
    return 0;
}

void fetch_destroy(struct fetch **pf)
{
    struct fetch *f = *pf;
    if (!f)
        return;
    free(f->chunks);
    free(f->wanted);
    free(f);
    *pf = NULL;
}

static struct chunk *chunk_find(const struct fetch *f, uint32_t number)
{
    size_t low = 0, high = f->n_chunks;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (f->chunks[mid].number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < f->n_chunks && f->chunks[low].number == number ? &f->chunks[low] : NULL;
}

bool fetch_local_next(struct fetch *f, uint32_t *chunk)
{
    while (f->next_new < f->n_chunks && f->chunks[f->next_new].state != CHUNK_NEW)
        f->next_new++;
    if (f->next_new == f->n_chunks)
        return false;
    *chunk = f->chunks[f->next_new].number;
    return true;
}

/* A peer that may have it, the one that owes us least; -1 when none is left. */
static int peer_for(const struct fetch *f, const struct chunk *c)
{
    int best = -1;
    for (int i = 0; i < f->n_peers; i++) {
        bool may = !f->peers[i].lost && !(c->tried >> i & 1);
        if (may && (best < 0 || f->peers[i].outstanding < f->peers[best].outstanding))
            best = i;
    }
    return best;
}

static void chunk_missing(struct fetch *f, struct chunk *c)
{
    chunk_move(f, c, peer_for(f, c) < 0 ? CHUNK_WANTED : CHUNK_MISSING);
}

void fetch_not_here(struct fetch *f, uint32_t chunk)
{
    struct chunk *c = chunk_find(f, chunk);
    if (c && c->state == CHUNK_NEW)
        chunk_missing(f, c);
}

static void patience_set(struct peer *p, uint64_t now_ns)
{
    uint64_t patience = (uint64_t)FETCH_ASK_AGAIN_MS << (p->asked_again < 8 ? p->asked_again : 8);
    uint64_t least = p->heard ? FETCH_ASK_AGAIN_HEARD_MS : 0;
    patience = patience < least                     ? least
               : patience > FETCH_ASK_AGAIN_MOST_MS ? FETCH_ASK_AGAIN_MOST_MS
                                                    : patience;
    p->ask_again_ns = now_ns + patience * ms;
}

static void peer_heard(struct fetch *f, int peer, uint64_t now_ns)
{
    f->peers[peer].heard = true;
    f->peers[peer].owes = false;
    f->peers[peer].heard_ns = now_ns;
    patience_set(&f->peers[peer], now_ns);
}

void fetch_arrived(struct fetch *f, uint32_t chunk, int from_peer, uint64_t now_ns)
{
    struct chunk *c = chunk_find(f, chunk);
    if (from_peer >= 0 && from_peer < f->n_peers)
        peer_heard(f, from_peer, now_ns);
    if (!c || c->state == CHUNK_HERE)
        return;
    chunk_move(f, c, CHUNK_HERE);
    f->done_bytes += c->bytes;
}

size_t fetch_ask(struct fetch *f, uint64_t now_ns, int *peer, uint32_t chunks[FETCH_ASK_CHUNKS])
{
    size_t n = 0;
    *peer = -1;
    while (f->next_missing < f->n_chunks && f->chunks[f->next_missing].state != CHUNK_MISSING)
        f->next_missing++;
    for (size_t i = f->next_missing;
         i < f->n_chunks && n < FETCH_ASK_CHUNKS && f->count[CHUNK_MISSING]; i++) {
        struct chunk *c = &f->chunks[i];
        if (c->state != CHUNK_MISSING)
            continue;
        int p = *peer >= 0 && !(c->tried >> *peer & 1) ? *peer : *peer < 0 ? peer_for(f, c) : -1;
        if (p < 0 || f->peers[p].outstanding >= FETCH_PEER_OUTSTANDING)
            continue;
        if (!f->peers[p].outstanding && !f->peers[p].owes)
            f->peers[p].heard_ns = now_ns;
        f->peers[p].owes = true;
        if (!f->peers[p].outstanding)
            patience_set(&f->peers[p], now_ns);
        *peer = p;
        chunk_move(f, c, CHUNK_ASKED);
        c->peer = (int8_t)p;
        f->peers[p].outstanding++;
        chunks[n++] = c->number;
    }
    return n;
}

void fetch_unask(struct fetch *f, int peer, const uint32_t *chunks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct chunk *c = chunk_find(f, chunks[i]);
        if (c && c->state == CHUNK_ASKED && c->peer == peer)
            chunk_missing(f, c);
    }
    if (peer >= 0 && peer < f->n_peers && !f->peers[peer].outstanding)
        f->peers[peer].owes = false;
}

void fetch_refused(struct fetch *f, uint32_t chunk, int peer, uint64_t now_ns)
{
    struct chunk *c = chunk_find(f, chunk);
    if (!c || peer < 0 || peer >= f->n_peers)
        return;
    peer_heard(f, peer, now_ns);
    c->tried |= UINT64_C(1) << peer;
    if (c->state == CHUNK_ASKED && c->peer == peer)
        chunk_missing(f, c);
}

void fetch_peer_lost(struct fetch *f, int peer)
{
    if (peer < 0 || peer >= f->n_peers || f->peers[peer].lost)
        return;
    f->peers[peer].lost = true;
    for (size_t i = 0; i < f->n_chunks; i++) {
        struct chunk *c = &f->chunks[i];
        if ((c->state == CHUNK_ASKED && c->peer == peer) ||
            (c->state == CHUNK_MISSING && peer_for(f, c) < 0))
            chunk_missing(f, c);
    }
}

static void peer_ask_again(struct fetch *f, int peer)
{
    for (size_t i = 0; i < f->n_chunks; i++)
        if (f->chunks[i].state == CHUNK_ASKED && f->chunks[i].peer == peer)
            chunk_move(f, &f->chunks[i], CHUNK_MISSING);
    f->peers[peer].asked_again++;
    f->peers[peer].owes = true;
}

void fetch_tick(struct fetch *f, uint64_t now_ns)
{
    for (int i = 0; i < f->n_peers; i++) {
        struct peer *p = &f->peers[i];
        if (p->lost || !p->outstanding)
            continue;
        if (now_ns - p->heard_ns >= FETCH_PEER_SILENCE_MS * ms)
            fetch_peer_lost(f, i);
        else if (now_ns >= p->ask_again_ns)
            peer_ask_again(f, i);
    }
}

size_t fetch_recheck(struct fetch *f, bool (*has)(const void *ctx, uint32_t chunk), const void *ctx)
{
    size_t lost = 0;
    for (size_t i = 0; i < f->n_chunks; i++) {
        struct chunk *c = &f->chunks[i];
        if (c->state != CHUNK_HERE || has(ctx, c->number))
            continue;
        chunk_move(f, c, CHUNK_NEW);
        c->tried = 0;
        f->done_bytes -= c->bytes;
        f->next_new = i < f->next_new ? i : f->next_new;
        lost++;
    }
    return lost;
}

bool fetch_is_done(const struct fetch *f)
{
    return f->count[CHUNK_HERE] == f->n_chunks;
}
uint64_t fetch_done_bytes(const struct fetch *f)
{
    return f->done_bytes;
}
uint64_t fetch_total_bytes(const struct fetch *f)
{
    return f->total_bytes;
}

const uint32_t *fetch_wanted(struct fetch *f, size_t *count)
{
    *count = 0;
    if (f->count[CHUNK_NEW] || f->count[CHUNK_MISSING] || f->count[CHUNK_ASKED])
        return f->wanted;
    for (size_t i = 0; i < f->n_chunks; i++)
        if (f->chunks[i].state == CHUNK_WANTED)
            f->wanted[(*count)++] = f->chunks[i].number;
    return f->wanted;
}
