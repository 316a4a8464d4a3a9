/* ZeroMQ's question about each client (ZAP, rfc.zeromq.org/spec/27): may the holder of this key
 * connect? Keys that are known may; of those that nobody knows a few a second, so that they can
 * join. On the server's loop alone. Only control_zmq.c includes this. */
#ifndef HP_TRANSPORT_CONTROL_ZAP_H
#define HP_TRANSPORT_CONTROL_ZAP_H

#include <stdbool.h>

#include "transport/control_int.h"

struct control_zap {
    void *socket;     /* NULL: a client, which is asked nothing */
    double strangers; /* how many more may come now */
    uint64_t strangers_ns;
    bool entered; /* a stranger was let in; for whoever asks to take back */
};

/* HP_EIO. What was opened is closed by control_zap_close. */
int control_zap_open(struct control_zap *z, void *context, struct err *e);
void control_zap_close(struct control_zap *z);
/* Answers one question: false when there is none. */
bool control_zap_answer(struct control_zap *z, const struct control_callbacks *cb);

#endif
