/* Agents with several devices: one agent holds several stages of one deployment, and of several. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster.h"
#include "tests/test.h"

static void deploy(struct sim *s, const char *agents, const char *layers, uint64_t slice)
{
    int rc = sim_deploy(s, agents, layers, slice);
    if (rc < 0)
        fail_msg("%s", s->answer_error.text);
}

static struct sim_client *request_of(struct sim *s, const char *name, size_t n, size_t max)
{
    struct err e = {0};
    struct sim_client *c = sim_request_of(s, name, n, max, &e);
    if (!c)
        fail_msg("%s", e.text);
    return c;
}

static const char *stage_text(const struct sim *s, size_t stage, const char *key)
{
    const json_t *stages = json_object_get(s->answer, "stages");
    return json_string_value(json_object_get(json_array_get(stages, stage), key));
}

static bool second_serves(struct sim *s)
{
    return sim_serves_name(s, "second");
}

TEST(the_same_tokens_over_devices_of_one_agent_and_of_two)
{
    static const struct {
        const char *agents;
        size_t stages;
    } cases[] = {
        {"a0", 3},    {"a0/cpu1", 1}, {"a0/cpu2,a0/cpu0", 2}, {"a0/cpu1,a1/cpu0,a0/cpu2", 3},
        {"a1,a0", 6}, {NULL, 0}};
    static const uint64_t slices[] = {0, 1, 7};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < 3; k++) {
            struct sim s;
            sim_open_devices(&s, 700 + i * 3 + k, 2, 3);
            deploy(&s, cases[i].agents, NULL, slices[k]);
            if (cases[i].stages)
                assert_int_equal(json_array_size(json_object_get(s.answer, "stages")),
                                 cases[i].stages);
            struct sim_client *c = request_of(&s, "toy", 1 + i * 25, 24);
            assert_true(sim_run_until(&s, sim_quiet, 30000));
            assert_true(c->finished);
            assert_int_equal(s.wrong, 0);
            sim_run_ms(&s, 100);
            assert_int_equal(sim_leftovers(&s), 0);
            sim_close(&s);
        }
}

TEST(layers_lie_on_the_devices_that_were_named)
{
    struct sim s;
    sim_open_devices(&s, 720, 2, 2);
    deploy(&s, NULL, "0-2:a0/cpu1,3-3:a1/cpu0,4-9:a0/cpu0", 0);
    assert_string_equal(stage_text(&s, 0, "on"), "a0/cpu1");
    assert_string_equal(stage_text(&s, 1, "device"), "cpu0");
    assert_string_equal(stage_text(&s, 2, "agent"), "a0");
    assert_int_equal(sim_ask_wait(&s, "node.describe", json_pack("{s:s}", "name", "a0"), NULL), 0);
    assert_int_equal(json_array_size(json_object_get(s.answer, "devices")), 2);
    assert_int_equal(json_array_size(json_object_get(s.answer, "stages")), 2);
    assert_string_equal(stage_text(&s, 1, "device"), "cpu0");
    sim_close(&s);
}

TEST(a_device_that_there_is_not_or_is_named_twice_is_refused)
{
    static const struct {
        const char *agents, *layers, *why;
    } cases[] = {
        {"a0/cpu7", NULL, "no device \"a0/cpu7\""},
        {"a0,a0/cpu1", NULL, "\"a0/cpu1\" is named twice"},
        {NULL, "0-9:a0", "agent \"a0\" has 2 devices"},
    };
    struct sim s;
    sim_open_devices(&s, 730, 1, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(sim_deploy(&s, cases[i].agents, cases[i].layers, 0) < 0);
        if (!strstr(s.answer_error.text, cases[i].why))
            fail_msg("%zu: %s", i, s.answer_error.text);
    }
    sim_close(&s);
}

TEST(two_deployments_share_the_devices_of_one_agent)
{
    struct sim s;
    sim_open_devices(&s, 740, 1, 2);
    deploy(&s, "a0", NULL, 8);
    sim_deploy_as(&s, "second", "a0/cpu1,a0/cpu0");
    assert_true(sim_run_until(&s, second_serves, 30000));
    for (int i = 0; i < 12; i++)
        request_of(&s, i % 2 ? "second" : "toy", 20 + (size_t)i, 20);
    assert_true(sim_run_until(&s, sim_quiet, 60000));
    for (int i = 0; i < s.n_clients; i++)
        assert_true(s.clients[i].finished);
    assert_int_equal(s.wrong, 0);
    /* One goes, the other stays. */
    assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy"), NULL), 0);
    struct sim_client *c = request_of(&s, "second", 30, 20);
    assert_true(sim_run_until(&s, sim_quiet, 30000));
    assert_true(c->finished);
    sim_run_ms(&s, 1000);
    assert_int_equal(sim_leftovers(&s), 0);
    sim_close(&s);
}

/* Whatever dies, streams go on when it is back. */
TEST(agents_with_devices_are_killed_and_come_back)
{
    for (uint64_t seed = 750; seed < 770; seed++) {
        struct sim s;
        int victim = (int)(seed % 2);
        sim_open_devices(&s, seed, 2, 2);
        deploy(&s, seed % 4 < 2 ? "a0,a1" : "a1/cpu1,a0/cpu0,a1/cpu0,a0/cpu1", NULL, 8);
        struct sim_client *c = request_of(&s, "toy", 100, 60);
        sim_run_ms(&s, 1 + seed % 40);
        sim_agent_kill(&s, victim);
        sim_run_ms(&s, 3000);
        assert_false(c->failed);
        sim_agent_start(&s, victim);
        assert_true(sim_run_until(&s, sim_quiet, 10000));
        assert_true(c->finished);
        c = request_of(&s, "toy", 50, 20);
        assert_true(sim_run_until(&s, sim_quiet, 30000));
        if (!c->finished)
            fail_msg("seed %llu: %s", (unsigned long long)seed, c->why.text);
        sim_run_ms(&s, 1000);
        assert_int_equal(s.wrong, 0);
        assert_int_equal(sim_leftovers(&s), 0);
        sim_close(&s);
    }
}

/* Orders of a generation come once more behind those of the next (cluster_orders.c), while stages
 * of both are there, and when none is any more: whoever obeyed one would end the run. */
TEST(no_order_of_an_old_term_is_obeyed)
{
    uint64_t old_orders = 0;
    for (uint64_t seed = 770; seed < 780; seed++) {
        struct sim s;
        sim_open_devices(&s, seed, 2, 2);
        deploy(&s, seed % 2 ? "a0,a1" : "a1/cpu1,a0/cpu0,a1/cpu0,a0/cpu1", NULL, 8);
        request_of(&s, "toy", 100, 60);
        for (int i = 0; i < 2; i++) {
            sim_run_ms(&s, 1 + seed % 40);
            sim_agent_kill(&s, 1);
            sim_run_ms(&s, 3000);
            sim_agent_start(&s, 1);
            sim_run_ms(&s, 3000);
        }
        assert_true(sim_run_until(&s, sim_quiet, 30000));
        assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy"), NULL), 0);
        sim_run_ms(&s, 1000);
        assert_int_equal(s.wrong, 0);
        assert_int_equal(sim_leftovers(&s), 0);
        old_orders += s.old_orders;
        sim_close(&s);
    }
    printf("# %llu old orders came\n", (unsigned long long)old_orders);
    assert_true(old_orders >= 50);
}

TEST(a_hung_device_ends_its_streams_and_names_its_stage)
{
    struct sim s;
    sim_open_devices(&s, 780, 1, 2);
    deploy(&s, "a0", NULL, 8);
    struct sim_client *c = request_of(&s, "toy", 100, 60);
    sim_executor_hang(&s, 0, true);
    assert_true(sim_run_until(&s, sim_quiet, 600000));
    assert_true(c->failed);
    assert_non_null(strstr(c->why.text, "stage"));
    sim_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens_over_devices_of_one_agent_and_of_two),
        cmocka_unit_test(layers_lie_on_the_devices_that_were_named),
        cmocka_unit_test(a_device_that_there_is_not_or_is_named_twice_is_refused),
        cmocka_unit_test(two_deployments_share_the_devices_of_one_agent),
        cmocka_unit_test(agents_with_devices_are_killed_and_come_back),
        cmocka_unit_test(no_order_of_an_old_term_is_obeyed),
        cmocka_unit_test(a_hung_device_ends_its_streams_and_names_its_stage),
    };
    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
