/* What ZeroMQ tells of a control socket's handshakes, on a libuv loop: whether the other end of a
 * client has proven that it holds the server's key, and how many peers of a server expected
 * another key than its own. ZeroMQ itself only tries again, for ever and without a word.
 *
 * All on the loop's thread. The monitor is closed before the socket that it watches. */
#ifndef HP_TRANSPORT_CONTROL_MONITOR_H
#define HP_TRANSPORT_CONTROL_MONITOR_H

#include <uv.h>

#include "transport/control.h"

struct control_monitor {
    void *watched, *events;
    uv_poll_t poll;
    enum control_contact contact; /* of a client */
    int broken;                   /* handshakes in a row that the other end broke off at once */
    uint64_t connected_ns;
    bool server, polling;
};

/* Begins to watch, before `socket` is bound or connected. Where there is no memory for it, all
 * works as without it, but nobody is told. */
void control_monitor_open(struct control_monitor *m, void *context, void *socket, bool server);
/* Reads from now on. Whether there is a handle to close. `m` must not move any more. */
bool control_monitor_start(struct control_monitor *m, uv_loop_t *loop);
/* Whether there is a handle to close: then `closed` is called for it, with `data` in it. */
bool control_monitor_close(struct control_monitor *m, void *data, uv_close_cb closed);
/* The rest, once the handle is closed or where there was none. */
void control_monitor_free(struct control_monitor *m);

#endif
