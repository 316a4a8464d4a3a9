/* Sizes as people write them. */
#ifndef HP_COMMON_UNITS_H
#define HP_COMMON_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* A number of bytes above 0: digits alone, or with K, M, G, T or KiB .. TiB, which count in 1024s,
 * or KB .. TB, which count in 1000s; in any case. False when it is not one, or does not fit; *out
 * is untouched. */
bool units_bytes_parse(const char *text, uint64_t *out);

#endif
