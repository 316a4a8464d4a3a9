#include "coordinator/gateway/listen_address.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int listen_address_read(const char *listen, char host[HOST_BYTES], int *port, struct err *e)
{
    const char *colon = strrchr(listen, ':');
    char *end;
    long p = colon ? strtol(colon + 1, &end, 10) : -1;
    size_t n = colon ? (size_t)(colon - listen) : 0;
    bool bracketed = n > 2 && listen[0] == '[' && listen[n - 1] == ']';
    if (!colon || colon[1] == '\0' || *end || p < 0 || p > 65535 || n == 0 || n >= HOST_BYTES) {
        err_set(e, HP_EUSAGE, "\"%s\" is not an address HOST:PORT", listen);
        return err_hint(e, "for example 127.0.0.1:8080, or port 0 for any free one");
    }
    snprintf(host, HOST_BYTES, "%.*s", (int)(bracketed ? n - 2 : n), listen + bracketed);
    *port = (int)p;
    return 0;
}

int listen_socket_open(const char *what, const char *host, int port, int *port_out, struct err *e)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found;
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &hints, &found) != 0)
        return err_set(e, HP_EINVAL, "\"%s\" is not an address to listen on", host);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    int rc = fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1024) != 0
                 ? -errno
                 : 0;
    freeaddrinfo(found);
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    if (rc == 0 && getsockname(fd, (struct sockaddr *)&own, &size) == 0)
        *port_out = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                                    : ((struct sockaddr_in *)&own)->sin_port);
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    err_set(e, HP_EIO, "cannot listen for %s on %s port %d: %s", what, host, port, strerror(-rc));
    if (rc == -EADDRINUSE)
        err_hint(e, "another program has this port: choose another, or 0 for any free one");
    return HP_EIO;
}
