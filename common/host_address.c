#include "common/host_address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool host_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    return strcasecmp(host, "localhost") == 0;
}

bool host_is_name(const char *host)
{
    struct in6_addr v6;
    size_t n = strlen(host);
    return n > 0 && n < HOST_BYTES &&
           (strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
                n ||
            inet_pton(AF_INET6, host, &v6) == 1);
}

static bool port_is_fine(const char *text)
{
    return *text == '\0' || (*text == ':' && text[1] && strlen(text) <= 6 &&
                             strspn(text + 1, "0123456789") == strlen(text + 1));
}

bool host_of_address(const char *address, char *out, size_t size)
{
    bool bracketed = *address == '[';
    const char *from = address + bracketed, *end = from + strcspn(from, bracketed ? "]" : ":");
    size_t n = (size_t)(end - from);
    if (n == 0 || n >= size || (bracketed && *end != ']') || strcspn(from, "/@?# \t\\") < n ||
        !port_is_fine(end + bracketed))
        return false;
    snprintf(out, size, "%.*s", (int)n, from);
    return true;
}

bool address_is_loopback(const char *address)
{
    char host[HOST_BYTES];
    return host_of_address(address, host, sizeof host) && host_is_loopback(host);
}
