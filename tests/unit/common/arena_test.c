#include <string.h>

#include "common/arena.h"
#include "tests/test.h"

TEST(memory_is_zeroed_aligned_and_apart)
{
    struct arena a = {0};
    unsigned char *before = NULL;
    for (size_t n = 1; n < 200000; n = n * 3 + 1) {
        unsigned char *p = arena_alloc(&a, n, 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xAB, n);
        assert_true(p != before);
        before = p;
    }
    arena_free(&a);
    assert_int_equal(a.used_bytes, 0);
}

TEST(a_count_that_overflows_gives_nothing)
{
    struct arena a = {0};
    assert_null(arena_alloc(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(&a, (size_t)1 << 40, 1 << 20));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    assert_false(a.out_of_memory);
    arena_free(&a);
}

TEST(the_limit_holds_and_is_no_want_of_memory)
{
    struct arena a = {.limit_bytes = 64};
    assert_non_null(arena_alloc(&a, 48, 1));
    assert_null(arena_alloc(&a, 17, 1));
    assert_non_null(arena_alloc(&a, 16, 1));
    assert_false(a.out_of_memory);
    arena_free(&a);
    assert_int_equal(a.limit_bytes, 64);
    assert_non_null(arena_alloc(&a, 64, 1));
    arena_free(&a);
}

TEST(a_large_piece_does_not_waste_the_block_before_it)
{
    struct arena a = {0};
    char *small = arena_alloc(&a, 16, 1);
    assert_non_null(arena_alloc(&a, 1 << 20, 1));
    char *next = arena_alloc(&a, 16, 1);
    assert_ptr_equal(next, small + 16);
    arena_free(&a);
}

TEST(texts_are_copies)
{
    struct arena a = {0};
    char text[] = "abc";
    char *copy = arena_strdup(&a, text), *part = arena_strndup(&a, text, 2);
    void *none = arena_memdup(&a, NULL, 0);
    text[0] = 'x';
    assert_string_equal(copy, "abc");
    assert_string_equal(part, "ab");
    assert_non_null(none);
    assert_string_equal(arena_printf(&a, "%s-%d", copy, 7), "abc-7");
    arena_free(&a);
}

TEST(a_reset_arena_begins_anew_with_zeroes)
{
    struct arena a = {0};
    unsigned char *p = arena_alloc(&a, 100, 1);
    memset(p, 0xFF, 100);
    assert_non_null(arena_alloc(&a, 1 << 20, 1));
    arena_reset(&a);
    assert_int_equal(a.used_bytes, 0);
    unsigned char *again = arena_alloc(&a, 100, 1);
    assert_ptr_equal(again, p); /* the block that was kept */
    for (int i = 0; i < 100; i++)
        assert_int_equal(again[i], 0);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_apart),
        cmocka_unit_test(a_count_that_overflows_gives_nothing),
        cmocka_unit_test(the_limit_holds_and_is_no_want_of_memory),
        cmocka_unit_test(a_large_piece_does_not_waste_the_block_before_it),
        cmocka_unit_test(texts_are_copies),
        cmocka_unit_test(a_reset_arena_begins_anew_with_zeroes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
