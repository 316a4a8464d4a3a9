/* Where a reader of a stream is, as the `id:` of an event: for each choice how many of its tokens
 * it has, and an "f" behind it once it has its end, too: "12", or of three choices "12.40f.0". No
 * I/O. */
#ifndef HP_COORDINATOR_GATEWAY_EVENT_IDS_H
#define HP_COORDINATOR_GATEWAY_EVENT_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bytes.h"

enum { EVENT_ID_MOST_CHOICES = 64, EVENT_ID_BYTES = EVENT_ID_MOST_CHOICES * 12 };

struct event_id {
    uint32_t n;
    uint32_t tokens[EVENT_ID_MOST_CHOICES];
    bool ended[EVENT_ID_MOST_CHOICES];
};

/* False: it is none of `n` choices. */
bool event_id_read(const char *text, uint32_t n, struct event_id *out);
/* Writes it before the last of the events that begin at `from`, so that whoever has it has all of
 * them. Where there is no whole event nothing is written. */
void event_id_write(struct buffer *events, size_t from, const struct event_id *id);

#endif
