/* What of a sequence's tokens is worth spilling, and reading back of what its agents have spilled
 * (spilled_pages.h): planned by t(L, x) of computing the tokens against their bytes over what
 * agents measured of reading. */
#ifndef HP_COORDINATOR_SPILLS_H
#define HP_COORDINATOR_SPILLS_H

#include "coordinator/chain_names.h"

struct spill_hit {
    uint32_t length;    /* of the prompt's tokens, whole pages; 0: nothing */
    struct digest page; /* the name of the last of them */
};
/* What of a sequence's tokens is to be read back, where `have` are on the stages and the first
 * `kept` of these, whole pages, can be shared with what is read: nothing where computing the others
 * takes less time, which is logged and counted once for each length. */
struct spill_hit spills_find(struct coord *c, struct deployment *d, struct sequence *s,
                             uint32_t have, uint32_t kept);
/* Names of the whole pages among n tokens that are to be spilled, [*n_pages], the caller's. NULL:
 * none; computing them again takes less time than copying, they are spilled already, some agent
 * spills nothing, of layers with a window something that a token behind them sees is gone by now,
 * or there is no memory. */
struct digest *spills_worth(struct coord *c, struct deployment *d, const struct digest *root,
                            const uint32_t *ids, size_t n, uint32_t *n_pages);

#endif
