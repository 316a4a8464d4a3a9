/* Targets of a deployment under virtual time: at five times the requests that can be answered in
 * time, as many are as at its peak, the others are told at once, and nobody is left without a word.
 */
#include <stdio.h>
#include <string.h>

#include "coordinator/deployment.h"
#include "tests/sim/failures.h"

enum { REQUESTS = 60, PROMPT = 60, ANSWER = 12 };
static const double ttft_s = 0.25, tpot_s = 0.012;

struct load_toll {
    int good, done, refused;
    double per_s; /* good ones, over the time in which requests came */
};

static void begin(struct sim *s, uint64_t seed, bool targets)
{
    sim_open(s, seed, 3);
    s->as_profiled = true;
    s->profile_ms = 1000;
    s->network.slow_ns = 50000;
    sim_coordinator_kill(s);
    sim_coordinator_start(s);
    sim_run_ms(s, 3000);
    json_t *options =
        json_pack("{s:s, s:s, s:i}", "agents", "a0,a1,a2", "prefix_cache", "off", "slice", 16);
    if (targets) {
        json_object_set_new(options, "ttft", json_real(ttft_s * 1e3));
        json_object_set_new(options, "tpot", json_real(tpot_s * 1e3));
    }
    sim_deploy_ask(s, "toy", options);
    assert_true(sim_run_until(s, sim_serves, 30000));
}

/* Requests that come evenly, so many a second. */
static struct load_toll load(struct sim *s, double per_s)
{
    struct load_toll t = {0};
    struct err e = {0};
    double at_ms = 0;
    s->n_clients = 0; /* of the load before, which have all ended */
    for (int i = 0; i < REQUESTS; i++) {
        if (!sim_request(s, PROMPT / 2 + sim_random(s, PROMPT), ANSWER, &e)) {
            assert_int_equal(e.code, HP_EBUSY);
            t.refused++;
        }
        double next_ms = at_ms + 1e3 / per_s;
        sim_run_ms(s, (uint64_t)next_ms - (uint64_t)at_ms);
        at_ms = next_ms;
    }
    assert_true(sim_run_until(s, sim_quiet, 120000));
    for (int i = 0; i < s->n_clients; i++) {
        const struct request_usage *u = &s->clients[i].usage;
        size_t after = s->clients[i].n_got > 1 ? s->clients[i].n_got - 1 : 1;
        t.done += s->clients[i].finished;
        if (!s->clients[i].finished) {
            assert_int_equal(s->clients[i].why.code, HP_EBUSY);
            t.refused++;
        } else if (u->waited_s + u->prefill_s <= ttft_s && u->decode_s <= tpot_s * (double)after)
            t.good++;
    }
    assert_int_equal(s->wrong, 0);
    t.per_s = t.good / (at_ms * 1e-3 + ttft_s); /* the last ones may take as long */
    return t;
}

/* The goodput of three such loads, after two in which it learned what it can do. */
static double goodput_at(double per_s, bool targets)
{
    struct sim s;
    double sum = 0;
    begin(&s, 11, targets);
    for (int i = 0; i < 5; i++) {
        struct load_toll t = load(&s, per_s);
        sum += i < 2 ? 0 : t.per_s;
    }
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
    printf("# %.0f/s %s targets: %.1f/s are good\n", per_s, targets ? "with" : "without", sum / 3);
    return sum / 3;
}

TEST(goodput_is_kept_at_five_times_the_load_that_it_can_do)
{
    double calm = goodput_at(25, true), full = goodput_at(40, true), over = goodput_at(125, true),
           peak = calm > full ? calm : full;
    assert_true(calm > 0.95 * goodput_at(25, false));
    assert_true(over > 0.95 * peak);
    assert_true(goodput_at(125, false) < 0.6 * peak);
}

/* Whatever it has learned of its speed, who asks where nothing runs is answered. */
TEST(nobody_is_refused_where_nothing_runs)
{
    struct sim s;
    struct err e = {0};
    begin(&s, 12, true);
    load(&s, 125);
    struct deployment *d = deployment_find(s.core, "toy");
    d->targets.read_s = 1000 * d->targets.plan_s;
    d->targets.most = 1;
    struct sim_client *alone = sim_request(&s, 2 * PROMPT, ANSWER, &e);
    assert_non_null(alone);
    assert_null(sim_request(&s, PROMPT, ANSWER, &e));
    assert_int_equal(e.code, HP_EBUSY);
    assert_non_null(strstr(e.text, "--ttft"));
    assert_true(sim_run_until(&s, sim_quiet, 10000));
    assert_true(alone->finished);
    sim_close(&s);
}

/* All of it would take nearly as long as there is, and what is not there yet next to nothing. What
 * such prompts take says nothing of others either. */
TEST(a_prompt_whose_beginning_is_there_is_let_in_as_what_it_is)
{
    struct sim s;
    struct err e = {0};
    begin(&s, 13, true);
    struct deployment *d = deployment_find(s.core, "toy");
    d->spec.prefix_cache = PREFIX_CACHE_ON;
    d->spec.ttft_s = 0.1;
    d->spec.tpot_s = 0;
    struct sim_client first = *sim_request(&s, 128, 1, &e);
    assert_true(sim_run_until(&s, sim_quiet, 10000));
    for (int i = 0; i < 60; i++) {
        assert_non_null(sim_request_after(&s, &first, 140, ANSWER, &e));
        sim_run_ms(&s, 50);
    }
    assert_non_null(sim_request(&s, PROMPT, ANSWER, &e));
    assert_null(sim_request(&s, 140, ANSWER, &e));
    assert_true(sim_run_until(&s, sim_quiet, 10000));
    for (int i = 1; i < s.n_clients; i++)
        assert_true(s.clients[i].usage.waited_s + s.clients[i].usage.prefill_s < d->spec.ttft_s);
    sim_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goodput_is_kept_at_five_times_the_load_that_it_can_do),
        cmocka_unit_test(a_prompt_whose_beginning_is_there_is_let_in_as_what_it_is),
        cmocka_unit_test(nobody_is_refused_where_nothing_runs),
    };
    return cmocka_run_group_tests_name("targets", tests, NULL, NULL);
}
