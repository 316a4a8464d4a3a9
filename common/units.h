/* Sizes as people write them. */
#ifndef HP_COMMON_UNITS_H
#define HP_COMMON_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* How sizes are written, in the words of --help and of errors: the one place that says it. */
#define UNITS_BYTES_HELP "4GiB or 4G (in 1024s), 4GB (in 1000s), or bytes"

/* A number of bytes above 0, in all programs alike: 8000000000, 1.5e9, or with K, M, G, T or
 * KiB .. TiB, which count in 1024s, or with KB .. TB, which count in 1000s; in any case; a fraction
 * of a byte is dropped. False when it is not one, or does not fit; *out is untouched. */
bool units_bytes_parse(const char *text, uint64_t *out);

#endif
