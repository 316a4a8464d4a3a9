/* Nothing waits for ever: what one core does when an answer does not come. */
#include "tests/unit/agent/core_fixture.h"

static void run_that_is_not_answered_fails_what_waits_for_it_and_names_the_stage(void **state)
{
    struct core_fixture *f = *state;
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
    struct core_fixture *f = *state;
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

/* The first of two stages, with one output of its own (64 KiB and more), has run a batch, whose
 * output is on its way: what the executor said of it. */
static struct agent_event make_output_out(struct core_fixture *f)
{
    struct message m = prepare_of(1, 0, 2);
    tell(f, &m);
    uint64_t slot = did(f, AGENT_DO_FETCH, 0)->u.work.slot;
    progress(f, AGENT_EVENT_FETCHED, slot, did(f, AGENT_DO_FETCH, 0)->u.work.ticket, 0);
    struct agent_event ev = {.kind = AGENT_EVENT_LOADED};
    ev.u.progress = (struct agent_progress){.slot = slot,
                                            .ticket = did(f, AGENT_DO_LOAD, 0)->u.work.ticket,
                                            .row_in.width = 1 << 15,
                                            .row_out.width = 1 << 15,
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
    return ran;
}

static void stage_whose_outputs_are_all_out_runs_no_large_batch_until_one_is_back(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    struct agent_event ran = make_output_out(f);
    assert_false(take_run(f)); /* the output is on its way */
    struct agent_event back = {.kind = AGENT_EVENT_OUTPUT_BACK};
    back.u.output_back.slot = ran.u.batch_done.slot;
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
    struct core_fixture *f = *state;
    join(f);
    make_output_out(f);
    tick_to(f, 1000 + AGENT_RUN_LIMIT_MS);
    assert_int_equal(failures(f, 5, "timeout", "stage 1 takes no batches"), 1);
    open_sequence(f, 1, 6, 10, true);
    assert_non_null(did(f, AGENT_DO_CONNECT, 0)); /* the link is made anew */
}

/* A weight came for a stage of this agent. */
static void fill(struct core_fixture *f, uint64_t slot, uint64_t missing_bytes)
{
    struct agent_event ev = {.kind = AGENT_EVENT_FILLING};
    ev.u.filling.slot = slot;
    ev.u.filling.missing_bytes = missing_bytes;
    feed(f, &ev);
}

/* The coordinator tells how many bytes the deployment's stages miss. */
static void acknowledge_loading(struct core_fixture *f, uint64_t missing_bytes)
{
    struct message_loading row = {DEPLOYMENT, 1, missing_bytes};
    struct message m = {.type = MESSAGE_HEARTBEAT_ACK};
    m.u.heartbeat_ack.loading = (struct pack_list){&row, missing_bytes ? 1 : 0};
    tell(f, &m);
}

static void pass_ms(struct core_fixture *f, uint64_t for_ms, uint64_t missing_bytes)
{
    uint64_t until_ms = f->clock.now_ns / ms + for_ms;
    for (uint64_t at_ms = f->clock.now_ns / ms; at_ms < until_ms;) {
        at_ms = at_ms + 2000 < until_ms ? at_ms + 2000 : until_ms;
        tick_to(f, at_ms);
        if (at_ms < until_ms)
            acknowledge_loading(f, missing_bytes);
    }
}

static void batch_waits_for_weights_as_long_as_some_come(void **state)
{
    struct core_fixture *f = *state;
    uint64_t limit_ms = AGENT_RUN_LIMIT_MS + 10 * 4 * 500;
    join(f);
    uint64_t slot = make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    assert_true(take_run(f));
    for (uint64_t missing = 5000000; missing >= 2000000; missing -= 1000000) {
        fill(f, slot, missing);
        pass_ms(f, limit_ms - 1, 0);
        assert_int_equal(failures(f, 5, "timeout", ""), 0);
    }
    tick_to(f, f->clock.now_ns / ms + 1);
    assert_int_equal(failures(f, 5, "timeout", "stage 0 waits for 2 MB of its weights, none of"),
                     1);
}

static void weights_that_cannot_be_read_break_the_stage_before_a_batch_finds_out(void **state)
{
    struct core_fixture *f = *state;
    struct err e = {0};
    join(f);
    uint64_t slot = make_ready(f, 1, 0, 2);
    fill(f, slot, 5000000);
    err_set(&e, HP_EIO, "the file became shorter");
    struct agent_event ev = {.kind = AGENT_EVENT_FILLING};
    ev.u.filling.slot = slot;
    ev.u.filling.status = HP_EIO;
    ev.u.filling.error = &e;
    feed(f, &ev);
    const struct message *m = said(f, MESSAGE_STAGE_STATE);
    assert_non_null(m);
    assert_string_equal(m->u.stage_state.state, "failed");
    assert_string_equal(m->u.stage_state.text, "the file became shorter");
}

static void batch_that_is_away_is_waited_for_while_weights_come_to_later_stages(void **state)
{
    struct core_fixture *f = *state;
    int output;
    uint64_t limit_ms = AGENT_FLIGHT_LIMIT_MS + 10 * (9000 + 2 * 250);
    join(f);
    make_ready(f, 1, 0, 2);
    connect_stage(f, 1, 0, 2);
    begin(f, 1, 5, 10, true);
    for (int i = 0; i < 2; i++) {
        assert_true(take_run(f));
        done(f, 0, &output, NULL);
    }
    for (uint64_t missing = 3000000; missing; missing -= 1000000) {
        acknowledge_loading(f, missing);
        pass_ms(f, limit_ms - 1, missing);
        assert_int_equal(failures(f, 5, "timeout", ""), 0);
    }
    tick_to(f, f->clock.now_ns / ms + 1);
    assert_int_equal(failures(f, 5, "timeout", "stages wait for 1 MB of their weights"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(run_that_is_not_answered_fails_what_waits_for_it_and_names_the_stage),
        CLAIM(batch_that_does_not_come_back_fails_its_sequence),
        CLAIM(stage_whose_outputs_are_all_out_runs_no_large_batch_until_one_is_back),
        CLAIM(next_stage_that_takes_nothing_fails_what_waits_for_it),
        CLAIM(batch_waits_for_weights_as_long_as_some_come),
        CLAIM(weights_that_cannot_be_read_break_the_stage_before_a_batch_finds_out),
        CLAIM(batch_that_is_away_is_waited_for_while_weights_come_to_later_stages),
    };
    return cmocka_run_group_tests_name("core_waits", tests, NULL, NULL);
}
