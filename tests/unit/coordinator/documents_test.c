/* What a browser is shown of the core: documents, and plans over other boxes. */
#include "tests/unit/coordinator/deployment_fixture.h"

struct plan_heard {
    int times, code;
    json_t *answer;
    char why[600];
};

static void plan_told(void *ctx, const char *json, size_t n, const struct err *why)
{
    struct plan_heard *t = ctx;
    t->times++;
    t->code = why ? why->code : 0;
    snprintf(t->why, sizeof t->why, "%s", why ? why->text : "");
    json_decref(t->answer);
    t->answer = json ? json_loadb(json, n, 0, NULL) : NULL;
    assert_int_equal(json == NULL, why != NULL);
}

static json_t *document(struct fixture *f, enum request_document which, const char *name)
{
    struct requests r;
    struct buffer out = {0};
    struct err e = {0};
    coord_requests(f->core, &r);
    assert_int_equal(r.document(r.ctx, which, name, &out, &e), 0);
    json_t *root = json_loadb((const char *)out.data, out.size, 0, NULL);
    assert_non_null(root);
    buffer_free(&out);
    return root;
}

static int what_if(struct fixture *f, const char *without, struct plan_heard *t, struct err *e)
{
    struct requests r;
    struct request_what_if w = {"d", without, plan_told, t};
    coord_requests(f->core, &r);
    int rc = r.what_if(r.ctx, &w, e);
    assert_int_equal(t->times, 0); /* never from within the call */
    fixture_settle(f);
    return rc;
}

static double number_at(const json_t *root, const char *group, const char *key)
{
    return json_number_value(json_object_get(json_object_get(root, group), key));
}

TEST(documents_are_what_the_verbs_answer)
{
    struct fixture f;
    struct requests r;
    struct buffer out = {0};
    struct err e = {0};
    serving(&f);
    json_t *cluster = document(&f, DOCUMENT_CLUSTER, ""),
           *topology = document(&f, DOCUMENT_TOPOLOGY, ""),
           *agent = document(&f, DOCUMENT_AGENT, "a1"),
           *deployment = document(&f, DOCUMENT_DEPLOYMENT, "d");
    assert_int_equal(json_array_size(json_object_get(cluster, "agents")), 3);
    assert_int_equal(json_array_size(json_object_get(cluster, "deployments")), 1);
    assert_true(json_is_real(json_object_get(cluster, "clock_s")));
    assert_string_equal(json_string_value(json_object_get(topology, "format")), "hp-cluster/1");
    assert_string_equal(json_string_value(json_object_get(agent, "name")), "a1");
    assert_int_equal(json_array_size(json_object_get(deployment, "stages")), 2);
    assert_non_null(json_object_get(json_object_get(deployment, "prefill"), "records"));
    coord_requests(f.core, &r);
    assert_int_equal(r.document(r.ctx, DOCUMENT_DEPLOYMENT, "x", &out, &e), HP_ENOENT);
    assert_int_equal(r.document(r.ctx, DOCUMENT_AGENT, "x", &out, &e), HP_ENOENT);
    assert_int_equal(out.size, 0);
    json_decref(cluster);
    json_decref(topology);
    json_decref(agent);
    json_decref(deployment);
    fixture_close(&f);
}

TEST(a_plan_over_other_boxes_is_made_beside_what_runs_and_changes_nothing)
{
    struct fixture f;
    struct plan_heard t = {0};
    struct err e = {0};
    struct deployment *d = serving(&f);
    uint64_t kv = d->kv_tokens, generation = d->generation;
    assert_int_equal(what_if(&f, "a0", &t, &e), 0);
    assert_int_equal(t.times, 1);
    assert_int_equal(t.code, 0);
    const json_t *plan = json_object_get(t.answer, "plan"),
                 *stages = json_object_get(plan, "stages");
    for (size_t i = 0; i < json_array_size(stages); i++)
        assert_string_not_equal(
            json_string_value(json_object_get(json_array_get(stages, i), "device")), "a0/gpu0");
    assert_true(json_array_size(json_object_get(plan, "why")) > 0);
    char *text = json_dumps(plan, 0); /* nor is it one of the reasons */
    assert_null(strstr(text, "a0/"));
    free(text);
    assert_int_equal(json_array_size(json_object_get(t.answer, "timeline")),
                     json_array_size(stages));
    assert_true(number_at(t.answer, "before", "ttft_s") > 0);
    assert_true(number_at(t.answer, "after", "ttft_s") > 0);
    assert_int_equal(json_integer_value(json_object_get(t.answer, "context")), d->context);
    assert_int_equal(d->generation, generation);
    assert_int_equal(d->kv_tokens, kv);
    assert_null(d->placing);
    assert_string_equal(state_of(&f), "serving");
    json_decref(t.answer);
    fixture_close(&f);
}

TEST(without_enough_boxes_the_answer_says_what_is_missing)
{
    struct fixture f;
    struct plan_heard t = {0};
    struct err e = {0};
    serving(&f);
    assert_int_equal(what_if(&f, "a0,a1,a2", &t, &e), 0);
    assert_int_equal(t.times, 1);
    assert_int_equal(t.code, HP_EINFEASIBLE);
    assert_non_null(strstr(t.why, "every agent is left out"));
    assert_int_equal(f.core->n_planning, 0);
    fixture_close(&f);
}

TEST(boxes_and_deployments_that_are_not_there_are_named)
{
    struct fixture f;
    struct requests r;
    struct plan_heard t = {0};
    struct err e = {0};
    serving(&f);
    assert_int_equal(what_if(&f, "a0,nobody", &t, &e), HP_ENOENT);
    assert_non_null(strstr(e.text, "\"nobody\""));
    coord_requests(f.core, &r);
    struct request_what_if w = {"x", "", plan_told, &t};
    assert_int_equal(r.what_if(r.ctx, &w, &e), HP_ENOENT);
    assert_int_equal(t.times, 0);
    fixture_close(&f);
}

TEST(plans_are_counted_and_each_is_told_of_once_also_when_the_core_ends)
{
    struct fixture f;
    struct plan_heard t[COORD_MAX_PLANNING + 1] = {0};
    struct err e = {0};
    serving(&f);
    f.holds_work = true;
    for (int i = 0; i < COORD_MAX_PLANNING; i++)
        assert_int_equal(what_if(&f, "", &t[i], &e), 0);
    assert_int_equal(what_if(&f, "", &t[COORD_MAX_PLANNING], &e), HP_EBUSY);
    fixture_close(&f);
    for (int i = 0; i < COORD_MAX_PLANNING; i++) {
        assert_int_equal(t[i].times, 1);
        assert_int_equal(t[i].code, HP_ECANCELED);
    }
    assert_int_equal(t[COORD_MAX_PLANNING].times, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_what_the_verbs_answer),
        cmocka_unit_test(a_plan_over_other_boxes_is_made_beside_what_runs_and_changes_nothing),
        cmocka_unit_test(without_enough_boxes_the_answer_says_what_is_missing),
        cmocka_unit_test(boxes_and_deployments_that_are_not_there_are_named),
        cmocka_unit_test(plans_are_counted_and_each_is_told_of_once_also_when_the_core_ends)};
    return cmocka_run_group_tests_name("documents", tests, NULL, NULL);
}
