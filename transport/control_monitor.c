#include "transport/control_monitor.h"

#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "common/env.h"
#include "common/log.h"

enum {
    BROKEN_MOST = 2,          /* so many handshakes broken off in a row are no accident */
    BROKEN_AT_ONCE_MS = 1500, /* one that ends later is a coordinator that puts strangers off */
};

static void handshake_broken(struct control_monitor *m)
{
    double lasted_ms = (double)(env_now_ns(&env_real) - m->connected_ns) / 1e6;
    if (lasted_ms / env_time_scale() > BROKEN_AT_ONCE_MS)
        return;
    if (++m->broken >= BROKEN_MOST)
        m->contact = CONTROL_UNPROVEN;
}

static void client_event(struct control_monitor *m, uint16_t event)
{
    switch (event) {
    case ZMQ_EVENT_CONNECTED: m->connected_ns = env_now_ns(&env_real); break;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        m->contact = CONTROL_PROVEN;
        m->broken = 0;
        break;
    case ZMQ_EVENT_DISCONNECTED:
        if (m->contact == CONTROL_PROVEN)
            m->contact = CONTROL_ABSENT;
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL: handshake_broken(m); break;
    default: break;
    }
}

static void server_event(uint32_t value)
{
    if (value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)
        log_warn_limited("control", "other_key_expected",
                         "text=\"somebody connects who expects another key than this "
                         "coordinator's: an agent or a context of another cluster, or one whose "
                         "key file is damaged\"");
}

/* One event: a part of 16 bits that say which and 32 bits of detail, and a part with the address.
 */
static bool event_take(struct control_monitor *m)
{
    uint8_t head[6];
    char address[256];
    uint16_t event;
    uint32_t value;
    int got = zmq_recv(m->events, head, sizeof head, ZMQ_DONTWAIT);
    if (got < 0)
        return false;
    zmq_recv(m->events, address, sizeof address, ZMQ_DONTWAIT);
    if (got < (int)sizeof head)
        return true;
    memcpy(&event, head, sizeof event);
    memcpy(&value, head + sizeof event, sizeof value);
    if (m->server)
        server_event(value);
    else
        client_event(m, event);
    return true;
}

/* ZeroMQ's descriptor tells of the first event after it was found to have none: until then, and
 * after each time, all are taken. */
static void events_take(struct control_monitor *m)
{
    while (event_take(m))
        ;
}

static void on_events(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    events_take((struct control_monitor *)poll->data);
}

/* Without a limit on what waits, since ZeroMQ's own thread waits where there is one. */
void control_monitor_open(struct control_monitor *m, void *context, void *socket, bool server)
{
    char name[64];
    int none = 0, events = server ? ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL
                                  : ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED |
                                        ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
    snprintf(name, sizeof name, "inproc://monitor-%p", socket);
    m->server = server;
    if (zmq_socket_monitor(socket, name, events) != 0)
        return;
    m->watched = socket;
    m->events = zmq_socket(context, ZMQ_PAIR);
    if (m->events) {
        zmq_setsockopt(m->events, ZMQ_RCVHWM, &none, sizeof none);
        zmq_setsockopt(m->events, ZMQ_LINGER, &none, sizeof none);
    }
    if (!m->events || zmq_connect(m->events, name) != 0)
        control_monitor_free(m);
}

bool control_monitor_start(struct control_monitor *m, uv_loop_t *loop)
{
    int fd = -1;
    size_t size = sizeof fd;
    if (!m->events || zmq_getsockopt(m->events, ZMQ_FD, &fd, &size) != 0)
        return false;
    uv_poll_init(loop, &m->poll, fd);
    m->poll.data = m;
    uv_poll_start(&m->poll, UV_READABLE, on_events);
    m->polling = true;
    events_take(m);
    return true;
}

bool control_monitor_close(struct control_monitor *m, void *data, uv_close_cb closed)
{
    if (!m->polling)
        return false;
    m->poll.data = data;
    m->polling = false;
    uv_close((uv_handle_t *)&m->poll, closed);
    return true;
}

void control_monitor_free(struct control_monitor *m)
{
    if (m->watched)
        zmq_socket_monitor(m->watched, NULL, 0);
    if (m->events)
        zmq_close(m->events);
    m->watched = m->events = NULL;
}
