/* What chaos does and when; what its clients see. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hpctl/chaos_clients.h"
#include "hpctl/chaos_script.h"
#include "tests/test.h"

static struct chaos_options options_of(uint64_t seed)
{
    return (struct chaos_options){.seed = seed,
                                  .seconds = 100,
                                  .every_s = 3,
                                  .hold_s = 2,
                                  .delay_s = 0.05,
                                  .loss = 0.02,
                                  .kinds = (1u << CHAOS_KINDS) - 1,
                                  .n_agents = 4};
}

static bool is_of_coordinator(enum chaos_kind kind)
{
    return kind == CHAOS_KILL_COORDINATOR || kind == CHAOS_STOP_COORDINATOR ||
           kind == CHAOS_DISK_COORDINATOR;
}

TEST(faults_are_named_by_their_words)
{
    unsigned kinds;
    struct err e = {0};
    assert_int_equal(chaos_kinds_parse("kill", &kinds, NULL), 0);
    assert_int_equal(kinds, 1u << CHAOS_KILL);
    assert_int_equal(chaos_kinds_parse("disk,kill-coordinator,disk", &kinds, NULL), 0);
    assert_int_equal(kinds, 1u << CHAOS_DISK | 1u << CHAOS_KILL_COORDINATOR);
    for (int k = 0; k < CHAOS_KINDS; k++) {
        assert_int_equal(chaos_kinds_parse(chaos_words[k], &kinds, NULL), 0);
        assert_int_equal(kinds, 1u << k);
    }
    static const char *const bad[] = {"", "kil", "kills", "kill,", ",kill", "kill stop", "KILL"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(chaos_kinds_parse(bad[i], &kinds, &e), HP_EUSAGE);
    assert_non_null(strstr(e.text, "\"KILL\""));
}

TEST(a_script_has_one_fault_at_a_time_and_comes_again_with_its_seed)
{
    unsigned seen = 0, agents = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct chaos_options o = options_of(seed);
        struct chaos_script s, again;
        assert_int_equal(chaos_script_draw(&o, &s, NULL), 0);
        assert_int_equal(chaos_script_draw(&o, &again, NULL), 0);
        assert_true(s.n > 15 && s.n == again.n);
        assert_memory_equal(s.faults, again.faults, s.n * sizeof *s.faults);
        for (size_t i = 0; i < s.n; i++) {
            const struct chaos_fault *f = &s.faults[i];
            assert_true(f->for_s >= 1 && f->for_s <= 3 && f->at_s <= 98);
            assert_true(i == 0 || f->at_s >= f[-1].at_s + f[-1].for_s);
            assert_true(f->agent < 4 && (f->agent < 0) == is_of_coordinator(f->kind));
            assert_true(f->late_s == (f->kind == CHAOS_DELAY ? o.delay_s : 0));
            assert_true(f->lost == (f->kind == CHAOS_LOSS ? o.loss : 0));
            seen |= 1u << f->kind;
            agents |= f->agent < 0 ? 0 : 1u << f->agent;
        }
        chaos_script_free(&s);
        chaos_script_free(&again);
    }
    assert_int_equal(seen, (1u << CHAOS_KINDS) - 1);
    assert_int_equal(agents, 0xf);
}

/* A script that somebody noted by its seed is the same in later versions: each kind keeps its
 * number. */
TEST(a_seed_means_today_what_it_meant_before_there_were_faults_of_links)
{
    static const struct {
        unsigned kinds;
        enum chaos_kind kind[4];
        int agent[4];
        double at_s;
    } before[] = {
        {0xf, {CHAOS_STOP, CHAOS_DISK, CHAOS_STOP, CHAOS_KILL}, {0, 3, 2, 1}, 13.819374909},
        {0x3f,
         {CHAOS_SLOW, CHAOS_STOP_COORDINATOR, CHAOS_STOP, CHAOS_KILL},
         {0, -1, 2, 1},
         13.819374909},
        {0x1, {CHAOS_KILL, CHAOS_KILL, CHAOS_KILL, CHAOS_KILL}, {0, 3, 2, 1}, 13.819374909},
    };
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        struct chaos_options o = options_of(7);
        struct chaos_script s;
        o.kinds = before[i].kinds;
        assert_int_equal(chaos_script_draw(&o, &s, NULL), 0);
        for (size_t k = 0; k < 4; k++) {
            assert_int_equal(s.faults[k].kind, before[i].kind[k]);
            assert_int_equal(s.faults[k].agent, before[i].agent[k]);
        }
        assert_true(fabs(s.faults[3].at_s - before[i].at_s) < 1e-6);
        chaos_script_free(&s);
    }
}

TEST(a_script_without_room_for_a_fault_is_refused)
{
    struct chaos_options o = options_of(1);
    struct chaos_script s;
    struct err e = {0};
    o.seconds = 1;
    assert_int_equal(chaos_script_draw(&o, &s, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "1 s"));
    assert_null(s.faults);
}

enum { PROMPTS = 2, REQUESTS = 5 };

struct chaos_fixture {
    struct load_plan plan;
    struct load_result results[REQUESTS];
    struct load_run run;
    struct chaos_clients clients;
};

static void hear(struct chaos_fixture *f, size_t index, const char *text, double now_s)
{
    chaos_clients_hear(&f->clients, index, text, strlen(text), now_s);
}

/* Two prompts, whose answers are "abc" and "xyz". */
static void fixture_open(struct chaos_fixture *f)
{
    struct load_options o = {.prompt = {4, 4, false}, .answer = {3, 3, false}, .seed = 1};
    *f = (struct chaos_fixture){.clients.n_prompts = PROMPTS};
    assert_int_equal(load_plan_repeat(&o, PROMPTS, REQUESTS, &f->plan, NULL), 0);
    f->run = (struct load_run){.plan = &f->plan, .results = f->results};
    assert_int_equal(chaos_clients_begin(&f->clients, &f->run, true, NULL), 0);
    hear(f, 0, "ab", 1);
    hear(f, 0, "c", 9);
    hear(f, 1, "xyz", 9);
    assert_int_equal(chaos_clients_begin(&f->clients, &f->run, false, NULL), 0);
    assert_int_equal(f->clients.n_pauses, 0);
}

static void fixture_close(struct chaos_fixture *f)
{
    chaos_clients_free(&f->clients);
    load_plan_free(&f->plan);
}

TEST(an_answer_is_what_its_prompt_got_before_or_different)
{
    struct chaos_fixture f;
    fixture_open(&f);
    const enum load_outcome outcomes[REQUESTS] = {LOAD_DONE, LOAD_DONE, LOAD_FAILED, LOAD_OPEN,
                                                  LOAD_UNSENT};
    for (size_t i = 0; i < REQUESTS; i++)
        f.results[i].outcome = outcomes[i];
    hear(&f, 0, "a", 1);
    hear(&f, 0, "bc", 1);   /* whole */
    hear(&f, 1, "xy", 1);   /* cut short */
    hear(&f, 2, "ab", 1);   /* failed, and said nothing wrong */
    hear(&f, 3, "xyzz", 1); /* says more */
    struct chaos_counts c = chaos_clients_count(&f.clients);
    assert_true(c.whole == 2 && c.failed == 1 && c.open == 1 && c.refused == 0);
    assert_int_equal(c.different, 2);
    fixture_close(&f);
    fixture_open(&f);
    hear(&f, 0, "x", 1);
    assert_int_equal(chaos_clients_count(&f.clients).different, 1);
    fixture_close(&f);
}

TEST(a_fault_is_charged_with_the_longest_wait_that_it_falls_into)
{
    struct chaos_fixture f;
    struct chaos_fault fault = {.begun_s = 2, .healed_s = 3};
    fixture_open(&f);
    hear(&f, 0, "a", 1.9); /* however long the first took */
    hear(&f, 0, "b", 1.95);
    assert_true(chaos_clients_pause(&f.clients, &fault) == 0);
    hear(&f, 0, "c", 2.45);
    hear(&f, 1, "x", 2.9);
    hear(&f, 1, "y", 3.9);
    assert_true(fabs(chaos_clients_pause(&f.clients, &fault) - 1) < 1e-9);
    fault = (struct chaos_fault){.begun_s = 4, .healed_s = 5};
    assert_true(chaos_clients_pause(&f.clients, &fault) == 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_named_by_their_words),
        cmocka_unit_test(a_script_has_one_fault_at_a_time_and_comes_again_with_its_seed),
        cmocka_unit_test(a_seed_means_today_what_it_meant_before_there_were_faults_of_links),
        cmocka_unit_test(a_script_without_room_for_a_fault_is_refused),
        cmocka_unit_test(an_answer_is_what_its_prompt_got_before_or_different),
        cmocka_unit_test(a_fault_is_charged_with_the_longest_wait_that_it_falls_into),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
