#include "hpctl/reach.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "common/host_address.h"

static void host_of(const char *listen, char *out, size_t size)
{
    const char *colon = strrchr(listen, ':');
    snprintf(out, size, "%.*s", colon ? (int)(colon - listen) : (int)strlen(listen), listen);
}

bool reach_is_any(const char *listen)
{
    static const char *const any[] = {"0.0.0.0", "[::]", "*", ""};
    char host[REACH_HOST];
    host_of(listen, host, sizeof host);
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        if (strcmp(host, any[i]) == 0)
            return true;
    return false;
}

bool reach_is_loopback(const char *host)
{
    return address_is_loopback(host);
}

/* An address that another box may use: not loopback, not link-local. */
static bool interface_host(const struct ifaddrs *i, int family, char out[REACH_HOST])
{
    char text[INET6_ADDRSTRLEN];
    if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) ||
        i->ifa_flags & IFF_LOOPBACK)
        return false;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)i->ifa_addr;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
        return false;
    inet_ntop(family,
              family == AF_INET ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr, text,
              sizeof text);
    snprintf(out, REACH_HOST, family == AF_INET ? "%s" : "[%s]", text);
    return true;
}

int reach_hosts(const char *listen, char hosts[][REACH_HOST], int max)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *all = NULL;
    int n = 0;
    if (!reach_is_any(listen)) {
        host_of(listen, hosts[0], REACH_HOST);
        return 1;
    }
    if (getifaddrs(&all) == 0)
        for (int f = 0; f < 2; f++)
            for (const struct ifaddrs *i = all; i && n < max; i = i->ifa_next)
                n += interface_host(i, families[f], hosts[n]);
    if (all)
        freeifaddrs(all);
    if (n == 0)
        snprintf(hosts[n++], REACH_HOST, "127.0.0.1");
    return n;
}

static const char *port_of(const char *listen)
{
    const char *colon = strrchr(listen, ':');
    return colon ? colon : "";
}

void reach_address(const char *listen, char *out, size_t size)
{
    char hosts[REACH_MAX_HOSTS][REACH_HOST];
    reach_hosts(listen, hosts, REACH_MAX_HOSTS);
    snprintf(out, size, "%s%s", hosts[0], port_of(listen));
}

void reach_from_here(const char *listen, char *out, size_t size)
{
    bool any = reach_is_any(listen);
    snprintf(out, size, "%s%s", any ? "127.0.0.1" : listen, any ? port_of(listen) : "");
}

json_t *reach_addresses(const char *listen)
{
    char hosts[REACH_MAX_HOSTS][REACH_HOST], address[2 * REACH_HOST];
    int n = reach_hosts(listen, hosts, REACH_MAX_HOSTS);
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        snprintf(address, sizeof address, "%s%s", hosts[i], port_of(listen));
        json_array_append_new(list, json_string(address));
    }
    if (n > 1)
        return list;
    json_t *only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

const char *reach_of_url(const char *url)
{
    const char *scheme = strstr(url, "://");
    return scheme ? scheme + 3 : url;
}
