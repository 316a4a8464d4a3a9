#include "coordinator/lifecycle.h"

#include <string.h>

#include "coordinator/admission.h"
#include "coordinator/broken_links.h"
#include "coordinator/copies.h"
#include "coordinator/deployment_layout.h"
#include "coordinator/describe.h"
#include "coordinator/effects.h"
#include "coordinator/expert_groups.h"
#include "coordinator/flapping.h"
#include "coordinator/hops.h"
#include "coordinator/keeper_plans.h"
#include "coordinator/layouts.h"
#include "coordinator/lifecycle_ends.h"
#include "coordinator/losses.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement.h"
#include "coordinator/prefill_plans.h"
#include "coordinator/profiling.h"
#include "coordinator/rebalance.h"
#include "coordinator/record.h"
#include "coordinator/regrowth.h"
#include "coordinator/replication.h"
#include "coordinator/sequence_moves.h"
#include "coordinator/slices.h"
#include "coordinator/stage_uploads.h"
#include "coordinator/stages.h"
#include "coordinator/streams.h"
#include "coordinator/successors.h"

static bool layout_good(struct coord *c, const struct deployment *d, const struct stage_layout *l)
{
    return l && deployment_layout_usable(c, l) &&
           !(broken_links_avoided(d) && (broken_links_in(c, l) || flapping_in(c, l)));
}

static int layout_take(struct coord *c, struct deployment *d, const struct stage_layout *layout,
                       struct err *e)
{
    int rc = deployment_layout_set(c, d, layout, e);
    if (rc == 0)
        stages_adopt(c, d);
    return rc;
}

/* 1: it is being planned. Where a mixture's blocks fit no agent, their experts are divided. Where
 * there is no plan round a broken link, that link has to do. */
static int layout_plan(struct coord *c, struct deployment *d, struct err *e)
{
    struct placement p;
    regrowth_wish(d);
    int rc = placement_make(c, d, &p, e);
    if (rc < 0 && expert_groups_next(c, d, p.has_room))
        return 1;
    if (rc < 0 && d->served && deployment_layout_usable(c, d->served))
        return layout_take(c, d, d->served, e);
    if (rc < 0 && flapping_left_out(c, d)) { /* it does not go without: at once with all */
        d->failures++;
        return HP_PENDING;
    }
    if (rc == 0) {
        rc = layout_take(c, d, p.layout, e);
        placement_free(&p);
    }
    return rc;
}

static int keeper_place(struct coord *c, struct deployment *k, struct err *e)
{
    struct stage_layout *layout = NULL;
    int rc = keeper_plan_place(c, k, &layout, e);
    rc = rc < 0 ? rc : layout_take(c, k, layout, e);
    stage_layout_release(&layout);
    return rc;
}

/* The layout that moves least: as it served last, or as it is; else the planner's. 1: it is being
 * planned. */
static int layout_choose(struct coord *c, struct deployment *d, struct err *e)
{
    int rc;
    if (d->spec.copy_of[0]) /* it has nothing that would have to move */
        return keeper_place(c, d, e);
    struct stage_layout *layout = deployment_layout(d);
    if (layout_good(c, d, d->served))
        rc = layout_take(c, d, d->served, e);
    else if (layout_good(c, d, layout)) /* the same stages, none of which has been told anything */
        rc = layout_take(c, d, layout, e);
    else
        rc = layout_plan(c, d, e);
    stage_layout_release(&layout);
    return rc;
}

/* Those that were named may be on their way back to a coordinator that has just been started. */
static bool agents_awaited(const struct coord *c, const struct deployment *d, const struct err *e)
{
    return e->code == HP_ELINK && !d->served &&
           coord_now(c) < c->started_ns + coord_ms(DEPLOYMENT_AGENTS_MS);
}

static void step_planned(struct coord *c, struct deployment *d)
{
    struct err e = {0};
    if (d->model->failure.code) {
        lifecycle_fail(c, d, &d->model->failure);
        return;
    }
    if (!d->model->open || (!d->spec.copy_of[0] && profiling_awaited(c, d)))
        return;
    int rc = layout_choose(c, d, &e);
    if (rc > 0 || (rc < 0 && agents_awaited(c, d, &e)))
        return;
    if (rc < 0) {
        lifecycle_fail(c, d, &e);
        return;
    }
    record_keep(c, d);
    lifecycle_move(c, d, DEPLOYMENT_PREPARING);
    if (d->listener_ask)
        effects_answer(c, d->listener_peer, d->listener_ask, true,
                       json_pack("{s:s, s:s, s:I, s:O?, s:o}", "phase", "plan", "name", d->name,
                                 "context", (json_int_t)d->context, "plan",
                                 d->plan ? d->plan->document : NULL, "stages", describe_stages(d)));
    keepers_yield(c, d, false);
    stages_prepare(c, d);
}

/* All stages are there: they are connected, and tried before anybody is promised anything. */
static void hops_try(struct coord *c, struct deployment *d)
{
    lifecycle_move(c, d, DEPLOYMENT_READY);
    stage_uploads_end(c, d);
    hops_begin(c, d);
    stages_connect(c, d);
}

static void deployment_serve(struct coord *c, struct deployment *d)
{
    d->until_ns = d->doubted_ns = 0;
    d->why = (struct err){0};
    d->returns = false;
    losses_place_found(c, d);
    d->succession_tried = d->roomier = false;
    d->failures = 0;
    struct stage_layout *layout = deployment_layout(d);
    if (layout) { /* else, for want of memory, it goes back to an older one */
        stage_layout_release(&d->served);
        d->served = layout;
    }
    regrowth_served(d);
    record_keep(c, d);
    layouts_keep(c, d);
    lifecycle_move(c, d, DEPLOYMENT_SERVING);
    streams_settle(c, d);
    struct err e = {0};
    if (prefill_plan_begin(c, d, &e))
        return; /* it is told once that one serves, too */
    if (e.code) {
        deployment_listener_answer(c, d, NULL, &e);
        return;
    }
    const struct deployment *face = d->spec.prefill_of[0] ? deployment_partner(c, d) : NULL;
    json_t *result = describe_deployment(face ? face : d, true);
    json_object_set_new(result, "phase", json_string("serving"));
    deployment_listener_answer(c, d, result, NULL);
}

/* Somebody wants chunks that nobody has, and nobody is there who could upload them. */
static void weights_missing_fail(struct coord *c, struct deployment *d)
{
    const struct deployment_stage *s = NULL;
    struct err e = {0};
    for (int i = 0; i < d->n_stages && !s; i++)
        if (d->stages[i].n_wanted && d->stages[i].wanted_why[0])
            s = &d->stages[i];
    if (s)
        err_set(&e, HP_ENOENT, "no agent has all weights of \"%s\" any more: on agent \"%s\" %s",
                d->name, s->agent->name, s->wanted_why);
    else
        err_set(&e, HP_ENOENT, "no agent has all weights of \"%s\" any more", d->name);
    err_hint(&e, "hpctl deploy again with --name %s uploads what is missing", d->name);
    lifecycle_fail(c, d, &e);
}

static void step_preparing(struct coord *c, struct deployment *d)
{
    bool late = d->until_ns && coord_now(c) >= d->until_ns;
    for (int i = 0; i < d->n_stages; i++) {
        const struct member *m = d->stages[i].agent;
        if (member_present(m) || (d->state == DEPLOYMENT_RECOVERING && !late))
            continue;
        struct err e = {0};
        err_set(&e, HP_ELINK, "agent \"%s\" is lost", m->name);
        lifecycle_break(c, d, &e);
        return;
    }
    stages_prepare(c, d);
    if (deployment_stages_here(d) && d->model->open) {
        hops_try(c, d);
    } else if (!stage_uploads_ask(c, d)) {
        weights_missing_fail(c, d);
    }
}

static void step_ready(struct coord *c, struct deployment *d)
{
    struct err e = {0};
    bool late = coord_now(c) >= d->until_ns;
    if (hops_all_heard(d) && (late || streams_all_told(d))) {
        deployment_serve(c, d);
    } else if (late) {
        hops_why(d, &e);
        hops_give_up(c, d);
        lifecycle_fail(c, d, &e);
    }
}

/* Another deployment is on its way to take its place, or has just done so. */
static bool succession_goes_on(struct coord *c, struct deployment *d)
{
    struct deployment *next = successor_of(c, d);
    if (!next)
        return d->n_active > 0 && successor_begin(c, d, NULL); /* else it moves at once */
    if (next->state != DEPLOYMENT_SERVING)
        return true;
    if (next->context < d->context) {
        struct err e = {0};
        err_set(&e, HP_EINFEASIBLE, "beside \"%s\" there is no room for its context", d->name);
        lifecycle_stop(c, next, &e);
        return false;
    }
    successor_take_over(c, d, next);
    return false;
}

/* The plan that reads its prompts has ended, for another was wanted: it is made again. */
static void readers_return(struct coord *c, struct deployment *d)
{
    struct err ignored;
    if (d->listener_ask || d->heir || coord_now(c) < d->readers_ns)
        return;
    d->readers_ns = coord_now(c) + coord_ms(DEPLOYMENT_RETRY_MS);
    prefill_plan_begin(c, d, &ignored);
}

static void step_serving(struct coord *c, struct deployment *d)
{
    struct verdict v = d->rebalance ? (struct verdict){VERDICT_OK, d, {0}} : regrowth_step(c, d);
    if (v.kind != VERDICT_OK) {
        lifecycle_judge(c, &v);
        return;
    }
    copies_step(c, d);
    keeper_plan_step(c, d);
    replication_step(c, d);
    readers_return(c, d);
    if (d->unclosed && d->n_active == 0) {
        d->unclosed = false;
        stages_connect(c, d);
    }
    bool drains = !d->rebalance && deployment_stages_drain(d);
    if (rebalance_step(c, d) || (drains && !succession_goes_on(c, d))) {
        deployment_move(c, d, DEPLOYMENT_MOVING);
        d->until_ns = coord_now(c) + coord_ms(DEPLOYMENT_DRAIN_MS);
    }
}

/* What has an heir keeps nothing but what runs, which goes there. */
static void step_last(struct coord *c, struct deployment *d)
{
    struct deployment *heir = deployment_of_id(c, d->heir);
    struct err e = {0};
    if (!heir || heir->state >= DEPLOYMENT_STOPPING) { /* whoever came there now would be lost */
        err_set(&e, HP_ECANCELED, "\"%s\" has ended, and so has the place that it moved to",
                d->name);
        lifecycle_stop(c, d, &e);
        return;
    }
    lifecycle_queue_pass_on(c, d, heir);
    sequences_move(c, d, heir);
    if (d->n_active > 0 && coord_now(c) < d->until_ns)
        return;
    err_set(&e, HP_ELINK, "\"%s\" has moved to another place", d->name);
    lifecycle_pass_on(c, d, heir, &e);
}

static void step_moving(struct coord *c, struct deployment *d)
{
    if (d->heir) {
        step_last(c, d);
        return;
    }
    if (d->n_active > 0 && coord_now(c) < d->until_ns)
        return;
    struct err e = {0};
    err_set(&e, HP_ELINK, "\"%s\" moves away from an agent that is being drained", d->name);
    lifecycle_break(c, d, &e);
}

/* Its room is given back in a moment. */
static bool neighbour_leaves(const struct coord *c, const struct deployment *d)
{
    size_t n = strlen(d->name);
    for (size_t i = 0; i < c->n_deployments; i++) {
        const struct deployment *o = c->deployments[i];
        if (o->state == DEPLOYMENT_STOPPING && strncmp(o->name, d->name, n) == 0 &&
            o->name[n] == '/')
            return true;
    }
    return false;
}

static void step_broken(struct coord *c, struct deployment *d)
{
    if (!d->until_ns || coord_now(c) < d->until_ns || neighbour_leaves(c, d))
        return;
    if (!d->model->open) /* tried again; the failure of the last time is forgotten */
        model_slot_divided(c, d->model, d->model->expert_groups);
    lifecycle_move(c, d, DEPLOYMENT_PLANNED);
}

static void step_stopping(struct coord *c, struct deployment *d)
{
    bool done = coord_now(c) >= d->until_ns;
    if (!done) {
        done = true;
        for (int i = 0; i < d->n_stages; i++)
            done = done &&
                   (d->stages[i].status == STAGE_UNTOLD || !member_present(d->stages[i].agent));
    }
    if (!done)
        return;
    lifecycle_move(c, d, DEPLOYMENT_STOPPED);
    if (d->stop_ask)
        effects_answer_done(c, d->stop_peer, d->stop_ask,
                            json_pack("{s:s, s:s}", "name", d->name, "state", "stopped"));
}

/* What is made for another deployment goes when that one does not want it. */
static void part_step(struct coord *c, struct deployment *d)
{
    struct err e = {0};
    if (d->spec.succeeds[0] && !successor_wanted(c, d))
        err_set(&e, HP_ECANCELED, "\"%s\" needs no successor any more", d->spec.succeeds);
    else if (d->spec.prefill_of[0] && !prefill_plan_wanted(c, d))
        err_set(&e, HP_ECANCELED, "\"%s\" does not have its prompts read so any more",
                d->spec.prefill_of);
    else if (d->spec.copy_of[0] && !keeper_plan_wanted(c, d))
        err_set(&e, HP_ECANCELED, "\"%s\" has its copies kept otherwise now", d->spec.copy_of);
    else if (d->spec.copy_of[0] && deployment_serves(d) && keeper_plan_yields(c, d))
        err_set(&e, HP_ECANCELED, "its room is needed for others");
    if (!e.code)
        return;
    deployment_listener_answer(c, d, NULL, &e);
    lifecycle_stop(c, d, &e);
}

static void deployment_step(struct coord *c, struct deployment *d)
{
    if (d->state < DEPLOYMENT_STOPPING)
        part_step(c, d);
    switch (d->state) {
    case DEPLOYMENT_PLANNED: step_planned(c, d); break;
    case DEPLOYMENT_RECOVERING:
    case DEPLOYMENT_PREPARING: step_preparing(c, d); break;
    case DEPLOYMENT_READY: step_ready(c, d); break;
    case DEPLOYMENT_SERVING: step_serving(c, d); break;
    case DEPLOYMENT_MOVING: step_moving(c, d); break;
    case DEPLOYMENT_BROKEN: step_broken(c, d); break;
    case DEPLOYMENT_STOPPING: step_stopping(c, d); break;
    default: break;
    }
}

void lifecycle_advance(struct coord *c)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        /* A step may open the way for the next; each state is passed at most once, so that nothing
         * goes round here. */
        for (int n = 0, before = -1; n < DEPLOYMENT_STATE_COUNT && d->state != before; n++) {
            before = d->state;
            deployment_step(c, d);
        }
        slices_advance(c, d);
        admission_advance(c, d);
    }
    bool swept = false;
    for (size_t i = c->n_deployments; i-- > 0;)
        if (c->deployments[i]->state == DEPLOYMENT_STOPPED) {
            lifecycle_end(c, c->deployments[i]);
            swept = true;
        }
    if (swept)
        model_slots_sweep(c);
}

void lifecycle_peer_gone(struct coord *c, uint64_t peer)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *d = c->deployments[i];
        if (d->listener_peer == peer)
            d->listener_peer = d->listener_ask = 0;
        if (d->stop_peer == peer)
            d->stop_peer = d->stop_ask = 0;
    }
}
