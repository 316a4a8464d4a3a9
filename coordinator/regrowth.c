#include "coordinator/regrowth.h"

#include "common/log.h"
#include "coordinator/broken_links.h"
#include "coordinator/flapping.h"
#include "coordinator/member.h"
#include "coordinator/planner_cluster.h"

void regrowth_wish(struct deployment *d)
{
    if (!d->wish && d->served && deployment_spec_shrinks(&d->spec))
        d->wish = stage_layout_use(d->served);
}

void regrowth_forget(struct deployment *d)
{
    stage_layout_release(&d->wish);
    stage_layout_release(&d->fallback);
}

void regrowth_served(struct deployment *d)
{
    stage_layout_release(&d->fallback);
    if (d->wish && d->served && stage_layout_same_stages(d->wish, d->served))
        regrowth_forget(d);
}

bool regrowth_failed(struct deployment *d)
{
    if (!d->fallback)
        return false;
    stage_layout_release(&d->served);
    d->served = d->fallback;
    d->fallback = NULL;
    return true;
}

/* ---- whether it may, and is worth it ---- */

/* The slowest stage, of the prompt that plans are made for; each layout's own figures. */
static double slowest_s(const struct stage_layout *layout)
{
    double most = 0;
    for (int i = 0; i < layout->n_stages; i++)
        most = layout->stages[i].compute_s > most ? layout->stages[i].compute_s : most;
    return most;
}

static bool wish_is_better(const struct deployment *d)
{
    const struct stage_layout *w = d->wish;
    return w->context > d->context ||
           (w->context == d->context &&
            (w->kv_tokens > d->kv_tokens || slowest_s(w) < 0.95 * slowest_s(d->served)));
}

/* Its agents are here, have been for a while, reach each other, and have room. */
static bool wish_is_possible(struct coord *c, const struct deployment *d)
{
    for (int i = 0; i < d->wish->n_stages; i++) {
        const struct layout_stage *s = &d->wish->stages[i];
        const struct member *m = member_find(c, s->agent);
        if (!m || !member_available(m) || m->drain != MEMBER_STAYS ||
            coord_now(c) - m->joined_ns < coord_ms(DEPLOYMENT_GROW_MS) ||
            planner_free_bytes(c, d, m, s->device) < s->memory_bytes)
            return false;
    }
    return !broken_links_in(c, d->wish) && !flapping_in(c, d->wish);
}

struct verdict regrowth_step(struct coord *c, struct deployment *d)
{
    struct verdict v = {VERDICT_OK, d, {0}};
    uint64_t now = coord_now(c);
    if (d->n_active || d->n_waiting)
        d->busy_ns = now;
    bool idle = now - d->since_ns >= coord_ms(DEPLOYMENT_GROW_MS) &&
                now - d->busy_ns >= coord_ms(DEPLOYMENT_GROW_MS);
    if (!d->wish || !idle || !wish_is_possible(c, d))
        return v;
    if (!wish_is_better(d)) {
        regrowth_forget(d);
        return v;
    }
    v.kind = VERDICT_BREAK;
    err_set(&v.why, HP_ELINK, "\"%s\" goes back to the agents that it was planned for", d->name);
    log_info("coordinator", "deployment_grows", "name=%s", d->name);
    stage_layout_release(&d->fallback);
    d->fallback = d->served;
    d->served = d->wish;
    d->wish = NULL;
    return v;
}
