#include "transport/data_tcp_seal.h"

#include <sodium.h>
#include <string.h>

enum { NONCE_BYTES = 12 };

int tcp_seal_init(struct tcp_seal *s, enum handshake_cipher cipher, const uint8_t key[32],
                  bool sealing, struct err *e)
{
    const EVP_CIPHER *kind =
        cipher == HANDSHAKE_AES256_GCM ? EVP_aes_256_gcm() : EVP_chacha20_poly1305();
    *s = (struct tcp_seal){.evp = EVP_CIPHER_CTX_new(), .sealing = sealing};
    if (!s->evp)
        return err_set(e, HP_ENOMEM, "out of memory for a connection's cipher");
    memcpy(s->key, key, sizeof s->key);
    if (EVP_CipherInit_ex(s->evp, kind, NULL, key, NULL, sealing) == 1)
        return 0;
    tcp_seal_fini(s);
    return err_set(e, HP_EUNSUPPORTED, "libcrypto cannot start %s",
                   cipher == HANDSHAKE_AES256_GCM ? "AES-256-GCM" : "ChaCha20-Poly1305");
}

void tcp_seal_fini(struct tcp_seal *s)
{
    EVP_CIPHER_CTX_free(s->evp);
    sodium_memzero(s, sizeof *s);
}

/* The key of the next 2^20 records; what was sealed before cannot be opened with it. */
static bool key_replace(struct tcp_seal *s)
{
    static const char use[] = "hodgepodge data_tcp: next key";
    uint8_t next[32];
    crypto_generichash(next, sizeof next, (const uint8_t *)use, sizeof use, s->key, sizeof s->key);
    memcpy(s->key, next, sizeof next);
    sodium_memzero(next, sizeof next);
    return EVP_CipherInit_ex(s->evp, NULL, NULL, s->key, NULL, s->sealing) == 1;
}

/* Begins the next record: its nonce, and what it says in clear. */
static bool record_begin(struct tcp_seal *s, const uint8_t *head, size_t head_bytes)
{
    uint8_t nonce[NONCE_BYTES] = {0};
    int n;
    if (s->number > 0 && s->number % SEAL_RECORDS_PER_KEY == 0 && !key_replace(s))
        return false;
    memcpy(nonce + 4, &s->number, sizeof s->number);
    s->number++;
    return EVP_CipherInit_ex(s->evp, NULL, NULL, NULL, nonce, s->sealing) == 1 &&
           EVP_CipherUpdate(s->evp, NULL, &n, head, (int)head_bytes) == 1;
}

bool tcp_seal_close(struct tcp_seal *s, const uint8_t *head, size_t head_bytes,
                    const uint8_t *first, size_t first_bytes, const uint8_t *second,
                    size_t second_bytes, uint8_t *out)
{
    int n;
    return record_begin(s, head, head_bytes) &&
           (!first_bytes || EVP_CipherUpdate(s->evp, out, &n, first, (int)first_bytes) == 1) &&
           (!second_bytes ||
            EVP_CipherUpdate(s->evp, out + first_bytes, &n, second, (int)second_bytes) == 1) &&
           EVP_CipherFinal_ex(s->evp, out + first_bytes + second_bytes, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(s->evp, EVP_CTRL_AEAD_GET_TAG, SEAL_BYTES,
                               out + first_bytes + second_bytes) == 1;
}

bool tcp_seal_open(struct tcp_seal *s, const uint8_t *head, size_t head_bytes,
                   const uint8_t *sealed, size_t size, uint8_t *out)
{
    uint8_t tag[SEAL_BYTES], none[SEAL_BYTES];
    int n;
    memcpy(tag, sealed + size, sizeof tag);
    return record_begin(s, head, head_bytes) &&
           (!size || EVP_CipherUpdate(s->evp, out, &n, sealed, (int)size) == 1) &&
           EVP_CIPHER_CTX_ctrl(s->evp, EVP_CTRL_AEAD_SET_TAG, SEAL_BYTES, tag) == 1 &&
           EVP_CipherFinal_ex(s->evp, none, &n) == 1;
}
