#include "transport/control_zap.h"

#include <stdio.h>
#include <string.h>
#include <uv.h>
#include <zmq.h>

#include "transport/keys.h"

enum {
    STRANGERS_AT_ONCE = 64,
    STRANGERS_PER_S = 16, /* handshakes of keys that nobody here knows; those beyond are put off */
};

int control_zap_open(struct control_zap *z, void *context, struct err *e)
{
    z->strangers = STRANGERS_AT_ONCE;
    z->strangers_ns = uv_hrtime();
    z->socket = zmq_socket(context, ZMQ_REP);
    if (!z->socket || zmq_bind(z->socket, "inproc://zeromq.zap.01") != 0)
        return err_set(e, HP_EIO, "cannot start authentication: %s", zmq_strerror(zmq_errno()));
    return 0;
}

void control_zap_close(struct control_zap *z)
{
    if (z->socket)
        zmq_close(z->socket);
}

enum { ZAP_PARTS = 8 };

/* Keys that nobody knows come now and then, to join. A flood of them waits outside, and costs no
 * more than its handshakes. */
static bool stranger_may_enter(struct control_zap *z)
{
    uint64_t now = uv_hrtime();
    z->strangers += (double)(now - z->strangers_ns) * 1e-9 * STRANGERS_PER_S;
    z->strangers_ns = now;
    if (z->strangers > STRANGERS_AT_ONCE)
        z->strangers = STRANGERS_AT_ONCE;
    if (z->strangers < 1)
        return false;
    z->strangers -= 1;
    z->entered = true;
    return true;
}

static bool key_may_enter(struct control_zap *z, const struct control_callbacks *cb,
                          const char *key)
{
    return (cb->knows && cb->knows(cb->ctx, key)) || stranger_may_enter(z);
}

/* A CURVE key may connect, and its Z85 text becomes the User-Id of its messages. "300" is ZAP's
 * word for "try again". */
bool control_zap_answer(struct control_zap *z, const struct control_callbacks *cb)
{
    void *zap = z->socket;
    char part[ZAP_PARTS][256];
    int size[ZAP_PARTS], n = 0, more = 1;
    size_t more_size = sizeof more;
    while (more) {
        char spare[256];
        char *into = n < ZAP_PARTS ? part[n] : spare;
        int got = zmq_recv(zap, into, sizeof spare, ZMQ_DONTWAIT);
        if (got < 0)
            return false;
        if (n < ZAP_PARTS)
            size[n++] = got > 255 ? 255 : got;
        zmq_getsockopt(zap, ZMQ_RCVMORE, &more, &more_size);
    }
    char key[KEY_TEXT] = "";
    bool curve = n >= 7 && size[5] == 5 && memcmp(part[5], "CURVE", 5) == 0 && size[6] == 32;
    if (curve)
        zmq_z85_encode(key, (const uint8_t *)part[6], 32);
    zmq_send(zap, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(zap, part[1], n > 1 ? (size_t)size[1] : 0, ZMQ_SNDMORE);
    zmq_send(zap, !curve ? "400" : key_may_enter(z, cb, key) ? "200" : "300", 3, ZMQ_SNDMORE);
    zmq_send(zap, curve ? "OK" : "NO", 2, ZMQ_SNDMORE);
    zmq_send(zap, key, strlen(key), ZMQ_SNDMORE);
    zmq_send(zap, "", 0, 0);
    return true;
}
