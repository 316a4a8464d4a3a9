/* A control endpoint: messages (transport/message.h, already encoded) between the coordinator and
 * everybody else. ZeroMQ ROUTER/DEALER with CURVE on a libuv loop; a twin within one process for
 * tests and the embedded cluster.
 *
 * A server knows its peers by a number that holds for one connection and by their public key, which
 * is proven by the handshake. Any key may connect: whether it may do anything is decided by whoever
 * owns the endpoint, by that key. All on the loop's thread; nothing blocks. */
#ifndef HP_TRANSPORT_CONTROL_H
#define HP_TRANSPORT_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "transport/keys.h"

/* What is larger is not taken, and ends its connection. */
enum { CONTROL_MAX_MESSAGE_BYTES = 64 << 20 };

struct control;

struct control_callbacks {
    void *ctx;
    /* `peer` is 0 at a client. `key` is the sender's public key (Z85). Bytes are valid during the
     * call. */
    void (*message)(void *ctx, uint64_t peer, const char *key, const uint8_t *bytes, size_t size);
    /* At a server: is this key known? Connections of keys that are not come in one by one (some a
     * second); the others are put off. NULL: none is known. */
    bool (*knows)(void *ctx, const char *key);
};

/* Binds "127.0.0.1:7070" (port 0: any). `own` is copied. HP_EINVAL: no such address; HP_EIO: the
 * port is in use, or not to be had; HP_ENOMEM. */
int control_serve_zmq(uv_loop_t *loop, const char *address, const struct key_pair *own,
                      const struct control_callbacks *cb, struct control **out, struct err *e);
/* Connects and stays connected: reconnects by itself, for as long as it takes. HP_EINVAL: no such
 * address, or no key; HP_ENOMEM. */
int control_connect_zmq(uv_loop_t *loop, const char *address, const char *server_key,
                        const struct key_pair *own, const struct control_callbacks *cb,
                        struct control **out, struct err *e);

/* The twin: a hub of named servers within the process. `hub` outlives its endpoints, which may be
 * on loops of several threads. To serve: HP_EIO, the name is taken; to connect: HP_ELINK, no server
 * has this name and key; HP_ENOMEM. */
struct control_hub;
struct control_hub *control_hub_create(void); /* NULL: no memory */
void control_hub_destroy(struct control_hub **h);
int control_serve_inproc(struct control_hub *hub, uv_loop_t *loop, const char *name,
                         const struct key_pair *own, const struct control_callbacks *cb,
                         struct control **out, struct err *e);
int control_connect_inproc(struct control_hub *hub, uv_loop_t *loop, const char *name,
                           const char *server_key, const struct key_pair *own,
                           const struct control_callbacks *cb, struct control **out, struct err *e);

/* The port that a server got; 0 for the twin. */
int control_port(const struct control *c);
/* What is larger than CONTROL_SMALL_BYTES and waits for all peers together has at most so many. */
enum { CONTROL_MAX_QUEUED_BYTES = 256 << 20, CONTROL_SMALL_BYTES = 16 << 10 };
/* To a peer, a client to its server (0). The bytes are copied. HP_EBUSY: the peer's queue, or that
 * for all peers, is full; HP_ELINK: the peer is unknown; HP_ELIMIT: more than
 * CONTROL_MAX_MESSAGE_BYTES; HP_ENOMEM. */
int control_send(struct control *c, uint64_t peer, const uint8_t *bytes, size_t size,
                 struct err *e);
/* Hands over what has arrived, now and not when the loop comes to it: for whoever is about to judge
 * who is silent. Bounded. */
void control_read(struct control *c);
/* What a client knows of the other end. */
enum control_contact {
    CONTROL_ABSENT,   /* nothing answers at the address, so far or any more */
    CONTROL_UNPROVEN, /* something answers there, again and again, that does not prove itself with
                         the server's key */
    CONTROL_PROVEN,   /* it has, and is connected */
};
enum control_contact control_contact(const struct control *c);
/* What is queued is lost, but for what leaves within a moment; the loop must run until the handles
 * are closed. */
void control_close(struct control **c);

#endif
