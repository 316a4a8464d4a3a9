/* Hosts as people and HTTP headers write them. Pure functions over text: no name is looked up. */
#ifndef HP_COMMON_HOST_ADDRESS_H
#define HP_COMMON_HOST_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

enum { HOST_BYTES = 256 };

/* 127.0.0.0/8, ::1 (also as ::ffff:127.x) or "localhost", and nothing that only looks so. */
bool host_is_loopback(const char *host);

/* A name or an address alone: letters, digits, '-', '_' and '.', or an IPv6 address without
 * brackets. */
bool host_is_name(const char *host);

/* The host of "HOST", "HOST:PORT", "[V6]" or "[V6]:PORT", without the brackets. False for anything
 * else, and for a host that does not fit. */
bool host_of_address(const char *address, char *out, size_t size);

/* Whether the host of such an address is loopback. */
bool address_is_loopback(const char *address);

#endif
