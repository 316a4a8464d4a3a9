#include "common/digest.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

_Static_assert(DIGEST_SHA256_HEX == crypto_hash_sha256_BYTES * 2 + 1, "SHA-256 is 32 bytes");

struct digest digest_of(const void *data, size_t n)
{
    struct digest d;
    crypto_generichash(d.bytes, sizeof d.bytes, data, n, NULL, 0);
    return d;
}

void digest_hex(const struct digest *d, char out[DIGEST_HEX])
{
    sodium_bin2hex(out, DIGEST_HEX, d->bytes, sizeof d->bytes);
}

int digest_from_hex(const char *hex, struct digest *out, struct err *e)
{
    size_t n = 0;
    if (strlen(hex) != DIGEST_HEX - 1 ||
        sodium_hex2bin(out->bytes, sizeof out->bytes, hex, DIGEST_HEX - 1, NULL, &n, NULL) != 0 ||
        n != sizeof out->bytes)
        return err_set(e, HP_EPARSE, "\"%.80s\" is not a content name of %d hex digits", hex,
                       DIGEST_HEX - 1);
    return 0;
}

int digest_file_sha256(const char *file, char out[DIGEST_SHA256_HEX], struct err *e)
{
    FILE *f = fopen(file, "rb");
    if (!f)
        return err_set(e, errno == ENOENT ? HP_ENOENT : HP_EIO, "%s: %s", file, strerror(errno));
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    uint8_t block[1 << 14], sum[crypto_hash_sha256_BYTES];
    size_t got;
    while ((got = fread(block, 1, sizeof block, f)) > 0)
        crypto_hash_sha256_update(&state, block, got);
    int bad = ferror(f);
    fclose(f);
    if (bad)
        return err_set(e, HP_EIO, "%s: cannot read", file);
    crypto_hash_sha256_final(&state, sum);
    sodium_bin2hex(out, DIGEST_SHA256_HEX, sum, sizeof sum);
    return 0;
}
