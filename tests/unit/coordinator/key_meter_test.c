/* What API keys may do and have used, under a clock of the test's. */
#include "coordinator/key_meter.h"
#include "tests/test.h"

enum { S = 1000000000 };

static struct key_limits limits_of(const char *document)
{
    struct key_limits l;
    struct err e = {0};
    json_t *o = json_loads(document, 0, NULL);
    key_limits_init(&l);
    if (key_limits_change(&l, o, &e) < 0)
        fail_msg("%s: %s", document, e.text);
    json_decref(o);
    return l;
}

static int check(struct key_meter *m, const struct key_limits *l, uint64_t now_s, uint64_t requests,
                 uint64_t tokens, double *wait_s)
{
    struct err e = {0};
    return key_meter_check(m, l, now_s * S, requests, tokens, wait_s, &e);
}

TEST(documents_change_what_they_name_and_nothing_else)
{
    static const struct {
        const char *document, *names;
    } wrong[] = {{"{\"weight\": 0}", "weight"},
                 {"{\"weight\": 1001}", "weight"},
                 {"{\"weight\": null}", "weight"},
                 {"{\"priority\": 101}", "priority"},
                 {"{\"tokens_per_day\": -1}", "tokens_per_day"},
                 {"{\"tokens_total\": 1.5}", "tokens_total"},
                 {"{\"requests_per_minute\": \"many\"}", "requests_per_minute"},
                 {"{\"tokens_per_minute\": 1000000000000001}", "tokens_per_minute"},
                 {"{\"models\": []}", "models"},
                 {"{\"models\": \"demo\"}", "models"},
                 {"{\"models\": [\"demo\", 5]}", "number 2"},
                 {"{\"models\": [\"a\\u0000b\"]}", "number 1"},
                 {"{\"weight\": 3, \"models\": [\"\"]}", "models"}};
    struct key_limits l =
        limits_of("{\"weight\": 2, \"tokens_per_day\": 7, \"models\": [\"demo\"]}");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err e = {0};
        json_t *o = json_loads(wrong[i].document, JSON_ALLOW_NUL, NULL);
        assert_int_equal(key_limits_change(&l, o, &e), HP_EINVAL);
        assert_non_null(strstr(e.text, wrong[i].names));
        json_decref(o);
    }
    assert_int_equal(l.weight, 2);
    assert_int_equal(l.tokens_per_day, 7);
    assert_true(key_limits_allow(&l, "demo"));
    assert_false(key_limits_allow(&l, "other"));
    json_t *all = json_loads("{\"models\": null, \"tokens_per_day\": null}", 0, NULL);
    assert_int_equal(key_limits_change(&l, all, NULL), 0);
    assert_int_equal(l.tokens_per_day, 0);
    assert_true(key_limits_allow(&l, "other"));
    json_decref(all);
    key_limits_fini(&l);
}

TEST(a_rate_refills_steadily)
{
    struct key_limits l = limits_of("{\"requests_per_minute\": 6}");
    struct key_meter m = {0};
    double wait_s;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(check(&m, &l, 100, 1, 1, &wait_s), 0);
        key_meter_request(&m, &l, 100ull * S);
    }
    assert_int_equal(check(&m, &l, 100, 1, 1, &wait_s), HP_ERATE);
    assert_float_equal(wait_s, 10, 1e-6);
    assert_int_equal(check(&m, &l, 109, 1, 1, &wait_s), HP_ERATE);
    assert_float_equal(wait_s, 1, 1e-6);
    assert_int_equal(check(&m, &l, 110, 1, 1, &wait_s), 0);
    struct request_limits view;
    key_meter_view(&m, &l, 130ull * S, &view);
    assert_int_equal(view.requests.limit, 6);
    assert_int_equal(view.requests.remaining, 3);
    assert_float_equal(view.requests.reset_s, 30, 1e-6);
    assert_int_equal(view.tokens.limit, 0);
}

TEST(answers_overdraw_a_rate_and_waiting_pays_it_back)
{
    struct key_limits l = limits_of("{\"tokens_per_minute\": 60}");
    struct key_meter m = {0};
    double wait_s;
    assert_int_equal(check(&m, &l, 100, 0, 61, &wait_s), HP_ELIMIT); /* never */
    assert_int_equal(check(&m, &l, 100, 0, 50, &wait_s), 0);
    key_meter_tokens(&m, &l, 100ull * S, 50, 0);
    assert_int_equal(check(&m, &l, 100, 0, 11, &wait_s), HP_ERATE);
    assert_float_equal(wait_s, 1, 1e-6);
    key_meter_tokens(&m, &l, 100ull * S, 0, 40);
    assert_int_equal(check(&m, &l, 100, 0, 10, &wait_s), HP_ERATE);
    assert_float_equal(wait_s, 40, 1e-6);
    assert_int_equal(check(&m, &l, 140, 0, 10, &wait_s), 0);
}

TEST(a_day_begins_with_its_first_token_and_has_24_hours)
{
    struct key_limits l = limits_of("{\"tokens_per_day\": 100}");
    struct key_meter m = {0};
    double wait_s;
    key_meter_tokens(&m, &l, 5000ull * S, 60, 30);
    assert_int_equal(key_meter_left(&m, &l, 5000ull * S), 10);
    assert_int_equal(check(&m, &l, 6000, 0, 11, &wait_s), HP_EQUOTA);
    assert_float_equal(wait_s, KEY_DAY_S - 1000, 1e-6);
    assert_int_equal(check(&m, &l, 6000, 0, 101, &wait_s), HP_ELIMIT);
    key_meter_tokens(&m, &l, 6000ull * S, 0, 20); /* of an answer that ran */
    assert_int_equal(key_meter_left(&m, &l, 6000ull * S), 0);
    assert_int_equal(key_meter_left(&m, &l, (5000ull + KEY_DAY_S) * S), 100);
    struct request_limits view;
    key_meter_view(&m, &l, 6000ull * S, &view);
    assert_int_equal(view.tokens.limit, 100);
}

TEST(a_budget_for_good_ends)
{
    struct key_limits l = limits_of("{\"tokens_total\": 100, \"tokens_per_minute\": 1000}");
    struct key_meter m = {0};
    struct request_limits view;
    double wait_s;
    key_meter_tokens(&m, &l, 1ull * S, 90, 5);
    key_meter_view(&m, &l, 1ull * S, &view);
    assert_int_equal(view.tokens.limit, 100); /* what leaves least */
    assert_int_equal(view.tokens.remaining, 5);
    assert_true(view.tokens.reset_s < 0);
    assert_int_equal(check(&m, &l, 1000000, 0, 6, &wait_s), HP_EQUOTA);
    assert_int_equal(check(&m, &l, 1000000, 0, 5, &wait_s), 0);
}

/* A restart on a clock that was set: the day goes on, no count is lost, and a day lasts no longer
 * than the time between the two runs. */
TEST(what_was_used_outlives_a_restart_whatever_the_wall_clock_says)
{
    static const struct {
        int64_t passed_s; /* by the wall clock */
        uint64_t left_after_s, day_tokens;
    } cases[] = {{0, KEY_DAY_S - 1000, 70},
                 {500, KEY_DAY_S - 1500, 70},
                 {-100000, KEY_DAY_S - 1000, 70},
                 {KEY_DAY_S, 0, 0},
                 {INT64_C(1000000000), 0, 0}};
    struct key_limits l = limits_of("{\"tokens_per_day\": 100, \"tokens_total\": 1000}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct key_meter m = {0}, again = {0};
        struct err e = {0};
        struct request_limits view;
        key_meter_request(&m, &l, 100ull * S);
        key_meter_tokens(&m, &l, 100ull * S, 40, 30);
        json_t *record = key_meter_json(&m, 1100ull * S, 2000000000);
        uint64_t then_s = (uint64_t)(2000000000 + cases[i].passed_s);
        assert_int_equal(key_meter_restore(&again, record, 7ull * S, then_s, &e), 0);
        assert_int_equal(again.prompt_tokens, 40);
        assert_int_equal(again.output_tokens, 30);
        assert_int_equal(again.n_requests, 1);
        assert_int_equal(key_meter_left(&again, &l, 7ull * S), 100 - cases[i].day_tokens);
        key_meter_view(&again, &l, 7ull * S, &view);
        assert_float_equal(view.tokens.reset_s, (double)cases[i].left_after_s, 1e-3);
        json_decref(record);
    }
}

TEST(what_was_not_used_is_given_back_but_never_more_than_was_counted)
{
    struct key_limits l = limits_of("{\"tokens_per_day\": 100, \"tokens_per_minute\": 60}");
    struct key_meter m = {0};
    double wait_s;
    struct err e;
    key_meter_tokens(&m, &l, S, 50, 10);
    assert_int_equal(key_meter_check(&m, &l, S, 0, 20, &wait_s, &e), HP_ERATE);
    key_meter_return(&m, &l, S, 20);
    assert_int_equal(key_meter_check(&m, &l, S, 0, 20, &wait_s, &e), 0);
    assert_int_equal(key_meter_left(&m, &l, S), 60);
    key_meter_return(&m, &l, S, 1000);
    assert_int_equal(m.prompt_tokens, 0);
    assert_int_equal(m.output_tokens, 10);
    assert_int_equal(key_meter_left(&m, &l, S), 90);
    key_meter_tokens(&m, &l, S, 50, 0);
    key_meter_return(&m, &l, (2 + (uint64_t)KEY_DAY_S) * S, 50); /* of yesterday's */
    assert_int_equal(key_meter_left(&m, &l, (2 + (uint64_t)KEY_DAY_S) * S), 100);
}

TEST(records_of_use_that_cannot_be_are_refused_and_change_nothing)
{
    static const char *const wrong[] = {
        "{}", "[]", "{\"requests\": -1}",
        ("{\"requests\": 1, \"refused\": 0, \"prompt_tokens\": \"1\", \"output_tokens\": 0, "
         "\"day_tokens\": 0, \"at_s\": 0}")};
    struct key_meter m = {.prompt_tokens = 5};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err e = {0};
        json_t *record = json_loads(wrong[i], 0, NULL);
        assert_int_equal(key_meter_restore(&m, record, S, 5, &e), HP_EPARSE);
        assert_int_equal(m.prompt_tokens, 5);
        json_decref(record);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_change_what_they_name_and_nothing_else),
        cmocka_unit_test(a_rate_refills_steadily),
        cmocka_unit_test(answers_overdraw_a_rate_and_waiting_pays_it_back),
        cmocka_unit_test(a_day_begins_with_its_first_token_and_has_24_hours),
        cmocka_unit_test(a_budget_for_good_ends),
        cmocka_unit_test(what_was_used_outlives_a_restart_whatever_the_wall_clock_says),
        cmocka_unit_test(what_was_not_used_is_given_back_but_never_more_than_was_counted),
        cmocka_unit_test(records_of_use_that_cannot_be_are_refused_and_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
