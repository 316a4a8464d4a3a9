/* The grammars of a stage's sequences: the vocabulary's prefix tree, made on a thread of its own
 * from the beginning on, so that no token waits for it, also for those who ask how tokens read; and
 * automata by what their grammars say, so that requests with one schema share one. Used by one
 * thread at a time (the loader's, then the executor's); automata by all that sample. */
#ifndef HP_AGENT_ENGINE_GRAMMAR_SHELF_H
#define HP_AGENT_ENGINE_GRAMMAR_SHELF_H

#include <stdbool.h>

#include "common/pack.h"
#include "common/status.h"

enum {
    GRAMMAR_SHELF_MOST = 256,            /* automata */
    GRAMMAR_SHELF_IDLE_BYTES = 64 << 20, /* of those that nobody uses; the least recent go first */
    GRAMMAR_SHELF_BYTES = 512 << 20      /* of all, when another one comes */
};

struct grammar_shelf;
struct automaton;  /* model/grammar/automaton.h */
struct token_tree; /* model/grammar/token_tree.h */

/* `path` of the model, copied; NULL: there is none, and no grammar can be held to, nor any text
 * read. `made` (may be NULL) is called on the thread that makes the tree, each time when it is
 * ready. NULL: no memory. */
struct grammar_shelf *grammar_shelf_create(const char *path, uint32_t vocabulary,
                                           void (*made)(void *ctx), void *ctx);
/* No matcher is left. Where the tree is still being made it waits for that step to end. */
void grammar_shelf_destroy(struct grammar_shelf **s);
/* Whether the tree is there, or could not be made: then finding does not wait for it. */
bool grammar_shelf_ready(struct grammar_shelf *s);
/* The automaton of a grammar's bytes; it stays until the next call at least, and while it has
 * matchers. As grammar_read and model_tokenizer; HP_EBUSY: too many grammars are in use. */
int grammar_shelf_find(struct grammar_shelf *s, struct pack_span grammar, struct automaton **out,
                       struct err *e);

/* The tree itself, which stays until the shelf is destroyed. As model_tokenizer. */
int grammar_shelf_tree(struct grammar_shelf *s, const struct token_tree **out, struct err *e);

#endif
