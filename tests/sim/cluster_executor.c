/* The executor of a simulated agent: stages, orders, runs of toy layers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster_int.h"

static const uint64_t us = 1000, msec = 1000000;

struct sim_buffer *sim_buffer_create(struct sim_agent *a, uint32_t n)
{
    struct sim_buffer *b = calloc(1, sizeof *b + n * sizeof b->x[0]);
    assert(b);
    b->n_tokens = n;
    a->buffers++;
    return b;
}

void sim_buffer_release(struct sim_agent *a, void *buffer)
{
    a->buffers -= buffer != NULL;
    free(buffer);
}

static struct sim_stage *stage_of(struct sim_agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_stages; i++)
        if (a->stages[i].slot == slot)
            return &a->stages[i];
    return NULL;
}

/* By the tables of profile_done in cluster_actions.c: 0.1 ms a token and layer, and as much again
 * for every 128 tokens before it. */
static uint64_t run_profiled_ns(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    const struct sim_stage *st = stage_of(a, o->slot);
    const struct batch *b = o->run->u.run.batch;
    double sum = 0, times = s->slow[a->index] > 0 ? s->slow[a->index] : 1;
    if (s->noise > 0)
        times *= 1 + s->noise * 1e-3 * (double)sim_random(s, 1001);
    for (uint32_t i = 0; st && i < b->n_runs; i++)
        sum += b->runs[i].n_tokens * (1 + b->runs[i].first_position / 128.0);
    return st ? (uint64_t)(times * sum * (st->end - st->first) * 100 * (double)us) : us;
}

static uint64_t order_ns(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    switch (o->kind) {
    case AGENT_DO_LOAD: return sim_delay_ns(s, 5 * msec, 60 * msec);
    case AGENT_DO_RUN:
        return s->as_profiled ? run_profiled_ns(s, a, o)
                              : 300 * us + o->run->u.run.batch->n_tokens * 40 * us;
    default: return 10 * us;
    }
}

static void executor_next(struct sim *s, struct sim_agent *a, int device)
{
    struct sim_executor *x = &a->executors[device];
    x->busy = x->n_orders > 0;
    if (!x->busy || a->hung)
        return;
    x->orders[0].takes_ns = order_ns(s, a, &x->orders[0]);
    struct sim_event *ev = sim_event_add(s, EVENT_EXECUTOR, x->orders[0].takes_ns);
    ev->agent = a->index;
    ev->incarnation = a->incarnation;
    ev->step = device;
}

void sim_executor_hang(struct sim *s, int agent, bool hung)
{
    struct sim_agent *a = s->agents[agent];
    bool goes_on = a->hung && !hung;
    a->hung = hung;
    for (int d = 0; goes_on && d < s->n_devices; d++)
        if (a->executors[d].busy)
            executor_next(s, a, d);
}

void sim_order_add(struct sim *s, struct sim_agent *a, struct sim_order order)
{
    int device = sim_slot_of(a, order.slot)->device;
    struct sim_executor *x = &a->executors[device];
    x->orders = realloc(x->orders, (x->n_orders + 1) * sizeof *x->orders);
    assert(x->orders);
    x->orders[x->n_orders++] = order;
    if (!x->busy)
        executor_next(s, a, device);
}

static struct sim_sequence *sequence_of(struct sim_stage *st, uint64_t id)
{
    for (size_t i = 0; st && i < st->n_sequences; i++)
        if (st->sequences[i].memory.id == id)
            return &st->sequences[i];
    return NULL;
}

struct sim_sequence *sim_sequence_of(struct sim_agent *a, uint64_t slot, uint64_t id)
{
    return sequence_of(stage_of(a, slot), id);
}

uint32_t sim_first_seen(const struct sim *s, uint32_t length)
{
    return kv_first_seen(s->window, length) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
}

static void sequence_free(struct sim_stage *st, struct sim_sequence *q)
{
    kv_account_close(&st->kv, &q->holding);
    free(q->history);
    free(q->came);
}

void sim_stage_free(struct sim_stage *st)
{
    for (size_t i = 0; i < st->n_sequences; i++)
        sequence_free(st, &st->sequences[i]);
    kv_account_free(&st->kv);
    free(st->sequences);
}

/* Closes it, or keeps so many tokens. */
static void sequence_end(const struct sim *s, struct sim_stage *st, uint64_t id, uint32_t keep)
{
    struct sim_sequence *q = sequence_of(st, id);
    if (!q)
        return;
    if (keep && keep <= q->memory.length && sim_first_seen(s, keep) >= q->gone) {
        q->certain = q->memory.length = keep;
        memcpy(q->memory.mixed, q->history[keep - 1], sizeof q->memory.mixed);
        kv_account_keep(&st->kv, &q->holding, keep);
        return;
    }
    sequence_free(st, q);
    *q = st->sequences[--st->n_sequences];
}

void sim_kept_forget(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    for (size_t k = 0; k < a->n_stages; k++)
        for (size_t i = a->stages[k].n_sequences; i-- > 0;)
            if (a->stages[k].sequences[i].holding.kept)
                sequence_end(s, &a->stages[k], a->stages[k].sequences[i].memory.id, 0);
}

static uint64_t most_pages(const struct sim *s, const struct sim_stage *st)
{
    return s->most_pages ? s->most_pages : st->most_pages;
}

/* With the first tokens of another, where it says so. More than there is room for is a wrong of the
 * coordinator's. */
static int sequence_begin(struct sim *s, struct sim_stage *st, const struct sim_order *o)
{
    struct sim_sequence *from = o->share ? sequence_of(st, o->share) : NULL,
                        q = {.memory = {.id = o->sequence, .length = o->length},
                             .certain = o->length,
                             .gone = sim_first_seen(s, o->length)};
    uint32_t shared = !from ? 0 : o->shared ? o->shared : o->length;
    if (o->share &&
        (!from || from->memory.length < shared || sim_first_seen(s, shared) < from->gone)) {
        s->missed++;
        return HP_ENOENT;
    }
    if (st->kv.used + kv_account_need(o->tokens, shared) > most_pages(s, st)) {
        s->wrong++;
        return HP_EBUSY;
    }
    q.history = calloc(TOY_CONTEXT, sizeof *q.history);
    bool counted = q.history && kv_account_open(&st->kv, &q.holding, o->tokens,
                                                from ? &from->holding : NULL, shared);
    assert(counted);
    if (shared < o->length) {
        q.came = calloc(TOY_CONTEXT, sizeof *q.came);
        assert(q.came);
        q.n_awaited =
            (o->length - (shared > q.gone ? shared : q.gone)) * (uint32_t)(st->end - st->first);
    }
    if (from) {
        q.lent = shared;
        memcpy(q.history, from->history, shared * sizeof *q.history);
        memcpy(q.memory.mixed, q.history[o->length - 1], sizeof q.memory.mixed);
    }
    st->sequences = realloc(st->sequences, (st->n_sequences + 1) * sizeof *st->sequences);
    assert(st->sequences);
    st->sequences[st->n_sequences++] = q;
    return 0;
}

static void sequence_grow(struct sim *s, struct sim_sequence *q, struct sim_stage *st,
                          const struct sim_order *o)
{
    uint32_t more = q ? kv_pages_for(o->tokens) - q->holding.n_pages : 0;
    s->wrong += q && st->kv.used + more > most_pages(s, st);
    bool counted = !q || kv_account_grow(&st->kv, &q->holding, o->tokens);
    assert(counted);
}

static void executor_open(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    struct sim_stage *st = stage_of(a, o->slot);
    struct err e = {0};
    int rc = st ? sequence_begin(s, st, o) : 0;
    if (rc < 0)
        err_set(&e, rc, "the simulated stage cannot open it");
    struct agent_event ev = {.kind = AGENT_EVENT_SEQUENCE_OPENED};
    ev.u.sequence_opened.slot = o->slot;
    ev.u.sequence_opened.ticket = o->ticket;
    ev.u.sequence_opened.sequence = o->sequence;
    ev.u.sequence_opened.status = rc;
    ev.u.sequence_opened.error = &e;
    const struct sim_sequence *q = sequence_of(st, o->sequence);
    ev.u.sequence_opened.awaited = rc == 0 && q ? q->n_awaited : 0;
    sim_agent_event(s, a, &ev);
}

/* It is as long as before guesses that were wrong. */
static void guesses_forget(struct sim_sequence *q, uint32_t length)
{
    q->memory.length = length;
    memcpy(q->memory.mixed, q->history[length - 1], sizeof q->memory.mixed);
}

/* One run of a batch through the toy's layers; false where it does not continue what the stage
 * remembers. */
static bool run_one(const struct sim *s, struct sim_stage *st, const struct agent_action *act,
                    uint32_t i, const struct sim_buffer *in, struct sim_buffer *out, uint32_t *at,
                    uint32_t *picked, uint32_t id, float **logits, struct score **scores)
{
    const struct batch_run *r = &act->u.run.batch->runs[i];
    struct sim_sequence *q = sequence_of(st, r->sequence);
    struct toy_memory *m = q && !q->n_awaited ? &q->memory : NULL;
    if (!m || r->first_position < q->certain || r->first_position > m->length)
        return false;
    if (kv_pages_for(r->first_position + r->n_tokens) > q->holding.n_pages)
        return false; /* beyond what is reserved for it */
    if (r->first_position < m->length)
        guesses_forget(q, r->first_position);
    q->certain = r->first_position + r->n_tokens - r->n_drafts;
    const uint32_t *ids = act->u.run.batch->ids;
    const uint32_t *targets = act->u.run.batch->targets;
    struct score *said = *scores + (size_t)r->n_scored * r->scored_width;
    uint64_t x = 0;
    uint32_t n_picked = 0, n_before = 0;
    bool right = true;
    for (uint32_t k = 0; k < i; k++)
        n_before += act->u.run.batch->runs[k].n_scored;
    for (uint32_t k = 0; k < r->n_tokens; k++) {
        x = toy_position(m, st->first, st->end, in ? in->x[r->row + k] : ids[r->row + k]);
        memcpy(q->history[m->length - 1], m->mixed, sizeof m->mixed);
        if (out)
            out->x[(*at)++] = x;
        if (*logits && k + r->n_logits >= r->n_tokens) {
            (*logits)[toy_token(x)] = 1;
            *logits += TOY_VOCABULARY;
        }
        if (k < r->n_scored)
            toy_scores(x, targets[n_before + k], r->scored_width, *scores + k * r->scored_width);
        if (st->is_last && k + r->n_drafts + 1 >= r->n_tokens && right) {
            toy_scores(x, toy_token(x), r->said_width, said + n_picked * r->said_width);
            picked[n_picked++] = toy_token(x);
            right = k + 1 < r->n_tokens && ids[id + k + 1] == toy_token(x);
        }
    }
    if (sim_first_seen(s, q->certain) > q->gone) { /* whoever uses it gives wrong tokens */
        q->gone = sim_first_seen(s, q->certain);
        memset(q->history, 0xAA, q->gone * sizeof *q->history);
    }
    *scores = said + (r->sample ? 1 + r->n_drafts : 0) * r->said_width;
    return true;
}

/* The executor hands its output on itself. */
static void output_post(struct sim *s, struct sim_agent *a, const struct agent_action *run,
                        struct sim_buffer *out)
{
    struct agent_action act = {.kind = AGENT_DO_POST};
    act.u.post.slot = run->u.run.slot;
    act.u.post.link = AGENT_LINK_NEXT;
    act.u.post.header = run->u.run.header;
    act.u.post.runs = run->u.run.batch->runs;
    act.u.post.buffer = out;
    sim_post(s, a, &act);
}

static void executor_run(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    const struct agent_action *act = o->run;
    struct sim_stage *st = stage_of(a, o->slot);
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    uint32_t *picked = calloc(act->u.run.batch->n_tokens + 1, sizeof *picked), at = 0, place = 0,
             id = 0;
    float *logits =
              act->u.run.batch->n_logits
                  ? calloc((size_t)act->u.run.batch->n_logits * TOY_VOCABULARY, sizeof *logits)
                  : NULL,
          *row = logits;
    struct score *scores =
                     calloc((size_t)act->u.run.batch->n_tokens + 1, SIM_SCORES * sizeof *scores),
                 *next_score = scores;
    struct sim_buffer *in = act->u.run.batch->input,
                      *out = st && !st->is_last ? sim_buffer_create(a, act->u.run.batch->n_tokens)
                                                : NULL;
    bool good = st != NULL && !st->keeps; /* that has no weights */
    for (uint32_t i = 0; good && i < act->u.run.batch->n_runs; i++) {
        const struct batch_run *r = &act->u.run.batch->runs[i];
        good = run_one(s, st, act, i, in, out, &at, picked + place, id, &row, &next_score);
        place += 1 + r->n_drafts;
        id += r->n_tokens;
        s->computed += r->n_tokens;
    }
    s->wrong += !good;
    sim_buffer_release(a, in);
    ev.u.batch_done.slot = o->slot;
    ev.u.batch_done.ticket = o->ticket;
    ev.u.batch_done.status = good ? 0 : HP_EBUG;
    ev.u.batch_done.seconds = s->as_profiled ? (double)o->takes_ns * 1e-9 : 1e-3;
    ev.u.batch_done.posted = good && out;
    if (good && out)
        output_post(s, a, act, out);
    else
        sim_buffer_release(a, out);
    ev.u.batch_done.picked = picked;
    ev.u.batch_done.logits = logits;
    ev.u.batch_done.scores = scores;
    sim_agent_event(s, a, &ev);
    free(picked);
    free(scores);
    free(logits);
}

/* What copies have taken of it is all that is lacking, where it is not full. */
static int executor_room(const struct sim *s, const struct sim_agent *a, const struct sim_stage *st,
                         struct err *e)
{
    bool keeps = st && st->keeps, tight = st && !keeps && (s->tight >> a->index & 1),
         lacks = st && ((keeps ? s->bare : s->full) >> a->index & 1);
    for (size_t i = 0; tight && i < a->n_stages; i++)
        lacks = lacks || a->stages[i].keeps;
    return lacks ? err_set(e, HP_ENOMEM, "no memory for its %s", keeps ? "copies" : "weights") : 0;
}

static void executor_load(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    struct agent_event ev = {.kind = AGENT_EVENT_LOADED};
    struct err e = {0};
    const struct sim_stage *st = stage_of(a, o->slot);
    uint32_t first = st ? (uint32_t)st->first : 0, n = st ? (uint32_t)(st->end - st->first) : 0;
    ev.u.progress =
        (struct agent_progress){.slot = o->slot,
                                .ticket = o->ticket,
                                .row_in.width = TOY_WIDTH,
                                .row_out.width = TOY_WIDTH,
                                .vocabulary = TOY_VOCABULARY,
                                .status = executor_room(s, a, st, &e),
                                .error = &e,
                                .kv = {.n_groups = 1, .groups = {{first, n, s->window, 8, false}}}};
    sim_agent_event(s, a, &ev);
}

void sim_executor_done(struct sim *s, struct sim_agent *a, int device)
{
    struct sim_executor *x = &a->executors[device];
    struct sim_order o = x->orders[0];
    memmove(x->orders, x->orders + 1, --x->n_orders * sizeof *x->orders);
    struct sim_stage *st = stage_of(a, o.slot);
    if (o.kind == AGENT_DO_LOAD) {
        executor_load(s, a, &o);
    } else if (o.kind == AGENT_DO_UNLOAD) {
        sim_stage_remove(a, o.slot);
    } else if (o.kind == AGENT_DO_SEQUENCE_GROW) {
        sequence_grow(s, sequence_of(st, o.sequence), st, &o);
    } else if (o.kind == AGENT_DO_SEQUENCE_CLOSE) {
        if (st)
            sequence_end(s, st, o.sequence, o.length);
    } else if (o.kind == AGENT_DO_SEQUENCE_OPEN) {
        executor_open(s, a, &o);
    } else if (o.kind == AGENT_DO_RUN) {
        executor_run(s, a, &o);
    } else if (o.kind == AGENT_DO_SPILL || o.kind == AGENT_DO_UNSPILL) {
        sim_spill_done(s, a, &o);
    } else {
        sim_kv_done(s, a, &o);
    }
    sim_agent_check(s, a, o.kind == AGENT_DO_RUN ? 0 : o.slot);
    free((void *)(uintptr_t)o.run);
    executor_next(s, a, device);
}

void sim_load_begin(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    const struct message_stage_prepare *p = &act->u.work.prepare->message.u.stage_prepare;
    if (p->share.count > 0) {
        sim_share_load(s, a, act);
        return;
    }
    s->loads++;
    a->stages = realloc(a->stages, (a->n_stages + 1) * sizeof *a->stages);
    assert(a->stages);
    a->stages[a->n_stages++] =
        (struct sim_stage){.slot = act->u.work.slot,
                           .first = (int)p->first_layer,
                           .end = (int)p->end_layer,
                           .is_first = p->first_layer == 0,
                           .is_last = p->end_layer == TOY_LAYERS,
                           .keeps = p->keeps,
                           .most_pages = kv_pages_for(p->kv_tokens) + p->max_sequences};
    for (int l = (int)p->first_layer; l < (int)p->end_layer; l++)
        s->wrong += !p->keeps && !a->has_layer[l]; /* loaded without its weights */
    sim_order_add(s, a,
                  (struct sim_order){.kind = AGENT_DO_LOAD,
                                     .slot = act->u.work.slot,
                                     .ticket = act->u.work.ticket});
}
