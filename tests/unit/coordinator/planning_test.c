/* Plans that are made elsewhere while the core goes on. */
#include "coordinator/placement.h"
#include "coordinator/planner_inputs.h"
#include "coordinator/profiles.h"
#include "tests/unit/coordinator/placement_fixture.h"

TEST(a_plan_is_made_elsewhere_and_holds_nobody_up)
{
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    f.holds_work = true;
    assert_non_null(deploy(&f, "x", "{\"max_context\": 512}", NULL));
    assert_string_equal(state_of(&f, "x"), "planning");
    assert_int_equal(f.n_held_work, 1);
    fixture_pass_ms(&f, 1000);
    fixture_beat(&f, 10, fixture_key(0));
    fixture_beat(&f, 11, fixture_key(1));
    assert_int_equal(f.n_held_work, 1); /* asked for once */
    struct deployment *d = deploy(&f, "y", "{\"max_context\": 512}", NULL);
    assert_string_equal(state_of(&f, "y"), "planning");
    fixture_work(&f);
    fixture_work(&f);
    assert_string_equal(state_of(&f, "x"), "preparing");
    assert_string_equal(state_of(&f, "y"), "preparing");
    assert_true(d->n_stages > 0);
    fixture_close(&f);
}

TEST(a_plan_under_which_something_has_changed_is_made_again)
{
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    f.holds_work = true;
    struct deployment *d = deploy(&f, "x", "{\"max_context\": 512}", NULL);
    /* Whichever agent it would have had: the other one, or neither of the two, is left. */
    fixture_ask(&f, "node.drain", "{\"name\": \"a0\"}", NULL);
    fixture_work(&f);
    assert_string_equal(state_of(&f, "x"), "planning");
    fixture_work(&f);
    assert_string_equal(state_of(&f, "x"), "preparing");
    assert_int_equal(d->n_stages, 1);
    assert_string_equal(d->stages[0].agent->name, "a1");
    fixture_close(&f);
}

TEST(two_plans_at_once_do_not_share_the_same_memory)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 2.5e9);
    f.holds_work = true;
    const struct message_answer *a;
    assert_non_null(deploy(&f, "x", "{\"max_context\": 512}", NULL));
    assert_non_null(deploy(&f, "y", "{\"max_context\": 512}", &a));
    for (int i = 0; i < 4; i++)
        fixture_work(&f);
    struct deployment *x = deployment_find(f.core, "x"), *y = deployment_find(f.core, "y");
    assert_true((x != NULL) != (y != NULL));
    assert_non_null(
        strstr(fixture_last(&f, ADMIN, MESSAGE_ANSWER)->u.answer.text, "bytes are missing"));
    fixture_close(&f);
}

TEST(what_is_undeployed_while_it_is_planned_is_gone)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 8e9);
    f.holds_work = true;
    assert_non_null(deploy(&f, "x", "{\"max_context\": 512}", NULL));
    fixture_ask(&f, "undeploy", "{\"name\": \"x\"}", NULL);
    assert_true(atomic_load(&f.held_work[0]->canceled));
    fixture_work(&f);
    assert_string_equal(state_of(&f, "x"), "nothing");
    assert_int_equal(f.core->n_planning, 0);
    assert_non_null(
        deploy(&f, "x", "{\"max_context\": 512}", NULL)); /* and again, left open at the end */
    fixture_close(&f);
}

TEST(inputs_are_read_once_for_every_change)
{
    struct fixture f;
    struct err e = {0};
    struct planner_inputs *a, *b;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0,a1\", \"max_context\": 1024}", NULL);
    assert_int_equal(planner_inputs_get(f.core, d, &a, &e), 0);
    assert_int_equal(planner_inputs_get(f.core, d, &b, &e), 0);
    assert_ptr_equal(a, b);
    planner_inputs_release(&b);
    profiles_set(f.core, d->model->id, "k", "auto", json_object(), NULL);
    assert_int_equal(planner_inputs_get(f.core, d, &b, &e), 0);
    assert_ptr_not_equal(a, b);
    planner_inputs_release(&b);
    planner_inputs_release(&a);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_made_elsewhere_and_holds_nobody_up),
        cmocka_unit_test(a_plan_under_which_something_has_changed_is_made_again),
        cmocka_unit_test(two_plans_at_once_do_not_share_the_same_memory),
        cmocka_unit_test(what_is_undeployed_while_it_is_planned_is_gone),
        cmocka_unit_test(inputs_are_read_once_for_every_change),
    };
    return cmocka_run_group_tests(tests, prepare_facts, NULL);
}
