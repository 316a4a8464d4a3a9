/* Beginnings of prompts that another deployment of the model has, under virtual time: they are
 * fetched where that is sooner, and whatever breaks meanwhile, each request has the tokens of an
 * undisturbed run or a clean error. */
#include <stdio.h>

#include "coordinator/deployment.h"
#include "tests/sim/failures.h"

static uint64_t peer_figure(struct sim *s, const char *name)
{
    return sim_described(s, "prefix_peers", name);
}

static bool two_serve(struct sim *s)
{
    return sim_serves(s) && sim_serves_name(s, "second");
}

/* Two deployments of one model, one of which has read a prompt. */
static struct sim_client *replicas(struct sim *s, uint64_t seed, const char *one, const char *other,
                                   double bytes_per_s)
{
    struct err e = {0};
    sim_open(s, seed, 4);
    s->network.bytes_per_s = bytes_per_s;
    deploy(s, one);
    sim_deploy_as(s, "second", other);
    assert_true(sim_run_until(s, two_serve, 30000));
    sim_run_ms(s, 60000); /* meanwhile links are measured */
    struct sim_client *first = sim_request_of(s, "second", 130, 8, &e);
    assert_non_null(first);
    all_finished(s, 30000);
    return first;
}

TEST(a_beginning_that_a_replica_has_is_fetched_from_there)
{
    static const char *const sides[][2] = {{"a0", "a1"}, {"a0,a1", "a2,a3"}, {"a0,a1,a2", "a3"}};
    for (uint64_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        struct sim s;
        struct err e = {0};
        struct sim_client *first = replicas(&s, 400 + i, sides[i][0], sides[i][1], 0);
        uint64_t before = s.cached;
        assert_non_null(sim_request_after(&s, first, 145, 10, &e));
        all_finished(&s, 30000);
        assert_int_equal(peer_figure(&s, "fetched"), 1);
        assert_true(s.cached - before >= 128);
        before = s.cached; /* now it is here */
        assert_non_null(sim_request_after(&s, first, 146, 10, &e));
        all_finished(&s, 30000);
        assert_int_equal(peer_figure(&s, "fetched"), 1);
        assert_true(s.cached - before >= 128);
        is_clean_of(&s, "toy", 1000);
        sim_close(&s);
    }
}

/* Its own come first, and nobody is sent where a link has just broken. */
TEST(a_replica_where_others_wait_is_left_in_peace)
{
    for (int waits = 0; waits < 2; waits++) {
        struct sim s;
        struct err e = {0};
        struct sim_client *first = replicas(&s, 404, "a0", "a1", 0);
        struct deployment *second = deployment_find(s.core, "second");
        second->doubted_ns = UINT64_MAX;
        if (waits) {
            assert_non_null(sim_request_of(&s, "second", 60, 8, &e));
            assert_int_equal(second->n_waiting, 1);
            second->doubted_ns = 0; /* it is let in with the next step */
        }
        assert_non_null(sim_request_after(&s, first, 145, 10, &e));
        second->doubted_ns = 0;
        all_finished(&s, 30000);
        assert_int_equal(peer_figure(&s, "fetched"), 0);
        is_clean_of(&s, "toy", 1000);
        sim_close(&s);
    }
}

TEST(what_a_slow_link_would_bring_later_is_computed)
{
    struct sim s;
    struct err e = {0};
    struct sim_client *first = replicas(&s, 405, "a0", "a2,a3", 1e6);
    assert_non_null(sim_request_after(&s, first, 145, 10, &e));
    all_finished(&s, 30000);
    assert_int_equal(peer_figure(&s, "fetched"), 0);
    assert_int_equal(peer_figure(&s, "declined"), 1);
    assert_int_equal(s.frames_lost, 0);
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

TEST(a_replica_that_announces_and_never_sends_costs_time_alone)
{
    struct sim s;
    struct err e = {0};
    struct sim_client *first = replicas(&s, 410, "a0", "a1", 0);
    sim_executor_hang(&s, 1, true);
    assert_non_null(sim_request_after(&s, first, 145, 10, &e));
    all_finished(&s, 60000);
    assert_int_equal(peer_figure(&s, "fetched"), 0);
    assert_int_equal(sim_described(&s, "handoffs", "failed"), 1);
    sim_executor_hang(&s, 1, false);
    assert_true(sim_run_until(&s, two_serve, 60000));
    is_clean_of(&s, "toy", 1000);
    sim_close(&s);
}

/* Returns how many beginnings were fetched. */
static uint64_t replicas_run(uint64_t seed)
{
    struct sim s;
    struct err e = {0};
    replicas(&s, seed, "a0,a1", "a2,a3", 0);
    s.alike = 0.8;
    s.network.lose = seed % 3 ? 0 : 0.002;
    for (int i = 0; i < 24; i++) {
        sim_request_of(&s, sim_random(&s, 2) ? "toy" : "second", 70 + sim_random(&s, 60), 12, &e);
        sim_run_ms(&s, sim_random(&s, 60));
        if (i % 8 == 7 && seed % 2) {
            int victim = (int)sim_random(&s, 4);
            sim_agent_kill(&s, victim);
            sim_run_ms(&s, 100);
            sim_agent_start(&s, victim);
        }
    }
    assert_true(sim_run_until(&s, sim_quiet, 120000));
    s.network.lose = 0;
    assert_true(sim_run_until(&s, two_serve, 60000));
    for (int i = 0; i < s.n_clients; i++)
        if (!s.clients[i].finished && !s.clients[i].failed)
            fail_msg("seed %llu: a request has no end", (unsigned long long)seed);
    uint64_t fetched = peer_figure(&s, "fetched");
    is_clean_of(&s, "toy", 1000);
    is_clean_of(&s, "second", 1000);
    sim_close(&s);
    return fetched;
}

TEST(replicas_that_share_and_break_give_the_tokens_of_an_undisturbed_run)
{
    uint64_t fetched = 0;
    for (uint64_t seed = 500; seed < 530; seed++)
        fetched += replicas_run(seed);
    printf("# %llu beginnings fetched\n", (unsigned long long)fetched);
    assert_true(fetched > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beginning_that_a_replica_has_is_fetched_from_there),
        cmocka_unit_test(a_replica_where_others_wait_is_left_in_peace),
        cmocka_unit_test(what_a_slow_link_would_bring_later_is_computed),
        cmocka_unit_test(a_replica_that_announces_and_never_sends_costs_time_alone),
        cmocka_unit_test(replicas_that_share_and_break_give_the_tokens_of_an_undisturbed_run),
    };
    return cmocka_run_group_tests_name("prefix_peers", tests, NULL, NULL);
}
