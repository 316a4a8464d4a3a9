/* Keys and values of chains of tokens that stages have given up, in memory and in files of one
 * folder, each up to a limit: what was wanted longest ago goes from memory to a file, and from
 * there away. Pages with which several chains begin are there once. Files hold what clients wrote,
 * in their way, and are the owner's alone (0600); those of an earlier run are found again. One
 * thread at a time. */
#ifndef HP_AGENT_SPILL_SHELF_H
#define HP_AGENT_SPILL_SHELF_H

#include "agent/spill_entry.h"

struct spill_shelf {
    char folder[1100];
    uint64_t memory_limit, disk_limit; /* bytes */
    uint64_t memory_bytes, disk_bytes;
    uint64_t save_most_ns;        /* that closing takes for what is in memory, but for one file */
    struct spill_entry **entries; /* [n_entries] */
    size_t n_entries, room_entries;
    uint64_t clock, dropped;
    double disk_bytes_per_s; /* as files were read; 0: not known */
    atomic_ullong *counted;
    /* An entry came, went (`gone`) or changed its place. */
    void (*changed)(void *ctx, const struct spill_entry *x, bool disk, bool gone);
    void *ctx;
};

/* Finds what is in the folder; the rest of *s is the caller's and stays. Files that are none of
 * this program's are removed, and those that begin with pages which are not there any more.
 * HP_EIO and its likes where the folder cannot be made or read. */
int spill_shelf_open(struct spill_shelf *s, struct err *e);
/* Frees all; with `save` what is in memory goes to files, what was wanted last first, as far as the
 * limit and the time allow. */
void spill_shelf_close(struct spill_shelf *s, bool save);

/* Takes the image of a whole chain, of which it keeps what it has not. What is there already, it
 * tells of again: as gone, and as there. */
void spill_shelf_put(struct spill_shelf *s, struct spill_image *i);
/* All that a sequence begins with whose page `n_pages` - 1 has this name, but for its first `kept`
 * pages, read and checked; the caller's. NULL: there is none (HP_ENOENT), or no longer: a file that
 * is cut short or changed goes, with what needs it (HP_EPARSE); or there is no memory for it
 * (HP_ENOMEM), and it stays. */
struct spill_found *spill_shelf_get(struct spill_shelf *s, const struct digest *identity,
                                    uint32_t n_pages, const struct digest *page, uint32_t kept,
                                    struct err *e);

#endif
