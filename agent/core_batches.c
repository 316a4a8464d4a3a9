/* Owns the way of batches through this agent: frames that come, what runs next, what has run and
 * goes on, tokens that are told. Which batch runs next is engine/queue.c's. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/core_int.h"

/* ---- frames out
 * -----------------------------------------------------------------------------------------------------
 */

static struct frame_header header_of(const struct agent_core *c, const struct core_stage *s,
                                     enum frame_kind kind, uint32_t batch)
{
    return (struct frame_header){
        .kind = (uint16_t)kind,
        .stage = kind == FRAME_TOKEN ? 0 : (uint16_t)(s->prepare.stage + 1),
        .dtype = kind == FRAME_TOKEN ? FRAME_BYTES : FRAME_F32,
        .session = kind == FRAME_TOKEN ? s->first_session : s->next_session,
        .deployment = s->prepare.deployment,
        .generation = (uint32_t)s->prepare.generation,
        .batch = batch,
        .sent_ns = c->due_ns ? c->due_ns : env_now_ns(c->env)};
}

static struct frame_header activation_header_of(const struct agent_core *c,
                                                const struct core_stage *s,
                                                const struct queue_batch *b)
{
    struct frame_header h = header_of(c, s, FRAME_ACTIVATION, b->number);
    h.n_runs = (uint16_t)b->n_runs;
    h.n_tokens = b->n_tokens;
    h.sequence = b->table[0].sequence;
    h.first_position = b->table[0].first_position;
    return h;
}

/* Its sequences end here. */
static void batch_fail(struct agent_core *c, struct core_stage *s, const struct queue_batch *b,
                       int code, const char *text)
{
    for (uint32_t i = 0; i < b->n_runs; i++)
        if (queue_sequence_find(s->queue, b->runs[i].run.sequence))
            core_sequence_fail(c, s, b->runs[i].run.sequence, code, text);
}

/* To the first stage: the batch has been through, and these are its tokens. */
static void tokens_post(struct agent_core *c, struct core_stage *s, uint32_t batch, uint32_t n)
{
    if (core_stage_is_first(s)) {
        queue_returned(s->queue, batch, env_now_ns(c->env));
        for (uint32_t i = 0; i < n; i++)
            queue_token(s->queue, c->tokens[i].sequence, batch, c->tokens[i].token,
                        c->tokens[i].finished != 0);
        return;
    }
    struct agent_action *a = core_act(c, AGENT_DO_POST);
    for (uint32_t i = 0; !a && i < n; i++)
        if (queue_sequence_find(s->queue, c->tokens[i].sequence))
            core_sequence_fail(c, s, c->tokens[i].sequence, HP_ENOMEM, "no memory to say a token");
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
static void batch_post(struct agent_core *c, struct core_stage *s, const struct queue_batch *b,
                       void *output)
{
    struct agent_action *a = core_act(c, AGENT_DO_POST);
    if (!a) {
        core_release(c, output);
        batch_fail(c, s, b, HP_ENOMEM, "no memory to hand a batch on");
        return;
    }
    a->u.post.slot = s->slot;
    a->u.post.link = AGENT_LINK_NEXT;
    a->u.post.header =
        output ? activation_header_of(c, s, b) : header_of(c, s, FRAME_ACTIVATION, b->number);
    a->u.post.buffer = output;
    a->u.post.runs = output ? b->table : NULL;
}

static void pass_empty(struct agent_core *c, struct core_stage *s, const struct queue_batch *b)
{
    if (core_stage_is_last(s))
        tokens_post(c, s, b->number, 0);
    else
        batch_post(c, s, b, NULL);
}

/* A batch of which nothing is left; one whose frame came twice has gone on already. */
static void empty_pass(struct agent_core *c, struct core_stage *s, const struct queue_batch *b)
{
    core_release(c, b->buffer);
    if (!b->again)
        pass_empty(c, s, b);
}

/* ---- frames in
 * ------------------------------------------------------------------------------------------------------
 */

/* A frame that cannot be taken ends its sequences, whether they are open here already or not, and
 * its batch goes on without them. */
static void frame_refuse(struct agent_core *c, struct core_stage *s, const struct agent_event *ev,
                         int code, const char *text)
{
    const struct frame_header *h = ev->u.frame.header;
    uint64_t highest = queue_view(s->queue).highest;
    log_warn_limited("agent", "frame_refused", "deployment=%llu batch=%u code=%s text=\"%s\"",
                     (unsigned long long)h->deployment, h->batch, status_word(code), text);
    for (uint32_t i = 0; i < h->n_runs; i++) {
        uint64_t id = ev->u.frame.runs[i].sequence;
        if (id > highest || queue_sequence_find(s->queue, id))
            core_sequence_fail(c, s, id, code, text);
    }
    core_release(c, ev->u.frame.buffer);
    if (!core_stage_is_first(s))
        pass_empty(c, s, &(struct queue_batch){.number = h->batch});
}

static bool activation_check(const struct core_stage *s, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    uint64_t expected =
        (uint64_t)h->n_runs * FRAME_RUN_BYTES + (uint64_t)h->n_tokens * s->width * sizeof(float);
    return !core_stage_is_first(s) && h->payload_bytes == expected &&
           (h->n_runs ? h->dtype == FRAME_F32 && h->n_tokens && ev->u.frame.buffer : !h->n_tokens);
}

static void activation_in(struct agent_core *c, struct core_stage *s, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    if (!activation_check(s, ev)) {
        c->dropped_malformed++;
        frame_refuse(c, s, ev, HP_EPROTO, "a batch came that is none for this stage");
        return;
    }
    for (uint32_t i = 0; i < h->n_runs; i++) {
        struct queue_sequence *q = queue_sequence_find(s->queue, ev->u.frame.runs[i].sequence);
        if (q)
            core_prefill_arrived(q->owner, &ev->u.frame.runs[i], c->ready_ns, env_now_ns(c->env));
    }
    int rc = queue_frame_add(s->queue, h->batch, ev->u.frame.runs, h->n_runs, h->n_tokens,
                             ev->u.frame.buffer, env_now_ns(c->env));
    c->dropped_full += rc == HP_EBUSY;
    c->dropped_malformed += rc == HP_EINVAL;
    if (rc < 0)
        frame_refuse(c, s, ev, rc,
                     rc == HP_EBUSY    ? "the stage has more batches waiting than it can keep"
                     : rc == HP_EINVAL ? "a batch came with more tokens than the stage was made for"
                                       : "no memory for a batch that came");
}

static void tokens_in(struct agent_core *c, struct core_stage *s, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    core_release(c, ev->u.frame.buffer);
    if (!core_stage_is_first(s)) {
        c->dropped_malformed++;
        return;
    }
    queue_returned(s->queue, h->batch, env_now_ns(c->env));
    for (uint32_t i = 0; i < h->n_runs; i++) {
        const struct frame_token *t = &ev->u.frame.tokens[i];
        bool known = t->token < s->vocabulary;
        if (!known && queue_sequence_find(s->queue, t->sequence))
            core_sequence_fail(c, s, t->sequence, HP_EPROTO,
                               "the last stage gave a token beyond the vocabulary");
        if (!known || !queue_token(s->queue, t->sequence, h->batch, t->token, t->finished != 0))
            c->dropped_runs++;
    }
}

void core_frame(struct agent_core *c, const struct agent_event *ev)
{
    const struct frame_header *h = ev->u.frame.header;
    struct core_stage *s = core_stage_of(c, h->deployment);
    bool kind = h->kind == FRAME_ACTIVATION || h->kind == FRAME_TOKEN || h->kind == FRAME_ALIVE;
    bool stale = s && h->generation != s->prepare.generation;
    bool foreign =
        !kind || !s ||
        (!stale && (h->session != core_stage_input_session(s) || h->stage != s->prepare.stage));
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

/* ---- batches that ran
 * ------------------------------------------------------------------------------------------------
 */

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

static void tokens_send(struct agent_core *c, struct core_sequence *own, const uint32_t *id,
                        const char *finish)
{
    struct message *m = core_send(c, MESSAGE_TOKENS);
    uint64_t now = env_now_ns(c->env);
    own->first_token_ns = own->first_token_ns ? own->first_token_ns : now;
    own->ended = finish[0] != '\0';
    if (m)
        m->u.tokens = (struct message_tokens){
            .deployment = own->open.deployment,
            .generation = own->open.generation,
            .sequence = own->open.sequence,
            .first = id ? own->sampled - 1 : 0,
            .ids = {id, id != NULL},
            .finish = finish,
            .prefill_s = (double)(own->first_token_ns - own->opened_ns) * 1e-9,
            .decode_s = (double)(now - own->first_token_ns) * 1e-9};
}

static void logits_send(struct agent_core *c, struct core_stage *s, struct core_sequence *own,
                        const struct frame_run *run, const float *rows)
{
    uint32_t step = AGENT_LOGITS_MESSAGE_BYTES / (uint32_t)sizeof(float) / s->vocabulary;
    step = step ? step : 1;
    uint32_t first = run->first_position + run->n_tokens - run->n_logits;
    for (uint32_t i = 0; i < run->n_logits; i += step) {
        uint32_t n = run->n_logits - i < step ? run->n_logits - i : step;
        struct message *m = core_send(c, MESSAGE_LOGITS);
        if (m)
            m->u.logits =
                (struct message_logits){own->open.deployment,
                                        own->open.generation,
                                        own->open.sequence,
                                        first + i,
                                        n,
                                        {(const uint8_t *)(rows + (size_t)i * s->vocabulary),
                                         (size_t)n * s->vocabulary * sizeof(float)}};
    }
    if (own->open.prompt.count && run->first_position + run->n_tokens == own->open.prompt.count)
        tokens_send(c, own, NULL, "length");
}

static void last_done(struct agent_core *c, struct core_stage *s, const struct queue_batch *b,
                      const struct agent_event *ev)
{
    uint32_t n = 0;
    const float *rows = ev->u.batch_done.logits;
    if (!tokens_reserve(c, b->n_runs)) {
        batch_fail(c, s, b, HP_ENOMEM, "no memory for tokens");
        tokens_post(c, s, b->number, 0);
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

static void batch_failed(struct agent_core *c, struct core_stage *s, const struct queue_batch *b,
                         const struct agent_event *ev)
{
    const struct err *e = ev->u.batch_done.error;
    batch_fail(c, s, b, ev->u.batch_done.status,
               e && e->text[0] ? e->text : "the stage could not run a batch");
    if (core_stage_is_first(s))
        queue_returned(s->queue, b->number, env_now_ns(c->env));
    else
        pass_empty(c, s, b);
    if (ev->u.batch_done.status == HP_EIO)
        core_stage_break(c, s, e); /* its weights cannot be read: so it would go with every batch */
}

/* The oldest of the runs that the executor has; NULL when the event is of none. */
static struct core_run *run_take(struct agent_core *c, const struct agent_event *ev)
{
    struct core_run *r = &c->runs[c->first_run];
    if (!c->n_running || r->slot != ev->u.batch_done.slot || r->ticket != ev->u.batch_done.ticket)
        return NULL;
    c->first_run = (c->first_run + 1) % CORE_RUN_PLACES;
    c->n_running--;
    return r;
}

/* Seconds that a batch should take from here until it has been through all stages. */
static double trip_seconds(const struct core_stage *s, const struct queue_batch *b, double seconds)
{
    double planned = s->prepare.planned_trip_s_per_token * b->n_tokens,
           measured = seconds * (double)s->prepare.n_stages;
    double unplanned = s->prepare.planned_trip_s_per_token > 0
                           ? 0
                           : 9; /* nobody has said how fast the others are */
    return (planned > measured ? planned : measured) + unplanned;
}

static void batch_count(struct agent_core *c, struct core_stage *s, const struct queue_batch *b,
                        const struct agent_event *ev)
{
    uint64_t now = env_now_ns(c->env),
             end = ev->u.batch_done.end_ns ? ev->u.batch_done.end_ns : now;
    uint64_t start = ev->u.batch_done.start_ns ? ev->u.batch_done.start_ns
                                               : end - (uint64_t)(ev->u.batch_done.seconds * 1e9);
    s->batches_done++;
    s->busy_s += ev->u.batch_done.seconds;
    s->planned_s += s->prepare.planned_s_per_token * b->n_tokens;
    s->tokens_done += b->n_tokens;
    c->due_ns = ev->u.batch_done.due_ns ? ev->u.batch_done.due_ns : now;
    if (ev->u.batch_done.status >= 0)
        core_prefill_ran(c, s, b, start, end);
}

void core_batch_done(struct agent_core *c, const struct agent_event *ev)
{
    struct core_stage *s = core_stage_of_slot(c, ev->u.batch_done.slot);
    struct core_run *r = run_take(c, ev);
    bool ok = ev->u.batch_done.status >= 0;
    if (r && s && r->reserved && !ev->u.batch_done.posted)
        core_output_back(c, s);
    if (r && s)
        s->turn_s += ev->u.batch_done.seconds - r->charged_s;
    if (!r || !s || !r->queue || s->queue != r->queue) {
        core_release(c, ev->u.batch_done.output);
        return;
    }
    queue_done(s->queue, &r->batch, env_now_ns(c->env),
               trip_seconds(s, &r->batch, ev->u.batch_done.seconds));
    batch_count(c, s, &r->batch, ev);
    bool hands_on = ok && !core_stage_is_last(s) && !ev->u.batch_done.posted;
    if (!hands_on)
        core_release(c, ev->u.batch_done.output);
    if (!ok)
        batch_failed(c, s, &r->batch, ev);
    else if (core_stage_is_last(s))
        last_done(c, s, &r->batch, ev);
    else if (hands_on)
        batch_post(c, s, &r->batch, ev->u.batch_done.output);
}

/* ---- what runs next
 * --------------------------------------------------------------------------------------------------
 */

static uint64_t output_bytes(const struct core_stage *s, uint32_t runs, uint32_t tokens)
{
    return (uint64_t)runs * FRAME_RUN_BYTES + (uint64_t)tokens * s->width * sizeof(float);
}

/* Seconds that a batch should take here; 0: nobody knows. */
static double run_seconds(const struct core_stage *s, const struct queue_batch *b)
{
    double measured = s->tokens_done ? s->busy_s / (double)s->tokens_done : 0;
    return (measured > s->prepare.planned_s_per_token ? measured : s->prepare.planned_s_per_token) *
           b->n_tokens;
}

static void run_keep(struct agent_core *c, const struct core_stage *s, struct core_run *r)
{
    r->slot = s->slot;
    r->ticket = ++c->last_ticket;
    r->queue = s->queue;
    r->handed_ns = env_now_ns(c->env);
    r->expected_s = run_seconds(s, &r->batch);
    r->overdue = false;
    r->charged_s = r->expected_s;
    r->reserved = !core_stage_is_last(s) && s->outputs &&
                  output_bytes(s, r->batch.n_runs, r->batch.n_tokens) > AGENT_SMALL_OUTPUT_BYTES;
}

static void run_order(struct agent_core *c, const struct core_stage *s, struct core_run *r,
                      struct agent_action *a)
{
    const struct queue_batch *b = &r->batch;
    a->u.run.slot = s->slot;
    a->u.run.ticket = r->ticket;
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
    a->u.run.reserved = r->reserved;
    a->u.run.table = b->table;
    if (!core_stage_is_last(s))
        a->u.run.header = activation_header_of(c, s, b);
}

static void batch_run(struct agent_core *c, struct core_stage *s, struct core_run *r)
{
    struct agent_action *a = core_act(c, AGENT_DO_RUN);
    if (!a) { /* as if it had failed */
        core_release(c, r->batch.buffer);
        batch_failed(c, s, &r->batch, &(struct agent_event){.u.batch_done.status = HP_ENOMEM});
        return;
    }
    run_keep(c, s, r);
    if (r->reserved && s->outputs_out++ == 0)
        s->outputs_since_ns = r->handed_ns;
    c->n_running++;
    run_order(c, s, r, a);
}

/* While all of its outputs are out, a stage makes only what is small. */
static void stage_narrow(struct core_stage *s)
{
    uint32_t per_token = s->width * (uint32_t)sizeof(float) + FRAME_RUN_BYTES,
             small = AGENT_SMALL_OUTPUT_BYTES / per_token;
    bool blocked = s->outputs && s->outputs_out >= s->outputs && !core_stage_is_last(s);
    queue_narrow(s->queue, blocked ? (small ? small : 1) : UINT32_MAX);
}

/* Stages take turns by the time that they have had on the device: the one with the least runs next.
 * One that had nothing to do is owed nothing for it. */
static void turn_charge(struct agent_core *c, struct core_stage *s, double seconds)
{
    s->turn_s = (s->turn_s > c->turn_floor_s ? s->turn_s : c->turn_floor_s) + seconds;
}

static struct core_stage *turn_next(const struct agent_core *c, uint64_t tried)
{
    struct core_stage *best = NULL;
    for (size_t i = 0; i < c->n_stages; i++) {
        struct core_stage *s = c->stages[i];
        if (s->queue && !(tried >> i & 1) && (!best || s->turn_s < best->turn_s))
            best = s;
    }
    return best;
}

static uint64_t stage_bit(const struct agent_core *c, const struct core_stage *s)
{
    size_t i = 0;
    while (c->stages[i] != s)
        i++;
    return UINT64_C(1) << i;
}

/* False when none of the stages has anything. */
static bool dispatch_one(struct agent_core *c)
{
    struct core_run *r = &c->runs[(c->first_run + c->n_running) % CORE_RUN_PLACES];
    struct core_stage *s;
    for (uint64_t tried = 0; (s = turn_next(c, tried)) != NULL; tried |= stage_bit(c, s)) {
        stage_narrow(s);
        if (!queue_next(s->queue, &r->batch, &c->dropped_runs))
            continue;
        if (!r->batch.n_runs) {
            empty_pass(c, s, &r->batch);
            return true;
        }
        double had = s->turn_s;
        turn_charge(c, s, run_seconds(s, &r->batch));
        c->turn_floor_s = had > c->turn_floor_s ? had : c->turn_floor_s;
        batch_run(c, s, r);
        return true;
    }
    return false;
}

/* Another run is handed out before the first is done only where that is short: what comes meanwhile
 * should not wait for two that are long. */
static bool executor_has_room(const struct agent_core *c)
{
    size_t ahead = c->config->runs_ahead ? c->config->runs_ahead : 1;
    if (c->n_running == 0)
        return true;
    const struct core_run *first = &c->runs[c->first_run];
    return c->n_running < ahead && c->n_running < CORE_RUNS && first->expected_s > 0 &&
           first->expected_s * 1000 < AGENT_SHORT_RUN_MS;
}

/* Batches of which nothing is left do not wait for the executor. */
static void dead_pass(struct agent_core *c, struct core_stage *s)
{
    while (s->queue && queue_dead_take(s->queue, &c->passed, &c->dropped_runs))
        empty_pass(c, s, &c->passed);
}

void core_dispatch(struct agent_core *c)
{
    for (size_t i = 0; i < c->n_stages; i++)
        dead_pass(c, c->stages[i]);
    while (executor_has_room(c) && dispatch_one(c))
        ;
}
