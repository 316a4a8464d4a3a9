/* What the stages of a deployment have of prompts, so that equal beginnings are computed and stored
 * once: an index over the sequences that run and over those that have ended and are kept. Pages of
 * ids are chained (as blocks of vLLM and SGLang are): the hash of a page covers all pages before it
 * and, at the root, model, arithmetic, generation, rotation and whose it is, so that a place in
 * the chain is a position in the prompt. A hash finds; the ids themselves decide.
 *
 * State and lookups; nothing is ordered here (sequence_orders.h). What a deployment's stages forget
 * (they are connected anew, an agent is lost, a generation ends) is forgotten with prefixes_forget.
 */
#ifndef HP_COORDINATOR_PREFIXES_H
#define HP_COORDINATOR_PREFIXES_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

enum {
    PREFIX_LEAST_TOKENS = KV_PAGE_TOKENS /* shorter beginnings are not looked for */
};

/* One sequence of the index. */
struct prefix {
    uint64_t sequence;              /* as the stages know it */
    const struct sequence *running; /* NULL: it is kept */
    uint32_t n;       /* of so many of its ids keys and values are there, or will be */
    uint32_t settled; /* the most that it may have settled: what of a window is there follows */
    uint32_t rest;    /* not ready: so many of them are computed for it */
    bool ready;       /* every stage has them */
    bool hidden;      /* for its forks alone: in no chain, and never kept */
    uint64_t *pages;  /* [n_pages]: the chain */
    uint32_t n_pages, room_pages;
    uint64_t used_ns;
    uint32_t uses;      /* requests that began with it */
    struct digest root; /* of its pages' names (chain_names.h) */
    /* of one that has ended and is kept */
    bool kept;
    uint32_t *own_ids;
    struct kv_holding holding;
};

/* With what a request may begin. */
struct prefix_hit {
    struct prefix *from; /* NULL: with nothing */
    uint32_t length;
    uint64_t coming; /* a sequence whose prompt is being read, and worth waiting for; 0: none */
};

/* A fork finds the sequence whose prompt it has, too. Requests of one API key find what that key's
 * had computed, and no others', unless the deployment shares among all; who has no key belongs to
 * one common group. */
struct prefix_hit prefixes_find(const struct coord *c, const struct deployment *d,
                                const struct sequence *s);
/* What the request begins with is used now, and counted. */
void prefixes_hit(const struct coord *c, struct deployment *d, const struct sequence *s,
                  const struct prefix_hit *hit);
/* A sequence has been opened; without memory for it nobody will find it. */
void prefixes_begin(const struct coord *c, struct deployment *d, const struct sequence *s);
/* Every stage has the sequence's prompt. */
void prefixes_ready(struct deployment *d, struct sequence *s);
/* The sequence ends. Returns how many of its tokens are worth keeping, and then the index has its
 * ids and its holding; 0: none, and it is in the index no more. `whole`: the stages have run
 * nothing beyond what they told. */
uint32_t prefixes_end(const struct coord *c, struct deployment *d, struct sequence *s, bool whole);

/* Whether a sequence may begin with the prefix's first `length` tokens: all that the next one sees
 * through a window is there. */
bool prefix_reaches(const struct deployment *d, const struct prefix *p, uint32_t length);
/* Another sequence that is kept and that this one has all of; NULL: none. */
struct prefix *prefixes_covered(const struct deployment *d, uint64_t sequence);
/* The one that is kept and whose loss costs least (but for `except`): what computing its pages anew
 * would take (prefix_costs.h), by the chance that somebody asks for them, which falls with the time
 * since that was last so and rises with how often it was. One with pages that nobody else has goes
 * before all others; NULL: none is kept. */
struct prefix *prefixes_victim(struct coord *c, struct deployment *d, const struct prefix *except);
/* A prefix keeps its first `length` tokens, at most those that it has; the caller tells the stages.
 */
void prefix_cut(struct deployment *d, struct prefix *p, uint32_t length);
/* Frees a prefix and what is counted for it; the caller tells the stages. */
void prefix_remove(struct deployment *d, struct prefix *p);
/* Removes all of a deployment's prefixes. */
void prefixes_forget(struct deployment *d);
/* The same, and the index itself goes. */
void prefixes_free(struct deployment *d);

/* How many sequences are kept that have ended. */
uint32_t prefixes_kept(const struct deployment *d);
/* The one that this sequence became; NULL: it is not kept. */
struct prefix *prefixes_kept_of(const struct deployment *d, uint64_t sequence);
/* Whether windows leave places of sequences for those that are kept alone. */
bool prefixes_narrow(const struct deployment *d);

/* Pages of the KV memory, for people. */
struct prefix_pages {
    uint32_t all, own, shared, cached; /* of one running sequence, of several, of kept ones alone */
};
struct prefix_pages prefixes_pages(const struct deployment *d);

/* What computing tokens [from, to) of a prompt takes the deployment's stages; NAN where their
 * profiles say nothing, or for want of memory. */
double prefixes_seconds(struct coord *c, struct deployment *d, uint32_t from, uint32_t to);

#endif
