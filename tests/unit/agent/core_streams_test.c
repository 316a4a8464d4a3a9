/* What an agent tells the next coordinator of sequences that outlive theirs. */
#include "tests/unit/agent/core_fixture.h"

enum { STREAM = 4711 };

static void stream_begin(struct core_fixture *f, uint64_t id, uint64_t stream, uint64_t max_tokens)
{
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = 1,
                                                       .sequence = id,
                                                       .stage = f->stage,
                                                       .prompt = {prompt, 6},
                                                       .slices = {slices, 2},
                                                       .max_tokens = max_tokens,
                                                       .kv_tokens = 6 + max_tokens,
                                                       .end_ids = {end_ids, 1},
                                                       .sampled = 2, /* 5, 6 */
                                                       .stream = stream};
    tell(f, &m);
    opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), 0);
}

/* One whose tokens are told with scores, from its first token on. */
static void scored_stream_begin(struct core_fixture *f, uint64_t id, uint64_t stream)
{
    struct message m = {.type = MESSAGE_SEQUENCE_OPEN};
    m.u.sequence_open = (struct message_sequence_open){.deployment = DEPLOYMENT,
                                                       .generation = 1,
                                                       .sequence = id,
                                                       .stage = f->stage,
                                                       .prompt = {prompt, 6},
                                                       .slices = {slices, 2},
                                                       .max_tokens = 20,
                                                       .kv_tokens = 26,
                                                       .end_ids = {end_ids, 1},
                                                       .said_scores = 2,
                                                       .stream = stream};
    tell(f, &m);
    opened(f, did(f, AGENT_DO_SEQUENCE_OPEN, 0), 0);
}

/* The only stage of its deployment says these tokens, one a batch. */
static void say(struct core_fixture *f, const uint32_t *ids, size_t n)
{
    for (size_t said = 0; said < n;) {
        assert_true(take_run(f));
        bool samples = f->runs[f->run.u.run.batch->n_runs - 1].sample;
        done(f, 0, NULL, &ids[said]);
        said += samples;
    }
}

/* The same with a token's scores; the only stage reads the prompt first. */
static void say_scored(struct core_fixture *f, uint32_t id, const struct score *scores)
{
    bool samples = false;
    while (!samples) {
        assert_true(take_run(f));
        samples = f->runs[f->run.u.run.batch->n_runs - 1].sample;
        struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
        ev.u.batch_done.slot = f->run.u.run.slot;
        ev.u.batch_done.ticket = f->run.u.run.ticket;
        ev.u.batch_done.seconds = 0.25;
        ev.u.batch_done.picked = &id;
        ev.u.batch_done.scores = scores;
        feed(f, &ev);
    }
}

static void coordinator_starts(struct core_fixture *f, uint64_t boot)
{
    struct message w = {.type = MESSAGE_WELCOME};
    w.u.welcome = (struct message_welcome){
        .name = "node-1", .heartbeat_ms = 500, .coordinator_boot = boot, .orphan_ms = 3000};
    tell(f, &w);
}

static const struct message_stream *stream_told(const struct core_fixture *f, size_t n, size_t of)
{
    const struct message *m = said(f, MESSAGE_STREAMS);
    assert_non_null(m);
    assert_true(m->u.streams.whole);
    assert_int_equal(m->u.streams.streams.count, of);
    return of ? (const struct message_stream *)m->u.streams.streams.items + n : NULL;
}

static void keep_connected(struct core_fixture *f, bool keep)
{
    struct message m = {.type = MESSAGE_STAGE_CONNECT};
    m.u.stage_connect = (struct message_stage_connect){
        .deployment = DEPLOYMENT, .generation = 1, .n_stages = 1, .keep = keep};
    tell(f, &m);
}

static void a_new_coordinator_hears_all_tokens_of_a_stream_and_finds_it_open(void **state)
{
    struct core_fixture *f = *state;
    static const uint32_t ids[] = {11, 12, 13};
    join(f);
    make_ready(f, 1, 0, 1);
    keep_connected(f, false);
    stream_begin(f, 5, STREAM, 20);
    say(f, ids, 3);
    coordinator_starts(f, 4);
    const struct message_stream *t = stream_told(f, 0, 1);
    assert_int_equal(t->stream, STREAM);
    assert_int_equal(t->sequence, 5);
    assert_true(t->open && t->sampled == 5 && t->ids.count == 5 && !t->finish[0]);
    assert_int_equal(t->unheard, 3); /* since the last acknowledged heartbeat */
    assert_memory_equal(t->ids.items, ((const uint32_t[]){5, 6, 11, 12, 13}), 5 * sizeof *ids);
    assert_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    keep_connected(f, true);
    assert_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    assert_null(did(f, AGENT_DO_CONNECT, 0));
    keep_connected(f, false);
    assert_non_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
}

/* What is told of tokens that were said, where a coordinator has given a sign of life since or not.
 */
static uint64_t unheard_after(struct core_fixture *f, bool sign, uint64_t boot)
{
    static const uint32_t ids[] = {11, 12};
    stream_begin(f, boot, STREAM + boot, 20);
    say(f, ids, 2);
    if (sign)
        tell(f, &(struct message){.type = MESSAGE_HEARTBEAT_ACK});
    coordinator_starts(f, boot);
    uint64_t unheard = stream_told(f, 0, 1)->unheard;
    coordinator_starts(f, boot + 1); /* what was told to the one before may be lost with it */
    assert_int_equal(stream_told(f, 0, 1)->unheard, unheard);
    tell(f, &(struct message){.type = MESSAGE_HEARTBEAT_ACK});
    coordinator_starts(f, boot + 2);
    assert_int_equal(stream_told(f, 0, 1)->unheard, 0);
    keep_connected(f, false);
    return unheard;
}

static void
tokens_that_a_coordinator_may_not_have_heard_are_told_until_one_gives_a_sign(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 1);
    keep_connected(f, false);
    assert_int_equal(unheard_after(f, false, 4), 2);
}

static void tokens_that_a_coordinator_has_heard_are_none_of_them(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 1);
    keep_connected(f, false);
    assert_int_equal(unheard_after(f, true, 4), 0);
}

static void what_is_left_of_a_stream_that_ended_is_told_for_a_while(void **state)
{
    struct core_fixture *f = *state;
    static const uint32_t ids[] = {11, 49};
    join(f);
    coordinator_starts(f, 4);
    make_ready(f, 1, 0, 1);
    keep_connected(f, false);
    stream_begin(f, 5, STREAM, 20);
    say(f, ids, 2);
    struct message close = {.type = MESSAGE_SEQUENCE_CLOSE};
    close.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 5, 0, 0};
    tell(f, &close);
    coordinator_starts(f, 5);
    const struct message_stream *t = stream_told(f, 0, 1);
    assert_true(!t->open && t->ids.count == 4 && t->ids.items[3] == 49);
    assert_int_equal(t->unheard, 2);
    assert_string_equal(t->finish, "stop");
    f->clock.now_ns += 3001 * ms;
    coordinator_starts(f, 6);
    stream_told(f, 0, 0);
}

static void sequences_without_a_stream_end_with_their_coordinator(void **state)
{
    struct core_fixture *f = *state;
    join(f);
    make_ready(f, 1, 0, 1);
    stream_begin(f, 5, 0, 20);
    stream_begin(f, 6, STREAM, 20);
    coordinator_starts(f, 3); /* the same one: it has lost nothing */
    stream_told(f, 0, 1);
    assert_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 0));
    coordinator_starts(f, 4);
    assert_int_equal(did(f, AGENT_DO_SEQUENCE_CLOSE, 0)->u.sequence_close.sequence, 5);
    assert_null(did(f, AGENT_DO_SEQUENCE_CLOSE, 1));
    assert_int_equal(stream_told(f, 0, 1)->sequence, 6);
}

static void the_remains_of_many_streams_are_bounded_and_the_latest_stay(void **state)
{
    struct core_fixture *f = *state;
    enum { MANY = AGENT_MAX_REMAINS + 20 };
    join(f);
    make_ready(f, 1, 0, 1);
    for (uint64_t i = 0; i < MANY; i++) {
        stream_begin(f, 5 + i, STREAM + i, 20);
        struct message close = {.type = MESSAGE_SEQUENCE_CLOSE};
        close.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 5 + i, 0, 0};
        tell(f, &close);
        if (take_run(f))
            done(f, 0, NULL, (const uint32_t[]){1});
    }
    coordinator_starts(f, 4);
    const struct message *first = said(f, MESSAGE_STREAMS);
    assert_int_equal(((const struct message_stream *)first->u.streams.streams.items)->stream,
                     STREAM + 20);
    size_t told = 0;
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == AGENT_DO_SEND &&
            f->actions.items[i].u.message.type == MESSAGE_STREAMS)
            told += f->actions.items[i].u.message.u.streams.streams.count;
    assert_int_equal(told, AGENT_MAX_REMAINS);
}

static void a_new_coordinator_hears_what_each_token_was_told_with(void **state)
{
    struct core_fixture *f = *state;
    static const struct score said[] = {{1, -0.5f}, {11, -0.5f}, {2, -1.5f}, {3, -0.25f}};
    join(f);
    make_ready(f, 1, 0, 1);
    keep_connected(f, false);
    scored_stream_begin(f, 5, STREAM);
    say_scored(f, 11, said);
    say_scored(f, 12, said + 2);
    coordinator_starts(f, 4);
    const struct message_stream *t = stream_told(f, 0, 1);
    assert_true(t->open && t->ids.count == 2);
    assert_int_equal(t->scores.size, sizeof said);
    assert_memory_equal(t->scores.data, said, sizeof said);
    struct message close = {.type = MESSAGE_SEQUENCE_CLOSE};
    close.u.sequence_close = (struct message_sequence_close){DEPLOYMENT, 1, 5, f->stage, 0};
    tell(f, &close);
    coordinator_starts(f, 6);
    t = stream_told(f, 0, 1);
    assert_true(!t->open && t->ids.count == 2);
    assert_int_equal(t->scores.size, sizeof said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLAIM(a_new_coordinator_hears_all_tokens_of_a_stream_and_finds_it_open),
        CLAIM(tokens_that_a_coordinator_may_not_have_heard_are_told_until_one_gives_a_sign),
        CLAIM(tokens_that_a_coordinator_has_heard_are_none_of_them),
        CLAIM(what_is_left_of_a_stream_that_ended_is_told_for_a_while),
        CLAIM(a_new_coordinator_hears_what_each_token_was_told_with),
        CLAIM(sequences_without_a_stream_end_with_their_coordinator),
        CLAIM(the_remains_of_many_streams_are_bounded_and_the_latest_stay),
    };
    return cmocka_run_group_tests_name("core_streams", tests, NULL, NULL);
}
