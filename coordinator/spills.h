/* What the agents of a deployment have spilled of chains of tokens, in their memory and on their
 * disks, as they tell: pages by name (chain_names.h), counted for each stage. A page is there when
 * every stage has it. Agents tell all of it for each generation, so that what was spilled before an
 * agent or the coordinator was restarted is found again; nothing of it is kept here.
 *
 * Whether it is worth copying is planned: t(L, x) of computing the tokens against their bytes over
 * what agents measured of reading back. */
#ifndef HP_COORDINATOR_SPILLS_H
#define HP_COORDINATOR_SPILLS_H

#include <jansson.h>

#include "coordinator/chain_names.h"
#include "transport/message.h"

struct member;

/* An agent says what its stage has spilled: pages that came and went, bytes, rates. Told of a
 * deployment or generation that is not its own it counts as stale; what it says is a claim, which
 * is bounded and weighed, and never relied on for a token. */
void spills_told(struct coord *c, struct member *m, const struct message_spills *t);

struct spill_hit {
    uint32_t length;    /* of the prompt's tokens, whole pages; 0: nothing */
    struct digest page; /* the name of the last of them */
};
/* What of a sequence's tokens is to be read back, where `have` are on the stages and the first
 * `kept` of these, whole pages, can be shared with what is read: nothing where computing the others
 * takes less time, which is logged and counted once for each length. */
struct spill_hit spills_find(struct coord *c, struct deployment *d, struct sequence *s,
                             uint32_t have, uint32_t kept);
/* A stage could not read this page back: it is not looked for again until agents tell of it anew.
 * Where that is the rule and not the exception, nothing that they tell is believed any more. */
void spills_strike(struct deployment *d, const struct digest *page);

/* Names of the whole pages among n tokens that are to be spilled, [*n_pages], the caller's. NULL:
 * none; computing them again takes less time than copying, they are spilled already, some agent
 * spills nothing, of layers with a window something that a token behind them sees is gone by now,
 * or there is no memory. */
struct digest *spills_worth(struct coord *c, struct deployment *d, const struct digest *root,
                            const uint32_t *ids, size_t n, uint32_t *n_pages);

void spills_free(struct deployment *d);
/* For people. */
struct spill_totals {
    uint64_t pages; /* that every stage has */
    uint64_t memory_bytes, disk_bytes, dropped;
};
struct spill_totals spills_totals(const struct deployment *d);

#endif
