/* One core of an agent, stepped by hand under virtual time: what it answers to each event. A
 * pipeline of cores: pipeline_test.c. */
#ifndef HP_TESTS_UNIT_AGENT_CORE_FIXTURE_H
#define HP_TESTS_UNIT_AGENT_CORE_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "agent/agent_core.h"
#include "tests/message_fixture.h"
#include "tests/test.h"

static const uint64_t ms = 1000000;

static uint8_t model_id[32] = {1, 2, 3};

enum { WIDTH = 2, VOCABULARY = 50, DEPLOYMENT = 7, SESSION = 77 };

struct core_fixture {
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

static inline void feed(struct core_fixture *f, const struct agent_event *ev)
{
    agent_core_event(f->core, ev, &f->actions);
}

static inline void tell(struct core_fixture *f, const struct message *m)
{
    struct agent_event ev = {.kind = AGENT_EVENT_MESSAGE};
    ev.u.message = message_of_test(m);
    if (m->type == MESSAGE_STAGE_PREPARE)
        f->stage = m->u.stage_prepare.stage;
    feed(f, &ev);
    message_ref_release(ev.u.message);
}

/* The n-th action of a kind, or NULL. */
static inline const struct agent_action *did(const struct core_fixture *f,
                                             enum agent_action_kind kind, int n)
{
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == kind && n-- == 0)
            return &f->actions.items[i];
    return NULL;
}

static inline const struct message *said(const struct core_fixture *f, enum message_type type)
{
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == AGENT_DO_SEND && f->actions.items[i].u.message.type == type)
            return &f->actions.items[i].u.message;
    return NULL;
}

static double planned_s_per_token, stage_weight; /* of what prepare_of says */

static uint64_t deployment;

static inline int setup(void **state)
{
    struct core_fixture *f = calloc(1, sizeof *f);
    planned_s_per_token = 0.5;
    stage_weight = 0;
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

static inline void count_release(void *ctx, void *buffer)
{
    (void)buffer;
    ((struct core_fixture *)ctx)->released++;
}

static inline int teardown(void **state)
{
    struct core_fixture *f = *state;
    agent_core_destroy(&f->core, count_release, f);
    agent_actions_free(&f->actions);
    free(f);
    return 0;
}

static inline void tick_to(struct core_fixture *f, uint64_t now_ms)
{
    /* The agent's timer fires at least once a heartbeat, as in a process that runs. */
    while (f->clock.now_ns < now_ms * ms) {
        uint64_t left = now_ms * ms - f->clock.now_ns, step = AGENT_HEARTBEAT_MS * ms;
        f->clock.now_ns += left < step ? left : step;
        feed(f, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
    }
}

static inline void join(struct core_fixture *f)
{
    struct message m = {.type = MESSAGE_WELCOME};
    m.u.welcome =
        (struct message_welcome){.name = "node-1", .heartbeat_ms = 500, .coordinator_boot = 3};
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_START});
    tell(f, &m);
}

static inline void ack(struct core_fixture *f)
{
    tell(f, &(struct message){.type = MESSAGE_HEARTBEAT_ACK});
}

static inline struct message prepare_of(uint64_t generation, uint64_t stage, uint64_t n_stages)
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
                                                       .planned_s_per_token = planned_s_per_token,
                                                       .weight = stage_weight};
    return m;
}

static inline void progress(struct core_fixture *f, enum agent_event_kind kind, uint64_t slot,
                            uint64_t ticket, int status)
{
    struct err e = {0};
    struct agent_event ev = {.kind = kind};
    ev.u.progress = (struct agent_progress){.slot = slot,
                                            .ticket = ticket,
                                            .status = status,
                                            .row_in.width = WIDTH,
                                            .row_out.width = WIDTH,
                                            .vocabulary = VOCABULARY};
    if (status < 0) {
        err_set(&e, status, "went wrong");
        ev.u.progress.error = &e;
    }
    feed(f, &ev);
}

/* Prepares a stage as it is said until it is ready; returns its slot. */
static inline uint64_t made_ready(struct core_fixture *f, const struct message *m)
{
    tell(f, m);
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

static inline uint64_t make_ready(struct core_fixture *f, uint64_t generation, uint64_t stage,
                                  uint64_t n_stages)
{
    struct message m = prepare_of(generation, stage, n_stages);
    return made_ready(f, &m);
}

static inline void connect_stage(struct core_fixture *f, uint64_t generation, uint64_t stage,
                                 uint64_t n_stages)
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

static const uint32_t prompt[] = {1, 2, 3, 4, 5, 6};

static const uint32_t slices[] = {4, 2};

static const uint32_t end_ids[] = {49};

static inline void open_sequence(struct core_fixture *f, uint64_t generation, uint64_t id,
                                 uint64_t max_tokens, bool first)
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

static inline void opened(struct core_fixture *f, const struct agent_action *open, int status)
{
    struct agent_event ev = {.kind = AGENT_EVENT_SEQUENCE_OPENED};
    ev.u.sequence_opened.slot = open->u.sequence_open.slot;
    ev.u.sequence_opened.ticket = open->u.sequence_open.ticket;
    ev.u.sequence_opened.sequence = open->u.sequence_open.open->sequence;
    ev.u.sequence_opened.status = status;
    feed(f, &ev);
}

/* Opens a sequence and says that the executor has room. */
static inline void begin(struct core_fixture *f, uint64_t generation, uint64_t id,
                         uint64_t max_tokens, bool first)
{
    open_sequence(f, generation, id, max_tokens, first);
    assert_non_null(did(f, AGENT_DO_SEQUENCE_OPEN, 0));
    opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), 0);
}

static inline bool take_run(struct core_fixture *f)
{
    const struct agent_action *a = did(f, AGENT_DO_RUN, 0);
    if (!a)
        return false;
    f->run = *a;
    memcpy(f->runs, a->u.run.batch->runs, a->u.run.batch->n_runs * sizeof *f->runs);
    return true;
}

static inline void done(struct core_fixture *f, int status, void *output, const uint32_t *picked)
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

static inline void frame(struct core_fixture *f, uint64_t generation, uint64_t session,
                         uint16_t stage, uint32_t batch, const struct batch_run *runs, uint16_t n,
                         void *buffer)
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

static inline int failures(const struct core_fixture *f, uint64_t id, const char *code,
                           const char *text)
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

/* What ran on a slot, for so long. */
static inline void ran(struct core_fixture *f, const struct agent_action *run, double seconds)
{
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = run->u.run.slot;
    ev.u.batch_done.ticket = run->u.run.ticket;
    ev.u.batch_done.seconds = seconds;
    ev.u.batch_done.posted = true;
    feed(f, &ev);
}

/* A row of the list of tests. */
#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
