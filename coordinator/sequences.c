#include "coordinator/sequences.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/vector.h"
#include "coordinator/admission.h"
#include "coordinator/api_keys.h"
#include "coordinator/broken_links.h"
#include "coordinator/clocks.h"
#include "coordinator/effects.h"
#include "coordinator/growth.h"
#include "coordinator/handoffs.h"
#include "coordinator/lost_hop.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/plan_vs_actual.h"
#include "coordinator/prefixes.h"
#include "coordinator/replicas.h"
#include "coordinator/replication.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_orders.h"
#include "coordinator/spilled_pages.h"
#include "coordinator/targets.h"

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

static void sequence_tokens_lost(struct coord *c, struct sequence *s, uint64_t got)
{
    struct deployment *d = s->deployment;
    struct err e = {0};
    err_set(&e, HP_ELINK, "tokens %llu to %llu were lost on their way from the last stage",
            (unsigned long long)s->n_output, (unsigned long long)got - 1);
    sequence_lose(c, s, &e);
    admission_advance(c, d);
}

static void sequence_logits_lost(struct coord *c, struct sequence *s)
{
    struct deployment *d = s->deployment;
    struct err e = {0};
    err_set(&e, HP_ELINK,
            "logits of %llu of %zu positions were lost on their way from the last stage",
            (unsigned long long)(s->n_prompt - s->n_logits), s->n_prompt);
    sequence_lose(c, s, &e);
    admission_advance(c, d);
}

/* A sequence's output follows its prompt, as far as it is known without a gap: it may be kept, and
 * begin anew. */
static void sequence_note(struct sequence *s, const uint32_t *ids, size_t n)
{
    if ((!sequence_grows(s) && !sequence_may_share(s)) || s->n_ids != s->n_prompt + s->n_output ||
        !vector_reserve(s->prompt, s->room_ids, s->n_ids + n))
        return;
    memcpy(s->prompt + s->n_ids, ids, n * sizeof *ids);
    s->n_ids += n;
}

static void sequence_row_lost(struct coord *c, struct sequence *s, const char *what)
{
    struct deployment *d = s->deployment;
    struct err e = {0};
    err_set(&e, HP_ELINK, "%s", what);
    sequence_lose(c, s, &e);
    admission_advance(c, d);
}

static void sequence_row(struct coord *c, struct sequence *s, const struct message_logits *l)
{
    if (l->count != 1 || s->n_logits ||
        l->values.size != s->deployment->model->facts.width * sizeof(float)) {
        sequence_row_lost(c, s, "what came from the last stage is not one row of this model");
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
        sequence_row_lost(c, s, "scores of the prompt were lost on their way from the last stage");
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

/* Whether what is told came with what was asked for beside it. */
static bool scores_whole(const struct sequence *s, const struct message_said *t)
{
    return !s->said_width || t->scores.size == t->ids.count * s->said_width * sizeof(struct score);
}

/* What became of the guesses that a step verified. */
static void drafts_count(struct deployment *d, const struct message_said *t)
{
    if (!t->drafts || !t->ids.count)
        return;
    d->draft_counts.steps++;
    d->draft_counts.drafts += t->drafts;
    d->draft_counts.right += t->ids.count - 1;
}

/* Who waits for the plan that reads, or for what it has read, may go on. */
static void both_advance(struct coord *c, struct deployment *d)
{
    struct deployment *other = deployment_partner(c, d);
    admission_advance(c, d);
    if (other)
        admission_advance(c, other);
}

/* The prompt that it read for another is there. */
static void reader_finish(struct coord *c, struct sequence *s)
{
    struct deployment *d = s->deployment;
    sequence_finish(c, s, REQUEST_LENGTH);
    both_advance(c, d);
}

/* The first token of a sequence where it has moved to: it goes on there alone. What it says again
 * was told before, and has to be the same. */
static void move_complete(struct coord *c, struct sequence *to)
{
    struct sequence *from = to->handoff->from;
    handoff_done(c, to);
    sequence_untie(from);
    sequence_take_over(c, to, from);
    prefixes_begin(c, to->deployment, to);
    prefixes_ready(to->deployment, to);
    sequence_close(c, from, SEQUENCE_BROKEN);
    sequence_free(from);
}

/* Whether tokens that were told come again as others: its stages compute otherwise than those that
 * it moved away from. */
static bool tokens_differ(const struct sequence *s, const struct message_said *t, size_t known)
{
    const uint32_t *told = s->prompt + s->n_prompt + t->first;
    size_t n = known < t->ids.count ? known : t->ids.count;
    return n && sequence_can_resume(s) && memcmp(told, t->ids.items, n * sizeof *told) != 0;
}

/* Its stages have read what nobody was told: they read all that was told instead. */
static void sequence_correct(struct coord *c, struct sequence *s)
{
    struct deployment *d = s->deployment;
    log_info("coordinator", "sequence_corrected", "deployment=%s sequence=%llu output=%llu",
             d->name, (unsigned long long)s->id, (unsigned long long)s->n_output);
    s->resumed = s->n_output;
    sequence_begin_anew(c, s);
    admission_advance(c, d);
}

/* When an agent made tokens. */
struct made {
    const struct member *agent;
    uint64_t clock_ns, generation; /* by its clock; of its stage */
    uint64_t at_ns;                /* by ours, as far as we know its clock now */
};

/* Messages that a busy box held up come all at once, the last ones soonest after they were made:
 * these know the agent's clock better than the first one did. */
static void sequence_first_made(const struct coord *c, struct sequence *s, const struct made *made)
{
    if (!s->first_clock_ns || s->first_generation != made->generation)
        return;
    uint64_t at = clock_moment(c, made->agent, s->first_clock_ns);
    at = at > s->opened_ns ? at : s->opened_ns;
    s->first_ns = at < s->first_ns ? at : s->first_ns;
}

/* Tokens were made when it had its room, and after those before them. */
static void sequence_made(const struct coord *c, struct sequence *s, size_t fresh,
                          const struct made *made)
{
    uint64_t least = s->first_ns ? s->last_ns : s->opened_ns;
    s->last_ns = made->at_ns > least ? made->at_ns : least;
    targets_told(s->deployment, s, fresh, s->last_ns - least);
    if (s->first_ns) {
        sequence_first_made(c, s, made);
        return;
    }
    s->first_ns = s->last_ns;
    s->first_clock_ns = made->clock_ns;
    s->first_generation = made->generation;
}

/* Its first token since its stages lost it: a pause, for whoever reads. */
static void sequence_recovered(const struct coord *c, struct sequence *s)
{
    struct deployment *d = s->deployment;
    double pause_s = (double)(coord_now(c) - s->lost_ns) * 1e-9;
    log_info("coordinator", "sequence_recovered",
             "deployment=%s sequence=%llu output=%llu pause_s=%.3f", d->name,
             (unsigned long long)s->id, (unsigned long long)s->n_output, pause_s);
    d->losses.recovered++;
    d->losses.pause_s += pause_s;
    d->losses.last_pause_s = pause_s;
    replicas_count(d, s);
    s->lost_ns = s->losses = s->places = 0;
}

/* It began with what its agents had spilled, and has its first token. */
static void spilled_count(struct deployment *d, struct sequence *s)
{
    s->spilled = false;
    d->spill_counts.hits++;
    d->spill_counts.tokens += s->handed - s->shared;
    d->spill_counts.swaps += s->resumed > 0;
}

static void sequence_said(struct coord *c, struct sequence *s, const struct message_said *t,
                          const struct made *made)
{
    struct deployment *d = s->deployment;
    if (handoff_copies(s) && s == s->handoff->to)
        replication_done(c, s);
    else if (handoff_moves(s) && s == s->handoff->to)
        move_complete(c, s);
    if (s->kind == SEQUENCE_LOGITS && !t->finish[0])
        return;
    if (s->embeds && !s->n_logits) {
        sequence_row_lost(c, s, "the row was lost on its way from the last stage");
        return;
    }
    if (t->first > s->n_output) {
        sequence_tokens_lost(c, s, t->first);
        return;
    }
    if (s->kind == SEQUENCE_LOGITS && s->n_logits < s->n_prompt) {
        sequence_logits_lost(c, s);
        return;
    }
    if (sequence_scores(s) || !scores_whole(s, t)) {
        sequence_row_lost(c, s, "scores were lost on their way from the last stage");
        return;
    }
    size_t known = (size_t)(s->n_output - t->first); /* told before */
    if (tokens_differ(s, t, known)) {
        sequence_correct(c, s);
        return;
    }
    size_t fresh = t->ids.count > known ? t->ids.count - known : 0;
    if (fresh > s->max_tokens - s->n_output)
        fresh = (size_t)(s->max_tokens - s->n_output);
    const uint32_t *ids = fresh ? t->ids.items + known : NULL;
    if (t->ids.count)
        sequence_deadline_sign(c, d, s, s->reads);
    if (fresh) {
        drafts_count(d, t);
        if (s->lost_ns)
            sequence_recovered(c, s);
        sequence_made(c, s, fresh, made);
        sequence_note(s, ids, fresh);
        if (s->reads)
            prefixes_ready(d, s);
        s->reads = false;
        if (s->spilled)
            spilled_count(d, s);
        if (s->handed)
            handoff_done(c, s);
        if (s->output)
            memcpy(s->output + s->n_output, ids, fresh * sizeof *ids);
        s->n_output += fresh;
        if (s->kind == SEQUENCE_REQUEST)
            api_keys_count_tokens(c, s->client, 0, fresh);
        d->tokens.output += fresh;
    }
    bool stopped = strcmp(t->finish, "stop") == 0;
    size_t shown = fresh - (stopped && fresh ? 1 : 0); /* the end token is not text */
    size_t score_bytes = s->said_width * sizeof(struct score);
    bool scored = !score_bytes || !fresh || s->kind != SEQUENCE_REQUEST ||
                  sequence_call_back_scores(c, s, false, t->scores.data + known * score_bytes,
                                            fresh * score_bytes);
    scored = scored && (!s->stream || !score_bytes ||
                        sequence_scores_keep(s, t->scores.data + known * score_bytes, fresh));
    if (stopped && fresh)
        s->end_token = ids[fresh - 1];
    if (s->kind == SEQUENCE_REQUEST &&
        (!scored || (shown && !sequence_call_back(c, s, ids, shown)))) {
        sequence_fail_memory(c, s);
        return;
    }
    bool first = fresh && s->n_output == s->resumed + fresh;
    if (s->kind == SEQUENCE_PREFILL) {
        if (t->finish[0] && handoff_read(c, s))
            reader_finish(c, s);
        return;
    }
    if (s->kind == SEQUENCE_REPLICA) {
        if (t->finish[0])
            reader_finish(c, s);
        return;
    }
    if (t->finish[0] && s->kind == SEQUENCE_REQUEST)
        s->planned_s = plan_vs_actual_planned(c, d, s->id);
    if (t->finish[0])
        sequence_finish(c, s, stopped ? REQUEST_STOP : REQUEST_LENGTH);
    else
        growth_told(c, d, s);
    if (t->finish[0] || (first && d->n_waiting)) /* who waits for this prompt */
        admission_advance(c, d);
}

void sequences_tokens(struct coord *c, struct member *m, const struct message_tokens *t)
{
    const struct message_said *said = t->said.items;
    clock_hear(c, m, t->made_ns);
    const struct made made = {m, t->made_ns, t->generation, clock_moment(c, m, t->made_ns)};
    for (size_t i = 0; i < t->said.count; i++) {
        struct sequence *s =
            find_active(c, m, true, t->deployment, t->generation, said[i].sequence);
        if (s)
            sequence_said(c, s, &said[i], &made);
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
        log_info("coordinator", "spilled_missed", "deployment=%s sequence=%llu", d->name,
                 (unsigned long long)s->id);
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
    log_info("coordinator", "prefix_missed", "deployment=%s sequence=%llu from=%llu", d->name,
             (unsigned long long)s->id, (unsigned long long)s->share);
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
    both_advance(c, d);
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
    reader_finish(c, copy);
}

void sequences_kv_state(struct coord *c, struct member *m, uint64_t part,
                        const struct message_kv_state *k)
{
    struct sequence *s = find_active(c, m, false, k->deployment, k->generation, k->sequence);
    if (!s || !s->handoff || !part || part > s->handoff->n_parts)
        return;
    struct deployment *d = s->deployment;
    struct err e = {0};
    if (strcmp(k->state, "failed") == 0) {
        err_set(&e, coord_failure_code(k->code), "%s: %s", m->name, k->text);
        sequence_fail(c, handoff_moves(s) ? s->handoff->to : s, &e); /* what runs stays */
        both_advance(c, d);
        return;
    }
    enum handoff_news news = handoff_told(c, s, part, k);
    if (news == HANDOFF_UNSAID)
        sequence_fail_memory(c, s);
    else if (news == HANDOFF_GONE)
        reader_finish(c, s);
    else if (news == HANDOFF_KEPT)
        copy_keep(c, s);
}
