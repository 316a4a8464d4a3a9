#include "coordinator/flapping.h"

#include "common/log.h"
#include "coordinator/broken_links.h"

static bool is_calm(const struct coord *c, const struct member *m)
{
    return !m->lost_ns || coord_now(c) - m->lost_ns > coord_ms(FLAPPING_FORGET_MS);
}

void flapping_note(const struct coord *c, struct member *m)
{
    uint64_t now = coord_now(c);
    m->flaps = is_calm(c, m) ? 0 : m->flaps;
    m->lost_ns = now ? now : 1;
    if (++m->flaps < FLAPPING_TRIES)
        return;
    unsigned doublings = m->flaps - FLAPPING_TRIES;
    uint64_t off_ns = coord_ms(FLAPPING_MS) << (doublings < 6 ? doublings : 6);
    m->held_off_until_ns = now + off_ns;
    log_warn("coordinator", "agent_flaps", "agent=%s losses=%u held_off_s=%.0f", m->name, m->flaps,
             (double)off_ns * 1e-9);
}

static bool is_off(const struct coord *c, const struct member *m)
{
    return coord_now(c) < m->held_off_until_ns;
}

/* Nothing new is to lie on it. */
static bool is_avoided(const struct coord *c, const struct member *m)
{
    bool others = false;
    for (size_t i = 0; i < c->n_members; i++)
        others = others || (member_available(c->members[i]) && !is_off(c, c->members[i]));
    return is_off(c, m) && others;
}

bool flapping_in(struct coord *c, const struct stage_layout *layout)
{
    for (int i = 0; i < layout->n_stages; i++) {
        const struct member *m = member_find(c, layout->stages[i].agent);
        if (m && is_avoided(c, m))
            return true;
    }
    return false;
}

bool flapping_leaves_out(const struct coord *c, const struct deployment *d, const struct member *m)
{
    return d->served && broken_links_avoided(d) && is_avoided(c, m);
}

bool flapping_left_out(const struct coord *c, const struct deployment *d)
{
    for (size_t i = 0; i < c->n_members; i++)
        if (member_available(c->members[i]) && flapping_leaves_out(c, d, c->members[i]))
            return true;
    return false;
}
