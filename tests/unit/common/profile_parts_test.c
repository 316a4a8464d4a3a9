/* Parts of mixtures' blocks in a profile. */
#include <math.h>
#include <string.h>

#include "common/experts.h"
#include "common/profile_parts.h"
#include "tests/profile_fixture.h"
#include "tests/test.h"

static const char mixture[] =
    "{\"format\": \"hp-profile/1\", \"batch\": 2, \"layers\": ["
    "{\"name\": \"embed\", \"class\": \"embed\", \"param_bytes\": 50, "
    "\"output_bytes_per_token\": 400},"
    "{\"name\": \"blk.0.attn\", \"class\": \"attn\", \"param_bytes\": 100, "
    "\"state_bytes_per_token\": 8, \"output_bytes_per_token\": 400},"
    "{\"name\": \"blk.0.moe\", \"class\": \"moe\", \"param_bytes\": 1000, "
    "\"output_bytes_per_token\": 400, \"experts\": {\"count\": 5, \"used\": 2, \"bytes\": 900}},"
    "{\"name\": \"blk.1.moe\", \"class\": \"moe\", \"param_bytes\": 1000, "
    "\"output_bytes_per_token\": 400, \"experts\": {\"count\": 5, \"used\": 2, \"bytes\": 900}}],"
    "\"latency\": {\"k\": {\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1]]},"
    "\"attn\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[2]]},"
    "\"moe\": {\"slice\": [1, 4], \"prefix\": [0], \"seconds\": [[4], [8]]}}}}";

/* With each mixture's experts in so many groups. */
static void profile_parts_of(int groups, struct profile *out)
{
    struct profile p;
    struct profile_part *parts;
    struct arena arena = {0};
    struct err e = {0};
    if (profile_read(mixture, &p, &e) < 0)
        fail_msg("%s", e.text);
    int n = profile_parts_list(&p, groups, &arena, &parts);
    assert_int_equal(profile_divide(&p, parts, n, out, &e), 0);
    arena_free(&arena);
    profile_free(&p);
}

TEST(parts_of_a_layer_add_up_to_it)
{
    for (int groups = 1; groups <= 8; groups++) {
        struct profile d;
        int each = groups < 5 ? groups : 5; /* there are five experts */
        double bytes = 0, seconds = 0;
        profile_parts_of(groups, &d);
        assert_int_equal(d.n_layers, 2 + 2 * each);
        for (int i = 2; i < 2 + each; i++) {
            bytes += d.layers[i].param_bytes;
            seconds += profile_table_at(profile_table_of(&d, 0, d.layers[i].class_index), 4, 0);
            assert_true(d.layers[i].output_bytes_per_token ==
                        (i == 1 + each ? 400 : 2 * 400 + 2 * 2 * sizeof(float)));
        }
        assert_true(fabs(bytes - 1000) < 1e-9 && fabs(seconds - 8) < 1e-9);
        assert_true(d.layers[1].state_bytes_per_token == 8 && d.batch == 2);
        profile_free(&d);
    }
}

TEST(parts_are_cut_as_the_graph_cuts_experts_and_the_first_has_the_rest)
{
    struct profile d;
    profile_parts_of(2, &d);
    assert_string_equal(d.layers[2].name, "blk.0.moe.0");
    assert_string_equal(d.layers[3].name, "blk.0.moe.1");
    assert_string_equal(d.layers[4].name, "blk.1.moe.0");
    assert_true(fabs(d.layers[2].param_bytes - (100 + 2 * 180)) < 1e-9);
    assert_true(fabs(d.layers[3].param_bytes - 3 * 180) < 1e-9);
    assert_int_equal(d.layers[2].class_index, d.layers[4].class_index);
    assert_true(d.layers[2].class_index != d.layers[3].class_index);
    profile_free(&d);
}

TEST(experts_that_make_no_sense_are_refused)
{
    static const struct {
        const char *experts, *says;
    } cases[] = {
        {"{\"count\": 0, \"used\": 1, \"bytes\": 1}", "count"},
        {"{\"count\": 2.5, \"used\": 1, \"bytes\": 1}", "2.5 experts"},
        {"{\"count\": 1e9, \"used\": 1, \"bytes\": 1}", "expected 1 to 4096"},
        {"{\"count\": 8, \"used\": 9, \"bytes\": 1}", "of which a token takes 9"},
        {"{\"count\": 8, \"used\": 2, \"bytes\": 101}", "more than the layer's 100"},
        {"{\"count\": 8, \"bytes\": 1}", "used"},
        {"7", "experts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        struct profile p;
        struct err e = {0};
        snprintf(text, sizeof text,
                 "{\"format\": \"hp-profile/1\", \"layers\": [{\"class\": \"a\", "
                 "\"param_bytes\": 100, \"output_bytes_per_token\": 1, \"experts\": %s}], "
                 "\"latency\": {}}",
                 cases[i].experts);
        int rc = profile_read(text, &p, &e);
        if (rc != HP_EPARSE || !strstr(e.text, cases[i].says))
            fail_msg("%zu: %d, \"%s\"", i, rc, e.text);
    }
}

TEST(groups_double_up_to_sixteen_and_never_pass_the_experts)
{
    static const struct {
        unsigned groups, experts, more;
    } cases[] = {{1, 8, 2}, {2, 8, 4},   {4, 8, 8},   {8, 8, 1}, {4, 6, 6},
                 {6, 6, 1}, {8, 64, 16}, {16, 64, 1}, {1, 0, 1}, {1, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(expert_groups_more(cases[i].groups, cases[i].experts), cases[i].more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_layer_add_up_to_it),
        cmocka_unit_test(parts_are_cut_as_the_graph_cuts_experts_and_the_first_has_the_rest),
        cmocka_unit_test(experts_that_make_no_sense_are_refused),
        cmocka_unit_test(groups_double_up_to_sixteen_and_never_pass_the_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
