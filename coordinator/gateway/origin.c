#include "coordinator/gateway/origin.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HOST_BYTES = 256 };

bool address_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    return strcasecmp(host, "localhost") == 0;
}

static bool port_is_fine(const char *text)
{
    return *text == '\0' || (*text == ':' && text[1] && strlen(text) <= 6 && strspn(text + 1, "0123456789") == strlen(text + 1));
}

/* The host of "host", "host:port", "[v6]" or "[v6]:port"; false for anything else. */
static bool host_of(const char *value, char host[HOST_BYTES])
{
    bool bracketed = *value == '[';
    const char *from = value + bracketed, *end = from + strcspn(from, bracketed ? "]" : ":");
    size_t n = (size_t)(end - from);
    if (n == 0 || n >= HOST_BYTES || (bracketed && *end != ']') || strcspn(from, "/@?# \t\\") < n ||
        !port_is_fine(end + bracketed))
        return false;
    snprintf(host, HOST_BYTES, "%.*s", (int)n, from);
    return true;
}

bool host_is_own(const char *value, const struct origin_names *names)
{
    char host[HOST_BYTES];
    if (!host_of(value, host))
        return false;
    for (int i = 0; i < names->n; i++)
        if (strcasecmp(host, names->names[i]) == 0)
            return true;
    return address_is_loopback(host);
}

bool origin_is_own(const char *value, const struct origin_names *names)
{
    if (strncasecmp(value, "http://", 7) == 0)
        return host_is_own(value + 7, names);
    return strncasecmp(value, "https://", 8) == 0 && host_is_own(value + 8, names);
}
