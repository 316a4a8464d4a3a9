#include <string.h>

#include "common/suggestion.h"
#include "tests/test.h"

#define EIGHT "aaaaaaaa"
#define LONGEST EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT

TEST(words_are_near_by_letters_that_lack_are_too_many_or_swapped)
{
    static const struct {
        const char *typed, *word;
        size_t distance; /* 99: not near */
    } cases[] = {
        {"chta", "chat", 1},
        {"deplyo", "deploy", 1},
        {"undploy", "undeploy", 1},
        {"desc", "describe", 1},
        {"de", "deploy", 99},
        {"pipelien", "pipeline", 1},
        {"rebalanec", "rebalance", 1},
        {"lst", "ls", 1},
        {"xx", "ls", 99},
        {"l", "ls", 99},
        {"", "ls", 99},
        {"stop", "topo", 99},
        {"coldtsrat", "coldstart", 2},
        {"dply", "deploy", 2},
        {"dpl", "deploy", 3},
        {"dpl", "describe", 99},
        {"ply", "deploy", 99},
        {"DEMO", "demo", 0},
        {"dmeo", "demo", 1},
        {"a5", "a0", 99},
        {"qwen2", "qwen3", 99},
        {"llama-3.1-8b", "llama-3.2-8b", 2},
        {LONGEST "a", LONGEST, 99},
        {LONGEST, LONGEST, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t distance = 99;
        if (!suggestion_distance(cases[i].typed, strlen(cases[i].typed), cases[i].word,
                                 strlen(cases[i].word), &distance))
            distance = 99;
        if (distance != cases[i].distance)
            fail_msg("%s, %s: %zu", cases[i].typed, cases[i].word, distance);
    }
}

TEST(the_nearest_name_is_suggested_and_of_equals_the_first)
{
    struct suggestion near = {0};
    static const char *const names[] = {"chat", "demo2", "demo", "dome", "qwen"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        suggestion_try(&near, "dmeo", names[i]);
    assert_string_equal(near.best, "demo");
    near = (struct suggestion){0};
    suggestion_try(&near, "dmeo", "qwen");
    assert_null(near.best);
    suggestion_try(&near, "", "qwen");
    assert_null(near.best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_near_by_letters_that_lack_are_too_many_or_swapped),
        cmocka_unit_test(the_nearest_name_is_suggested_and_of_equals_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
