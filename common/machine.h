/* A state machine is a table with one setter: which state may follow which, and a word for each.
 * Every change goes through machine_move, which refuses a transition that the table does not have.
 */
#ifndef HP_COMMON_MACHINE_H
#define HP_COMMON_MACHINE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct machine_state {
    const char *word; /* "ready": what logs and JSON say */
    uint32_t allowed; /* bit s set: state s may follow */
};

#define MACHINE_TO(s) (UINT32_C(1) << (s))

static inline bool machine_may(const struct machine_state *table, int from, int to)
{
    return (table[from].allowed & MACHINE_TO(to)) != 0;
}

/* The one setter. A transition outside the table is our own bug. */
static inline void machine_move(const struct machine_state *table, int *state, int to)
{
    assert(machine_may(table, *state, to));
    *state = to;
}

#endif
