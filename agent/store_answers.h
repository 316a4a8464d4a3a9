/* What peers asked the store for and have not got yet: a bounded queue, answered when there is
 * room. Nothing here waits: where a link has enough under way, or no buffer is free, the next step
 * tries again. Who is not answered because the queue is full asks again (fetch.h). One thread uses
 * it. */
#ifndef HP_AGENT_STORE_ANSWERS_H
#define HP_AGENT_STORE_ANSWERS_H

#include "agent/store_links.h"
#include "agent/weight_store.h"

enum {
    STORE_MAX_WANTS = 4096,     /* of all peers */
    STORE_MAX_LINK_WANTS = 256, /* of one */
    STORE_LINK_UNDER_WAY = 8,   /* chunks on their way to one */
};

struct store_want {
    struct frame_header header; /* of the frame that asked */
    uint64_t link;              /* store_link.number */
    struct digest digest;
};

struct store_answers {
    struct store_want *ring; /* [STORE_MAX_WANTS] */
    size_t first, count;
    uint64_t dropped;
};

int store_answers_init(struct store_answers *a, struct err *e);
void store_answers_fini(struct store_answers *a);
/* Takes a FRAME_CHUNK_WANT of a peer. What is malformed is dropped, and so is what there is no room
 * for. */
void store_answers_want(struct store_answers *a, struct store_links *links,
                        const struct frame_header *h, const uint8_t *bytes, size_t size);
/* Answers one; false when nothing is asked, or nothing can be answered now. */
bool store_answers_step(struct store_answers *a, struct store_links *links, struct weight_store *s);

#endif
