#include "coordinator/gateway/listen_address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
