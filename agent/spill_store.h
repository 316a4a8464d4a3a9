/* The thread that keeps what stages spill (spill_shelf.h): executors give it images and are given
 * them back, and the core hears what there is. All but opening and closing: any thread. */
#ifndef HP_AGENT_SPILL_STORE_H
#define HP_AGENT_SPILL_STORE_H

#include "agent/spill_shelf.h"
#include "transport/message.h"

struct spill_store;
struct executor;

/* What the store has of a stage's chains, or what changed. What it points at holds during the call.
 */
struct spill_report {
    uint64_t slot;
    bool anew;
    const struct message_spill *chains;
    size_t n_chains;
    double memory_bytes_per_s, disk_bytes_per_s;
    uint64_t memory_bytes, disk_bytes, dropped;
};

/* A sequence that begins with what was spilled. */
struct spill_want {
    uint64_t slot, ticket, sequence;
    struct executor *executor; /* whose it is; the store only hands it on */
    struct digest identity, page;
    uint32_t n_pages, kept; /* of them it has so many, the first */
};

struct spill_store_config {
    const char *folder;
    uint64_t memory_bytes, disk_bytes; /* limits; both 0: there is no store */
    uint64_t transit_bytes; /* beyond that of memory: on their way to files, or into stages */
    /* On the store's thread. */
    void (*told)(void *ctx, const struct spill_report *r);
    /* `found` is taken; NULL: why not. */
    void (*found)(void *ctx, const struct spill_want *w, struct spill_found *found,
                  const struct err *why);
    void *ctx;
};

/* HP_EIO and its likes, HP_ENOMEM. */
int spill_store_open(const struct spill_store_config *c, struct spill_store **out, struct err *e);
/* Nobody is told of anything, nor given back anything, from now on. NULL is nothing. */
void spill_store_stop(struct spill_store *s);
/* What is in memory goes to files first, for some 20 s at most. NULL is nothing. */
void spill_store_close(struct spill_store **s);

/* Room for a chain's keys and values, counted from now on. NULL: what waits for its file takes more
 * than there is room for, or there is no memory. */
struct spill_image *spill_store_image(struct spill_store *s, const struct spill_head *h,
                                      uint8_t **keys);
/* Takes the image, of a whole chain. */
void spill_store_put(struct spill_store *s, struct spill_image *i);
/* Answered with `found`. */
void spill_store_get(struct spill_store *s, const struct spill_want *w);
/* All that there is of this stage's chains is told, and what changes from now on, until it goes. */
void spill_store_tell(struct spill_store *s, uint64_t slot, const struct digest *identity);
void spill_store_forget(struct spill_store *s, uint64_t slot);
/* Tells that so many bytes were copied into a stage in that time. */
void spill_store_measured(struct spill_store *s, uint64_t bytes, double seconds);

#endif
