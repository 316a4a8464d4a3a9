#include "coordinator/lifecycle_ends.h"

#include <stdlib.h>

#include "common/log.h"
#include "coordinator/effects.h"
#include "coordinator/keeper_plans.h"
#include "coordinator/losses.h"
#include "coordinator/placement.h"
#include "coordinator/plan_vs_actual.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/prefixes.h"
#include "coordinator/rebalance.h"
#include "coordinator/regrowth.h"
#include "coordinator/sequence.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/slices.h"
#include "coordinator/spilled_pages.h"
#include "coordinator/stage_uploads.h"
#include "coordinator/stages.h"
#include "coordinator/successors.h"

void lifecycle_move(struct coord *c, struct deployment *d, int to)
{
    deployment_move(c, d, to);
    placement_cancel(d);
}

void lifecycle_stop(struct coord *c, struct deployment *d, const struct err *why)
{
    rebalance_break(c, d, why);
    sequences_fail_all(c, d, why);
    stage_uploads_end(c, d);
    effects_forget(c, "deployment", d->name);
    stages_stop(c, d);
    lifecycle_move(c, d, DEPLOYMENT_STOPPING);
    d->until_ns = coord_now(c) + coord_ms(DEPLOYMENT_STOP_MS);
}

void lifecycle_queue_pass_on(struct coord *c, struct deployment *d, struct deployment *heir)
{
    for (const struct sequence *s = d->waiting_first; s; s = s->next)
        heir->losses.sequences += s->losses;
    successor_queue_take(c, d, heir);
}

bool keepers_yield(struct coord *c, const struct deployment *to, bool beside)
{
    bool gone = false;
    struct err why = {0};
    err_set(&why, HP_ECANCELED, "its room is needed for stages of \"%s\"", to->name);
    for (size_t i = 0; !to->spec.copy_of[0] && i < c->n_deployments; i++) {
        struct deployment *k = c->deployments[i];
        if (!k->spec.copy_of[0] || k->state >= DEPLOYMENT_STOPPING ||
            !(beside ? keeper_plan_is_beside(k, to) : keeper_plan_yields(c, k)))
            continue;
        log_info("coordinator", "keeper_yields", "deployment=%s to=%s", k->name, to->name);
        lifecycle_stop(c, k, &why);
        gone = true;
    }
    return gone;
}

void lifecycle_pass_on(struct coord *c, struct deployment *d, struct deployment *heir,
                       const struct err *why)
{
    sequences_lose_all(c, d, why);
    lifecycle_queue_pass_on(c, d, heir);
    lifecycle_stop(c, d, why);
}

/* All room is needed for its next place: what was made to follow it ends, and so does what it has
 * followed. */
static void neighbours_stop(struct coord *c, struct deployment *d, const struct err *why)
{
    struct deployment *next = successor_of(c, d);
    if (next)
        lifecycle_stop(c, next, why);
    for (size_t i = 0; i < c->n_deployments; i++)
        if (c->deployments[i]->heir == d->id && c->deployments[i]->state < DEPLOYMENT_STOPPING)
            lifecycle_pass_on(c, c->deployments[i], d, why);
}

static void place_break(struct coord *c, struct deployment *d, const struct err *why, bool cut)
{
    struct deployment *heir = deployment_of_id(c, d->heir);
    if (heir && heir->state < DEPLOYMENT_STOPPING) {
        lifecycle_pass_on(c, d, heir, why);
        return;
    }
    if (d->heir || d->spec.succeeds[0]) { /* it is no use to make it again */
        lifecycle_stop(c, d, why);
        return;
    }
    rebalance_break(c, d, why);
    d->why = *why;
    d->keeps = false;
    d->returns = d->returns || deployment_serves(d);
    losses_place_lost(c, d, why);
    if (!cut)
        sequences_suspect(d);
    sequences_lose_all(c, d, why);
    neighbours_stop(c, d, why);
    stage_uploads_end(c, d);
    lifecycle_move(c, d, DEPLOYMENT_BROKEN);
    deployment_retry(c, d);
}

void lifecycle_break(struct coord *c, struct deployment *d, const struct err *why)
{
    place_break(c, d, why, false);
}

/* Its stages are tried once more, with the room that copies have just given back, or by a plan that
 * counts on less. */
static void place_try_again(struct coord *c, struct deployment *d)
{
    d->roomier = true;
    stage_uploads_end(c, d);
    lifecycle_move(c, d, DEPLOYMENT_BROKEN);
    d->until_ns = coord_now(c) + coord_ms(DEPLOYMENT_ROOM_MS);
}

/* Where it lies is the planner's to say, and not a copy's or a move's. */
static bool place_is_chosen(const struct deployment *d)
{
    return deployment_prepares(d) && !d->spec.n_ranges && !d->spec.copy_of[0] &&
           !d->spec.succeeds[0];
}

void lifecycle_fail(struct coord *c, struct deployment *d, const struct err *why)
{
    d->why = *why;
    d->keeps = false;
    if (d->spec.copy_of[0] && deployment_prepares(d))
        keeper_plan_failed(c, d);
    bool yielded = why->code == HP_ENOMEM && keepers_yield(c, d, true),
         again = yielded || (why->code == HP_ENOMEM && place_is_chosen(d));
    if (again && !d->roomier) {
        place_try_again(c, d);
        return;
    }
    d->returns = false;
    if (d->spec.succeeds[0]) {
        lifecycle_stop(c, d, why);
        return;
    }
    if (!d->served && d->listener_ask) {
        deployment_listener_answer(c, d, NULL, why);
        lifecycle_stop(c, d, why);
        return;
    }
    deployment_listener_answer(c, d, NULL, why);
    stage_uploads_end(c, d);
    lifecycle_move(c, d, DEPLOYMENT_BROKEN);
    unsigned doublings = d->failures < 4 ? d->failures : 4;
    d->failures++;
    if (regrowth_failed(d))
        deployment_retry(c, d);
    else
        d->until_ns = coord_now(c) + (coord_ms(DEPLOYMENT_RETRY_MS) << doublings);
}

void lifecycle_judge(struct coord *c, const struct verdict *v)
{
    if (v->kind == VERDICT_FAIL)
        lifecycle_fail(c, v->on, &v->why);
    else if (v->kind == VERDICT_BREAK)
        place_break(c, v->on, &v->why, false);
    else if (v->kind == VERDICT_CUT)
        place_break(c, v->on, &v->why, true);
}

void lifecycle_undeploy(struct coord *c, struct deployment *d, uint64_t peer, uint64_t ask)
{
    struct err why = {0};
    err_set(&why, HP_ECANCELED, "\"%s\" was undeployed", d->name);
    deployment_listener_answer(c, d, NULL, &why);
    lifecycle_stop(c, d, &why);
    d->stop_peer = peer;
    d->stop_ask = ask;
}

void lifecycle_end(struct coord *c, struct deployment *d)
{
    sequences_drop(c, d);
    rebalance_free(d);
    placement_cancel(d);
    slices_free(d);
    planner_inputs_release(&d->inputs);
    plan_vs_actual_free(&d->plan_vs_actual);
    prefixes_free(d);
    spilled_pages_free(d);
    deployment_remove(c, d);
}

void lifecycle_free(struct coord *c)
{
    while (c->n_deployments)
        lifecycle_end(c, c->deployments[c->n_deployments - 1]);
    free(c->deployments);
    c->deployments = NULL;
}
