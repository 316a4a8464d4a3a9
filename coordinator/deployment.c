#include "coordinator/deployment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/suggestion.h"
#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"

#define TO(s) MACHINE_TO(DEPLOYMENT_##s)
const struct machine_state deployment_states[DEPLOYMENT_STATE_COUNT] = {
    [DEPLOYMENT_PLANNED] = {"planned", TO(PREPARING) | TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_RECOVERING] = {"recovering", TO(READY) | TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_PREPARING] = {"preparing", TO(READY) | TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_READY] = {"ready", TO(SERVING) | TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_SERVING] = {"serving", TO(MOVING) | TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_MOVING] = {"moving", TO(SERVING) | TO(BROKEN) | TO(STOPPING)},
    [DEPLOYMENT_BROKEN] = {"broken", TO(PLANNED) | TO(STOPPING)},
    [DEPLOYMENT_STOPPING] = {"stopping", TO(STOPPED)},
    [DEPLOYMENT_STOPPED] = {"stopped", 0},
};

#undef TO

#define TO(s) MACHINE_TO(STAGE_##s)
const struct machine_state stage_statuses[STAGE_STATUS_COUNT] = {
    [STAGE_UNTOLD] = {"untold", TO(WORKING) | TO(HERE)},
    [STAGE_WORKING] = {"working", TO(UNTOLD) | TO(HERE)},
    [STAGE_HERE] = {"here", TO(UNTOLD)},
};
#undef TO

struct deployment *deployment_find(struct coord *c, const char *name)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (c->deployments[i]->state < DEPLOYMENT_STOPPING &&
            strcmp(c->deployments[i]->name, name) == 0)
            return c->deployments[i];
    return NULL;
}

bool deployment_has_face(const struct deployment *d)
{
    return !strchr(d->name, '/');
}

int deployment_missing(const struct coord *c, const char *name, struct err *e)
{
    struct suggestion near = {0};
    for (size_t i = 0; i < c->n_deployments; i++)
        if (c->deployments[i]->state < DEPLOYMENT_STOPPING &&
            deployment_has_face(c->deployments[i]))
            suggestion_try(&near, name, c->deployments[i]->name);
    err_set(e, HP_ENOENT, "there is no deployment \"%.100s\"", name);
    return near.best ? err_hint(e, "did you mean \"%s\"? `hpctl ps` lists them", near.best)
                     : HP_ENOENT;
}

void deployment_partner_name(const struct deployment *d, char out[DEPLOYMENT_NAME])
{
    snprintf(out, DEPLOYMENT_NAME, "%.*s/prefill", DEPLOYMENT_NAME - 1 - DEPLOYMENT_PARTNER_ENDING,
             d->name);
}

const char *deployment_readers(const struct deployment *d)
{
    if (!deployment_reads_auto(&d->spec))
        return d->spec.prefill;
    const json_t *apart = d->plan ? json_object_get(d->plan->document, "apart") : NULL;
    const char *readers = json_is_true(json_object_get(apart, "chosen"))
                              ? json_string_value(json_object_get(apart, "prefill"))
                              : NULL;
    return readers ? readers : "";
}

struct deployment *deployment_partner(struct coord *c, const struct deployment *d)
{
    char name[DEPLOYMENT_NAME];
    if (d->spec.prefill_of[0])
        return deployment_find(c, d->spec.prefill_of);
    if (!deployment_readers(d)[0])
        return NULL;
    deployment_partner_name(d, name);
    return deployment_find(c, name);
}

struct deployment *deployment_of_id(struct coord *c, uint64_t id)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (c->deployments[i]->id == id)
            return c->deployments[i];
    return NULL;
}

struct deployment *deployment_add(struct coord *c, const char *name)
{
    struct deployment *d = calloc(1, sizeof *d);
    if (!d || !vector_push(c->deployments, c->n_deployments, c->room_deployments, d)) {
        free(d);
        return NULL;
    }
    utf8_copy(d->name, sizeof d->name, name);
    d->since_ns = coord_now(c);
    return d;
}

void deployment_remove(struct coord *c, struct deployment *d)
{
    for (size_t i = c->n_deployments; i-- > 0;)
        if (c->deployments[i] == d) {
            vector_remove(c->deployments, c->n_deployments, i);
            break;
        }
    deployment_stages_free(d);
    deployment_spec_free(&d->spec);
    deployment_plan_release(&d->plan);
    stage_layout_release(&d->served);
    stage_layout_release(&d->wish);
    stage_layout_release(&d->fallback);
    json_decref(d->rebalanced);
    free(d);
}

/* ---- stages ---- */

void deployment_stages_free(struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++) {
        free(d->stages[i].wanted);
        free(d->stages[i].asked);
    }
    free(d->stages);
    d->stages = NULL;
    d->n_stages = 0;
}

static struct deployment_stage *stage_from(struct deployment *d, const struct member *m, int from)
{
    for (int i = from; i < d->n_stages; i++)
        if (d->stages[i].agent == m)
            return &d->stages[i];
    return NULL;
}

struct deployment_stage *deployment_stage_of(struct deployment *d, const struct member *m)
{
    return stage_from(d, m, 0);
}

struct deployment_stage *deployment_stage_next(struct deployment *d,
                                               const struct deployment_stage *s)
{
    return stage_from(d, s->agent, (int)(s - d->stages) + 1);
}

struct deployment_stage *deployment_stage_at(struct deployment *d, const struct member *m,
                                             uint64_t number)
{
    bool mine = number < (uint64_t)d->n_stages && d->stages[number].agent == m;
    return mine ? &d->stages[number] : NULL;
}

bool deployment_stages_here(const struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].status != STAGE_HERE || !member_present(d->stages[i].agent))
            return false;
    return d->n_stages > 0;
}

uint64_t deployment_generation_ahead(const struct coord *c, const struct deployment *d,
                                     const struct member *only)
{
    uint64_t newest = d->generation;
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        for (size_t k = 0; (!only || m == only) && k < m->n_held; k++) {
            uint64_t held = m->held[k].generation;
            bool ahead = m->held[k].deployment == d->id && held > newest;
            newest = ahead && held - d->generation <= UINT32_MAX ? held : newest;
        }
    }
    return newest > d->generation ? newest : 0;
}

const struct message_held_stage *deployment_stage_held(const struct deployment *d,
                                                       const struct deployment_stage *s)
{
    const struct member *m = s->agent;
    for (size_t i = 0; i < m->n_held; i++)
        if (m->held[i].deployment == d->id && m->held[i].generation == d->generation &&
            m->held[i].stage == (uint64_t)(s - d->stages))
            return &m->held[i];
    return NULL;
}

bool deployment_stages_drain(const struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].agent->drain == MEMBER_LEAVES)
            return true;
    return false;
}

const struct deployment *deployment_using(struct coord *c, const struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++)
        if (deployment_stage_of(c->deployments[i], m))
            return c->deployments[i];
    return NULL;
}

bool deployments_use(struct coord *c, const struct member *m)
{
    return deployment_using(c, m) != NULL;
}

/* ---- setters ---- */

void deployment_move(struct coord *c, struct deployment *d, int to)
{
    log_info("coordinator", "deployment", "name=%s generation=%llu from=%s to=%s%s%s%s", d->name,
             (unsigned long long)d->generation, deployment_states[d->state].word,
             deployment_states[to].word, d->why.code ? " why=\"" : "",
             d->why.code ? d->why.text : "", d->why.code ? "\"" : "");
    machine_move(deployment_states, &d->state, to);
    d->since_ns = coord_now(c);
    d->until_ns = 0;
}

void deployment_retry(const struct coord *c, struct deployment *d)
{
    if (d->state == DEPLOYMENT_BROKEN)
        d->until_ns = coord_now(c) ? coord_now(c) : 1; /* 0 would be no deadline */
}

void deployment_stage_move(struct deployment_stage *s, int to)
{
    if (s->status != to)
        machine_move(stage_statuses, &s->status, to);
}

void deployment_listener_answer(struct coord *c, struct deployment *d, json_t *result,
                                const struct err *why)
{
    if (!d->listener_ask) {
        json_decref(result);
        return;
    }
    if (why)
        effects_answer_error(c, d->listener_peer, d->listener_ask, why);
    else
        effects_answer_done(c, d->listener_peer, d->listener_ask, result);
    d->listener_peer = d->listener_ask = 0;
}
