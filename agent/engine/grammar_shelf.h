/* The grammars of a stage's sequences: the vocabulary's prefix tree, made when the first grammar
 * comes, and automata by what their grammars say, so that requests with one schema share one. Used
 * by the executor's thread; automata by all that sample. */
#ifndef HP_AGENT_ENGINE_GRAMMAR_SHELF_H
#define HP_AGENT_ENGINE_GRAMMAR_SHELF_H

#include "common/pack.h"
#include "common/status.h"

enum {
    GRAMMAR_SHELF_MOST = 256,            /* automata */
    GRAMMAR_SHELF_IDLE_BYTES = 64 << 20, /* of those that nobody uses; the least recent go first */
    GRAMMAR_SHELF_BYTES = 512 << 20      /* of all, when another one comes */
};

struct grammar_shelf;
struct automaton; /* model/grammar/automaton.h */

/* `path` of the model, copied; NULL: there is none, and no grammar can be held to. NULL: no memory.
 */
struct grammar_shelf *grammar_shelf_create(const char *path, uint32_t vocabulary);
/* No matcher is left. */
void grammar_shelf_destroy(struct grammar_shelf **s);
/* The automaton of a grammar's bytes; it stays until the next call at least, and while it has
 * matchers. As grammar_read and model_tokenizer; HP_EBUSY: too many grammars are in use. */
int grammar_shelf_find(struct grammar_shelf *s, struct pack_span grammar, struct automaton **out,
                       struct err *e);

#endif
