/* What the core says of its members. */
#ifndef HP_TESTS_UNIT_COORDINATOR_MEMBER_FIXTURE_H
#define HP_TESTS_UNIT_COORDINATOR_MEMBER_FIXTURE_H

#include "tests/unit/coordinator/core_fixture.h"

static inline const char *state_of(struct fixture *f, const char *name)
{
    struct member *m = member_find(f->core, name);
    return m ? member_states[m->state].word : "nobody";
}

static inline const char *refusal(struct fixture *f, uint64_t peer)
{
    const struct message *m = fixture_last(f, peer, MESSAGE_REFUSED);
    return m ? m->u.refused.text : "";
}

#endif
