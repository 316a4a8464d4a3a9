/* What the cluster does when one thing breaks. Whatever it is: no client ever sees a token that an
 * undisturbed run would not have given, streams go on, the deployment serves again, and nobody
 * keeps anything of a sequence that has ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/failures.h"

TEST(streams_of_a_killed_agent_go_on_after_its_return)
{
    for (int victim = 0; victim < 3; victim++) {
        struct sim s;
        sim_open(&s, 10 + (uint64_t)victim, 3);
        deploy(&s, "a0,a1,a2");
        struct sim_client *c = stream(&s, 25 + (uint64_t)victim * 10);
        size_t before = c->n_got;
        sim_agent_kill(&s, victim);
        sim_run_ms(&s, 4000);
        assert_false(sim_serves(&s));
        assert_true(c->open);
        sim_agent_start(&s, victim);
        all_finished(&s, 5000);
        assert_true(c->n_got > before);
        assert_int_equal(sim_described(&s, "losses", "places"), 1);
        assert_int_equal(sim_described(&s, "losses", "recovered"), 1);
        serves_and_is_clean(&s, 5000);
        sim_close(&s);
    }
}

TEST(the_remaining_agents_take_over_where_the_plan_is_free)
{
    struct sim s;
    sim_open(&s, 20, 3);
    deploy(&s, NULL);
    assert_int_equal(
        sim_ask_wait(&s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    const char *used = json_string_value(
        json_object_get(json_array_get(json_object_get(s.answer, "stages"), 0), "agent"));
    int victim = used[1] - '0';
    /* The weights are with somebody else too, so that nobody has to upload them again. */
    char other[8];
    snprintf(other, sizeof other, "a%d", (victim + 1) % 3);
    assert_int_equal(sim_deploy_with(&s, "second", json_pack("{s:s}", "agents", other)), 0);
    sim_agent_kill(&s, victim);
    sim_run_ms(&s, 3000);
    serves_and_is_clean(&s, 2000);
    sim_close(&s);
}

static bool serves_no_more(struct sim *s)
{
    return !sim_serves(s);
}

TEST(a_stopped_agent_is_noticed_within_three_seconds)
{
    struct sim s;
    sim_open(&s, 30, 3);
    deploy(&s, "a0,a1,a2");
    struct sim_client *c = request(&s, 20, 60);
    sim_run_ms(&s, 20);
    sim_agent_stop(&s, 1);
    assert_true(sim_run_until(&s, serves_no_more, 3000));
    sim_agent_continue(&s, 1);
    all_finished(&s, 5000);
    assert_true(c->finished);
    serves_and_is_clean(&s, 5000);
    sim_close(&s);
}

static json_int_t generation_now(struct sim *s)
{
    assert_int_equal(
        sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    return json_integer_value(json_object_get(s->answer, "generation"));
}

TEST(a_stopped_coordinator_takes_nobody_for_dead_and_the_stream_goes_on)
{
    static const uint64_t pauses_ms[] = {500, 1500, 3000, 10000, 50000};
    for (size_t i = 0; i < sizeof pauses_ms / sizeof *pauses_ms; i++) {
        struct sim s;
        sim_open(&s, 31 + i, 3);
        deploy(&s, "a0,a1,a2");
        json_int_t generation = generation_now(&s);
        struct sim_client *c = request(&s, 20, 60);
        sim_run_ms(&s, 30);
        size_t before = c->n_got;
        assert_true(before > 0 && c->open);
        sim_coordinator_stop(&s);
        sim_run_ms(&s, pauses_ms[i]);
        assert_int_equal(c->n_got, before);
        sim_coordinator_continue(&s);
        assert_true(sim_run_until(&s, sim_quiet, 5000));
        if (!c->finished)
            fail_msg("a pause of %llu ms: %s", (unsigned long long)pauses_ms[i], c->why.text);
        sim_run_ms(&s, 3000);
        assert_int_equal(generation_now(&s), generation);
        serves_and_is_clean(&s, 100);
        sim_close(&s);
    }
}

/* Stopped and continued again and again: an agent that dies meanwhile is still found, by what the
 * coordinator has seen of it while it ran. */
TEST(an_agent_that_dies_in_a_pause_is_lost_after_it)
{
    struct sim s;
    sim_open(&s, 39, 3);
    deploy(&s, "a0,a1,a2");
    struct sim_client *c = request(&s, 20, 60);
    sim_run_ms(&s, 20);
    sim_coordinator_stop(&s);
    sim_agent_stop(&s, 1); /* its connection stays */
    sim_run_ms(&s, 8000);
    sim_coordinator_continue(&s);
    /* Its neighbours heard nothing of it, or the coordinator did not. */
    assert_true(sim_run_until(&s, serves_no_more, 3000));
    sim_agent_continue(&s, 1);
    all_finished(&s, 10000);
    assert_true(c->finished && generation_now(&s) > 1);
    serves_and_is_clean(&s, 10000);
    sim_close(&s);
}

TEST(a_slow_disk_holds_up_what_is_stored_and_no_token)
{
    struct sim s;
    sim_open(&s, 38, 3);
    deploy(&s, "a0,a1,a2");
    json_int_t generation = generation_now(&s);
    s.disk_ns = UINT64_C(20000000000);
    uint64_t from = s.clock.now_ns;
    sim_ask(&s, "token.create", json_pack("{s:i}", "ttl_s", 60), NULL);
    uint64_t answered = s.answered;
    for (int i = 0; i < 5; i++) {
        struct sim_client *c = request(&s, 40, 40);
        assert_true(sim_run_until(&s, sim_quiet, 1000));
        assert_true(c->finished);
        assert_int_equal(s.answered, answered);
    }
    sim_run_ms(&s, 25000);
    assert_int_equal(s.answered, answered + 1);
    assert_true(s.clock.now_ns - from > s.disk_ns / 2);
    s.disk_ns = 0;
    assert_int_equal(generation_now(&s), generation);
    serves_and_is_clean(&s, 100);
    sim_close(&s);
}

TEST(a_restarted_coordinator_finds_its_deployments_without_loading_anything)
{
    struct sim s;
    sim_open(&s, 40, 3);
    deploy(&s, "a2,a0,a1");
    request(&s, 100, 60);
    sim_run_ms(&s, 30);
    uint64_t loads = s.loads;
    sim_coordinator_kill(&s);
    sim_run_ms(&s, 700);
    sim_coordinator_start(&s);
    assert_int_equal(coord_view(s.core).boot, 2);
    serves_and_is_clean(&s, 3000);
    assert_int_equal(s.loads, loads);
    sim_close(&s);
}

/* The deployment "toy" is in this state; the number of its first stage's agent. */
static int first_agent_in(struct sim *s, const char *state)
{
    assert_int_equal(
        sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    assert_string_equal(json_string_value(json_object_get(s->answer, "state")), state);
    return json_string_value(json_object_get(
               json_array_get(json_object_get(s->answer, "stages"), 0), "agent"))[1] -
           '0';
}

/* While an agent stands still its stage is planned for another, and the coordinator that knew its
 * streams is gone when it goes on: nothing is prepared on it that would end them. */
TEST(streams_of_a_coordinator_that_died_end_though_their_deployment_does_not_serve)
{
    struct sim s;
    sim_open(&s, 45, 3);
    deploy(&s, NULL);
    int before = first_agent_in(&s, "serving"), after;
    stream(&s, 20);
    sim_agent_stop(&s, before);
    sim_run_ms(&s, 5000);
    after = first_agent_in(&s, "broken"); /* it has no weights */
    assert_int_not_equal(before, after);
    sim_coordinator_kill(&s);
    sim_agent_stop(&s, after);
    sim_agent_continue(&s, before);
    sim_run_ms(&s, 500);
    assert_true(sim_leftovers(&s) > 0);
    sim_coordinator_start(&s);
    sim_run_ms(&s, 2500);
    first_agent_in(&s, "recovering");
    assert_int_equal(sim_leftovers(&s), 0);
    sim_agent_continue(&s, after);
    serves_and_is_clean(&s, 60000);
    sim_close(&s);
}

TEST(a_coordinator_that_is_killed_while_it_prepares_goes_on_after_its_restart)
{
    for (uint64_t k = 0; k < 10; k++) {
        struct sim s;
        sim_open(&s, 50 + k, 3);
        deploy(&s, "a0,a1,a2"); /* the weights are on their agents */
        assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy"), NULL), 0);
        sim_deploy_as(&s, "toy", "a0,a1,a2");
        sim_run_ms(
            &s,
            30 +
                12 *
                    k); /* what is not on the disk by then is forgotten, and was not acknowledged */
        sim_coordinator_kill(&s);
        sim_run_ms(&s, 500);
        sim_coordinator_start(&s);
        serves_and_is_clean(&s, 20000);
        sim_close(&s);
    }
}

TEST(a_deploy_that_comes_before_the_agents_after_a_restart_waits_for_them)
{
    struct sim s;
    sim_open(&s, 47, 3);
    deploy(&s, "a0,a1,a2"); /* the weights are on their agents */
    assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy"), NULL), 0);
    sim_coordinator_kill(&s);
    sim_run_ms(&s, 700);
    sim_coordinator_start(&s);
    assert_int_equal(sim_deploy_with(&s, "toy", json_pack("{s:s}", "agents", "a0,a1,a2")), 0);
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

/* An agent and then the coordinator die under streams and come back. */
static uint64_t trace_of(uint64_t seed)
{
    struct sim s;
    sim_open(&s, seed, 3);
    deploy(&s, "a0,a1,a2");
    request(&s, 40, 60);
    sim_run_ms(&s, 30);
    sim_agent_kill(&s, 1);
    sim_run_ms(&s, 100);
    sim_agent_start(&s, 1);
    sim_run_ms(&s, 700);
    sim_coordinator_kill(&s);
    sim_run_ms(&s, 100);
    sim_coordinator_start(&s);
    serves_and_is_clean(&s, 20000);
    uint64_t trace = s.trace;
    sim_close(&s);
    return trace;
}

TEST(a_seed_replays_to_the_last_byte)
{
    for (uint64_t seed = 56; seed < 60; seed++) {
        uint64_t trace = trace_of(seed);
        assert_int_equal(trace_of(seed), trace);
        assert_int_not_equal(trace_of(seed + 1), trace);
    }
}

TEST(a_broken_connection_ends_streams_and_keeps_weights)
{
    struct sim s;
    sim_open(&s, 60, 3);
    deploy(&s, "a0,a1,a2");
    request(&s, 40, 60);
    sim_run_ms(&s, 20);
    uint64_t loads = s.loads;
    sim_connection_break(&s, 2);
    assert_true(sim_run_until(&s, sim_quiet, 5000));
    serves_and_is_clean(&s, 3000);
    assert_int_equal(s.loads, loads);
    sim_close(&s);
}

TEST(broken_data_links_end_streams_and_are_made_anew)
{
    struct sim s;
    sim_open(&s, 65, 3);
    deploy(&s, "a0,a1,a2");
    for (int agent = 0; agent < 3; agent++) {
        request(&s, 60, 60);
        sim_run_ms(&s, 15);
        sim_links_break(&s, agent);
        assert_true(sim_run_until(&s, sim_quiet, 12000));
        assert_true(sim_serves(&s));
    }
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

/* A frame vanishes and nobody is told: of the prompt, of a step, of the last stage's tokens. */
TEST(a_frame_that_is_lost_is_named_and_its_request_goes_on)
{
    for (int from = 0; from < 3; from++)
        for (int late = 0; late < 2; late++) {
            struct sim s;
            sim_open(&s, 70 + (uint64_t)(2 * from + late), 3);
            deploy(&s, "a0,a1,a2");
            struct sim_client *c = request(&s, late ? 8 : 40, 60);
            sim_run_ms(&s, late ? 30 : 0);
            s.network.lose_from = 1 + from;
            if (!sim_run_until(&s, sim_quiet, 60000))
                fail_msg("seed %llu: a request waits for ever", (unsigned long long)s.seed);
            assert_true(c->finished);
            assert_int_equal(s.network.lose_from, 0);
            char hop[120];
            snprintf(hop, sizeof hop, "lost on the way from stage %d of 3 ", from + 1);
            assert_int_equal(sim_described(&s, "losses", "recovered"), 1);
            const char *why =
                json_string_value(json_object_get(json_object_get(s.answer, "losses"), "last_why"));
            if (!strstr(why, hop))
                fail_msg("seed %llu: %s", (unsigned long long)s.seed, why);
            serves_and_is_clean(&s, 100);
            sim_close(&s);
        }
}

TEST(a_stage_that_hangs_is_named)
{
    for (int victim = 0; victim < 3; victim++) {
        struct sim s;
        char name[8];
        sim_open(&s, 80 + (uint64_t)victim, 3);
        deploy(&s, "a0,a1,a2");
        struct sim_client *c = request(&s, 20, 60);
        sim_run_ms(&s, 40);
        assert_true(c->open);
        sim_executor_hang(&s, victim, true);
        assert_true(sim_run_until(&s, sim_quiet, 200000)); /* it is tried again */
        assert_true(c->failed);
        snprintf(name, sizeof name, "a%d", victim);
        if (!strstr(c->why.text, name))
            fail_msg("a%d hangs, and the request is told: %s", victim, c->why.text);
        sim_close(&s);
    }
}

TEST(weights_that_nobody_has_are_asked_of_whoever_deploys_again)
{
    struct sim s;
    sim_open(&s, 70, 3);
    deploy(&s, "a0,a1,a2");
    sim_agent_kill(&s, 1);
    sim_run_ms(&s, 3000);
    sim_agent_forget_weights(&s, 1);
    sim_agent_start(&s, 1);
    sim_run_ms(&s, 3000);
    assert_false(sim_serves(&s));
    assert_int_equal(
        sim_ask_wait(&s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    assert_non_null(
        strstr(json_string_value(json_object_get(s.answer, "text")), "no agent has all weights"));
    deploy(&s, "a0,a1,a2");
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

TEST(an_hpctl_that_is_interrupted_while_it_uploads_can_be_run_again)
{
    struct sim s;
    sim_open(&s, 75, 3);
    s.uploader = false;
    sim_deploy_as(&s, "toy", "a0,a1,a2");
    sim_run_ms(&s, 500);
    s.admin_gone = true;
    sim_run_ms(&s, 20000); /* until something was to be said to it */
    s.admin_gone = false;
    assert_int_equal(
        sim_ask_wait(&s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    assert_string_equal(json_string_value(json_object_get(s.answer, "state")), "broken");
    s.uploader = true;
    deploy(&s, "a0,a1,a2");
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

TEST(old_keys_and_replayed_tokens_open_nothing)
{
    struct sim s;
    sim_open(&s, 80, 2);
    struct message join = {.type = MESSAGE_JOIN, .id = 9};
    join.u.join.name = "thief";
    join.u.join.token = s.token; /* used already, by a1 */
    join.u.join.node = "{\"name\": \"n\", \"devices\": [{\"name\": \"cpu\", \"kind\": \"toy\", "
                       "\"memory_bytes\": 1}]}";
    join.u.join.program = join.u.join.machine = join.u.join.hostname = "";
    struct buffer bytes = {0};
    message_encode(&join, &bytes);
    uint64_t refused = coord_view(s.core).refused;
    coord_message(s.core, 77, "another-key-of-forty-characters-01234567", bytes.data, bytes.size);
    assert_int_equal(coord_view(s.core).refused, refused + 1);
    assert_int_equal(coord_view(s.core).members, 2);
    struct message ask = {.type = MESSAGE_ASK, .id = 9};
    ask.u.ask.verb = "token.create";
    ask.u.ask.arguments = "{}";
    bytes.size = 0;
    message_encode(&ask, &bytes);
    coord_message(s.core, 77, "another-key-of-forty-characters-01234567", bytes.data, bytes.size);
    assert_int_equal(coord_view(s.core).refused, refused + 2);
    buffer_free(&bytes);
    sim_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_of_a_killed_agent_go_on_after_its_return),
        cmocka_unit_test(the_remaining_agents_take_over_where_the_plan_is_free),
        cmocka_unit_test(a_stopped_agent_is_noticed_within_three_seconds),
        cmocka_unit_test(a_stopped_coordinator_takes_nobody_for_dead_and_the_stream_goes_on),
        cmocka_unit_test(a_slow_disk_holds_up_what_is_stored_and_no_token),
        cmocka_unit_test(an_agent_that_dies_in_a_pause_is_lost_after_it),
        cmocka_unit_test(a_restarted_coordinator_finds_its_deployments_without_loading_anything),
        cmocka_unit_test(
            streams_of_a_coordinator_that_died_end_though_their_deployment_does_not_serve),
        cmocka_unit_test(a_coordinator_that_is_killed_while_it_prepares_goes_on_after_its_restart),
        cmocka_unit_test(a_deploy_that_comes_before_the_agents_after_a_restart_waits_for_them),
        cmocka_unit_test(a_seed_replays_to_the_last_byte),
        cmocka_unit_test(a_broken_connection_ends_streams_and_keeps_weights),
        cmocka_unit_test(broken_data_links_end_streams_and_are_made_anew),
        cmocka_unit_test(a_frame_that_is_lost_is_named_and_its_request_goes_on),
        cmocka_unit_test(a_stage_that_hangs_is_named),
        cmocka_unit_test(weights_that_nobody_has_are_asked_of_whoever_deploys_again),
        cmocka_unit_test(an_hpctl_that_is_interrupted_while_it_uploads_can_be_run_again),
        cmocka_unit_test(old_keys_and_replayed_tokens_open_nothing),
    };
    return cmocka_run_group_tests_name("failures", tests, NULL, NULL);
}
