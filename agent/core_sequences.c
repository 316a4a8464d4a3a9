/* Owns what happens to sequences on this agent: opening and closing, frames that come, batches that ran, tokens that are told. Which batch runs next is
 * engine/queue.c's. */
#include "agent/core_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening and closing ------------------------------------------------------------------------------------------ */

int core_queue_create(struct agent_core *c, struct core_stage *s, struct err *e)
{
    (void)c;
    struct queue_config config = {.first = core_stage_is_first(s),
                                  .last = core_stage_is_last(s),
                                  .n_stages = (uint32_t)s->prepare.n_stages,
                                  .max_batch_tokens = (uint32_t)s->prepare.max_batch_tokens,
                                  .max_sequences = (uint32_t)s->prepare.max_sequences,
                                  .hold_limit_ns = (uint64_t)AGENT_HOLD_LIMIT_MS * 1000000};
    return queue_create(&config, &s->queue, e);
}

static void release_buffer(void *ctx, void *buffer)
{
    core_release(ctx, buffer);
}

void core_queue_destroy(struct agent_core *c, struct core_stage *s)
{
    if (!s->queue)
        return;
    core_sequences_close_all(c, s);
    if (c->running_queue == s->queue)
        c->running_queue = NULL;
    queue_destroy(&s->queue, release_buffer, c);
}

void core_sequence_free(struct core_sequence *s)
{
    arena_free(&s->arena);
    buffer_free(&s->bytes);
    free(s->slices);
    free(s);
}

void core_sequence_close(struct agent_core *c, struct core_stage *s, uint64_t id)
{
    struct core_sequence *own = queue_sequence_close(s->queue, id);
    if (!own)
        return;
    own->next_dead = c->dead_sequences;
    c->dead_sequences = own;
    struct agent_action *a = core_act(c, AGENT_DO_SEQUENCE_CLOSE);
    if (a) {
        a->u.sequence_close.slot = s->slot;
        a->u.sequence_close.sequence = id;
    }
}

void core_sequences_close_all(struct agent_core *c, struct core_stage *s)
{
    struct queue_sequence *q;
    while ((q = queue_sequence_at(s->queue, 0)) != NULL)
        core_sequence_close(c, s, q->id);
}

static void failure_send(struct agent_core *c, uint64_t deployment, uint64_t generation, uint64_t id, int code, const char *text)
{
    struct message *m = core_send(c, MESSAGE_SEQUENCE_FAILED);
    if (m)
        m->u.sequence_failed = (struct message_sequence_failed){deployment, generation, id, status_word(code), core_text(c, text)};
}

void core_sequence_fail(struct agent_core *c, struct core_stage *s, uint64_t id, int code, const char *text)
{
    log_warn("agent", "sequence_failed", "sequence=%llu code=%s text=\"%s\"", (unsigned long long)id, status_word(code), text);
    failure_send(c, s->prepare.deployment, s->prepare.generation, id, code, text);
    core_sequence_close(c, s, id);
}

static int open_check(const struct core_stage *s, const struct message_sequence_open *o, struct err *e)
{
    if (!s->queue || (!s->connected && s->prepare.n_stages > 1))
        return err_set(e, HP_EBUSY, "the stage is not ready for sequences");
    if (!o->sequence || !o->kv_tokens || o->kv_tokens > UINT32_MAX || o->prompt.count > o->kv_tokens)
        return err_set(e, HP_EINVAL, "a sequence of %zu tokens cannot live in %llu", o->prompt.count, (unsigned long long)o->kv_tokens);
    for (size_t i = 0; core_stage_is_first(s) && i < o->prompt.count; i++)
        if (o->prompt.items[i] >= s->vocabulary)
            return err_set(e, HP_EINVAL, "token %u at position %zu is beyond the vocabulary of %u", o->prompt.items[i], i, s->vocabulary);
    return 0;
}

static int sequence_begin(struct agent_core *c, struct core_stage *s, const struct message *m, struct err *e)
{
    int rc = open_check(s, &m->u.sequence_open, e);
    if (rc < 0)
        return rc;
    struct core_sequence *own = calloc(1, sizeof *own);
    struct message copy;
    if (!own || core_message_copy(m, &own->bytes, &own->arena, &copy) < 0) {
        if (own)
            core_sequence_free(own);
        return err_set(e, HP_ENOMEM, "no memory for a sequence");
    }
    own->open = copy.u.sequence_open;
    own->opened_ns = env_now_ns(c->env);
    own->ticket = ++c->last_ticket;
    const struct message_sequence_open *o = &own->open;
    struct queue_sequence q = {.id = o->sequence,
                               .owner = own,
                               .all_logits = o->all_logits,
                               .prompt = o->prompt.items,
                               .n_prompt = (uint32_t)o->prompt.count,
                               .slices = o->slices.items,
                               .n_slices = (uint32_t)o->slices.count};
    rc = queue_sequence_open(s->queue, &q, e);
    if (rc < 0) {
        core_sequence_free(own);
        return rc;
    }
    core_stage_links_mend(c, s);
    struct agent_action *a = core_act(c, AGENT_DO_SEQUENCE_OPEN);
    if (a) {
        a->u.sequence_open.slot = s->slot;
        a->u.sequence_open.ticket = own->ticket;
        a->u.sequence_open.sampler = core_stage_is_last(s) && !o->all_logits;
        a->u.sequence_open.open = o;
    }
    return 0;
}

void core_sequence_open(struct agent_core *c, const struct message *m)
{
    const struct message_sequence_open *o = &m->u.sequence_open;
    struct core_stage *s = core_stage_of(c, o->deployment);
    struct err e = {0};
    if (s && o->generation < s->prepare.generation) {
        c->dropped_stale++;
        return;
    }
    if (!s || o->generation != s->prepare.generation) {
        failure_send(c, o->deployment, o->generation, o->sequence, HP_ESTALE, "this agent has no stage of that deployment and generation");
        return;
    }
    int rc = sequence_begin(c, s, m, &e);
    /* Said twice, or closed before: nothing to do. */
    if (rc < 0 && rc != HP_EEXIST && rc != HP_ECANCELED)
        failure_send(c, o->deployment, o->generation, o->sequence, rc, e.text);
}

void core_sequence_opened(struct agent_core *c, const struct agent_event *ev)
{
    struct core_stage *s = core_stage_of_slot(c, ev->u.sequence_opened.slot);
    uint64_t id = ev->u.sequence_opened.sequence;
    struct queue_sequence *q = s && s->queue ? queue_sequence_find(s->queue, id) : NULL;
    if (!q || ((struct core_sequence *)q->owner)->ticket != ev->u.sequence_opened.ticket)
        return;
    const struct err *e = ev->u.sequence_opened.error;
    if (ev->u.sequence_opened.status < 0)
        core_sequence_fail(c, s, id, ev->u.sequence_opened.status, e ? e->text : "the stage has no room for the sequence");
    else
        queue_sequence_ready(s->queue, id);
}

/* ---- frames out ----------------------------------------------------------------------------------------------------- */

static struct frame_header header_of(const struct agent_core *c, const struct core_stage *s, enum frame_kind kind, uint32_t batch)
{
    return (struct frame_header){.kind = (uint16_t)kind,
                                 .stage = kind == FRAME_TOKEN ? 0 : (uint16_t)(s->prepare.stage + 1),
                                 .dtype = kind == FRAME_TOKEN ? FRAME_BYTES : FRAME_F32,
                                 .session = kind == FRAME_TOKEN ? s->first_session : s->next_session,
                                 .deployment = s->prepare.deployment,
                                 .generation = (uint32_t)s->prepare.generation,
                                 .batch = batch,
                                 .sent_ns = c->due_ns ? c->due_ns : env_now_ns(c->env)};
}

/* To the first stage: the batch has been through, and these are its tokens. */
static void tokens_post(struct agent_core *c, struct core_stage *s, uint32_t batch, uint32_t n)
{
    if (core_stage_is_first(s)) {
        queue_returned(s->queue, batch);
        for (uint32_t i = 0; i < n; i++)
            queue_token(s->queue, c->tokens[i].sequence, c->tokens[i].token, c->tokens[i].finished != 0);
        return;
    }
    struct agent_action *a = core_act(c, AGENT_DO_POST);
    if (!a)
        return;
    a->u.post.slot = s->slot;
    a->u.post.link = AGENT_LINK_FIRST;
    a->u.post.header = header_of(c, s, FRAME_TOKEN, batch);
    a->u.post.header.n_runs = (uint16_t)n;
    a->u.post.header.sequence = n ? c->tokens[0].sequence : 0;
    a->u.post.tokens = c->tokens;
}

/* To the next stage: what this one made of a batch, or that nothing is left of it. */
static void batch_post(struct agent_core *c, struct core_stage *s, const struct queue_batch *b, void *output)
{
    struct agent_action *a = core_act(c, AGENT_DO_POST);
    if (!a)
        return;
    uint32_t n = output ? b->n_runs : 0;
    a->u.post.slot = s->slot;
    a->u.post.link = AGENT_LINK_NEXT;
    a->u.post.header = header_of(c, s, FRAME_ACTIVATION, b->number);
    a->u.post.buffer = output;
    if (!n)
        return;
    a->u.post.runs = b->table;
    a->u.post.header.n_runs = (uint16_t)n;
    a->u.post.header.n_tokens = b->n_tokens;
    a->u.post.header.sequence = b->table[0].sequence;
    a->u.post.header.first_position = b->table[0].first_position;
}

static void pass_empty(struct agent_core *c, struct core_stage *s, const struct queue_batch *b)
{
    if (core_stage_is_last(s))
        tokens_post(c, s, b->number, 0);
    else
        batch_post(c, s, b, NULL);
}

/* ---- frames in ------------------------------------------------------------------------------------------------------ */

static void activation_in(struct agent_core *c, struct core_stage *s, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    uint64_t expected = (uint64_t)h->n_runs * FRAME_RUN_BYTES + (uint64_t)h->n_tokens * s->width * sizeof(float);
    bool good = !core_stage_is_first(s) && (h->n_runs ? h->dtype == FRAME_F32 && h->n_tokens && ev->u.frame.buffer : !h->n_tokens) &&
                h->payload_bytes == expected;
    if (good) {
        for (uint32_t i = 0; i < h->n_runs; i++) {
            struct queue_sequence *q = queue_sequence_find(s->queue, ev->u.frame.runs[i].sequence);
            if (q)
                core_prefill_arrived(q->owner, &ev->u.frame.runs[i], c->ready_ns, env_now_ns(c->env));
        }
        int rc = queue_frame_add(s->queue, h->batch, ev->u.frame.runs, h->n_runs, h->n_tokens, ev->u.frame.buffer, env_now_ns(c->env));
        if (rc == 0)
            return;
        c->dropped_full += rc == HP_EBUSY;
        good = rc != HP_EINVAL;
    }
    c->dropped_malformed += !good;
    core_release(c, ev->u.frame.buffer);
}

static void tokens_in(struct agent_core *c, struct core_stage *s, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    core_release(c, ev->u.frame.buffer);
    if (!core_stage_is_first(s)) {
        c->dropped_malformed++;
        return;
    }
    queue_returned(s->queue, h->batch);
    for (uint32_t i = 0; i < h->n_runs; i++) {
        const struct frame_token *t = &ev->u.frame.tokens[i];
        if (t->token >= s->vocabulary || !queue_token(s->queue, t->sequence, t->token, t->finished != 0))
            c->dropped_runs++;
    }
}

void core_frame(struct agent_core *c, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    struct core_stage *s = core_stage_of(c, h->deployment);
    bool kind = h->kind == FRAME_ACTIVATION || h->kind == FRAME_TOKEN || h->kind == FRAME_ALIVE;
    bool stale = s && h->generation != s->prepare.generation;
    bool foreign = !kind || !s || (!stale && (h->session != core_stage_input_session(s) || h->stage != s->prepare.stage));
    if (!foreign && !stale)
        core_hop_heard(c, s);
    if (foreign || stale || !s->queue || h->kind == FRAME_ALIVE) {
        c->dropped_foreign += foreign;
        c->dropped_stale += !foreign && h->kind != FRAME_ALIVE;
        core_release(c, ev->u.frame.buffer);
        return;
    }
    if (h->kind == FRAME_ACTIVATION)
        activation_in(c, s, ev);
    else
        tokens_in(c, s, ev);
}

/* ---- batches that ran ------------------------------------------------------------------------------------------------ */

static bool tokens_reserve(struct agent_core *c, uint32_t n)
{
    if (n <= c->token_capacity)
        return true;
    struct frame_token *t = realloc(c->tokens, n * sizeof *t);
    c->tokens = t ? t : c->tokens;
    uint32_t *told = realloc(c->told, n * sizeof *told);
    c->told = told ? told : c->told;
    if (!t || !told)
        return false;
    c->token_capacity = n;
    return true;
}

static const char *token_finish(const struct core_sequence *own, uint32_t token)
{
    for (size_t i = 0; i < own->open.end_ids.count; i++)
        if (own->open.end_ids.items[i] == token)
            return "stop";
    return own->sampled >= own->open.max_tokens ? "length" : "";
}

static void tokens_send(struct agent_core *c, struct core_sequence *own, const uint32_t *id, const char *finish)
{
    struct message *m = core_send(c, MESSAGE_TOKENS);
    uint64_t now = env_now_ns(c->env);
    own->first_token_ns = own->first_token_ns ? own->first_token_ns : now;
    own->ended = finish[0] != '\0';
    if (m)
        m->u.tokens = (struct message_tokens){.deployment = own->open.deployment,
                                              .generation = own->open.generation,
                                              .sequence = own->open.sequence,
                                              .first = id ? own->sampled - 1 : 0,
                                              .ids = {id, id != NULL},
                                              .finish = finish,
                                              .prefill_s = (double)(own->first_token_ns - own->opened_ns) * 1e-9,
                                              .decode_s = (double)(now - own->first_token_ns) * 1e-9};
}

static void logits_send(struct agent_core *c, struct core_stage *s, struct core_sequence *own, const struct frame_run *run, const float *rows)
{
    uint32_t step = AGENT_LOGITS_MESSAGE_BYTES / (uint32_t)sizeof(float) / s->vocabulary;
    step = step ? step : 1;
    uint32_t first = run->first_position + run->n_tokens - run->n_logits;
    for (uint32_t i = 0; i < run->n_logits; i += step) {
        uint32_t n = run->n_logits - i < step ? run->n_logits - i : step;
        struct message *m = core_send(c, MESSAGE_LOGITS);
        if (m)
            m->u.logits = (struct message_logits){own->open.deployment, own->open.generation, own->open.sequence, first + i, n,
                                                  {(const uint8_t *)(rows + (size_t)i * s->vocabulary), (size_t)n * s->vocabulary * sizeof(float)}};
    }
    if (own->open.prompt.count && run->first_position + run->n_tokens == own->open.prompt.count)
        tokens_send(c, own, NULL, "length");
}

static void last_done(struct agent_core *c, struct core_stage *s, const struct queue_batch *b, const struct agent_event *ev)
{
    uint32_t n = 0;
    const float *rows = ev->u.batch_done.logits;
    if (!tokens_reserve(c, b->n_runs)) {
        for (uint32_t i = 0; i < b->n_runs; i++)
            core_sequence_fail(c, s, b->runs[i].run.sequence, HP_ENOMEM, "no memory for tokens");
        return;
    }
    for (uint32_t i = 0; i < b->n_runs; i++) {
        const struct frame_run *run = &b->runs[i].run;
        struct queue_sequence *q = queue_sequence_find(s->queue, run->sequence);
        struct core_sequence *own = q ? q->owner : NULL;
        if (own && own->open.all_logits && run->n_logits && rows)
            logits_send(c, s, own, run, rows);
        if (rows)
            rows += (size_t)run->n_logits * s->vocabulary;
        if (!own || own->ended || !b->runs[i].sample)
            continue;
        own->sampled++;
        c->told[n] = ev->u.batch_done.picked[i];
        const char *finish = token_finish(own, c->told[n]);
        tokens_send(c, own, &c->told[n], finish);
        c->tokens[n] = (struct frame_token){run->sequence, c->told[n], finish[0] != '\0'};
        n++;
    }
    tokens_post(c, s, b->number, n);
}

static void batch_failed(struct agent_core *c, struct core_stage *s, const struct queue_batch *b, const struct agent_event *ev)
{
    const struct err *e = ev->u.batch_done.error;
    for (uint32_t i = 0; i < b->n_runs; i++)
        if (queue_sequence_find(s->queue, b->runs[i].run.sequence))
            core_sequence_fail(c, s, b->runs[i].run.sequence, ev->u.batch_done.status, e ? e->text : "the stage could not run a batch");
    if (!core_stage_is_first(s))
        pass_empty(c, s, b);
}

void core_batch_done(struct agent_core *c, const struct agent_event *ev)
{
    struct core_stage *s = core_stage_of_slot(c, ev->u.batch_done.slot);
    if (!c->running || c->running_slot != ev->u.batch_done.slot || c->running_ticket != ev->u.batch_done.ticket) {
        core_release(c, ev->u.batch_done.output);
        return;
    }
    c->running = false;
    if (!s || !c->running_queue || s->queue != c->running_queue) {
        core_release(c, ev->u.batch_done.output);
        return;
    }
    /* What goes on is pointed at by this event's actions while the next batch is made. */
    struct queue_batch done = c->batch;
    c->batch = c->passing;
    c->passing = done;
    bool ok = ev->u.batch_done.status >= 0;
    queue_done(s->queue, &done, ok, env_now_ns(c->env));
    s->batches_done++;
    s->busy_s += ev->u.batch_done.seconds;
    s->planned_s += s->prepare.planned_s_per_token * done.n_tokens;
    uint64_t now = env_now_ns(c->env), end = ev->u.batch_done.end_ns ? ev->u.batch_done.end_ns : now;
    uint64_t start = ev->u.batch_done.start_ns ? ev->u.batch_done.start_ns : end - (uint64_t)(ev->u.batch_done.seconds * 1e9);
    c->due_ns = ev->u.batch_done.due_ns ? ev->u.batch_done.due_ns : now;
    if (ok)
        core_prefill_ran(c, s, &done, start, end);
    if (!ok) {
        core_release(c, ev->u.batch_done.output);
        batch_failed(c, s, &done, ev);
    } else if (core_stage_is_last(s)) {
        core_release(c, ev->u.batch_done.output);
        last_done(c, s, &done, ev);
    } else {
        batch_post(c, s, &done, ev->u.batch_done.output);
    }
}

/* ---- what runs next -------------------------------------------------------------------------------------------------- */

static void batch_run(struct agent_core *c, struct core_stage *s)
{
    const struct queue_batch *b = &c->batch;
    struct agent_action *a = core_act(c, AGENT_DO_RUN);
    if (!a) { /* as if it had failed */
        for (uint32_t i = 0; i < b->n_runs; i++)
            core_sequence_fail(c, s, b->runs[i].run.sequence, HP_ENOMEM, "no memory to run a batch");
        return;
    }
    c->running = true;
    c->running_slot = s->slot;
    c->running_ticket = ++c->last_ticket;
    c->running_queue = s->queue;
    a->u.run.slot = s->slot;
    a->u.run.ticket = c->running_ticket;
    a->u.run.runs = b->runs;
    a->u.run.n_runs = b->n_runs;
    a->u.run.n_tokens = b->n_tokens;
    a->u.run.n_logits = b->n_logits;
    a->u.run.ids = core_stage_is_first(s) ? b->ids : NULL;
    a->u.run.input = b->buffer;
    a->u.run.input_runs = b->input_runs;
    a->u.run.input_tokens = b->input_tokens;
    uint64_t ready = core_prefill_ready_ns(s, b);
    a->u.run.ready_ns = ready ? ready : c->ready_ns;
}

/* The stages take turns. False when none of them has anything. */
static bool dispatch_one(struct agent_core *c)
{
    for (size_t i = 0; i < c->n_stages; i++) {
        size_t turn = (c->next_turn + i) % c->n_stages;
        struct core_stage *s = c->stages[turn];
        if (!s->queue || !queue_next(s->queue, &c->batch, &c->dropped_runs))
            continue;
        c->next_turn = turn + 1;
        if (c->batch.n_runs) {
            batch_run(c, s);
        } else {
            core_release(c, c->batch.buffer);
            pass_empty(c, s, &c->batch);
        }
        return true;
    }
    return false;
}

void core_dispatch(struct agent_core *c)
{
    while (!c->running && dispatch_one(c))
        ;
}

void core_expire(struct agent_core *c, uint64_t now_ns)
{
    uint64_t ids[64];
    for (size_t i = 0; !c->running && i < c->n_stages; i++) {
        struct core_stage *s = c->stages[i];
        size_t n = s->queue ? queue_expire(s->queue, now_ns, ids, sizeof ids / sizeof *ids) : 0;
        for (size_t k = 0; k < n; k++)
            core_sequence_fail(c, s, ids[k], HP_ETIMEOUT, "a batch of the sequence waited too long for what precedes it");
    }
}

uint64_t core_expire_deadline(const struct agent_core *c)
{
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; !c->running && i < c->n_stages; i++) {
        uint64_t d = c->stages[i]->queue ? queue_deadline_ns(c->stages[i]->queue) : UINT64_MAX;
        at = d < at ? d : at;
    }
    return at;
}
