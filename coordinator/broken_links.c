#include "coordinator/broken_links.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/links.h"
#include "coordinator/member.h"

/* ---- what is broken ---- */

static bool member_lives(const struct coord *c, const struct member *m)
{
    return member_present(m) && !m->gone_ns &&
           coord_now(c) - m->heard_ns < coord_ms(BROKEN_LINK_HEARD_MS);
}

static void link_break(struct coord *c, struct member *from, const struct member *to,
                       const char *deployment)
{
    struct member_link *l = links_make(from, to);
    uint64_t now = coord_now(c);
    if (!l || now < l->broken_until_ns)
        return;
    if (now - l->broken_until_ns > coord_ms(BROKEN_LINK_FORGET_MS))
        l->breaks = 0;
    l->broken_until_ns = now + (coord_ms(BROKEN_LINK_MS) << (l->breaks < 6 ? l->breaks : 6));
    l->breaks++;
    l->due_ns = 0;
    snprintf(l->failure, sizeof l->failure, "frames of \"%s\" did not come through", deployment);
    log_warn("coordinator", "link_broken", "from=%s to=%s deployment=%s avoided_s=%.0f", from->name,
             to->name, deployment, (double)(l->broken_until_ns - now) * 1e-9);
}

void broken_links_hop(struct coord *c, const struct deployment *d, int stage)
{
    struct member *from = d->stages[stage ? stage - 1 : d->n_stages - 1].agent;
    const struct member *to = d->stages[stage].agent;
    if (from != to && member_lives(c, from) && member_lives(c, to))
        link_break(c, from, to, d->name);
}

/* The stage of the agent that sends to another one; -1: none does. */
static int stage_sending(const struct deployment *d, const struct member *m)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].agent == m && d->stages[(i + 1) % d->n_stages].agent != m)
            return i;
    return -1;
}

bool broken_links_told(struct coord *c, struct deployment *d, const struct member *m)
{
    int i = stage_sending(d, m);
    struct deployment_stage *s = i < 0 ? NULL : &d->stages[i];
    uint64_t now = coord_now(c);
    if (!s || (s->link_breaks && now - s->link_broke_ns < coord_ms(1000))) /* all of one break */
        return false;
    bool again = s->link_breaks && now - s->link_broke_ns < coord_ms(BROKEN_LINK_TRY_MS);
    s->link_breaks = again ? s->link_breaks + 1 : 1;
    s->link_broke_ns = now;
    if (s->link_breaks < BROKEN_LINK_TRIES)
        return false;
    s->link_breaks = 0;
    broken_links_hop(c, d, (i + 1) % d->n_stages);
    return true;
}

/* ---- what goes round it ---- */

static bool way_is_broken(const struct coord *c, const struct member *from, const struct member *to)
{
    const struct member_link *l = links_cell(from, to);
    return l && coord_now(c) < l->broken_until_ns;
}

static bool path_is_broken(const struct coord *c, const struct member *a, const struct member *b)
{
    return way_is_broken(c, a, b) || way_is_broken(c, b, a);
}

bool broken_links_in(struct coord *c, const struct stage_layout *layout)
{
    for (int i = 0; i < layout->n_stages; i++) {
        const struct member *m = member_find(c, layout->stages[i].agent),
                            *next =
                                member_find(c, layout->stages[(i + 1) % layout->n_stages].agent);
        if (m && next && path_is_broken(c, m, next))
            return true;
    }
    return false;
}

bool broken_links_avoided(const struct deployment *d)
{
    return d->failures % 2 == 0 && deployment_spec_shrinks(&d->spec);
}

static size_t paths_broken(const struct coord *c, const struct member *m)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_members; i++)
        n += member_available(c->members[i]) && path_is_broken(c, m, c->members[i]);
    return n;
}

static double memory_of(const struct member *m)
{
    double bytes = 0;
    for (int i = 0; i < member_device_count(m); i++)
        bytes += member_device(m, i)->memory_bytes;
    return bytes;
}

/* Whether `a` rather than `b` stays out; of two that differ exactly one does. */
static bool stays_out_before(const struct coord *c, const struct member *a, const struct member *b)
{
    size_t n = paths_broken(c, a), k = paths_broken(c, b);
    double x = memory_of(a), y = memory_of(b);
    if (n != k)
        return n > k;
    return x < y || (x <= y && strcmp(a->name, b->name) > 0);
}

bool broken_links_leave_out(const struct coord *c, const struct deployment *d,
                            const struct member *m)
{
    bool turned = d->failures / 2 % 2;
    if (!broken_links_avoided(d))
        return false;
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *o = c->members[i];
        if (o != m && member_available(o) && path_is_broken(c, m, o) &&
            stays_out_before(c, m, o) != turned)
            return true;
    }
    return false;
}
