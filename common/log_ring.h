/* The last lines of a process' log, for `hpctl logs`. Any thread. */
#ifndef HP_COMMON_LOG_RING_H
#define HP_COMMON_LOG_RING_H

#include <stddef.h>

#include "common/bytes.h"

enum { LOG_RING_LINES = 1000, LOG_RING_LINE_BYTES = 400 };

struct log_ring;
struct log_ring *log_ring_create(void); /* NULL: no memory */
void log_ring_destroy(struct log_ring **r);
/* A sink for log_set_sink (common/log.h). Longer lines are cut. */
void log_ring_add(void *ring, const char *line);
/* Appends the last `lines` lines. */
void log_ring_read(void *ring, size_t lines, struct buffer *out);

#endif
