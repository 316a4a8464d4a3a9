#include "transport/handshake.h"

#include <assert.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>

/* FIRST: version 0, purpose 1, ciphers 2, zero 3, e 4, [s] 36, proof 84, mark 100. SECOND: version
 * 0, cipher 1, zero 2, e 4, proof 36. THIRD: proof. */
enum { TAG = 16, AT_E = 4, AT_S = 36, AT_PROOF = 84, AT_MARK = 100, AT_PROOF_2 = 36 };

static const char protocol_name[] =
    "hodgepodge data handshake 1: IK, X25519, BLAKE2b, ChaCha20-Poly1305";

/* ---- the symmetric part: Noise's MixHash, MixKey, EncryptAndHash ---- */

static void hash_two(uint8_t out[32], const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    crypto_generichash_state s;
    crypto_generichash_init(&s, NULL, 0, 32);
    crypto_generichash_update(&s, a, a_bytes);
    crypto_generichash_update(&s, b, b_bytes);
    crypto_generichash_final(&s, out, 32);
}

static void mix_hash(struct handshake *h, const void *bytes, size_t size)
{
    hash_two(h->transcript, h->transcript, 32, bytes, size);
}

/* The chain goes on, and a key for the next proof falls off; BLAKE2b keyed with the chain is the
 * pseudorandom function. */
static void mix_key(struct handshake *h, const uint8_t secret[32])
{
    uint8_t both[64];
    crypto_generichash(both, sizeof both, secret, 32, h->chain, 32);
    memcpy(h->chain, both, 32);
    memcpy(h->key, both + 32, 32);
    sodium_memzero(both, sizeof both);
}

/* False for a peer's key that yields the same secret with every key (a point of low order). */
static bool mix_secret(struct handshake *h, const uint8_t secret[KEY_BYTES],
                       const uint8_t public[KEY_BYTES])
{
    uint8_t shared[32];
    bool good = crypto_scalarmult(shared, secret, public) == 0;
    if (good)
        mix_key(h, shared);
    sodium_memzero(shared, sizeof shared);
    return good;
}

/* Each key seals one text, so that the nonce can stay 0. */
static const uint8_t no_nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

static void text_seal(struct handshake *h, const uint8_t *plain, size_t size, uint8_t *out)
{
    unsigned long long n;
    crypto_aead_chacha20poly1305_ietf_encrypt(out, &n, plain, size, h->transcript, 32, NULL,
                                              no_nonce, h->key);
    mix_hash(h, out, size + TAG);
}

static bool text_unseal(struct handshake *h, const uint8_t *sealed, size_t size, uint8_t *out)
{
    unsigned long long n;
    bool good = crypto_aead_chacha20poly1305_ietf_decrypt(out, &n, NULL, sealed, size + TAG,
                                                          h->transcript, 32, no_nonce, h->key) == 0;
    if (good)
        mix_hash(h, sealed, size + TAG);
    return good;
}

/* What follows from everything that both ends saw; `use` keeps the keys apart. */
static void key_derive(const struct handshake *h, const char *use, uint8_t out[32])
{
    crypto_generichash_state s;
    crypto_generichash_init(&s, h->chain, 32, 32);
    crypto_generichash_update(&s, (const uint8_t *)use, strlen(use));
    crypto_generichash_update(&s, h->transcript, 32);
    crypto_generichash_final(&s, out, 32);
}

/* Shows that whoever sends FIRST knows the responder's key. */
static void message_mark(const uint8_t responder[KEY_BYTES], const uint8_t *message,
                         uint8_t out[TAG])
{
    static const char use[] = "hodgepodge data handshake 1: mark";
    uint8_t key[32];
    hash_two(key, use, sizeof use, responder, KEY_BYTES);
    crypto_generichash(out, TAG, message, AT_MARK, key, sizeof key);
}

/* ---- beginning ---- */

uint8_t handshake_ciphers(void)
{
    return crypto_aead_aes256gcm_is_available() ? HANDSHAKE_AES256_GCM | HANDSHAKE_CHACHA20_POLY1305
                                                : HANDSHAKE_CHACHA20_POLY1305;
}

static int handshake_begin(struct handshake *h, const struct key_pair *own,
                           const uint8_t responder[KEY_BYTES], enum handshake_purpose purpose,
                           uint8_t ciphers, struct err *e)
{
    uint8_t about = (uint8_t)purpose;
    memset(h, 0, sizeof *h);
    h->state = HANDSHAKE_FAILED;
    if (sodium_init() < 0)
        return err_set(e, HP_EUNSUPPORTED, "libsodium cannot start on this machine");
    int rc = key_decode(own->public_key, h->own_public, e);
    rc = rc < 0 ? rc : key_decode(own->secret_key, h->own_secret, e);
    if (rc < 0)
        return rc;
    h->purpose = purpose;
    h->ciphers = ciphers;
    hash_two(h->transcript, protocol_name, sizeof protocol_name, &about, 1);
    memcpy(h->chain, h->transcript, 32);
    mix_hash(h, responder ? responder : h->own_public, KEY_BYTES);
    randombytes_buf(h->ephemeral, sizeof h->ephemeral);
    return 0;
}

/* Forgets everything; the text says why. */
static int handshake_fail(struct handshake *h, struct err *e, int status, const char *why)
{
    handshake_wipe(h);
    return err_set(e, status, "%s", why);
}

static int first_write(struct handshake *h, struct err *e)
{
    uint8_t *m = h->message, head[AT_E] = {HANDSHAKE_VERSION, (uint8_t)h->purpose, h->ciphers, 0};
    memcpy(m, head, sizeof head);
    crypto_scalarmult_base(m + AT_E, h->ephemeral);
    mix_hash(h, m, AT_S);
    if (!mix_secret(h, h->ephemeral, h->peer))
        return handshake_fail(h, e, HP_EINVAL, "the peer's key is no key");
    text_seal(h, h->own_public, KEY_BYTES, m + AT_S);
    if (!mix_secret(h, h->own_secret, h->peer))
        return handshake_fail(h, e, HP_EINVAL, "the peer's key is no key");
    text_seal(h, NULL, 0, m + AT_PROOF);
    message_mark(h->peer, m, m + AT_MARK);
    h->message_bytes = HANDSHAKE_FIRST_BYTES;
    h->state = HANDSHAKE_WRITE;
    return 0;
}

int handshake_initiate(struct handshake *h, const struct key_pair *own,
                       const uint8_t responder[KEY_BYTES], enum handshake_purpose purpose,
                       uint8_t ciphers, struct err *e)
{
    int rc = handshake_begin(h, own, responder, purpose, ciphers, e);
    if (rc < 0)
        return rc;
    h->initiator = 1;
    memcpy(h->peer, responder, KEY_BYTES);
    return first_write(h, e);
}

int handshake_respond(struct handshake *h, const struct key_pair *own,
                      enum handshake_purpose purpose, uint8_t ciphers, struct err *e)
{
    int rc = handshake_begin(h, own, NULL, purpose, ciphers, e);
    if (rc == 0)
        h->state = HANDSHAKE_READ;
    return rc;
}

/* ---- the three messages, as they are read ---- */

static int version_check(struct handshake *h, const uint8_t *m, struct err *e)
{
    if (m[0] == HANDSHAKE_VERSION)
        return 0;
    handshake_wipe(h);
    err_set(e, HP_EPROTO,
            "the peer speaks version %u of the data channel's handshake, this program version %d",
            m[0], HANDSHAKE_VERSION);
    err_hint(e, "run the same version of Hodgepodge on both");
    return HP_EPROTO;
}

/* Checks what costs little first. */
static int first_read(struct handshake *h, const uint8_t *m, struct err *e)
{
    uint8_t expected[TAG];
    message_mark(h->own_public, m, expected);
    if (sodium_memcmp(expected, m + AT_MARK, TAG) != 0)
        return m[0] == HANDSHAKE_VERSION
                   ? handshake_fail(h, e, HP_EDENIED, "the peer does not know this endpoint's key")
                   : version_check(h, m, e);
    if (version_check(h, m, e) < 0)
        return HP_EPROTO;
    if (m[1] != h->purpose || m[3] != 0)
        return handshake_fail(h, e, HP_EPROTO,
                              "the peer speaks another transport of the data channel");
    h->cipher = m[2] & h->ciphers & HANDSHAKE_AES256_GCM ? HANDSHAKE_AES256_GCM
                                                         : HANDSHAKE_CHACHA20_POLY1305;
    if (!(m[2] & h->ciphers & h->cipher))
        return handshake_fail(h, e, HP_EPROTO,
                              "the peer and this program have no cipher in common");
    mix_hash(h, m, AT_S);
    memcpy(h->peer_ephemeral, m + AT_E, KEY_BYTES);
    if (!mix_secret(h, h->own_secret, h->peer_ephemeral) ||
        !text_unseal(h, m + AT_S, KEY_BYTES, h->peer))
        return handshake_fail(
            h, e, HP_EDENIED,
            "the peer's first message was not made for this endpoint, or was changed");
    memcpy(h->proof, m + AT_PROOF, TAG);
    h->state = HANDSHAKE_ASK;
    return 0;
}

static void second_write(struct handshake *h)
{
    uint8_t *m = h->message, head[AT_E] = {HANDSHAKE_VERSION, h->cipher, 0, 0};
    memcpy(m, head, sizeof head);
    crypto_scalarmult_base(m + AT_E, h->ephemeral);
    mix_hash(h, m, AT_PROOF_2);
}

int handshake_admit(struct handshake *h, struct err *e)
{
    assert(h->state == HANDSHAKE_ASK);
    uint8_t nothing[1];
    if (sodium_memcmp(h->peer, h->own_public, KEY_BYTES) == 0)
        return handshake_fail(h, e, HP_EDENIED, "the peer uses this process's own key");
    if (!mix_secret(h, h->own_secret, h->peer) || !text_unseal(h, h->proof, 0, nothing))
        return handshake_fail(h, e, HP_EDENIED, "the peer does not hold the key that it names");
    second_write(h);
    if (!mix_secret(h, h->ephemeral, h->peer_ephemeral) || !mix_secret(h, h->ephemeral, h->peer))
        return handshake_fail(h, e, HP_EDENIED, "the peer's key is no key");
    text_seal(h, NULL, 0, h->message + AT_PROOF_2);
    h->message_bytes = HANDSHAKE_SECOND_BYTES;
    h->state = HANDSHAKE_WRITE;
    h->step = 1;
    return 0;
}

static int second_read(struct handshake *h, const uint8_t *m, struct err *e)
{
    uint8_t nothing[1];
    if (version_check(h, m, e) < 0)
        return HP_EPROTO;
    memcpy(h->peer_ephemeral, m + AT_E, KEY_BYTES);
    mix_hash(h, m, AT_PROOF_2);
    if (!mix_secret(h, h->ephemeral, h->peer_ephemeral) ||
        !mix_secret(h, h->own_secret, h->peer_ephemeral) ||
        !text_unseal(h, m + AT_PROOF_2, 0, nothing))
        return handshake_fail(h, e, HP_EDENIED,
                              "the peer does not hold the key that its address names");
    if (!(m[1] & h->ciphers) ||
        (m[1] != HANDSHAKE_AES256_GCM && m[1] != HANDSHAKE_CHACHA20_POLY1305))
        return handshake_fail(h, e, HP_EPROTO, "the peer chose a cipher that was not offered");
    h->cipher = m[1];
    key_derive(h, "initiator has seen all", h->message);
    h->message_bytes = HANDSHAKE_THIRD_BYTES;
    h->state = HANDSHAKE_WRITE;
    return 0;
}

static int third_read(struct handshake *h, const uint8_t *m, struct err *e)
{
    uint8_t expected[HANDSHAKE_THIRD_BYTES];
    key_derive(h, "initiator has seen all", expected);
    if (sodium_memcmp(expected, m, sizeof expected) != 0)
        return handshake_fail(h, e, HP_EDENIED, "the peer did not confirm its key");
    h->state = HANDSHAKE_DONE;
    return 0;
}

/* ---- the face ---- */

size_t handshake_wants(const struct handshake *h)
{
    if (h->state != HANDSHAKE_READ)
        return 0;
    return h->initiator   ? HANDSHAKE_SECOND_BYTES
           : h->step == 0 ? HANDSHAKE_FIRST_BYTES
                          : HANDSHAKE_THIRD_BYTES;
}

int handshake_read(struct handshake *h, const uint8_t *message, size_t size, struct err *e)
{
    size_t wanted = handshake_wants(h);
    if (wanted == 0 || size != wanted) {
        handshake_wipe(h);
        return err_set(e, HP_EPROTO, "a handshake's message of %zu bytes where %zu were due", size,
                       wanted);
    }
    if (h->initiator)
        return second_read(h, message, e);
    return h->step == 0 ? first_read(h, message, e) : third_read(h, message, e);
}

const uint8_t *handshake_output(const struct handshake *h, size_t *size)
{
    *size = h->state == HANDSHAKE_WRITE ? h->message_bytes : 0;
    return h->message;
}

void handshake_sent(struct handshake *h)
{
    assert(h->state == HANDSHAKE_WRITE);
    bool last = h->message_bytes == HANDSHAKE_THIRD_BYTES;
    h->state = last ? HANDSHAKE_DONE : HANDSHAKE_READ;
}

const uint8_t *handshake_peer(const struct handshake *h)
{
    return h->peer;
}

void handshake_result(const struct handshake *h, struct handshake_result *out)
{
    assert(h->state == HANDSHAKE_DONE);
    memcpy(out->peer, h->peer, KEY_BYTES);
    key_derive(h, h->initiator ? "initiator to responder" : "responder to initiator",
               out->send_key);
    key_derive(h, h->initiator ? "responder to initiator" : "initiator to responder",
               out->receive_key);
    out->cipher = h->cipher;
}

void handshake_wipe(struct handshake *h)
{
    sodium_memzero(h, sizeof *h);
    h->state = HANDSHAKE_FAILED;
}
