#include "transport/keys.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "common/digest.h"
#include "common/fs.h"

enum { SECRET_BYTES = 16 };

int key_pair_create(struct key_pair *out, struct err *e)
{
    if (zmq_curve_keypair(out->public_key, out->secret_key) != 0)
        return err_set(e, HP_EUNSUPPORTED, "this libzmq cannot make CURVE keys: %s",
                       zmq_strerror(zmq_errno()));
    return 0;
}

/* A damaged file may still hold two keys: they are no pair. */
static bool keys_are_a_pair(const struct key_pair *k)
{
    char public_key[KEY_TEXT];
    return zmq_curve_public(public_key, k->secret_key) == 0 &&
           strcmp(public_key, k->public_key) == 0;
}

static bool key_is_sound(const char *key)
{
    uint8_t raw[KEY_BYTES];
    return strlen(key) == KEY_TEXT - 1 && zmq_z85_decode(raw, key) != NULL;
}

int key_decode(const char *text, uint8_t out[KEY_BYTES], struct err *e)
{
    if (strnlen(text, KEY_TEXT) != KEY_TEXT - 1 || !zmq_z85_decode(out, text))
        return err_set(e, HP_EINVAL, "this is not a key of %d characters in Z85", KEY_TEXT - 1);
    return 0;
}

void key_encode(const uint8_t key[KEY_BYTES], char out[KEY_TEXT])
{
    zmq_z85_encode(out, key, KEY_BYTES);
}

int key_pair_load(const char *file, struct key_pair *out, struct err *e)
{
    struct stat st;
    FILE *f = fopen(file, "r");
    if (!f)
        return err_set(e, errno == ENOENT ? HP_ENOENT : HP_EIO, "%s: %s", file, strerror(errno));
    int rc = 0;
    if (fstat(fileno(f), &st) == 0 && (st.st_mode & 077)) {
        err_set(e, HP_EDENIED, "%s: other users may read this key (mode %03o)", file,
                (unsigned)st.st_mode & 0777);
        rc = err_hint(e, "chmod 600 %s", file);
    } else if (fscanf(f, "public %40s secret %40s", out->public_key, out->secret_key) != 2 ||
               !key_is_sound(out->public_key) || !key_is_sound(out->secret_key)) {
        rc = err_set(e, HP_EPARSE, "%s: not a key file", file);
    } else if (!keys_are_a_pair(out)) {
        rc = err_set(e, HP_EPARSE, "%s: damaged: the public key is not that of the secret one",
                     file);
    }
    fclose(f);
    return rc;
}

/* Whole or not at all, whoever is killed meanwhile; of two at once the first one's is kept. */
static int key_pair_save(const char *file, const struct key_pair *k, struct err *e)
{
    char text[128], beside[4096];
    int n = snprintf(text, sizeof text, "public %s\nsecret %s\n", k->public_key, k->secret_key);
    snprintf(beside, sizeof beside, "%s.%d", file, (int)getpid());
    int rc = fs_file_write(beside, text, (size_t)n, 0600, e);
    sodium_memzero(text, sizeof text);
    if (rc < 0)
        return rc;
    if (link(beside, file) != 0)
        rc = err_set(e, errno == EEXIST ? HP_EEXIST : HP_EIO, "%s: %s", file, strerror(errno));
    unlink(beside);
    return rc;
}

int key_pair_load_or_create(const char *file, struct key_pair *out, struct err *e)
{
    int rc = key_pair_load(file, out, e);
    if (rc != HP_ENOENT)
        return rc;
    if ((rc = key_pair_create(out, e)) < 0)
        return rc;
    rc = key_pair_save(file, out, e);
    return rc == HP_EEXIST ? key_pair_load(file, out, e) : rc;
}

void join_token_text(const struct join_token *t, char out[JOIN_TOKEN_TEXT])
{
    uint8_t raw[KEY_BYTES];
    char hex[2 * KEY_BYTES + 1];
    zmq_z85_decode(raw, t->server_key);
    sodium_bin2hex(hex, sizeof hex, raw, sizeof raw);
    snprintf(out, JOIN_TOKEN_TEXT, "hp1-%s-%s", hex, t->secret);
}

int join_token_parse(const char *text, struct join_token *out, struct err *e)
{
    uint8_t raw[KEY_BYTES];
    size_t n = 0;
    const char *secret = text + 4 + 2 * KEY_BYTES + 1;
    if (strncmp(text, "hp1-", 4) != 0 || strlen(text) != 4 + 2 * KEY_BYTES + 1 + 2 * SECRET_BYTES ||
        secret[-1] != '-' ||
        sodium_hex2bin(raw, sizeof raw, text + 4, 2 * KEY_BYTES, NULL, &n, NULL) != 0 ||
        n != KEY_BYTES || strspn(secret, "0123456789abcdef") != 2 * SECRET_BYTES) {
        err_set(e, HP_EINVAL, "this is not a join token");
        return err_hint(e, "make one with `hpctl node token create`; it starts with hp1-");
    }
    zmq_z85_encode(out->server_key, raw, sizeof raw);
    memcpy(out->secret, secret, JOIN_TOKEN_SECRET_TEXT);
    return 0;
}

void join_token_secret_digest(const char *secret, char out[65])
{
    struct digest d = digest_of(secret, strlen(secret));
    digest_hex(&d, out);
}

int key_pair_check(const struct key_pair *k, struct err *e)
{
    return key_is_sound(k->public_key) && key_is_sound(k->secret_key) && keys_are_a_pair(k)
               ? 0
               : err_set(e, HP_EPARSE, "the public key is not that of the secret one");
}

bool key_equal(const char *a, const char *b)
{
    size_t n = strlen(a);
    return n == strlen(b) && sodium_memcmp(a, b, n) == 0;
}
