#include "coordinator/gateway/http_int.h"

void http_exchange_wake(struct http_exchange *x)
{
    if (!x->suspended)
        return; /* the daemon comes to it by itself */
    x->suspended = false;
    MHD_resume_connection(x->connection);
    x->server->work = true;
}

int http_connection_fd(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}
