/* What runs on a drained agent and goes on elsewhere, message by message. */
#include "coordinator/model_slots.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/successors.h"
#include "tests/unit/coordinator/stream_fixture.h"

static const uint32_t kv_before[][MODEL_KV_GROUPS] = {{0}, {0}, {1}, {1}, {2}, {2}, {2}};

static int agent_at(const struct deployment *d, int stage)
{
    return d->stages[stage].agent->name[1] - '0';
}

/* The one that speaks. */
static int agent_of(const struct deployment *d)
{
    return agent_at(d, d->n_stages - 1);
}

static void stages_ready(struct fixture *f, const struct deployment *d)
{
    struct message m = {.type = MESSAGE_STAGE_STATE};
    for (int i = 0; i < d->n_stages; i++) {
        m.u.stage_state = (struct message_stage_state){.deployment = d->id,
                                                       .generation = d->generation,
                                                       .stage = (uint64_t)i,
                                                       .state = "ready",
                                                       .code = "",
                                                       .text = ""};
        fixture_say(f, 10 + (uint64_t)agent_at(d, i), fixture_key(agent_at(d, i)), &m);
    }
}

/* The last stage of a deployment says a token. */
static void token(struct fixture *f, const struct message_sequence_open *to, int agent,
                  uint64_t first, uint32_t id, const char *finish)
{
    struct message m = {.type = MESSAGE_TOKENS};
    struct message_said said = {to->sequence, first, {&id, 1}, finish, 0, {0}};
    struct buffer bytes = {0};
    m.u.tokens = (struct message_tokens){
        .deployment = to->deployment, .generation = to->generation, .said = {&said, 1}};
    message_encode(&m, &bytes);
    coord_message(f->core, 10 + (uint64_t)agent, fixture_key(agent), bytes.data, bytes.size);
    buffer_free(&bytes);
    settle(f);
}

static struct message_sequence_open opened(const struct fixture *f, int agent)
{
    const struct message *m = fixture_last(f, 10 + (uint64_t)agent, MESSAGE_SEQUENCE_OPEN);
    assert_non_null(m);
    return m->u.sequence_open;
}

/* A request that has two tokens and is on its way from one agent to the other. */
static void moving(struct fixture *f, struct request_stream *s, int *before, int *after)
{
    char name[40];
    fixture_open(f);
    for (int i = 0; i < 2; i++)
        fixture_agent(f, i, "k", 1e9);
    ask_deploy(f, "{\"max_context\": 128}");
    struct deployment *d = deployment_find(f->core, "d");
    d->model->facts.kv_before = kv_before;
    stages_ready(f, d);
    assert_string_equal(state_of(f), "serving");
    *before = agent_of(d);
    d->draft_counts.steps = 7;
    d->spill_counts.hits = 5;
    d->answer_tokens = 1; /* room for more is taken as tokens come */
    d->ran_s = 2;
    d->targets.read_s = 3;
    open_stream(f, s, 20, 100);
    struct message_sequence_open own = opened(f, *before);
    token(f, &own, *before, 0, 11, "");
    token(f, &own, *before, 1, 12, "");
    snprintf(name, sizeof name, "{\"name\": \"a%d\"}", *before);
    assert_string_equal(fixture_ask(f, "node.drain", name, NULL)->code, "ok");
    fixture_pass_ms(f, COORD_TICK_MS);
    struct deployment *next = successor_of(f->core, d);
    assert_non_null(next);
    *after = agent_of(next);
    assert_int_not_equal(*after, *before);
    stages_ready(f, next);
    fixture_pass_ms(f, COORD_TICK_MS);
    assert_ptr_equal(deployment_find(f->core, "d"), next);
    assert_true(next->ran_s == 2 && next->targets.read_s > 2);
    assert_int_equal(next->spill_counts.hits, 5);
    struct message_sequence_open to = opened(f, *after);
    assert_int_equal(to.length, 21);
    assert_int_equal(to.sampled, 2);
    token(f, &own, *before, 2, 13, ""); /* it goes on meanwhile */
}

TEST(what_is_said_again_alike_is_told_once)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    struct message_sequence_open to = opened(&f, after);
    fixture_pass_ms(&f, COORD_TICK_MS);
    token(&f, &to, after, 2, 13, "");
    const struct sequence *own = deployment_find(f.core, "d")->active;
    assert_int_equal(own->sign_ns, coord_now(f.core)); /* nothing new, and yet a sign of life */
    token(&f, &to, after, 3, 15, "stop");
    assert_int_equal(s.finished, 1);
    assert_memory_equal(s.ids, ((uint32_t[]){11, 12, 13}), s.n * sizeof *s.ids);
    assert_int_equal(s.n, 3);
    fixture_close(&f);
}

/* Devices may round differently: a text goes on after what its client has. */
TEST(what_is_said_again_otherwise_is_read_again_as_it_was_told)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    struct message_sequence_open to = opened(&f, after);
    token(&f, &to, after, 2, 14, "");
    struct message_sequence_open again = opened(&f, after);
    assert_true(again.sequence > to.sequence);
    assert_int_equal(again.length, 0);
    assert_int_equal(again.sampled, 3);
    assert_int_equal(again.prompt.count, 23);
    assert_int_equal(again.prompt.items[22], 13);
    token(&f, &to, after, 3, 16, ""); /* was on its way */
    token(&f, &again, after, 3, 15, "");
    token(&f, &again, after, 4, 2, "stop");
    assert_int_equal(s.finished, 1);
    assert_int_equal(s.n, 4);
    assert_memory_equal(s.ids, ((uint32_t[]){11, 12, 13, 15}), 4 * sizeof *s.ids);
    fixture_close(&f);
}

/* It says what is known for a while, and needs room for that, too. */
TEST(what_moved_has_room_for_all_that_was_told_meanwhile)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    struct message_sequence_open own = opened(&f, before), to = opened(&f, after);
    assert_in_range(to.reserved, 22, 69);
    for (uint64_t i = 3; i < 50; i++)
        token(&f, &own, before, i, 13, "");
    token(&f, &to, after, 2, 13, "");
    const struct message *m = fixture_last(&f, 10 + (uint64_t)after, MESSAGE_SEQUENCE_GROW);
    assert_non_null(m);
    assert_int_equal(m->u.sequence_grow.deployment, to.deployment);
    assert_int_equal(m->u.sequence_grow.sequence, to.sequence);
    assert_in_range(m->u.sequence_grow.reserved, 71, 120);
    fixture_close(&f);
}

TEST(what_cannot_move_begins_anew_there_at_the_end_of_its_time)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    struct message_sequence_open to = opened(&f, after);
    struct message m = {.type = MESSAGE_SEQUENCE_FAILED};
    m.u.sequence_failed = (struct message_sequence_failed){.deployment = to.deployment,
                                                           .generation = to.generation,
                                                           .sequence = to.sequence,
                                                           .code = "busy",
                                                           .text = "no room"};
    fixture_say(&f, 10 + (uint64_t)after, fixture_key(after), &m);
    fixture_pass_ms(&f, COORD_TICK_MS);
    assert_int_equal(opened(&f, after).sequence, to.sequence); /* one try */
    deployment_find(f.core, "d/last")->until_ns = coord_now(f.core);
    fixture_pass_ms(&f, 2 * COORD_TICK_MS);
    struct message_sequence_open again = opened(&f, after);
    assert_true(again.sequence > to.sequence);
    assert_int_equal(again.length, 0);
    assert_int_equal(again.sampled, 3);
    token(&f, &again, after, 3, 15, "length");
    assert_int_equal(s.failed, 0);
    assert_int_equal(s.finished, 1);
    assert_memory_equal(s.ids, ((uint32_t[]){11, 12, 13, 15}), 4 * sizeof *s.ids);
    fixture_close(&f);
}

/* Nobody is let in where it ran: it goes on with the successor. */
TEST(who_gives_way_where_it_does_not_stay_waits_for_the_successor)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    struct message_sequence_open own = opened(&f, before), to = opened(&f, after);
    struct message m = {.type = MESSAGE_SEQUENCE_FAILED};
    m.u.sequence_failed = (struct message_sequence_failed){to.deployment, to.generation,
                                                           to.sequence, "busy", "no room"};
    fixture_say(&f, 10 + (uint64_t)after, fixture_key(after), &m);
    struct deployment *last = deployment_of_id(f.core, own.deployment);
    assert_int_equal(last->n_active, 1);
    sequence_preempt(f.core, last->active);
    assert_int_equal(last->n_waiting, 1);
    fixture_pass_ms(&f, 2 * COORD_TICK_MS);
    struct message_sequence_open again = opened(&f, after);
    assert_true(again.sequence > to.sequence);
    assert_int_equal(again.sampled, 3);
    token(&f, &again, after, 3, 15, "stop");
    assert_int_equal(s.finished, 1);
    assert_int_equal(s.failed, 0);
    fixture_close(&f);
}

/* Its keys and values do not leave, and that is all. */
TEST(what_cannot_be_sent_goes_on_where_it_is)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    struct message_sequence_open own = opened(&f, before);
    struct message m = {.type = MESSAGE_KV_STATE, .id = 1};
    m.u.kv_state = (struct message_kv_state){.deployment = own.deployment,
                                             .generation = own.generation,
                                             .sequence = own.sequence,
                                             .state = "failed",
                                             .code = "link",
                                             .text = "the link broke"};
    fixture_say(&f, 10 + (uint64_t)before, fixture_key(before), &m);
    assert_int_equal(f.core->counts.failed, 0);
    assert_int_equal(deployment_find(f.core, "d")->n_active, 0);
    assert_int_equal(deployment_find(f.core, "d")->handoffs.failed, 1);
    token(&f, &own, before, 3, 15, "stop");
    assert_int_equal(s.finished, 1);
    fixture_close(&f);
}

/* The end of its time comes in the middle of its move. */
TEST(what_is_on_its_way_at_the_end_of_its_time_begins_anew)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    struct message_sequence_open to = opened(&f, after);
    deployment_find(f.core, "d/last")->until_ns = coord_now(f.core);
    fixture_pass_ms(&f, 2 * COORD_TICK_MS);
    assert_int_equal(f.core->counts.failed, 0);
    struct message_sequence_open again = opened(&f, after);
    assert_true(again.sequence > to.sequence);
    assert_int_equal(again.sampled, 3);
    token(&f, &again, after, 3, 15, "stop");
    assert_int_equal(s.finished, 1);
    fixture_close(&f);
}

/* Its successor is undeployed: nothing that waits is forgotten with it. */
TEST(who_gives_way_while_the_successor_ends_hears_of_it)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    struct message_sequence_open own = opened(&f, before);
    fixture_ask(&f, "undeploy", "{\"name\": \"d\"}", NULL);
    struct deployment *last = deployment_of_id(f.core, own.deployment);
    assert_non_null(last);
    if (last->active)
        sequence_preempt(f.core, last->active);
    fixture_pass_ms(&f, 3 * DEPLOYMENT_STOP_MS);
    assert_int_equal(f.core->counts.failed, 1);
    assert_int_equal(f.core->n_deployments, 0);
    fixture_close(&f);
}

TEST(what_was_counted_goes_over_with_the_name)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    assert_int_equal(deployment_find(f.core, "d")->draft_counts.steps, 7);
    fixture_close(&f);
}

TEST(a_name_with_no_room_for_an_ending_has_no_successor)
{
    struct fixture f;
    struct request_stream s;
    int before, after;
    moving(&f, &s, &before, &after);
    struct deployment *d = deployment_find(f.core, "d");
    memset(d->name, 'n', DEPLOYMENT_NAME - 5);
    d->name[DEPLOYMENT_NAME - 5] = '\0';
    assert_null(successor_of(f.core, d));
    assert_false(successor_begin(f.core, d, NULL));
    assert_false(d->succession_tried);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_again_alike_is_told_once),
        cmocka_unit_test(what_is_said_again_otherwise_is_read_again_as_it_was_told),
        cmocka_unit_test(what_moved_has_room_for_all_that_was_told_meanwhile),
        cmocka_unit_test(what_cannot_move_begins_anew_there_at_the_end_of_its_time),
        cmocka_unit_test(who_gives_way_where_it_does_not_stay_waits_for_the_successor),
        cmocka_unit_test(what_cannot_be_sent_goes_on_where_it_is),
        cmocka_unit_test(what_is_on_its_way_at_the_end_of_its_time_begins_anew),
        cmocka_unit_test(who_gives_way_while_the_successor_ends_hears_of_it),
        cmocka_unit_test(what_was_counted_goes_over_with_the_name),
        cmocka_unit_test(a_name_with_no_room_for_an_ending_has_no_successor),
    };
    return cmocka_run_group_tests_name("successors", tests, NULL, NULL);
}
