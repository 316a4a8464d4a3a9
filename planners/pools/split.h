/* Groups the layers of a fine profile into blocks for planning (PPipe, USENIX ATC 2025,
 * section 5.2, which groups greedily): the cuts that move the fewest bytes, among those whose
 * blocks all take about the same time on one kind of device. A dynamic programme over layers and
 * blocks. */
#ifndef HP_PLANNERS_POOLS_SPLIT_H
#define HP_PLANNERS_POOLS_SPLIT_H

#include <jansson.h>

#include "common/profile.h"
#include "common/status.h"

enum { SPLIT_MAX_LAYERS = 4096, SPLIT_MAX_BLOCKS = 64 };
#define SPLIT_WINDOW 0.5 /* where nobody says one */

struct split {
    int kind; /* of the profile, by whose times blocks are balanced (whole device, smallest batch)
               */
    int n_blocks;
    int end[SPLIT_MAX_BLOCKS]; /* block i is layers [end[i - 1], end[i]) */
    double window; /* every block takes between (1 - window) and (1 + window) of the mean; widened
                      from what was asked where nothing fits */
    double cut_bytes;        /* of one sample, summed over the cuts */
    double least_s, most_s;  /* of a block */
    double greedy_cut_bytes; /* what the paper's greedy grouping moves */
};

/* `kind` NULL: the fastest. HP_EINVAL: not a fixed-shape profile, an unknown kind or one without
 * times, blocks or window out of range; HP_ELIMIT; HP_ENOMEM. */
int pools_split(const struct profile *p, int n_blocks, double window, const char *kind,
                struct split *out, struct err *e);

/* The profile of the blocks (hp-profile/1): times and parameters are sums, null where a layer was
 * not profiled. NULL when memory ran out. */
json_t *pools_split_profile(const struct profile *p, const struct split *s);

/* The document of layers as one of `n_blocks` blocks at most: as above, with "bounds" (the layers
 * at which blocks begin, and where the last ends: who serves it cuts there), and "measured" and
 * "source" as they were. `split`, where it is not NULL, gets the blocks, or says them where it has
 * some. HP_EPARSE, HP_EUNSUPPORTED (as many layers as those blocks have), and as pools_split. */
int pools_split_document(json_t *layers, int n_blocks, struct split *split, json_t **out,
                         struct err *e);

#endif
