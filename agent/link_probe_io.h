/* Probes of the data path between this agent and others: sends what link_probe.h says, echoes what
 * others send. One probe at a time in each role: a new one takes the place of what was before. */
#ifndef HP_AGENT_LINK_PROBE_IO_H
#define HP_AGENT_LINK_PROBE_IO_H

#include "transport/data.h"

struct link_probe_io;

/* status 0, or HP_ELINK, HP_ETIMEOUT with `why`. Called without locks held, on the endpoint's
 * thread or the caller's of link_probe_io_tick. */
typedef void (*link_probe_io_done_fn)(void *ctx, uint64_t id, int status, const struct err *why,
                                      double latency_s, double bandwidth_bytes_per_s);

/* `data` outlives it, and its callbacks end before it does. HP_ENOMEM. */
int link_probe_io_create(struct data_endpoint *data, link_probe_io_done_fn done, void *ctx,
                         struct link_probe_io **out, struct err *e);
void link_probe_io_destroy(struct link_probe_io **p);

/* ---- the caller's thread: one */

/* Frames of this session are welcome, and go back over a link to `address`. */
int link_probe_io_echo(struct link_probe_io *p, uint64_t session, const uint8_t *address,
                       size_t size, struct err *e);
/* Begins to measure; `done` says what came of it. */
int link_probe_io_measure(struct link_probe_io *p, uint64_t id, uint64_t session,
                          const uint8_t *address, size_t size, struct err *e);
void link_probe_io_end(struct link_probe_io *p, uint64_t session);
/* Gives up what took too long. */
void link_probe_io_tick(struct link_probe_io *p);

/* ---- the endpoint's thread */

/* FRAME_PROBE and FRAME_PROBE_ECHO; takes `payload`. */
void link_probe_io_frame(struct link_probe_io *p, const struct frame_header *h,
                         struct data_buffer *payload);
void link_probe_io_link_down(struct link_probe_io *p, struct data_link *link);

#endif
