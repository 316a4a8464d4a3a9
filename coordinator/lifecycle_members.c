#include "coordinator/lifecycle_members.h"

#include "coordinator/broken_links.h"
#include "coordinator/deployment_layout.h"
#include "coordinator/flapping.h"
#include "coordinator/lifecycle_ends.h"
#include "coordinator/pools/pools.h"
#include "coordinator/stage_reports.h"

void lifecycle_member_joined(struct coord *c, struct member *m)
{
    bool lost = false;
    for (size_t i = 0; i < c->n_deployments; i++) {
        if (!deployment_stage_of(c->deployments[i], m))
            continue;
        struct verdict v = stage_reports_joined(c, c->deployments[i], m);
        if (v.kind == VERDICT_BREAK && !lost)
            flapping_note(c, m);
        lost = lost || v.kind == VERDICT_BREAK;
        lifecycle_judge(c, &v);
    }
}

void lifecycle_member_ready(struct coord *c)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        deployment_retry(c, d);
        /* On its way to fewer agents while those that served it are all here again: the old places
         * hold the weights (and copies are gone wherever they were). */
        bool holds = d->state == DEPLOYMENT_PREPARING && d->served && !d->spec.copy_of[0];
        struct stage_layout *layout = holds ? deployment_layout(d) : NULL;
        if (layout && !stage_layout_same_stages(layout, d->served) &&
            deployment_layout_usable(c, d->served) && !broken_links_in(c, d->served) &&
            !flapping_in(c, d->served)) {
            struct err e = {0};
            err_set(&e, HP_ELINK, "\"%s\" goes back to the agents that served it", d->name);
            lifecycle_break(c, d, &e);
        }
        stage_layout_release(&layout);
    }
}

void lifecycle_member_lost(struct coord *c, struct member *m, const char *why)
{
    struct err e = {0};
    err_set(&e, HP_ELINK, "%s", why);
    flapping_note(c, m);
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        struct deployment_stage *s = deployment_stage_of(d, m);
        if (!s)
            continue;
        if (d->state == DEPLOYMENT_RECOVERING)
            for (; s; s = deployment_stage_next(d, s))
                deployment_stage_move(s, STAGE_UNTOLD);
        else if (d->state == DEPLOYMENT_PREPARING || deployment_serves(d))
            lifecycle_break(c, d, &e);
    }
}

void lifecycle_member_drains(struct coord *c, struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        if (!deployment_stage_of(d, m))
            continue;
        /* One that serves moves in its next step. */
        if (deployment_prepares(d)) {
            struct err e = {0};
            err_set(&e, HP_ELINK, "agent \"%s\" is being drained", m->name);
            lifecycle_break(c, d, &e);
        }
    }
}

void lifecycle_member_stays(struct coord *c)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        if (d->state == DEPLOYMENT_MOVING && !d->heir && !deployment_stages_drain(d))
            deployment_move(c, d, DEPLOYMENT_SERVING);
    }
    lifecycle_member_ready(c);
}

void lifecycle_member_held(struct coord *c, struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        for (int k = 0; k < d->n_stages; k++) {
            struct verdict v = {VERDICT_OK, d, {0}};
            if (d->stages[k].agent == m)
                v = stage_reports_held(c, d, &d->stages[k]);
            lifecycle_judge(c, &v);
        }
    }
    stage_reports_sweep(c, m, pools_has);
}
