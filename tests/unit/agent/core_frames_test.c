/* What one core believes of frames, and what becomes of those that it cannot take. */
#include "tests/unit/agent/core_fixture.h"

static void rows_come_and_go_as_the_stage_was_prepared_for(void **state)
{
    struct core_fixture *f = *state;
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
    struct core_fixture *f = *state;
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

static void frame_before_its_sequence_waits_for_it(void **state)
{
    struct core_fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 1, 1, 2);
    struct batch_run run = {5, 0, 4, 0, 0, false, 0, 0, 0, 0};
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
    struct core_fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 1, 1, 2);
    connect_stage(f, 1, 1, 2);
    struct batch_run run = {5, 0, 4, 0, 0, false, 0, 0, 0, 0};
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
    struct core_fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 2, 1, 2);
    connect_stage(f, 2, 1, 2);
    begin(f, 2, 5, 10, false);
    struct batch_run run = {5, 0, 4, 0, 0, false, 0, 0, 0, 0},
                     large = {5, 0, 17, 0, 0, false, 0, 0, 0, 0};
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

static void frame_that_finds_no_room_fails_its_sequence_and_its_batch_goes_on(void **state)
{
    struct core_fixture *f = *state;
    int buffers[40];
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, false);
    uint32_t n = 0;
    do {
        /* None is due: what precedes them is missing. */
        struct batch_run run = {5, 4 + n, 1, 0, 0, false, 0, 0, 0, 0};
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
    struct core_fixture *f = *state;
    struct batch_run run = {8, 0, 17, 0, 0, false, 0, 0, 0, 0}; /* more than max_batch_tokens */
    int buffer;
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    frame(f, 1, SESSION + 1, 1, 0, &run, 1, &buffer);
    assert_int_equal(failures(f, 8, "invalid", "more tokens"), 1);
    open_sequence(f, 1, 8, 4, false);
    assert_null(did(f, AGENT_DO_SEQUENCE_OPEN, 0)); /* it has ended */
}

static void late_result_of_an_old_generation_is_given_back(void **state)
{
    struct core_fixture *f = *state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(rows_come_and_go_as_the_stage_was_prepared_for),
        CLAIM(frames_are_believed_only_over_the_session_of_their_hop),
        CLAIM(frame_before_its_sequence_waits_for_it),
        CLAIM(frame_that_waits_for_ever_is_given_up_and_said),
        CLAIM(stale_foreign_and_malformed_frames_are_counted_and_given_back),
        CLAIM(late_result_of_an_old_generation_is_given_back),
        CLAIM(frame_that_finds_no_room_fails_its_sequence_and_its_batch_goes_on),
        CLAIM(frame_of_a_sequence_that_is_not_open_yet_and_cannot_be_taken_fails_it_too),
    };
    return cmocka_run_group_tests_name("core_frames", tests, NULL, NULL);
}
