#include "coordinator/sequences.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/core_int.h"
#include "coordinator/sequence_deadlines.h"
#include "coordinator/shares.h"
#include "coordinator/slices.h"

enum { WAITING_LIMIT_MS = 60000 };

const struct machine_state sequence_states[SEQUENCE_STATE_COUNT] = {
    [SEQUENCE_WAITING] = {"waiting", MACHINE_TO(SEQUENCE_ACTIVE) | MACHINE_TO(SEQUENCE_CLOSED)},
    [SEQUENCE_ACTIVE] = {"active", MACHINE_TO(SEQUENCE_CLOSED)},
    [SEQUENCE_CLOSED] = {"closed", 0},
};

/* ---- lists
 * ----------------------------------------------------------------------------------------------------
 */

static struct sequence **active_place(struct deployment *d, uint64_t id)
{
    struct sequence **p = &d->active;
    while (*p && (*p)->id != id)
        p = &(*p)->next;
    return p;
}

static void waiting_unlink(struct deployment *d, struct sequence *s)
{
    struct sequence **p = &d->waiting_first, *before = NULL;
    while (*p != s) {
        before = *p;
        p = &(*p)->next;
    }
    *p = s->next;
    if (d->waiting_last == s)
        d->waiting_last = before;
    d->n_waiting--;
}

static void sequence_free(struct sequence *s)
{
    free(s->prompt);
    free(s->output);
    free(s);
}

void sequences_free(struct sequence **list)
{
    for (struct sequence *s = *list, *next; s; s = next) {
        next = s->next;
        sequence_free(s);
    }
    *list = NULL;
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns && from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

static struct request_usage usage_of(const struct core *c, const struct sequence *s)
{
    return (struct request_usage){
        .prompt_tokens = s->n_prompt,
        .output_tokens = s->n_output,
        .waited_s = seconds(s->asked_ns, s->opened_ns ? s->opened_ns : core_now(c)),
        .prefill_s = seconds(s->opened_ns, s->first_ns),
        .decode_s = seconds(s->first_ns, s->last_ns),
    };
}

/* ---- to the stages
 * ---------------------------------------------------------------------------------------------- */

static void stages_close(struct core *c, struct deployment *d, const struct sequence *s)
{
    struct message m = {.type = MESSAGE_SEQUENCE_CLOSE};
    m.u.sequence_close = (struct message_sequence_close){d->id, d->generation, s->id};
    for (int i = 0; i < d->n_stages; i++)
        if (!core_say(c, d->stages[i].agent->peer, &m))
            d->unclosed = true; /* that stage keeps it until it is connected anew */
}

static struct pack_u32s slices_make(const struct deployment *d, const struct sequence *s,
                                    uint32_t *room)
{
    int n = 0;
    if (s->slice) {
        for (size_t done = 0; done < s->n_prompt; n++) {
            size_t left = s->n_prompt - done;
            room[n] = (uint32_t)(s->slice < left ? s->slice : left);
            done += room[n];
        }
    } else if (s->kind != SEQUENCE_REQUEST && !s->planned) {
        room[n++] = (uint32_t)s->n_prompt;
    } else {
        n = slices_cut(d, (uint32_t)s->n_prompt, room);
    }
    return (struct pack_u32s){room, (size_t)n};
}

/* False: some stage did not hear of it, for want of memory. */
static bool stages_open(struct core *c, struct deployment *d, const struct sequence *s)
{
    uint32_t *room = calloc(s->n_prompt, sizeof *room);
    bool told = room != NULL;
    if (!room)
        return false;
    struct message_bias bias[REQUEST_MAX_BIAS];
    const struct request_sampling *g = &s->sampling;
    for (uint32_t i = 0; i < g->n_bias; i++)
        bias[i] = (struct message_bias){g->bias[i].token, (double)g->bias[i].bias};
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    struct message_sequence_open open = {
        .deployment = d->id,
        .generation = d->generation,
        .sequence = s->id,
        .max_tokens = s->max_tokens,
        .kv_tokens = s->n_prompt + s->max_tokens,
        .all_logits = s->kind == SEQUENCE_LOGITS,
        .prompt_tokens = s->kind == SEQUENCE_LOGITS ? 0 : s->n_prompt,
        .temperature = g->temperature,
        .top_p = g->top_p,
        .min_p = g->min_p,
        .repetition_penalty = g->repetition_penalty,
        .presence_penalty = g->presence_penalty,
        .frequency_penalty = g->frequency_penalty,
        .top_k = g->top_k,
        .seed = g->seed,
        .bias = {bias, g->n_bias},
    };
    if (!s->ignore_end)
        open.end_ids = (struct pack_u32s){d->model->facts.end_ids, d->model->facts.n_end_ids};
    struct pack_u32s prompt = {s->prompt, s->n_prompt}, none = {NULL, 0},
                     slices = slices_make(d, s, room);
    for (int i = 0; i < d->n_stages; i++) {
        bool first = i == 0, last = i == d->n_stages - 1;
        m.u.sequence_open = open;
        m.u.sequence_open.prompt = first || last ? prompt : none;
        m.u.sequence_open.slices = first ? slices : none;
        told = core_say(c, d->stages[i].agent->peer, &m) && told;
    }
    free(room);
    return told;
}

/* ---- the end of a sequence
 * ----------------------------------------------------------------------------------------- */

/* Takes it out of its deployment; the caller frees it. */
static void sequence_close(struct core *c, struct sequence *s)
{
    struct deployment *d = s->deployment;
    if (s->state == SEQUENCE_WAITING) {
        waiting_unlink(d, s);
    } else {
        *active_place(d, s->id) = s->next;
        d->n_active--;
        d->kv_reserved -= s->kv_tokens;
        stages_close(c, d, s);
        shares_note(d, core_now(c) - s->opened_ns);
    }
    machine_move(sequence_states, &s->state, SEQUENCE_CLOSED);
    c->counts.output_tokens += s->n_output;
}

/* The last of its callbacks; takes the sequence. */
static struct core_action *call_back_last(struct core *c, enum core_action_kind kind,
                                          struct sequence *s)
{
    struct core_action *a = core_end_add(c, kind, s);
    s->ends = false;
    a->callbacks = s->callbacks;
    a->request = s->request;
    a->usage = usage_of(c, s);
    return a;
}

static bool call_back_tokens(struct core *c, const struct sequence *s, const uint32_t *ids,
                             size_t n)
{
    struct core_action *a = core_action_add(c, CORE_TOKENS, ids, n * sizeof *ids);
    if (!a)
        return false;
    a->callbacks = s->callbacks;
    a->request = s->request;
    a->usage = usage_of(c, s);
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

static void sequence_fail(struct core *c, struct sequence *s, const struct err *why)
{
    log_info("coordinator", "sequence_failed", "deployment=%s sequence=%llu output=%llu why=\"%s\"",
             s->deployment->name, (unsigned long long)s->id, (unsigned long long)s->n_output,
             why->text);
    sequence_close(c, s);
    c->counts.failed++;
    if (s->kind == SEQUENCE_REQUEST) {
        s->why = *why;
        call_back_last(c, CORE_FAILED, s)->why = &s->why;
        return;
    }
    asked_alone(s); /* the others answer nothing any more */
    if (s->ask)
        core_answer_error(c, s->peer, s->ask, why);
    sequence_free(s);
}

static void sequence_fail_memory(struct core *c, struct sequence *s)
{
    struct err e;
    err_set(&e, HP_ENOMEM, "the coordinator has no memory for this request");
    sequence_fail(c, s, &e);
}

static json_t *greedy_result(const struct core_model *f, const struct sequence *s)
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

static void sequence_finish(struct core *c, struct sequence *s, enum request_finish finish)
{
    sequence_close(c, s);
    c->counts.finished++;
    const struct core_model *f = &s->deployment->model->facts;
    if (s->kind == SEQUENCE_REQUEST) {
        call_back_last(c, CORE_FINISHED, s)->finish = finish;
        return;
    }
    if (s->planned && !asked_last(s))
        ;
    else if (s->kind == SEQUENCE_GREEDY)
        core_answer(c, s->peer, s->ask, false, greedy_result(f, s));
    else
        core_answer(c, s->peer, s->ask, false,
                    json_pack("{s:I, s:I}", "tokens", (json_int_t)s->n_prompt, "vocabulary",
                              (json_int_t)f->vocabulary));
    sequence_free(s);
}

void sequences_fail_all(struct core *c, struct deployment *d, bool waiting, const struct err *why)
{
    while (d->active)
        sequence_fail(c, d->active, why);
    while (waiting && d->waiting_first)
        sequence_fail(c, d->waiting_first, why);
}

/* ---- admission
 * -------------------------------------------------------------------------------------------------------
 */

static bool has_room(const struct deployment *d, const struct sequence *s)
{
    return d->n_active < d->max_sequences && d->kv_reserved + s->kv_tokens <= d->kv_tokens;
}

static void activate(struct core *c, struct deployment *d, struct sequence *s)
{
    waiting_unlink(d, s);
    machine_move(sequence_states, &s->state, SEQUENCE_ACTIVE);
    s->id = d->next_sequence++;
    s->opened_ns = core_now(c);
    s->next = d->active;
    d->active = s;
    d->n_active++;
    d->kv_reserved += s->kv_tokens;
    sequence_deadline_start(c, d, s);
    c->counts.opened++;
    c->counts.prompt_tokens += s->n_prompt;
    if (!stages_open(c, d, s))
        sequence_fail_memory(c, s);
}

void sequences_admit(struct core *c, struct deployment *d)
{
    struct err overdue = {0};
    for (struct sequence *s; (s = sequence_overdue(c, d, &overdue)) != NULL;)
        sequence_fail(c, s, &overdue);
    /* Whose turn it is goes first or nobody does: a long one that waits for room is not overtaken
     * for ever by short ones. */
    uint64_t now = core_now(c);
    for (struct sequence *s; d->state == DEPLOYMENT_SERVING && !d->moving &&
                             (s = shares_next(d, now)) && has_room(d, s);)
        activate(c, d, s);
    while (d->waiting_first && now - d->waiting_first->asked_ns > core_ms(WAITING_LIMIT_MS)) {
        struct err e = {0};
        err_set(&e, HP_ETIMEOUT, "waited %d s for room on \"%s\"%s%s", WAITING_LIMIT_MS / 1000,
                d->name, d->why.code ? ": " : "", d->why.text);
        sequence_fail(c, d->waiting_first, &e);
    }
}

static int prompt_check(const struct deployment *d, const uint32_t *ids, size_t n, struct err *e)
{
    const struct core_model *f = &d->model->facts;
    if (n == 0)
        return err_set(e, HP_EINVAL, "the prompt is empty");
    if (n >= d->context)
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

static int queue_check(struct core *c, const struct deployment *d, const char *client,
                       struct err *e)
{
    uint32_t own = shares_waiting_of(d, client);
    if (d->n_waiting < CORE_MAX_WAITING && own < CORE_MAX_WAITING_OF_CLIENT)
        return 0;
    c->counts.rejected++;
    return err_set(
        e, HP_EBUSY,
        "%u requests wait for \"%s\" already, %u of them of this client: try again later",
        d->n_waiting, d->name, own);
}

/* Makes a sequence at the end of the queue. */
static int sequence_create(struct core *c, struct deployment *d, const char *client,
                           const uint32_t *ids, size_t n, uint64_t max_tokens,
                           struct sequence **out, struct err *e)
{
    if (d->state != DEPLOYMENT_SERVING) {
        c->counts.rejected++;
        return err_set(e, HP_EBUSY, "\"%s\" is %s%s%s: try again later", d->name,
                       deployment_states[d->state].word, d->why.code ? ": " : "", d->why.text);
    }
    int rc = prompt_check(d, ids, n, e);
    if (rc < 0 || (rc = queue_check(c, d, client, e)) < 0)
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
    s->n_prompt = n;
    s->max_tokens = max_tokens && max_tokens < room ? max_tokens : room;
    s->kv_tokens =
        (n + s->max_tokens + DEPLOYMENT_KV_ROUND - 1) / DEPLOYMENT_KV_ROUND * DEPLOYMENT_KV_ROUND;
    s->sampling = request_sampling_greedy;
    snprintf(s->client, sizeof s->client, "%s", client);
    s->deployment = d;
    s->asked_ns = core_now(c);
    s->request = c->next_request++;
    *(d->waiting_last ? &d->waiting_last->next : &d->waiting_first) = s;
    d->waiting_last = s;
    d->n_waiting++;
    *out = s;
    return 0;
}

int sequences_request_open(struct core *c, const struct request *r, uint64_t *id, struct err *e)
{
    struct deployment *d = deployment_find(c, r->model);
    if (!d)
        return err_set(e, HP_ENOENT, "no model \"%.100s\" is deployed here", r->model);
    struct sequence *s;
    if (!core_ends_reserve(c))
        return err_set(e, HP_ENOMEM, "the coordinator has no memory for another request");
    int rc = sequence_create(c, d, r->client ? r->client : "", r->prompt, r->n_prompt,
                             r->max_tokens, &s, e);
    if (rc < 0) {
        c->n_ends--;
        return rc;
    }
    s->kind = SEQUENCE_REQUEST;
    s->ends = true;
    if (r->sampling)
        s->sampling = *r->sampling;
    s->ignore_end = r->ignore_end;
    s->callbacks = r->callbacks;
    *id = s->request;
    sequences_admit(c, d);
    return 0;
}

int sequences_ask_open(struct core *c, struct deployment *d, uint64_t peer, uint64_t ask,
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
    int rc = sequence_create(c, d, "", ids, n, tokens ? tokens : 1, &s, e);
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
    sequences_admit(c, d);
    return 0;
}

int sequences_prefill_open(struct core *c, struct deployment *d, uint64_t peer, uint64_t ask,
                           const uint32_t *ids, size_t n, uint64_t count, struct err *e)
{
    struct sequence *s;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        uint32_t *output = calloc(1, sizeof *output);
        rc = output ? sequence_create(c, d, "", ids, n, 1, &s, e)
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
    sequences_admit(c, d);
    return rc;
}

/* ---- what gateways and agents say
 * --------------------------------------------------------------------------------------- */

static struct sequence *find_request(struct core *c, uint64_t request)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct sequence *lists[] = {c->deployments[i]->active, c->deployments[i]->waiting_first};
        for (int k = 0; k < 2; k++)
            for (struct sequence *s = lists[k]; s; s = s->next)
                if (s->request == request)
                    return s;
    }
    return NULL;
}

void sequences_request_cancel(struct core *c, uint64_t id, bool satisfied,
                              struct request_usage *usage)
{
    core_actions_forget_request(c, id);
    if (usage)
        *usage = (struct request_usage){0};
    struct sequence *s = find_request(c, id);
    if (!s)
        return;
    if (usage)
        *usage = usage_of(c, s);
    struct deployment *d = s->deployment;
    sequence_close(c, s);
    c->n_ends -= s->ends;
    sequence_free(s);
    *(satisfied ? &c->counts.finished : &c->counts.cancelled) += 1;
    sequences_admit(c, d);
}

static void list_peer_gone(struct core *c, struct sequence *s, uint64_t peer)
{
    for (struct sequence *next; s; s = next) {
        next = s->next;
        if (s->kind == SEQUENCE_REQUEST || s->peer != peer)
            continue;
        sequence_close(c, s);
        sequence_free(s);
        c->counts.cancelled++;
    }
}

void sequences_peer_gone(struct core *c, uint64_t peer)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        list_peer_gone(c, c->deployments[i]->active, peer);
        list_peer_gone(c, c->deployments[i]->waiting_first, peer);
    }
}

/* The sequence that a message of a stage means; NULL for one that is closed, of an older
 * generation, or not this agent's to speak of: any stage may say that it fails, the last alone what
 * came out. */
static struct sequence *find_active(struct core *c, const struct member *m, bool last,
                                    uint64_t deployment, uint64_t generation, uint64_t sequence)
{
    struct deployment *d = deployment_of_id(c, deployment);
    bool mine = false;
    for (int i = d && last && d->n_stages ? d->n_stages - 1 : 0; d && i < d->n_stages; i++)
        mine = mine || d->stages[i].agent == m;
    struct sequence *s = mine && d->generation == generation ? *active_place(d, sequence) : NULL;
    if (!s)
        c->counts.stale++;
    return s;
}

static void sequence_lost(struct core *c, struct sequence *s, uint64_t got)
{
    struct deployment *d = s->deployment;
    struct err e = {0};
    err_set(&e, HP_ELINK, "tokens %llu to %llu were lost on their way from the last stage",
            (unsigned long long)s->n_output, (unsigned long long)got - 1);
    sequence_fail(c, s, &e);
    sequences_admit(c, d);
}

static void sequence_logits_lost(struct core *c, struct sequence *s)
{
    struct deployment *d = s->deployment;
    struct err e = {0};
    err_set(&e, HP_ELINK,
            "logits of %llu of %zu positions were lost on their way from the last stage",
            (unsigned long long)(s->n_prompt - s->n_logits), s->n_prompt);
    sequence_fail(c, s, &e);
    sequences_admit(c, d);
}

void sequences_tokens(struct core *c, struct member *m, const struct message_tokens *t)
{
    struct sequence *s = find_active(c, m, true, t->deployment, t->generation, t->sequence);
    if (!s || (s->kind == SEQUENCE_LOGITS && !t->finish[0]))
        return;
    struct deployment *d = s->deployment;
    if (t->first > s->n_output) {
        sequence_lost(c, s, t->first);
        return;
    }
    if (s->kind == SEQUENCE_LOGITS && s->n_logits < s->n_prompt) {
        sequence_logits_lost(c, s);
        return;
    }
    size_t known = (size_t)(s->n_output - t->first); /* told before */
    size_t fresh = t->ids.count > known ? t->ids.count - known : 0;
    if (fresh > s->max_tokens - s->n_output)
        fresh = (size_t)(s->max_tokens - s->n_output);
    const uint32_t *ids = t->ids.items + known;
    if (fresh) {
        s->last_ns = core_now(c);
        sequence_deadline_sign(c, d, s, !s->first_ns);
        if (!s->first_ns)
            s->first_ns = s->last_ns;
        if (s->output)
            memcpy(s->output + s->n_output, ids, fresh * sizeof *ids);
        s->n_output += fresh;
    }
    bool stopped = strcmp(t->finish, "stop") == 0;
    size_t shown = fresh - (stopped && fresh ? 1 : 0); /* the end token is not text */
    if (s->kind == SEQUENCE_REQUEST && shown && !call_back_tokens(c, s, ids, shown)) {
        sequence_fail_memory(c, s);
        return;
    }
    if (t->finish[0]) {
        sequence_finish(c, s, stopped ? REQUEST_STOP : REQUEST_LENGTH);
        sequences_admit(c, d);
    }
}

void sequences_logits(struct core *c, struct member *m, const struct message_logits *l)
{
    struct sequence *s = find_active(c, m, true, l->deployment, l->generation, l->sequence);
    if (!s || s->kind != SEQUENCE_LOGITS)
        return;
    struct message a = {.type = MESSAGE_ANSWER, .id = s->ask};
    json_t *result = json_pack("{s:I, s:I}", "first_position", (json_int_t)l->first_position,
                               "count", (json_int_t)l->count);
    char *text = json_dumps(result, JSON_COMPACT);
    a.u.answer = (struct message_answer){
        .more = true, .code = "ok", .text = "", .hint = "", .result = text, .blob = l->values};
    core_say(c, s->peer, &a);
    free(text);
    json_decref(result);
    s->n_logits += l->count;
    sequence_deadline_sign(c, s->deployment, s, false);
}

void sequences_failed(struct core *c, struct member *m, const struct message_sequence_failed *f)
{
    struct sequence *s = find_active(c, m, false, f->deployment, f->generation, f->sequence);
    if (!s)
        return;
    struct deployment *d = s->deployment;
    struct err e = {0};
    err_set(&e, core_failure_code(f->code), "%s: %s", m->name, f->text);
    sequence_fail(c, s, &e);
    sequences_admit(c, d);
}
