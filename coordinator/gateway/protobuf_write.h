/* Protocol Buffers' wire format, written behind what is in a buffer: field after field, values that
 * are the default are not left out. A message inside a message is written into a buffer of its own
 * first. Want of memory leaves the buffer failed. */
#ifndef HP_COORDINATOR_GATEWAY_PROTOBUF_WRITE_H
#define HP_COORDINATOR_GATEWAY_PROTOBUF_WRITE_H

#include <stdint.h>

#include "common/bytes.h"

void pb_put_number(struct buffer *out, uint32_t field, uint64_t value);
void pb_put_bytes(struct buffer *out, uint32_t field, const void *data, size_t n);
void pb_put_text(struct buffer *out, uint32_t field, const char *text);
/* A list of whole numbers, packed. */
void pb_put_numbers(struct buffer *out, uint32_t field, const int64_t *values, int n);
/* `message` is freed. */
void pb_put_message(struct buffer *out, uint32_t field, struct buffer *message);

#endif
