#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "tests/test.h"

TEST(virtual_time_stands_until_it_is_moved)
{
    struct env_virtual v;
    struct env env = env_virtual_init(&v, 1);
    assert_int_equal(env_now_ns(&env), 0);
    v.now_ns += 5;
    assert_int_equal(env_now_ns(&env), 5);
}

TEST(a_seed_gives_the_same_chance_again)
{
    struct env_virtual v, w;
    struct env a = env_virtual_init(&v, 42), b = env_virtual_init(&w, 42);
    unsigned char x[37], y[37];
    a.random_bytes(a.ctx, x, sizeof x);
    b.random_bytes(b.ctx, y, sizeof y);
    assert_memory_equal(x, y, sizeof x);
    assert_true(env_random_u64(&a) == env_random_u64(&b));
    b = env_virtual_init(&w, 43);
    assert_true(env_random_u64(&a) != env_random_u64(&b));
}

/* The published generator, so that seeds in logs mean the same for ever. */
TEST(the_generator_is_splitmix64)
{
    uint64_t s = 1234567;
    assert_true(random_next(&s) == UINT64_C(6457827717110365317));
    assert_true(random_next(&s) == UINT64_C(3203168211198807973));
    for (int i = 0; i < 1000; i++) {
        double u = random_unit(&s);
        assert_true(u >= 0 && u < 1);
    }
}

TEST(the_real_clock_goes_forward)
{
    uint64_t before = env_now_ns(&env_real);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = env_now_ns(&env_real);
        assert_true(now >= before);
        before = now;
    }
    assert_true(env_random_u64(&env_real) != env_random_u64(&env_real));
}

TEST(the_time_scale_is_a_positive_number)
{
    const char *had = getenv("HP_TIME_SCALE");
    char kept[32];
    snprintf(kept, sizeof kept, "%s", had ? had : "");
    setenv("HP_TIME_SCALE", "5", 1);
    assert_true(env_time_scale() == 5);
    setenv("HP_TIME_SCALE", "-2", 1);
    assert_true(env_time_scale() == 1);
    setenv("HP_TIME_SCALE", "much", 1);
    assert_true(env_time_scale() == 1);
    if (had)
        setenv("HP_TIME_SCALE", kept, 1);
    else
        unsetenv("HP_TIME_SCALE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(virtual_time_stands_until_it_is_moved),
        cmocka_unit_test(a_seed_gives_the_same_chance_again),
        cmocka_unit_test(the_generator_is_splitmix64),
        cmocka_unit_test(the_real_clock_goes_forward),
        cmocka_unit_test(the_time_scale_is_a_positive_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
