/* Sequences through one core: slices, tokens, ends. */
#include "tests/unit/agent/core_fixture.h"

/* Row i of the `tokens` message. */
static const struct message_said *token_said(const struct core_fixture *f, size_t i)
{
    const struct message *m = said(f, MESSAGE_TOKENS);
    assert_true(m && i < m->u.tokens.said.count);
    return (const struct message_said *)m->u.tokens.said.items + i;
}

static void prompt_flows_through_the_first_stage_slice_after_slice(void **state)
{
    struct core_fixture *f = *state;
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
    struct frame_token token = {5, 33, FRAME_TOKEN_NEXT, 0};
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
        struct core_fixture *f = *state;
        int input;
        join(f);
        make_ready(f, 1, 1, 2);
        connect_stage(f, 1, 1, 2);
        begin(f, 1, 5, cases[i].max_tokens, false);
        for (uint32_t k = 0; k < 3 && cases[i].finish[k]; k++) {
            struct batch_run run = {5, k ? 5 + k : 0, k ? 1 : 6, 1, 0, false, 0, 0, 0, 0};
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
            assert_int_equal(post->u.post.tokens[0].kind,
                             cases[i].finish[k][0] ? FRAME_TOKEN_LAST : FRAME_TOKEN_NEXT);
        }
        teardown(state);
        setup(state);
    }
}

/* A run of sequence 5 that comes in and computes for so long, with another one beside it or not. */
static const struct message *slice_ran(struct core_fixture *f, uint32_t number, uint32_t first,
                                       uint32_t n, uint64_t took_ms, bool beside)
{
    static const uint32_t picked[] = {7, 8};
    struct batch_run runs[] = {{5, first, n, first + n == 6, 0, false, 0, 0, 0, 0},
                               {6, 0, 1, 0, 0, false, 0, 0, 0, 0}};
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    int input;
    frame(f, 1, SESSION + 1, 1, number, runs, beside ? 2 : 1, &input);
    assert_true(take_run(f));
    ev.u.batch_done.slot = f->run.u.run.slot;
    ev.u.batch_done.ticket = f->run.u.run.ticket;
    ev.u.batch_done.start_ns = f->clock.now_ns;
    ev.u.batch_done.end_ns = f->clock.now_ns += took_ms * ms;
    ev.u.batch_done.picked = picked;
    ack(f);
    feed(f, &ev);
    return said(f, MESSAGE_PREFILL);
}

static void a_prompt_that_computes_for_long_is_told_in_part_before_it_is_through(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    make_ready(f, 1, 1, 2);
    connect_stage(f, 1, 1, 2);
    for (uint64_t id = 5; id < 7; id++) {
        struct message open = {.type = MESSAGE_SEQUENCE_OPEN};
        open.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                              .generation = 1,
                                                              .sequence = id,
                                                              .stage = 1,
                                                              .prompt_tokens = 6,
                                                              .max_tokens = 3,
                                                              .kv_tokens = 9};
        tell(f, &open);
        opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), 0);
    }
    assert_null(slice_ran(f, 0, 0, 1, 4900, false));
    const struct message *part = slice_ran(f, 1, 1, 1, 300, true); /* half of it is its own */
    assert_true(part && part->u.prefill.part && part->u.prefill.sequence == 5);
    const struct message_prefill_slice *s = part->u.prefill.slices.items;
    assert_int_equal(part->u.prefill.slices.count, 2);
    assert_true(s[1].first_position == 1 && s[1].runs == 2 &&
                s[1].end_ns - s[1].start_ns == 300 * ms);
    assert_null(slice_ran(f, 2, 2, 1, 4900, false)); /* not before it has taken twice as long */
    part = slice_ran(f, 3, 3, 1, 300, false);
    assert_true(part && part->u.prefill.part && part->u.prefill.slices.count == 4);
    const struct message *whole = slice_ran(f, 4, 4, 2, 100, false);
    assert_true(whole && !whole->u.prefill.part && whole->u.prefill.slices.count == 5);
}

static void sequences_of_a_batch_are_told_in_one_message(void **state)
{
    static const uint32_t picked[] = {7, 49, 8};
    struct core_fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 1, 1, 2);
    connect_stage(f, 1, 1, 2);
    struct batch_run runs[3];
    for (uint64_t i = 0; i < 3; i++) {
        begin(f, 1, 5 + i, i == 2 ? 1 : 10, false);
        runs[i] = (struct batch_run){5 + i, 0, 5, 1, 0, false, 0, 0, 0, 0};
    }
    frame(f, 1, SESSION + 1, 1, 0, runs, 3, &input);
    assert_true(take_run(f));
    done(f, 0, NULL, picked);
    size_t messages = 0;
    for (size_t i = 0; i < f->actions.count; i++)
        messages += f->actions.items[i].kind == AGENT_DO_SEND &&
                    f->actions.items[i].u.message.type == MESSAGE_TOKENS;
    assert_int_equal(messages, 1);
    assert_int_equal(said(f, MESSAGE_TOKENS)->u.tokens.made_ns, f->clock.now_ns);
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

/* As many as a batch may have: a frame holds no more rows, whatever else might be guessed. */
static void guesses_of_many_sequences_fit_into_a_frame(void **state)
{
    enum { MANY = 1100 };
    static const uint32_t text[] = {1, 2, 3, 1, 2, 3};
    static struct batch_run runs[MANY];
    static uint32_t picked[MANY];
    struct core_fixture *f = *state;
    join(f);
    struct message m = prepare_of(1, 1, 2);
    m.u.stage_prepare.max_sequences = MANY;
    m.u.stage_prepare.max_batch_tokens = 6 * MANY;
    m.u.stage_prepare.kv_tokens = 32 * MANY;
    uint64_t slot = made_ready(f, &m);
    connect_stage(f, 1, 1, 2);
    for (uint64_t i = 0; i < MANY; i++) {
        m = (struct message){.type = MESSAGE_SEQUENCE_OPEN};
        m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                           .generation = 1,
                                                           .sequence = 1 + i,
                                                           .stage = 1,
                                                           .prompt = {text, 6},
                                                           .max_tokens = 20,
                                                           .kv_tokens = 26,
                                                           .speculate = SPECULATE_LOOKUP};
        tell(f, &m);
        opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), 0);
        runs[i] = (struct batch_run){.sequence = 1 + i, .n_tokens = 6, .n_logits = 1};
        picked[i] = 1;
    }
    frame(f, 1, SESSION + 1, 1, 1, runs, MANY, f);
    f->run = *did(f, AGENT_DO_RUN, 0);
    assert_int_equal(f->run.u.run.slot, slot);
    done(f, 0, NULL, picked);
    const struct agent_action *post = did(f, AGENT_DO_POST, 0);
    assert_int_equal(said(f, MESSAGE_TOKENS)->u.tokens.said.count, MANY);
    assert_in_range(post->u.post.header.n_runs, MANY + 1, FRAME_MAX_RUNS);
}

static void one_stage_feeds_itself(void **state)
{
    struct core_fixture *f = *state;
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
    struct core_fixture *f = *state;
    int input, output;
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, false);
    begin(f, 1, 6, 10, false);
    struct batch_run runs[2] = {{5, 0, 2, 0, 0, false, 0, 0, 0, 0},
                                {6, 0, 2, 0, 0, false, 0, 0, 0, 0}};
    frame(f, 1, SESSION + 1, 1, 0, runs, 2, &input);
    assert_true(take_run(f));
    struct message m = {.type = MESSAGE_SEQUENCE_CLOSE};
    m.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 5, 1, 0};
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

static void closing_sequence_zero_closes_all_of_the_stage(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, false);
    begin(f, 1, 6, 10, false);
    struct message m = {.type = MESSAGE_SEQUENCE_CLOSE};
    m.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 0, 2, 0};
    tell(f, &m); /* of a stage that is not here */
    assert_int_equal(agent_core_view(f->core).n_sequences, 2);
    m.u.sequence_close.stage = 1;
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.sequence, 5);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 1)->u.sequence_close.sequence, 6);
    assert_int_equal(agent_core_view(f->core).n_sequences, 0);
    begin(f, 1, 7, 10, false); /* the next one is taken as ever */
    assert_int_equal(agent_core_view(f->core).n_sequences, 1);
}

static void a_sequence_that_is_kept_is_closed_once_more(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, false);
    begin(f, 1, 6, 10, false);
    struct message m = {.type = MESSAGE_SEQUENCE_CLOSE};
    m.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 5, 1, 40};
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.keep, 40);
    assert_int_equal(agent_core_view(f->core).n_sequences, 1);
    m.u.sequence_close.keep = 30;
    tell(f, &m); /* shorter */
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.keep, 30);
    m.u.sequence_close.keep = 0;
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.keep, 0);
    tell(f, &m); /* it is gone */
    assert_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    /* A stage that is to close all closes those that it keeps as well. */
    m.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 6, 1, 40};
    tell(f, &m);
    m.u.sequence_close.sequence = 0;
    tell(f, &m);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.sequence, 6);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.keep, 0);
}

static void failed_batch_ends_its_sequences_and_goes_on_empty(void **state)
{
    struct core_fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, false);
    struct batch_run run = {5, 0, 4, 0, 0, false, 0, 0, 0, 0};
    frame(f, 1, SESSION + 1, 1, 9, &run, 1, &input);
    assert_true(take_run(f));
    done(f, HP_ENOMEM, NULL, NULL);
    assert_string_equal(said(f, MESSAGE_SEQUENCE_FAILED)->u.sequence_failed.code, "no_memory");
    assert_non_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    assert_int_equal(did(f, AGENT_DO_POST, 0)->u.post.header.batch, 9);
    assert_null(did(f, AGENT_DO_POST, 0)->u.post.buffer);
}

static void device_that_is_lost_loses_the_stage_before_its_sequences(void **state)
{
    struct core_fixture *f = *state;
    int input;
    join(f);
    make_ready(f, 1, 1, 3);
    connect_stage(f, 1, 1, 3);
    begin(f, 1, 5, 10, false);
    struct batch_run run = {5, 0, 4, 0, 0, false, 0, 0, 0, 0};
    frame(f, 1, SESSION + 1, 1, 9, &run, 1, &input);
    assert_true(take_run(f));
    struct err lost = {.code = HP_EDEVICE, .text = "device cuda:0: gone"};
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = f->run.u.run.slot;
    ev.u.batch_done.ticket = f->run.u.run.ticket;
    ev.u.batch_done.status = HP_EDEVICE;
    ev.u.batch_done.error = &lost;
    feed(f, &ev);
    const struct message *stage = said(f, MESSAGE_STAGE_STATE),
                         *sequence = said(f, MESSAGE_SEQUENCE_FAILED);
    assert_string_equal(stage->u.stage_state.state, "failed");
    assert_string_equal(stage->u.stage_state.code, "device");
    assert_string_equal(stage->u.stage_state.text, lost.text);
    assert_true(!sequence || stage < sequence);
}

static void sequences_that_cannot_live_here_are_refused_with_the_reason(void **state)
{
    struct core_fixture *f = *state;
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

static void all_logits_are_told_and_nothing_is_sampled(void **state)
{
    struct core_fixture *f = *state;
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
        struct batch_run run = {5, at, 3, 3, 0, false, 0, 0, 0, 0};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(prompt_flows_through_the_first_stage_slice_after_slice),
        CLAIM(last_stage_tells_tokens_to_both_ends_and_stops_where_it_must),
        CLAIM(a_prompt_that_computes_for_long_is_told_in_part_before_it_is_through),
        CLAIM(sequences_of_a_batch_are_told_in_one_message),
        CLAIM(guesses_of_many_sequences_fit_into_a_frame),
        CLAIM(one_stage_feeds_itself),
        CLAIM(closing_frees_a_sequence_before_the_next_batch),
        CLAIM(closing_sequence_zero_closes_all_of_the_stage),
        CLAIM(a_sequence_that_is_kept_is_closed_once_more),
        CLAIM(failed_batch_ends_its_sequences_and_goes_on_empty),
        CLAIM(device_that_is_lost_loses_the_stage_before_its_sequences),
        CLAIM(sequences_that_cannot_live_here_are_refused_with_the_reason),
        CLAIM(all_logits_are_told_and_nothing_is_sampled),
    };
    return cmocka_run_group_tests_name("core_sequences", tests, NULL, NULL);
}
