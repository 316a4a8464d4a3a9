#include "coordinator/admission.h"

#include <stdlib.h>

#include "coordinator/api_keys.h"
#include "coordinator/effects.h"
#include "coordinator/growth.h"
#include "coordinator/handoffs.h"
#include "coordinator/prefixes.h"
#include "coordinator/sequence_begin.h"
#include "coordinator/sequence_create.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_room.h"
#include "coordinator/shares.h"
#include "coordinator/stream_records.h"
#include "coordinator/targets.h"

enum {
    WAITING_LIMIT_MS = SHARES_WAIT_MOST_S * 1000,
    WAITING_AGAIN_MS = SEQUENCE_LOST_MS, /* of one whose client has had a part of the answer */
};

/* ---- the queue ---- */

/* Those that have waited too long fail. */
static void queue_expire(struct coord *c, struct deployment *d, uint64_t now)
{
    for (struct sequence *s = d->waiting_first, *next; s; s = next) {
        struct err e = {0};
        next = s->next;
        uint64_t limit_ms = s->again && s->n_output ? WAITING_AGAIN_MS : WAITING_LIMIT_MS,
                 since_ns = s->lost_ns ? s->lost_ns : s->queued_ns;
        if (s->fork && s->awaits)
            continue;
        if (now - since_ns <= coord_ms(limit_ms)) {
            if (!s->again)
                break; /* those behind it came later */
            continue;
        }
        err_set(&e, HP_ETIMEOUT, "waited %llu s for room on \"%s\"%s%s",
                (unsigned long long)limit_ms / 1000, d->name, d->why.code ? ": " : "", d->why.text);
        sequence_fail(c, s, &e);
    }
}

/* Those whose first token would come too late are told so. */
static void queue_refuse_late(struct coord *c, struct deployment *d, uint64_t now)
{
    struct err late = {0};
    struct sequence *first = d->spec.ttft_s > 0 ? d->waiting_first : NULL;
    for (struct sequence *s = first, *next; s; s = next) {
        next = s->next;
        if (targets_keep(d, s, now, &late) == 0)
            continue;
        d->targets.refused++;
        sequence_fail(c, s, &late);
    }
}

/* The context may have become shorter while it waited: the answer, too, then. False: nothing is
 * left for it, and the sequence has failed. */
static bool context_keeps(struct coord *c, struct deployment *d, struct sequence *s)
{
    struct err e = {0};
    if (s->n_prompt + s->max_tokens <= d->context)
        return true;
    if (s->n_prompt + s->n_output < d->context && s->kind == SEQUENCE_REQUEST && !s->embeds) {
        s->max_tokens = d->context - s->n_prompt;
        s->kv_tokens = sequence_kv_tokens(s);
        return true;
    }
    err_set(&e, HP_EBUSY,
            "\"%s\" has a context of %llu now, which is less than it had when this was asked for",
            d->name, (unsigned long long)d->context);
    sequence_fail(c, s, &e);
    return false;
}

/* One whose turn it is begins. False: it waits for room here, and all behind it do; who waits for
 * the plan that reads prompts holds up only those that go there, too. */
static bool queue_begin(struct coord *c, struct deployment *d, struct sequence *s,
                        struct prefix_hit *hit, bool *reader_full)
{
    if (*reader_full && handoff_reader(c, d, s, hit->length)) {
        s->passed = d->passes;
        return true;
    }
    if (!sequence_room_make(c, d, s, hit))
        return false;
    enum sequence_start start = sequence_begin(c, d, s, hit);
    if (start == SEQUENCE_NO_READER) {
        *reader_full = true;
        s->passed = d->passes;
    }
    return start != SEQUENCE_NO_ROOM;
}

/* One of the two may be what ended agents: they do not run beside each other. */
static bool suspect_holds(const struct deployment *d, const struct sequence *s)
{
    for (const struct sequence *o = d->active; o; o = o->next)
        if (sequence_is_suspect(o) || (sequence_is_suspect(s) && o->reads))
            return true;
    return false;
}

void admission_advance(struct coord *c, struct deployment *d)
{
    struct err overdue = {0};
    for (struct sequence *s; (s = sequence_overdue(c, d, &overdue)) != NULL;)
        sequence_lose(c, s, &overdue);
    /* Whose turn it is goes first or nobody does: a long one that waits for room is not overtaken
     * for ever by short ones. */
    uint64_t now = coord_now(c);
    queue_refuse_late(c, d, now);
    bool room = growth_advance(c, d) && now >= d->doubted_ns, reader_full = false;
    d->passes++;
    for (struct sequence *s;
         room && d->state == DEPLOYMENT_SERVING && (s = shares_next(d, now)) != NULL;) {
        if (!context_keeps(c, d, s))
            continue;
        if (!targets_let_in(d, s) || suspect_holds(d, s))
            break;
        struct prefix_hit hit = prefixes_find(c, d, s);
        s->reserved = growth_first(d, s);
        if (hit.coming && !s->again &&
            (s->fork || now - s->queued_ns <= coord_ms(SHARES_PATIENCE_MS)))
            s->awaits = hit.coming;
        else if (!queue_begin(c, d, s, &hit, &reader_full))
            break;
    }
    queue_expire(c, d, now);
}

void admission_advance_both(struct coord *c, struct deployment *d)
{
    struct deployment *other = deployment_partner(c, d);
    admission_advance(c, d);
    if (other)
        admission_advance(c, other);
}

/* ---- opening ---- */

/* What the client's API key says of a request: whether it may be, how long its answer, and before
 * whom it goes. */
static int key_allows(const struct coord *c, const struct request_spec *r,
                      struct sequence_asked *asked, struct err *e)
{
    const char *client = asked->client, *name = client_key(client);
    const struct api_key *k = name ? api_keys_named(c, name) : NULL;
    uint64_t prompt = r->fork_of ? 0 : r->n_prompt, answer = r->embed ? 0 : 1;
    double wait_s;
    if (r->priority < 0 && name)
        return err_set(e, HP_EINVAL,
                       "priority: a key's requests may give way to others (0 to %d), and not go "
                       "before them",
                       REQUEST_PRIORITY_MOST);
    if (!k)
        return 0;
    int rc = api_keys_may_use(c, client, r->model, e);
    rc = rc < 0 ? rc : api_keys_check(c, client, 0, prompt + answer, &wait_s, e);
    if (rc < 0)
        return rc;
    uint64_t left = api_keys_left(c, client) - prompt;
    if (left < UINT64_MAX - prompt && (!asked->max_tokens || asked->max_tokens > left))
        asked->max_tokens = left;
    asked->priority += k->limits.priority;
    if (asked->priority > REQUEST_PRIORITY_MOST)
        asked->priority = REQUEST_PRIORITY_MOST;
    return 0;
}

/* Whether a request would have its first token in time, `known` tokens of its prompt being there
 * already. */
static int targets_allow(struct deployment *d, const struct request_spec *r,
                         const struct sequence_asked *asked, uint32_t known, struct err *e)
{
    if (r->embed || r->fork_of || r->n_prompt >= d->context ||
        targets_check(d, asked->client, asked->priority, r->n_prompt - known, e) >= 0)
        return 0;
    d->targets.refused++;
    return e->code;
}

static void request_take(struct sequence *s, const struct request_spec *r)
{
    s->kind = SEQUENCE_REQUEST;
    s->ends = true;
    s->ignore_end = r->ignore_end;
    s->said_width = r->said_scores;
    s->prompt_width = r->prompt_scores;
    if (sequence_scores(s)) /* all of it is computed, by its own stages */
        s->alone = s->unspilled = s->reads_itself = true;
    s->callbacks = r->callbacks;
    s->number = r->number;
    s->fork = r->fork_of;
    s->forks = r->n_forks > 0;
}

/* A sequence that waits, with the room for its end. */
static int request_create(struct coord *c, struct deployment *d, const struct request_spec *r,
                          const struct sequence_asked *asked, struct sequence **out, struct err *e)
{
    struct sampling_params sampling;
    if (!effects_ends_reserve(c))
        return err_set(e, HP_ENOMEM, "the coordinator has no memory for another request");
    int rc = sampling_copy(&sampling, r->sampling ? r->sampling : &sampling_greedy, e);
    if (rc == 0)
        rc = sequence_create(c, d, asked, out, e);
    if (rc < 0) {
        sampling_free(&sampling);
        c->n_ends--;
        return rc;
    }
    (*out)->sampling = sampling;
    request_take(*out, r);
    return 0;
}

int admission_request_open(struct coord *c, const struct request_spec *r, uint64_t *id,
                           struct err *e)
{
    struct deployment *d = deployment_find(c, r->model);
    if (!d)
        return err_set(e, HP_ENOENT, "no model \"%.100s\" is deployed here", r->model);
    struct sequence_asked asked = {r->client ? r->client : "",
                                   r->prompt,
                                   r->n_prompt,
                                   r->max_tokens,
                                   r->priority,
                                   r->embed,
                                   r->fork_of ? 0 : 1 + r->n_forks};
    int rc = key_allows(c, r, &asked, e);
    uint32_t known = rc < 0 ? 0 : targets_known(c, d, r);
    rc = rc < 0 ? rc : targets_allow(d, r, &asked, known, e);
    if (rc < 0) {
        c->counts.rejected++;
        return rc;
    }
    struct sequence *s;
    rc = request_create(c, d, r, &asked, &s, e);
    if (rc < 0)
        return rc;
    s->known = r->prompt_scores ? 0 : known;
    api_keys_count_tokens(c, asked.client, r->fork_of ? 0 : r->n_prompt, 0);
    *id = s->request;
    if (r->stream && !r->embed && !r->prompt_scores)
        stream_record_keep(c, s, r->stream, r->note);
    admission_advance(c, d);
    return 0;
}

int admission_ask_open(struct coord *c, struct deployment *d, uint64_t peer, uint64_t ask,
                       const uint32_t *ids, size_t n, uint64_t tokens, uint64_t slice,
                       struct err *e)
{
    if (tokens && n < d->context && tokens > d->context - n)
        return err_set(e, HP_EINVAL, "%zu tokens and %llu more are beyond the context of %llu", n,
                       (unsigned long long)tokens, (unsigned long long)d->context);
    uint32_t *output = tokens ? calloc((size_t)tokens, sizeof *output) : NULL;
    if (tokens && !output)
        return err_set(e, HP_ENOMEM, "no memory for %llu tokens", (unsigned long long)tokens);
    struct sequence *s;
    int rc = sequence_create(
        c, d, &(struct sequence_asked){"", ids, n, tokens ? tokens : 1, 0, false, 1}, &s, e);
    if (rc < 0) {
        free(output);
        return rc;
    }
    s->kind = tokens ? SEQUENCE_GREEDY : SEQUENCE_LOGITS;
    s->ignore_end = true;
    s->output = output;
    s->slice = slice;
    s->peer = peer;
    s->ask = ask;
    admission_advance(c, d);
    return 0;
}

int admission_prefill_open(struct coord *c, struct deployment *d, uint64_t peer, uint64_t ask,
                           const uint32_t *ids, size_t n, uint64_t count, struct err *e)
{
    struct sequence *s;
    int rc = 0;
    const struct sequence_asked asked = {"", ids, n, 1, 0, false, 1};
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        uint32_t *output = calloc(1, sizeof *output);
        rc = output ? sequence_create(c, d, &asked, &s, e)
                    : err_set(e, HP_ENOMEM, "no memory for a sequence");
        if (rc < 0) {
            free(output);
            break;
        }
        s->kind = SEQUENCE_GREEDY;
        s->ignore_end = s->planned = true;
        s->output = output;
        s->peer = peer;
        s->ask = ask;
    }
    if (rc < 0) /* who asked hears of this failure alone */
        for (struct sequence *o = d->waiting_first; o; o = o->next)
            o->ask = o->planned && o->peer == peer && o->ask == ask ? 0 : o->ask;
    admission_advance(c, d);
    return rc;
}

/* ---- going away ---- */

void admission_request_cancel(struct coord *c, uint64_t id, bool satisfied,
                              struct request_usage *usage)
{
    effects_forget_request(c, id);
    if (usage)
        *usage = (struct request_usage){0};
    struct sequence *s = sequence_of_request(c, id);
    if (!s)
        return;
    if (usage)
        *usage = sequence_usage(c, s);
    struct deployment *d = s->deployment;
    if (satisfied)
        stream_record_end(c, s, REQUEST_STOP, true);
    sequence_close(c, s, SEQUENCE_LEFT);
    c->n_ends -= s->ends;
    sequence_free(s);
    *(satisfied ? &c->counts.finished : &c->counts.cancelled) += 1;
    admission_advance(c, d);
}

static void list_peer_gone(struct coord *c, struct sequence *s, uint64_t peer)
{
    for (struct sequence *next; s; s = next) {
        next = s->next;
        if (s->kind == SEQUENCE_REQUEST || s->peer != peer)
            continue;
        sequence_close(c, s, SEQUENCE_LEFT);
        sequence_free(s);
        c->counts.cancelled++;
    }
}

void admission_peer_gone(struct coord *c, uint64_t peer)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        list_peer_gone(c, c->deployments[i]->active, peer);
        list_peer_gone(c, c->deployments[i]->waiting_first, peer);
    }
}
