/* The address of a data endpoint on a network: text without NUL, "tcp:10.0.0.5:7071:<64 hex
 * digits>" or "ucx:[fd00::5]:7071:<64 hex digits>": the kind, where it listens, and the public key
 * that it must prove to have. Layers above hand it around as opaque bytes. */
#ifndef HP_TRANSPORT_DATA_ADDRESS_H
#define HP_TRANSPORT_DATA_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "transport/keys.h"

enum data_kind { DATA_KIND_TCP, DATA_KIND_UCX };

/* An address within a process is at most so long, and shorter than any of a network. */
enum { DATA_INPROC_ADDRESS_BYTES = 16 };

enum {
    DATA_HOST_TEXT = 46,
    DATA_ADDRESS_TEXT = 4 + DATA_HOST_TEXT + 2 + 6 + 1 + 2 * KEY_BYTES + 1
};

struct data_address {
    enum data_kind kind;
    char host[DATA_HOST_TEXT]; /* numeric, IPv4 or IPv6 (no brackets) */
    uint16_t port;             /* not 0 */
    uint8_t key[KEY_BYTES];
};

/* HP_EINVAL, with a text that says what is wrong. */
int data_address_parse(const uint8_t *bytes, size_t size, struct data_address *out, struct err *e);
/* Writes the text (NUL-terminated) and returns its length without the NUL. */
size_t data_address_print(const struct data_address *a, char out[DATA_ADDRESS_TEXT]);

#endif
