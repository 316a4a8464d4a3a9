/* Deployments that go to a better place while they serve, under virtual time: whatever breaks in
 * the middle of it, each request has the tokens of an undisturbed run or a clean error, and nothing
 * is left over. */
#include <stdio.h>
#include <string.h>

#include "coordinator/degraded.h"
#include "tests/sim/failures.h"

static json_t *wish(bool dry)
{
    return json_pack("{s:s, s:b, s:f}", "name", "toy", "dry_run", dry, "margin", 0.0);
}

static int agent_of(struct sim *s)
{
    assert_int_equal(
        sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    const json_t *stage = json_array_get(json_object_get(s->answer, "stages"), 0);
    return json_string_value(json_object_get(stage, "agent"))[1] - '0';
}

static const char *verdict(struct sim *s)
{
    const char *word = json_string_value(json_object_get(s->answer, "verdict"));
    return word ? word : "";
}

/* It was placed when one agent alone was there; of equal places the planner takes another, and
 * without a margin that is enough. */
static void deploy_narrow(struct sim *s, uint64_t seed)
{
    sim_open(s, seed, 3);
    for (int i = 0; i < 2; i++)
        sim_drain(s, i, false);
    sim_run_ms(s, 200);
    deploy(s, NULL);
    assert_int_equal(agent_of(s), 2);
    for (int i = 0; i < 2; i++)
        sim_drain(s, i, true);
    sim_run_ms(s, 200);
}

TEST(what_runs_goes_to_the_better_place_and_no_token_is_lost)
{
    json_int_t moved = 0;
    for (uint64_t seed = 900; seed < 940; seed++) {
        struct sim s;
        deploy_narrow(&s, seed);
        assert_int_equal(sim_ask_wait(&s, "rebalance", wish(true), NULL), 0);
        assert_string_equal(verdict(&s), "would_move");
        assert_int_equal(agent_of(&s), 2);
        for (int i = 0; i < 40; i++)
            request(&s, 40 + (size_t)i, 60);
        assert_int_equal(sim_ask_wait(&s, "rebalance", wish(false), NULL), 0);
        assert_string_equal(verdict(&s), "moved");
        const json_t *done = json_object_get(s.answer, "done");
        moved += json_integer_value(json_object_get(done, "moved"));
        request(&s, 70, 30);
        all_finished(&s, 60000);
        assert_true(agent_of(&s) != 2);
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(s.answer, "rebalance"), "verdict")),
            "moved");
        assert_int_equal(sim_ask_wait(&s, "rebalance", wish(false), NULL), 0);
        assert_string_equal(verdict(&s), "stays");
        is_clean_of(&s, "toy", 1000);
        sim_close(&s);
    }
    printf("# %lld moved of 40 times what ran\n", (long long)moved);
    assert_true(moved >= 14); /* some end before */
}

struct rebalance_toll {
    uint64_t moved, finished;
};

static void strike(struct sim *s, uint64_t seed)
{
    struct err e;
    int agent = (int)sim_random(s, 3);
    switch (sim_random(s, 24)) {
    case 0:
    case 1: sim_ask(s, "rebalance", wish(false), NULL); break;
    case 2: sim_drain(s, agent, false); break;
    case 3: sim_drain(s, agent, true); break;
    case 4: sim_connection_break(s, agent); break;
    case 5: sim_links_break(s, agent); break;
    case 6:
        if (seed % 2)
            sim_agent_kill(s, agent);
        break;
    case 7:
        if (seed % 5 == 0) {
            sim_coordinator_kill(s);
            sim_run_ms(s, sim_random(s, 1500));
            sim_coordinator_start(s);
        }
        break;
    case 8:
        if (s->n_clients)
            sim_cancel(s, &s->clients[sim_random(s, (uint64_t)s->n_clients)]);
        break;
    default:
        if (s->n_clients < SIM_CLIENTS - 2)
            sim_request(s, 40 + sim_random(s, TOY_CONTEXT - 100), 1 + sim_random(s, 60), &e);
        break;
    }
}

static void one_run(uint64_t seed, struct rebalance_toll *t)
{
    struct sim s;
    deploy_narrow(&s, seed);
    s.scored = seed % 2;
    s.network.slow_ns = 1000000 * (1 + sim_random(&s, 20));
    s.network.lose = seed % 3 ? 0 : 0.003;
    s.network.twice = 0.02;
    s.network.late = 0.05;
    s.network.late_ns = 40 * UINT64_C(1000000);
    for (int i = 0; i < 24; i++)
        request(&s, 40 + (size_t)i, 60);
    sim_ask(&s, "rebalance", wish(false), NULL);
    for (int i = 0; i < 40; i++) {
        if (s.core)
            strike(&s, seed);
        sim_run_ms(&s, sim_random(&s, 3) ? sim_random(&s, 40) : sim_random(&s, 400));
        for (int a = 0; a < 3; a++)
            if (!sim_agent_alive(&s, a) && sim_random(&s, 4) == 0)
                sim_agent_start(&s, a);
    }
    s.network.lose = s.network.late = s.network.twice = 0;
    for (int a = 0; a < 3; a++) {
        sim_drain(&s, a, true);
        if (!sim_agent_alive(&s, a))
            sim_agent_start(&s, a);
    }
    sim_run_ms(&s, 4000);
    if (!sim_run_until(&s, sim_quiet, 120000))
        fail_msg("seed %llu: requests hang", (unsigned long long)seed);
    sim_run_ms(&s, 30000); /* whatever was lost has been given up */
    serves_and_is_clean(&s, 60000);
    sim_ask_wait(&s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL);
    const json_t *h = json_object_get(s.answer, "handoffs");
    t->moved += (uint64_t)json_integer_value(json_object_get(h, "moved"));
    for (int i = 0; i < s.n_clients; i++)
        t->finished += s.clients[i].finished;
    sim_close(&s);
}

TEST(tokens_are_those_of_an_undisturbed_run_whatever_breaks_meanwhile)
{
    struct seed_range seeds = seeds_of(9000);
    struct rebalance_toll t = {0};
    for (uint64_t i = 0; i < seeds.n; i++)
        one_run(seeds.first + i, &t);
    printf("# %llu seeds: %llu sequences moved, %llu requests finished\n",
           (unsigned long long)seeds.n, (unsigned long long)t.moved,
           (unsigned long long)t.finished);
    assert_true(seeds.n < 100 || (t.finished > 5 * seeds.n && t.moved > seeds.n / 10));
}

/* ---- what becomes slow ---- */

/* As measured, and with links that are, on the planner's place. */
static struct deployment *deploy_profiled(struct sim *s, uint64_t seed, const char *agents)
{
    sim_open(s, seed, 3);
    s->as_profiled = true;
    s->profile_ms = 1000;
    s->network.slow_ns = 50000;
    sim_coordinator_kill(s);
    sim_coordinator_start(s);
    sim_run_ms(s, 3000);
    deploy(s, agents);
    sim_run_ms(s, 60000); /* meanwhile links are measured */
    return deployment_find(s->core, "toy");
}

/* One prompt after the other, for so long or until `done` says so. When, in seconds. */
static double ask_on(struct sim *s, double limit_s, bool (*done)(struct sim *s))
{
    uint64_t begun_ns = s->clock.now_ns;
    double at_s = 0;
    while (at_s < limit_s && !(done && done(s))) {
        s->n_clients = 0; /* all have ended */
        request(s, 80 + sim_random(s, 40), 1 + sim_random(s, 4));
        all_finished(s, 60000);
        sim_run_ms(s, sim_random(s, 400));
        at_s = (double)(s->clock.now_ns - begun_ns) * 1e-9;
    }
    return at_s;
}

static int layers_on(struct sim *s, int agent)
{
    const struct deployment *d = deployment_find(s->core, "toy");
    int n = 0;
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].agent->name[1] - '0' == agent)
            n += d->stages[i].end_layer - d->stages[i].first_layer;
    return n;
}

static int slow_agent, slow_layers; /* who has become slow, and what it had then */

static bool slow_has_less(struct sim *s)
{
    return sim_serves(s) && layers_on(s, slow_agent) < slow_layers;
}

static void become_slow(struct sim *s, double times)
{
    const struct deployment *d = deployment_find(s->core, "toy");
    slow_agent = d->stages[sim_random(s, (uint64_t)d->n_stages)].agent->name[1] - '0';
    slow_layers = layers_on(s, slow_agent);
    s->slow[slow_agent] = times;
}

/* And stays there, whatever noise there is. */
TEST(an_agent_that_became_ten_times_slower_is_left_within_30_s)
{
    double longest_s = 0;
    for (uint64_t seed = 500; seed < 512; seed++) {
        struct sim s;
        deploy_profiled(&s, seed, NULL);
        s.noise = 0.3;
        ask_on(&s, 10, NULL);
        become_slow(&s, 10);
        double took_s = ask_on(&s, 60, slow_has_less);
        if (took_s > 30)
            fail_msg("seed %llu: %.1f s, of %d layers %d", (unsigned long long)seed, took_s,
                     slow_layers, layers_on(&s, slow_agent));
        longest_s = took_s > longest_s ? took_s : longest_s;
        sim_run_ms(&s, 5000); /* the place before is left */
        uint64_t id = deployment_find(s.core, "toy")->id;
        ask_on(&s, 120, NULL);
        assert_int_equal(deployment_find(s.core, "toy")->id, id);
        is_clean_of(&s, "toy", 1000);
        sim_close(&s);
    }
    printf("# left after %.1f s at most\n", longest_s);
}

TEST(a_short_slowness_noise_and_a_place_by_name_are_no_reason_to_move)
{
    static const struct {
        const char *agents;
        double times, noise, slow_s;
    } cases[] = {{NULL, 1, 2, 60}, {NULL, 2, 0.3, 60}, {NULL, 10, 0.3, 11}, {"a1", 10, 0.3, 60}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 600; seed < 604; seed++) {
            struct sim s;
            uint64_t id = deploy_profiled(&s, seed, cases[i].agents)->id;
            s.noise = cases[i].noise;
            ask_on(&s, 10, NULL);
            become_slow(&s, cases[i].times);
            ask_on(&s, cases[i].slow_s, NULL);
            s.slow[slow_agent] = 1;
            ask_on(&s, 60, NULL);
            if (deployment_find(s.core, "toy")->id != id)
                fail_msg("seed %llu: %.0f times as slow for %.0f s is left",
                         (unsigned long long)seed, cases[i].times, cases[i].slow_s);
            /* Nor does anybody look for another place any more. */
            assert_int_equal(degraded_hash(deployment_find(s.core, "toy")).which, 0);
            sim_close(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_runs_goes_to_the_better_place_and_no_token_is_lost),
        cmocka_unit_test(tokens_are_those_of_an_undisturbed_run_whatever_breaks_meanwhile),
        cmocka_unit_test(an_agent_that_became_ten_times_slower_is_left_within_30_s),
        cmocka_unit_test(a_short_slowness_noise_and_a_place_by_name_are_no_reason_to_move),
    };
    return cmocka_run_group_tests_name("rebalance", tests, NULL, NULL);
}
