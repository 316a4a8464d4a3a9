/* Where whole characters lead from a state of a grammar, by their kinds (char_kinds.h): read off
 * the edges when it is first asked for, and kept. What follows without reading, and what has to be
 * gone back to, is not looked at: the states are those right behind a character's last byte. */
#ifndef HP_MODEL_GRAMMAR_STATE_CHARS_H
#define HP_MODEL_GRAMMAR_STATE_CHARS_H

#include "model/grammar/char_kinds.h"
#include "model/grammar/grammar.h"

/* All characters of these kinds lead to one state. */
struct char_step {
    uint64_t kinds;
    uint32_t to;
};

struct state_steps {
    uint64_t unclear; /* kinds of which more has to be known: characters differ, or are told apart
                         by several edges; all others, but those of the steps, cannot come */
    uint32_t first;   /* of its steps, of which no two have a kind in common */
    uint8_t n;
    bool known;
};

struct state_chars {
    const struct grammar *grammar;
    struct state_steps *states; /* [n_states] */
    struct char_step *steps;
    uint32_t n_steps, step_room;
    uint64_t begun[129], over[129]; /* kinds of which a character of one byte, all of these, come
                                       before a byte */
};

/* Of a grammar that outlives it. False: no memory. */
bool state_chars_init(struct state_chars *s, const struct grammar *g);
void state_chars_fini(struct state_chars *s);
/* NULL: no memory. Its steps stay where they are until the next call. */
const struct state_steps *state_chars_find(struct state_chars *s, uint32_t state);
size_t state_chars_bytes(const struct state_chars *s);

#endif
