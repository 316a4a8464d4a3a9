/* Owns a stage's way from `stage_prepare` to `stage_unload`: which weights it keeps over
 * generations, its links, its session, and what the coordinator hears of it. */
#include "agent/core_stages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/borders.h"
#include "agent/core_alive.h"
#include "agent/core_copies.h"
#include "agent/core_links.h"
#include "agent/core_sequences.h"
#include "agent/core_sessions.h"
#include "agent/core_shares.h"
#include "agent/core_slots.h"
#include "agent/core_spills.h"
#include "common/log.h"
#include "common/vector.h"
#include "model/graph/config.h"

/* ---- prepare ---- */

static int prepare_check(const struct agent_core *c, const struct message_stage_prepare *p,
                         struct err *e)
{
    if (p->device >= c->n_devices)
        return err_set(e, HP_EINVAL, "device %llu: this agent has %zu",
                       (unsigned long long)p->device, c->n_devices);
    if (!p->n_stages || p->n_stages > QUEUE_MAX_STAGES || p->stage >= p->n_stages)
        return err_set(e, HP_EINVAL, "stage %llu of %llu stages", (unsigned long long)p->stage,
                       (unsigned long long)p->n_stages);
    if (p->first_layer >= p->end_layer || p->end_layer > INT32_MAX)
        return err_set(e, HP_EINVAL, "layers %llu to %llu", (unsigned long long)p->first_layer,
                       (unsigned long long)p->end_layer);
    if (p->expert_groups > MODEL_EXPERTS_MAX)
        return err_set(e, HP_EINVAL, "experts in %llu groups: at most %d are known",
                       (unsigned long long)p->expert_groups, MODEL_EXPERTS_MAX);
    if (strcmp(p->compute, "auto") != 0 && strcmp(p->compute, "f32") != 0)
        return err_set(e, HP_EUNSUPPORTED, "compute \"%s\" is not known; auto and f32 are",
                       p->compute);
    enum frame_dtype wire;
    if (!frame_dtype_of_word(p->wire, &wire))
        return err_set(e, HP_EUNSUPPORTED,
                       "wire \"%.40s\" is not known; it can be " FRAME_DTYPES_KNOWN, p->wire);
    enum kv_format kv;
    if (!kv_format_of_word(p->kv, false, &kv))
        return err_set(e, HP_EUNSUPPORTED, "kv \"%.40s\" is not known; f16, f32 and q8_0 are",
                       p->kv);
    if (!p->max_batch_tokens || p->max_batch_tokens > UINT32_MAX || !p->max_sequences ||
        p->max_sequences > FRAME_MAX_RUNS || !p->kv_tokens)
        return err_set(e, HP_EINVAL,
                       "a stage needs kv_tokens, max_batch_tokens and max_sequences of at least 1, "
                       "and has at most %d sequences",
                       FRAME_MAX_RUNS);
    if (p->model.size != 32)
        return err_set(e, HP_EINVAL, "a model's id has 32 bytes, this has %zu", p->model.size);
    return 0;
}

static void stage_start(struct agent_core *c, struct message_ref *m)
{
    const struct message_stage_prepare *p = &m->message.u.stage_prepare;
    struct err e = {0};
    if (prepare_check(c, p, &e) < 0) {
        core_stage_report_without(c, p, STAGE_FAILED, &e);
        return;
    }
    struct core_stage *s = core_stage_add(c, m);
    if (s)
        frame_dtype_of_word(p->wire, &s->wire);
}

/* The weights that are there, or being loaded, serve the new generation too. */
static bool stage_is_adoptable(const struct agent_core *c, const struct core_stage *s,
                               const struct message_stage_prepare *p)
{
    const struct message_stage_prepare *have = &s->prepare;
    bool f32 = strcmp(p->compute, "f32") == 0;
    enum frame_dtype wire;
    enum kv_format kv, had;
    return frame_dtype_of_word(p->wire, &wire) && wire == s->wire &&
           kv_format_of_word(p->kv, f32, &kv) && kv_format_of_word(have->kv, f32, &had) &&
           kv == had && p->keeps == have->keeps &&
           (s->state == STAGE_READY || s->state == STAGE_LOADING || s->state == STAGE_WARMING) &&
           prepare_check(c, p, NULL) == 0 && have->device == p->device &&
           have->model.size == p->model.size &&
           memcmp(have->model.data, p->model.data, p->model.size) == 0 &&
           have->first_layer == p->first_layer && have->end_layer == p->end_layer &&
           have->expert_groups == p->expert_groups && strcmp(have->compute, p->compute) == 0 &&
           p->kv_tokens <= s->loaded_kv_tokens && p->max_sequences <= s->loaded_sequences &&
           p->max_batch_tokens <= s->loaded_batch_tokens && have->stands_for <= p->stands_for &&
           have->stands_for >= p->stands_for;
}

static void stage_adopt(struct agent_core *c, struct core_stage *s, struct message_ref *m)
{
    core_queue_destroy(c, s);
    uint64_t old_session = s->prepare.session, old_input_session = s->prepare.input_session;
    message_ref_hold(m);
    message_ref_release(s->message);
    s->message = m;
    s->prepare = m->message.u.stage_prepare;
    s->connected = s->link_broken = false;
    core_hop_reset(s);
    s->batches_done = s->tokens_done = 0;
    s->busy_s = s->planned_s = 0;
    core_stage_sessions_allow(c, s);
    core_stage_sessions_revoke(c, old_session, old_input_session);
    log_info("agent", "stage_kept", "deployment=%llu generation=%llu stage=%llu/%llu state=%s",
             (unsigned long long)s->prepare.deployment, (unsigned long long)s->prepare.generation,
             (unsigned long long)s->prepare.stage, (unsigned long long)s->prepare.n_stages,
             stage_states[s->state].word);
    struct err e = {0};
    if (s->state == STAGE_READY && core_queue_create(c, s, &e) < 0) {
        core_stage_fail(c, s, &e);
        return;
    }
    core_stage_report(c, s);
    if (s->state == STAGE_READY)
        core_spills_begin(c, s);
}

/* The stage that the deployment has on this device: it is kept, or makes room. A stage of the same
 * name elsewhere, which has failed, goes too. */
static struct core_stage *stage_predecessor(struct agent_core *c,
                                            const struct message_stage_prepare *p)
{
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->prepare.deployment == p->deployment &&
            c->stages[i]->prepare.device == p->device && !c->stages[i]->is_share)
            return c->stages[i];
    return core_stage_of(c, p->deployment, p->generation, p->stage);
}

/* Nobody waits for an old order's answer but a coordinator whose store is behind what it has
 * ordered: that one tries again with the next generation. */
static void order_refuse(struct agent_core *c, const struct message_stage_prepare *p)
{
    struct err e = {0};
    c->dropped_stale++;
    if (p->copy || p->generation < core_deployment_generation(c, p->deployment))
        return;
    err_set(&e, HP_ESTALE, "it has had orders of generation %llu of this deployment, this is %llu",
            (unsigned long long)core_orders_term(c, p->deployment),
            (unsigned long long)p->generation);
    core_stage_report_without(c, p, STAGE_FAILED, &e);
}

void core_stage_prepare(struct agent_core *c, struct message_ref *m)
{
    const struct message_stage_prepare *p = &m->message.u.stage_prepare;
    if (p->share.count > 0) { /* plans of pools stand beside each other */
        core_share_prepare(c, m);
        return;
    }
    if (p->generation < core_orders_term(c, p->deployment)) {
        order_refuse(c, p);
        return;
    }
    if (p->copy) {
        core_copy_begin(c, m);
        return;
    }
    core_orders_term_take(c, p->deployment, p->generation);
    struct core_stage *s = core_stage_of(c, p->deployment, p->generation, p->stage);
    if (s && s->state != STAGE_FAILED) {
        core_stage_report(c, s);
        return;
    }
    s = stage_predecessor(c, p);
    if (s && s->prepare.generation < p->generation && stage_is_adoptable(c, s, p)) {
        stage_adopt(c, s, m);
        return;
    }
    for (; s; s = stage_predecessor(c, p))
        core_stage_drop(c, s);
    stage_start(c, m);
}

/* ---- how fetching and loading go ---- */

static void progress_take(struct core_stage *s, const struct agent_progress *p)
{
    s->done_bytes = p->done_bytes;
    s->total_bytes = p->total_bytes;
    s->moved_bytes = p->moved_bytes > s->moved_bytes ? p->moved_bytes : s->moved_bytes;
    if (p->status == HP_PENDING)
        s->error = p->error ? *p->error : (struct err){0};
    if (!vector_reserve(s->wanted, s->room_wanted, p->wanted.count))
        return;
    s->n_wanted = p->wanted.count;
    if (s->n_wanted)
        memcpy(s->wanted, p->wanted.items, s->n_wanted * sizeof *s->wanted);
}

void core_stage_fetched(struct agent_core *c, const struct agent_event *ev)
{
    const struct agent_progress *p = &ev->u.progress;
    struct core_stage *s = core_stage_of_slot(c, p->slot);
    if (core_copy_fetched(c, p) || !s || s->state != STAGE_FETCHING || s->ticket != p->ticket)
        return;
    progress_take(s, p);
    if (p->status == HP_PENDING) {
        core_stage_report(c, s);
    } else if (p->status < 0) {
        core_stage_fail(c, s, p->error);
    } else {
        s->loaded_kv_tokens = s->prepare.kv_tokens;
        s->loaded_sequences = s->prepare.max_sequences;
        s->loaded_batch_tokens = s->prepare.max_batch_tokens;
        core_stage_work(c, s, AGENT_DO_LOAD);
        core_stage_move(c, s, STAGE_LOADING);
    }
}

void core_stage_loaded(struct agent_core *c, const struct agent_event *ev)
{
    const struct agent_progress *p = &ev->u.progress;
    struct core_stage *s = core_stage_of_slot(c, p->slot);
    if (!s || (s->state != STAGE_LOADING && s->state != STAGE_WARMING) || s->ticket != p->ticket)
        return;
    progress_take(s, p);
    struct err e = {0};
    if (p->status == HP_PENDING) {
        if (p->warming && s->state == STAGE_LOADING)
            core_stage_move(c, s, STAGE_WARMING);
        else
            core_stage_report(c, s);
        return;
    }
    if (p->status < 0) {
        core_stage_fail(c, s, p->error);
        return;
    }
    s->loaded = true;
    if (s->is_share) {
        core_stage_move(c, s, STAGE_READY);
        return;
    }
    s->outputs = p->outputs;
    s->row_in = p->row_in;
    s->row_out = p->row_out;
    s->kv = p->kv;
    s->vocabulary = p->vocabulary;
    s->row_width = p->row_width ? p->row_width : p->vocabulary;
    if (core_queue_create(c, s, &e) < 0) {
        core_stage_fail(c, s, &e);
        return;
    }
    core_stage_move(c, s, STAGE_READY);
    core_spills_begin(c, s);
}

/* ---- links ---- */

/* Does the next stage take what this one was made to hand on? */
static int connect_check(const struct core_stage *s, const struct message_stage_connect *m,
                         struct err *e)
{
    enum frame_dtype wire;
    bool told = m->wire && m->wire[0];
    if (told && (!frame_dtype_of_word(m->wire, &wire) || wire != s->wire))
        return err_set(e, HP_EINVAL,
                       "stage %llu was prepared to hand on %s, and the next stage is to take %.20s",
                       (unsigned long long)m->stage, frame_dtype_word(s->wire), m->wire);
    return border_agrees(&m->crosses, &s->prepare.crosses, "this stage", e);
}

void core_stage_connect(struct agent_core *c, struct message_ref *message)
{
    const struct message_stage_connect *m = &message->message.u.stage_connect;
    struct err e = {0};
    struct core_stage *s = core_stage_ordered(c, m->deployment, m->generation, m->stage);
    if (!s) {
        c->dropped_stale++;
        return;
    }
    if (s->state != STAGE_READY || s->is_share) {
        core_stage_report(c, s);
        return;
    }
    if (connect_check(s, m, &e) < 0) {
        core_stage_fail(c, s, &e);
        return;
    }
    if (s->connected && m->keep && core_stage_links_are(s, m))
        return;
    /* Whoever wants what is open to go on hears that it does not; to all others it is lost. */
    if (s->connected && m->keep)
        core_sequences_fail_all(c, s, HP_ELINK, "the links of this stage lead elsewhere now");
    if (s->connected)
        core_sequences_close_all(c, s);
    core_stage_links_set(c, s, m);
    log_info("agent", "stage_connected", "deployment=%llu generation=%llu stage=%llu",
             (unsigned long long)m->deployment, (unsigned long long)m->generation,
             (unsigned long long)m->stage);
}

void core_stage_link_down(struct agent_core *c, const struct agent_event *ev)
{
    enum agent_link link = ev->u.link_down.link;
    struct core_stage *s = core_stage_of_slot(c, ev->u.link_down.slot);
    if (!s || !s->connected)
        return;
    core_stage_link_broke(c, s, link);
    core_sequences_fail_all(c, s, HP_ELINK,
                            link == AGENT_LINK_NEXT ? "the link to the next stage broke"
                                                    : "the link to the first stage broke");
    if (s->queue)
        queue_flights_clear(s->queue);
}

void core_stage_unload(struct agent_core *c, struct message_ref *message)
{
    const struct message_stage_unload *m = &message->message.u.stage_unload;
    c->dropped_stale += core_deployment_generation(c, m->deployment) > m->generation;
    for (size_t i = 0; i < c->n_stages;) {
        struct core_stage *s = c->stages[i];
        uint64_t stage = s->prepare.stage, generation = s->prepare.generation;
        if (s->prepare.deployment != m->deployment || generation > m->generation) {
            i++;
            continue;
        }
        core_stage_drop(c, s); /* the last one takes its place */
        log_info("agent", "stage_unloaded", "deployment=%llu generation=%llu stage=%llu",
                 (unsigned long long)m->deployment, (unsigned long long)generation,
                 (unsigned long long)stage);
        const struct message_stage_prepare gone = {
            .deployment = m->deployment, .generation = generation, .stage = stage};
        core_stage_report_without(c, &gone, STAGE_UNLOADED, NULL);
    }
}
