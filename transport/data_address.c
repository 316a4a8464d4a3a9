#include "transport/data_address.h"

#include <arpa/inet.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"tcp", "ucx"};

static int bad_address(struct err *e, const char *what)
{
    return err_set(e, HP_EINVAL,
                   "a data address has %s; one looks like tcp:10.0.0.5:7071:<64 hex digits>", what);
}

static bool host_is_numeric(const char *host, bool bracketed)
{
    uint8_t raw[16];
    return inet_pton(bracketed ? AF_INET6 : AF_INET, host, raw) == 1;
}

/* Reads HOST or [HOST] up to its colon; NULL when it is none. Returns what comes after the colon.
 */
static char *host_take(char *text, char out[DATA_HOST_TEXT])
{
    bool bracketed = text[0] == '[';
    char *start = text + bracketed, *end = strchr(start, bracketed ? ']' : ':');
    if (!end || end - start >= DATA_HOST_TEXT || (bracketed && end[1] != ':'))
        return NULL;
    memcpy(out, start, (size_t)(end - start));
    out[end - start] = '\0';
    return host_is_numeric(out, bracketed) ? end + 1 + bracketed : NULL;
}

/* Reads a decimal port without sign, spaces or leading zeros, up to its colon. */
static char *port_take(char *text, uint16_t *out)
{
    char *end;
    if (text[0] < '1' || text[0] > '9')
        return NULL;
    unsigned long port = strtoul(text, &end, 10);
    if (*end != ':' || end - text > 5 || port > UINT16_MAX)
        return NULL;
    *out = (uint16_t)port;
    return end + 1;
}

int data_address_parse(const uint8_t *bytes, size_t size, struct data_address *out, struct err *e)
{
    char text[DATA_ADDRESS_TEXT], *at = text + 4;
    struct data_address a = {0};
    size_t n = 0;
    if (size < 5 || size >= sizeof text || memchr(bytes, '\0', size))
        return err_set(e, HP_EINVAL,
                       "%zu bytes are no address of a data endpoint; one looks like "
                       "tcp:10.0.0.5:7071:<64 hex digits>",
                       size);
    memcpy(text, bytes, size);
    text[size] = '\0';
    if (text[3] != ':' || (strncmp(text, "tcp", 3) != 0 && strncmp(text, "ucx", 3) != 0))
        return bad_address(e, "a kind that is neither tcp nor ucx");
    a.kind = text[0] == 't' ? DATA_KIND_TCP : DATA_KIND_UCX;
    if (!(at = host_take(at, a.host)))
        return bad_address(e, "no numeric host");
    if (!(at = port_take(at, &a.port)))
        return bad_address(e, "no port of 1 to 65535");
    if (strlen(at) != 2 * KEY_BYTES ||
        sodium_hex2bin(a.key, sizeof a.key, at, 2 * KEY_BYTES, NULL, &n, NULL) != 0 ||
        n != KEY_BYTES)
        return bad_address(e, "no key");
    *out = a;
    return 0;
}

size_t data_address_print(const struct data_address *a, char out[DATA_ADDRESS_TEXT])
{
    char key[2 * KEY_BYTES + 1];
    bool bracketed = strchr(a->host, ':') != NULL;
    sodium_bin2hex(key, sizeof key, a->key, sizeof a->key);
    return (size_t)snprintf(out, DATA_ADDRESS_TEXT, "%s:%s%s%s:%u:%s", kind_names[a->kind],
                            bracketed ? "[" : "", a->host, bracketed ? "]" : "", a->port, key);
}
