#include "coordinator/late_links.h"

#include <math.h>

#include "common/log.h"
#include "coordinator/member.h"

enum { LATE_PROMPTS = 5 }; /* in a row */
#define LATE_LEAST_S 0.01
#define LATE_TIMES 2.0
#define LONG_S 1.25 /* steps that go on for so long say as much as two prompts do */

/* Two times, of which one is no noise of the other. */
static bool far_apart(double more_s, double less_s)
{
    return more_s - less_s >= LATE_LEAST_S && more_s >= LATE_TIMES * less_s;
}

/* As it was measured; until then as the way back was. */
static double usual_s(const struct member *from, const struct member_link *l)
{
    const struct member_link *back = links_cell(l->to, from);
    return l->measured_s || l->latency_s > 0 || !back ? l->latency_s : back->latency_s;
}

/* What plans count on. */
static double known_s(const struct member *from, const struct member_link *l)
{
    return usual_s(from, l) + l->late_s;
}

/* Two agents' clocks are guessed by what they tell the coordinator: from the one that is further
 * away that takes longer, by the way between the two at most. */
static bool hop_is_late(const struct member *from, const struct member_link *l,
                        const struct hop_seconds *hop)
{
    return far_apart(hop->measured - usual_s(from, l), hop->planned);
}

/* Late, on time again (where it was late), or neither: what the prompt says of the link. One that
 * was neither measured nor seen on time may be as far away as that. */
static int hop_verdict(const struct member *from, struct member_link *l,
                       const struct hop_seconds *hop)
{
    double late_s = hop->measured - hop->planned;
    bool late = hop_is_late(from, l, hop);
    l->seen = l->seen || !late;
    if (late)
        return l->seen || l->measured_s ? 1 : 0;
    return l->late_s > 0 && late_s <= -l->late_s / LATE_TIMES ? -1 : 0;
}

static void late_say(const struct member *from, const struct member_link *l, const char *of)
{
    if (l->late_s > 0)
        log_warn("coordinator", "link_late", "from=%s to=%s deployment=%s late_s=%.3g", from->name,
                 l->to->name, of, l->late_s);
    else
        log_info("coordinator", "link_on_time", "from=%s to=%s deployment=%s", from->name,
                 l->to->name, of);
}

static struct member *hop_from(const struct deployment *d, int stage)
{
    return d->stages[stage].agent;
}

/* NULL where both stages are one agent's, or there is no memory for it. */
static struct member_link *hop_link(const struct deployment *d, int stage)
{
    struct member *from = hop_from(d, stage);
    const struct member *to = d->stages[(stage + 1) % d->n_stages].agent;
    return from == to ? NULL : links_make(from, to);
}

static bool hop_is_given(const struct member *from, const struct member_link *l)
{
    struct links_path paths[2];
    return links_paths(from, l->to, paths) > 0 && !paths[0].measured_s && !paths[0].assumed;
}

bool late_links_hear(struct coord *c, const struct deployment *d, int stage,
                     const struct hop_seconds *hop)
{
    struct member_link *l = hop_link(d, stage);
    int verdict = l ? hop_verdict(hop_from(d, stage), l, hop) : 0;
    double late_s = hop->measured - hop->planned;
    if (!l)
        return false;
    if (verdict == 0 || verdict != l->late_verdict)
        l->late_prompts = 0;
    l->late_verdict = verdict;
    if (verdict == 0)
        return false;
    l->late_least_s = l->late_prompts && l->late_least_s < late_s ? l->late_least_s : late_s;
    if (++l->late_prompts < LATE_PROMPTS)
        return false;
    l->late_prompts = 0;
    l->late_s = verdict > 0 ? l->late_s + l->late_least_s : 0;
    l->late_told += verdict > 0;
    l->due_ns = 0; /* measured once nothing runs there */
    c->links_version++;
    late_say(hop_from(d, stage), l, d->name);
    return true;
}

bool late_links_hear_steps(struct coord *c, const struct deployment *d, int stage, double least_s,
                           double span_s)
{
    struct member_link *l = hop_link(d, stage);
    const struct hop_seconds hop = {.planned = l ? known_s(hop_from(d, stage), l) : 0,
                                    .measured = least_s};
    bool back = stage + 1 == d->n_stages, changed = false;
    if (!l || hop_is_given(hop_from(d, stage), l))
        return false;
    if (!back && !hop_is_late(hop_from(d, stage), l, &hop)) {
        l->seen = true;
        return false;
    }
    for (int n = (int)fmin(1 + fmax(span_s, 0) / LONG_S, LATE_PROMPTS); n > 0 && !changed; n--)
        changed = late_links_hear(c, d, stage, &hop);
    return changed;
}

/* A measurement is half of what frames take there and back. Where frames showed that one way is
 * late and the other is not, it says of both together whether they are as late as that still. */
static bool ways_are_as_known(const struct member *from, const struct member_link *l,
                              double latency_s)
{
    const struct member_link *back = links_cell(l->to, from);
    if (!back || !l->measured_s || !back->measured_s || (l->late_s <= 0 && back->late_s <= 0))
        return false;
    double there_s = known_s(from, l), back_s = known_s(l->to, back),
           mean_s = (there_s + back_s) / 2;
    return fabs(there_s - back_s) >= LATE_LEAST_S && latency_s - mean_s < LATE_LEAST_S &&
           !far_apart(mean_s, latency_s);
}

bool late_links_measured(const struct member *from, struct member_link *l, double latency_s)
{
    const double usual = usual_s(from, l), known = known_s(from, l);
    bool was = l->late_s > 0, late = (l->measured_s || was) && far_apart(latency_s, usual),
         later = late && (!was || far_apart(latency_s, known)),
         changed = late != was || fabs(latency_s - known) > LINKS_LATENCY_NEWS_S;
    l->late_prompts = 0;
    if (late && ways_are_as_known(from, l, latency_s))
        return false;
    l->late_s = late ? latency_s - usual : 0;
    l->latency_s = late ? usual : latency_s;
    l->late_told += later;
    if (later || late != was)
        late_say(from, l, "-");
    return changed;
}

struct late_hashes late_links_hash(const struct coord *c)
{
    struct late_hashes h = {0};
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->n_members; k++) {
            const struct member_link *l = links_cell(c->members[i], c->members[k]);
            h.which = h.which * UINT64_C(0x100000001b3) + (l && l->late_s > 0);
            h.told = h.told * UINT64_C(0x100000001b3) + (l ? l->late_told : 0);
        }
    return h;
}
