#include "coordinator/sequences.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/admission.h"
#include "coordinator/broken_links.h"
#include "coordinator/clocks.h"
#include "coordinator/effects.h"
#include "coordinator/handoffs.h"
#include "coordinator/lost_hop.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/prefixes.h"
#include "coordinator/replication.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_orders.h"
#include "coordinator/sequence_steps.h"
#include "coordinator/spilled_pages.h"
#include "transport/stage_state.h"

/* The deployment that an agent with a stage of it (`last`: the last one) tells of. NULL: that was
 * another generation, or is no more. */
static struct deployment *find_told(struct coord *c, const struct member *m, bool last,
                                    uint64_t deployment, uint64_t generation)
{
    struct deployment *d = deployment_of_id(c, deployment);
    bool mine = false;
    for (int i = d && last && d->n_stages ? d->n_stages - 1 : 0; d && i < d->n_stages; i++)
        mine = mine || d->stages[i].agent == m;
    return mine && d->generation == generation ? d : NULL;
}

/* The sequence that a message of a stage means; NULL for one that is closed, of an older
 * generation, or not this agent's to speak of: any stage may say that it fails, the last alone what
 * came out. */
static struct sequence *find_active(struct coord *c, const struct member *m, bool last,
                                    uint64_t deployment, uint64_t generation, uint64_t sequence)
{
    const struct deployment *d = find_told(c, m, last, deployment, generation);
    struct sequence *s = d ? sequence_active(d, sequence) : NULL;
    if (!s)
        c->counts.stale++;
    return s;
}

static void sequence_row(struct coord *c, struct sequence *s, const struct message_logits *l)
{
    if (l->count != 1 || s->n_logits ||
        l->values.size != s->deployment->model->facts.width * sizeof(float)) {
        sequence_answer_lost(c, s, "what came from the last stage is not one row of this model");
        return;
    }
    s->first_ns = s->last_ns = coord_now(c);
    if (!sequence_call_back_row(c, s, l->values.data, l->values.size)) {
        sequence_fail_memory(c, s);
        return;
    }
    s->n_logits = 1;
    sequence_deadline_sign(c, s->deployment, s, false);
}

/* Scores of the prompt: those that were told before (it began anew) are not told again. */
static void sequence_prompt_scored(struct coord *c, struct sequence *s,
                                   const struct message_logits *l)
{
    size_t row_bytes = s->prompt_width * sizeof(struct score), last = s->n_prompt - 1;
    if (l->first_position > s->n_scored || l->count > last || l->first_position > last - l->count ||
        l->values.size != l->count * row_bytes) {
        sequence_answer_lost(c, s,
                             "scores of the prompt were lost on their way from the last stage");
        return;
    }
    size_t known = s->n_scored - (size_t)l->first_position;
    size_t fresh = l->count > known ? (size_t)l->count - known : 0;
    sequence_deadline_sign(c, s->deployment, s, false);
    if (!fresh)
        return;
    if (!sequence_call_back_scores(c, s, true, l->values.data + known * row_bytes,
                                   fresh * row_bytes)) {
        sequence_fail_memory(c, s);
        return;
    }
    s->n_scored += fresh;
    if (!sequence_scores(s)) /* should it begin anew: as any other */
        s->alone = s->unspilled = false;
}

void sequences_tokens(struct coord *c, struct member *m, const struct message_tokens *t)
{
    const struct message_said *said = t->said.items;
    clock_hear(c, m, t->made_ns);
    const struct step_made made = {m, t->made_ns, t->generation, clock_moment(c, m, t->made_ns)};
    for (size_t i = 0; i < t->said.count; i++) {
        struct sequence *s =
            find_active(c, m, true, t->deployment, t->generation, said[i].sequence);
        if (s)
            sequence_step(c, s, &said[i], &made);
    }
}

void sequences_logits(struct coord *c, struct member *m, const struct message_logits *l)
{
    struct sequence *s = find_active(c, m, true, l->deployment, l->generation, l->sequence);
    if (s && s->embeds)
        sequence_row(c, s, l);
    else if (s && sequence_scores(s))
        sequence_prompt_scored(c, s, l);
    if (!s || s->kind != SEQUENCE_LOGITS)
        return;
    struct message a = {.type = MESSAGE_ANSWER, .id = s->ask};
    json_t *result = json_pack("{s:I, s:I}", "first_position", (json_int_t)l->first_position,
                               "count", (json_int_t)l->count);
    char *text = json_dumps(result, JSON_COMPACT);
    a.u.answer = (struct message_answer){
        .more = true, .code = "ok", .text = "", .hint = "", .result = text, .blob = l->values};
    effects_send(c, s->peer, &a);
    free(text);
    json_decref(result);
    s->n_logits += l->count;
    sequence_deadline_sign(c, s->deployment, s, false);
}

/* A stage does not have what the sequence was to begin with, for whatever reason: its request does
 * not suffer, and begins anew. */
static bool sequence_begins_anew(struct coord *c, struct sequence *s, int code)
{
    struct deployment *d = s->deployment;
    if (s->spilled && s->n_output == s->resumed && code != HP_ELINK) {
        log_info("coordinator", "spilled_missed", "request=%s deployment=%s sequence=%llu",
                 request_name(s->number).s, d->name, (unsigned long long)s->id);
        d->spill_counts.failed++;
        d->prefix_counts.requests -= sequence_may_share(s);
        d->prefix_counts.hits -= s->shared > 0;
        d->prefix_counts.tokens -= s->shared;
        spilled_pages_strike(d, &s->spill_page);
        sequence_begin_anew(c, s);
        s->unspilled = true;
        return true;
    }
    if (!s->share || s->n_output > s->resumed || s->alone || s->kind == SEQUENCE_PREFILL ||
        code == HP_ELINK || code == HP_ETIMEOUT)
        return false;
    struct prefix *from = prefixes_kept_of(d, s->share);
    log_info("coordinator", "prefix_missed", "request=%s deployment=%s sequence=%llu from=%llu",
             request_name(s->number).s, d->name, (unsigned long long)s->id,
             (unsigned long long)s->share);
    d->prefix_counts.requests--;
    d->prefix_counts.hits--;
    d->prefix_counts.tokens -= s->shared;
    sequence_begin_anew(c, s);
    if (from)
        sequence_order_evict(c, d, from);
    s->alone = true;
    return true;
}

/* It failed at an agent that had not heard of its end yet, and is not there to begin with. */
static void kept_failed(struct coord *c, const struct member *m,
                        const struct message_sequence_failed *f)
{
    struct deployment *d = find_told(c, m, false, f->deployment, f->generation);
    struct prefix *kept = d ? prefixes_kept_of(d, f->sequence) : NULL;
    if (kept)
        sequence_order_evict(c, d, kept);
}

struct verdict sequences_failed(struct coord *c, struct member *m,
                                const struct message_sequence_failed *f)
{
    struct verdict v = {VERDICT_OK, NULL, {0}};
    struct sequence *s = find_active(c, m, false, f->deployment, f->generation, f->sequence);
    if (!s) {
        kept_failed(c, m, f);
        return v;
    }
    struct deployment *d = s->deployment;
    struct err e = {0};
    char lost[LOST_HOP_TEXT];
    int code = coord_failure_code(f->code);
    if (sequence_begins_anew(c, s, code)) {
        admission_advance(c, d);
        return v;
    }
    if (code == HP_ELINK) /* who waits is not to follow it into the gap */
        d->doubted_ns = coord_now(c) + coord_ms(COORD_DOUBT_MS);
    bool told = code == HP_ETIMEOUT && lost_hop_tell(c, d, lost);
    if (code == HP_EINVAL) /* of the request: any agent would say so */
        err_set(&e, code, "%s", f->text);
    else
        err_set(&e, code, "%s: %s%s%s", m->name, f->text, told ? "; " : "", told ? lost : "");
    if (code == HP_ELINK || code == HP_ETIMEOUT)
        sequence_lose(c, s, &e);
    else
        sequence_fail(c, s, &e);
    admission_advance_both(c, d);
    v.on = d;
    if (code == HP_ELINK && deployment_serves(d) && broken_links_told(c, d, m)) {
        v.kind = VERDICT_CUT;
        v.why = e;
    }
    return v;
}

/* A copy that nothing is computed of: its next token was said where it comes from. */
static void copy_keep(struct coord *c, struct sequence *copy)
{
    uint32_t next = copy->handoff->from->prompt[copy->n_prompt];
    replication_done(c, copy);
    sequence_note(copy, &next, 1);
    prefixes_ready(copy->deployment, copy);
    copy->reads = false;
    sequence_reader_finish(c, copy);
}

void sequences_kv_state(struct coord *c, struct member *m, uint64_t part,
                        const struct message_kv_state *k)
{
    struct sequence *s = find_active(c, m, false, k->deployment, k->generation, k->sequence);
    if (!s || !s->handoff || !part || part > s->handoff->n_parts)
        return;
    struct deployment *d = s->deployment;
    struct err e = {0};
    if (kv_state_of_word(k->state) == KV_STATE_FAILED) {
        err_set(&e, coord_failure_code(k->code), "%s: %s", m->name, k->text);
        sequence_fail(c, handoff_moves(s) ? s->handoff->to : s, &e); /* what runs stays */
        admission_advance_both(c, d);
        return;
    }
    enum handoff_news news = handoff_told(c, s, part, k);
    if (news == HANDOFF_UNSAID)
        sequence_fail_memory(c, s);
    else if (news == HANDOFF_GONE)
        sequence_reader_finish(c, s);
    else if (news == HANDOFF_KEPT)
        copy_keep(c, s);
}
