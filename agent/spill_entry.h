/* One file's worth of a chain of tokens that was spilled, and what chains have to do with each
 * other: pages with which several begin are one entry's, the others name it as their parent. */
#ifndef HP_AGENT_SPILL_ENTRY_H
#define HP_AGENT_SPILL_ENTRY_H

#include "agent/spill_image.h"

struct spill_entry {
    struct spill_head head;     /* of the file; its pages are the entry's own */
    struct spill_entry *parent; /* has the first head.first pages; NULL: there are none before */
    uint32_t n_children;        /* entries whose parent this is */
    uint32_t least;             /* with so many of its pages a sequence may begin, and with more */
    uint64_t bytes;
    struct spill_image *image; /* NULL: it is in its file alone */
    bool filed;                /* its file is there */
    uint64_t used;             /* when it was wanted last; later than of its children */
};

/* The image is the caller's still. NULL: no memory. */
struct spill_entry *spill_entry_make(const struct spill_head *h);
/* NULL is nothing. */
void spill_entry_free(struct spill_entry *x);

/* Makes `parent` that of an entry that has none: false where not all is there then that a token
 * behind its pages sees, and nothing has changed. NULL is of one that has it all. */
bool spill_entry_join(struct spill_entry *x, struct spill_entry *parent);

/* Whether a sequence may begin with so many pages, the last of which has this name. */
bool spill_entry_covers(const struct spill_entry *x, const struct digest *identity,
                        uint32_t n_pages, const struct digest *page);
/* The head of what is left of a whole chain where its first pages are that entry's. */
struct spill_head spill_entry_rest(const struct spill_entry *x, const struct spill_head *whole);

#endif
