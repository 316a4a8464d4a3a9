/* One core, stepped by hand under virtual time: what it answers to each event. A pipeline of cores:
 * pipeline_test.c. */
#include <stdlib.h>
#include <string.h>

#include "agent/agent_core.h"
#include "tests/message_fixture.h"
#include "tests/test.h"

static const uint64_t ms = 1000000;
static uint8_t model_id[32] = {1, 2, 3}, other_model[32] = {9};
enum { WIDTH = 2, VOCABULARY = 50, DEPLOYMENT = 7, SESSION = 77 };

struct fixture {
    struct env_virtual clock;
    struct env env;
    struct agent_core_config config;
    struct agent_core *core;
    struct agent_actions actions;
    struct batch_run runs[64]; /* of the last RUN */
    struct agent_action run;
    uint64_t stage; /* the last that was prepared */
    int released;
};

static void feed(struct fixture *f, const struct agent_event *ev)
{
    agent_core_event(f->core, ev, &f->actions);
}

static void tell(struct fixture *f, const struct message *m)
{
    struct agent_event ev = {.kind = AGENT_EVENT_MESSAGE};
    ev.u.message = message_of_test(m);
    if (m->type == MESSAGE_STAGE_PREPARE)
        f->stage = m->u.stage_prepare.stage;
    feed(f, &ev);
    message_ref_release(ev.u.message);
}

/* The n-th action of a kind, or NULL. */
static const struct agent_action *did(const struct fixture *f, enum agent_action_kind kind, int n)
{
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == kind && n-- == 0)
            return &f->actions.items[i];
    return NULL;
}

static const struct message *said(const struct fixture *f, enum message_type type)
{
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == AGENT_DO_SEND && f->actions.items[i].u.message.type == type)
            return &f->actions.items[i].u.message;
    return NULL;
}

/* Row i of the `tokens` message. */
static const struct message_said *token_said(const struct fixture *f, size_t i)
{
    const struct message *m = said(f, MESSAGE_TOKENS);
    assert_true(m && i < m->u.tokens.said.count);
    return (const struct message_said *)m->u.tokens.said.items + i;
}

static double planned_s_per_token; /* of what prepare_of says */
static uint64_t deployment;

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    planned_s_per_token = 0.5;
    deployment = DEPLOYMENT;
    f->env = env_virtual_init(&f->clock, 1);
    f->clock.now_ns = 1000 * ms;
    f->config = (struct agent_core_config){.name = "a",
                                           .secret = "s",
                                           .program = "1",
                                           .machine = "m",
                                           .hostname = "h",
                                           .node_json = "{}"};
    assert_int_equal(agent_core_create(&f->env, &f->config, &f->core, NULL), 0);
    *state = f;
    return 0;
}

static void count_release(void *ctx, void *buffer)
{
    (void)buffer;
    ((struct fixture *)ctx)->released++;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    agent_core_destroy(&f->core, count_release, f);
    agent_actions_free(&f->actions);
    free(f);
    return 0;
}

static void tick_to(struct fixture *f, uint64_t now_ms)
{
    /* The agent's timer fires at least once a heartbeat, as in a process that runs. */
    while (f->clock.now_ns < now_ms * ms) {
        uint64_t left = now_ms * ms - f->clock.now_ns, step = AGENT_HEARTBEAT_MS * ms;
        f->clock.now_ns += left < step ? left : step;
        feed(f, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
    }
}

/* Nothing fires while the process is stopped. */
static void stop_until(struct fixture *f, uint64_t now_ms)
{
    f->clock.now_ns = now_ms * ms;
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
}

static void join(struct fixture *f)
{
    struct message m = {.type = MESSAGE_WELCOME};
    m.u.welcome =
        (struct message_welcome){.name = "node-1", .heartbeat_ms = 500, .coordinator_boot = 3};
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_START});
    tell(f, &m);
}

static void ack(struct fixture *f)
{
    tell(f, &(struct message){.type = MESSAGE_HEARTBEAT_ACK});
}

/* ---- membership ---- */

static void joins_and_beats_until_nobody_answers_then_joins_again(void **state)
{
    struct fixture *f = *state;
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_START});
    assert_string_equal(said(f, MESSAGE_JOIN)->u.join.token, "s");
    tick_to(f, 1900);
    assert_null(said(f, MESSAGE_JOIN));
    tick_to(f, 2000);
    assert_non_null(said(f, MESSAGE_JOIN));
    struct message m = {.type = MESSAGE_WELCOME};
    m.u.welcome =
        (struct message_welcome){.name = "node-1", .heartbeat_ms = 500, .coordinator_boot = 3};
    tell(f, &m);
    assert_int_equal(said(f, MESSAGE_HEARTBEAT)->u.heartbeat.number, 1);
    assert_int_equal(did(f, AGENT_DO_TIMER, 0)->u.timer.at_ns, 2500 * ms);
    assert_string_equal(agent_core_view(f->core).name, "node-1");
    tick_to(f, 2500);
    assert_int_equal(said(f, MESSAGE_HEARTBEAT)->u.heartbeat.number, 2);
    tick_to(f, 6999);
    assert_null(said(f, MESSAGE_JOIN));
    tick_to(f, 7000); /* five seconds after the welcome */
    assert_string_equal(said(f, MESSAGE_JOIN)->u.join.token, ""); /* its key is known now */
    assert_string_equal(said(f, MESSAGE_JOIN)->u.join.name, "node-1");
    assert_false(agent_core_view(f->core).joined);
}

/* Both stopped, as a box that was frozen: the ack lies unread while the timer fires. */
static void an_agents_own_pause_is_not_the_coordinators_silence(void **state)
{
    struct fixture *f = *state;
    join(f);
    ack(f);
    stop_until(f, 600000);
    assert_null(said(f, MESSAGE_JOIN));
    assert_non_null(said(f, MESSAGE_HEARTBEAT));
    ack(f);
    tick_to(f, 600000 + AGENT_ACK_LIMIT_MS - 1);
    assert_null(said(f, MESSAGE_JOIN));
    tick_to(f, 600000 + AGENT_ACK_LIMIT_MS);
    assert_non_null(said(f, MESSAGE_JOIN));
}

static void refusal_ends_a_newcomer_and_makes_a_member_join_again(void **state)
{
    static const struct {
        const char *code;
        bool member, quits, joins;
    } cases[] = {
        {"denied", false, true, false}, {"protocol", false, true, false},
        {"busy", false, false, false},  {"denied", true, false, true},
        {"link", true, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = *state;
        struct message m = {.type = MESSAGE_REFUSED};
        m.u.refused = (struct message_refused){cases[i].code, "no", ""};
        if (cases[i].member)
            join(f);
        else
            feed(f, &(struct agent_event){.kind = AGENT_EVENT_START});
        f->clock.now_ns += 600 * ms;
        tell(f, &m);
        assert_int_equal(did(f, AGENT_DO_QUIT, 0) != NULL, cases[i].quits);
        assert_int_equal(said(f, MESSAGE_JOIN) != NULL, cases[i].joins);
        teardown(state);
        setup(state);
    }
}

static void unknown_request_is_refused_and_a_refusal_is_not_answered(void **state)
{
    struct fixture *f = *state;
    struct message ask = {.type = MESSAGE_ASK, .id = 12};
    ask.u.ask = (struct message_ask){"x", "{}", {0}};
    join(f);
    tell(f, &ask);
    assert_int_equal(said(f, MESSAGE_REFUSED)->id, 12);
    ask.id = 0;
    tell(f, &ask);
    assert_null(said(f, MESSAGE_REFUSED));
}

/* ---- stages ---- */

static struct message prepare_of(uint64_t generation, uint64_t stage, uint64_t n_stages)
{
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = (struct message_stage_prepare){.deployment = deployment,
                                                       .generation = generation,
                                                       .stage = stage,
                                                       .n_stages = n_stages,
                                                       .session = SESSION + generation,
                                                       .deployment_name = "d",
                                                       .model = {model_id, 32},
                                                       .first_layer = 0,
                                                       .end_layer = 4,
                                                       .compute = "f32",
                                                       .context = 100,
                                                       .kv_tokens = 1000,
                                                       .max_sequences = 8,
                                                       .max_batch_tokens = 16,
                                                       .source_machine = "",
                                                       .source_path = "",
                                                       .planned_s_per_token = planned_s_per_token};
    return m;
}

static void progress(struct fixture *f, enum agent_event_kind kind, uint64_t slot, uint64_t ticket,
                     int status)
{
    struct err e = {0};
    struct agent_event ev = {.kind = kind};
    ev.u.progress = (struct agent_progress){.slot = slot,
                                            .ticket = ticket,
                                            .status = status,
                                            .width_in = WIDTH,
                                            .width_out = WIDTH,
                                            .vocabulary = VOCABULARY};
    if (status < 0) {
        err_set(&e, status, "went wrong");
        ev.u.progress.error = &e;
    }
    feed(f, &ev);
}

/* Prepares a stage until it is ready; returns its slot. */
static uint64_t make_ready(struct fixture *f, uint64_t generation, uint64_t stage,
                           uint64_t n_stages)
{
    struct message m = prepare_of(generation, stage, n_stages);
    tell(f, &m);
    const struct agent_action *fetch = did(f, AGENT_DO_FETCH, 0);
    assert_non_null(fetch);
    uint64_t slot = fetch->u.work.slot;
    progress(f, AGENT_EVENT_FETCHED, slot, fetch->u.work.ticket, 0);
    const struct agent_action *load = did(f, AGENT_DO_LOAD, 0);
    assert_non_null(load);
    assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "loading");
    progress(f, AGENT_EVENT_LOADED, slot, load->u.work.ticket, 0);
    assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "ready");
    return slot;
}

static void connect_stage(struct fixture *f, uint64_t generation, uint64_t stage, uint64_t n_stages)
{
    struct message m = {.type = MESSAGE_STAGE_CONNECT};
    m.u.stage_connect = (struct message_stage_connect){.deployment = DEPLOYMENT,
                                                       .generation = generation,
                                                       .stage = stage,
                                                       .n_stages = n_stages,
                                                       .next_address = {(const uint8_t *)"n", 1},
                                                       .first_address = {(const uint8_t *)"f", 1}};
    tell(f, &m);
}

static void stage_is_fetched_loaded_and_told_at_every_step(void **state)
{
    struct fixture *f = *state;
    join(f);
    struct message m = prepare_of(1, 0, 2);
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SESSION_ALLOW, 0)->u.session.session, SESSION + 1);
    assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "fetching");
    uint64_t slot = did(f, AGENT_DO_FETCH, 0)->u.work.slot,
             ticket = did(f, AGENT_DO_FETCH, 0)->u.work.ticket;
    assert_string_equal(did(f, AGENT_DO_FETCH, 0)->u.work.prepare->message.u.stage_prepare.compute,
                        "f32");

    static const uint32_t wanted[] = {3, 5};
    struct agent_event ev = {.kind = AGENT_EVENT_FETCHED};
    ev.u.progress = (struct agent_progress){.slot = slot,
                                            .ticket = ticket,
                                            .status = HP_PENDING,
                                            .done_bytes = 10,
                                            .total_bytes = 40,
                                            .moved_bytes = 8,
                                            .wanted = {wanted, 2}};
    feed(f, &ev);
    const struct message_stage_state *s = &said(f, MESSAGE_STAGE_STATE)->u.stage_state;
    assert_int_equal(s->done_bytes, 10);
    assert_int_equal(s->total_bytes, 40);
    assert_int_equal(s->moved_bytes, 8);
    assert_int_equal(s->wanted.count, 2);
    assert_int_equal(s->wanted.items[1], 5);
    progress(f, AGENT_EVENT_FETCHED, slot, ticket + 100, 0); /* of another order */
    assert_null(did(f, AGENT_DO_LOAD, 0));
    progress(f, AGENT_EVENT_FETCHED, slot, ticket, HP_ENOSPACE);
    s = &said(f, MESSAGE_STAGE_STATE)->u.stage_state;
    assert_string_equal(s->state, "failed");
    assert_string_equal(s->code, "no_space");
    assert_string_equal(s->text, "went wrong");
    /* The same generation again: another try. */
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, slot);
    assert_int_not_equal(did(f, AGENT_DO_FETCH, 0)->u.work.slot, slot);
}

static void next_generation_keeps_weights_that_are_the_same(void **state)
{
    static const struct {
        const char *what;
        bool keeps;
        uint64_t stage, n_stages, end_layer, kv_tokens;
        const char *compute;
        uint8_t *model;
    } cases[] = {
        {"same", true, 0, 2, 4, 1000, "f32", model_id},
        {"another place", true, 1, 3, 4, 1000, "f32", model_id},
        {"smaller cache", true, 0, 2, 4, 500, "f32", model_id},
        {"larger cache", false, 0, 2, 4, 1001, "f32", model_id},
        {"layers", false, 0, 2, 5, 1000, "f32", model_id},
        {"compute", false, 0, 2, 4, 1000, "auto", model_id},
        {"model", false, 0, 2, 4, 1000, "f32", other_model},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = *state;
        join(f);
        uint64_t slot = make_ready(f, 1, 0, 2);
        struct message m = prepare_of(2, cases[i].stage, cases[i].n_stages);
        m.u.stage_prepare.end_layer = cases[i].end_layer;
        m.u.stage_prepare.kv_tokens = cases[i].kv_tokens;
        m.u.stage_prepare.compute = cases[i].compute;
        m.u.stage_prepare.model.data = cases[i].model;
        tell(f, &m);
        const struct agent_action *fetch = did(f, AGENT_DO_FETCH, 0);
        if ((fetch == NULL) != cases[i].keeps)
            fail_msg("%s: %s", cases[i].what, fetch ? "loads again" : "keeps what is not the same");
        assert_int_equal(did(f, AGENT_DO_SESSION_REVOKE, 0)->u.session.session, SESSION + 1);
        if (cases[i].keeps)
            assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "ready");
        else
            assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, slot);
        /* The old one is stale now. */
        m = prepare_of(1, 0, 2);
        tell(f, &m);
        assert_null(said(f, MESSAGE_STAGE_STATE));
        assert_int_equal(agent_core_view(f->core).dropped_stale, 1);
        teardown(state);
        setup(state);
    }
}

static void bad_prepare_fails_without_a_stage(void **state)
{
    struct fixture *f = *state;
    join(f);
    for (int i = 0; i < 7; i++) {
        struct message m = prepare_of(1, 0, 2);
        struct message_stage_prepare *p = &m.u.stage_prepare;
        uint64_t ignored = 1;
        *(i == 0   ? &p->n_stages
          : i == 1 ? &p->end_layer
          : i == 2 ? &p->max_batch_tokens
          : i == 3 ? &p->kv_tokens
          : i == 4 ? &p->stage
                   : &ignored) = i == 4 ? 2 : 0;
        if (i == 5)
            p->compute = "f12";
        if (i == 6) /* a frame has no more runs */
            p->max_sequences = FRAME_MAX_RUNS + 1;
        tell(f, &m);
        assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "failed");
        assert_int_equal(agent_core_view(f->core).n_stages, 0);
    }
}

static void what_crosses_is_agreed_before_stages_are_connected(void **state)
{
    struct fixture *f = *state;
    struct message_value own = {"x", WIDTH}, wider = {"x", WIDTH + 1}, other = {"y", WIDTH};
    const struct {
        const char *wire;
        struct message_value *value;
        const char *says;
    } cases[] = {{"f16", &own, NULL},
                 {"", &own, NULL},
                 {"f32", &own, "was prepared to hand on f16"},
                 {"f8", &own, "f8"},
                 {"f16", &wider, "x of 3"},
                 {"f16", &other, "has x of 2"}};
    join(f);
    struct message bad = prepare_of(1, 0, 2);
    bad.u.stage_prepare.wire = "int8";
    tell(f, &bad);
    assert_non_null(strstr(said(f, MESSAGE_STAGE_STATE)->u.stage_state.text, "int8"));
    for (uint64_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m = prepare_of(i + 1, 0, 2), c = {.type = MESSAGE_STAGE_CONNECT};
        m.u.stage_prepare.wire = "f16";
        m.u.stage_prepare.crosses = (struct pack_list){&own, 1};
        m.u.stage_prepare.first_layer = i; /* another stage each time */
        m.u.stage_prepare.end_layer = 10;
        tell(f, &m);
        const struct agent_action *fetch = did(f, AGENT_DO_FETCH, 0);
        uint64_t slot = fetch->u.work.slot;
        progress(f, AGENT_EVENT_FETCHED, slot, fetch->u.work.ticket, 0);
        progress(f, AGENT_EVENT_LOADED, slot, did(f, AGENT_DO_LOAD, 0)->u.work.ticket, 0);
        c.u.stage_connect = (struct message_stage_connect){.deployment = DEPLOYMENT,
                                                           .generation = i + 1,
                                                           .n_stages = 2,
                                                           .next_address = {model_id, 1},
                                                           .wire = cases[i].wire,
                                                           .crosses = {cases[i].value, 1}};
        tell(f, &c);
        const struct message *told = said(f, MESSAGE_STAGE_STATE);
        assert_int_equal(did(f, AGENT_DO_CONNECT, 0) != NULL, cases[i].says == NULL);
        if (cases[i].says && (!told || strcmp(told->u.stage_state.state, "failed") != 0 ||
                              !strstr(told->u.stage_state.text, cases[i].says)))
            fail_msg("case %d: %s", (int)i, told ? told->u.stage_state.text : "nothing was said");
    }
}

static void unload_of_a_generation_takes_it_and_older_ones(void **state)
{
    struct fixture *f = *state;
    join(f);
    uint64_t slot = make_ready(f, 3, 0, 1);
    struct message m = {.type = MESSAGE_STAGE_UNLOAD};
    m.u.stage_unload = (struct message_stage_unload){DEPLOYMENT, 2};
    tell(f, &m);
    assert_null(did(f, AGENT_DO_UNLOAD, 0));
    m.u.stage_unload.generation = 3;
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, slot);
    assert_string_equal(said(f, MESSAGE_STAGE_STATE)->u.stage_state.state, "unloaded");
    tell(f, &m); /* twice is nothing */
    assert_int_equal(f->actions.count, 0);
}

/* ---- sequences ---- */

static const uint32_t prompt[] = {1, 2, 3, 4, 5, 6};
static const uint32_t slices[] = {4, 2};
static const uint32_t end_ids[] = {49};

static void open_sequence(struct fixture *f, uint64_t generation, uint64_t id, uint64_t max_tokens,
                          bool first)
{
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = generation,
                                                       .sequence = id,
                                                       .stage = f->stage,
                                                       .prompt = {prompt, 6},
                                                       .max_tokens = max_tokens,
                                                       .kv_tokens = 6 + max_tokens,
                                                       .end_ids = {end_ids, 1}};
    if (first)
        m.u.sequence_open.slices = (struct pack_u32s){slices, 2};
    tell(f, &m);
}

static void opened(struct fixture *f, const struct agent_action *open, int status)
{
    struct agent_event ev = {.kind = AGENT_EVENT_SEQUENCE_OPENED};
    ev.u.sequence_opened.slot = open->u.sequence_open.slot;
    ev.u.sequence_opened.ticket = open->u.sequence_open.ticket;
    ev.u.sequence_opened.sequence = open->u.sequence_open.open->sequence;
    ev.u.sequence_opened.status = status;
    feed(f, &ev);
}

/* Opens a sequence and says that the executor has room. */
static void begin(struct fixture *f, uint64_t generation, uint64_t id, uint64_t max_tokens,
                  bool first)
{
    open_sequence(f, generation, id, max_tokens, first);
    assert_non_null(did(f, AGENT_DO_SEQUENCE_OPEN, 0));
    opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), 0);
}

static bool take_run(struct fixture *f)
{
    const struct agent_action *a = did(f, AGENT_DO_RUN, 0);
    if (!a)
        return false;
    f->run = *a;
    memcpy(f->runs, a->u.run.batch->runs, a->u.run.batch->n_runs * sizeof *f->runs);
    return true;
}

static void done(struct fixture *f, int status, void *output, const uint32_t *picked)
{
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = f->run.u.run.slot;
    ev.u.batch_done.ticket = f->run.u.run.ticket;
    ev.u.batch_done.status = status;
    ev.u.batch_done.seconds = 0.25;
    ev.u.batch_done.output = output;
    ev.u.batch_done.picked = picked;
    feed(f, &ev);
}

static void frame(struct fixture *f, uint64_t generation, uint64_t session, uint16_t stage,
                  uint32_t batch, const struct batch_run *runs, uint16_t n, void *buffer)
{
    struct frame_header h = {.kind = FRAME_ACTIVATION,
                             .stage = stage,
                             .dtype = FRAME_F32,
                             .n_runs = n,
                             .session = session,
                             .deployment = DEPLOYMENT,
                             .generation = (uint32_t)generation,
                             .batch = batch};
    for (uint16_t i = 0; i < n; i++)
        h.n_tokens += runs[i].n_tokens;
    h.payload_bytes = n * FRAME_RUN_BYTES + h.n_tokens * WIDTH * sizeof(float);
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    ev.u.frame.runs = runs;
    ev.u.frame.buffer = buffer;
    feed(f, &ev);
}

static void rows_come_and_go_as_the_stage_was_prepared_for(void **state)
{
    struct fixture *f = *state;
    int input;
    join(f);
    struct message m = prepare_of(1, 1, 3);
    m.u.stage_prepare.wire = "bf16";
    tell(f, &m);
    uint64_t slot = did(f, AGENT_DO_FETCH, 0)->u.work.slot;
    progress(f, AGENT_EVENT_FETCHED, slot, did(f, AGENT_DO_FETCH, 0)->u.work.ticket, 0);
    progress(f, AGENT_EVENT_LOADED, slot, did(f, AGENT_DO_LOAD, 0)->u.work.ticket, 0);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, true);
    struct batch_run run = {.sequence = 5, .n_tokens = 4};
    frame(f, 1, SESSION + 1, 1, 1, &run, 1, &input); /* of float32 */
    assert_false(take_run(f));
    assert_int_equal(agent_core_view(f->core).dropped_malformed, 1);
    begin(f, 1, 6, 10, true);
    run.sequence = 6;
    struct frame_header h = {.kind = FRAME_ACTIVATION,
                             .stage = 1,
                             .dtype = FRAME_BF16,
                             .n_runs = 1,
                             .session = SESSION + 1,
                             .deployment = DEPLOYMENT,
                             .generation = 1,
                             .batch = 2,
                             .n_tokens = 4,
                             .payload_bytes = FRAME_RUN_BYTES + 4 * WIDTH * 2};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    ev.u.frame.runs = &run;
    ev.u.frame.buffer = &input;
    feed(f, &ev);
    assert_true(take_run(f));
    assert_int_equal(f->run.u.run.header.dtype, FRAME_BF16);
}

static void frames_are_believed_only_over_the_session_of_their_hop(void **state)
{
    struct fixture *f = *state;
    int input, output;
    uint8_t key[KEY_BYTES] = {7};
    join(f);
    struct message m = prepare_of(1, 1, 3);
    m.u.stage_prepare.input_session = 501;
    m.u.stage_prepare.input_from = (struct pack_span){key, sizeof key};
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SESSION_ALLOW, 0)->u.session.session, SESSION + 1);
    assert_null(did(f, AGENT_DO_SESSION_ALLOW, 0)->u.session.from);
    assert_int_equal(did(f, AGENT_DO_SESSION_ALLOW, 1)->u.session.session, 501);
    assert_memory_equal(did(f, AGENT_DO_SESSION_ALLOW, 1)->u.session.from, key, sizeof key);
    uint64_t slot = did(f, AGENT_DO_FETCH, 0)->u.work.slot;
    progress(f, AGENT_EVENT_FETCHED, slot, did(f, AGENT_DO_FETCH, 0)->u.work.ticket, 0);
    progress(f, AGENT_EVENT_LOADED, slot, did(f, AGENT_DO_LOAD, 0)->u.work.ticket, 0);
    m = (struct message){.type = MESSAGE_STAGE_CONNECT};
    m.u.stage_connect = (struct message_stage_connect){.deployment = DEPLOYMENT,
                                                       .generation = 1,
                                                       .stage = 1,
                                                       .n_stages = 3,
                                                       .next_address = {(const uint8_t *)"n", 1},
                                                       .next_session = 502};
    tell(f, &m);
    begin(f, 1, 5, 10, true);
    struct batch_run run = {.sequence = 5, .n_tokens = 4};
    frame(f, 1, SESSION + 1, 1, 1, &run, 1, &input); /* the chunks' */
    assert_false(take_run(f));
    frame(f, 1, 502, 1, 1, &run, 1, &input); /* the next hop's */
    assert_false(take_run(f));
    assert_int_equal(agent_core_view(f->core).dropped_foreign, 2);
    frame(f, 1, 501, 1, 1, &run, 1, &input);
    assert_true(take_run(f));
    done(f, 0, &output, NULL);
    assert_int_equal(did(f, AGENT_DO_POST, 0)->u.post.header.session, 502);
    struct message unload = {.type = MESSAGE_STAGE_UNLOAD, .u.stage_unload = {DEPLOYMENT, 1}};
    tell(f, &unload);
    assert_int_equal(did(f, AGENT_DO_SESSION_REVOKE, 1)->u.session.session, 501);
}

static void who_may_connect_is_what_the_coordinator_says(void **state)
{
    struct fixture *f = *state;
    static const uint8_t keys[2 * KEY_BYTES] = {1, 2, 3};
    struct message m = {.type = MESSAGE_MEMBERS, .u.members.keys = {keys, sizeof keys}};
    join(f);
    tell(f, &m);
    const struct agent_action *a = did(f, AGENT_DO_PEERS, 0);
    assert_int_equal(a->u.peers.keys.size, sizeof keys);
    assert_memory_equal(a->u.peers.keys.data, keys, sizeof keys);
    m.u.members.keys.size = 33;
    tell(f, &m);
    assert_null(did(f, AGENT_DO_PEERS, 0));
}

static void prompt_flows_through_the_first_stage_slice_after_slice(void **state)
{
    struct fixture *f = *state;
    int output;
    join(f);
    make_ready(f, 1, 0, 3);
    connect_stage(f, 1, 0, 3);
    assert_int_equal(did(f, AGENT_DO_CONNECT, 0)->u.connect.next.size, 1);
    begin(f, 1, 5, 10, true);
    assert_true(take_run(f));
    assert_int_equal(f->run.u.run.batch->n_tokens, 4);
    assert_memory_equal(f->run.u.run.batch->ids, prompt, 4 * sizeof *prompt);
    done(f, 0, &output, NULL);
    const struct agent_action *post = did(f, AGENT_DO_POST, 0);
    assert_ptr_equal(post->u.post.buffer, &output);
    assert_int_equal(post->u.post.link, AGENT_LINK_NEXT);
    assert_int_equal(post->u.post.header.stage, 1);
    assert_int_equal(post->u.post.header.session, SESSION + 1);
    assert_int_equal(post->u.post.header.n_tokens, 4);
    assert_int_equal(post->u.post.runs[0].sequence, 5);
    /* The second slice runs at once, while the first is elsewhere. */
    assert_true(take_run(f));
    assert_int_equal(f->runs[0].first_position, 4);
    assert_int_equal(f->runs[0].n_logits, 1);
    done(f, 0, &output, NULL);
    assert_null(did(f, AGENT_DO_RUN, 0));
    /* The token comes back and runs next. */
    struct frame_header h = {.kind = FRAME_TOKEN,
                             .n_runs = 1,
                             .session = SESSION + 1,
                             .deployment = DEPLOYMENT,
                             .generation = 1,
                             .batch = 1};
    struct frame_token token = {5, 33, 0};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    ev.u.frame.tokens = &token;
    feed(f, &ev);
    assert_true(take_run(f));
    assert_int_equal(f->run.u.run.batch->ids[0], 33);
    assert_int_equal(f->runs[0].first_position, 6);
    feed(f, &ev); /* said twice */
    assert_int_equal(agent_core_view(f->core).dropped_runs, 1);
}

static void last_stage_tells_tokens_to_both_ends_and_stops_where_it_must(void **state)
{
    static const struct {
        uint32_t max_tokens, picked[3];
        const char *finish[3];
    } cases[] = {
        {3, {7, 8, 9}, {"", "", "length"}},
        {9, {7, 49, 0}, {"", "stop", NULL}},
        {1, {49, 0, 0}, {"stop", NULL, NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = *state;
        int input;
        join(f);
        make_ready(f, 1, 1, 2);
        connect_stage(f, 1, 1, 2);
        begin(f, 1, 5, cases[i].max_tokens, false);
        for (uint32_t k = 0; k < 3 && cases[i].finish[k]; k++) {
            struct batch_run run = {5, k ? 5 + k : 0, k ? 1 : 6, 1, 0, false};
            f->clock.now_ns += 100 * ms;
            frame(f, 1, SESSION + 1, 1, k, &run, 1, &input);
            assert_true(take_run(f));
            assert_ptr_equal(f->run.u.run.batch->input, &input);
            assert_true(f->runs[0].sample);
            done(f, 0, NULL, &cases[i].picked[k]);
            const struct message_said *t = token_said(f, 0);
            assert_int_equal(t->first, k);
            assert_int_equal(t->ids.items[0], cases[i].picked[k]);
            assert_string_equal(t->finish, cases[i].finish[k]);
            const struct agent_action *post = did(f, AGENT_DO_POST, 0);
            assert_int_equal(post->u.post.link, AGENT_LINK_FIRST);
            assert_int_equal(post->u.post.header.kind, FRAME_TOKEN);
            assert_int_equal(post->u.post.tokens[0].token, cases[i].picked[k]);
            assert_int_equal(post->u.post.tokens[0].finished, cases[i].finish[k][0] != '\0');
        }
        teardown(state);
        setup(state);
    }
}

static void sequences_of_a_batch_are_told_in_one_message(void **state)
{
    static const uint32_t picked[] = {7, 49, 8};
    struct fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 1, 1, 2);
    connect_stage(f, 1, 1, 2);
    struct batch_run runs[3];
    for (uint64_t i = 0; i < 3; i++) {
        begin(f, 1, 5 + i, i == 2 ? 1 : 10, false);
        runs[i] = (struct batch_run){5 + i, 0, 5, 1, 0, false};
    }
    frame(f, 1, SESSION + 1, 1, 0, runs, 3, &input);
    assert_true(take_run(f));
    done(f, 0, NULL, picked);
    size_t messages = 0;
    for (size_t i = 0; i < f->actions.count; i++)
        messages += f->actions.items[i].kind == AGENT_DO_SEND &&
                    f->actions.items[i].u.message.type == MESSAGE_TOKENS;
    assert_int_equal(messages, 1);
    static const char *const finish[] = {"", "stop", "length"};
    assert_int_equal(said(f, MESSAGE_TOKENS)->u.tokens.said.count, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct message_said *t = token_said(f, i);
        assert_int_equal(t->sequence, 5 + i);
        assert_int_equal(t->first, 0);
        assert_int_equal(t->ids.count, 1);
        assert_int_equal(t->ids.items[0], picked[i]);
        assert_string_equal(t->finish, finish[i]);
    }
}

static void one_stage_feeds_itself(void **state)
{
    struct fixture *f = *state;
    static const uint32_t picked[] = {7, 8};
    join(f);
    make_ready(f, 1, 0, 1);
    connect_stage(f, 1, 0, 1);
    begin(f, 1, 5, 2, true);
    assert_true(take_run(f));
    done(f, 0, NULL, picked);
    assert_true(take_run(f));
    done(f, 0, NULL, picked);
    assert_null(did(f, AGENT_DO_POST, 0));
    assert_true(take_run(f));
    assert_int_equal(f->run.u.run.batch->ids[0], 7);
    done(f, 0, NULL, picked + 1);
    assert_string_equal(token_said(f, 0)->finish, "length");
    assert_null(did(f, AGENT_DO_RUN, 0));
}

static void closing_frees_a_sequence_before_the_next_batch(void **state)
{
    struct fixture *f = *state;
    int input, output;
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, false);
    begin(f, 1, 6, 10, false);
    struct batch_run runs[2] = {{5, 0, 2, 0, 0, false}, {6, 0, 2, 0, 0, false}};
    frame(f, 1, SESSION + 1, 1, 0, runs, 2, &input);
    assert_true(take_run(f));
    struct message m = {.type = MESSAGE_SEQUENCE_CLOSE};
    m.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 5, 1};
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.sequence, 5);
    tell(f, &m); /* twice is once */
    assert_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    done(f, 0, &output, NULL);
    runs[0].first_position = runs[1].first_position = 2;
    frame(f, 1, SESSION + 1, 1, 1, runs, 2, &input);
    assert_true(take_run(f));
    assert_int_equal(f->run.u.run.batch->n_runs, 1);
    assert_int_equal(f->runs[0].sequence, 6);
    assert_int_equal(f->runs[0].row, 2);
    done(f, 0, &output, NULL);
    /* A batch of closed sequences alone goes on without runs, so that the first stage hears of it.
     */
    frame(f, 1, SESSION + 1, 1, 2, runs, 1, &input);
    assert_null(did(f, AGENT_DO_RUN, 0));
    assert_ptr_equal(did(f, AGENT_DO_RELEASE, 0)->u.release.buffer, &input);
    assert_int_equal(did(f, AGENT_DO_POST, 0)->u.post.header.n_runs, 0);
    assert_int_equal(did(f, AGENT_DO_POST, 0)->u.post.header.batch, 2);
}

static void frame_before_its_sequence_waits_for_it(void **state)
{
    struct fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 1, 1, 2);
    struct batch_run run = {5, 0, 4, 0, 0, false};
    frame(f, 1, SESSION + 1, 1, 0, &run, 1, &input); /* even before stage_connect */
    connect_stage(f, 1, 1, 2);
    assert_null(did(f, AGENT_DO_RUN, 0));
    open_sequence(f, 1, 5, 10, false);
    assert_null(did(f, AGENT_DO_RUN, 0));
    opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), 0);
    assert_true(take_run(f));
    assert_ptr_equal(f->run.u.run.batch->input, &input);
}

static void frame_that_waits_for_ever_is_given_up_and_said(void **state)
{
    struct fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 1, 1, 2);
    connect_stage(f, 1, 1, 2);
    struct batch_run run = {5, 0, 4, 0, 0, false};
    frame(f, 1, SESSION + 1, 1, 0, &run, 1, &input);
    uint64_t now = f->clock.now_ns / ms;
    for (uint64_t t = now; t < now + AGENT_HOLD_LIMIT_MS; t += 500) {
        tick_to(f, t);
        assert_null(said(f, MESSAGE_SEQUENCE_FAILED));
        ack(f);
    }
    tick_to(f, now + AGENT_HOLD_LIMIT_MS);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "timeout");
    assert_ptr_equal(did(f, AGENT_DO_RELEASE, 0)->u.release.buffer, &input);
    assert_non_null(did(f, AGENT_DO_POST, 0)); /* the first stage hears that the batch is through */
}

static void stale_foreign_and_malformed_frames_are_counted_and_given_back(void **state)
{
    struct fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 2, 1, 2);
    connect_stage(f, 2, 1, 2);
    begin(f, 2, 5, 10, false);
    struct batch_run run = {5, 0, 4, 0, 0, false}, large = {5, 0, 17, 0, 0, false};
    frame(f, 1, SESSION + 1, 1, 0, &run, 1, &input); /* the generation before */
    assert_non_null(did(f, AGENT_DO_RELEASE, 0));
    frame(f, 2, SESSION + 1, 1, 0, &run, 1, &input); /* its token */
    assert_non_null(did(f, AGENT_DO_RELEASE, 0));
    frame(f, 2, SESSION + 2, 0, 0, &run, 1, &input); /* another stage's */
    assert_non_null(did(f, AGENT_DO_RELEASE, 0));
    frame(f, 2, SESSION + 2, 1, 0, &large, 1, &input); /* more than a batch may have */
    assert_non_null(did(f, AGENT_DO_RELEASE, 0));
    assert_null(did(f, AGENT_DO_RUN, 0));
    struct agent_core_view v = agent_core_view(f->core);
    assert_int_equal(v.dropped_stale, 1);
    assert_int_equal(v.dropped_foreign, 2);
    assert_int_equal(v.dropped_malformed, 1);
}

static void failed_batch_ends_its_sequences_and_goes_on_empty(void **state)
{
    struct fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, false);
    struct batch_run run = {5, 0, 4, 0, 0, false};
    frame(f, 1, SESSION + 1, 1, 9, &run, 1, &input);
    assert_true(take_run(f));
    done(f, HP_EDEVICE, NULL, NULL);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "device");
    assert_non_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    assert_int_equal(did(f, AGENT_DO_POST, 0)->u.post.header.batch, 9);
    assert_null(did(f, AGENT_DO_POST, 0)->u.post.buffer);
}

static void sequences_that_cannot_live_here_are_refused_with_the_reason(void **state)
{
    struct fixture *f = *state;
    join(f);
    open_sequence(f, 1, 4, 10, true); /* no stage at all */
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "stale");
    make_ready(f, 1, 0, 2);
    open_sequence(f, 1, 4, 10, true); /* not connected */
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "busy");
    connect_stage(f, 1, 0, 2);
    open_sequence(f, 1, 5, 10, true);
    opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), HP_EBUSY); /* the executor has no room */
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "busy");
    static const uint32_t beyond[] = {1, VOCABULARY};
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = 1,
                                                       .sequence = 6,
                                                       .prompt = {beyond, 2},
                                                       .kv_tokens = 9};
    tell(f, &m);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "invalid");
    assert_int_equal(agent_core_view(f->core).n_sequences, 0);
}

static void broken_link_ends_open_sequences_and_is_made_anew_for_the_next(void **state)
{
    struct fixture *f = *state;
    join(f);
    uint64_t slot = make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    struct agent_event ev = {.kind = AGENT_EVENT_LINK_DOWN};
    ev.u.link_down.slot = slot;
    feed(f, &ev);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "link");
    open_sequence(f, 1, 6, 10, true);
    assert_int_equal(did(f, AGENT_DO_CONNECT, 0)->u.connect.next.size, 1);
    assert_non_null(did(f, AGENT_DO_SEQUENCE_OPEN, 0));
}

static void broken_link_is_made_anew_though_nobody_asks_for_anything(void **state)
{
    struct fixture *f = *state;
    join(f);
    uint64_t slot = make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    struct agent_event ev = {.kind = AGENT_EVENT_LINK_DOWN};
    ev.u.link_down.slot = slot;
    feed(f, &ev);
    f->clock.now_ns += (AGENT_ALIVE_MS + 1) * ms;
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
    assert_int_equal(did(f, AGENT_DO_CONNECT, 0)->u.connect.next.size, 1);
    const struct agent_action *a = did(f, AGENT_DO_POST, 0);
    assert_int_equal(a->u.post.header.kind, FRAME_ALIVE);
}

static void stage_whose_weights_cannot_be_read_fails_with_what_to_do(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    err_set(&e, HP_EIO, "m.gguf: byte 7 could not be read");
    err_hint(&e, "restore the file");
    join(f);
    make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    assert_true(take_run(f));
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = f->run.u.run.slot;
    ev.u.batch_done.ticket = f->run.u.run.ticket;
    ev.u.batch_done.status = HP_EIO;
    ev.u.batch_done.error = &e;
    feed(f, &ev);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "io");
    const struct message_stage_state *s = &said(f, MESSAGE_STAGE_STATE)->u.stage_state;
    assert_string_equal(s->state, "failed");
    assert_string_equal(s->code, "io");
    assert_string_equal(s->text, "m.gguf: byte 7 could not be read");
    assert_string_equal(s->hint, "restore the file");
    struct message again =
        prepare_of(2, 0, 2); /* the next generation takes the weights from the store anew */
    tell(f, &again);
    assert_non_null(did(f, AGENT_DO_FETCH, 0));
}

static void an_agent_that_was_removed_ends_when_its_join_is_denied(void **state)
{
    struct fixture *f = *state;
    join(f);
    f->clock.now_ns += 600 * ms;
    struct message m = {.type = MESSAGE_REFUSED};
    m.u.refused = (struct message_refused){"denied", "agent \"x\" was removed", "bring a token"};
    tell(f, &m);
    assert_non_null(said(f, MESSAGE_JOIN));
    assert_null(did(f, AGENT_DO_QUIT, 0));
    tell(f, &m);
    const struct agent_action *quit = did(f, AGENT_DO_QUIT, 0);
    assert_non_null(quit);
    assert_string_equal(quit->u.quit.error.text,
                        "the coordinator refuses this agent: agent \"x\" was removed");
    assert_string_equal(quit->u.quit.error.hint, "bring a token");
}

static void restarted_coordinator_finds_the_stage_and_old_sequences_are_freed(void **state)
{
    struct fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    f->clock.now_ns += 1000 * ms;
    struct message m = {.type = MESSAGE_REFUSED};
    m.u.refused = (struct message_refused){"link", "join first", ""};
    tell(f, &m);
    const struct message_join *j = &said(f, MESSAGE_JOIN)->u.join;
    assert_int_equal(j->held.count, 1);
    const struct message_held_stage *held = j->held.items;
    assert_string_equal(held->state, "ready");
    assert_int_equal(held->sequences, 1);
    struct message w = {.type = MESSAGE_WELCOME};
    w.u.welcome =
        (struct message_welcome){.name = "node-1", .heartbeat_ms = 500, .coordinator_boot = 4};
    tell(f, &w);
    connect_stage(f, 1, 0, 2);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.sequence, 5);
    assert_null(did(f, AGENT_DO_UNLOAD, 0));
    begin(f, 1, UINT64_C(4) << 32, 10, true);
}

static void orphan_frees_its_sequences_after_a_minute_and_keeps_its_stage(void **state)
{
    struct fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    f->config.time_scale = 10; /* the batch that begins here does not become overdue */
    begin(f, 1, 5, 10, true);
    tick_to(f, 1000 + AGENT_ORPHAN_MS - 1);
    assert_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    tick_to(f, 1000 + AGENT_ORPHAN_MS);
    assert_non_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    assert_int_equal(agent_core_view(f->core).n_stages, 1);
}

/* ---- nothing waits for ever ---- */

static int failures(const struct fixture *f, uint64_t id, const char *code, const char *text)
{
    int n = 0;
    for (size_t i = 0; i < f->actions.count; i++) {
        const struct agent_action *a = &f->actions.items[i];
        if (a->kind != AGENT_DO_SEND || a->u.message.type != MESSAGE_SEQUENCE_FAILED ||
            a->u.message.u.sequence_failed.sequence != id)
            continue;
        assert_string_equal(a->u.message.u.sequence_failed.code, code);
        assert_non_null(strstr(a->u.message.u.sequence_failed.text, text));
        n++;
    }
    return n;
}

static void frame_that_finds_no_room_fails_its_sequence_and_its_batch_goes_on(void **state)
{
    struct fixture *f = *state;
    int buffers[40];
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, false);
    uint32_t n = 0;
    do {
        struct batch_run run = {5, 4 + n, 1,
                                0, 0,     false}; /* none is due: what precedes them is missing */
        frame(f, 1, SESSION + 1, 1, n, &run, 1, &buffers[n]);
        n++;
    } while (!did(f, AGENT_DO_POST, 0) && n < 40);
    assert_int_equal(n, 4 * 3 + 16 + 1);
    assert_int_equal(failures(f, 5, "busy", "more batches waiting"), 1);
    assert_int_equal(did(f, AGENT_DO_POST, 0)->u.post.header.batch, n - 1);
    assert_int_equal(agent_core_view(f->core).n_held_frames,
                     0); /* those of the sequence went with it */
}

static void frame_of_a_sequence_that_is_not_open_yet_and_cannot_be_taken_fails_it_too(void **state)
{
    struct fixture *f = *state;
    struct batch_run run = {8, 0, 17, 0, 0, false}; /* more than max_batch_tokens */
    int buffer;
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    frame(f, 1, SESSION + 1, 1, 0, &run, 1, &buffer);
    assert_int_equal(failures(f, 8, "invalid", "more tokens"), 1);
    open_sequence(f, 1, 8, 4, false);
    assert_null(did(f, AGENT_DO_SEQUENCE_OPEN, 0)); /* it has ended */
}

static void run_that_is_not_answered_fails_what_waits_for_it_and_names_the_stage(void **state)
{
    struct fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 3);
    connect_stage(f, 1, 0, 3);
    begin(f, 1, 5, 10, true);
    assert_true(take_run(f)); /* four tokens, planned at half a second each */
    uint64_t limit_ms = AGENT_RUN_LIMIT_MS + 10 * 4 * 500;
    tick_to(f, 1000 + limit_ms - 1);
    assert_int_equal(failures(f, 5, "timeout", ""), 0);
    tick_to(f, 1000 + limit_ms);
    assert_int_equal(failures(f, 5, "timeout", "stage 0 has run a batch of 4 tokens"), 1);
    assert_int_equal(agent_core_view(f->core).n_sequences, 0);
    done(f, 0, NULL, NULL); /* late, and harmless */
}

static void batch_that_does_not_come_back_fails_its_sequence(void **state)
{
    struct fixture *f = *state;
    int output;
    join(f);
    make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    assert_true(take_run(f));
    done(f, 0, &output, NULL);
    assert_true(take_run(f));
    done(f, 0, &output, NULL);
    /* Unplanned as a whole: nine seconds, and what it took here on both stages, ten times over. */
    uint64_t limit_ms = AGENT_FLIGHT_LIMIT_MS + 10 * (9000 + 2 * 250);
    f->clock.now_ns = 50000 * ms;
    ack(f);
    f->clock.now_ns = 100000 * ms;
    ack(f);
    tick_to(f, 1000 + limit_ms - 1);
    assert_int_equal(failures(f, 5, "timeout", ""), 0);
    tick_to(f, 1000 + limit_ms);
    assert_int_equal(failures(f, 5, "timeout", "left stage 0"), 1);
    assert_int_equal(failures(f, 5, "timeout", "stage 1, the last, was never heard"), 1);
}

/* Two stages of one agent: outputs of 64 KiB and more are a stage's own. */
static void stage_whose_outputs_are_all_out_runs_no_large_batch_until_one_is_back(void **state)
{
    struct fixture *f = *state;
    join(f);
    struct message m = prepare_of(1, 0, 2);
    tell(f, &m);
    uint64_t slot = did(f, AGENT_DO_FETCH, 0)->u.work.slot;
    progress(f, AGENT_EVENT_FETCHED, slot, did(f, AGENT_DO_FETCH, 0)->u.work.ticket, 0);
    struct agent_event ev = {.kind = AGENT_EVENT_LOADED};
    ev.u.progress = (struct agent_progress){.slot = slot,
                                            .ticket = did(f, AGENT_DO_LOAD, 0)->u.work.ticket,
                                            .width_in = 1 << 15,
                                            .width_out = 1 << 15,
                                            .vocabulary = VOCABULARY,
                                            .outputs = 1};
    feed(f, &ev);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    assert_true(take_run(f));
    assert_true(f->run.u.run.reserved);
    struct agent_event ran = {.kind = AGENT_EVENT_BATCH_DONE};
    ran.u.batch_done.slot = slot;
    ran.u.batch_done.ticket = f->run.u.run.ticket;
    ran.u.batch_done.posted = true;
    feed(f, &ran);
    assert_false(take_run(f)); /* the output is on its way */
    struct agent_event back = {.kind = AGENT_EVENT_OUTPUT_BACK};
    back.u.output_back.slot = slot;
    feed(f, &back);
    assert_true(take_run(f));
    /* A run that fails before it has posted anything gives its output back itself. */
    ran.u.batch_done.ticket = f->run.u.run.ticket;
    ran.u.batch_done.posted = false;
    ran.u.batch_done.status = HP_ENOMEM;
    feed(f, &ran);
    assert_int_equal(failures(f, 5, "no_memory", ""), 1);
    begin(f, 1, 6, 10, true);
    assert_true(take_run(f));
}

static void next_stage_that_takes_nothing_fails_what_waits_for_it(void **state)
{
    struct fixture *f = *state;
    join(f);
    struct message m = prepare_of(1, 0, 2);
    tell(f, &m);
    uint64_t slot = did(f, AGENT_DO_FETCH, 0)->u.work.slot;
    progress(f, AGENT_EVENT_FETCHED, slot, did(f, AGENT_DO_FETCH, 0)->u.work.ticket, 0);
    struct agent_event ev = {.kind = AGENT_EVENT_LOADED};
    ev.u.progress = (struct agent_progress){.slot = slot,
                                            .ticket = did(f, AGENT_DO_LOAD, 0)->u.work.ticket,
                                            .width_in = 1 << 15,
                                            .width_out = 1 << 15,
                                            .vocabulary = VOCABULARY,
                                            .outputs = 1};
    feed(f, &ev);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    assert_true(take_run(f));
    struct agent_event ran = {.kind = AGENT_EVENT_BATCH_DONE};
    ran.u.batch_done.slot = slot;
    ran.u.batch_done.ticket = f->run.u.run.ticket;
    ran.u.batch_done.posted = true;
    feed(f, &ran);
    tick_to(f, 1000 + AGENT_RUN_LIMIT_MS);
    assert_int_equal(failures(f, 5, "timeout", "stage 1 takes no batches"), 1);
    open_sequence(f, 1, 6, 10, true);
    assert_non_null(did(f, AGENT_DO_CONNECT, 0)); /* the link is made anew */
}

static void executor_is_given_as_many_runs_ahead_as_it_wants(void **state)
{
    struct fixture *f = *state;
    int output;
    f->config.runs_ahead = 2;
    planned_s_per_token = 1e-4;
    join(f);
    make_ready(f, 1, 0, 3);
    connect_stage(f, 1, 0, 3);
    begin(f, 1, 5, 10, true);
    const struct agent_action *a = did(f, AGENT_DO_RUN, 0), *b = did(f, AGENT_DO_RUN, 1);
    assert_non_null(a);
    assert_non_null(b); /* the second slice, though the first has not run */
    assert_int_equal(a->u.run.batch->runs[0].first_position, 0);
    assert_int_equal(b->u.run.batch->runs[0].first_position, 4);
    assert_int_equal(b->u.run.header.batch, 1);
    assert_int_equal(b->u.run.header.stage, 1);
    assert_int_equal(b->u.run.header.n_tokens, 2);
    struct agent_action second = *b;
    f->run = *a;
    done(f, 0, &output, NULL);
    assert_int_equal(did(f, AGENT_DO_POST, 0)->u.post.header.batch, 0);
    f->run = second;
    done(f, 0, &output, NULL);
    assert_int_equal(did(f, AGENT_DO_POST, 0)->u.post.header.batch, 1);
}

static void long_run_has_none_waiting_behind_it(void **state)
{
    struct fixture *f = *state;
    f->config.runs_ahead = 2;
    join(f);
    make_ready(f, 1, 0, 3);
    connect_stage(f, 1, 0, 3);
    begin(f, 1, 5, 10, true);
    assert_non_null(did(f, AGENT_DO_RUN, 0));
    assert_null(did(f, AGENT_DO_RUN, 1));
}

/* What ran on a slot, for so long. */
static void ran(struct fixture *f, const struct agent_action *run, double seconds)
{
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = run->u.run.slot;
    ev.u.batch_done.ticket = run->u.run.ticket;
    ev.u.batch_done.seconds = seconds;
    ev.u.batch_done.posted = true;
    feed(f, &ev);
}

static uint64_t stage_of_deployment(struct fixture *f, uint64_t of)
{
    deployment = of;
    uint64_t slot = make_ready(f, 1, 1, 2);
    struct message m = {.type = MESSAGE_STAGE_CONNECT};
    m.u.stage_connect = (struct message_stage_connect){.deployment = of,
                                                       .generation = 1,
                                                       .stage = 1,
                                                       .n_stages = 2,
                                                       .first_address = {(const uint8_t *)"f", 1},
                                                       .next_device = "",
                                                       .first_device = ""};
    tell(f, &m);
    struct message open = {.type = MESSAGE_SEQUENCE_OPEN};
    open.u.sequence_open = (struct message_sequence_open){.deployment = of,
                                                          .generation = 1,
                                                          .sequence = 5,
                                                          .stage = 1,
                                                          .max_tokens = 400,
                                                          .kv_tokens = 400,
                                                          .all_logits = true,
                                                          .end_ids = {end_ids, 1}};
    tell(f, &open);
    opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), 0);
    deployment = DEPLOYMENT;
    return slot;
}

static void arrive(struct fixture *f, uint64_t of, uint32_t batch, uint32_t position,
                   uint32_t tokens, void *buffer)
{
    struct frame_header h = {.kind = FRAME_ACTIVATION,
                             .stage = 1,
                             .dtype = FRAME_F32,
                             .n_runs = 1,
                             .session = SESSION + 1,
                             .deployment = of,
                             .generation = 1,
                             .batch = batch,
                             .n_tokens = tokens,
                             .payload_bytes = FRAME_RUN_BYTES + tokens * WIDTH * sizeof(float)};
    struct batch_run run = {5, position, tokens, 0, 0, false};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    ev.u.frame.runs = &run;
    ev.u.frame.buffer = buffer;
    feed(f, &ev);
}

/* One deployment has a queue full of long batches, the other one of short ones: by batches they
 * would get the same number, by time they get the same time. */
static void two_deployments_share_the_device_by_time(void **state)
{
    struct fixture *f = *state;
    int buffer, shorts = 0, longs = 0;
    planned_s_per_token = 0;
    join(f);
    uint64_t slow = stage_of_deployment(f, 7), quick = stage_of_deployment(f, 8);
    assert_int_not_equal(slow, quick);
    arrive(f, 7, 0, 0, 10, &buffer);
    assert_true(take_run(f));
    for (uint32_t i = 0; i < 20; i++) {
        arrive(f, 7, i + 1, 10 * i + 10, 10, &buffer);
        arrive(f, 8, i, i, 1, &buffer);
    }
    while (shorts < 20) {
        bool is_quick = f->run.u.run.slot == quick;
        shorts += is_quick;
        longs += !is_quick;
        ran(f, &f->run, is_quick ? 0.05 : 0.5);
        assert_true(take_run(f));
    }
    /* A second of each, and what could not be known before the first of each had run. */
    assert_in_range(longs, 2, 4);
}

static void late_result_of_an_old_generation_is_given_back(void **state)
{
    struct fixture *f = *state;
    int output;
    join(f);
    make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    assert_true(take_run(f));
    struct message m = prepare_of(2, 0, 2);
    tell(f, &m);
    assert_null(did(f, AGENT_DO_FETCH, 0));
    done(f, 0, &output, NULL);
    assert_ptr_equal(did(f, AGENT_DO_RELEASE, 0)->u.release.buffer, &output);
    assert_null(did(f, AGENT_DO_POST, 0));
    connect_stage(f, 2, 0, 2);
    begin(f, 2, 6, 10, true); /* and the executor is free for the new one */
    assert_true(take_run(f));
}

static void grants_open_and_close_the_door_for_chunks(void **state)
{
    struct fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 2);
    struct message m = {.type = MESSAGE_CHUNK_GRANT};
    m.u.chunk_grant = (struct message_chunk_grant){900, {model_id, 32}, false};
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SESSION_ALLOW, 0)->u.session.session, 900);
    m.u.chunk_grant.revoke = true;
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SESSION_REVOKE, 0)->u.session.session, 900);
    m.u.chunk_grant = (struct message_chunk_grant){SESSION + 1, {model_id, 32}, false};
    tell(f, &m);
    m.u.chunk_grant.revoke = true;
    tell(f, &m);
    assert_null(did(f, AGENT_DO_SESSION_REVOKE, 0)); /* the stage still has that token */
}

static void all_logits_are_told_and_nothing_is_sampled(void **state)
{
    struct fixture *f = *state;
    int input;
    float logits[6 * VOCABULARY] = {0};
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = 1,
                                                       .sequence = 5,
                                                       .stage = 1,
                                                       .prompt = {prompt, 6},
                                                       .kv_tokens = 6,
                                                       .all_logits = true};
    join(f);
    make_ready(f, 1, 1, 2);
    connect_stage(f, 1, 1, 2);
    tell(f, &m);
    assert_false(did(f, AGENT_DO_SEQUENCE_OPEN, 0)->u.sequence_open.sampler);
    opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), 0);
    for (uint32_t at = 0; at < 6; at += 3) {
        struct batch_run run = {5, at, 3, 3, 0, false};
        frame(f, 1, SESSION + 1, 1, at, &run, 1, &input);
        assert_true(take_run(f));
        assert_false(f->runs[0].sample);
        struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
        ev.u.batch_done.slot = f->run.u.run.slot;
        ev.u.batch_done.ticket = f->run.u.run.ticket;
        ev.u.batch_done.logits = logits;
        feed(f, &ev);
        const struct message_logits *l = &said(f, MESSAGE_LOGITS)->u.logits;
        assert_int_equal(l->first_position, at);
        assert_int_equal(l->count, 3);
        assert_int_equal(l->values.size, 3 * VOCABULARY * sizeof(float));
        assert_int_equal(said(f, MESSAGE_TOKENS) != NULL, at == 3);
    }
    assert_string_equal(token_said(f, 0)->finish, "length");
}

static void probes_are_ordered_and_their_results_told(void **state)
{
    struct fixture *f = *state;
    static const uint8_t address[] = "there";
    struct message m = {.type = MESSAGE_LINK_PROBE, .id = 12};
    m.u.link_probe = (struct message_link_probe){.session = SESSION,
                                                 .role = "measure",
                                                 .peer = "b",
                                                 .data_address = {address, sizeof address}};
    tell(f, &m);
    const struct agent_action *a = did(f, AGENT_DO_PROBE, 0);
    assert_non_null(a);
    assert_int_equal(a->u.probe.id, 12);
    assert_int_equal(a->u.probe.request.session, SESSION);
    assert_string_equal(a->u.probe.request.role, "measure");
    assert_memory_equal(a->u.probe.request.data_address.data, address, sizeof address);
    struct err why = {0};
    err_set(&why, HP_ELINK, "the link broke");
    for (int failed = 0; failed < 2; failed++) {
        struct agent_event ev = {.kind = AGENT_EVENT_PROBED};
        ev.u.probed.id = 12;
        ev.u.probed.status = failed ? HP_ELINK : 0;
        ev.u.probed.error = failed ? &why : NULL;
        ev.u.probed.latency_s = failed ? 0 : 1e-4;
        ev.u.probed.bandwidth_bytes_per_s = failed ? 0 : 1e9;
        feed(f, &ev);
        const struct message *r = said(f, MESSAGE_LINK_RESULT);
        assert_non_null(r);
        assert_int_equal(r->id, 12);
        assert_string_equal(r->u.link_result.code, failed ? status_word(HP_ELINK) : "");
        assert_true(r->u.link_result.bandwidth_bytes_per_s == (failed ? 0 : 1e9));
    }
}

int main(void)
{
#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CLAIM(probes_are_ordered_and_their_results_told),
        CLAIM(joins_and_beats_until_nobody_answers_then_joins_again),
        CLAIM(an_agents_own_pause_is_not_the_coordinators_silence),
        CLAIM(refusal_ends_a_newcomer_and_makes_a_member_join_again),
        CLAIM(stage_whose_weights_cannot_be_read_fails_with_what_to_do),
        CLAIM(an_agent_that_was_removed_ends_when_its_join_is_denied),
        CLAIM(unknown_request_is_refused_and_a_refusal_is_not_answered),
        CLAIM(stage_is_fetched_loaded_and_told_at_every_step),
        CLAIM(next_generation_keeps_weights_that_are_the_same),
        CLAIM(bad_prepare_fails_without_a_stage),
        CLAIM(what_crosses_is_agreed_before_stages_are_connected),
        CLAIM(rows_come_and_go_as_the_stage_was_prepared_for),
        CLAIM(unload_of_a_generation_takes_it_and_older_ones),
        CLAIM(frames_are_believed_only_over_the_session_of_their_hop),
        CLAIM(who_may_connect_is_what_the_coordinator_says),
        CLAIM(prompt_flows_through_the_first_stage_slice_after_slice),
        CLAIM(last_stage_tells_tokens_to_both_ends_and_stops_where_it_must),
        CLAIM(sequences_of_a_batch_are_told_in_one_message),
        CLAIM(one_stage_feeds_itself),
        CLAIM(closing_frees_a_sequence_before_the_next_batch),
        CLAIM(frame_before_its_sequence_waits_for_it),
        CLAIM(frame_that_waits_for_ever_is_given_up_and_said),
        CLAIM(stale_foreign_and_malformed_frames_are_counted_and_given_back),
        CLAIM(failed_batch_ends_its_sequences_and_goes_on_empty),
        CLAIM(sequences_that_cannot_live_here_are_refused_with_the_reason),
        CLAIM(broken_link_ends_open_sequences_and_is_made_anew_for_the_next),
        CLAIM(broken_link_is_made_anew_though_nobody_asks_for_anything),
        CLAIM(restarted_coordinator_finds_the_stage_and_old_sequences_are_freed),
        CLAIM(orphan_frees_its_sequences_after_a_minute_and_keeps_its_stage),
        CLAIM(late_result_of_an_old_generation_is_given_back),
        CLAIM(frame_that_finds_no_room_fails_its_sequence_and_its_batch_goes_on),
        CLAIM(frame_of_a_sequence_that_is_not_open_yet_and_cannot_be_taken_fails_it_too),
        CLAIM(run_that_is_not_answered_fails_what_waits_for_it_and_names_the_stage),
        CLAIM(batch_that_does_not_come_back_fails_its_sequence),
        CLAIM(stage_whose_outputs_are_all_out_runs_no_large_batch_until_one_is_back),
        CLAIM(next_stage_that_takes_nothing_fails_what_waits_for_it),
        CLAIM(executor_is_given_as_many_runs_ahead_as_it_wants),
        CLAIM(long_run_has_none_waiting_behind_it),
        CLAIM(two_deployments_share_the_device_by_time),
        CLAIM(grants_open_and_close_the_door_for_chunks),
        CLAIM(all_logits_are_told_and_nothing_is_sampled),
    };
    return cmocka_run_group_tests_name("agent_core", tests, NULL, NULL);
}
