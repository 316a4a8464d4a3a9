#include "coordinator/rebalance.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement.h"
#include "coordinator/profiling.h"
#include "coordinator/rebalance_report.h"
#include "coordinator/successors.h"

struct rebalance {
    struct rebalance_wish wish;
    enum {
        REBALANCE_PLANS,    /* measures what nobody has, and plans */
        REBALANCE_PREPARES, /* its successor fetches and loads */
        REBALANCE_MOVES,    /* it is the successor, and serves: what runs comes to it */
    } phase;
    uint64_t begun_ns, served_ns;
    uint64_t moved_before, failed_before; /* the deployment's handoffs then */
    json_t *report;                       /* NULL while it is planned */
};

void rebalance_free(struct deployment *d)
{
    if (!d->rebalance)
        return;
    json_decref(d->rebalance->report);
    free(d->rebalance);
    d->rebalance = NULL;
    d->beside = d->yields = false;
}

/* ---- whether it may ---- */

static int deployment_can_move(const struct deployment *d, struct err *e)
{
    const struct deployment_spec *s = &d->spec;
    if (!deployment_has_face(d))
        return err_set(e, HP_EINVAL, "\"%s\" is part of another deployment", d->name);
    if (s->with_layers || s->planned) {
        err_set(e, HP_EINFEASIBLE,
                "\"%s\" stays: its layers were put where they are by hand (--layers or --plan)",
                d->name);
        return err_hint(e, "deploy it without them, and the planner places it");
    }
    if (s->prefill[0])
        return err_set(e, HP_EINFEASIBLE,
                       "\"%s\" stays: prompts are read by a plan of their own (--prefill), and two "
                       "plans do not move together",
                       d->name);
    if (!d->model->facts.kv_before)
        return err_set(e, HP_EINFEASIBLE,
                       "\"%s\" stays: what this model keeps of a sequence cannot be handed over",
                       d->name);
    return 0;
}

static int deployment_is_still(struct coord *c, const struct deployment *d, struct err *e)
{
    if (d->state != DEPLOYMENT_SERVING) {
        err_set(e, HP_EBUSY, "\"%s\" does not serve: it is %s", d->name,
                deployment_states[d->state].word);
        return err_hint(e, "rebalance it when `hpctl ps` says that it serves");
    }
    bool before = false;
    for (size_t i = 0; i < c->n_deployments; i++)
        before = before || c->deployments[i]->heir == d->id;
    if (d->rebalance || before || d->leaves == DEPLOYMENT_LEAVES_ASKED ||
        deployment_stages_drain(d))
        return err_set(e, HP_EBUSY, "\"%s\" is being moved already", d->name);
    return 0;
}

int rebalance_start(struct coord *c, struct deployment *d, const struct rebalance_wish *w,
                    struct err *e)
{
    int rc = deployment_can_move(d, e);
    rc = rc < 0 ? rc : deployment_is_still(c, d, e);
    if (rc < 0)
        return rc;
    if (!(w->margin >= 0 && w->margin <= REBALANCE_MOST_MARGIN))
        return err_set(e, HP_EINVAL, "--margin %g is out of range: 0 to %g", w->margin,
                       REBALANCE_MOST_MARGIN);
    d->rebalance = calloc(1, sizeof *d->rebalance);
    if (!d->rebalance)
        return err_set(e, HP_ENOMEM, "no memory for rebalancing");
    d->rebalance->wish = *w;
    d->rebalance->begun_ns = coord_now(c);
    d->beside = true;
    d->profile_until_ns = 0; /* agents of a new kind may have come */
    return 0;
}

/* ---- how it ends ---- */

/* Takes the report. */
static void rebalance_end(struct coord *c, struct deployment *d, json_t *report)
{
    const struct rebalance *r = d->rebalance;
    json_object_set_new(report, "at_s", json_integer((json_int_t)coord_unix_s(c)));
    if (!r->wish.dry || d->watch.asked) {
        json_decref(d->rebalanced);
        d->rebalanced = json_incref(report);
    }
    log_info("coordinator", "rebalance", "deployment=%s verdict=%s why=\"%s\"", d->name,
             json_string_value(json_object_get(report, "verdict")),
             json_string_value(json_object_get(report, "why")));
    if (r->wish.ask && r->wish.dry)
        effects_answer(c, r->wish.peer, r->wish.ask, false, report);
    else if (r->wish.ask)
        effects_answer_done(c, r->wish.peer, r->wish.ask, report);
    else
        json_decref(report);
    rebalance_free(d);
}

static void rebalance_fail(struct coord *c, struct deployment *d, const struct err *why)
{
    struct rebalance *r = d->rebalance;
    log_info("coordinator", "rebalance_failed", "deployment=%s why=\"%s\"", d->name, why->text);
    if (r->phase == REBALANCE_PLANS)
        placement_cancel(d);
    if (r->wish.ask)
        effects_answer_error(c, r->wish.peer, r->wish.ask, why);
    d->watch.failure = why->code;
    if (!r->wish.dry || d->watch.asked) {
        json_decref(d->rebalanced);
        d->rebalanced = json_pack("{s:s, s:s, s:I}", "verdict", "failed", "why", why->text, "at_s",
                                  (json_int_t)coord_unix_s(c));
    }
    d->succession_tried = false;
    rebalance_free(d); /* its successor ends: nobody wants it any more */
}

void rebalance_break(struct coord *c, struct deployment *d, const struct err *why)
{
    struct deployment *before = deployment_find(c, d->spec.succeeds);
    struct err e = {0};
    if (d->rebalance)
        rebalance_fail(c, d, why);
    if (!before || !before->rebalance || !before->yields)
        return;
    err_set(&e, why->code, "\"%s\" stays: its new place could not be prepared: %s", before->name,
            why->text);
    rebalance_fail(c, before, &e);
}

void rebalances_peer_gone(struct coord *c, uint64_t peer)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct rebalance *r = c->deployments[i]->rebalance;
        if (r && r->wish.peer == peer)
            r->wish.peer = r->wish.ask = 0;
    }
}

/* ---- the decision ---- */

static void verdict_set(json_t *report, const char *verdict, const char *why)
{
    json_object_set_new(report, "verdict", json_string(verdict));
    json_object_set_new(report, "why", json_string(why));
}

static void successor_prepare(struct coord *c, struct deployment *d, const struct placement *p)
{
    struct rebalance *r = d->rebalance;
    struct err e = {0};
    d->beside = false;
    d->yields = true;
    d->succession_tried = false;
    if (!successor_begin(c, d, p->layout)) {
        err_set(&e, HP_EINFEASIBLE,
                "\"%s\" stays: no successor of it could be made (the coordinator's log says why)",
                d->name);
        rebalance_fail(c, d, &e);
        return;
    }
    r->phase = REBALANCE_PREPARES;
    if (r->wish.ask)
        effects_answer(c, r->wish.peer, r->wish.ask, true, json_deep_copy(r->report));
}

static void rebalance_decide(struct coord *c, struct deployment *d, const struct placement *p)
{
    struct rebalance *r = d->rebalance;
    struct err e = {0};
    char why[200];
    double gain = rebalance_gain(p);
    if (rebalance_report(c, d, p, &r->report, &e) < 0) {
        rebalance_fail(c, d, &e);
        return;
    }
    json_object_set_new(r->report, "margin", json_real(r->wish.margin));
    bool same = rebalance_same_place(d, p->layout), pays = !same && gain >= r->wish.margin;
    if (same)
        snprintf(why, sizeof why, "the planner would place it as it is");
    else
        snprintf(why, sizeof why,
                 "a request is done %.3g times as fast in the planner's place, and %s from %.3g "
                 "times on (--margin %.3g)",
                 1 + gain, pays ? "it moves" : "it would move", 1 + r->wish.margin, r->wish.margin);
    verdict_set(r->report, !pays ? "stays" : r->wish.dry ? "would_move" : "moving", why);
    if (pays && !r->wish.dry)
        successor_prepare(c, d, p);
    else
        rebalance_end(c, d, json_incref(r->report));
}

static void plan_take(struct coord *c, struct deployment *d)
{
    struct placement p;
    struct err why = {0}, e = {0};
    if (profiling_awaited(c, d))
        return;
    int rc = placement_make(c, d, &p, &why);
    if (rc > 0)
        return;
    if (rc < 0) {
        err_set(&e, rc, "\"%s\" stays: %s%s", d->name,
                rc == HP_EINFEASIBLE ? "beside its stages there is no room for it: " : "",
                why.text);
        rebalance_fail(c, d, &e);
        return;
    }
    rebalance_decide(c, d, &p);
    placement_free(&p);
}

/* ---- the move ---- */

/* True: the successor has taken over, and goes on with this. */
static bool successor_step(struct coord *c, struct deployment *d)
{
    struct rebalance *r = d->rebalance;
    struct deployment *next = successor_of(c, d);
    struct err e = {0};
    if (next && next->state == DEPLOYMENT_SERVING) {
        successor_take_over(c, d, next);
        r->phase = REBALANCE_MOVES;
        r->served_ns = coord_now(c);
        r->moved_before = next->handoffs.moved;
        r->failed_before = next->handoffs.failed;
        next->rebalance = r;
        next->watch = d->watch;
        d->rebalance = NULL;
        d->yields = false;
        return true;
    }
    if (!next)
        err_set(&e, HP_ECANCELED, "\"%s\" stays: its successor has ended", d->name);
    else if (coord_now(c) - r->begun_ns >= coord_ms(REBALANCE_PREPARE_MS))
        err_set(&e, HP_ETIMEOUT, "\"%s\" stays: its successor was not ready within %d s", d->name,
                REBALANCE_PREPARE_MS / 1000);
    if (e.code)
        rebalance_fail(c, d, &e);
    return false;
}

/* Nothing is left of the place before. */
static void arrival_step(struct coord *c, struct deployment *d)
{
    struct rebalance *r = d->rebalance;
    uint64_t fetched = 0;
    for (size_t i = 0; i < c->n_deployments; i++)
        if (c->deployments[i]->heir == d->id)
            return;
    for (int i = 0; i < d->n_stages; i++)
        fetched += d->stages[i].moved_bytes;
    json_t *done = json_pack(
        "{s:f, s:f, s:I, s:I, s:I}", "prepared_s", (double)(r->served_ns - r->begun_ns) * 1e-9,
        "took_s", (double)(coord_now(c) - r->begun_ns) * 1e-9, "fetched_bytes", (json_int_t)fetched,
        "moved", (json_int_t)(d->handoffs.moved - r->moved_before), "failed",
        (json_int_t)(d->handoffs.failed - r->failed_before));
    json_object_set_new(r->report, "done", done);
    json_object_set_new(r->report, "verdict", json_string("moved"));
    rebalance_end(c, d, json_incref(r->report));
}

bool rebalance_step(struct coord *c, struct deployment *d)
{
    if (!d->rebalance)
        return false;
    if (d->rebalance->phase == REBALANCE_PREPARES)
        return successor_step(c, d);
    if (d->rebalance->phase == REBALANCE_MOVES) {
        arrival_step(c, d);
    } else if (deployment_stages_drain(d)) {
        struct err e = {0};
        err_set(&e, HP_ECANCELED, "\"%s\" leaves an agent that is being drained", d->name);
        rebalance_fail(c, d, &e);
    } else {
        plan_take(c, d);
    }
    return false;
}
