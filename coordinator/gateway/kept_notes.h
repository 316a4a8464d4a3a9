/* What the next run of the coordinator has to know of a kept answer, as bytes. */
#ifndef HP_COORDINATOR_GATEWAY_KEPT_NOTES_H
#define HP_COORDINATOR_GATEWAY_KEPT_NOTES_H

#include "coordinator/gateway/kept_streams.h"

void kept_note_write(const struct kept_stream *s, struct buffer *out);
/* Its head, body and stops, which are the caller's. False: it cannot be read, or there is no
 * memory. */
bool kept_note_read(struct pack_span note, struct kept_stream *out);

#endif
