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

/* What plans count on. */
static double known_s(const struct member_link *l)
{
    return l->latency_s + l->late_s;
}

/* Late, on time again (where it was late), or neither: what the prompt says of the link. */
static int hop_verdict(const struct member_link *l, const struct hop_seconds *hop)
{
    double late_s = hop->measured - hop->planned;
    if (far_apart(hop->measured, hop->planned))
        return 1;
    return l->late_s > 0 && late_s <= -l->late_s / LATE_TIMES ? -1 : 0;
}

static void late_say(const struct member *from, const struct member_link *l, const char *of,
                     double late_s)
{
    if (l->late)
        log_warn("coordinator", "link_late", "from=%s to=%s deployment=%s late_s=%.3g", from->name,
                 l->to->name, of, late_s);
    else
        log_info("coordinator", "link_on_time", "from=%s to=%s deployment=%s", from->name,
                 l->to->name, of);
}

bool late_links_hear(struct coord *c, const struct deployment *d, int stage,
                     const struct hop_seconds *hop)
{
    struct member *from = d->stages[stage].agent;
    const struct member *to = d->stages[stage + 1].agent;
    struct member_link *l = from == to ? NULL : links_make(from, to);
    int verdict = l ? hop_verdict(l, hop) : 0;
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
    l->late = verdict > 0;
    l->late_told += verdict > 0;
    l->due_ns = 0; /* measured once nothing runs there */
    c->links_version++;
    late_say(from, l, d->name, l->late_s);
    return true;
}

bool late_links_hear_steps(struct coord *c, const struct deployment *d, int stage, double least_s,
                           double span_s)
{
    struct member *from = d->stages[stage].agent;
    const struct member *to = d->stages[stage + 1].agent;
    const struct member_link *l = from == to ? NULL : links_make(from, to);
    const struct hop_seconds hop = {.planned = l ? known_s(l) : 0, .measured = least_s};
    bool changed = false;
    if (!l || !far_apart(hop.measured, hop.planned))
        return false;
    for (int n = (int)fmin(1 + fmax(span_s, 0) / LONG_S, LATE_PROMPTS); n > 0 && !changed; n--)
        changed = late_links_hear(c, d, stage, &hop);
    return changed;
}

bool late_links_measured(const struct member *from, struct member_link *l, double latency_s)
{
    bool was = l->late_s > 0, late = l->measured_s && far_apart(latency_s, known_s(l)),
         on_time = l->late && far_apart(known_s(l), latency_s);
    double late_s = latency_s - l->latency_s;
    l->late_s = 0;
    l->late_prompts = 0;
    l->late = late || (l->late && !on_time);
    l->late_told += late;
    if (late || on_time)
        late_say(from, l, "-", late_s);
    return was || late || on_time;
}

struct late_hashes late_links_hash(const struct coord *c)
{
    struct late_hashes h = {0};
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->n_members; k++) {
            const struct member_link *l = links_cell(c->members[i], c->members[k]);
            h.which = h.which * UINT64_C(0x100000001b3) + (l && l->late);
            h.told = h.told * UINT64_C(0x100000001b3) + (l ? l->late_told : 0);
        }
    return h;
}
