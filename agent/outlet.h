/* The way out of a stage: one link, posted on by the loop and by the executor, and kept until the
 * last of those who hold it lets go. A paced agent's frames leave it as late as the link that it
 * stands for would have brought them. */
#ifndef HP_AGENT_OUTLET_H
#define HP_AGENT_OUTLET_H

#include "agent/backend/paced.h"
#include "agent/delay_line.h"
#include "transport/data.h"

struct outlet;

struct outlet_config {
    struct data_endpoint *data; /* outlives the outlet */
    uint64_t slot;
    /* A paced agent's; else NULL. */
    struct delay_line *line;
    const struct paced *paced;
    const char *device;      /* what stands at the other end, "" where nothing does */
    bool tokens;             /* it carries tokens to the first stage; else what `hop` says */
    struct profile_part hop; /* of which layer of the profile that is, and how many times */
    double stands_for;
    /* A frame has left (status 0), or will not: then its payload is given back all the same.
     * `reserved`: it was posted as such. On any thread; must not block. */
    void (*left)(void *ctx, uint64_t slot, uint64_t link, int status, bool reserved);
    void *ctx;
};

/* Connects; held once. HP_ELINK, HP_EINVAL, HP_ENOMEM. */
int outlet_open(const struct outlet_config *c, const uint8_t *address, size_t size,
                struct outlet **out, struct err *e);
struct outlet *outlet_hold(struct outlet *o);
/* The last one disconnects. NULL is nothing. */
void outlet_release(struct outlet *o);
/* What a paced link has on its way is dropped: nobody waits for it any more. */
void outlet_forget(struct outlet *o);

/* Whether frames may leave from such memory. A paced link's do not. */
bool outlet_takes(const struct outlet *o, enum memory_kind kind);
/* data_link_number of the link behind it. */
uint64_t outlet_number(const struct outlet *o);
/* Takes the payload (may be NULL). `left` is called once. Any thread that holds it. */
void outlet_post(struct outlet *o, const struct frame_header *h, struct data_buffer *payload,
                 bool reserved);

#endif
