/* Frames that are on their way: a thread of its own posts each when it is due, so that a link seems
 * as slow as the one that it stands for (backend/paced.h says when). */
#ifndef HP_AGENT_DELAY_LINE_H
#define HP_AGENT_DELAY_LINE_H

#include "transport/data.h"

struct delay_line;

/* `data` outlives it. HP_ENOMEM. */
int delay_line_create(struct data_endpoint *data, struct delay_line **out, struct err *e);
/* Frames that are still on their way are dropped. */
void delay_line_destroy(struct delay_line **w);

/* Posts at `due_ns` (CLOCK_MONOTONIC). Takes the payload (may be NULL) whatever happens. Those of
 * one link must be due in the order of the calls. `done` (may be NULL) as for data_post; what is
 * dropped ends with HP_ELINK. It may be called under the line's lock: it must not call the line. */
void delay_line_post(struct delay_line *w, struct data_link *link, const struct frame_header *h,
                     struct data_buffer *payload, uint64_t due_ns, data_done_fn done,
                     void *done_ctx);
/* The link is about to be disconnected: what is on its way over it is dropped. */
void delay_line_forget(struct delay_line *w, struct data_link *link);

#endif
