/* What becomes of sequences when frames are lost, come twice, late and out of order, and when
 * posting them fails: each has an end, in its tokens or with a reason, within its time, and nobody
 * who is not concerned waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/failures.h"

/* Thirty seconds, ten times what a batch should take, and what the executor had before it. */
enum {
    SEQUENCE_LIMIT_MS = 45000,
    LOSSES = 10 /* that a sequence outlives, and more between tokens */
};

static void is_clean(struct sim *s)
{
    memset(&s->network.lose, 0, 4 * sizeof(double));
    sim_run_ms(s, 5000);
    is_clean_of(s, "toy", 12000);
}

TEST(a_frame_that_is_lost_is_noticed_in_its_time_and_names_who_was_heard)
{
    struct sim s;
    sim_open(&s, 1, 3);
    deploy(&s, "a0,a1,a2");
    struct err e = {0};
    struct sim_client *c = sim_request(&s, 60, 60, &e);
    assert_non_null(c);
    sim_run_ms(&s, 40);
    s.network.lose = 1;
    sim_run_ms(&s, 20);
    s.network.lose = 0;
    uint64_t from = s.clock.now_ns;
    assert_true(sim_run_until(&s, sim_quiet, SEQUENCE_LIMIT_MS));
    assert_true(c->finished);
    assert_true(s.clock.now_ns - from > 25000 * UINT64_C(1000000));
    assert_int_equal(sim_described(&s, "losses", "recovered"), 1);
    const char *why =
        json_string_value(json_object_get(json_object_get(s.answer, "losses"), "last_why"));
    assert_non_null(strstr(why, "left stage 0"));
    assert_non_null(strstr(why, "stage 2, the last, was last heard"));
    is_clean(&s);
    sim_close(&s);
}

TEST(frames_that_come_twice_and_late_change_no_token)
{
    for (uint64_t seed = 10; seed < 30; seed++) {
        struct sim s;
        struct err e = {0};
        sim_open(&s, seed, 3);
        deploy(&s, "a0,a1,a2");
        s.network.twice = 0.3;
        s.network.late = 0.1;
        s.network.late_ns = 40 * UINT64_C(1000000);
        for (int i = 0; i < 6; i++)
            sim_request(&s, 10 + 15 * (size_t)i, 30, &e);
        assert_true(sim_run_until(&s, sim_quiet, SEQUENCE_LIMIT_MS));
        for (int i = 0; i < s.n_clients; i++)
            if (!s.clients[i].finished)
                fail_msg("seed %llu: %s", (unsigned long long)seed, s.clients[i].why.text);
        is_clean(&s);
        sim_close(&s);
    }
}

TEST(a_post_that_fails_ends_what_was_on_the_link_at_once)
{
    struct sim s;
    struct err e = {0};
    sim_open(&s, 2, 3);
    deploy(&s, "a0,a1,a2");
    struct sim_client *c = sim_request(&s, 60, 60, &e);
    sim_run_ms(&s, 40);
    s.network.refuse = 1;
    sim_run_ms(&s, 500);
    assert_int_equal(sim_described(&s, "losses", "sequences"), 1);
    assert_non_null(
        strstr(json_string_value(json_object_get(json_object_get(s.answer, "losses"), "last_why")),
               "link"));
    s.network.refuse = 0;
    all_finished(&s, 10000);
    assert_true(c->finished);
    is_clean(&s);
    sim_close(&s);
}

struct frames_toll {
    unsigned finished, failed, cancelled;
    uint64_t frames, lost;
};

/* Requests come and go while the network misbehaves; each ends in its time from when it began,
 * however many others there are. */
static void one_run(uint64_t seed, struct frames_toll *t)
{
    static const char *const agents[] = {"a0,a1,a2", "a2,a0", "a1,a2,a0", "a0,a2,a1"};
    struct sim s;
    struct err e;
    sim_open(&s, seed, 3);
    s.scored = seed % 2;
    deploy(&s, agents[sim_random(&s, 4)]);
    s.network.slow_ns = 1000000 * (1 + sim_random(&s, 30));
    s.network.lose = sim_random(&s, 2) ? 0.004 : 0;
    s.network.twice = 0.02;
    s.network.late = 0.02;
    s.network.late_ns = 1000000 * sim_random(&s, 3000);
    s.network.refuse = sim_random(&s, 3) ? 0 : 0.001;
    for (int i = 0; i < 24; i++) {
        sim_run_ms(&s, sim_random(&s, 400));
        sim_request(&s, 1 + sim_random(&s, TOY_CONTEXT - 70), 1 + sim_random(&s, 60), &e);
        if (sim_random(&s, 4) == 0 && s.n_clients)
            sim_cancel(&s, &s.clients[sim_random(&s, (uint64_t)s.n_clients)]);
    }
    /* Who loses frames is read anew, some LOSSES times, each time up to its limit. */
    if (!sim_run_until(&s, sim_quiet, LOSSES * SEQUENCE_LIMIT_MS))
        fail_msg("seed %llu: a sequence has no end", (unsigned long long)seed);
    is_clean(&s);
    for (int i = 0; i < s.n_clients; i++) {
        t->finished += s.clients[i].finished;
        t->failed += s.clients[i].failed;
        t->cancelled += s.clients[i].cancelled;
    }
    t->frames += s.frames_sent;
    t->lost += s.frames_lost;
    sim_close(&s);
}

TEST(every_sequence_has_an_end_whatever_becomes_of_its_frames)
{
    struct seed_range seeds = seeds_of(5000);
    struct frames_toll t = {0};
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.n; seed++)
        one_run(seed, &t);
    printf("# seeds %llu to %llu (HP_SEED=N replays one, HP_RUNS=N makes more): %u sequences "
           "finished, %u failed with a reason, %u were cancelled; %llu of %llu frames lost\n",
           (unsigned long long)seeds.first, (unsigned long long)(seeds.first + seeds.n - 1),
           t.finished, t.failed, t.cancelled, (unsigned long long)t.lost,
           (unsigned long long)t.frames);
    uint64_t n = seeds.n;
    assert_true(n < 100 || (t.finished > 5 * n && t.failed > n / 2 && t.cancelled > n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_that_is_lost_is_noticed_in_its_time_and_names_who_was_heard),
        cmocka_unit_test(frames_that_come_twice_and_late_change_no_token),
        cmocka_unit_test(a_post_that_fails_ends_what_was_on_the_link_at_once),
        cmocka_unit_test(every_sequence_has_an_end_whatever_becomes_of_its_frames),
    };
    return cmocka_run_group_tests_name("frames", tests, NULL, NULL);
}
