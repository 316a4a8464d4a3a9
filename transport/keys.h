/* Keys of the control channel (CURVE, Z85 text) and join tokens; their files are readable by the
 * owner alone. */
#ifndef HP_TRANSPORT_KEYS_H
#define HP_TRANSPORT_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

enum { KEY_BYTES = 32, KEY_TEXT = 41, JOIN_TOKEN_SECRET_TEXT = 33, JOIN_TOKEN_TEXT = 128 };

struct key_pair {
    char public_key[KEY_TEXT], secret_key[KEY_TEXT]; /* Z85, NUL-terminated */
};

/* Text to bytes and back. HP_EINVAL when the text is no key. */
int key_decode(const char *text, uint8_t out[KEY_BYTES], struct err *e);
void key_encode(const uint8_t key[KEY_BYTES], char out[KEY_TEXT]);

/* A new pair, by chance. HP_EUNSUPPORTED: this libzmq cannot make one. */
int key_pair_create(struct key_pair *out, struct err *e);
/* HP_ENOENT; HP_EDENIED: others may read it; HP_EPARSE: it holds no pair of keys; HP_EIO. */
int key_pair_load(const char *file, struct key_pair *out, struct err *e);
/* The same, and makes one (mode 0600) where there is none, whole or not at all. */
int key_pair_load_or_create(const char *file, struct key_pair *out, struct err *e);
/* HP_EPARSE when these are not two keys that belong together; a file's are checked when it is read.
 */
int key_pair_check(const struct key_pair *k, struct err *e);

/* A join token is "hp1-" + coordinator's public key in hex + "-" + a secret of 32 hex digits: it
 * says whom to trust and proves that one was invited. */
struct join_token {
    char server_key[KEY_TEXT];
    char secret[JOIN_TOKEN_SECRET_TEXT];
};
void join_token_text(const struct join_token *t, char out[JOIN_TOKEN_TEXT]);
/* HP_EINVAL. */
int join_token_parse(const char *text, struct join_token *out, struct err *e);
/* What the coordinator stores instead of the secret: BLAKE2b-256 as hex. */
void join_token_secret_digest(const char *secret, char out[65]);
/* Equal without telling by its time how much is. */
bool key_equal(const char *a, const char *b);

#endif
