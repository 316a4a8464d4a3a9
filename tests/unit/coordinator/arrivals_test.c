/* Weights that come while stages serve, as the coordinator hears of them. */
#include "coordinator/arrivals.h"
#include "coordinator/describe.h"
#include "coordinator/sequence.h"
#include "coordinator/targets.h"
#include "tests/unit/coordinator/stream_fixture.h"

enum { MB = 1000000 };

/* A heartbeat of an agent whose stage misses so many bytes of its weights. */
static void beat_missing(struct fixture *f, int agent, uint64_t stage, uint64_t missing_bytes)
{
    struct message_held_stage held = {.deployment = 1,
                                      .generation = 1,
                                      .stage = stage,
                                      .state = "ready",
                                      .missing_bytes = missing_bytes};
    struct message m = {.type = MESSAGE_HEARTBEAT};
    m.u.heartbeat.held = (struct pack_list){&held, 1};
    fixture_say(f, 10 + (uint64_t)agent, fixture_key(agent), &m);
    settle(f);
}

TEST(a_request_waits_as_long_as_weights_of_its_stages_come)
{
    struct fixture f;
    struct request_stream s;
    struct deployment *d = serving(&f);
    open_stream(&f, &s, 10, 20);
    uint64_t missing = 20 * MB;
    beat_missing(&f, 0, 1, missing);
    for (int i = 0; i < 15; i++) { /* longer than a request may wait for anything else */
        nothing_for_ms(&f, 44000);
        beat_missing(&f, 0, 1, missing -= MB);
    }
    assert_int_equal(s.failed, 0);
    assert_int_equal(d->losses.sequences, 0);
    nothing_for_ms(&f, 44000);
    beat_missing(&f, 0, 1, missing); /* nothing more came */
    assert_int_equal(d->losses.sequences, 0);
    nothing_for_ms(&f, 2000);
    assert_int_equal(d->losses.sequences, 1);
    fixture_close(&f);
}

TEST(nothing_is_believed_to_lack_more_than_its_device_holds)
{
    struct fixture f;
    struct request_stream s;
    struct deployment *d = serving(&f);
    uint64_t most = (uint64_t)member_device(f.core->members[0], 0)->memory_bytes;
    open_stream(&f, &s, 10, 20);
    beat_missing(&f, 0, 1, UINT64_MAX);
    beat_missing(&f, 1, 0, UINT64_MAX / 2);
    assert_int_equal(arrivals_missing_bytes(d), 2 * most);
    nothing_for_ms(&f, 44000);
    beat_missing(&f, 0, 1, UINT64_MAX - 1); /* less, and as impossible */
    assert_int_equal(d->losses.sequences, 0);
    nothing_for_ms(&f, 2000);
    assert_int_equal(d->losses.sequences, 1);
    fixture_close(&f);
}

TEST(nobody_waits_on_for_a_number_that_rises)
{
    struct fixture f;
    struct request_stream s;
    struct deployment *d = serving(&f);
    open_stream(&f, &s, 10, 20);
    beat_missing(&f, 0, 1, 5 * MB);
    nothing_for_ms(&f, 44000);
    beat_missing(&f, 0, 1, 6 * MB);
    assert_int_equal(d->losses.sequences, 0);
    nothing_for_ms(&f, 2000);
    assert_int_equal(d->losses.sequences, 1);
    fixture_close(&f);
}

/* What the last answer to a heartbeat of an agent says. */
static const struct message_heartbeat_ack *last_ack(struct fixture *f, int agent)
{
    return &fixture_last(f, 10 + (uint64_t)agent, MESSAGE_HEARTBEAT_ACK)->u.heartbeat_ack;
}

TEST(agents_hear_what_the_other_stages_of_their_deployments_miss)
{
    struct fixture f;
    serving(&f);
    beat_missing(&f, 0, 1, 5 * MB);
    beat_missing(&f, 1, 0, 2 * MB);
    beat_missing(&f, 1, 0, 2 * MB);
    assert_int_equal(last_ack(&f, 1)->loading.count, 1);
    const struct message_loading *row = last_ack(&f, 1)->loading.items;
    assert_int_equal(row->deployment, 1);
    assert_int_equal(row->generation, 1);
    assert_int_equal(row->missing_bytes, 7 * MB);
    fixture_beat(&f, 12, fixture_key(2));
    assert_int_equal(last_ack(&f, 2)->loading.count, 0); /* it has no stage */
    beat_missing(&f, 0, 1, 0);
    beat_missing(&f, 1, 0, 0);
    beat_missing(&f, 1, 0, 0);
    assert_int_equal(last_ack(&f, 1)->loading.count, 0);
    fixture_close(&f);
}

TEST(what_is_missing_and_how_long_it_will_take_is_described)
{
    struct fixture f;
    struct deployment *d = serving(&f);
    json_t *said = describe_deployment(d, false);
    assert_null(json_object_get(said, "loading"));
    json_decref(said);
    beat_missing(&f, 0, 1, 5 * MB);
    nothing_for_ms(&f, 1000);
    beat_missing(&f, 0, 1, 4 * MB);
    said = describe_deployment(d, false);
    const json_t *loading = json_object_get(said, "loading"),
                 *stage = json_array_get(json_object_get(said, "stages"), 1);
    assert_int_equal(json_integer_value(json_object_get(loading, "missing_bytes")), 4 * MB);
    assert_true(json_number_value(json_object_get(loading, "left_s")) > 3.99 &&
                json_number_value(json_object_get(loading, "left_s")) < 4.01);
    assert_int_equal(json_integer_value(json_object_get(stage, "missing_bytes")), 4 * MB);
    json_decref(said);
    fixture_close(&f);
}

TEST(a_target_of_the_first_token_counts_the_weights_that_are_missing)
{
    struct fixture f;
    struct request_stream s;
    struct err e = {0};
    static const uint32_t ids[] = {11};
    struct deployment *d = serving(&f);
    d->spec.ttft_s = 2;
    beat_missing(&f, 0, 1, 5 * MB);
    nothing_for_ms(&f, 10000);
    beat_missing(&f, 0, 1, 4 * MB);
    open_stream(&f, &s, 10, 20); /* nothing runs: it may wait */
    assert_int_equal(targets_check(d, "c", 0, 10, &e), HP_EBUSY);
    assert_non_null(strstr(e.text, "its first token would come after 4"));
    for (uint64_t missing = 3 * MB; missing < 4 * MB; missing -= MB) {
        nothing_for_ms(&f, 10000);
        beat_missing(&f, 0, 1, missing);
    }
    assert_int_equal(targets_check(d, "c", 0, 10, &e), 0);
    tokens(&f, 0, 1, d->active->id, 0, ids, 1, "");
    assert_int_equal(s.n, 1);
    assert_true(d->targets.read_s + d->targets.short_s < 1e-9); /* it says nothing of reading */
    assert_int_equal(targets_check(d, "c", 0, 10, &e), 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_waits_as_long_as_weights_of_its_stages_come),
        cmocka_unit_test(nothing_is_believed_to_lack_more_than_its_device_holds),
        cmocka_unit_test(nobody_waits_on_for_a_number_that_rises),
        cmocka_unit_test(agents_hear_what_the_other_stages_of_their_deployments_miss),
        cmocka_unit_test(what_is_missing_and_how_long_it_will_take_is_described),
        cmocka_unit_test(a_target_of_the_first_token_counts_the_weights_that_are_missing),
    };
    return cmocka_run_group_tests_name("arrivals", tests, NULL, NULL);
}
