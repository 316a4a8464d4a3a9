#include <stdlib.h>
#include <string.h>

#include "common/sampling.h"
#include "tests/test.h"

TEST(what_a_client_gets_without_asking_makes_sense)
{
    struct sampling_params p = sampling_greedy;
    for (const struct sampling_number *n = sampling_numbers; n->name; n++) {
        *sampling_number_of(&p, n) = n->usual;
        assert_true(n->asked_low >= n->low && n->asked_high <= n->high);
    }
    assert_int_equal(sampling_check(&p, 1, NULL), 0);
    assert_true(p.temperature == 1 && p.top_p == 1 && p.repetition_penalty == 1);
}

TEST(what_is_missing_on_the_wire_is_off)
{
    struct sampling_params p = {0};
    assert_int_equal(sampling_check(&p, 1, NULL), HP_EINVAL);
    sampling_fill(&p);
    assert_memory_equal(&p, &sampling_greedy, sizeof p);
    p.top_p = 0.5;
    sampling_fill(&p);
    assert_true(p.top_p == 0.5);
}

TEST(a_copy_has_a_bias_of_its_own)
{
    struct sampling_bias bias[] = {{3, 1}, {4, -2}};
    struct sampling_params p = sampling_greedy, copy;
    uint32_t late[] = {7};
    p.bias = (struct pack_list){bias, 2};
    p.late_ids = (struct pack_u32s){late, 1};
    assert_int_equal(sampling_copy(&copy, &p, NULL), 0);
    memset(bias, 0, sizeof bias);
    late[0] = 0;
    assert_int_equal(copy.late_ids.items[0], 7);
    assert_int_equal(copy.bias.count, 2);
    assert_true(((struct sampling_bias *)copy.bias.items)[1].bias == -2);
    sampling_free(&copy);
    assert_null(copy.bias.items);
    assert_int_equal(copy.bias.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_client_gets_without_asking_makes_sense),
        cmocka_unit_test(what_is_missing_on_the_wire_is_off),
        cmocka_unit_test(a_copy_has_a_bias_of_its_own),
    };
    return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
