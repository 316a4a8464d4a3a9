/* The proof that opens every connection of the data channel: both ends prove that they hold the
 * secret of their X25519 key, and agree on keys that are forgotten with the connection. A pure
 * state machine: bytes in, bytes out, no I/O, no clock, no memory of its own.
 *
 * The pattern is Noise's IK (noiseprotocol.org, revision 34, 7.5) with BLAKE2b and
 * ChaCha20-Poly1305, and a third message by which the initiator confirms the keys, so that a
 * recorded first message opens nothing:
 *
 * FIRST, initiator to responder, 116 bytes: version, purpose, ciphers, e, [s], proof of s, mark.
 * SECOND, responder to initiator, 52 bytes: version, cipher, e, proof of both keys.
 * THIRD, initiator to responder, 32 bytes: proof that the initiator saw SECOND.
 *
 * The initiator knows the responder's key beforehand (data_address.h). `mark` shows that it does,
 * at the price of one hash: strangers cost no more. Every message has one size; a reader never
 * reads more. All bytes before a message, and the purpose, are part of what it proves.
 *
 * The caller owns deadlines and counts. One thread at a time. */
#ifndef HP_TRANSPORT_HANDSHAKE_H
#define HP_TRANSPORT_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "transport/keys.h"

enum {
    HANDSHAKE_VERSION = 1,
    HANDSHAKE_FIRST_BYTES = 116,
    HANDSHAKE_SECOND_BYTES = 52,
    HANDSHAKE_THIRD_BYTES = 32,
    HANDSHAKE_MAX_BYTES = HANDSHAKE_FIRST_BYTES
};

/* What the connection is for. Both ends must mean the same. */
enum handshake_purpose { HANDSHAKE_TCP = 1, HANDSHAKE_UCX = 2 };

/* Of the records that follow: a set of these is offered, one is chosen (AES where both have it). */
enum handshake_cipher { HANDSHAKE_AES256_GCM = 1, HANDSHAKE_CHACHA20_POLY1305 = 2 };

enum handshake_state {
    HANDSHAKE_WRITE, /* send handshake_output, then call handshake_sent */
    HANDSHAKE_READ,  /* read handshake_wants bytes, then call handshake_read */
    HANDSHAKE_ASK,  /* responder: is handshake_peer welcome? Then call handshake_admit. The peer has
                       not proven that this is its key. */
    HANDSHAKE_DONE, /* handshake_result */
    HANDSHAKE_FAILED
};

struct handshake_result {
    uint8_t peer[KEY_BYTES]; /* proven */
    uint8_t send_key[32], receive_key[32];
    enum handshake_cipher cipher;
};

/* Plain data: may be copied and forgotten; handshake_wipe removes its secrets. */
struct handshake {
    enum handshake_state state;
    enum handshake_purpose purpose;
    uint8_t initiator, step; /* messages that are behind it */
    uint8_t ciphers, cipher;
    uint8_t own_public[KEY_BYTES], own_secret[KEY_BYTES], peer[KEY_BYTES];
    uint8_t ephemeral[KEY_BYTES], peer_ephemeral[KEY_BYTES];
    uint8_t chain[32], key[32], transcript[32];
    uint8_t proof[16]; /* responder: of FIRST, until admitted */
    uint8_t message[HANDSHAKE_MAX_BYTES];
    size_t message_bytes;
};

/* The ciphers that this machine runs fast enough: both, or ChaCha20 alone where the CPU lacks AES.
 */
uint8_t handshake_ciphers(void);

/* `own`: keys of this process. `ciphers`: of enum handshake_cipher, at least one (the UCX guard,
 * which encrypts nothing, offers any). HP_EINVAL: a key is none. */
int handshake_initiate(struct handshake *h, const struct key_pair *own,
                       const uint8_t responder[KEY_BYTES], enum handshake_purpose purpose,
                       uint8_t ciphers, struct err *e);
int handshake_respond(struct handshake *h, const struct key_pair *own,
                      enum handshake_purpose purpose, uint8_t ciphers, struct err *e);

static inline enum handshake_state handshake_state(const struct handshake *h)
{
    return h->state;
}
/* HANDSHAKE_WRITE: what to send. */
const uint8_t *handshake_output(const struct handshake *h, size_t *size);
void handshake_sent(struct handshake *h);
/* HANDSHAKE_READ: size of the message that comes next; 0 in other states. */
size_t handshake_wants(const struct handshake *h);
/* HP_EPROTO: another version, purpose or size, or no common cipher. HP_EDENIED: not proven. After
 * an error the state is HANDSHAKE_FAILED. */
int handshake_read(struct handshake *h, const uint8_t *message, size_t size, struct err *e);
/* HANDSHAKE_ASK, and while HANDSHAKE_WRITE, READ or DONE follow it: the other's key. */
const uint8_t *handshake_peer(const struct handshake *h);
/* The peer's key is welcome: checks its proof, and answers. HP_EDENIED: not proven. */
int handshake_admit(struct handshake *h, struct err *e);
/* HANDSHAKE_DONE. */
void handshake_result(const struct handshake *h, struct handshake_result *out);
void handshake_wipe(struct handshake *h);

#endif
