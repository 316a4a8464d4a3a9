/* The store's links to peers, by address: made when first asked for, at most STORE_MAX_LINKS (the
 * one longest unused goes), and how many chunks are on their way over each, so that a peer that
 * reads slowly holds up only itself. One thread uses it. */
#ifndef HP_AGENT_STORE_LINKS_H
#define HP_AGENT_STORE_LINKS_H

#include "transport/data.h"

enum { STORE_MAX_LINKS = 256 };

struct store_flow; /* chunks under way over a link; outlives the link while any is */

struct store_link {
    uint8_t *address;
    size_t size;
    struct data_link *link;
    uint64_t number; /* data_link_number */
    bool down;
    uint64_t used;
    struct store_flow *flow;
};

struct store_links {
    struct data_endpoint *data; /* set by the owner */
    struct store_link items[STORE_MAX_LINKS];
    size_t count;
    uint64_t clock; /* of uses */
};

/* The link to an address. HP_ENOMEM: try again later; all else: there is no such peer. *out is
 * valid until the next call. */
int store_links_get(struct store_links *l, const uint8_t *address, size_t size,
                    struct store_link **out, struct err *e);
/* By its number; NULL when it is gone. */
struct store_link *store_links_find(struct store_links *l, uint64_t number);
void store_links_close(struct store_links *l);

/* Sends a frame and counts it until it has left. Takes the buffer. */
void store_link_post(struct store_link *l, const struct frame_header *h, struct data_buffer *b);
int store_link_under_way(const struct store_link *l);

#endif
