/* A grammar as machines run it: rules, each a small automaton whose edges read bytes, read nothing,
 * or call a rule (a recursive transition network, Woods 1970). What an expression means, byte by
 * byte. It is also what goes over the wire: a coordinator makes it of a client's schema, the last
 * stage's agent runs it (automaton.h).
 *
 * A grammar that was made or read keeps these: some text is whole, no rule calls itself before it
 * has read a byte (so what follows without reading is finite), every number is in range. */
#ifndef HP_MODEL_GRAMMAR_GRAMMAR_H
#define HP_MODEL_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/grammar/expression.h"

enum {
    GRAMMAR_MAX_STATES = 1 << 17,
    GRAMMAR_MAX_EDGES = 1 << 17,
    GRAMMAR_MAX_LEAST = 1 << 22, /* bytes of the shortest text */
};
#define GRAMMAR_NEVER UINT32_MAX /* as a least: no text */

enum grammar_edge_kind { GRAMMAR_NOTHING, GRAMMAR_BYTES, GRAMMAR_CALL };

struct grammar_edge {
    uint32_t to; /* state */
    uint8_t kind, low, high;
    uint32_t rule; /* CALL */
};

struct grammar {
    uint32_t n_states, n_edges, n_rules;
    struct grammar_edge *edges; /* by state */
    uint32_t *first;            /* [n_states + 1]: of a state's edges */
    uint32_t *starts;           /* [n_rules]: states; texts begin with rule 0 */
    uint8_t *ends;              /* [n_states]: its rule may end here */
    uint8_t *tails;             /* [n_states]: its rule ends here and reads nothing more */
    uint32_t *least;            /* [n_states]: bytes to the end of its rule, or GRAMMAR_NEVER */
};                              /* each array has room for one state and one edge more */

/* Of the builder's first rule. HP_EINVAL: a rule without a body, without an end, or that calls
 * itself before it reads anything, by name; HP_ELIMIT: too large; HP_ENOMEM. */
int grammar_make(const struct expressions *x, struct grammar **out, struct err *e);
void grammar_destroy(struct grammar **g);

/* Appends it as bytes, and back: everything is checked. HP_EPROTO, HP_ELIMIT, HP_ENOMEM. */
void grammar_write(const struct grammar *g, struct buffer *out);
int grammar_read(const void *bytes, size_t size, struct grammar **out, struct err *e);

#endif
