#include "coordinator/clocks.h"

#include <string.h>

#include "coordinator/member.h"
#include "coordinator/state.h"

/* Beyond that it is no clock: sums of two stay numbers. */
static const uint64_t clock_most_ns = INT64_MAX / 4;
/* What two guesses at one clock do not differ by. */
static const int64_t clock_apart_ns = 1000000000;

/* The guess is given up slowly since clocks drift (100 ppm), at once when they were set. */
void clock_hear(struct coord *c, struct member *m, uint64_t clock_ns)
{
    if (!clock_ns || clock_ns > clock_most_ns)
        return;
    int64_t now = (int64_t)coord_clock(c), sample = now - (int64_t)clock_ns;
    int64_t known = m->clock_offset_ns + (now - (int64_t)m->clock_heard_ns) / 10000;
    bool anew =
        !m->clock_heard_ns || sample - known > clock_apart_ns || known - sample > clock_apart_ns;
    m->clock_offset_ns = anew || sample < known ? sample : known;
    m->clock_heard_ns = (uint64_t)now;
}

/* Boxes that were made from one image may have one id, and clocks of their own. */
static int64_t offset_best_ns(const struct coord *c, const struct member *m)
{
    int64_t best = m->clock_offset_ns, least = best - clock_apart_ns;
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *o = c->members[i];
        if (o->clock_heard_ns && o->machine[0] && strcmp(o->machine, m->machine) == 0 &&
            o->clock_offset_ns >= least && o->clock_offset_ns < best)
            best = o->clock_offset_ns;
    }
    return best;
}

double clock_offset_s(const struct coord *c, const struct member *m)
{
    return (double)offset_best_ns(c, m) * 1e-9;
}

uint64_t clock_moment(const struct coord *c, const struct member *m, uint64_t clock_ns)
{
    if (!clock_ns || clock_ns > clock_most_ns || !m->clock_heard_ns)
        return coord_now(c);
    int64_t ago = (int64_t)coord_clock(c) - ((int64_t)clock_ns + offset_best_ns(c, m));
    return ago > 0 && (uint64_t)ago < coord_now(c) ? coord_now(c) - (uint64_t)ago : coord_now(c);
}
