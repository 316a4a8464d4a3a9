/* Whose turn it is on the device, and how many runs an executor is given ahead. */
#include "tests/unit/agent/core_fixture.h"

static void executor_is_given_as_many_runs_ahead_as_it_wants(void **state)
{
    struct core_fixture *f = *state;
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
    struct core_fixture *f = *state;
    f->config.runs_ahead = 2;
    join(f);
    make_ready(f, 1, 0, 3);
    connect_stage(f, 1, 0, 3);
    begin(f, 1, 5, 10, true);
    assert_non_null(did(f, AGENT_DO_RUN, 0));
    assert_null(did(f, AGENT_DO_RUN, 1));
}

static uint64_t stage_of_deployment(struct core_fixture *f, uint64_t of)
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

static void arrive(struct core_fixture *f, uint64_t of, uint32_t batch, uint32_t position,
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
    struct batch_run run = {5, position, tokens, 0, 0, false, 0, 0, 0, 0};
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
    struct core_fixture *f = *state;
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

/* Two deployments that have something to do all the time, in runs of a tenth of a second: how many
 * the second one had until the first one had `firsts`. */
static int runs_beside(struct core_fixture *f, double first_weight, double second_weight,
                       int firsts)
{
    int buffer, first_runs = 0, second_runs = 0;
    planned_s_per_token = 0.1;
    join(f);
    stage_weight = first_weight;
    uint64_t first = stage_of_deployment(f, 7);
    stage_weight = second_weight;
    stage_of_deployment(f, 8);
    stage_weight = 0;
    arrive(f, 7, 0, 0, 1, &buffer);
    assert_true(take_run(f));
    for (uint32_t i = 0; i < 20; i++) {
        arrive(f, 7, i + 1, i + 1, 1, &buffer);
        arrive(f, 8, i, i, 1, &buffer);
    }
    while (first_runs < firsts) {
        bool is_first = f->run.u.run.slot == first;
        first_runs += is_first;
        second_runs += !is_first;
        ran(f, &f->run, 0.1);
        assert_true(take_run(f));
    }
    return second_runs;
}

static void weights_share_the_device(void **state)
{
    assert_in_range(runs_beside(*state, 3, 1, 15), 4, 6);
}

static void a_weight_that_is_none_counts_as_one(void **state)
{
    assert_in_range(runs_beside(*state, -4, 2, 8), 13, 17);
}

/* A short step of one deployment runs after each long one of another, whatever that one weighs. */
static void a_step_within_its_share_waits_for_one_run_of_another_deployment_at_most(void **state)
{
    struct core_fixture *f = *state;
    int buffer;
    planned_s_per_token = 0.5;
    join(f);
    stage_weight = 1000;
    uint64_t heavy = stage_of_deployment(f, 7);
    stage_weight = 1;
    uint64_t light = stage_of_deployment(f, 8);
    stage_weight = 0;
    arrive(f, 7, 0, 0, 1, &buffer);
    assert_true(take_run(f));
    for (uint32_t i = 1; i < 20; i++)
        arrive(f, 7, i, i, 1, &buffer);
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(f->run.u.run.slot == heavy);
        arrive(f, 8, i, i, 1, &buffer); /* while a run of the other one goes on */
        ran(f, &f->run, 0.5);
        assert_true(take_run(f));
        if (i == 0)
            assert_true(f->run.u.run.slot == light); /* it was idle: it owes nothing */
        while (f->run.u.run.slot == light) {
            ran(f, &f->run, 0.0001);
            assert_true(take_run(f));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(executor_is_given_as_many_runs_ahead_as_it_wants),
        CLAIM(long_run_has_none_waiting_behind_it),
        CLAIM(two_deployments_share_the_device_by_time),
        CLAIM(weights_share_the_device),
        CLAIM(a_weight_that_is_none_counts_as_one),
        CLAIM(a_step_within_its_share_waits_for_one_run_of_another_deployment_at_most),
    };
    return cmocka_run_group_tests_name("core_turns", tests, NULL, NULL);
}
