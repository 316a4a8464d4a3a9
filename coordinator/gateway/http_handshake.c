/* A client of HTTPS that has sent a part of its handshake. libmicrohttpd, on epoll, takes such a
 * connection for one that can be read until the handshake is over, and asks to be run again at
 * once: one client that sends half a hello would take a core until its time is over. So between two
 * pieces of a handshake the connection is suspended, and the loop says when more has come. */
#include <gnutls/gnutls.h>

#include "coordinator/gateway/http_int.h"
#include "coordinator/gateway/tls_files.h"

/* NULL: there is none. */
static gnutls_session_t session_of(const struct http_connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info ? info->tls_session : NULL;
}

void http_handshake_begin(struct http_server *s, struct http_connection *c)
{
    c->pair = tls_files_take(s->tls);
    gnutls_session_t session = session_of(c);
    if (session)
        gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, tls_pair_credentials(c->pair));
    c->next_handshake = s->handshakes;
    c->link_handshake = &s->handshakes;
    if (c->next_handshake)
        c->next_handshake->link_handshake = &c->next_handshake;
    s->handshakes = c;
}

static void handshake_end(struct http_connection *c)
{
    if (!c->link_handshake)
        return;
    if (c->next_handshake)
        c->next_handshake->link_handshake = c->link_handshake;
    *c->link_handshake = c->next_handshake;
    c->link_handshake = NULL;
    http_poll_close(&c->waiting);
}

void http_handshake_close(struct http_connection *c)
{
    handshake_end(c);
    tls_pair_release(&c->pair);
}

/* ---- between two pieces ---- */

static void handshake_resume(struct http_connection *c)
{
    uv_poll_stop(c->waiting);
    c->suspended = false;
    MHD_resume_connection(c->connection);
    c->server->work = true;
}

static void on_piece(uv_poll_t *handle, int status, int events)
{
    struct http_connection *c = handle->data;
    (void)status, (void)events; /* what is wrong with it, the daemon finds out */
    if (c->suspended)
        handshake_resume(c);
}

/* Nothing can be bound to a session that is not made yet. */
static bool handshake_waits(const struct http_connection *c)
{
    gnutls_session_t session = session_of(c);
    gnutls_datum_t binding = {0};
    int rc =
        session ? gnutls_session_channel_binding(session, GNUTLS_CB_TLS_EXPORTER, &binding) : 0;
    gnutls_free(binding.data);
    return rc == GNUTLS_E_CHANNEL_BINDING_NOT_AVAILABLE;
}

void http_handshakes_check(struct http_server *s)
{
    for (struct http_connection *c = s->handshakes, *next; c; c = next) {
        next = c->next_handshake;
        if (c->suspended)
            continue;
        if (!handshake_waits(c)) {
            handshake_end(c);
            continue;
        }
        if (!c->waiting)
            c->waiting = http_poll_open(s, c->connection, c);
        if (c->waiting && uv_poll_start(c->waiting, UV_READABLE | UV_DISCONNECT, on_piece) == 0) {
            c->suspended = true;
            MHD_suspend_connection(c->connection);
        }
    }
}

void http_handshakes_stop(struct http_server *s)
{
    for (struct http_connection *c = s->handshakes; c; c = c->next_handshake)
        if (c->suspended)
            handshake_resume(c);
}
