/* Seals of the records of one direction of a data_tcp connection: AES-256-GCM or ChaCha20-Poly1305
 * (libcrypto: twice as fast as libsodium's on the CPUs measured). The nonce is the record's number,
 * so a record that is lost, repeated or moved does not open. After every 2^20 records (64 GiB at
 * most) both ends replace the key by its hash. */
#ifndef HP_TRANSPORT_DATA_TCP_SEAL_H
#define HP_TRANSPORT_DATA_TCP_SEAL_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "transport/handshake.h"

enum { SEAL_BYTES = 16, SEAL_RECORDS_PER_KEY = 1 << 20 };

struct tcp_seal {
    EVP_CIPHER_CTX *evp;
    uint8_t key[32];
    uint64_t number; /* of the next record */
    bool sealing;
};

/* HP_ENOMEM, HP_EUNSUPPORTED. */
int tcp_seal_init(struct tcp_seal *s, enum handshake_cipher cipher, const uint8_t key[32],
                  bool sealing, struct err *e);
void tcp_seal_fini(struct tcp_seal *s);
/* Seals `first` and then `second` (one text) together with the clear `head`; writes first_bytes +
 * second_bytes + SEAL_BYTES to `out`. False: libcrypto failed. */
bool tcp_seal_close(struct tcp_seal *s, const uint8_t *head, size_t head_bytes,
                    const uint8_t *first, size_t first_bytes, const uint8_t *second,
                    size_t second_bytes, uint8_t *out);
/* Opens `size` bytes and the seal that follows them; `out` may be `sealed`. False: not what was
 * sealed; `out` then holds nothing of worth. */
bool tcp_seal_open(struct tcp_seal *s, const uint8_t *head, size_t head_bytes,
                   const uint8_t *sealed, size_t size, uint8_t *out);

#endif
