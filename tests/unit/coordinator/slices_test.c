/* How prompts are cut. */
#include "coordinator/deployment_layout.h"
#include "coordinator/slices.h"
#include "coordinator/stages.h"
#include "tests/unit/coordinator/placement_fixture.h"

TEST(slices_add_up_for_every_length)
{
    struct fixture f;
    fixture_open(&f);
    fixture_agent(&f, 0, "k", 8e9);
    fixture_agent(&f, 1, "k", 8e9);
    static const char *const options[] = {
        "{\"agents\": \"a0,a1\"}", "{\"agents\": \"a0,a1\", \"slice\": 7}", "{\"agents\": \"a0\"}"};
    for (int k = 0; k < 3; k++) {
        char name[4] = {'d', (char)('0' + k), 0};
        struct deployment *d = deploy(&f, name, options[k], NULL);
        assert_non_null(d);
        for (uint32_t n = 1; n < 1500; n += n < 300 ? 1 : 97) {
            uint32_t slices[1500], sum = 0;
            int count = slices_cut(d, n, 0, slices);
            for (int i = 0; i < count; i++) {
                assert_true(slices[i] > 0 && slices[i] <= (k == 1 ? 7 : DEPLOYMENT_BATCH_TOKENS));
                sum += slices[i];
            }
            assert_int_equal(sum, n);
        }
        assert_true(k != 0 || slices_ready(d, 1500));
    }
    fixture_close(&f);
}

static int cut_of(const struct deployment *d, uint32_t n)
{
    uint32_t slices[4096], sum = 0;
    int count = slices_cut(d, n, 0, slices);
    for (int i = 0; i < count; i++) {
        assert_true(slices[i] > 0 && slices[i] <= DEPLOYMENT_BATCH_TOKENS);
        sum += slices[i];
    }
    assert_int_equal(sum, n);
    return count;
}

TEST(prompts_are_cut_at_once_and_better_when_their_slices_are_prepared)
{
    struct fixture f;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    f.holds_work = true;
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0,a1\", \"max_context\": 4096}", NULL);
    fixture_work(&f); /* the plan */
    assert_int_equal(d->n_stages, 2);
    assert_false(slices_ready(d, 100));
    assert_int_equal(cut_of(d, 1200), 6); /* three for each stage */
    assert_int_equal(cut_of(d, 20), 1);
    fixture_work(&f); /* up to 2048 */
    assert_true(slices_ready(d, 2048));
    assert_false(slices_ready(d, 2049));
    cut_of(d, 4000);
    fixture_work(&f);
    assert_true(slices_ready(d, 4096));
    for (uint32_t n = 1; n < 4096; n += 61)
        cut_of(d, n);
    fixture_pass_ms(&f, 200);
    assert_int_equal(f.n_held_work, 0);
    fixture_close(&f);
}

TEST(prepared_slices_outlive_a_generation_with_the_same_stages)
{
    struct fixture f;
    struct err e = {0};
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        fixture_agent(&f, i, "k", 8e9);
    struct deployment *d = deploy(&f, "x", "{\"agents\": \"a0,a1\", \"max_context\": 1024}", NULL);
    assert_true(slices_ready(d, 1024));
    f.holds_work = true;
    struct stage_layout *layout = deployment_layout(d);
    assert_int_equal(deployment_layout_set(f.core, d, layout, &e), 0);
    stages_adopt(f.core, d);
    stage_layout_release(&layout);
    fixture_pass_ms(&f, 100);
    assert_true(slices_ready(d, 1024));
    assert_int_equal(f.n_held_work, 0);
    slices_forget(d); /* a profile was corrected: what there is serves on meanwhile */
    fixture_pass_ms(&f, 100);
    assert_false(slices_ready(d, 1024));
    assert_int_equal(f.n_held_work, 1);
    cut_of(d, 900);
    fixture_work(&f);
    assert_true(slices_ready(d, 1024));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_add_up_for_every_length),
        cmocka_unit_test(prompts_are_cut_at_once_and_better_when_their_slices_are_prepared),
        cmocka_unit_test(prepared_slices_outlive_a_generation_with_the_same_stages),
    };
    return cmocka_run_group_tests(tests, prepare_facts, NULL);
}
