#include "coordinator/sequence_ends.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/chain_names.h"
#include "coordinator/effects.h"
#include "coordinator/handoffs.h"
#include "coordinator/model_slots.h"
#include "coordinator/prefixes.h"
#include "coordinator/replicas.h"
#include "coordinator/sequence_orders.h"
#include "coordinator/shares.h"
#include "coordinator/stream_records.h"

enum {
    LOSSES_MOST = 10, /* without a token between them */
    LOSSES_HANGING = 1,
    LOSSES_OF_PLACES = 3, /* it may be what ends agents */
};

/* What its stages keep of it from now on, in tokens. */
static uint32_t sequence_keep(struct coord *c, struct deployment *d, struct sequence *s,
                              enum sequence_ending how)
{
    if (how == SEQUENCE_BROKEN)
        s->n_ids = 0;
    uint32_t keep = prefixes_end(c, d, s, how == SEQUENCE_DONE);
    for (struct prefix *p; keep && (p = prefixes_covered(d, s->id)) != NULL;)
        sequence_order_evict(c, d, p);
    if (prefixes_kept(d) >= KV_KEPT_MAX)
        sequence_order_put_away(c, d, prefixes_victim(c, d, prefixes_kept_of(d, s->id)));
    return keep;
}

/* How long answers are (growth.h). */
static void answer_note(struct deployment *d, const struct sequence *s)
{
    double n = (double)s->n_output;
    if (s->kind == SEQUENCE_REQUEST && n > 0)
        d->answer_tokens = d->answer_tokens > 0 ? d->answer_tokens * 0.95 + n * 0.05 : n;
}

/* Whoever was to go on for this sequence elsewhere does not. */
static void mover_close(struct coord *c, struct sequence *s)
{
    struct sequence *to = s->handoff->to, *from = s->handoff->from;
    sequence_untie(to);
    if (from)
        sequence_untie(from);
    sequence_close(c, to, SEQUENCE_BROKEN);
    sequence_free(to);
}

/* Whoever still reads a prompt for this sequence stops. */
static void reader_close(struct coord *c, struct sequence *s, enum sequence_ending how)
{
    struct sequence *from = s->handoff ? s->handoff->from : NULL;
    sequence_untie(s);
    if (!from)
        return;
    sequence_close(c, from, how);
    sequence_free(from);
}

void sequence_close(struct coord *c, struct sequence *s, enum sequence_ending how)
{
    struct deployment *d = s->deployment;
    if (handoff_moves(s) && s == s->handoff->from)
        mover_close(c, s);
    bool ran = s->state == SEQUENCE_ACTIVE;
    if (!ran && s->held_id) /* some stages have it from before this process */
        sequence_order_close(c, d, s->held_id, 0);
    uint32_t keep = ran ? sequence_keep(c, d, s, how) : 0;
    sequence_leave(c, d, s);
    if (ran) {
        sequence_order_close(c, d, s->id, keep);
        shares_note(d, coord_now(c) - s->opened_ns);
        if (how == SEQUENCE_DONE)
            answer_note(d, s);
    }
    if (sequence_is_silent(s))
        return;
    c->counts.output_tokens += s->n_output;
    replica_drop(c, s);
    reader_close(c, s, SEQUENCE_LEFT);
}

void sequence_begin_anew(struct coord *c, struct sequence *s)
{
    struct deployment *d = s->deployment;
    sequence_order_close(c, d, s->id, 0);
    s->n_ids = 0;
    prefixes_end(c, d, s, false);
    sequence_requeue(d, s);
    s->n_ids = s->n_prompt + s->n_output;
    s->share = s->shared = s->handed = s->found = 0;
    s->spilled = false;
    s->weighed[0] = s->weighed[1] = 0;
    s->queued_ns = coord_now(c);
    if (s->resumed)
        return;
    s->opened_ns = 0;
    c->counts.opened--;
    c->counts.prompt_tokens -= s->n_prompt;
}

/* One side of a handoff has failed: both are freed, and its own stages read the prompt. */
static void handoff_lapse(struct coord *c, struct sequence *s, const struct err *why)
{
    struct sequence *to = s->handoff->to;
    struct deployment *d = to->deployment;
    log_info("coordinator", "handoff_failed", "request=%s deployment=%s sequence=%llu why=\"%s\"",
             request_name(to->number).s, d->name, (unsigned long long)to->id, why->text);
    d->handoffs.failed++;
    reader_close(c, to, SEQUENCE_BROKEN);
    to->reads_itself = true;
    to->handed = to->found = 0;
    if (to->state == SEQUENCE_ACTIVE)
        sequence_begin_anew(c, to);
}

/* A copy of its ids: those that it has may go to the index. NULL: no memory. */
static uint32_t *ids_copy(const struct sequence *s)
{
    uint32_t *ids = malloc(s->n_ids * sizeof *ids);
    if (ids)
        memcpy(ids, s->prompt, s->n_ids * sizeof *ids);
    return ids;
}

void sequence_preempt(struct coord *c, struct sequence *s)
{
    struct deployment *d = s->deployment;
    uint32_t *ids = ids_copy(s);
    if (!ids) {
        sequence_fail_memory(c, s);
        return;
    }
    log_info("coordinator", "sequence_preempted",
             "request=%s deployment=%s sequence=%llu output=%llu", request_name(s->number).s,
             d->name, (unsigned long long)s->id, (unsigned long long)s->n_output);
    size_t ran = s->n_ids > sequence_given(s) ? s->n_ids - 1 : 0; /* the last one has not */
    uint32_t keep = sequence_keep(c, d, s, SEQUENCE_LEFT);
    if (!keep) { /* else it goes when others need its room */
        struct digest root = chain_names_root(c, d, s);
        sequence_order_spill(c, d, s->id, &root, ids, ran);
    }
    sequence_requeue(d, s);
    sequence_order_close(c, d, s->id, keep);
    free(s->prompt);
    s->prompt = ids;
    s->room_ids = s->n_ids;
    s->resumed = s->n_output;
    s->share = s->shared = s->handed = 0;
    s->spilled = false;
    s->weighed[0] = s->weighed[1] = 0;
    s->queued_ns = coord_now(c);
    d->growth_counts.preempted++;
}

/* The last of its callbacks; takes the sequence. */
static struct coord_action *call_back_last(struct coord *c, enum coord_action_kind kind,
                                           struct sequence *s)
{
    struct coord_action *a = effects_end_add(c, kind);
    s->next = *effects_ended(c);
    *effects_ended(c) = s;
    s->ends = false;
    a->callbacks = s->callbacks;
    a->request = s->request;
    a->usage = sequence_usage(c, s);
    return a;
}

bool sequence_call_back(struct coord *c, const struct sequence *s, const uint32_t *ids, size_t n)
{
    struct coord_action *a = effects_add(c, COORD_TOKENS, ids, n * sizeof *ids);
    if (!a)
        return false;
    a->callbacks = s->callbacks;
    a->request = s->request;
    a->usage = sequence_usage(c, s);
    return true;
}

bool sequence_call_back_row(struct coord *c, const struct sequence *s, const uint8_t *bytes,
                            size_t size)
{
    struct coord_action *a = effects_add(c, COORD_ROW, bytes, size);
    if (!a)
        return false;
    a->callbacks = s->callbacks;
    a->request = s->request;
    return true;
}

bool sequence_call_back_scores(struct coord *c, const struct sequence *s, bool of_prompt,
                               const uint8_t *bytes, size_t size)
{
    struct coord_action *a = effects_add(c, COORD_SCORES, bytes, size);
    if (!a)
        return false;
    a->callbacks = s->callbacks;
    a->request = s->request;
    a->of_prompt = of_prompt;
    return true;
}

/* Sequences that one question opened together: is this one (closed already) the last of them? */
static bool asked_last(const struct sequence *s)
{
    const struct sequence *lists[] = {s->deployment->active, s->deployment->waiting_first};
    for (int k = 0; k < 2; k++)
        for (const struct sequence *o = lists[k]; o; o = o->next)
            if (o->planned && o->peer == s->peer && o->ask == s->ask)
                return false;
    return s->ask != 0;
}

static void asked_alone(const struct sequence *s)
{
    struct sequence *lists[] = {s->deployment->active, s->deployment->waiting_first};
    for (int k = 0; s->planned && k < 2; k++)
        for (struct sequence *o = lists[k]; o; o = o->next)
            if (o->planned && o->peer == s->peer && o->ask == s->ask)
                o->ask = 0;
}

void sequence_fail(struct coord *c, struct sequence *s, const struct err *why)
{
    if (handoff_moves(s) && s == s->handoff->to) { /* what was to move stays */
        log_info("coordinator", "move_failed", "request=%s deployment=%s sequence=%llu why=\"%s\"",
                 request_name(s->number).s, s->deployment->name, (unsigned long long)s->id,
                 why->text);
        s->deployment->handoffs.failed++;
        mover_close(c, s);
        return;
    }
    if (handoff_pends(s) && !handoff_moves(s)) {
        handoff_lapse(c, s, why);
        return;
    }
    log_info("coordinator", "sequence_failed",
             "request=%s deployment=%s sequence=%llu output=%llu why=\"%s\"",
             request_name(s->number).s, s->deployment->name, (unsigned long long)s->id,
             (unsigned long long)s->n_output, why->text);
    sequence_close(c, s, SEQUENCE_BROKEN);
    if (sequence_is_silent(s)) { /* nobody needs it any more */
        sequence_free(s);
        return;
    }
    c->counts.failed++;
    if (s->kind == SEQUENCE_REQUEST) {
        s->why = *why;
        call_back_last(c, COORD_FAILED, s)->why = &s->why;
        return;
    }
    asked_alone(s); /* the others answer nothing any more */
    if (s->ask)
        effects_answer_error(c, s->peer, s->ask, why);
    sequence_free(s);
}

void sequence_fail_memory(struct coord *c, struct sequence *s)
{
    struct err e;
    err_set(&e, HP_ENOMEM, "the coordinator has no memory for this request");
    sequence_fail(c, s, &e);
}

static json_t *greedy_result(const struct model_facts *f, const struct sequence *s)
{
    json_t *ids = json_array();
    for (uint64_t i = 0; i < s->n_output; i++)
        json_array_append_new(ids, json_integer(s->output[i]));
    json_t *result = json_pack("{s:o}", "ids", ids);
    struct buffer text = {0};
    if (f->text && f->text(f->text_ctx, s->output, (size_t)s->n_output, &text) == 0)
        json_object_set_new(result, "text", json_stringn((const char *)text.data, text.size));
    buffer_free(&text);
    return result;
}

void sequence_finish(struct coord *c, struct sequence *s, enum request_finish finish)
{
    stream_record_end(c, s, finish, false);
    sequence_close(c, s, SEQUENCE_DONE);
    if (sequence_is_silent(s)) {
        sequence_free(s);
        return;
    }
    c->counts.finished++;
    const struct model_facts *f = &s->deployment->model->facts;
    if (s->kind == SEQUENCE_REQUEST) {
        call_back_last(c, COORD_FINISHED, s)->finish = finish;
        return;
    }
    if (s->planned && !asked_last(s))
        ;
    else if (s->kind == SEQUENCE_GREEDY)
        effects_answer(c, s->peer, s->ask, false, greedy_result(f, s));
    else
        effects_answer(c, s->peer, s->ask, false,
                       json_pack("{s:I, s:I}", "tokens", (json_int_t)s->n_prompt, "vocabulary",
                                 (json_int_t)f->vocabulary));
    sequence_free(s);
}

void sequences_fail_all(struct coord *c, struct deployment *d, const struct err *why)
{
    while (d->active)
        sequence_fail(c, d->active, why);
    prefixes_forget(d);
    while (d->waiting_first)
        sequence_fail(c, d->waiting_first, why);
}

/* ---- what goes on ---- */

/* Trying again helps against what is gone, and seldom against what hangs. */
static bool loss_is_last(const struct coord *c, const struct sequence *s, const struct err *why)
{
    uint32_t most = why->code == HP_ETIMEOUT ? LOSSES_HANGING : LOSSES_MOST;
    return s->losses >= most ||
           (s->lost_ns && coord_now(c) - s->lost_ns > coord_ms(SEQUENCE_LOST_MS));
}

/* Whoever was there each time an agent was lost is not tried a fourth time. */
static void sequence_fail_suspect(struct coord *c, struct sequence *s)
{
    struct err first = s->why, e;
    err_set(&e, first.code,
            "agents were lost %u times while they worked at this request, and it may be why: %s",
            s->places, first.text);
    sequence_fail(c, s, &e);
}

void sequence_lose(struct coord *c, struct sequence *s, const struct err *why)
{
    struct deployment *d = s->deployment;
    if (handoff_moves(s) && s == s->handoff->from)
        mover_close(c, s);
    if (s->places >= LOSSES_OF_PLACES) {
        sequence_fail_suspect(c, s);
        return;
    }
    bool last = loss_is_last(c, s, why);
    if (handoff_pends(s) || sequence_is_silent(s) || !sequence_can_recover(s) || last) {
        struct err first = last ? s->why : *why; /* later ones seldom say more */
        sequence_fail(c, s, &first);
        return;
    }
    if (!s->losses)
        s->why = *why;
    log_info("coordinator", "sequence_lost",
             "request=%s deployment=%s sequence=%llu output=%llu why=\"%s\"",
             request_name(s->number).s, d->name, (unsigned long long)s->id,
             (unsigned long long)s->n_output, why->text);
    s->losses++;
    s->lost_ns = s->lost_ns ? s->lost_ns : coord_now(c);
    d->losses.sequences++;
    d->losses.why = *why;
    s->resumed = s->n_output;
    sequence_begin_anew(c, s);
}

void sequences_suspect(struct deployment *d)
{
    for (struct sequence *s = d->active; s; s = s->next)
        s->places++;
}

void sequences_lose_all(struct coord *c, struct deployment *d, const struct err *why)
{
    while (d->active)
        sequence_lose(c, d->active, why);
    prefixes_forget(d);
}
