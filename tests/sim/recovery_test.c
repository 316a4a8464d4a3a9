/* Streams go on when agents are lost, under virtual time: whatever dies, and whatever is under way
 * then, no request fails while what is left can hold the model, and each has the tokens of an
 * undisturbed run. */
#include <stdio.h>
#include <string.h>

#include "coordinator/deployment.h"
#include "coordinator/limits.h"
#include "coordinator/member.h"
#include "coordinator/sequence.h"
#include "tests/sim/failures.h"

enum { AGENTS = 4 };

/* What is said of who was there whenever an agent was lost. */
#define SUSPECT "agents were lost 3 times while they worked at this request"

/* All have the weights in their stores, and the planner may take any of them. */
static void open_free(struct sim *s, uint64_t seed)
{
    sim_open(s, seed, AGENTS);
    for (int i = 0; i < AGENTS; i++)
        sim_agent_have_weights(s, i);
    sim_run_ms(s, 200);
}

/* The agent of one of the stages, as they are now. */
static int agent_of(struct sim *s, uint64_t stage)
{
    assert_int_equal(
        sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    const json_t *stages = json_object_get(s->answer, "stages");
    if (!json_array_size(stages)) /* there is no plan: every agent is drained or gone */
        return 0;
    const json_t *row = json_array_get(stages, stage % json_array_size(stages));
    const char *agent = json_string_value(json_object_get(row, "agent"));
    return agent ? agent[1] - '0' : 0; /* else this is the answer to a question before */
}

static double seconds(struct sim *s, const char *name)
{
    sim_described(s, "losses", "places");
    return json_number_value(json_object_get(json_object_get(s->answer, "losses"), name));
}

TEST(streams_go_on_over_what_is_left_when_an_agent_does_not_come_back)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct sim s;
        open_free(&s, 400 + seed);
        deploy(&s, NULL);
        stream(&s, 10 + seed);
        for (int i = 0; i < 6; i++)
            request(&s, 30 + 10 * (size_t)i, 40);
        uint64_t open = 0;
        for (int i = 0; i < s.n_clients; i++)
            open += s.clients[i].open;
        sim_agent_kill(&s, agent_of(&s, seed));
        sim_run_ms(&s, 1700);
        request(&s, 50, 30); /* who comes in the meantime waits with them */
        all_finished(&s, 3000);
        assert_int_equal(sim_described(&s, "losses", "places"), 1);
        assert_in_range(sim_described(&s, "losses", "recovered"), 1, open);
        assert_true(seconds(&s, "last_found_s") <= 2.0);
        assert_true(seconds(&s, "last_pause_s") <= 3.0);
        serves_and_is_clean(&s, 1000);
        sim_close(&s);
    }
}

static bool all_copied(struct sim *s)
{
    sim_described(s, "losses", "places");
    const json_t *stages = json_object_get(s->answer, "stages"), *row;
    size_t i, n = 0;
    json_array_foreach(stages, i, row) n += json_object_get(row, "copy_on") != NULL;
    return n > 0 && n == json_array_size(stages);
}

static void deploy_copied(struct sim *s, const char *agents)
{
    json_t *options = json_pack("{s:i, s:i, s:s*}", "slice", 8, "copies", 2, "agents", agents);
    assert_int_equal(sim_deploy_with(s, "toy", options), 0);
}

/* Nobody has weights beside those that run them, and then one more has. */
TEST(with_two_copies_any_agent_may_be_lost_and_nobody_uploads_anything)
{
    for (uint64_t seed = 430; seed < 438; seed++) {
        struct sim s;
        sim_open(&s, seed, AGENTS);
        deploy_copied(&s, NULL);
        assert_true(sim_run_until(&s, all_copied, 10000));
        uint64_t uploads = s.uploads;
        for (int turn = 0; turn < 2; turn++) { /* then others have copies of what is left */
            stream(&s, 10);
            sim_agent_kill(&s, agent_of(&s, seed));
            all_finished(&s, 5000);
            assert_true(sim_run_until(&s, sim_serves, 5000));
            assert_true(sim_run_until(&s, all_copied, 10000));
        }
        assert_int_equal(s.uploads, uploads);
        serves_and_is_clean(&s, 1000);
        sim_close(&s);
    }
}

/* Between the first two stages frames do not come through any more, though both agents live: the
 * deployment goes on without one of them, within `limit_ms`, and streams lose nothing. */
static void goes_round(uint64_t seed, enum sim_path path, const char *agents, uint64_t limit_ms)
{
    struct sim s;
    open_free(&s, seed);
    deploy_copied(&s, agents);
    for (int i = 0; i < 4; i++)
        stream(&s, 10);
    int from = agent_of(&s, 0), to = agent_of(&s, 1);
    assert_int_not_equal(from, to);
    s.network.path[from][to] = path;
    request(&s, 50, 30);
    all_finished(&s, limit_ms);
    assert_true(sim_described(&s, "losses", "places") == 1);
    const json_t *row;
    size_t i;
    unsigned there = 0;
    json_array_foreach(json_object_get(s.answer, "stages"), i, row)
    {
        int agent = json_string_value(json_object_get(row, "agent"))[1] - '0';
        there |= 1u << agent;
    }
    assert_true((there >> from & 1) + (there >> to & 1) < 2);
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

TEST(a_link_that_hangs_between_two_that_live_is_planned_around)
{
    for (uint64_t seed = 480; seed < 486; seed++)
        goes_round(seed, SIM_PATH_SILENT, seed % 2 ? "a0,a1" : "a2,a1,a0", 6000);
}

TEST(a_link_that_breaks_with_all_that_it_carries_is_planned_around)
{
    for (uint64_t seed = 490; seed < 496; seed++)
        goes_round(seed, SIM_PATH_BREAKS, seed % 2 ? "a0,a1" : "a2,a1,a0", 12000);
}

/* Both are needed: what there is of the link has to do, and once it is mended all goes on. */
TEST(a_link_that_nothing_goes_round_is_tried_again)
{
    struct sim s;
    sim_open(&s, 500, 2);
    deploy(&s, "a0,a1");
    stream(&s, 10);
    s.network.path[0][1] = SIM_PATH_SILENT;
    sim_run_ms(&s, 30000);
    assert_false(sim_serves(&s));
    s.network.path[0][1] = SIM_PATH_GOOD;
    all_finished(&s, 60000);
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

/* Of agents that were asked for by name those that are left have what the lost one had. */
TEST(with_two_copies_those_that_were_named_go_on_without_the_one_that_is_lost)
{
    struct sim s;
    sim_open(&s, 510, 3);
    deploy_copied(&s, "a0,a1,a2");
    assert_true(sim_run_until(&s, all_copied, 10000));
    stream(&s, 10);
    sim_agent_kill(&s, 1);
    all_finished(&s, 5000);
    sim_agent_start(&s, 1);
    serves_and_is_clean(&s, 20000);
    sim_close(&s);
}

/* An agent that is back before others are ready is taken where it was, and nobody loads anything
 * else. */
TEST(an_agent_that_comes_back_at_once_is_taken_again)
{
    struct sim s;
    open_free(&s, 450);
    deploy(&s, NULL);
    stream(&s, 20);
    int agent = agent_of(&s, 0);
    sim_agent_kill(&s, agent);
    sim_agent_start(&s, agent);
    all_finished(&s, 5000);
    assert_int_equal(agent_of(&s, 0), agent);
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

static int flapping_agent;

static bool used(struct sim *s)
{
    const struct deployment *d = deployment_find(s->core, "toy");
    for (int i = 0; d && d->state == DEPLOYMENT_SERVING && i < d->n_stages; i++)
        if (d->stages[i].agent->name[1] - '0' == flapping_agent)
            return true;
    return false;
}

static bool held_off(struct sim *s)
{
    char name[] = {'a', (char)('0' + flapping_agent), 0};
    return coord_now(s->core) < member_find(s->core, name)->held_off_until_ns;
}

/* It is used, dies under a stream, and comes back at once or after a while. Returns after how many
 * seconds it was used again. */
static double flap(struct sim *s, uint64_t away_ms)
{
    assert_true(sim_run_until(s, used, 4000000));
    stream(s, 20);
    sim_agent_kill(s, flapping_agent);
    uint64_t from_ns = s->clock.now_ns;
    sim_run_ms(s, away_ms);
    sim_agent_start(s, flapping_agent);
    all_finished(s, 5000);
    assert_true(sim_run_until(s, sim_serves, 5000));
    assert_true(!held_off(s) || !used(s));
    assert_true(sim_run_until(s, used, 4000000));
    return (double)(s->clock.now_ns - from_ns) * 1e-9;
}

TEST(an_agent_that_comes_and_goes_is_held_off_each_time_longer)
{
    for (uint64_t away_ms = 1; away_ms < 5000; away_ms += 2500) {
        struct sim s;
        open_free(&s, 455);
        deploy_copied(&s, "a0,a1");
        flapping_agent = 1;
        double first = flap(&s, away_ms), second = flap(&s, away_ms), third = flap(&s, away_ms),
               fourth = flap(&s, away_ms), fifth = flap(&s, away_ms);
        assert_true(first < 20 && second < 20);
        assert_true(third >= 30 && third < 50);
        assert_true(fourth >= 60 && fourth < 80);
        assert_true(fifth >= 120 && fifth < 140);
        sim_run_ms(&s, 700000); /* ten good minutes */
        assert_true(flap(&s, away_ms) < 20);
        serves_and_is_clean(&s, 1000);
        sim_close(&s);
    }
}

TEST(an_agent_that_comes_and_goes_is_taken_where_nobody_else_is_left)
{
    struct sim s;
    open_free(&s, 456);
    deploy_copied(&s, "a0,a1");
    flapping_agent = 1;
    for (int i = 0; i < 2; i++)
        flap(&s, 1);
    assert_true(sim_run_until(&s, used, 100000));
    stream(&s, 20);
    sim_agent_kill(&s, flapping_agent);
    sim_agent_start(&s, flapping_agent);
    all_finished(&s, 5000);
    assert_true(held_off(&s) && !used(&s));
    stream(&s, 20);
    for (int i = 0; i < AGENTS; i++)
        if (i != flapping_agent)
            sim_agent_kill(&s, i);
    all_finished(&s, 5000);
    assert_true(used(&s) && held_off(&s));
    serves_and_is_clean(&s, 1000);
    sim_close(&s);
}

TEST(what_no_agent_can_hold_waits_and_says_why_in_the_end)
{
    struct sim s;
    sim_open(&s, 460, 3);
    deploy(&s, "a0,a1,a2");
    struct sim_client *c = stream(&s, 40);
    assert_true(c->n_got > 0);
    sim_agent_kill(&s, 1);
    sim_run_ms(&s, 500000);
    assert_true(c->open);
    assert_true(sim_run_until(&s, sim_quiet, 120000));
    assert_true(c->failed);
    assert_non_null(strstr(c->why.text, "\"a1\""));
    sim_close(&s);
}

/* Whatever it is about a request that ends agents: it does not end all of them, and no other
 * request fails with it. */
TEST(a_request_that_ends_agents_fails_alone)
{
    for (uint64_t seed = 470; seed < 476; seed++) {
        struct sim s;
        int killed = 0;
        uint64_t id = 0; /* of the attempt that ended one last */
        open_free(&s, seed);
        deploy(&s, NULL);
        for (int i = 0; i < 6; i++)
            request(&s, 30 + 10 * (size_t)i, 40);
        struct sim_client *bad = request(&s, 100, 30);
        for (int i = 0; i < 6; i++)
            request(&s, 30 + 10 * (size_t)i, 40);
        for (int ms = 0; ms < 60000 && bad->open; ms++) {
            const struct sequence *own = sequence_of_request(s.core, bad->request);
            if (own && own->state == SEQUENCE_ACTIVE && own->id != id) {
                id = own->id;
                int agent = own->deployment->stages[0].agent->name[1] - '0';
                sim_agent_kill(&s, agent);
                sim_agent_start(&s, agent);
                killed++;
            }
            sim_run_ms(&s, 1);
        }
        assert_true(bad->failed);
        assert_non_null(strstr(bad->why.text, SUSPECT));
        assert_int_equal(killed, 3);
        assert_true(sim_run_until(&s, sim_quiet, 60000));
        for (int i = 0; i < s.n_clients; i++)
            assert_true(&s.clients[i] == bad || s.clients[i].finished);
        serves_and_is_clean(&s, 10000);
        sim_close(&s);
    }
}

/* ---- at random ---- */

struct recovery_toll {
    unsigned finished, cancelled, refused, suspect;
    uint64_t places, sequences, recovered, moved;
};

static void strike(struct sim *s, struct recovery_toll *t)
{
    struct err e;
    int agent = (int)sim_random(s, AGENTS);
    switch (sim_random(s, 30)) {
    case 0:
    case 1:
    case 2: sim_agent_kill(s, agent); break;
    case 3: sim_agent_kill(s, agent_of(s, sim_random(s, AGENTS))); break;
    case 4: sim_connection_break(s, agent); break;
    case 5: sim_links_break(s, agent); break;
    case 6: sim_drain(s, agent_of(s, 0), false); break;
    case 7:
    case 8: sim_drain(s, agent, true); break;
    case 9:
        sim_ask(s, "rebalance", json_pack("{s:s, s:f}", "name", "toy", "margin", 0.0), NULL);
        break;
    case 10:
        if (s->n_clients)
            sim_cancel(s, &s->clients[sim_random(s, (uint64_t)s->n_clients)]);
        break;
    default:
        if (s->n_clients < SIM_CLIENTS - 2 &&
            !sim_request(s, 20 + sim_random(s, TOY_CONTEXT - 90), 1 + sim_random(s, 60), &e))
            t->refused++;
        break;
    }
}

/* One path is bad for a while, and then another. */
static void path_strike(struct sim *s)
{
    if (sim_random(s, 10))
        return;
    memset(s->network.path, 0, sizeof s->network.path);
    if (sim_random(s, 3))
        s->network.path[sim_random(s, 3)][sim_random(s, 3)] =
            sim_random(s, 2) ? SIM_PATH_SILENT : SIM_PATH_BREAKS;
}

static void toy_deploy_both(struct sim *s)
{
    json_t *options =
        json_pack("{s:s, s:s, s:i}", "prefill", "a0,a1", "agents", "a2,a3", "slice", 8);
    assert_int_equal(sim_deploy_with(s, "toy", options), 0);
}

/* Frames that come twice, behind the end of their sequence, are held for ten seconds. */
enum { TWICE_HELD_MS = 12000 };

static void one_run(uint64_t seed, struct recovery_toll *t)
{
    struct sim s;
    open_free(&s, seed);
    s.scored = seed % 2;
    s.speculate = seed % 3 ? NULL : "lookup";
    bool paths = seed % 4 == 1;
    if (paths)
        deploy_copied(&s, "a0,a1,a2");
    else if (seed % 4)
        deploy(&s, NULL);
    else
        toy_deploy_both(&s);
    s.alike = seed % 2 ? 0.3 : 0;
    s.network.slow_ns = 1000000 * (1 + sim_random(&s, 20));
    s.network.twice = 0.02;
    for (int i = 0; i < 80; i++) {
        strike(&s, t);
        if (paths)
            path_strike(&s);
        sim_run_ms(&s, sim_random(&s, 4) ? sim_random(&s, 60) : sim_random(&s, 2500));
        for (int a = 0; a < AGENTS; a++)
            if (!sim_agent_alive(&s, a) && sim_random(&s, 8) == 0)
                sim_agent_start(&s, a);
    }
    s.network.twice = 0;
    memset(s.network.path, 0, sizeof s.network.path);
    for (int a = 0; a < AGENTS; a++) {
        sim_drain(&s, a, true);
        if (!sim_agent_alive(&s, a))
            sim_agent_start(&s, a);
    }
    if (!sim_run_until(&s, sim_quiet, 200000))
        fail_msg("seed %llu: a stream never ended", (unsigned long long)seed);
    for (int i = 0; i < s.n_clients; i++) {
        bool suspect = strstr(s.clients[i].why.text, SUSPECT) != NULL;
        if (s.clients[i].failed && !suspect)
            fail_msg("seed %llu: %s", (unsigned long long)seed, s.clients[i].why.text);
        t->suspect += s.clients[i].failed;
    }
    if (!sim_run_until(&s, sim_serves, 60000))
        serves_not_fail(&s, "toy", 60000);
    is_clean_of(&s, "toy", TWICE_HELD_MS);
    for (int i = 0; i < s.n_clients; i++) {
        t->finished += s.clients[i].finished;
        t->cancelled += s.clients[i].cancelled;
    }
    uint64_t lost = sim_described(&s, "losses", "sequences"),
             recovered = sim_described(&s, "losses", "recovered");
    if (recovered > lost)
        fail_msg("seed %llu: %llu sequences went on of %llu that were lost",
                 (unsigned long long)seed, (unsigned long long)recovered, (unsigned long long)lost);
    t->places += sim_described(&s, "losses", "places");
    t->sequences += lost;
    t->recovered += recovered;
    t->moved += sim_described(&s, "handoffs", "moved");
    sim_close(&s);
}

TEST(no_stream_fails_and_no_token_is_another_whoever_dies_meanwhile)
{
    struct seed_range seeds = seeds_of(12000);
    struct recovery_toll t = {0};
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.n; seed++)
        one_run(seed, &t);
    printf("# seeds %llu to %llu (HP_SEED=N replays one, HP_RUNS=N makes more): %u requests "
           "finished, %u failed that saw three agents lost, %u were cancelled, %u refused; %llu "
           "places lost, %llu sequences lost, %llu of them went on, %llu moved\n",
           (unsigned long long)seeds.first, (unsigned long long)(seeds.first + seeds.n - 1),
           t.finished, t.suspect, t.cancelled, t.refused, (unsigned long long)t.places,
           (unsigned long long)t.sequences, (unsigned long long)t.recovered,
           (unsigned long long)t.moved);
    assert_true(seeds.n < 100 || (t.finished > 5 * seeds.n && t.recovered > seeds.n));
    assert_true(t.suspect <= 1 + seeds.n / 250); /* chance seldom looks like guilt */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_go_on_over_what_is_left_when_an_agent_does_not_come_back),
        cmocka_unit_test(with_two_copies_any_agent_may_be_lost_and_nobody_uploads_anything),
        cmocka_unit_test(a_link_that_hangs_between_two_that_live_is_planned_around),
        cmocka_unit_test(a_link_that_breaks_with_all_that_it_carries_is_planned_around),
        cmocka_unit_test(a_link_that_nothing_goes_round_is_tried_again),
        cmocka_unit_test(with_two_copies_those_that_were_named_go_on_without_the_one_that_is_lost),
        cmocka_unit_test(an_agent_that_comes_back_at_once_is_taken_again),
        cmocka_unit_test(an_agent_that_comes_and_goes_is_held_off_each_time_longer),
        cmocka_unit_test(an_agent_that_comes_and_goes_is_taken_where_nobody_else_is_left),
        cmocka_unit_test(a_request_that_ends_agents_fails_alone),
        cmocka_unit_test(what_no_agent_can_hold_waits_and_says_why_in_the_end),
        cmocka_unit_test(no_stream_fails_and_no_token_is_another_whoever_dies_meanwhile),
    };
    return cmocka_run_group_tests_name("recovery", tests, NULL, NULL);
}
