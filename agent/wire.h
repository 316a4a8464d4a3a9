/* Frames that are on their way: a thread of its own posts each when it is due, so that a link seems
 * as slow as the one that it stands for (backend/paced.h says when). */
#ifndef HP_AGENT_WIRE_H
#define HP_AGENT_WIRE_H

#include "transport/data.h"

struct wire;

/* `data` outlives the wire. HP_ENOMEM. */
int wire_create(struct data_endpoint *data, struct wire **out, struct err *e);
/* Frames that are still on their way are dropped. */
void wire_destroy(struct wire **w);

/* Posts at `due_ns` (CLOCK_MONOTONIC). Takes the payload (may be NULL) whatever happens. Those of
 * one link must be due in the order of the calls. `done` (may be NULL) as for data_post; what is
 * dropped ends with HP_ELINK. It may be called under the wire's lock: it must not call the wire. */
void wire_post(struct wire *w, struct data_link *link, const struct frame_header *h,
               struct data_buffer *payload, uint64_t due_ns, data_done_fn done, void *done_ctx);
/* The link is about to be disconnected: what is on its way over it is dropped. */
void wire_forget(struct wire *w, struct data_link *link);

#endif
