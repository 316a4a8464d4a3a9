/* The simulated cluster: time, network, coordinator, clients. */
#include "tests/sim/cluster.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/store/store.h"
#include "tests/sim/cluster_int.h"

static const uint64_t msec = 1000000;
static const char admin_key[] = "admin-key-of-forty-characters-0123456789";

uint64_t sim_random(struct sim *s, uint64_t n)
{
    return n ? random_next(&s->chance) % n : 0;
}

uint64_t sim_delay_ns(struct sim *s, uint64_t least_ns, uint64_t most_ns)
{
    return least_ns + sim_random(s, most_ns - least_ns + 1);
}

/* ---- time
 * -------------------------------------------------------------------------------------------------------
 */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

static void event_push(struct sim *s, struct sim_event *ev)
{
    if (s->n_events == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 256;
        s->events = realloc(s->events, s->capacity * sizeof(struct sim_event *));
        assert(s->events);
    }
    size_t i = s->n_events++;
    for (; i > 0 && before(ev, s->events[(i - 1) / 2]); i = (i - 1) / 2)
        s->events[i] = s->events[(i - 1) / 2];
    s->events[i] = ev;
}

static struct sim_event *event_pop(struct sim *s)
{
    struct sim_event *first = s->events[0], *last = s->events[--s->n_events];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < s->n_events && before(s->events[child + 1], s->events[child]))
            child++;
        if (child >= s->n_events || !before(s->events[child], last))
            break;
        s->events[i] = s->events[child];
        i = child;
    }
    s->events[i] = last;
    return first;
}

struct sim_event *sim_event_add(struct sim *s, enum sim_event_kind kind, uint64_t after_ns)
{
    struct sim_event *ev = calloc(1, sizeof *ev);
    assert(ev);
    ev->kind = kind;
    ev->at_ns = s->clock.now_ns + after_ns;
    ev->order = s->event_order++;
    event_push(s, ev);
    return ev;
}

void sim_event_free(struct sim_event *ev)
{
    free(ev->bytes);
    free(ev->runs);
    free(ev->tokens);
    free(ev->buffer);
    for (size_t i = 0; i < ev->n_changes; i++)
        free(ev->changes[i].bytes);
    free(ev->changes);
    free(ev);
}

/* ---- the control channel
 * ------------------------------------------------------------------------------------------ */

struct sim_agent *sim_agent_at(struct sim *s, const char *address)
{
    for (int i = 0; i < s->n_agents; i++)
        if (s->agents[i]->alive && strcmp(s->agents[i]->address, address) == 0)
            return s->agents[i];
    return NULL;
}

/* Onto the connection, behind what was said before. */
static void to_core(struct sim *s, struct sim_agent *a, struct sim_event *ev)
{
    uint64_t at = s->clock.now_ns + sim_delay_ns(s, 50000, 2 * msec);
    a->to_core_ns = at > a->to_core_ns ? at : a->to_core_ns;
    ev->at_ns = a->to_core_ns;
    ev->order = s->event_order++;
    ev->peer = a->peer;
    ev->incarnation = s->core_incarnation;
    event_push(s, ev);
}

void sim_say(struct sim *s, struct sim_agent *a, const struct message *m)
{
    struct buffer bytes = {0};
    message_encode(m, &bytes);
    struct sim_event *ev = calloc(1, sizeof *ev);
    assert(ev && !bytes.failed);
    ev->kind = EVENT_TO_CORE;
    ev->agent = a->index;
    ev->bytes = bytes.data;
    ev->size = bytes.size;
    snprintf(ev->key, sizeof ev->key, "%s", a->key);
    if (a->peer) {
        to_core(s, a, ev);
        return;
    }
    a->unsent = realloc(a->unsent, (a->n_unsent + 1) * sizeof(struct sim_event *));
    assert(a->unsent);
    a->unsent[a->n_unsent++] = ev;
}

static void connected(struct sim *s, struct sim_agent *a)
{
    if (!s->core || !a->alive || a->peer)
        return;
    a->peer = s->next_peer++;
    for (size_t i = 0; i < a->n_unsent; i++)
        to_core(s, a, a->unsent[i]);
    a->n_unsent = 0;
}

void sim_connection_break(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    if (!a->alive || !a->peer)
        return;
    a->peer = 0; /* what is on its way carries the old number and is lost */
    sim_event_add(s, EVENT_CONNECT, sim_delay_ns(s, 10 * msec, 300 * msec))->agent = agent;
}

/* ---- the coordinator
 * ------------------------------------------------------------------------------------------------
 */

static void admin_answer(struct sim *s, const struct core_action *a);

static void send(struct sim *s, const struct core_action *act)
{
    if (act->peer == SIM_ADMIN_PEER && !s->admin_gone) {
        admin_answer(s, act);
        return;
    }
    bool found = false;
    for (int i = 0; i < s->n_agents; i++) {
        struct sim_agent *a = s->agents[i];
        if (!a->alive || a->peer != act->peer)
            continue;
        found = true;
        uint64_t at = s->clock.now_ns + sim_delay_ns(s, 50000, 2 * msec);
        a->to_agent_ns = at > a->to_agent_ns ? at : a->to_agent_ns;
        struct sim_event *ev = sim_event_add(s, EVENT_TO_AGENT, a->to_agent_ns - s->clock.now_ns);
        ev->agent = i;
        ev->peer = act->peer;
        ev->incarnation = a->incarnation;
        ev->size = act->size;
        ev->bytes = malloc(act->size);
        assert(ev->bytes);
        memcpy(ev->bytes, act->bytes, act->size);
    }
    if (!found)
        core_peer_gone(s->core, act->peer);
}

static void act(struct sim *s, const struct core_action *a)
{
    if (a->kind == CORE_SEND) {
        send(s, a);
    } else if (a->kind == CORE_MODEL_OPEN) {
        struct sim_event *ev = sim_event_add(s, EVENT_MODEL, sim_delay_ns(s, msec, 20 * msec));
        ev->incarnation = s->core_incarnation;
        snprintf(ev->key, sizeof ev->key, "%s", a->key);
    } else if (a->kind == CORE_WORK) {
        struct sim_event *ev = sim_event_add(s, EVENT_WORKED, sim_delay_ns(s, msec, 200 * msec));
        ev->incarnation = s->core_incarnation;
        ev->work = a->work;
    } else if (a->kind >= CORE_TOKENS) {
        core_action_call_back(s->core, a);
    }
}

/* The batch of a step goes to the disk, behind those before it; a coordinator that dies first has
 * never written it. */
static void keep(struct sim *s, const struct core_action *actions, size_t n)
{
    struct sim_event *ev = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct core_action *a = &actions[i];
        if (a->kind != CORE_STORE)
            continue;
        if (!ev) {
            uint64_t at =
                s->clock.now_ns + sim_delay_ns(s, s->disk_ns / 2 + 100000, s->disk_ns + 30 * msec);
            s->stored_ns = at > s->stored_ns ? at : s->stored_ns;
            ev = sim_event_add(s, EVENT_STORED, s->stored_ns - s->clock.now_ns);
            ev->incarnation = s->core_incarnation;
            ev->number = a->number;
            ev->changes = calloc(n, sizeof *ev->changes);
            assert(ev->changes);
        }
        struct sim_change *c = &ev->changes[ev->n_changes++];
        snprintf(c->kind, sizeof c->kind, "%s", a->record_kind);
        snprintf(c->key, sizeof c->key, "%s", a->key);
        c->size = a->size;
        c->bytes = a->bytes ? malloc(a->size + 1) : NULL;
        if (c->bytes)
            memcpy(c->bytes, a->bytes, a->size);
    }
}

static void stored(struct sim *s, const struct sim_event *ev)
{
    struct err e = {0};
    for (size_t i = 0; i < ev->n_changes; i++) {
        const struct sim_change *c = &ev->changes[i];
        struct store_change change = {c->kind, c->key, c->bytes, c->size};
        int rc = store_apply(s->store, &change, 1, &e);
        assert(rc == 0);
    }
    core_stored(s->core, ev->number, NULL);
}

void sim_core_settle(struct sim *s)
{
    size_t n;
    const struct core_action *actions;
    while (actions = core_take(s->core, &n), n > 0) {
        keep(s, actions, n);
        for (size_t i = 0; i < n; i++)
            act(s, &actions[i]);
    }
}

struct restoring {
    struct core *core;
    const char *kind;
};

static int restore_one(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    struct restoring *r = ctx;
    return core_restore(r->core, r->kind, key, bytes, size, e);
}

void sim_coordinator_start(struct sim *s)
{
    if (s->core)
        return;
    struct err e = {0};
    struct core_config config = {.env = &s->env,
                                 .cluster = "sim",
                                 .version = "sim",
                                 .public_key = "server-key-of-forty-characters-012345678",
                                 .admin_key = admin_key,
                                 .unix_s = 1000000 + s->clock.now_ns / 1000000000u,
                                 .max_sequences = 4,
                                 .profile_ms = s->profile_ms};
    int rc = core_create(&config, &s->core, &e);
    assert(rc == 0);
    for (int i = 0; core_kinds[i]; i++) {
        struct restoring r = {s->core, core_kinds[i]};
        rc = store_each(s->store, core_kinds[i], restore_one, &r, &e);
        if (rc < 0)
            fprintf(stderr, "# seed %llu: %s\n", (unsigned long long)s->seed, e.text);
        assert(rc == 0);
    }
    s->core_incarnation++;
    core_start(s->core);
    core_requests(s->core, &s->requests);
    sim_core_settle(s);
    sim_event_add(s, EVENT_TICK, CORE_TICK_MS * msec)->incarnation = s->core_incarnation;
    for (int i = 0; i < s->n_agents; i++)
        sim_event_add(s, EVENT_CONNECT, sim_delay_ns(s, 10 * msec, 500 * msec))->agent = i;
}

void sim_coordinator_stop(struct sim *s)
{
    s->core_stopped = s->core != NULL;
}

/* Its timer first, as a loop does after a pause; then what lies in its sockets, in the order in
 * which it came. */
void sim_coordinator_continue(struct sim *s)
{
    s->core_stopped = false;
    for (int ticks = 1; ticks >= 0; ticks--)
        for (size_t i = 0; i < s->n_core_deferred; i++) {
            struct sim_event *ev = s->core_deferred[i];
            if ((ev->kind == EVENT_TICK) != ticks)
                continue;
            ev->at_ns = s->clock.now_ns;
            ev->order = s->event_order++;
            event_push(s, ev);
        }
    s->n_core_deferred = 0;
}

static bool core_event_defer(struct sim *s, struct sim_event *ev)
{
    if (!s->core_stopped)
        return false;
    s->core_deferred =
        realloc(s->core_deferred, (s->n_core_deferred + 1) * sizeof(struct sim_event *));
    assert(s->core_deferred);
    s->core_deferred[s->n_core_deferred++] = ev;
    return true;
}

void sim_coordinator_kill(struct sim *s)
{
    if (!s->core)
        return;
    sim_coordinator_continue(s); /* what lay in its sockets is lost with it */
    core_destroy(&s->core);
    s->core_incarnation++;
    for (int i = 0; i < s->n_agents; i++)
        s->agents[i]->peer = 0;
    for (int i = 0; i < s->n_clients; i++)
        if (s->clients[i].open) {
            s->clients[i].open = false;
            s->clients[i].lost = true;
        }
}

/* ---- what hpctl would do
 * ---------------------------------------------------------------------------------------------- */

static void upload(struct sim *s, const json_t *part)
{
    const json_t *targets = json_object_get(part, "targets");
    for (size_t i = 0; s->uploader && i < json_array_size(targets); i++) {
        const json_t *t = json_array_get(targets, i);
        for (int k = 0; k < s->n_agents; k++)
            if (strcmp(s->agents[k]->name, json_string_value(json_object_get(t, "agent"))) == 0) {
                s->uploads += json_array_size(json_object_get(t, "chunks"));
                sim_agent_uploaded(s, s->agents[k], json_object_get(t, "chunks"));
            }
    }
}

static void admin_answer(struct sim *s, const struct core_action *a)
{
    struct arena arena = {0};
    struct message m;
    struct err e = {0};
    int rc = message_decode(a->bytes, a->size, &arena, &m, &e);
    assert(rc == 0 && m.type == MESSAGE_ANSWER);
    json_t *result = json_loads(m.u.answer.result, JSON_DECODE_ANY, NULL);
    buffer_append(&s->logits, m.u.answer.blob.data, m.u.answer.blob.size);
    const char *phase = json_string_value(json_object_get(result, "phase"));
    if (m.u.answer.more && phase && strcmp(phase, "upload") == 0)
        upload(s, result);
    if (m.u.answer.more) {
        json_decref(result);
    } else {
        json_decref(s->answer);
        s->answer = result;
        s->answered++;
        s->answer_error = (struct err){0};
        if (strcmp(m.u.answer.code, "ok") != 0) {
            err_set(&s->answer_error, status_of_word(m.u.answer.code), "%s", m.u.answer.text);
            err_hint(&s->answer_error, "%s", m.u.answer.hint);
        }
    }
    arena_free(&arena);
}

void sim_ask(struct sim *s, const char *verb, json_t *arguments, const struct buffer *blob)
{
    char *text = arguments ? json_dumps(arguments, 0) : NULL;
    struct message m = {.type = MESSAGE_ASK, .id = 1};
    m.u.ask.verb = verb;
    m.u.ask.arguments = text ? text : "{}";
    if (blob)
        m.u.ask.blob = (struct pack_span){blob->data, blob->size};
    struct buffer bytes = {0};
    message_encode(&m, &bytes);
    s->logits.size = 0;
    core_message(s->core, SIM_ADMIN_PEER, admin_key, bytes.data, bytes.size);
    sim_core_settle(s);
    buffer_free(&bytes);
    free(text);
    json_decref(arguments);
}

static uint64_t awaited;
static bool is_answered(struct sim *s)
{
    return s->answered > awaited;
}

int sim_ask_wait(struct sim *s, const char *verb, json_t *arguments, const struct buffer *blob)
{
    awaited = s->answered;
    sim_ask(s, verb, arguments, blob);
    if (!sim_run_until(s, is_answered, 120000))
        return HP_ETIMEOUT;
    return s->answer_error.code;
}

int sim_deploy(struct sim *s, const char *agents, const char *layers, uint64_t slice)
{
    struct buffer manifest = {0};
    toy_manifest("toy", &manifest);
    json_t *options = json_pack("{s:s*, s:s*, s:I}", "agents", agents, "layers", layers, "slice",
                                (json_int_t)slice);
    int rc = sim_ask_wait(s, "deploy", json_pack("{s:s, s:o}", "name", "toy", "options", options),
                          &manifest);
    buffer_free(&manifest);
    return rc;
}

void sim_deploy_as(struct sim *s, const char *name, const char *agents)
{
    struct buffer manifest = {0};
    toy_manifest("toy", &manifest);
    sim_ask(s, "deploy", json_pack("{s:s, s:{s:s*}}", "name", name, "options", "agents", agents),
            &manifest);
    buffer_free(&manifest);
}

bool sim_serves_name(struct sim *s, const char *name)
{
    struct request_model m;
    return s->core && s->requests.find(s->requests.ctx, name, &m, NULL) == 0 && m.serving;
}

bool sim_serves(struct sim *s)
{
    return sim_serves_name(s, "toy");
}

/* ---- clients
 * --------------------------------------------------------------------------------------------------------------
 */

static struct sim_client *client_of(void *ctx, uint64_t request)
{
    struct sim_client *c = ctx;
    if (c->request != request || !c->open) {
        c->sim->wrong++;
        return NULL;
    }
    return c;
}

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    struct sim_client *c = client_of(ctx, request);
    for (size_t i = 0; c && i < n; i++) {
        size_t shown = c->n_expected - (c->ends_early ? 1 : 0);
        bool right = c->n_got < shown && ids[i] == c->expected[c->n_got];
        c->sim->wrong += !right;
        if (c->n_got < SIM_MAX_OUTPUT)
            c->got[c->n_got++] = ids[i];
    }
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct sim_client *c = client_of(ctx, request);
    if (!c)
        return;
    c->open = false;
    c->finished = true;
    size_t shown = c->n_expected - (c->ends_early ? 1 : 0);
    c->sim->wrong += c->n_got != shown || (finish == REQUEST_STOP) != c->ends_early ||
                     usage->output_tokens != c->n_expected;
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct sim_client *c = client_of(ctx, request);
    (void)usage;
    if (!c)
        return;
    c->open = false;
    c->failed = true;
    c->why = *why;
    c->sim->wrong += why->code == 0 || why->text[0] == 0;
}

struct sim_client *sim_request(struct sim *s, size_t n, size_t max_tokens, struct err *e)
{
    return sim_request_of(s, "toy", n, max_tokens, e);
}

struct sim_client *sim_request_of(struct sim *s, const char *name, size_t n, size_t max_tokens,
                                  struct err *e)
{
    if (!s->core || s->n_clients == SIM_CLIENTS) {
        err_set(e, HP_ENOCLUSTER, "no coordinator");
        return NULL;
    }
    struct sim_client *c = &s->clients[s->n_clients];
    *c = (struct sim_client){.sim = s, .n_prompt = n};
    for (size_t i = 0; i < n; i++)
        c->prompt[i] = (uint32_t)sim_random(s, TOY_VOCABULARY);
    c->n_expected = toy_run(c->prompt, n, false, c->expected,
                            max_tokens < SIM_MAX_OUTPUT ? max_tokens : SIM_MAX_OUTPUT);
    c->ends_early = c->n_expected && c->expected[c->n_expected - 1] == TOY_END;
    struct request r = {.model = name,
                        .prompt = c->prompt,
                        .n_prompt = n,
                        .max_tokens = max_tokens,
                        .sampling = &request_sampling_greedy,
                        .callbacks = {c, on_tokens, on_finished, on_failed}};
    if (s->requests.open(s->requests.ctx, &r, &c->request, e) < 0)
        return NULL;
    c->open = true;
    s->n_clients++;
    sim_core_settle(s);
    return c;
}

void sim_cancel(struct sim *s, struct sim_client *c)
{
    if (!c->open || !s->core)
        return;
    c->open = false;
    c->cancelled = true;
    s->requests.cancel(s->requests.ctx, c->request, false, NULL);
    sim_core_settle(s);
}

bool sim_quiet(struct sim *s)
{
    for (int i = 0; i < s->n_clients; i++)
        if (s->clients[i].open)
            return false;
    return true;
}

uint64_t sim_leftovers(const struct sim *s)
{
    struct core_view v = s->core ? core_view(s->core) : (struct core_view){0};
    uint64_t n = v.sequences_active + v.sequences_waiting;
    for (int i = 0; i < s->n_agents; i++) {
        const struct sim_agent *a = s->agents[i];
        if (!a->alive)
            continue;
        struct agent_core_view view = agent_core_view(a->core);
        n += view.n_sequences + view.n_held_frames + a->buffers;
        for (size_t k = 0; k < a->n_stages; k++)
            n += a->stages[k].n_sequences;
    }
    return n;
}

/* ---- running
 * ---------------------------------------------------------------------------------------------------------------
 */

static void core_event(struct sim *s, struct sim_event *ev)
{
    if (!s->core || ev->incarnation != s->core_incarnation)
        return;
    if (ev->kind == EVENT_TICK) {
        core_tick(s->core);
        sim_event_add(s, EVENT_TICK, CORE_TICK_MS * msec)->incarnation = s->core_incarnation;
    } else if (ev->kind == EVENT_WORKED) {
        ev->work->run(ev->work);
        core_worked(s->core, ev->work);
    } else if (ev->kind == EVENT_STORED) {
        stored(s, ev);
    } else if (ev->kind == EVENT_MODEL) {
        core_model_opened(s->core, ev->key, &toy_facts, NULL);
    } else {
        struct sim_agent *a = s->agents[ev->agent];
        if (a->peer != ev->peer)
            return; /* the connection broke while it was on its way */
        core_message(s->core, ev->peer, ev->key, ev->bytes, ev->size);
        if ((double)sim_random(s, 1000) < 1000 * s->network.repeat)
            core_message(s->core, ev->peer, ev->key, ev->bytes, ev->size);
    }
    sim_core_settle(s);
}

static bool agent_event_defer(struct sim_agent *a, struct sim_event *ev)
{
    if (!a->stopped)
        return false;
    a->deferred = realloc(a->deferred, (a->n_deferred + 1) * sizeof(struct sim_event *));
    assert(a->deferred);
    a->deferred[a->n_deferred++] = ev;
    return true;
}

static void step(struct sim *s)
{
    struct sim_event *ev = event_pop(s);
    s->clock.now_ns = ev->at_ns;
    if (ev->kind == EVENT_TICK || ev->kind == EVENT_MODEL || ev->kind == EVENT_WORKED ||
        ev->kind == EVENT_STORED || ev->kind == EVENT_TO_CORE) {
        if (core_event_defer(s, ev))
            return;
        core_event(s, ev);
    } else if (ev->kind == EVENT_CONNECT) {
        connected(s, s->agents[ev->agent]);
    } else {
        struct sim_agent *a = s->agents[ev->agent];
        bool lost = !a->alive || ev->incarnation != a->incarnation ||
                    (ev->kind == EVENT_TO_AGENT && ev->peer != a->peer);
        s->frames_lost += lost && ev->kind == EVENT_FRAME;
        if (!lost && agent_event_defer(a, ev))
            return;
        if (!lost)
            sim_agent_handle(s, a, ev);
    }
    sim_event_free(ev);
}

void sim_run_ms(struct sim *s, uint64_t ms)
{
    uint64_t end = s->clock.now_ns + ms * msec;
    while (s->n_events && s->events[0]->at_ns <= end)
        step(s);
    s->clock.now_ns = end;
}

bool sim_run_until(struct sim *s, bool (*done)(struct sim *s), uint64_t limit_ms)
{
    uint64_t end = s->clock.now_ns + limit_ms * msec;
    while (!done(s)) {
        if (!s->n_events || s->events[0]->at_ns > end)
            return false;
        step(s);
    }
    return true;
}

static bool all_ready(struct sim *s)
{
    return core_view(s->core).members_ready == (uint32_t)s->n_agents;
}

void sim_open(struct sim *s, uint64_t seed, int agents)
{
    *s = (struct sim){.seed = seed,
                      .chance = seed ^ 0x5eed,
                      .n_agents = agents,
                      .next_peer = 100,
                      .uploader = true,
                      .profile_ms = UINT64_MAX};
    s->network.slow_ns = 3 * msec;
    s->env = env_virtual_init(&s->clock, seed);
    s->clock.now_ns = 1000 * msec;
    if (!getenv("HP_LOG"))
        log_set_level(LOG_ERROR);
    struct err e = {0};
    int rc = store_open_memory(&s->store, &e);
    assert(rc == 0);
    sim_coordinator_start(s);
    for (int i = 0; i < agents; i++)
        sim_agent_create(s, i);
    for (int i = 0; i < agents; i++) {
        rc = sim_ask_wait(s, "token.create", json_pack("{s:i}", "ttl_s", 60), NULL);
        assert(rc == 0);
        const char *token = json_string_value(json_object_get(s->answer, "token"));
        struct join_token parsed;
        rc = join_token_parse(token, &parsed, &e);
        assert(rc == 0);
        snprintf(s->token, sizeof s->token, "%s", parsed.secret);
        sim_agent_start(s, i);
    }
    bool ready = sim_run_until(s, all_ready, 10000);
    assert(ready);
}

void sim_close(struct sim *s)
{
    for (int i = 0; i < s->n_agents; i++)
        sim_agent_destroy(s, s->agents[i]);
    sim_coordinator_continue(s);
    while (s->n_events)
        sim_event_free(event_pop(s));
    free(s->events);
    free(s->core_deferred);
    core_destroy(&s->core);
    store_close(&s->store);
    json_decref(s->answer);
    buffer_free(&s->logits);
}
