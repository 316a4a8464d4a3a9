#include "coordinator/admission.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/effects.h"
#include "coordinator/growth.h"
#include "coordinator/handoffs.h"
#include "coordinator/model_slots.h"
#include "coordinator/prefix_peers.h"
#include "coordinator/prefixes.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_orders.h"
#include "coordinator/shares.h"
#include "coordinator/targets.h"

enum {
    WAITING_LIMIT_MS = SHARES_WAIT_MOST_S * 1000,
    WAITING_AGAIN_MS = 600000, /* of one that has run: its client has had a part of the answer */
};

/* ---- whose turn it is ---- */

static uint64_t pages_all(const struct deployment *d)
{
    return d->kv_tokens / KV_PAGE_TOKENS;
}

/* The sequence fits beside those that run, whatever is kept. */
static bool sequence_may_fit(const struct deployment *d, const struct sequence *s,
                             const struct prefix_hit *hit)
{
    const struct kv_holding *from = hit->from ? &hit->from->holding : NULL;
    return d->n_active < d->max_sequences &&
           d->kv.used_growing + kv_account_growth(&d->kv, s->reserved, from, hit->length) +
                   growth_margin(d) <=
               pages_all(d);
}

static bool sequence_fits(const struct deployment *d, const struct sequence *s,
                          const struct prefix_hit *hit)
{
    bool place = !prefixes_narrow(d) || d->n_active + prefixes_kept(d) < d->max_sequences;
    return place && sequence_may_fit(d, s, hit) &&
           d->kv.used + kv_account_need(s->reserved, hit->length) <= pages_all(d);
}

static void prefix_evict(struct coord *c, struct deployment *d, struct prefix *p)
{
    d->prefix_counts.evicted++;
    sequence_order_evict(c, d, p);
}

/* What is kept goes until the sequence fits, that with which it begins last: of that first what
 * follows the pages in common, since these count once. False: it does not fit beside those that
 * run, and nothing has changed. */
static bool room_make(struct coord *c, struct deployment *d, const struct sequence *s,
                      struct prefix_hit *hit)
{
    struct prefix *p;
    if (!sequence_may_fit(d, s, hit))
        return false;
    while (!sequence_fits(d, s, hit) && (p = prefixes_victim(c, d, hit->from)) != NULL)
        prefix_evict(c, d, p);
    if (!sequence_fits(d, s, hit) && hit->from) {
        hit->length = hit->length / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        if (hit->from->kept && !prefixes_narrow(d)) {
            prefix_cut(d, hit->from, hit->length);
            sequence_order_close(c, d, hit->from->sequence, hit->length);
        }
    }
    if (!sequence_fits(d, s, hit) && hit->from && hit->from->kept) {
        prefix_evict(c, d, hit->from);
        *hit = (struct prefix_hit){0};
    }
    return sequence_fits(d, s, hit);
}

static void sequence_open(struct coord *c, struct deployment *d, struct sequence *s,
                          const struct prefix_hit *hit)
{
    const struct sequence *running = hit->from ? sequence_active(d, hit->from->sequence) : NULL;
    const struct kv_holding *from = running     ? &running->holding
                                    : hit->from ? &hit->from->holding
                                                : NULL;
    if (!sequence_activate(d, s, from, hit->length)) {
        sequence_fail_memory(c, s);
        return;
    }
    s->share = hit->from ? hit->from->sequence : 0;
    s->shared = hit->length;
    s->reads = true;
    prefixes_hit(c, d, s, hit);
    prefixes_begin(c, d, s);
    sequence_deadline_start(c, d, s);
    targets_opened(d, s);
    bool first = !s->opened_ns;
    if (first) {
        s->cached = s->shared;
        s->opened_ns = coord_now(c);
    } else {
        d->growth_counts.recomputed += sequence_given(s) - s->shared;
    }
    if (first && !sequence_is_silent(s)) {
        c->counts.opened++;
        c->counts.prompt_tokens += s->n_prompt;
    }
    if (!sequence_order_open(c, d, s))
        sequence_fail_memory(c, s);
}

/* ---- who may wait ---- */

/* A model that pools gives rows and no tokens, the others tokens and no rows. */
static int kind_check(const struct deployment *d, bool embeds, struct err *e)
{
    if (embeds == (d->model->facts.pooling != 0))
        return 0;
    return err_set(e, HP_EINVAL,
                   embeds ? "\"%s\" is a model that writes text: embeddings are made by encoders "
                            "(BERT and its likes), and by models whose files name a pooling"
                          : "\"%s\" makes embeddings and writes no text: POST /v1/embeddings asks "
                            "for these",
                   d->name);
}

/* A text of an encoder is one batch. */
static int text_check(const struct deployment *d, size_t n, struct err *e)
{
    uint64_t most = d->context < d->max_batch_tokens ? d->context : d->max_batch_tokens;
    if (n > most)
        return err_set(e, HP_EINVAL, "the text has %zu tokens; \"%s\" reads at most %llu at once%s",
                       n, d->name, (unsigned long long)most,
                       most < d->context ? " (`hpctl deploy --slice` says how many)" : "");
    return 0;
}

static int prompt_check(const struct deployment *d, const uint32_t *ids, size_t n, bool embeds,
                        struct err *e)
{
    const struct model_facts *f = &d->model->facts;
    int rc = kind_check(d, embeds, e);
    rc = rc < 0 || !embeds ? rc : text_check(d, n, e);
    if (rc < 0)
        return rc;
    if (n == 0)
        return err_set(e, HP_EINVAL, "the prompt is empty");
    if (n >= d->context && !embeds)
        return err_set(e, HP_EINVAL,
                       "the prompt has %zu tokens; \"%s\" has a context of %llu, of which at least "
                       "one is for the answer",
                       n, d->name, (unsigned long long)d->context);
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= f->vocabulary)
            return err_set(e, HP_EINVAL, "token %zu of the prompt is %u; the vocabulary has %u", i,
                           ids[i], f->vocabulary);
    return 0;
}

/* Room for n more at once, which who has nothing there may always ask for. */
static int queue_check(struct coord *c, const struct deployment *d, const char *client, uint32_t n,
                       struct err *e)
{
    uint32_t own = shares_waiting_of(d, client);
    double wait_s = shares_wait_s(d, client);
    if (d->n_waiting + n <= COORD_MAX_WAITING && (!own || own + n <= COORD_MAX_WAITING_OF_CLIENT) &&
        wait_s <= SHARES_WAIT_MOST_S)
        return 0;
    c->counts.rejected++;
    if (wait_s > SHARES_WAIT_MOST_S)
        return err_set(e, HP_EBUSY,
                       "a request would wait %.0f s for room on \"%s\", where %u wait already, and "
                       "none waits more than %d s: try again later",
                       wait_s, d->name, d->n_waiting, SHARES_WAIT_MOST_S);
    return err_set(
        e, HP_EBUSY,
        "%u requests wait for \"%s\" already, %u of them of this client: try again later",
        d->n_waiting, d->name, own);
}

/* What its prompt and the longest answer take. */
static uint64_t kv_tokens_of(const struct sequence *s)
{
    return (s->n_prompt + s->max_tokens + DEPLOYMENT_KV_ROUND - 1) / DEPLOYMENT_KV_ROUND *
           DEPLOYMENT_KV_ROUND;
}

/* Makes a sequence at the end of the queue, where so many requests have to find room (0: it has
 * been found). */
static int sequence_create(struct coord *c, struct deployment *d, const char *client,
                           const uint32_t *ids, size_t n, uint64_t max_tokens, bool embeds,
                           uint32_t n_requests, struct sequence **out, struct err *e)
{
    if (!deployment_serves(d)) {
        c->counts.rejected++;
        return err_set(e, HP_EBUSY, "\"%s\" is %s%s%s: try again later", d->name,
                       deployment_states[d->state].word, d->why.code ? ": " : "", d->why.text);
    }
    int rc = prompt_check(d, ids, n, embeds, e);
    rc = rc < 0 || !n_requests ? rc : queue_check(c, d, client, n_requests, e);
    if (rc < 0)
        return rc;
    struct sequence *s = calloc(1, sizeof *s);
    uint32_t *prompt = malloc(n * sizeof *prompt);
    if (!s || !prompt) {
        free(s);
        free(prompt);
        return err_set(e, HP_ENOMEM, "no memory for a prompt of %zu tokens", n);
    }
    memcpy(prompt, ids, n * sizeof *prompt);
    uint64_t room = d->context - n;
    s->prompt = prompt;
    s->n_prompt = s->n_ids = s->room_ids = n;
    s->embeds = s->alone = embeds; /* what a token becomes depends on those behind it */
    s->max_tokens = embeds ? 0 : max_tokens && max_tokens < room ? max_tokens : room;
    s->kv_tokens = kv_tokens_of(s);
    s->sampling = sampling_greedy;
    snprintf(s->client, sizeof s->client, "%s", client);
    s->deployment = d;
    s->asked_ns = coord_now(c);
    s->request = c->next_request++;
    if (!sequence_wait(c, d, s)) {
        sequence_free(s);
        return err_set(e, HP_ENOMEM, "no memory for a request");
    }
    *out = s;
    return 0;
}

/* ---- read by another plan ---- */

/* The sequence that reads the prompt's first `length` tokens is made and has room; NULL: not now.
 * *never: nothing would change that. */
static struct sequence *reader_create(struct coord *c, struct deployment *p,
                                      const struct sequence *s, uint32_t length,
                                      struct prefix_hit *hit, bool *never)
{
    struct sequence *r;
    struct err ignored;
    *never = handoff_may_begin(c, p, s->deployment);
    if (!*never)
        return NULL;
    if (sequence_create(c, p, s->client, s->prompt, length, 1, false, 1, &r, &ignored) < 0)
        return NULL;
    r->kind = SEQUENCE_PREFILL;
    r->ignore_end = true;
    r->reserved = growth_first(p, r);
    *hit = prefixes_find(c, p, r);
    *never = !hit->coming && !p->n_active;
    if (!hit->coming && room_make(c, p, r, hit))
        return r;
    sequence_leave(c, p, r);
    sequence_free(r);
    return NULL;
}

/* Opens the sequence on its stages, and on those that read its prompt for it. */
static void sequence_hand_over(struct coord *c, struct sequence *s, struct sequence *r,
                               const struct prefix_hit *hit)
{
    const struct prefix_hit nothing = {0};
    uint32_t found = hit->length;
    s->handed = (uint32_t)r->n_prompt;
    sequence_open(c, r->deployment, r, hit);
    if (s->handoff)
        sequence_open(c, s->deployment, s, &nothing);
    if (!s->handoff) /* there was no memory: it begins anew */
        return;
    s->found = found;
    if (!handoff_imports_order(c, s->handoff))
        sequence_fail_memory(c, s);
}

/* Opens the sequence, with its prompt to be read, or fetched, where that is best. False: there is
 * no room there now. */
static bool sequence_begin(struct coord *c, struct deployment *d, struct sequence *s,
                           const struct prefix_hit *hit)
{
    struct prefix_hit own, none = {0}; /* all of its tokens come: it has no page of others */
    struct deployment *reader = handoff_reader(c, d, s, hit->length);
    struct prefix_offer offer = {reader, (uint32_t)s->n_prompt - 1};
    if (!reader)
        offer = prefix_peer_find(c, d, s, hit->length);
    struct deployment *p = offer.from;
    bool never = true, room = true;
    struct sequence *r = p && sequence_may_fit(d, s, &none)
                             ? reader_create(c, p, s, offer.length, &own, &never)
                             : NULL;
    if (!r && !never && reader) /* nobody waits for what can be computed here */
        return false;
    if (r && handoff_tie(c, s, r)) {
        s->handoff->fetch = !reader;
        room = room_make(c, d, s, &none);
        if (room) {
            sequence_hand_over(c, s, r, &own);
            return true;
        }
        sequence_untie(s);
    }
    if (r) {
        sequence_leave(c, p, r);
        sequence_free(r);
    }
    if (room)
        sequence_open(c, d, s, hit);
    return room;
}

/* ---- moves ---- */

/* All that it has said is known here, and it is tied to nobody. */
static bool sequence_can_move(const struct sequence *s, const struct deployment *heir)
{
    return s->kind == SEQUENCE_REQUEST && !s->embeds && !s->handoff && !s->stays && s->n_output &&
           s->n_ids == s->n_prompt + s->n_output && s->n_output < s->max_tokens &&
           s->n_prompt + s->max_tokens <= heir->context && heir->model->facts.kv_before;
}

static struct sequence *mover_create(struct coord *c, struct deployment *heir,
                                     const struct sequence *s)
{
    struct sequence *m;
    struct err ignored;
    struct prefix_hit none = {0};
    if (sequence_create(c, heir, s->client, s->prompt, s->n_ids, s->max_tokens - s->n_output, false,
                        0, &m, &ignored) < 0)
        return NULL;
    m->kind = SEQUENCE_MOVE;
    m->alone = true;
    m->ignore_end = s->ignore_end;
    m->n_prompt = s->n_prompt;
    m->resumed = m->n_output = s->n_output;
    m->max_tokens = s->max_tokens;
    m->handed = (uint32_t)s->n_ids - 1;
    m->reserved = growth_first(heir, m);
    if (sampling_copy(&m->sampling, &s->sampling, &ignored) == 0 && room_make(c, heir, m, &none))
        return m;
    sequence_leave(c, heir, m);
    sequence_free(m);
    return NULL;
}

/* False: there is no room now. */
static bool sequence_move_begin(struct coord *c, struct deployment *heir, struct sequence *s)
{
    const struct prefix_hit none = {0};
    struct sequence *m = mover_create(c, heir, s);
    if (!m)
        return false;
    s->stays = true; /* one try */
    if (!handoff_tie(c, m, s)) {
        sequence_leave(c, heir, m);
        sequence_free(m);
        return false;
    }
    sequence_open(c, heir, m, &none);
    if (s->handoff && !handoff_imports_order(c, s->handoff))
        sequence_fail_memory(c, m);
    return true;
}

void admission_moves(struct coord *c, struct deployment *d, struct deployment *heir)
{
    for (struct sequence *s = d->active, *next; s && heir->state == DEPLOYMENT_SERVING; s = next) {
        next = s->next;
        if (sequence_can_move(s, heir) &&
            (!handoff_may_begin(c, d, heir) || !sequence_move_begin(c, heir, s)))
            return;
    }
}

/* ---- the queue ---- */

/* Those that have waited too long fail. */
static void queue_expire(struct coord *c, struct deployment *d, uint64_t now)
{
    for (struct sequence *s = d->waiting_first, *next; s; s = next) {
        struct err e = {0};
        next = s->next;
        uint64_t limit_ms = s->again ? WAITING_AGAIN_MS : WAITING_LIMIT_MS;
        if (s->fork && s->awaits)
            continue;
        if (now - s->queued_ns <= coord_ms(limit_ms)) {
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
    for (struct sequence *s = d->waiting_first, *next; s; s = next) {
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
        s->kv_tokens = kv_tokens_of(s);
        return true;
    }
    err_set(&e, HP_EBUSY,
            "\"%s\" has a context of %llu now, which is less than it had when this was asked for",
            d->name, (unsigned long long)d->context);
    sequence_fail(c, s, &e);
    return false;
}

void admission_advance(struct coord *c, struct deployment *d)
{
    struct err overdue = {0};
    for (struct sequence *s; (s = sequence_overdue(c, d, &overdue)) != NULL;)
        sequence_fail(c, s, &overdue);
    /* Whose turn it is goes first or nobody does: a long one that waits for room is not overtaken
     * for ever by short ones. */
    uint64_t now = coord_now(c);
    queue_refuse_late(c, d, now);
    bool room = growth_advance(c, d) && now >= d->doubted_ns;
    for (struct sequence *s;
         room && d->state == DEPLOYMENT_SERVING && (s = shares_next(d, now)) != NULL;) {
        if (!context_keeps(c, d, s))
            continue;
        if (!targets_let_in(d, s))
            break;
        struct prefix_hit hit = prefixes_find(c, d, s);
        s->reserved = growth_first(d, s);
        if (hit.coming && !s->again &&
            (s->fork || now - s->queued_ns <= coord_ms(SHARES_PATIENCE_MS)))
            s->awaits = hit.coming;
        else if (!room_make(c, d, s, &hit) || !sequence_begin(c, d, s, &hit))
            break;
    }
    queue_expire(c, d, now);
}

/* ---- opening ---- */

int admission_request_open(struct coord *c, const struct request_spec *r, uint64_t *id,
                           struct err *e)
{
    struct deployment *d = deployment_find(c, r->model);
    if (!d)
        return err_set(e, HP_ENOENT, "no model \"%.100s\" is deployed here", r->model);
    struct sequence *s;
    struct sampling_params sampling;
    if (!r->embed && !r->fork_of && r->n_prompt < d->context &&
        targets_check(d, r->client ? r->client : "", r->n_prompt, e) < 0) {
        d->targets.refused++;
        c->counts.rejected++;
        return e->code;
    }
    if (!effects_ends_reserve(c))
        return err_set(e, HP_ENOMEM, "the coordinator has no memory for another request");
    int rc = sampling_copy(&sampling, r->sampling ? r->sampling : &sampling_greedy, e);
    if (rc == 0)
        rc = sequence_create(c, d, r->client ? r->client : "", r->prompt, r->n_prompt,
                             r->max_tokens, r->embed, r->fork_of ? 0 : 1 + r->n_forks, &s, e);
    if (rc < 0) {
        sampling_free(&sampling);
        c->n_ends--;
        return rc;
    }
    s->kind = SEQUENCE_REQUEST;
    s->ends = true;
    s->sampling = sampling;
    s->ignore_end = r->ignore_end;
    s->callbacks = r->callbacks;
    s->fork = r->fork_of;
    s->forks = r->n_forks > 0;
    *id = s->request;
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
    int rc = sequence_create(c, d, "", ids, n, tokens ? tokens : 1, false, 1, &s, e);
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
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        uint32_t *output = calloc(1, sizeof *output);
        rc = output ? sequence_create(c, d, "", ids, n, 1, false, 1, &s, e)
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
