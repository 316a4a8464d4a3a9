/* JSON text appended to a buffer, for what is written so often that no tree is built, and for texts
 * that may hold anything. */
#ifndef HP_COORDINATOR_GATEWAY_JSON_WRITE_H
#define HP_COORDINATOR_GATEWAY_JSON_WRITE_H

#include "common/bytes.h"

/* A string with its quotes; every byte that is not UTF-8 becomes U+FFFD, so that the result is
 * always valid. */
void json_write_string(struct buffer *out, const char *text, size_t n);
/* Of a NUL-terminated text; NULL becomes null. */
void json_write_text(struct buffer *out, const char *text);

#endif
