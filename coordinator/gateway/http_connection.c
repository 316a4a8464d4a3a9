#include <gnutls/gnutls.h>
#include <sys/socket.h>

#include "coordinator/gateway/http_int.h"

void http_stream_undue(struct http_exchange *x)
{
    if (!x->link_due)
        return;
    if (x->next_due)
        x->next_due->link_due = x->link_due;
    *x->link_due = x->next_due;
    x->link_due = NULL;
}

void http_exchange_wake(struct http_exchange *x)
{
    if (!x->suspended)
        return; /* the daemon comes to it by itself */
    x->suspended = x->asleep = false;
    http_stream_undue(x);
    MHD_resume_connection(x->connection);
    x->server->work = true;
}

void http_stream_due(struct http_exchange *x)
{
    struct http_server *s = x->server;
    if (!x->asleep) {
        http_exchange_wake(x);
        return;
    }
    if (x->link_due || x->blocked)
        return;
    x->next_due = s->due;
    x->link_due = &s->due;
    if (x->next_due)
        x->next_due->link_due = &x->next_due;
    s->due = x;
}

int http_connection_fd(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

void http_connection_send(struct MHD_Connection *connection, const void *bytes, size_t n)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info && info->tls_session)
        (void)!gnutls_record_send(info->tls_session, bytes, n);
    else
        (void)!send(http_connection_fd(connection), bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}
