/* A core with several devices: stages are told apart by number, and each device has runs and turns
 * of its own. */
#include <stdlib.h>
#include <string.h>

#include "agent/agent_core.h"
#include "common/log.h"
#include "tests/message_fixture.h"
#include "tests/test.h"

static const uint64_t ms = 1000000;
static uint8_t model_id[32] = {1, 2, 3};
enum { WIDTH = 2, VOCABULARY = 50, DEPLOYMENT = 7, SESSION = 100 };

struct devices_fixture {
    struct env_virtual clock;
    struct env env;
    struct agent_core_config config;
    struct agent_core *core;
    struct agent_actions actions;
};

static void feed(struct devices_fixture *f, const struct agent_event *ev)
{
    agent_core_event(f->core, ev, &f->actions);
}

static void tell(struct devices_fixture *f, const struct message *m)
{
    struct agent_event ev = {.kind = AGENT_EVENT_MESSAGE};
    ev.u.message = message_of_test(m);
    feed(f, &ev);
    message_ref_release(ev.u.message);
}

/* The n-th action of a kind, or NULL. */
static const struct agent_action *did(const struct devices_fixture *f, enum agent_action_kind kind,
                                      int n)
{
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == kind && n-- == 0)
            return &f->actions.items[i];
    return NULL;
}

static const struct message *said(const struct devices_fixture *f, enum message_type type, int n)
{
    const struct agent_action *a;
    for (int i = 0; (a = did(f, AGENT_DO_SEND, i)) != NULL; i++)
        if (a->u.message.type == type && n-- == 0)
            return &a->u.message;
    return NULL;
}

static int setup(void **state)
{
    struct devices_fixture *f = calloc(1, sizeof *f);
    log_set_level(LOG_ERROR);
    f->env = env_virtual_init(&f->clock, 1);
    f->clock.now_ns = 1000 * ms;
    f->config = (struct agent_core_config){.name = "a",
                                           .secret = "s",
                                           .program = "1",
                                           .machine = "m",
                                           .hostname = "h",
                                           .node_json = "{}",
                                           .n_devices = 3};
    assert_int_equal(agent_core_create(&f->env, &f->config, &f->core, NULL), 0);
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_START});
    struct message m = {.type = MESSAGE_WELCOME};
    m.u.welcome = (struct message_welcome){.name = "a", .heartbeat_ms = 500, .coordinator_boot = 3};
    tell(f, &m);
    *state = f;
    return 0;
}

static void release(void *ctx, void *buffer)
{
    (void)ctx;
    (void)buffer;
}

static int teardown(void **state)
{
    struct devices_fixture *f = *state;
    agent_core_destroy(&f->core, release, f);
    agent_actions_free(&f->actions);
    free(f);
    return 0;
}

static void prepare(struct devices_fixture *f, uint64_t generation, uint64_t stage, uint64_t device,
                    uint64_t first_layer)
{
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = (struct message_stage_prepare){.deployment = DEPLOYMENT,
                                                       .generation = generation,
                                                       .stage = stage,
                                                       .n_stages = 3,
                                                       .device = device,
                                                       .session = SESSION + generation,
                                                       .input_session = 10 * generation + stage,
                                                       .deployment_name = "d",
                                                       .model = {model_id, 32},
                                                       .first_layer = first_layer,
                                                       .end_layer = first_layer + 4,
                                                       .compute = "f32",
                                                       .context = 100,
                                                       .kv_tokens = 1000,
                                                       .max_sequences = 8,
                                                       .max_batch_tokens = 16,
                                                       .planned_s_per_token = 0.5};
    tell(f, &m);
}

static uint64_t load(struct devices_fixture *f)
{
    const struct agent_action *fetch = did(f, AGENT_DO_FETCH, 0);
    assert_non_null(fetch);
    struct agent_event ev = {.kind = AGENT_EVENT_FETCHED};
    uint64_t slot = fetch->u.work.slot;
    ev.u.progress.slot = slot;
    ev.u.progress.ticket = fetch->u.work.ticket;
    feed(f, &ev);
    ev.kind = AGENT_EVENT_LOADED;
    ev.u.progress.ticket = did(f, AGENT_DO_LOAD, 0)->u.work.ticket;
    ev.u.progress.row_in.width = ev.u.progress.row_out.width = WIDTH;
    ev.u.progress.vocabulary = VOCABULARY;
    feed(f, &ev);
    assert_string_equal(said(f, MESSAGE_STAGE_STATE, 0)->u.stage_state.state, "ready");
    return slot;
}

static void wire(struct devices_fixture *f, uint64_t generation, uint64_t stage)
{
    struct message m = {.type = MESSAGE_STAGE_CONNECT};
    m.u.stage_connect = (struct message_stage_connect){.deployment = DEPLOYMENT,
                                                       .generation = generation,
                                                       .stage = stage,
                                                       .n_stages = 3,
                                                       .next_address = {(const uint8_t *)"n", 1},
                                                       .first_address = {(const uint8_t *)"f", 1}};
    tell(f, &m);
}

/* Stage i on device i, with these layers; returns the slots. */
static void three_stages(struct devices_fixture *f, uint64_t generation, uint64_t slots[3])
{
    for (uint64_t i = 0; i < 3; i++) {
        prepare(f, generation, i, i, 4 * i);
        slots[i] = load(f);
    }
    for (uint64_t i = 0; i < 3; i++)
        wire(f, generation, i);
}

static bool open_on(struct devices_fixture *f, uint64_t generation, uint64_t stage, uint64_t id)
{
    static const uint32_t prompt[] = {1, 2, 3, 4}, slices[] = {4};
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = generation,
                                                       .sequence = id,
                                                       .stage = stage,
                                                       .prompt = {prompt, stage ? 0 : 4},
                                                       .slices = {slices, stage ? 0 : 1},
                                                       .max_tokens = 10,
                                                       .kv_tokens = 14};
    tell(f, &m);
    const struct agent_action *open = did(f, AGENT_DO_SEQUENCE_OPEN, 0);
    if (!open)
        return false;
    struct agent_event ev = {.kind = AGENT_EVENT_SEQUENCE_OPENED};
    ev.u.sequence_opened.slot = open->u.sequence_open.slot;
    ev.u.sequence_opened.ticket = open->u.sequence_open.ticket;
    ev.u.sequence_opened.sequence = id;
    feed(f, &ev);
    return true;
}

static void arrive(struct devices_fixture *f, uint64_t generation, uint16_t stage, uint64_t session,
                   uint64_t sequence, uint32_t position, void *buffer)
{
    struct frame_header h = {.kind = FRAME_ACTIVATION,
                             .stage = stage,
                             .dtype = FRAME_F32,
                             .n_runs = 1,
                             .session = session,
                             .deployment = DEPLOYMENT,
                             .generation = (uint32_t)generation,
                             .batch = 1 + position,
                             .n_tokens = 4,
                             .payload_bytes = FRAME_RUN_BYTES + 4 * WIDTH * sizeof(float)};
    struct batch_run run = {.sequence = sequence, .first_position = position, .n_tokens = 4};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    ev.u.frame.runs = &run;
    ev.u.frame.buffer = buffer;
    feed(f, &ev);
}

/* Its hop works. */
static void alive(struct devices_fixture *f, uint16_t stage)
{
    struct frame_header h = {.kind = FRAME_ALIVE,
                             .stage = stage,
                             .dtype = FRAME_BYTES,
                             .session = 10 + stage,
                             .deployment = DEPLOYMENT,
                             .generation = 1};
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = &h;
    feed(f, &ev);
}

static void ran(struct devices_fixture *f, uint64_t slot, uint64_t ticket)
{
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = slot;
    ev.u.batch_done.ticket = ticket;
    ev.u.batch_done.seconds = 0.1;
    ev.u.batch_done.posted = true;
    feed(f, &ev);
}

/* Every device runs its own stage, whatever the others do; the last sequence waits for its own. */
static void stages_of_a_deployment_run_side_by_side_on_their_devices(void **state)
{
    struct devices_fixture *f = *state;
    uint64_t slots[3];
    int buffer;
    three_stages(f, 1, slots);
    assert_int_equal(agent_core_view(f->core).n_stages, 3);
    for (uint64_t stage = 3; stage-- > 0;)
        assert_true(open_on(f, 1, stage, 5));
    const struct agent_action *first = did(f, AGENT_DO_RUN, 0);
    assert_int_equal(first->u.run.slot, slots[0]);
    assert_int_equal(first->u.run.header.stage, 1);
    uint64_t ticket = first->u.run.ticket;
    arrive(f, 1, 1, 11, 5, 0, &buffer); /* while the first device is at it */
    assert_int_equal(did(f, AGENT_DO_RUN, 0)->u.run.slot, slots[1]);
    uint64_t middle = did(f, AGENT_DO_RUN, 0)->u.run.ticket;
    arrive(f, 1, 2, 12, 5, 0, &buffer);
    assert_int_equal(did(f, AGENT_DO_RUN, 0)->u.run.slot, slots[2]);
    arrive(f, 1, 1, 11, 5, 4, &buffer); /* its device is busy */
    assert_null(did(f, AGENT_DO_RUN, 0));
    ran(f, slots[0], ticket);
    assert_null(did(f, AGENT_DO_RUN, 0)); /* another's end is not its turn */
    ran(f, slots[1], middle);
    assert_int_equal(did(f, AGENT_DO_RUN, 0)->u.run.slot, slots[1]);
}

static void a_frame_reaches_its_stage_over_that_stages_session_alone(void **state)
{
    struct devices_fixture *f = *state;
    uint64_t slots[3];
    int buffer;
    three_stages(f, 1, slots);
    assert_true(open_on(f, 1, 1, 5) && open_on(f, 1, 2, 5));
    arrive(f, 1, 2, 11, 5, 0, &buffer); /* another stage's hop */
    assert_null(did(f, AGENT_DO_RUN, 0));
    assert_int_equal(agent_core_view(f->core).dropped_foreign, 1);
    arrive(f, 1, 7, 11, 5, 0, &buffer); /* no such stage here */
    assert_int_equal(agent_core_view(f->core).dropped_foreign, 2);
    arrive(f, 2, 1, 11, 5, 0, &buffer); /* of another generation */
    assert_int_equal(agent_core_view(f->core).dropped_stale, 1);
    arrive(f, 1, 1, 11, 5, 0, &buffer);
    assert_int_equal(did(f, AGENT_DO_RUN, 0)->u.run.slot, slots[1]);
}

static void sequences_open_and_close_stage_by_stage(void **state)
{
    struct devices_fixture *f = *state;
    uint64_t slots[3];
    three_stages(f, 1, slots);
    assert_true(open_on(f, 1, 0, 5) && open_on(f, 1, 2, 5));
    assert_int_equal(agent_core_view(f->core).n_sequences, 2);
    assert_false(open_on(f, 1, 3, 5));
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED, 0)->u.sequence_failed.code, "stale");
    struct message m = {.type = MESSAGE_SEQUENCE_CLOSE};
    m.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 5, 2, 0};
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.slot, slots[2]);
    assert_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 1));
    assert_int_equal(agent_core_view(f->core).n_sequences, 1);
}

/* What lies on a device is kept where its layers are wanted there, whatever their number; else it
 * makes room, and nothing on other devices does. */
static void a_new_generation_keeps_what_lies_on_its_device(void **state)
{
    struct devices_fixture *f = *state;
    uint64_t slots[3];
    three_stages(f, 1, slots);
    prepare(f, 2, 2, 0, 0); /* the layers of device 0, now the last */
    assert_null(did(f, AGENT_DO_FETCH, 0));
    assert_null(did(f, AGENT_DO_UNLOAD, 0));
    assert_int_equal(said(f, MESSAGE_STAGE_STATE, 0)->u.stage_state.stage, 2);
    assert_string_equal(said(f, MESSAGE_STAGE_STATE, 0)->u.stage_state.state, "ready");
    prepare(f, 2, 0, 1, 20); /* others on device 1 */
    assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, slots[1]);
    assert_null(did(f, AGENT_DO_UNLOAD, 1));
    assert_non_null(did(f, AGENT_DO_FETCH, 0));
    assert_int_equal(agent_core_view(f->core).n_stages, 3);
    prepare(f, 1, 1, 1, 4); /* late */
    assert_int_equal(agent_core_view(f->core).dropped_stale, 1);
    /* The stage that the new generation does not have goes by an order of its own. */
    struct message m = {.type = MESSAGE_STAGE_UNLOAD, .u.stage_unload = {DEPLOYMENT, 1}};
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_UNLOAD, 0)->u.unload.slot, slots[2]);
    assert_null(did(f, AGENT_DO_UNLOAD, 1));
    assert_int_equal(agent_core_view(f->core).n_stages, 2);
    m.u.stage_unload.generation = 2;
    tell(f, &m);
    assert_non_null(did(f, AGENT_DO_UNLOAD, 1));
    assert_string_equal(said(f, MESSAGE_STAGE_STATE, 1)->u.stage_state.state, "unloaded");
    assert_int_equal(agent_core_view(f->core).n_stages, 0);
}

static void a_device_that_there_is_not_fails_the_stage(void **state)
{
    struct devices_fixture *f = *state;
    prepare(f, 1, 0, 3, 0);
    const struct message_stage_state *s = &said(f, MESSAGE_STAGE_STATE, 0)->u.stage_state;
    assert_string_equal(s->state, "failed");
    assert_string_equal(s->text, "device 3: this agent has 3");
    assert_int_equal(agent_core_view(f->core).n_stages, 0);
}

static void heartbeats_tell_of_every_device_and_which_stage_it_is_at(void **state)
{
    static const uint64_t free_bytes[] = {10, 20, 30};
    struct devices_fixture *f = *state;
    uint64_t slots[3];
    three_stages(f, 1, slots);
    assert_true(open_on(f, 1, 0, 5)); /* its prompt runs */
    struct agent_event ev = {.kind = AGENT_EVENT_METER};
    ev.u.meter.memory_free_bytes = 60;
    ev.u.meter.device_free_bytes = free_bytes;
    feed(f, &ev);
    f->clock.now_ns += 600 * ms;
    feed(f, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
    const struct message_heartbeat *h = &said(f, MESSAGE_HEARTBEAT, 0)->u.heartbeat;
    const struct message_device_state *devices = h->devices.items;
    const struct message_held_stage *held = h->held.items;
    assert_int_equal(h->devices.count, 3);
    assert_int_equal(devices[2].memory_free_bytes, 30);
    assert_int_equal(h->held.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(held[i].device, held[i].stage);
        assert_int_equal(held[i].running, held[i].stage == 0);
    }
}

/* Each run has a deadline of its own: one device that hangs is found while the others work. */
static void a_run_that_never_ends_is_found_on_any_device(void **state)
{
    struct devices_fixture *f = *state;
    uint64_t slots[3];
    int buffer;
    three_stages(f, 1, slots);
    assert_true(open_on(f, 1, 1, 5) && open_on(f, 1, 2, 6));
    arrive(f, 1, 1, 11, 5, 0, &buffer);
    uint64_t hung = did(f, AGENT_DO_RUN, 0)->u.run.slot;
    bool failed = false;
    for (int i = 0; i < 120 && !failed; i++) {
        tell(f, &(struct message){.type = MESSAGE_HEARTBEAT_ACK});
        for (uint16_t stage = 0; stage < 3; stage++)
            alive(f, stage);
        f->clock.now_ns += 500 * ms;
        feed(f, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
        const struct message *m = said(f, MESSAGE_SEQUENCE_FAILED, 0);
        failed = m && strstr(m->u.sequence_failed.text, "stage 1 has run a batch");
    }
    assert_int_equal(hung, slots[1]);
    assert_true(failed);
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(stages_of_a_deployment_run_side_by_side_on_their_devices),
        CLAIM(a_frame_reaches_its_stage_over_that_stages_session_alone),
        CLAIM(sequences_open_and_close_stage_by_stage),
        CLAIM(a_new_generation_keeps_what_lies_on_its_device),
        CLAIM(a_device_that_there_is_not_fails_the_stage),
        CLAIM(heartbeats_tell_of_every_device_and_which_stage_it_is_at),
        CLAIM(a_run_that_never_ends_is_found_on_any_device),
    };
    return cmocka_run_group_tests_name("devices of a core", tests, NULL, NULL);
}
