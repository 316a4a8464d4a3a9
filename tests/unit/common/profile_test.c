/* hp-profile/1: what is read, what is between the points, what is refused. */
#include <math.h>
#include <string.h>

#include "common/profile.h"
#include "tests/profile_fixture.h"
#include "tests/test.h"

#define LAYERS                                                                                     \
    "\"layers\": [{\"name\": \"embed\", \"class\": \"embed\", \"param_bytes\": 10, "               \
    "\"state_bytes_per_token\": 0, \"output_bytes_per_token\": 4}, {\"name\": \"block\", "         \
    "\"class\": \"block\", \"param_bytes\": 20, \"state_bytes_per_token\": 2, "                    \
    "\"output_bytes_per_token\": 4}]"
#define HEAD "{\"format\": \"hp-profile/1\", \"model\": \"m\", " LAYERS ", \"latency\": "

TEST(times_lie_on_the_points_and_between_and_beyond_them)
{
    struct profile p = {0};
    struct err e = {0};
    if (profile_read(
            HEAD
            "{\"k\": {\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[3]]}, \"block\": "
            "{\"slice\": [1, 3], \"prefix\": [0, 10], \"seconds\": [[1, 2], [5, 6]]}}}}",
            &p, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(p.n_layers, 2);
    assert_int_equal(p.n_classes, 2);
    int k = profile_find_kind(&p, "k");
    assert_int_equal(k, 0);
    assert_int_equal(profile_find_kind(&p, "other"), -1);
    const struct profile_table *t = profile_table_of(&p, k, p.layers[1].class_index);
    static const struct {
        double x, y, seconds;
    } cases[] = {{1, 0, 1}, {3, 10, 6}, {2, 0, 3}, {2, 5, 3.5}, {5, 0, 9}, {3, 20, 7}, {0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(fabs(profile_table_at(t, cases[i].x, cases[i].y) - cases[i].seconds) < 1e-9);
    t = profile_table_of(&p, k, p.layers[0].class_index);
    assert_true(profile_table_at(t, 500, 500) == 3); /* an axis of one point is constant */
    profile_free(&p);
}

TEST(a_point_that_was_not_profiled_makes_no_number)
{
    double x[] = {1, 3}, y[] = {0}, seconds[] = {1, NAN};
    struct profile_table t = {.x = x, .y = y, .seconds = seconds, .n_x = 2, .n_y = 1}, empty = {0};
    assert_true(profile_table_at(&t, 1, 0) == 1);
    assert_true(isnan(profile_table_at(&t, 2, 0)));
    assert_true(isnan(profile_table_at(&empty, 1, 0)));
}

TEST(of_two_profiles_the_times_are_left_that_both_have)
{
    static const char fixed[] =
        "{\"format\": \"hp-profile/1\", \"model\": \"m\", \"layers\": [{\"name\": \"a\", "
        "\"class\": "
        "\"x\", \"output_bytes\": 4}, {\"name\": \"b\", \"class\": \"%s\", \"output_bytes\": 4}], "
        "\"latency\": {%s}}",
                      own_tables[] = "\"k\": {\"x\": {\"share\": [1, 2], \"batch\": [1, 2, 4], "
                                     "\"seconds\": [[1, 2, 3], [4, 5, null]]}}, \"l\": {\"x\": "
                                     "{\"share\": [1], \"batch\": [1], \"seconds\": [[1]]}}",
                      other_tables[] =
                          "\"k\": {\"x\": {\"share\": [1, 2], \"batch\": [2, 4, 8], "
                          "\"seconds\": [[9, 9, 9], [9, 9, 9]]}, \"y\": {\"share\": [1, "
                          "2], \"batch\": [1], \"seconds\": [[9], [9]]}}";
    char text[1000];
    struct profile own = {0}, other = {0};
    struct err e = {0};
    snprintf(text, sizeof text, fixed, "x", own_tables);
    assert_int_equal(profile_read(text, &own, &e), 0);
    snprintf(text, sizeof text, fixed, "x", other_tables);
    assert_int_equal(profile_read(text, &other, &e), 0);
    profile_intersect(&own, &other);
    const struct profile_table *t = profile_table_of(&own, profile_find_kind(&own, "k"), 0);
    assert_true(isnan(profile_table_exact(t, 1, 1)));
    assert_true(profile_table_exact(t, 1, 2) == 2 && profile_table_exact(t, 1, 4) == 3);
    assert_true(profile_table_exact(t, 2, 2) == 5 && isnan(profile_table_exact(t, 2, 4)));
    assert_true(isnan(profile_table_exact(t, 1, 8)));
    t = profile_table_of(&own, profile_find_kind(&own, "l"), 0);
    assert_true(isnan(profile_table_exact(t, 1, 1))); /* a kind that the other does not know */
    assert_int_equal(profile_layer_untimed(&own), -1);
    profile_free(&other);
    /* Its second layer was measured in other batches: that counts for the class of both. */
    snprintf(text, sizeof text, fixed, "y", other_tables);
    assert_int_equal(profile_read(text, &other, &e), 0);
    profile_intersect(&own, &other);
    assert_int_equal(profile_layer_untimed(&own), 0);
    profile_free(&other);
    profile_free(&own);
}

TEST(tables_that_make_no_sense_are_refused_by_path)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"format\": \"hp-profile/9\"}", "$.format"},
        {HEAD "{\"k\": {\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[3]]}, "
              "\"block\": {\"slice\": [3, 1], \"prefix\": [0], \"seconds\": [[1], [2]]}}}}",
         "$.latency.k.block.slice"},
        {HEAD "{\"k\": {\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[3]]}, "
              "\"block\": {\"slice\": [1, 3], \"prefix\": [0], \"seconds\": [[1]]}}}}",
         "$.latency.k.block.seconds"},
        {HEAD "{\"k\": {\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[3]]}, "
              "\"block\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[-1]]}}}}",
         "$.latency.k.block.seconds[0][0]"},
        {HEAD "{\"k\": {\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[3]]}, "
              "\"block\": {\"slice\": [], \"prefix\": [0], \"seconds\": []}}}}",
         "$.latency.k.block.slice"},
        {HEAD "{\"k\": {\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[3]]}, "
              "\"block\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1]], \"step\": -1}}}}",
         "$.latency.k.block.step"},
        {HEAD "{\"k\": {\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[3]]}, "
              "\"block\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1]], \"step\": 513}}}}",
         "$.latency.k.block"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct profile p = {0};
        struct err e = {0};
        assert_int_equal(profile_read(cases[i].text, &p, &e), HP_EPARSE);
        if (!strstr(e.text, cases[i].says))
            fail_msg("\"%s\" does not name %s", e.text, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_lie_on_the_points_and_between_and_beyond_them),
        cmocka_unit_test(a_point_that_was_not_profiled_makes_no_number),
        cmocka_unit_test(of_two_profiles_the_times_are_left_that_both_have),
        cmocka_unit_test(tables_that_make_no_sense_are_refused_by_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
