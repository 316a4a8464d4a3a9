/* Content names of bytes: BLAKE2b-256 for chunks of models (libsodium), SHA-256 for the inputs that
 * a plan names. */
#ifndef HP_COMMON_DIGEST_H
#define HP_COMMON_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum { DIGEST_BYTES = 32, DIGEST_HEX = 2 * DIGEST_BYTES + 1, DIGEST_SHA256_HEX = 65 };

struct digest {
    uint8_t bytes[DIGEST_BYTES];
};

/* BLAKE2b-256 of bytes. Thread-safe. */
struct digest digest_of(const void *data, size_t n);
void digest_hex(const struct digest *d, char out[DIGEST_HEX]);
/* 64 hex digits to a digest. HP_EPARSE otherwise. */
int digest_from_hex(const char *hex, struct digest *out, struct err *e);
/* SHA-256 of a file's bytes, as hex. */
int digest_file_sha256(const char *file, char out[DIGEST_SHA256_HEX], struct err *e);

#endif
