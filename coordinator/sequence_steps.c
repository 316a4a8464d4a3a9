#include "coordinator/sequence_steps.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/admission.h"
#include "coordinator/api_keys.h"
#include "coordinator/clocks.h"
#include "coordinator/growth.h"
#include "coordinator/handoffs.h"
#include "coordinator/plan_vs_actual.h"
#include "coordinator/prefixes.h"
#include "coordinator/replicas.h"
#include "coordinator/replication.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/targets.h"

/* ---- what was lost on its way ---- */

void sequence_answer_lost(struct coord *c, struct sequence *s, const char *what)
{
    struct deployment *d = s->deployment;
    struct err e = {0};
    err_set(&e, HP_ELINK, "%s", what);
    sequence_lose(c, s, &e);
    admission_advance(c, d);
}

static void sequence_tokens_lost(struct coord *c, struct sequence *s, uint64_t got)
{
    char text[120];
    snprintf(text, sizeof text, "tokens %llu to %llu were lost on their way from the last stage",
             (unsigned long long)s->n_output, (unsigned long long)got - 1);
    sequence_answer_lost(c, s, text);
}

static void sequence_logits_lost(struct coord *c, struct sequence *s)
{
    char text[120];
    snprintf(text, sizeof text,
             "logits of %llu of %zu positions were lost on their way from the last stage",
             (unsigned long long)(s->n_prompt - s->n_logits), s->n_prompt);
    sequence_answer_lost(c, s, text);
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

void sequence_reader_finish(struct coord *c, struct sequence *s)
{
    struct deployment *d = s->deployment;
    sequence_finish(c, s, REQUEST_LENGTH);
    admission_advance_both(c, d);
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
    log_info("coordinator", "sequence_corrected",
             "request=%s deployment=%s sequence=%llu output=%llu", request_name(s->number).s,
             d->name, (unsigned long long)s->id, (unsigned long long)s->n_output);
    s->resumed = s->n_output;
    sequence_begin_anew(c, s);
    admission_advance(c, d);
}

/* Messages that a busy box held up come all at once, the last ones soonest after they were made:
 * these know the agent's clock better than the first one did. */
static void sequence_first_made(const struct coord *c, struct sequence *s,
                                const struct step_made *made)
{
    if (!s->first_clock_ns || s->first_generation != made->generation)
        return;
    uint64_t at = clock_moment(c, made->agent, s->first_clock_ns);
    at = at > s->opened_ns ? at : s->opened_ns;
    s->first_ns = at < s->first_ns ? at : s->first_ns;
}

/* Tokens were made when it had its room, and after those before them. */
static void sequence_made(const struct coord *c, struct sequence *s, size_t fresh,
                          const struct step_made *made)
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
             "request=%s deployment=%s sequence=%llu output=%llu pause_s=%.3f",
             request_name(s->number).s, d->name, (unsigned long long)s->id,
             (unsigned long long)s->n_output, pause_s);
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

/* ---- what a step gave ---- */

/* Whether something before it was lost on its way from the last stage: then so is the sequence. */
static bool said_misses_something(struct coord *c, struct sequence *s, const struct message_said *t)
{
    if (s->embeds && !s->n_logits)
        sequence_answer_lost(c, s, "the row was lost on its way from the last stage");
    else if (t->first > s->n_output)
        sequence_tokens_lost(c, s, t->first);
    else if (s->kind == SEQUENCE_LOGITS && s->n_logits < s->n_prompt)
        sequence_logits_lost(c, s);
    else if (sequence_scores(s) || !scores_whole(s, t))
        sequence_answer_lost(c, s, "scores were lost on their way from the last stage");
    else
        return false;
    return true;
}

/* What nobody was told before of what a step gave. */
struct fresh_tokens {
    const uint32_t *ids;   /* [n] */
    const uint8_t *scores; /* of these, said_width each; NULL: none are asked for */
    size_t n;
};

static struct fresh_tokens fresh_of(const struct sequence *s, const struct message_said *t,
                                    size_t known)
{
    size_t n = t->ids.count > known ? t->ids.count - known : 0;
    if (n > s->max_tokens - s->n_output)
        n = (size_t)(s->max_tokens - s->n_output);
    if (!n)
        return (struct fresh_tokens){0};
    size_t row_bytes = s->said_width * sizeof(struct score);
    const uint8_t *scores = row_bytes ? t->scores.data + known * row_bytes : NULL;
    return (struct fresh_tokens){t->ids.items + known, scores, n};
}

/* The sequence has these tokens, and no longer lacks what it waited for. */
static void fresh_take(struct coord *c, struct sequence *s, const struct message_said *t,
                       const struct fresh_tokens *fresh, const struct step_made *made)
{
    struct deployment *d = s->deployment;
    drafts_count(d, t);
    if (s->lost_ns)
        sequence_recovered(c, s);
    sequence_made(c, s, fresh->n, made);
    sequence_note(s, fresh->ids, fresh->n);
    if (s->reads)
        prefixes_ready(d, s);
    s->reads = false;
    if (s->spilled)
        spilled_count(d, s);
    if (s->handed)
        handoff_done(c, s);
    if (s->output)
        memcpy(s->output + s->n_output, fresh->ids, fresh->n * sizeof *fresh->ids);
    s->n_output += fresh->n;
    if (s->kind == SEQUENCE_REQUEST)
        api_keys_count_tokens(c, s->client, 0, fresh->n);
    d->tokens.output += fresh->n;
}

/* Whoever asked hears of them, `stopped`: but for the last, which is no text. False: no memory. */
static bool fresh_tell(struct coord *c, struct sequence *s, const struct fresh_tokens *fresh,
                       bool stopped)
{
    if (s->kind != SEQUENCE_REQUEST || !fresh->n)
        return true;
    size_t score_bytes = fresh->n * s->said_width * sizeof(struct score);
    if (stopped)
        s->end_token = fresh->ids[fresh->n - 1];
    if (score_bytes && !sequence_call_back_scores(c, s, false, fresh->scores, score_bytes))
        return false;
    if (score_bytes && s->stream && !sequence_scores_keep(s, fresh->scores, fresh->n))
        return false;
    size_t shown = fresh->n - (stopped ? 1 : 0);
    return !shown || sequence_call_back(c, s, fresh->ids, shown);
}

/* A step of a sequence that answers nobody: all that counts is its end. */
static void reader_step(struct coord *c, struct sequence *s, bool over)
{
    if (over && (s->kind == SEQUENCE_REPLICA || handoff_read(c, s)))
        sequence_reader_finish(c, s);
}

/* `begins`: with its first token, for which others may wait that have its prompt, too. */
static void answer_step(struct coord *c, struct sequence *s, const char *finish, bool begins)
{
    struct deployment *d = s->deployment;
    bool over = finish[0], stopped = strcmp(finish, "stop") == 0;
    if (over && s->kind == SEQUENCE_REQUEST)
        s->planned_s = plan_vs_actual_planned(c, d, s->id);
    if (over)
        sequence_finish(c, s, stopped ? REQUEST_STOP : REQUEST_LENGTH);
    else
        growth_told(c, d, s);
    if (over || (begins && d->n_waiting))
        admission_advance(c, d);
}

void sequence_step(struct coord *c, struct sequence *s, const struct message_said *t,
                   const struct step_made *made)
{
    bool over = t->finish[0], stopped = strcmp(t->finish, "stop") == 0;
    if (handoff_copies(s) && s == s->handoff->to)
        replication_done(c, s);
    else if (handoff_moves(s) && s == s->handoff->to)
        move_complete(c, s);
    if (s->kind == SEQUENCE_LOGITS && !over)
        return;
    if (said_misses_something(c, s, t))
        return;
    size_t known = (size_t)(s->n_output - t->first); /* told before */
    if (tokens_differ(s, t, known)) {
        sequence_correct(c, s);
        return;
    }
    const struct fresh_tokens fresh = fresh_of(s, t, known);
    if (t->ids.count)
        sequence_deadline_sign(c, s->deployment, s, s->reads);
    if (fresh.n)
        fresh_take(c, s, t, &fresh, made);
    if (!fresh_tell(c, s, &fresh, stopped)) {
        sequence_fail_memory(c, s);
        return;
    }
    if (s->kind == SEQUENCE_PREFILL || s->kind == SEQUENCE_REPLICA)
        reader_step(c, s, over);
    else
        answer_step(c, s, t->finish, fresh.n && s->n_output == s->resumed + fresh.n);
}
