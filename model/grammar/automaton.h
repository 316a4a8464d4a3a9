/* A grammar over a vocabulary: which tokens may come next. A pushdown automaton over bytes, made
 * deterministic as it runs: a configuration is the set of places, each with its stack of rules to
 * go back to, at which the text so far can be; configurations and their steps are kept, and so are
 * their masks of allowed tokens. A mask is found by one walk over the vocabulary's prefix tree from
 * the place within the innermost rules alone, which is kept for all stacks; tokens that go on
 * beyond those rules are looked at stack by stack (the division into context-independent and
 * context-dependent tokens of XGrammar, Dong et al. 2024, section 3.1).
 *
 * An automaton is shared by the matchers of all sequences under its grammar, from any thread: calls
 * take turns. What it keeps is bounded: beyond AUTOMATON_KEPT_BYTES all but the matchers' own
 * configurations is forgotten and found anew. So is what a matcher costs: whoever finds something
 * pays for it, and who has paid more than its tokens bring in fails (HP_ELIMIT), so that a grammar
 * that explodes does not hold up others. */
#ifndef HP_MODEL_GRAMMAR_AUTOMATON_H
#define HP_MODEL_GRAMMAR_AUTOMATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/grammar/grammar.h"
#include "model/grammar/token_tree.h"

enum {
    AUTOMATON_KEPT_BYTES = 12 << 20, /* configurations and stacks */
    AUTOMATON_MASK_BYTES = 8 << 20,  /* masks */
    AUTOMATON_MAX_PLACES = 8192,     /* of a configuration: beyond it a grammar is too ambiguous */
    AUTOMATON_LEAST_BYTES = 1 << 20, /* that it keeps, however many there are */
    /* In steps of some 5 ns: */
    MATCHER_EFFORT = 8 << 20,       /* at once */
    MATCHER_TOKEN_EFFORT = 1 << 18, /* for each token */
};

struct automaton;
/* Takes the grammar, whatever comes; the tree outlives it. HP_ENOMEM. */
int automaton_create(struct grammar **g, const struct token_tree *tree, struct automaton **out,
                     struct err *e);
/* Whether no matcher of it is left; then, and only then, it can be destroyed. */
bool automaton_idle(struct automaton *a);
void automaton_destroy(struct automaton **a);
/* Bytes that it keeps now. */
size_t automaton_bytes(struct automaton *a);
/* Of AUTOMATON_KEPT_BYTES it keeps no more than this, or AUTOMATON_LEAST_BYTES. */
void automaton_keep(struct automaton *a, size_t bytes);

/* One sequence's way through a grammar. Between calls it belongs to one thread at a time. */
struct matcher;
/* `most_tokens`: that the text may have, with the one that ends it; `ends` are copied, and allowed
 * where the text may end. HP_EINVAL: the shortest text needs more tokens (the text says how many);
 * HP_ENOMEM, HP_ELIMIT. */
int matcher_create(struct automaton *a, uint64_t most_tokens, const uint32_t *ends, size_t n_ends,
                   struct matcher **out, struct err *e);
void matcher_destroy(struct matcher **m);

/* Whether the mask that comes next has to be found. */
bool matcher_lacks(struct matcher *m);
/* Finds what matcher_mask will be asked for, while nobody waits for it: at most once for each
 * token, and paid for as there. False: there was nothing to find. */
bool matcher_look_ahead(struct matcher *m);
/* Tokens that may come next, a bit each, [vocabulary] in words of 64; NULL: the matcher has failed
 * (matcher_error). They hold until the next call. */
const uint64_t *matcher_mask(struct matcher *m);
/* Whether the text can still become whole within its tokens if this one, allowed by the mask, comes
 * next. */
bool matcher_fits(struct matcher *m, uint32_t token);
/* The next token on the shortest way to a whole text; TOKEN_NONE: the matcher has failed. */
uint32_t matcher_shortest(struct matcher *m);
/* The text goes on with this token. One that is not allowed makes the matcher fail. */
void matcher_accept(struct matcher *m, uint32_t token);
/* Whether the text may end here. */
bool matcher_whole(struct matcher *m);
/* Why it failed: HP_ELIMIT, HP_ENOMEM, HP_EINVAL; 0: it has not. */
int matcher_error(const struct matcher *m, struct err *e);

#endif
