#include <stdlib.h>
#include <string.h>

#include "agent/engine/drafts.h"
#include "common/env.h"
#include "tests/test.h"

enum { MOST = 4096 };

static struct drafts *drafts_of(const uint32_t *prompt, size_t n)
{
    struct drafts *d = drafts_create(prompt, n, MOST);
    assert_non_null(d);
    return d;
}

/* A step of a sequence that goes on with `truth`: what it gives, up to `left` tokens. */
static uint32_t step(struct drafts *d, struct draft_costs *c, const uint32_t *truth, uint32_t left,
                     double (*seconds)(uint32_t n_drafts), double *took)
{
    const uint32_t *made;
    uint32_t n = drafts_make(d, c, left ? left - 1 : 0, &made), right = 0;
    assert_true(n < (left ? left : 1));
    while (right < n && made[right] == truth[right])
        right++;
    for (uint32_t k = 0; k <= right; k++)
        drafts_token(d, truth[k]);
    if (n)
        drafts_judge(d, n, right);
    draft_costs_add(c, n, seconds(n));
    *took += seconds(n);
    return right + 1;
}

static double cheap(uint32_t n_drafts)
{
    return 0.010 + 0.0002 * n_drafts;
}

static double dear(uint32_t n_drafts)
{
    return 0.010 * (1 + n_drafts);
}

/* How many times faster `n` tokens of truth come than one a step. */
static double speed_of(const uint32_t *truth, uint32_t n, double (*seconds)(uint32_t n_drafts))
{
    struct draft_costs c = {0};
    struct drafts *d = drafts_of(truth, 8);
    double took = 0;
    for (uint32_t at = 8; at < n;)
        at += step(d, &c, truth + at, n - at, seconds, &took);
    drafts_destroy(d);
    return (n - 8) * seconds(0) / took;
}

static uint32_t text[MOST];

/* Words from a vocabulary of so many; `period`: what it repeats, 0: nothing. */
static void text_make(uint64_t seed, uint32_t vocabulary, uint32_t period)
{
    for (uint32_t i = 0; i < MOST; i++)
        text[i] =
            period && i >= period ? text[i - period] : (uint32_t)(random_next(&seed) % vocabulary);
}

TEST(what_followed_before_is_guessed_to_follow_again)
{
    static const uint32_t prompt[] = {1, 2, 3, 4, 5, 6, 9, 2, 3, 4};
    const uint32_t *made;
    struct draft_costs c = {0};
    struct drafts *d = drafts_of(prompt, 10);
    assert_int_equal(drafts_make(d, &c, 2, &made), 0); /* a step without is measured first */
    draft_costs_add(&c, 0, 0.01);
    uint32_t n = drafts_make(d, &c, 2, &made);
    assert_int_equal(n, 2);
    assert_int_equal(made[0], 5);
    assert_int_equal(made[1], 6);
    assert_ptr_equal(drafts_made(d, &n), made);
    assert_int_equal(n, 2);
    assert_int_equal(drafts_make(d, &c, 0, &made), 0); /* none is wanted */
    drafts_token(d, 7);
    assert_int_equal(drafts_make(d, &c, 2, &made), 0); /* 7 stood nowhere */
    drafts_destroy(d);
}

TEST(what_goes_round_is_guessed_beyond_its_end)
{
    static const uint32_t prompt[] = {8, 1, 2, 1, 2, 1, 2};
    const uint32_t *made;
    struct drafts *d = drafts_of(prompt, 7);
    for (int i = 0; i < 20; i++) { /* all right: more are made */
        uint32_t n = drafts_make(d, NULL, BATCH_MAX_DRAFTS, &made);
        assert_true(n > 0);
        for (uint32_t k = 0; k < n; k++)
            assert_int_equal(made[k], k % 2 ? 2 : 1);
        drafts_judge(d, n, n);
    }
    assert_int_equal(drafts_make(d, NULL, 100, &made), BATCH_MAX_DRAFTS);
    drafts_destroy(d);
}

TEST(text_that_repeats_comes_faster_and_no_other_slower)
{
    static const struct {
        uint32_t vocabulary, period;
        double (*seconds)(uint32_t);
        double least;
    } cases[] = {
        {32000, 50, cheap, 5},   {32000, 1, cheap, 5},    {4, 0, cheap, 1.0},
        {32000, 0, cheap, 0.99}, {32000, 50, dear, 0.97}, {4, 0, dear, 0.97},
        {2, 0, dear, 0.97},      {32000, 0, dear, 0.99},  {64, 0, dear, 0.97},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 1; seed <= 5; seed++) {
            text_make(seed, cases[i].vocabulary, cases[i].period);
            double speed = speed_of(text, MOST, cases[i].seconds);
            if (speed < cases[i].least)
                fail_msg("case %zu, seed %d: %.3f times as fast", i, (int)seed, speed);
        }
}

TEST(what_a_step_takes_is_put_between_what_was_measured)
{
    struct draft_costs c = {0};
    assert_true(draft_costs_of(&c, 0) == 1 && draft_costs_of(&c, 10) > 1);
    for (int i = 0; i < 100; i++) {
        draft_costs_add(&c, 0, 0.010);
        draft_costs_add(&c, 3, 0.016);
        draft_costs_add(&c, 7, i == 50 ? 5 : 0.032); /* once the box was busy */
    }
    assert_float_equal(draft_costs_of(&c, 0), 1, 1e-9);
    assert_float_equal(draft_costs_of(&c, 3), 1.6, 1e-9);
    assert_float_equal(draft_costs_of(&c, 7), 3.2, 0.01);
    assert_float_equal(draft_costs_of(&c, 1), 1.2, 1e-9);
    assert_float_equal(draft_costs_of(&c, 5), 2.4, 0.01);
    assert_true(draft_costs_of(&c, BATCH_MAX_DRAFTS) > 4);
    for (int i = 0; i < 1000; i++)
        draft_costs_add(&c, 0, 0.010);
    assert_true(draft_costs_of(&c, 7) < 1.5); /* long ago: it is tried again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_before_is_guessed_to_follow_again),
        cmocka_unit_test(what_goes_round_is_guessed_beyond_its_end),
        cmocka_unit_test(text_that_repeats_comes_faster_and_no_other_slower),
        cmocka_unit_test(what_a_step_takes_is_put_between_what_was_measured),
    };
    return cmocka_run_group_tests_name("drafts", tests, NULL, NULL);
}
