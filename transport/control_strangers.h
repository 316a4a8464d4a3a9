/* Connections of keys that nobody knows: how long they last. A key may come to join, and has said
 * so within seconds; ZeroMQ itself keeps whoever has proven any key for ever, and cannot end one
 * peer. So the connections of a server's port are looked through for a while after a stranger was
 * let in, and those over which no known key has spoken for CONTROL_STRANGER_MS are shut. Good peers
 * make theirs anew. While no stranger comes, nothing is looked at.
 *
 * On the server's loop alone. Only control_zmq.c includes this. */
#ifndef HP_TRANSPORT_CONTROL_STRANGERS_H
#define HP_TRANSPORT_CONTROL_STRANGERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONTROL_STRANGER_MS = 5000, CONTROL_STRANGERS_LOOK_MS = 1000 };

/* A descriptor, and whose connection it was when it was looked at last. */
struct stranger_place {
    uint64_t peer; /* hash of the other end's address; 0: none of this port */
    uint64_t since_ns;
    bool known; /* a known key has spoken over it */
};

struct control_strangers {
    int port;
    bool active; /* strangers may be here */
    uint64_t entered_ns, looked_ns;
    struct stranger_place *places; /* [n_places], by descriptor */
    size_t n_places;
};

void control_strangers_free(struct control_strangers *s);
/* A key that nobody knows was let in. */
void control_strangers_entered(struct control_strangers *s, uint64_t now_ns);
/* Somebody spoke over the connection `fd`. A stranger who says more than strangers may is shut out
 * with the next look. */
void control_strangers_heard(struct control_strangers *s, int fd, bool known, bool too_much,
                             uint64_t now_ns);
/* Ends what has been here for too long; returns how many connections it shut. */
int control_strangers_look(struct control_strangers *s, uint64_t now_ns);

#endif
