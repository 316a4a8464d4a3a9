/* The bytes of a spill file in memory, held by whoever uses them, and counted. */
#ifndef HP_AGENT_SPILL_IMAGE_H
#define HP_AGENT_SPILL_IMAGE_H

#include <stdatomic.h>

#include "agent/engine/spill_file.h"

/* The digest at the end of the bytes is filled in when they are written to a file. */
struct spill_image {
    atomic_uint holders;
    atomic_ullong *counted; /* what of all images takes memory */
    uint64_t bytes;         /* of that, this one's */
    struct buffer b;
};

/* With one holder, and room for keys and values (*keys). NULL: no memory. */
struct spill_image *spill_image_make(const struct spill_head *h, atomic_ullong *counted,
                                     uint8_t **keys);
/* Takes the bytes. NULL: no memory. */
struct spill_image *spill_image_of(struct buffer b, atomic_ullong *counted);
/* What a file of this head has of an image that has all of it. NULL: no memory. */
struct spill_image *spill_image_cut(const struct spill_image *whole, const struct spill_head *h);
struct spill_image *spill_image_hold(struct spill_image *i);
/* NULL is nothing. */
void spill_image_release(struct spill_image *i);

/* All that a sequence begins with: the chain's own file first, then that of the pages before, and
 * so on (spill_wanted). */
struct spill_found {
    size_t n;
    struct spill_image *images[]; /* [n], held */
};
/* NULL is nothing. */
void spill_found_release(struct spill_found *f);

#endif
