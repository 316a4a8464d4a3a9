#include "transport/data_choice.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/data.h"

/* ---- networks ---- */

struct network {
    int family;
    uint8_t address[16];
    int prefix_bits;
};

static int network_parse(const char *text, size_t size, struct network *out)
{
    char copy[64];
    if (size == 0 || size >= sizeof copy)
        return -1;
    memcpy(copy, text, size);
    copy[size] = '\0';
    char *slash = strchr(copy, '/'), *end = NULL;
    if (slash)
        *slash = '\0';
    out->family = strchr(copy, ':') ? AF_INET6 : AF_INET;
    int most = out->family == AF_INET6 ? 128 : 32;
    if (inet_pton(out->family, copy, out->address) != 1)
        return -1;
    long bits = slash ? strtol(slash + 1, &end, 10) : most;
    if (slash && (!slash[1] || *end || bits < 0 || bits > most))
        return -1;
    out->prefix_bits = (int)bits;
    return 0;
}

static bool network_has(const struct network *n, int family, const uint8_t *address)
{
    int whole = n->prefix_bits / 8, rest = n->prefix_bits % 8;
    if (n->family != family || memcmp(n->address, address, (size_t)whole) != 0)
        return false;
    return rest == 0 || (n->address[whole] ^ address[whole]) >> (8 - rest) == 0;
}

/* Calls for each network of the list; stops at the first for which `see` is not 0, or that is no
 * network (-1). */
static int networks_each(const char *list, int (*see)(void *ctx, const struct network *n),
                         void *ctx, const char **bad)
{
    for (const char *at = list; *at;) {
        size_t size = strcspn(at, ", ");
        struct network n;
        if (bad)
            *bad = at;
        if (size && network_parse(at, size, &n) < 0)
            return -1;
        int seen = size && see ? see(ctx, &n) : 0;
        if (seen)
            return seen;
        at += size + (at[size] != '\0');
    }
    return 0;
}

struct host_bytes {
    int family;
    uint8_t address[16];
};

static int host_is_in(void *ctx, const struct network *n)
{
    const struct host_bytes *h = ctx;
    return network_has(n, h->family, h->address);
}

static bool host_parse(const char *host, struct host_bytes *out)
{
    out->family = strchr(host, ':') ? AF_INET6 : AF_INET;
    return inet_pton(out->family, host, out->address) == 1;
}

/* ---- the policy ---- */

int data_policy_set(struct data_policy *p, const char *mode, const char *trust, struct err *e)
{
    const char *bad = NULL;
    mode = mode && *mode ? mode : "auto";
    trust = trust ? trust : "";
    if (strcmp(mode, "auto") != 0 && strcmp(mode, "ucx") != 0 && strcmp(mode, "tcp") != 0)
        return err_set(e, HP_EUSAGE, "--data %.40s: is none of auto, ucx, tcp", mode);
    if (strlen(trust) >= sizeof p->trust)
        return err_set(e, HP_EUSAGE, "--trust: more than %zu characters of networks",
                       sizeof p->trust - 1);
    if (networks_each(trust, NULL, NULL, &bad) < 0)
        return err_set(e, HP_EUSAGE,
                       "--trust: \"%.*s\" is no network such as 10.1.0.0/16 or fd00::/8",
                       (int)strcspn(bad, ", "), bad);
    snprintf(p->mode, sizeof p->mode, "%s", mode);
    snprintf(p->trust, sizeof p->trust, "%s", trust);
    return 0;
}

bool data_policy_equal(const struct data_policy *a, const struct data_policy *b)
{
    return strcmp(a->mode, b->mode) == 0 && strcmp(a->trust, b->trust) == 0;
}

enum data_kind data_policy_kind(const struct data_policy *p, const char *host)
{
    static const char loopback[] = "127.0.0.0/8,::1/128";
    struct host_bytes h;
    if (p->mode[0] && strcmp(p->mode, "auto") != 0)
        return strcmp(p->mode, "ucx") == 0 ? DATA_KIND_UCX : DATA_KIND_TCP;
    if (!host_parse(host, &h))
        return DATA_KIND_TCP;
    bool trusted = networks_each(loopback, host_is_in, &h, NULL) == 1 ||
                   networks_each(p->trust, host_is_in, &h, NULL) == 1;
    return trusted ? DATA_KIND_UCX : DATA_KIND_TCP;
}

const char *data_kind_word(enum data_kind kind)
{
    return kind == DATA_KIND_UCX ? "ucx" : "tcp";
}

int data_open_kind(enum data_kind kind, const struct data_config *c, struct data_endpoint **out,
                   struct err *e)
{
    return kind == DATA_KIND_UCX ? data_open_ucx(c, out, e) : data_open_tcp(c, out, e);
}

/* ---- this box's addresses ---- */

static int address_print(const struct sockaddr *a, char out[DATA_HOST_TEXT])
{
    const void *bytes =
        a->sa_family == AF_INET
            ? (const void *)&((const struct sockaddr_in *)(const void *)a)->sin_addr
            : (const void *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return inet_ntop(a->sa_family, bytes, out, DATA_HOST_TEXT) ? 0 : -1;
}

static bool address_is_usable(const struct ifaddrs *i, int family)
{
    if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP))
        return false;
    return family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(
               &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr);
}

static int interface_host(const char *interface, char out[DATA_HOST_TEXT], struct err *e)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *all = NULL;
    int rc = HP_ENOENT;
    if (getifaddrs(&all) != 0)
        return err_set(e, HP_EDEVICE, "cannot list this box's network interfaces");
    for (int f = 0; rc < 0 && f < 2; f++)
        for (const struct ifaddrs *i = all; rc < 0 && i; i = i->ifa_next)
            if (strcmp(i->ifa_name, interface) == 0 && address_is_usable(i, families[f]))
                rc = address_print(i->ifa_addr, out);
    freeifaddrs(all);
    if (rc < 0) {
        rc = err_set(e, HP_ENOENT, "the interface %s has no address", interface);
        err_hint(e, "`ip addr` shows the interfaces and their addresses; name one with --network");
    }
    return rc;
}

/* The source address that the kernel would use: nothing is sent by connecting a datagram socket. */
static int route_host(const struct addrinfo *to, char out[DATA_HOST_TEXT])
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
                 getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
                 address_print((const struct sockaddr *)&own, out) == 0;
    if (fd >= 0)
        close(fd);
    return found ? 0 : -1;
}

int data_host_find(const char *interface, const char *towards, char out[DATA_HOST_TEXT],
                   struct err *e)
{
    char host[256];
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *all = NULL;
    if (interface)
        return interface_host(interface, out, e);
    const char *colon = strrchr(towards, ':');
    bool with_port = colon && (strchr(towards, ':') == colon || colon[-1] == ']');
    snprintf(host, sizeof host, "%.*s", with_port ? (int)(colon - towards) : (int)strlen(towards),
             towards);
    char *bare = host[0] == '[' ? host + 1 : host;
    bare[strcspn(bare, "]")] = '\0';
    int rc = getaddrinfo(bare, with_port ? colon + 1 : "9", &hints, &all) == 0 ? -1 : -2;
    for (const struct addrinfo *a = all; rc == -1 && a; a = a->ai_next)
        rc = route_host(a, out) == 0 ? 0 : -1;
    if (all)
        freeaddrinfo(all);
    if (rc == 0)
        return 0;
    err_set(e, HP_ELINK,
            rc == -2 ? "%s does not resolve to an address" : "this box has no way to %s", bare);
    return err_hint(
        e,
        "is the name right, and the network up? --network names the interface of the data channel");
}

bool data_interface_find(const char *host, char *out, size_t size)
{
    struct ifaddrs *all = NULL;
    char text[DATA_HOST_TEXT];
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *i = all; !found && i; i = i->ifa_next)
        if (i->ifa_addr &&
            (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6) &&
            address_print(i->ifa_addr, text) == 0 && strcmp(text, host) == 0) {
            snprintf(out, size, "%s", i->ifa_name);
            found = true;
        }
    freeifaddrs(all);
    return found;
}
