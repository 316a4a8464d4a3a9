/* Where an endpoint listens: a host address and the interface that has it. UCX wants to know both.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

#include "transport/data_ucx_int.h"

socklen_t ucx_socket_address(const struct data_address *a, struct sockaddr_storage *out)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, a->host, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(a->port);
        return sizeof *in;
    }
    inet_pton(AF_INET6, a->host, &in6->sin6_addr);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(a->port);
    return sizeof *in6;
}

static const void *ip_of(const struct sockaddr *sa)
{
    return sa->sa_family == AF_INET
               ? (const void *)&((const struct sockaddr_in *)(const void *)sa)->sin_addr
               : (const void *)&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
}

static bool sockaddr_is_host(const struct sockaddr *sa, const char *host)
{
    uint8_t mine[16];
    if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6) ||
        inet_pton(sa->sa_family, host, mine) != 1)
        return false;
    return memcmp(mine, ip_of(sa), sa->sa_family == AF_INET ? 4 : 16) == 0;
}

/* The first interface that fits: the one named, or the one with this address. Its IPv4 address when
 * the host is not named. */
static bool interface_find(const struct ifaddrs *all, const char *network, const char *host,
                           const struct ifaddrs **out)
{
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        bool named = !network || strcmp(i->ifa_name, network) == 0;
        bool there = host ? sockaddr_is_host(i->ifa_addr, host)
                          : i->ifa_addr && i->ifa_addr->sa_family == AF_INET;
        if (named && there) {
            *out = i;
            return true;
        }
    }
    return false;
}

int ucx_place_find(const struct data_config *c, struct data_address *own, char network[IF_NAMESIZE],
                   struct err *e)
{
    const char *host = c->host || c->network ? c->host : "127.0.0.1";
    struct ifaddrs *all;
    const struct ifaddrs *found;
    if (getifaddrs(&all) != 0)
        return err_set(e, HP_EDEVICE, "the interfaces of this machine cannot be listed");
    bool good = interface_find(all, c->network, host, &found);
    if (good) {
        snprintf(network, IF_NAMESIZE, "%s", found->ifa_name);
        inet_ntop(found->ifa_addr->sa_family, ip_of(found->ifa_addr), own->host, sizeof own->host);
    }
    freeifaddrs(all);
    if (good)
        return 0;
    err_set(e, HP_EINVAL, "the data channel cannot listen at %s: %s has no such address",
            host ? host : "an IPv4 address", c->network ? c->network : "this machine");
    return err_hint(e, "`ip addr` lists interfaces and their addresses; name one with --network");
}
