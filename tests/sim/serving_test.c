/* What the cluster does when nothing breaks: membership, deployment, tokens, slices, back-pressure,
 * drain. */
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "tests/sim/cluster.h"
#include "tests/test.h"

static void deploy(struct sim *s, const char *agents, const char *layers, uint64_t slice)
{
    int rc = sim_deploy(s, agents, layers, slice);
    if (rc < 0)
        fail_msg("%s", s->answer_error.text);
    assert_true(sim_serves(s));
}

static struct sim_client *request(struct sim *s, size_t n, size_t max)
{
    struct err e = {0};
    struct sim_client *c = sim_request(s, n, max, &e);
    if (!c)
        fail_msg("%s", e.text);
    return c;
}

TEST(same_tokens_over_any_stages_and_slices)
{
    static const char *const agents[] = {"a0", "a1,a0", "a2,a0,a1", "a3,a1,a0,a2", NULL};
    static const uint64_t slices[] = {0, 1, 7, 64};
    for (size_t a = 0; a < 5; a++)
        for (size_t k = 0; k < 4; k++) {
            struct sim s;
            sim_open(&s, 100 + a * 4 + k, 4);
            deploy(&s, agents[a], NULL, slices[k]);
            struct sim_client *c = request(&s, 1 + a * 30, 24);
            assert_true(sim_run_until(&s, sim_quiet, 30000));
            assert_true(c->finished);
            assert_int_equal(s.wrong, 0);
            sim_run_ms(&s, 100);
            assert_int_equal(sim_leftovers(&s), 0);
            sim_close(&s);
        }
}

TEST(layers_lie_where_they_were_asked_for)
{
    struct sim s;
    sim_open(&s, 1, 3);
    deploy(&s, NULL, "0-2:a1,3-3:a0,4-9:a2", 0);
    const json_t *stages = json_object_get(s.answer, "stages");
    assert_int_equal(json_array_size(stages), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(stages, 0), "agent")),
                        "a1");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(stages, 1), "first_layer")),
                     3);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(stages, 1), "last_layer")),
                     3);
    request(&s, 50, 10);
    assert_true(sim_run_until(&s, sim_quiet, 10000));
    assert_int_equal(s.wrong, 0);
    sim_close(&s);
}

TEST(many_at_once_share_the_stages_and_queue_for_room)
{
    struct sim s;
    sim_open(&s, 2, 3);
    deploy(&s, "a0,a1,a2", NULL, 16);
    for (int i = 0; i < 40; i++)
        request(&s, 1 + (size_t)sim_random(&s, 100), 1 + (size_t)sim_random(&s, 40));
    assert_true(coord_view(s.core).sequences_waiting > 0);
    assert_true(sim_run_until(&s, sim_quiet, 60000));
    for (int i = 0; i < s.n_clients; i++)
        assert_true(s.clients[i].finished);
    assert_int_equal(s.wrong, 0);
    sim_run_ms(&s, 100);
    assert_int_equal(sim_leftovers(&s), 0);
    sim_close(&s);
}

TEST(as_many_are_answered_at_once_as_asked_for)
{
    struct sim s;
    sim_open(&s, 12, 3);
    json_t *options = json_pack("{s:s, s:i}", "agents", "a0,a1,a2", "max_sequences", 12);
    assert_int_equal(sim_deploy_with(&s, "toy", options), 0);
    for (int i = 0; i < 20; i++)
        request(&s, 1 + (size_t)sim_random(&s, 60), 1 + (size_t)sim_random(&s, 40));
    assert_int_equal(coord_view(s.core).sequences_active, 12);
    assert_int_equal(coord_view(s.core).sequences_waiting, 8);
    assert_true(sim_run_until(&s, sim_quiet, 60000));
    for (int i = 0; i < s.n_clients; i++)
        assert_true(s.clients[i].finished);
    assert_int_equal(s.wrong, 0);
    sim_run_ms(&s, 100);
    assert_int_equal(sim_leftovers(&s), 0);
    sim_close(&s);
}

TEST(a_full_queue_refuses)
{
    struct sim s;
    struct err e = {0};
    sim_open(&s, 3, 1);
    deploy(&s, NULL, NULL, 0);
    for (int i = 0; i < COORD_MAX_WAITING_OF_CLIENT + 4; i++) {
        s.n_clients = 0; /* only the answer matters */
        assert_non_null(sim_request(&s, 100, 60, &e));
    }
    s.n_clients = 0;
    assert_null(sim_request(&s, 100, 60, &e));
    assert_int_equal(e.code, HP_EBUSY);
    sim_close(&s);
}

TEST(a_cancelled_request_is_freed_everywhere_within_a_step)
{
    struct sim s;
    sim_open(&s, 4, 3);
    deploy(&s, "a0,a1,a2", NULL, 4);
    struct sim_client *other = request(&s, 20, 40), *c = request(&s, 100, 60);
    sim_run_ms(&s, 12);
    sim_cancel(&s, c);
    sim_run_ms(&s, 20);
    assert_int_equal(coord_view(s.core).sequences_active, 1);
    assert_true(sim_run_until(&s, sim_quiet, 10000));
    assert_true(other->finished);
    sim_run_ms(&s, 100);
    assert_int_equal(sim_leftovers(&s), 0);
    assert_int_equal(s.wrong, 0);
    sim_close(&s);
}

TEST(prompts_that_do_not_fit_are_refused_with_both_lengths)
{
    struct sim s;
    struct err e = {0};
    sim_open(&s, 5, 2);
    deploy(&s, NULL, NULL, 0);
    assert_null(sim_request(&s, TOY_CONTEXT, 4, &e));
    assert_int_equal(e.code, HP_EINVAL);
    assert_non_null(strstr(e.text, "160 tokens"));
    assert_null(sim_request(&s, 0, 4, &e));
    assert_non_null(strstr(e.text, "empty"));
    struct sim_client *c = request(&s, TOY_CONTEXT - 1, 60); /* room for one token */
    assert_true(sim_run_until(&s, sim_quiet, 10000));
    assert_true(c->finished && c->n_got <= 1);
    sim_close(&s);
}

TEST(greedy_and_logits_run_on_live_agents)
{
    struct sim s;
    sim_open(&s, 6, 3);
    deploy(&s, "a0,a1,a2", NULL, 0);
    static const uint32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};
    uint32_t expected[12];
    toy_run(ids, 8, true, expected, 12);
    json_t *list = json_array();
    for (int i = 0; i < 8; i++)
        json_array_append_new(list, json_integer(ids[i]));
    assert_int_equal(sim_ask_wait(&s, "greedy",
                                  json_pack("{s:s, s:O, s:i, s:i}", "deployment", "toy", "ids",
                                            list, "tokens", 12, "slice", 3),
                                  NULL),
                     0);
    const json_t *got = json_object_get(s.answer, "ids");
    assert_int_equal(json_array_size(got), 12);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(json_integer_value(json_array_get(got, i)), expected[i]);
    assert_int_equal(
        sim_ask_wait(&s, "logits",
                     json_pack("{s:s, s:O, s:i}", "deployment", "toy", "ids", list, "slice", 3),
                     NULL),
        0);
    assert_int_equal(s.logits.size, 8 * TOY_VOCABULARY * sizeof(float));
    const float *last = (const float *)(const void *)s.logits.data + 7 * TOY_VOCABULARY;
    assert_true(last[expected[0]] > 0.5f);
    json_decref(list);
    sim_run_ms(&s, 50);
    assert_int_equal(sim_leftovers(&s), 0);
    sim_close(&s);
}

TEST(costs_are_measured_once_and_kept)
{
    struct sim s;
    sim_open(&s, 7, 2);
    s.profile_ms = 1000;
    sim_coordinator_kill(&s);
    sim_coordinator_start(&s);
    sim_run_ms(&s, 3000);
    uint64_t from = s.clock.now_ns;
    deploy(&s, "a0,a1", NULL, 0);
    assert_true(s.clock.now_ns - from > 300000000u);
    assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy"), NULL), 0);
    from = s.clock.now_ns;
    deploy(&s, "a0,a1", NULL, 0);
    assert_true(s.clock.now_ns - from < 300000000u);
    sim_close(&s);
}

TEST(weights_are_uploaded_once)
{
    struct sim s;
    sim_open(&s, 8, 3);
    deploy(&s, "a0,a1", NULL, 0);
    assert_int_equal(s.uploads, TOY_LAYERS);
    assert_int_equal(sim_ask_wait(&s, "undeploy", json_pack("{s:s}", "name", "toy"), NULL), 0);
    assert_false(sim_serves(&s));
    sim_run_ms(&s, 1000);
    assert_int_equal(sim_leftovers(&s), 0);
    deploy(&s, "a2,a1,a0", NULL, 0); /* from each other, from now on */
    assert_int_equal(s.uploads, TOY_LAYERS);
    sim_close(&s);
}

TEST(a_drained_agent_is_left_without_a_broken_stream)
{
    struct sim s;
    sim_open(&s, 9, 3);
    deploy(&s, NULL, NULL, 0);
    assert_int_equal(
        sim_ask_wait(&s, "deployment.describe", json_pack("{s:s}", "name", "toy"), NULL), 0);
    char used[32];
    snprintf(used, sizeof used, "%s",
             json_string_value(
                 json_object_get(json_array_get(json_object_get(s.answer, "stages"), 0), "agent")));
    struct sim_client *c = request(&s, 40, 40);
    sim_run_ms(&s, 5);
    assert_int_equal(sim_ask_wait(&s, "node.drain", json_pack("{s:s}", "name", used), NULL), 0);
    assert_true(sim_run_until(&s, sim_quiet, 30000));
    assert_true(c->finished);
    sim_run_ms(&s, 200);
    assert_true(sim_run_until(&s, sim_serves, 30000));
    assert_int_equal(sim_ask_wait(&s, "node.describe", json_pack("{s:s}", "name", used), NULL), 0);
    assert_int_equal(json_array_size(json_object_get(s.answer, "stages")), 0);
    request(&s, 40, 10);
    assert_true(sim_run_until(&s, sim_quiet, 10000));
    assert_int_equal(s.wrong, 0);
    sim_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_tokens_over_any_stages_and_slices),
        cmocka_unit_test(layers_lie_where_they_were_asked_for),
        cmocka_unit_test(many_at_once_share_the_stages_and_queue_for_room),
        cmocka_unit_test(as_many_are_answered_at_once_as_asked_for),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(a_cancelled_request_is_freed_everywhere_within_a_step),
        cmocka_unit_test(prompts_that_do_not_fit_are_refused_with_both_lengths),
        cmocka_unit_test(greedy_and_logits_run_on_live_agents),
        cmocka_unit_test(costs_are_measured_once_and_kept),
        cmocka_unit_test(weights_are_uploaded_once),
        cmocka_unit_test(a_drained_agent_is_left_without_a_broken_stream),
    };
    return cmocka_run_group_tests_name("serving", tests, NULL, NULL);
}
