/* A decoded message that lives as long as somebody holds it: who keeps what a message said keeps
 * the message, and copies nothing. What is decoded does not change any more; any thread may hold
 * it, and whoever lets go last frees it. */
#ifndef HP_TRANSPORT_MESSAGE_REF_H
#define HP_TRANSPORT_MESSAGE_REF_H

#include <stdatomic.h>

#include "common/arena.h"
#include "transport/message.h"

struct message_ref {
    struct message message; /* points into what follows */
    struct arena arena;
    uint8_t *bytes;
    atomic_uint holders;
};

/* Copies the bytes and decodes the copy; held once. As message_decode, and HP_ENOMEM. */
int message_ref_decode(const uint8_t *bytes, size_t size, struct message_ref **out, struct err *e);
struct message_ref *message_ref_hold(struct message_ref *m);
/* NULL is nothing. */
void message_ref_release(struct message_ref *m);

#endif
