/* Guessed tokens in a cluster: what is said is what an undisturbed run says, wherever an answer
 * ends and whatever breaks, and room and numbers are those of runs without. */
#include <string.h>

#include "tests/sim/failures.h"

static int setup(void **state)
{
    (void)state;
    toy_few_words = true;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    toy_few_words = false;
    return 0;
}

static json_int_t draft_count(struct sim *s, const char *key)
{
    assert_int_equal(
        sim_ask_wait(s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    return json_integer_value(json_object_get(json_object_get(s->answer, "speculation"), key));
}

static void open_with(struct sim *s, uint64_t seed, const char *agents, const char *speculate)
{
    sim_open(s, seed, 3);
    s->speculate = speculate;
    deploy(s, agents);
}

TEST(tokens_are_the_same_over_any_stages_and_answers_of_any_length)
{
    static const char *const agents[] = {"a0", "a1,a0", "a2,a0,a1"};
    for (size_t a = 0; a < 3; a++) {
        struct sim s;
        open_with(&s, 10 + a, agents[a], "lookup");
        for (size_t max = 1; max <= 40; max++) { /* answers end behind a guess, and before one */
            struct sim_client *c = request(&s, 1 + max * 2, max);
            if (max % 3 == 0)
                continue; /* beside the next one */
            assert_true(sim_run_until(&s, sim_quiet, 30000));
            assert_true(c->finished);
        }
        assert_true(sim_run_until(&s, sim_quiet, 30000));
        json_int_t drafts = draft_count(&s, "drafts"), right = draft_count(&s, "accepted");
        if (right < 20 || right >= drafts)
            fail_msg("%d guesses of %d were right", (int)right, (int)drafts);
        assert_int_equal(s.wrong, 0);
        sim_run_ms(&s, 100);
        assert_int_equal(sim_leftovers(&s), 0);
        sim_close(&s);
    }
}

/* Milliseconds of virtual time that an answer of 40 tokens takes, alone. */
static double answer_ms(const char *speculate)
{
    struct sim s;
    open_with(&s, 20, "a0,a1,a2", speculate);
    uint64_t ns = 0;
    for (int n = 0; n < 20; n++) {
        uint64_t from = s.clock.now_ns;
        request(&s, 60, 40);
        assert_true(sim_run_until(&s, sim_quiet, 30000));
        ns += s.clock.now_ns - from;
    }
    assert_int_equal(s.wrong, 0);
    assert_int_equal(draft_count(&s, "drafts") > 0, strcmp(speculate, "off") != 0);
    sim_close(&s);
    return (double)ns * 1e-6;
}

TEST(guesses_pay_where_stages_are_idle_without)
{
    double without = answer_ms("off"), with = answer_ms("auto");
    if (with > 0.95 * without)
        fail_msg("%.1f ms with guesses, %.1f without", with, without);
}

TEST(nothing_is_guessed_where_all_stages_are_busy_anyway)
{
    struct sim s;
    open_with(&s, 30, "a0,a1,a2", "auto");
    for (int i = 0; i < 8; i++)
        request(&s, 20, 40);
    sim_run_ms(&s, 20);
    json_int_t before = draft_count(&s, "drafts");
    sim_run_ms(&s, 10);
    assert_int_equal(draft_count(&s, "drafts"), before);
    assert_true(sim_run_until(&s, sim_quiet, 30000));
    assert_int_equal(s.wrong, 0);
    sim_close(&s);
}

TEST(a_second_turn_finds_what_was_guessed_in_the_first)
{
    struct sim s;
    open_with(&s, 40, "a0,a1,a2", "lookup");
    struct sim_client *c = NULL;
    struct err e;
    uint64_t cached = 0;
    for (int i = 0; i < 20 && !cached; i++) {
        c = request(&s, 66, 40);
        assert_true(sim_run_until(&s, sim_quiet, 10000));
        struct sim_client *again = sim_request_after(&s, c, 66 + c->n_got + 4, 20, &e);
        assert_non_null(again);
        assert_true(sim_run_until(&s, sim_quiet, 10000));
        cached = s.cached > 66 ? s.cached : 0;
    }
    assert_true(cached > 66); /* of the answer, too */
    assert_int_equal(s.missed, 0);
    assert_int_equal(s.wrong, 0);
    sim_close(&s);
}

/* Clients go away, links break and agents die while guesses are on their way. */
TEST(what_breaks_under_guesses_ends_cleanly)
{
    struct seed_range seeds = seeds_of(5000);
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.n / 4 + 1; seed++) {
        struct sim s;
        open_with(&s, seed, "a0,a1,a2", "lookup");
        s.network.twice = s.network.late = 0.02;
        s.network.late_ns = 3000000;
        for (int i = 0; i < 6; i++) {
            struct sim_client *c = request(&s, 1 + sim_random(&s, 90), 1 + sim_random(&s, 60));
            sim_run_ms(&s, sim_random(&s, 30));
            if (i == 1)
                sim_cancel(&s, c);
            if (i == 3 && seed % 3 == 0)
                sim_links_break(&s, (int)sim_random(&s, 3));
            if (i == 3 && seed % 3 == 1) {
                int victim = (int)sim_random(&s, 3);
                sim_agent_kill(&s, victim);
                sim_run_ms(&s, 4000);
                sim_agent_start(&s, victim);
                if (!sim_run_until(&s, sim_serves, 30000))
                    fail_msg("seed %llu: it does not serve", (unsigned long long)seed);
            }
        }
        if (!sim_run_until(&s, sim_quiet, 70000))
            fail_msg("seed %llu: a stream never ended", (unsigned long long)seed);
        serves_and_is_clean(&s, 30000);
        sim_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            tokens_are_the_same_over_any_stages_and_answers_of_any_length, setup, teardown),
        cmocka_unit_test_setup_teardown(guesses_pay_where_stages_are_idle_without, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_guessed_where_all_stages_are_busy_anyway, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_second_turn_finds_what_was_guessed_in_the_first, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_breaks_under_guesses_ends_cleanly, setup, teardown),
    };
    return cmocka_run_group_tests_name("speculation", tests, NULL, NULL);
}
