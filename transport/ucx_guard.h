/* Stands between UCX and the network: no byte of a peer that has not proven itself reaches UCX.
 *
 * UCX parses and obeys whatever comes over its sockets, before any callback of ours. Its library
 * calls bind, listen, accept, getsockname and connect through the dynamic linker, so that this
 * program's definitions of these are used (ucx_guard_calls.c); callers outside of UCX pass through
 * untouched. For UCX: listen   keeps the real socket for the guard's thread and puts one end of a
 * socket pair in its place; accept   takes from that pair a connection whose peer has gone through
 * the handshake (handshake.h), or says that there is none yet; connect  goes only to addresses that
 * an introduction has named, and proves itself and its peer before UCX gets the descriptor. So
 * UCX's threads never see a stranger, and never wait for one. On a proven connection the initiator
 * says with one byte what it wants: to be given to UCX, or to be introduced: then each side tells
 * at which addresses its UCX listens (UCX connects back, to another port). Who says so must prove
 * its key there.
 *
 * Unproven connections have 2 s and the handshake's bytes; there are at most 256, and 32 of one
 * source address (or /64 of IPv6): beyond that the oldest goes, those first who have not shown that
 * they know this endpoint's key, so that silent strangers keep nobody out. Method: Noise IK
 * (handshake.h); descriptors pass by SCM_RIGHTS. */
#ifndef HP_TRANSPORT_UCX_GUARD_H
#define HP_TRANSPORT_UCX_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "transport/data_address.h"
#include "transport/keys.h"

enum {
    GUARD_MAX_UNPROVEN = 256,
    GUARD_MAX_OF_ONE_ADDRESS = 32,
    GUARD_DEADLINE_MS = 2000,
    GUARD_HOLD_MS = 1000
};

struct ucx_guard;

/* `allowed` is called from the guard's thread and from UCX's. */
struct ucx_guard_config {
    struct key_pair keys;
    uint16_t port; /* where UCX listens where any port would do (that of its interface); 0: any */
    void *ctx;
    bool (*allowed)(void *ctx, const uint8_t key[KEY_BYTES]); /* may its holder connect now? */
    void (*refused)(void *ctx, const char *from,
                    const char *why); /* somebody from that address proved nothing in time; on the
                                         guard's thread */
};

/* HP_EINVAL (keys), HP_ENOMEM. Starts the guard's thread. */
int ucx_guard_open(const struct ucx_guard_config *c, struct ucx_guard **out, struct err *e);
/* Ends the thread: no introduction is answered any more, no connection admitted. */
void ucx_guard_stop(struct ucx_guard *g);
/* After UCX closed its sockets. Stops, if that was not done. */
void ucx_guard_close(struct ucx_guard **g);

/* What UCX does on the calling thread is this guard's from now on (NULL: nobody's, so that UCX can
 * neither listen nor connect). */
void ucx_guard_enter(struct ucx_guard *g);

/* Why UCX could not listen, as far as the guard knows: EADDRINUSE (`port` of the config is somebody
 * else's), ENOMEM, another errno, or 0. */
int ucx_guard_listen_error(const struct ucx_guard *g);

/* Proves by trying that the guard stands before the listener at this address: it must have been
 * opened through the guard, and an unproven connection to it must be refused (which is not
 * counted). HP_EUNSUPPORTED: this UCX goes around the guard. */
int ucx_guard_test(struct ucx_guard *g, const struct data_address *own, struct err *e);

/* The set of allowed keys changed: those who wait are looked at again, connections of keys that
 * left are shut down. */
void ucx_guard_peers_changed(struct ucx_guard *g);

/* So many segments more went to the holder of this key, so many of them for a second time. */
typedef void (*ucx_guard_loss_fn)(void *ctx, const uint8_t key[KEY_BYTES], uint64_t segments,
                                  uint64_t lost);
/* What UCX's connections have sent since this was called last, and the network lost of it. */
void ucx_guard_count(struct ucx_guard *g, ucx_guard_loss_fn add, void *ctx);

/* Tells a peer the addresses of our UCX and asks for its own, after both proved themselves; then
 * UCX may connect there, and the peer's UCX back. The struct is the caller's, and must stay until
 * `done` was called (on the guard's thread, `why` NULL when it worked) or the guard was stopped. */
struct ucx_introduction {
    struct data_address to;
    void *ctx;
    void (*done)(struct ucx_introduction *i, const struct err *why);
    struct ucx_introduction *next; /* the guard's */
};
void ucx_guard_introduce(struct ucx_guard *g, struct ucx_introduction *i);

#endif
