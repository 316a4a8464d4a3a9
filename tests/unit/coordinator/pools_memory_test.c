/* Memory of agents that hold both: a plan of pools sees what deployments of language models hold,
 * these see what pools do, and refusals say how many bytes are missing. */
#include "tests/unit/coordinator/placement_fixture.h"
#include "tests/unit/coordinator/pools_fixture.h"

/* A device is cut into so many parts. */
static void parts_set(json_t *d, int parts)
{
    json_t *latency =
               json_object_get(json_object_get(json_object_get(d, "profiles"), "m"), "latency"),
           *tables;
    const char *kind;
    json_object_set_new(json_object_get(d, "workload"), "shares",
                        json_pack("{s:[i]}", "fast", parts));
    json_object_foreach(latency, kind, tables)
        json_object_set_new(json_object_get(tables, "b"), "share", json_pack("[i]", parts));
}

/* Two blocks of so many bytes of weights, on parts of devices. */
static const struct message_answer *apply_weighing_parts(struct fixture *f, double block_bytes,
                                                         int parts)
{
    json_t *d = json_loads(document_of(0.1), 0, NULL),
           *blocks =
               json_object_get(json_object_get(json_object_get(d, "profiles"), "m"), "layers");
    for (size_t i = 0; i < 2; i++)
        json_object_set_new(json_array_get(blocks, i), "param_bytes", json_real(block_bytes));
    if (parts > 1)
        parts_set(d, parts);
    char *text = json_dumps(d, 0), *arguments = malloc(strlen(text) + 40);
    sprintf(arguments, "{\"document\": %s}", text);
    const struct message_answer *a = fixture_ask(f, "apply", arguments, NULL);
    free(arguments);
    free(text);
    json_decref(d);
    return a;
}

static const struct message_answer *apply_weighing(struct fixture *f, double block_bytes)
{
    return apply_weighing_parts(f, block_bytes, 1);
}

/* The last answer that was no progress. */
static const struct message_answer *told(const struct fixture *f)
{
    for (size_t i = f->n_sent; i-- > 0;)
        if (f->sent[i].peer == ADMIN && f->sent[i].type == MESSAGE_ANSWER &&
            !f->sent[i].m.u.answer.more)
            return &f->sent[i].m.u.answer;
    return NULL;
}

static size_t stages_of(struct fixture *f)
{
    json_t *d = described(f), *plan = json_object_get(d, "next");
    plan = plan ? plan : json_object_get(d, "current");
    size_t n = json_array_size(json_object_get(plan, "shares"));
    json_decref(d);
    return n;
}

/* The model of the deployment is 2 GB with its context, that of the pools 2 GB in two blocks. */
TEST(a_plan_of_pools_sees_what_deployments_hold)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 3e9);
    assert_non_null(deploy(&f, "x", "{\"max_context\": 256}", NULL));
    apply_weighing(&f, 1e9);
    const struct message_answer *a = told(&f);
    assert_string_equal(a->code, "infeasible");
    assert_non_null(strstr(a->text, "bytes are missing"));
    assert_non_null(strstr(a->text, "beside what deployments hold"));
    assert_non_null(strstr(a->text, "need 2000000064 bytes"));
    assert_non_null(strstr(a->hint, "hpctl ps"));
    /* What fits beside it, is planned. */
    apply_weighing(&f, 4e8);
    assert_state(&f, "preparing");
    /* And all of it once the deployment has gone. */
    fixture_ask(&f, "undeploy", "{\"name\": \"x\"}", NULL);
    beats(&f, 1, 12000);
    apply_weighing(&f, 1e9);
    assert_state(&f, "preparing");
    fixture_close(&f);
}

TEST(a_deployment_sees_what_pools_hold)
{
    struct fixture f;
    const struct message_answer *a;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 3e9);
    apply_weighing(&f, 1e9);
    assert_state(&f, "preparing");
    assert_null(deploy(&f, "x", "{\"max_context\": 256}", &a));
    assert_string_equal(a->code, "infeasible");
    assert_non_null(strstr(a->text, "bytes are missing"));
    assert_non_null(strstr(a->text, "a0 1000.0 MB"));
    shares_ready(&f, 0);
    beats(&f, 1, 1000);
    assert_state(&f, "serving");
    assert_null(deploy(&f, "x", "{\"max_context\": 256}", &a));
    fixture_ask(&f, "pools.remove", "{}", NULL);
    beats(&f, 1, 1000);
    assert_state(&f, "none");
    assert_non_null(deploy(&f, "x", "{\"max_context\": 256}", NULL));
    fixture_close(&f);
}

/* Both halves of the device run all of the model, 2 GB: another 2 GB have room in 5. */
TEST(weights_that_shares_of_a_device_have_alike_count_once)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 5e9);
    apply_weighing_parts(&f, 1e9, 2);
    assert_state(&f, "preparing");
    assert_int_equal(stages_of(&f), 2);
    assert_non_null(deploy(&f, "x", "{\"max_context\": 256}", NULL));
    fixture_close(&f);
}

TEST(a_model_that_no_device_holds_is_cut_and_devices_with_less_are_left_out)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 1.5e9);
    apply_weighing(&f, 1e9);
    assert_non_null(strstr(told(&f)->text, "500000064 bytes are missing"));
    fixture_agent(&f, 1, "fast", 1.5e9);
    apply_weighing(&f, 1e9); /* one block each */
    assert_state(&f, "preparing");
    assert_int_equal(stages_of(&f), 2);
    fixture_agent(&f, 2, "fast", 4e9); /* the others do not hold what this one does */
    apply_weighing(&f, 1e9);
    assert_int_equal(stages_of(&f), 1);
    json_t *d = described(&f),
           *share = json_array_get(json_object_get(json_object_get(d, "next"), "shares"), 0);
    assert_int_equal(strncmp(json_string_value(json_object_get(share, "on")), "a2", 2), 0);
    assert_true(json_integer_value(json_object_get(share, "memory_bytes")) >= 2000000000);
    json_decref(d);
    fixture_close(&f);
}

/* A profile without weights: the files' bytes are dealt out evenly. */
TEST(weights_that_a_profile_does_not_know_are_those_of_the_files)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "fast", 100);
    apply(&f, 0.1);
    assert_non_null(strstr(told(&f)->text, "need 164 bytes"));
    fixture_agent(&f, 1, "fast", 116);
    apply(&f, 0.1);
    assert_state(&f, "preparing");
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_plan_of_pools_sees_what_deployments_hold, prepare_facts),
        cmocka_unit_test_setup(a_deployment_sees_what_pools_hold, prepare_facts),
        cmocka_unit_test_setup(weights_that_shares_of_a_device_have_alike_count_once,
                               prepare_facts),
        cmocka_unit_test(a_model_that_no_device_holds_is_cut_and_devices_with_less_are_left_out),
        cmocka_unit_test(weights_that_a_profile_does_not_know_are_those_of_the_files),
    };
    return cmocka_run_group_tests_name("pools_memory", tests, NULL, NULL);
}
