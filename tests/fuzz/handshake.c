/* The handshake of the data channel: any bytes as any of its messages, behind the marks and proofs
 * too. The first byte chooses what stands before. Keys and chance are the same in every run, so
 * that seeds (make_seeds.py) pass the proofs. */
#include "transport/handshake.h"

#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Chance that is none: a counter, hashed. */
static uint64_t drawn;

static const char *chance_name(void)
{
    return "counter";
}
static uint32_t chance_word(void)
{
    return (uint32_t)(++drawn * 2654435761u);
}
static void chance_fill(void *out, const size_t size)
{
    uint8_t *bytes = out;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(chance_word() >> 13);
}

static struct randombytes_implementation chance = {chance_name, chance_word, NULL,
                                                   NULL,        chance_fill, NULL};
static struct key_pair keys[2];
static uint8_t server_key[KEY_BYTES];

static void keys_make(struct key_pair *k, uint8_t seed)
{
    uint8_t secret[KEY_BYTES], public[KEY_BYTES];
    memset(secret, seed, sizeof secret);
    crypto_scalarmult_base(public, secret);
    key_encode(public, k->public_key);
    key_encode(secret, k->secret_key);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    randombytes_set_implementation(&chance);
    if (sodium_init() < 0)
        abort();
    keys_make(&keys[0], 7);
    keys_make(&keys[1], 8);
    return key_decode(keys[1].public_key, server_key, NULL);
}

/* The part of the input that comes next: laid over the message that was due (exclusive or, so that
 * zeros are a good message), or alone. */
struct input {
    const uint8_t *data;
    size_t size;
    bool over;
};

/* Gives `to` what `from` wants to send, changed by the input. True when it was taken. */
static bool feed(struct handshake *from, struct handshake *to, struct input *in)
{
    uint8_t message[HANDSHAKE_MAX_BYTES] = {0};
    struct err e = {0};
    size_t due, n = in->size < sizeof message ? in->size : sizeof message;
    const uint8_t *good = handshake_output(from, &due);
    if (in->over) {
        n = n < due ? n : due;
        memcpy(message, good, due);
    }
    for (size_t i = 0; i < n; i++)
        message[i] ^= in->data[i];
    in->data += n;
    in->size -= n;
    handshake_sent(from);
    int rc = handshake_read(to, message, in->over ? due : n, &e);
    if (rc < 0 && (e.text[0] == '\0' || handshake_state(to) != HANDSHAKE_FAILED))
        abort(); /* every refusal says why, and is final */
    return rc == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t ciphers = HANDSHAKE_AES256_GCM | HANDSHAKE_CHACHA20_POLY1305;
    struct handshake client, server;
    drawn = 0;
    if (size == 0)
        return 0;
    struct input in = {data + 1, size - 1, data[0] & 1};
    handshake_initiate(&client, &keys[0], server_key, HANDSHAKE_TCP, ciphers, NULL);
    handshake_respond(&server, &keys[1], HANDSHAKE_TCP, ciphers, NULL);
    if (!feed(&client, &server, &in) || handshake_admit(&server, NULL) < 0)
        return 0;
    if (!feed(&server, &client, &in) || !feed(&client, &server, &in))
        return 0;
    struct handshake_result c, s;
    handshake_result(&client, &c);
    handshake_result(&server, &s);
    if (memcmp(c.send_key, s.receive_key, 32) != 0 || memcmp(c.receive_key, s.send_key, 32) != 0)
        abort(); /* both believe that all is well, and it is not */
    return 0;
}
