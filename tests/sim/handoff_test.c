/* Prompts that one plan reads for another, under virtual time: whatever the two sides look like and
 * whatever breaks in the middle of it, each request has the tokens of an undisturbed run or a clean
 * error, and nothing is left over. */
#include <stdio.h>
#include <string.h>

#include "coordinator/deployment.h"
#include "coordinator/handoffs.h"
#include "coordinator/member.h"
#include "tests/sim/failures.h"

static void deploy_wide(struct sim *s, const char *prefill, const char *decode, const char *cache,
                        int sequences)
{
    int rc =
        sim_deploy_with(s, "toy",
                        json_pack("{s:s, s:s, s:s, s:i, s:i}", "prefill", prefill, "agents", decode,
                                  "prefix_cache", cache, "slice", 8, "max_sequences", sequences));
    if (rc < 0)
        fail_msg("seed %llu: %s", (unsigned long long)s->seed, s->answer_error.text);
}

static void deploy_both(struct sim *s, const char *prefill, const char *decode, const char *cache)
{
    deploy_wide(s, prefill, decode, cache, 4);
}

static uint64_t figure(struct sim *s, const char *name)
{
    return sim_described(s, "handoffs", name);
}

static bool both_serve(struct sim *s)
{
    if (!sim_serves(s))
        return false;
    if (sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", "toy/prefill"), NULL) < 0)
        return false;
    return strcmp(json_string_value(json_object_get(s->answer, "state")), "serving") == 0;
}

TEST(the_two_sides_may_be_cut_in_any_way)
{
    static const char *const sides[][2] = {{"a0", "a1"},          {"a0,a1", "a2"},
                                           {"a0", "a1,a2,a3"},    {"a0,a1", "a2,a3"},
                                           {"a0,a1,a2", "a3,a1"}, {"a0,a1", "a1,a0,a2"}};
    for (size_t k = 0; k < sizeof sides / sizeof *sides; k++) {
        struct sim s;
        sim_open(&s, 300 + k, 4);
        deploy_both(&s, sides[k][0], sides[k][1], "off");
        for (int i = 0; i < 8; i++)
            request(&s, 66 + 9 * (size_t)i, 20);
        all_finished(&s, 60000);
        assert_int_equal(figure(&s, "done"), 8);
        assert_int_equal(figure(&s, "failed"), 0);
        assert_true(figure(&s, "bytes") > 0);
        /* A short one stays where it is answered. */
        request(&s, 64, 5);
        all_finished(&s, 10000);
        assert_int_equal(figure(&s, "done"), 8);
        is_clean_of(&s, "toy", 1000);
        sim_close(&s);
    }
}

/* A decode agent that dies takes the choice along: it is made anew over those that are left. */
TEST(the_planner_chooses_who_reads_and_chooses_again)
{
    struct sim s;
    sim_open(&s, 310, 4);
    int rc = sim_deploy_with(&s, "toy",
                             json_pack("{s:s, s:s, s:s, s:i}", "prefill", "auto", "decode", "auto",
                                       "prefix_cache", "off", "max_sequences", 4));
    if (rc < 0)
        fail_msg("%s", s.answer_error.text);
    for (int round = 0; round < 2; round++) {
        struct deployment *d = deployment_find(s.core, "toy");
        const json_t *apart = json_object_get(d->plan->document, "apart");
        if (!json_is_true(json_object_get(apart, "chosen")))
            fail_msg("%s", json_string_value(json_object_get(apart, "why")));
        const struct deployment *p = deployment_partner(s.core, d);
        for (int i = 0; i < p->n_stages; i++)
            for (int k = 0; k < d->n_stages; k++)
                assert_ptr_not_equal(p->stages[i].agent, d->stages[k].agent);
        uint64_t before = figure(&s, "done");
        for (int i = 0; i < 6; i++)
            request(&s, 66 + 9 * (size_t)i, 20);
        all_finished(&s, 60000);
        assert_true(figure(&s, "done") > before);
        if (round)
            break;
        sim_agent_kill(&s, d->stages[0].agent->name[1] - '0');
        sim_run_ms(&s, 20000);
        if (!sim_run_until(&s, both_serve, 120000))
            fail_msg("the two plans do not serve again");
    }
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

TEST(a_plan_that_announces_and_never_sends_costs_time_alone)
{
    struct sim s;
    sim_open(&s, 320, 3);
    deploy_both(&s, "a0,a1", "a2", "off");
    sim_executor_hang(&s, 1, true);
    request(&s, 120, 20);
    all_finished(&s, 60000);
    assert_int_equal(figure(&s, "done"), 0);
    assert_int_equal(figure(&s, "failed"), 1);
    sim_executor_hang(&s, 1, false);
    assert_true(sim_run_until(&s, both_serve, 60000));
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

TEST(keys_and_values_that_are_lost_are_computed_again)
{
    struct sim s;
    sim_open(&s, 330, 3);
    deploy_both(&s, "a0", "a2", "off");
    s.network.lose = 1;
    request(&s, 120, 20);
    sim_run_ms(&s, 300);
    s.network.lose = 0;
    all_finished(&s, 60000);
    assert_int_equal(figure(&s, "failed"), 1);
    assert_true(sim_run_until(&s, both_serve, 60000));
    request(&s, 120, 20);
    all_finished(&s, 60000);
    assert_int_equal(figure(&s, "done"), 1);
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

TEST(either_side_may_die_in_the_middle)
{
    for (int victim = 0; victim < 3; victim++) {
        struct sim s;
        sim_open(&s, 340 + (uint64_t)victim, 3);
        deploy_both(&s, "a0,a1", "a2", "off");
        for (int i = 0; i < 4; i++)
            request(&s, 140, 10);
        sim_run_ms(&s, 12);
        sim_agent_kill(&s, victim);
        sim_run_ms(&s, 1000);
        sim_agent_start(&s, victim);
        all_finished(&s, 120000); /* nobody had a token yet */
        assert_true(figure(&s, "failed") > 0);
        assert_true(sim_run_until(&s, both_serve, 60000));
        is_clean_of(&s, "toy", 1000);
        sim_close(&s);
    }
}

TEST(who_leaves_stops_those_that_read_for_him)
{
    struct sim s;
    sim_open(&s, 350, 3);
    deploy_both(&s, "a0,a1", "a2", "off");
    struct sim_client *c = request(&s, 150, 10);
    sim_run_ms(&s, 8);
    sim_cancel(&s, c);
    sim_run_ms(&s, 300);
    assert_int_equal(sim_leftovers(&s), 0);
    assert_int_equal(figure(&s, "done") + figure(&s, "failed"), 0);
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

TEST(both_plans_come_back_with_the_coordinator_and_end_together)
{
    struct sim s;
    sim_open(&s, 360, 3);
    deploy_both(&s, "a0,a1", "a2", "on");
    sim_coordinator_kill(&s);
    sim_run_ms(&s, 500);
    sim_coordinator_start(&s);
    assert_true(sim_run_until(&s, both_serve, 60000));
    request(&s, 100, 10);
    all_finished(&s, 60000);
    assert_int_equal(figure(&s, "done"), 1);
    assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy/prefill"), NULL),
                     HP_EINVAL);
    assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy"), NULL), 0);
    sim_run_ms(&s, 6000);
    sim_ask_wait(&s, "deployment.ls", NULL, NULL);
    assert_int_equal(json_array_size(s.answer), 0);
    assert_int_equal(sim_leftovers(&s), 0);
    sim_close(&s);
}

TEST(a_plan_that_nobody_asks_for_any_more_goes)
{
    struct sim s;
    sim_open(&s, 365, 3);
    deploy_both(&s, "a0,a1", "a2", "off");
    sim_agent_kill(&s, 2);
    sim_run_ms(&s, 10000);
    sim_deploy_ask(&s, "toy", json_pack("{s:s, s:i}", "agents", "a1", "slice", 8));
    assert_true(sim_run_until(&s, sim_serves, 60000));
    sim_run_ms(&s, 6000);
    sim_ask_wait(&s, "deployment.ls", NULL, NULL);
    assert_int_equal(json_array_size(s.answer), 1);
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

/* Both plans have room for so many pages. */
static void narrow(struct sim *s, uint64_t pages)
{
    static const char *const names[] = {"toy", "toy/prefill"};
    for (int i = 0; i < 2; i++) {
        struct deployment *d = deployment_find(s->core, names[i]);
        d->kv_tokens = pages * KV_PAGE_TOKENS;
        d->answer_tokens = 1;
    }
    s->most_pages = pages;
}

/* An agent sends keys and values of so many sequences at once and no more. */
TEST(as_many_are_read_at_once_as_an_agent_can_send)
{
    struct sim s;
    sim_open(&s, 366, 4);
    deploy_wide(&s, "a0", "a1,a2,a3", "off", 40);
    for (int i = 0; i < 40; i++)
        request(&s, 100, 5);
    all_finished(&s, 60000);
    assert_int_equal(figure(&s, "failed"), 0);
    assert_int_equal(figure(&s, "done"), 40);
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

/* Prompts that wait for the plan that reads prompts hold up nobody who does not go there. */
TEST(who_reads_at_home_does_not_wait_for_room_elsewhere)
{
    struct sim s;
    sim_open(&s, 368, 3);
    deploy_wide(&s, "a0", "a1,a2", "off", 8);
    deployment_find(s.core, "toy/prefill")->max_sequences = 1;
    struct sim_client *far[4];
    for (int i = 0; i < 4; i++)
        far[i] = request(&s, 100, 5);
    struct sim_client *home = request(&s, HANDOFF_LEAST_TOKENS / 2, 5);
    while (home->open)
        sim_run_ms(&s, 1);
    assert_true(home->finished);
    assert_true(far[1]->open && far[3]->open && !far[3]->n_got);
    all_finished(&s, 60000);
    assert_int_equal(figure(&s, "done"), 4);
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

/* The pages that it could have shared are no room for those that come. */
TEST(what_comes_has_room_of_its_own)
{
    struct sim s;
    struct err e = {0};
    sim_open(&s, 367, 3);
    deploy_both(&s, "a0", "a2", "on");
    narrow(&s, 4);
    struct sim_client *c = NULL;
    for (int i = 0; i < 50 && !(c && c->open); i++) {
        c = request(&s, 70, 50);
        sim_run_ms(&s, 15);
    }
    assert_true(c->open);
    assert_non_null(sim_request_after(&s, c, 150, 10, &e));
    all_finished(&s, 60000);
    assert_int_equal(figure(&s, "failed"), 0);
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

static int agent_of(struct sim *s)
{
    assert_int_equal(
        sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    const json_t *stage = json_array_get(json_object_get(s->answer, "stages"), 0);
    const char *agent = json_string_value(json_object_get(stage, "agent"));
    return agent ? agent[1] - '0' : 0; /* 0 too where there is no plan: every agent is drained */
}

static bool moved_all(struct sim *s)
{
    sim_ask_wait(s, "deployment.ls", NULL, NULL);
    return json_array_size(s->answer) == 1;
}

TEST(what_runs_on_a_drained_agent_goes_on_elsewhere_with_its_keys_and_values)
{
    uint64_t moved = 0;
    for (uint64_t seed = 370; seed < 400; seed++) {
        struct sim s;
        char name[8];
        sim_open(&s, seed, 3);
        deploy(&s, NULL);
        for (int i = 0; i < 50; i++)
            request(&s, 40 + (size_t)i, 60);
        int before = agent_of(&s);
        snprintf(name, sizeof name, "a%d", before);
        assert_int_equal(sim_ask_wait(&s, "node.drain", json_pack("{s:s}", "name", name), NULL), 0);
        sim_run_ms(&s, 30);
        request(&s, 70, 30); /* whoever comes meanwhile is answered, too */
        all_finished(&s, 20000);
        assert_true(sim_run_until(&s, moved_all, 40000));
        assert_true(agent_of(&s) != before);
        moved += figure(&s, "moved");
        is_clean_of(&s, "toy", 1000);
        sim_close(&s);
    }
    printf("# %llu moved of 30 times what ran\n", (unsigned long long)moved);
    assert_true(moved >= 12); /* many end before */
}

static bool moves(struct sim *s)
{
    const struct deployment *last = deployment_find(s->core, "toy/last");
    return last && last->heir;
}

TEST(a_drain_that_is_taken_back_while_sequences_move_leaves_no_place_behind)
{
    for (uint64_t seed = 400; seed < 408; seed++) {
        struct sim s;
        sim_open(&s, seed, 3);
        deploy(&s, NULL);
        for (int i = 0; i < 50; i++)
            request(&s, 40 + (size_t)i, 60);
        int before = agent_of(&s);
        sim_drain(&s, before, false);
        assert_true(sim_run_until(&s, moves, 20000));
        sim_drain(&s, before, true);
        all_finished(&s, 20000);
        assert_true(sim_run_until(&s, moved_all, 40000));
        is_clean_of(&s, "toy", 1000);
        sim_close(&s);
    }
}

struct handoff_toll {
    unsigned finished, failed, cancelled, lost;
    uint64_t done, lapsed, moved, spilled, unspilled;
};

/* Of all that may happen to plans that read for others, or (`drains`) to one whose agents leave
 * while long answers run. */
static void strike(struct sim *s, uint64_t seed, bool drains)
{
    struct err e;
    int agent = (int)sim_random(s, 4);
    switch (sim_random(s, drains ? 40 : 30)) {
    case 30:
    case 31:
    case 32:
    case 33: sim_drain(s, agent_of(s), false); break;
    case 34:
    case 35:
    case 36: sim_drain(s, agent, true); break;
    case 37:
    case 38:
    case 39:
        if (s->n_clients < SIM_CLIENTS - 2)
            sim_request(s, 30 + sim_random(s, 40), TOY_CONTEXT / 2, &e);
        break;
    case 7: sim_drain(s, agent, false); break;
    case 8: sim_drain(s, agent, true); break;
    case 0: sim_connection_break(s, agent); break;
    case 1: sim_links_break(s, agent); break;
    case 2:
    case 3:
        if (seed % 2 == 0)
            sim_agent_kill(s, agent);
        break;
    case 4:
    case 5:
        if (s->n_clients)
            sim_cancel(s, &s->clients[sim_random(s, (uint64_t)s->n_clients)]);
        break;
    case 6:
        if (seed % 5 == 0) {
            sim_coordinator_kill(s);
            sim_run_ms(s, sim_random(s, 1500));
            sim_coordinator_start(s);
        }
        break;
    default:
        if (s->n_clients < SIM_CLIENTS - 2)
            sim_request(s, 60 + sim_random(s, TOY_CONTEXT - 80), 1 + sim_random(s, 20), &e);
        break;
    }
}

/* Both plans have room for so little that something makes room all the time, and is spilled. */
static void squeeze(struct sim *s)
{
    static const char *const names[] = {"toy", "toy/prefill"};
    for (int i = 0; s->core && i < 2; i++) {
        struct deployment *d = deployment_find(s->core, names[i]);
        if (d && d->n_stages)
            d->kv_tokens = 12 * KV_PAGE_TOKENS;
    }
}

static void one_run(uint64_t seed, struct handoff_toll *t)
{
    static const char *const sides[][2] = {
        {"a0,a1", "a2,a3"}, {"a0", "a1,a2,a3"}, {"a0,a1,a2", "a3"}, {"a2,a1", "a1,a3,a0"}};
    struct sim s;
    sim_open(&s, seed, 4);
    bool spills = seed % 4 == 1;
    s.scored = seed % 2;
    s.most_spills = spills ? 1 + seed % 20 : 0;
    s.spill_flip = seed % 3 ? 0 : 0.2;
    size_t k = sim_random(&s, 6);
    bool both = k < 4;
    if (both)
        deploy_both(&s, sides[k][0], sides[k][1], seed % 3 ? "on" : "off");
    else
        deploy(&s, NULL); /* the planner places it, and it can leave an agent */
    s.alike = seed % 3 ? 0.4 : 0;
    s.network.slow_ns = 1000000 * (1 + sim_random(&s, 20));
    s.network.lose = seed % 3 ? 0 : 0.003;
    s.network.twice = 0.02;
    s.network.late = 0.05;
    s.network.late_ns = 40 * UINT64_C(1000000);
    for (int i = 0; i < 60; i++) {
        strike(&s, seed, !both);
        if (spills)
            squeeze(&s);
        sim_run_ms(&s, sim_random(&s, 3) ? sim_random(&s, 40) : sim_random(&s, 400));
        for (int a = 0; a < 4; a++)
            if (!sim_agent_alive(&s, a) && sim_random(&s, 4) == 0)
                sim_agent_start(&s, a);
    }
    s.network.lose = s.network.late = s.network.twice = 0;
    for (int a = 0; a < 4; a++) {
        sim_drain(&s, a, true);
        if (!sim_agent_alive(&s, a))
            sim_agent_start(&s, a);
    }
    sim_run_ms(&s, 4000);
    if (!sim_run_until(&s, sim_quiet, 120000))
        fail_msg("seed %llu: a stream never ended", (unsigned long long)seed);
    sim_run_ms(&s, 30000); /* whatever was lost has been given up */
    serves_and_is_clean(&s, 60000);
    if (both && !sim_run_until(&s, both_serve, 60000))
        fail_msg("seed %llu: the prefill plan does not serve again", (unsigned long long)seed);
    for (int i = 0; i < s.n_clients; i++) {
        t->finished += s.clients[i].finished;
        t->failed += s.clients[i].failed;
        t->cancelled += s.clients[i].cancelled;
        t->lost += s.clients[i].lost;
    }
    t->done += figure(&s, "done");
    t->lapsed += figure(&s, "failed");
    t->moved += figure(&s, "moved");
    t->spilled += s.spilled;
    t->unspilled += s.unspilled;
    sim_close(&s);
}

TEST(tokens_are_those_of_an_undisturbed_run_whoever_reads_and_whatever_breaks)
{
    struct seed_range seeds = seeds_of(7000);
    struct handoff_toll t = {0};
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.n; seed++)
        one_run(seed, &t);
    printf("# seeds %llu to %llu (HP_SEED=N replays one, HP_RUNS=N makes more): %u streams "
           "finished, %u failed cleanly, %u were cancelled, %u died with their coordinator; %llu "
           "prompts were handed over, %llu handoffs failed, %llu sequences moved while they ran; "
           "stages spilled %llu chains and read "
           "back %llu\n",
           (unsigned long long)seeds.first, (unsigned long long)(seeds.first + seeds.n - 1),
           t.finished, t.failed, t.cancelled, t.lost, (unsigned long long)t.done,
           (unsigned long long)t.lapsed, (unsigned long long)t.moved, (unsigned long long)t.spilled,
           (unsigned long long)t.unspilled);
    assert_true(seeds.n < 100 || (t.done > 5 * seeds.n && t.lapsed > seeds.n / 4 && t.moved > 0 &&
                                  t.spilled > seeds.n && t.unspilled > 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_two_sides_may_be_cut_in_any_way),
        cmocka_unit_test(the_planner_chooses_who_reads_and_chooses_again),
        cmocka_unit_test(a_plan_that_announces_and_never_sends_costs_time_alone),
        cmocka_unit_test(keys_and_values_that_are_lost_are_computed_again),
        cmocka_unit_test(either_side_may_die_in_the_middle),
        cmocka_unit_test(who_leaves_stops_those_that_read_for_him),
        cmocka_unit_test(both_plans_come_back_with_the_coordinator_and_end_together),
        cmocka_unit_test(a_plan_that_nobody_asks_for_any_more_goes),
        cmocka_unit_test(as_many_are_read_at_once_as_an_agent_can_send),
        cmocka_unit_test(who_reads_at_home_does_not_wait_for_room_elsewhere),
        cmocka_unit_test(what_comes_has_room_of_its_own),
        cmocka_unit_test(what_runs_on_a_drained_agent_goes_on_elsewhere_with_its_keys_and_values),
        cmocka_unit_test(a_drain_that_is_taken_back_while_sequences_move_leaves_no_place_behind),
        cmocka_unit_test(tokens_are_those_of_an_undisturbed_run_whoever_reads_and_whatever_breaks),
    };
    return cmocka_run_group_tests_name("handoff", tests, NULL, NULL);
}
