#include "coordinator/stage_reports.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/arrivals.h"
#include "coordinator/copies.h"
#include "coordinator/describe.h"
#include "coordinator/effects.h"
#include "coordinator/lost_hop.h"
#include "coordinator/member.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_orders.h"
#include "coordinator/stages.h"
#include "transport/stage_state.h"

void stage_reports_tell(struct coord *c, struct deployment *d, bool now)
{
    if (!d->listener_ask || (!now && coord_now(c) - d->told_ns < coord_ms(DEPLOYMENT_PROGRESS_MS)))
        return;
    d->told_ns = coord_now(c);
    effects_answer(c, d->listener_peer, d->listener_ask, true,
                   json_pack("{s:s, s:s, s:o}", "phase", "prepare", "name", d->name, "stages",
                             describe_stages(d)));
}

/* Its agent has had orders of a newer generation, and nobody here knows of which: the time is above
 * every count of generations, and is tried at once. */
static bool generation_leap(const struct coord *c, struct deployment *d)
{
    uint64_t time_s = coord_unix_s(c);
    if (d->generation >= time_s)
        return false;
    d->generation = time_s;
    return true;
}

static struct verdict stage_failed(struct coord *c, struct deployment *d, struct member *m,
                                   const struct deployment_stage *stage,
                                   const struct message_stage_state *s)
{
    bool preparing = deployment_prepares(d);
    int code = coord_failure_code(s->code);
    bool again = !preparing || (code == HP_ESTALE && generation_leap(c, d));
    struct verdict v = {again ? VERDICT_BREAK : VERDICT_FAIL, d, {0}};
    if (code == HP_EDEVICE)
        member_device_lose(m, stage->device, s->text);
    if (preparing && code == HP_ENOMEM && !d->spec.copy_of[0])
        member_device_shorten(m, stage->device);
    err_set(&v.why, code, "agent \"%s\" %s: %s", m->name,
            preparing ? "could not prepare its stage" : "lost its stage", s->text);
    if (s->hint && s->hint[0])
        err_hint(&v.why, "%s", s->hint);
    return v;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void stage_told(struct coord *c, struct deployment *d, struct deployment_stage *stage,
                       const struct message_stage_state *s)
{
    bool turned = strcmp(stage->word, s->state) != 0;
    if (turned || s->done_bytes != stage->done_bytes || s->wanted.count != stage->n_wanted)
        stage->progress_ns = coord_now(c);
    utf8_copy(stage->word, sizeof stage->word, s->state);
    arrivals_hear(c, d, stage, s->missing_bytes);
    stage->done_bytes = s->done_bytes;
    stage->total_bytes = s->total_bytes;
    if (s->moved_bytes > stage->moved_bytes)
        stage->moved_bytes = s->moved_bytes;
    if (!vector_reserve(stage->wanted, stage->room_wanted, s->wanted.count))
        return; /* its next word says it again */
    stage->n_wanted = s->wanted.count;
    utf8_copy(stage->wanted_why, sizeof stage->wanted_why, s->wanted.count ? s->text : "");
    if (s->wanted.count) {
        memcpy(stage->wanted, s->wanted.items, s->wanted.count * sizeof *stage->wanted);
        qsort(stage->wanted, stage->n_wanted, sizeof *stage->wanted, by_number);
    }
    if (stage_state_of_word(s->state) == STAGE_READY) {
        if (stage->status != STAGE_HERE)
            log_info("coordinator", "stage_ready",
                     "deployment=%s generation=%llu agent=%s layers=%d-%d moved_bytes=%llu",
                     d->name, (unsigned long long)d->generation, stage->agent->name,
                     stage->first_layer, stage->end_layer - 1,
                     (unsigned long long)stage->moved_bytes);
        deployment_stage_move(stage, STAGE_HERE);
    }
    stage_reports_tell(c, d, turned);
}

struct verdict stage_reports_state(struct coord *c, struct member *m,
                                   const struct message_stage_state *s)
{
    struct verdict fine = {VERDICT_OK, NULL, {0}};
    struct deployment *d = deployment_of_id(c, s->deployment);
    struct deployment_stage *stage = d ? deployment_stage_at(d, m, s->stage) : NULL;
    enum stage_state state = stage_state_of_word(s->state);
    bool unloaded = state == STAGE_UNLOADED;
    if (copies_told(c, m, s))
        return fine;
    if (stage && unloaded && d->state == DEPLOYMENT_STOPPING) {
        deployment_stage_move(stage, STAGE_UNTOLD);
        return fine;
    }
    if (!stage || unloaded || s->generation != d->generation ||
        (!deployment_prepares(d) && !deployment_serves(d))) {
        c->counts.stale += !unloaded;
        return fine;
    }
    if (state == STAGE_FAILED)
        return stage_failed(c, d, m, stage, s);
    stage_told(c, d, stage, s);
    return fine;
}

/* Orders that are still on their way are given time. */
static bool stage_is_settled(const struct coord *c, const struct deployment *d,
                             const struct deployment_stage *s)
{
    uint64_t now = coord_now(c), joined = s->agent->joined_ns,
             last = s->told_ns > joined ? s->told_ns : joined;
    return now - last > coord_ms(DEPLOYMENT_SETTLE_MS) &&
           now - d->since_ns > coord_ms(DEPLOYMENT_SETTLE_MS);
}

static bool stage_is_ready(const struct deployment *d, const struct deployment_stage *s)
{
    const struct message_held_stage *h = deployment_stage_held(d, s);
    return h && stage_state_of_word(h->state) == STAGE_READY;
}

struct verdict stage_reports_held(struct coord *c, struct deployment *d, struct deployment_stage *s)
{
    struct verdict v = {VERDICT_OK, d, {0}};
    const struct message_held_stage *h = deployment_stage_held(d, s);
    bool ready = stage_is_ready(d, s), settled = stage_is_settled(c, d, s);
    if (h) {
        sequence_deadline_stage(c, s, h);
        arrivals_hear(c, d, s, h->missing_bytes);
    }
    lost_hop_heartbeat(c, d);
    s->hop_heard |= h && h->hop_heard;
    uint64_t ahead = deployment_prepares(d) ? deployment_generation_ahead(c, d, s->agent) : 0;
    if (ahead) { /* it drops what is ordered of an older one */
        v.kind = VERDICT_BREAK;
        err_set(&v.why, HP_ESTALE,
                "agent \"%s\" has had orders of generation %llu of \"%s\", the coordinator's store "
                "knows of %llu",
                s->agent->name, (unsigned long long)ahead, d->name,
                (unsigned long long)d->generation);
    } else if (deployment_prepares(d) && s->status == STAGE_WORKING) {
        if (ready)
            deployment_stage_move(s, STAGE_HERE);
        else if (!h && settled)
            deployment_stage_move(s, STAGE_UNTOLD);
    } else if (deployment_serves(d) && !ready && settled) {
        v.kind = VERDICT_BREAK;
        err_set(&v.why, HP_ELINK, "agent \"%s\" does not hold its stage of \"%s\" any more",
                s->agent->name, d->name);
    } else if (d->state == DEPLOYMENT_STOPPING && !h) {
        deployment_stage_move(s, STAGE_UNTOLD);
    }
    return v;
}

void stage_reports_sweep(struct coord *c, struct member *m,
                         bool (*is_other)(const struct coord *c, uint64_t deployment))
{
    for (size_t i = 0; i < m->n_held; i++) {
        const struct message_held_stage *h = &m->held[i];
        struct deployment *d = deployment_of_id(c, h->deployment);
        bool mine = d && h->generation == d->generation && deployment_stage_at(d, m, h->stage),
             old = d && deployment_serves(d) && !mine;
        if (is_other(c, h->deployment))
            continue;
        if (!d || old || d->state == DEPLOYMENT_STOPPING)
            stages_unload(c, m, h->deployment, h->generation);
        else if ((h->sequences || h->kept) && !deployment_serves(d) && !(mine && d->keeps))
            sequence_orders_close_all(c, m, h);
    }
}

struct verdict stage_reports_joined(struct coord *c, struct deployment *d, const struct member *m)
{
    struct verdict v = {VERDICT_OK, d, {0}};
    bool ready = true;
    for (struct deployment_stage *s = deployment_stage_of(d, m); s;
         s = deployment_stage_next(d, s)) {
        ready = ready && stage_is_ready(d, s);
        if (deployment_prepares(d))
            deployment_stage_move(s, stage_is_ready(d, s) ? STAGE_HERE : STAGE_UNTOLD);
    }
    if (d->state == DEPLOYMENT_READY && ready) {
        stages_connect(c, d);
    } else if (deployment_serves(d) && ready) {
        /* The same process over a new connection: what was said meanwhile may be lost, so its
         * sequences are; its weights are not. */
        struct err e = {0};
        err_set(&e, HP_ELINK, "the connection to agent \"%s\" was lost for a moment", m->name);
        sequences_lose_all(c, d, &e);
        stages_connect(c, d);
    } else if (deployment_serves(d) || d->state == DEPLOYMENT_READY) {
        v.kind = VERDICT_BREAK;
        err_set(&v.why, HP_ELINK, "agent \"%s\" was restarted", m->name);
    }
    return v;
}
