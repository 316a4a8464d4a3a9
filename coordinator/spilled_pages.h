/* What the agents of a deployment have spilled of chains of tokens, in their memory and on their
 * disks, as they tell: pages by name (chain_names.h), counted for each stage. A page is there when
 * every stage has it. Agents tell all of it for each generation, so that what was spilled before an
 * agent or the coordinator was restarted is found again; nothing of it is kept here. */
#ifndef HP_COORDINATOR_SPILLED_PAGES_H
#define HP_COORDINATOR_SPILLED_PAGES_H

#include "common/map.h"
#include "coordinator/chain_names.h"
#include "transport/message.h"

struct member;

struct spill_count {
    uint16_t memory, disk; /* chains that have the page */
    uint16_t begins;       /* those of them in files, as the first of their own */
};

struct spill_node {
    struct digest name;
    UT_hash_handle hh;
    struct spill_count of[]; /* [n_stages] */
};

struct spill_stage {
    bool told;
    uint32_t pages; /* nodes that have some of its own */
    double memory_bytes_per_s, disk_bytes_per_s;
    uint64_t memory_bytes, disk_bytes, dropped;
};

struct spills {
    uint64_t generation;
    int n_stages;
    uint64_t strikes, hits_before; /* of this generation; the deployment's hits when it began */
    struct spill_stage *stages;    /* [n_stages] */
    struct spill_node *nodes;      /* a map by name */
};

/* An agent says what its stage has spilled: pages that came and went, bytes, rates. Told of a
 * deployment or generation that is not its own it counts as stale; what it says is a claim, which
 * is bounded and weighed, and never relied on for a token. */
void spilled_pages_told(struct coord *c, struct member *m, const struct message_spills *t);

/* Those of the deployment's generation, where all stages have told, the model's positions can be
 * taken up in the middle, and what was told is believed. NULL: none. */
const struct spills *spilled_pages_now(const struct deployment *d);
/* A page that all stages have; NULL. */
const struct spill_node *spilled_page_find(const struct spills *x, const struct digest *name);
/* Whether on every stage a file begins with it. */
bool spilled_page_begins(const struct spills *x, const struct spill_node *n);

/* A stage could not read this page back: it is not looked for again until agents tell of it anew.
 * Where that is the rule and not the exception, nothing that they tell is believed any more. */
void spilled_pages_strike(struct deployment *d, const struct digest *page);
void spilled_pages_free(struct deployment *d);
/* For people. */
struct spill_totals {
    uint64_t pages; /* that every stage has */
    uint64_t memory_bytes, disk_bytes, dropped;
};
struct spill_totals spilled_pages_totals(const struct deployment *d);

#endif
