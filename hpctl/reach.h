/* By which addresses other boxes reach what listens on this one. */
#ifndef HP_HPCTL_REACH_H
#define HP_HPCTL_REACH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { REACH_MAX_HOSTS = 8, REACH_HOST = 280 };

/* Hosts for `listen` (HOST:PORT): HOST itself or, where that is every address (0.0.0.0, [::], *),
 * those of this box's interfaces that are up, IPv4 first and loopback only when there is nothing
 * else. IPv6 stands in brackets. Returns how many. */
int reach_hosts(const char *listen, char hosts[][REACH_HOST], int max);
/* The first of them with the port. */
void reach_address(const char *listen, char *out, size_t size);
/* How this box itself reaches what listens there. */
void reach_from_here(const char *listen, char *out, size_t size);
/* All of them with the port, the likeliest first: one string, or an array where there are several.
 */
json_t *reach_addresses(const char *listen);
/* HOST:PORT of an API's address, "http://HOST:PORT" or "https://HOST:PORT". */
const char *reach_of_url(const char *url);
bool reach_is_any(const char *listen);
/* Of a host, or of HOST:PORT. */
bool reach_is_loopback(const char *host);

#endif
