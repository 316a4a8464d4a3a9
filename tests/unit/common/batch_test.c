#include <stdlib.h>

#include "common/batch.h"
#include "tests/test.h"

TEST(a_batch_counts_the_tokens_and_logits_of_its_runs)
{
    struct batch b = {0};
    assert_true(batch_reserve(&b, 2, 0));
    batch_append(&b, &(struct batch_run){.sequence = 7, .n_tokens = 5, .n_logits = 1});
    batch_append(&b, &(struct batch_run){.sequence = 9, .n_tokens = 1, .row = 5});
    assert_int_equal(b.n_runs, 2);
    assert_int_equal(b.n_tokens, 6);
    assert_int_equal(b.n_logits, 1);
    assert_int_equal(b.runs[1].row, 5);
    batch_free(&b);
}

TEST(a_cleared_batch_is_empty_and_keeps_its_memory)
{
    struct batch b = {0};
    char payload;
    assert_true(batch_reserve(&b, 3, 4));
    batch_append(&b, &(struct batch_run){.n_tokens = 4});
    b.input = &payload;
    b.slice = true;
    const struct batch_run *runs = b.runs;
    const uint32_t *ids = b.ids;
    batch_clear(&b);
    assert_true(batch_reserve(&b, 3, 4));
    assert_ptr_equal(b.runs, runs);
    assert_ptr_equal(b.ids, ids);
    assert_null(b.input);
    assert_false(b.slice);
    assert_int_equal(b.n_runs + b.n_tokens + b.n_logits, 0);
    batch_free(&b);
    assert_null(b.runs);
}

TEST(a_place_passes_the_ids_rows_tokens_and_scores_of_each_run)
{
    const struct batch_run runs[] = {
        {.n_tokens = 5, .n_logits = 1, .n_scored = 4, .scored_width = 3, .said_width = 2},
        {.n_tokens = 4, .n_logits = 4, .sample = true, .n_drafts = 3, .said_width = 2},
        {.n_tokens = 1, .n_logits = 1, .sample = true}};
    const struct batch_place after[] = {{5, 1, 1, 12}, {9, 5, 5, 20}, {10, 6, 6, 20}};
    struct batch_place at = {0};
    assert_int_equal(batch_run_prompt_scores(&runs[0]), 12);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        batch_place_pass(&at, &runs[i]);
        assert_int_equal(at.token, after[i].token);
        assert_int_equal(at.row, after[i].row);
        assert_int_equal(at.pick, after[i].pick);
        assert_int_equal(at.score, after[i].score);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_counts_the_tokens_and_logits_of_its_runs),
        cmocka_unit_test(a_cleared_batch_is_empty_and_keeps_its_memory),
        cmocka_unit_test(a_place_passes_the_ids_rows_tokens_and_scores_of_each_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
