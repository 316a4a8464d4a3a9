#include "common/vector.h"
#include "tests/test.h"

struct vector_pair {
    int a, b;
};

TEST(values_keep_their_places_while_a_vector_grows)
{
    struct vector_pair *items = NULL;
    int count = 0, room = 0;
    for (int i = 0; i < 1000; i++)
        assert_true(vector_push(items, count, room, ((struct vector_pair){i, 2 * i})));
    assert_int_equal(count, 1000);
    assert_true(room >= 1000);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(items[i].a, i);
        assert_int_equal(items[i].b, 2 * i);
    }
    free(items);
}

TEST(room_doubles_so_that_few_pushes_copy)
{
    uint32_t *items = NULL;
    size_t count = 0, room = 0, grown = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        size_t before = room;
        assert_true(vector_push(items, count, room, i));
        grown += room != before;
    }
    assert_true(grown <= 15);
    free(items);
}

TEST(room_that_is_there_is_not_touched)
{
    uint64_t *items = NULL;
    size_t room = 0;
    assert_true(vector_reserve(items, room, 100));
    uint64_t *before = items;
    size_t had = room;
    assert_true(vector_reserve(items, room, 100));
    assert_ptr_equal(items, before);
    assert_int_equal(room, had);
    free(items);
}

TEST(more_than_the_counter_can_count_is_refused_and_changes_nothing)
{
    uint8_t *items = NULL;
    int room = 0;
    assert_true(vector_reserve(items, room, 1));
    uint8_t *before = items;
    int had = room;
    assert_false(vector_reserve(items, room, (size_t)INT32_MAX + 1));
    assert_ptr_equal(items, before);
    assert_int_equal(room, had);
    free(items);
}

TEST(bytes_that_overflow_are_refused)
{
    struct vector_pair *items = NULL;
    size_t room = 0;
    assert_false(vector_reserve(items, room, SIZE_MAX / 8));
    assert_null(items);
    assert_int_equal(room, 0);
}

TEST(the_last_room_is_the_most_there_may_be)
{
    assert_int_equal(vector_room_for(0, 1, 100), 8);
    assert_int_equal(vector_room_for(8, 9, 100), 16);
    assert_int_equal(vector_room_for(64, 65, 100), 100);
    assert_int_equal(vector_room_for(64, 101, 100), 0);
    assert_int_equal(vector_room_for(0, 5, 6), 6);
}

TEST(an_added_item_is_zero_whatever_lay_there)
{
    struct vector_pair *items = NULL;
    int count = 0, room = 0;
    for (int i = 0; i < 20; i++) {
        struct vector_pair *p = vector_add(items, count, room);
        assert_non_null(p);
        assert_int_equal(p->a, 0);
        assert_int_equal(p->b, 0);
        *p = (struct vector_pair){i, i};
        if (i % 3 == 2)
            vector_remove(items, count, 0);
    }
    assert_int_equal(count, 14);
    free(items);
}

TEST(items_behind_one_that_is_removed_move_up)
{
    int *items = NULL, count = 0, room = 0;
    for (int i = 0; i < 5; i++)
        assert_true(vector_push(items, count, room, i));
    vector_remove(items, count, 4);
    vector_remove(items, count, 0);
    vector_remove(items, count, 1);
    assert_int_equal(count, 2);
    assert_int_equal(items[0], 1);
    assert_int_equal(items[1], 3);
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_keep_their_places_while_a_vector_grows),
        cmocka_unit_test(room_doubles_so_that_few_pushes_copy),
        cmocka_unit_test(room_that_is_there_is_not_touched),
        cmocka_unit_test(more_than_the_counter_can_count_is_refused_and_changes_nothing),
        cmocka_unit_test(bytes_that_overflow_are_refused),
        cmocka_unit_test(the_last_room_is_the_most_there_may_be),
        cmocka_unit_test(an_added_item_is_zero_whatever_lay_there),
        cmocka_unit_test(items_behind_one_that_is_removed_move_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
