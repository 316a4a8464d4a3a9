#include <stdio.h>
#include <stdlib.h>

#include "common/map.h"
#include "tests/test.h"

struct item {
    uint64_t id;
    char name[16];
    UT_hash_handle hh, by_name;
};

TEST(items_are_found_by_number_and_by_name)
{
    enum { N = 1000 };
    static struct item items[N];
    struct item *by_id = NULL, *by_name = NULL, *found;
    for (uint64_t i = 0; i < N; i++) {
        items[i].id = i * i;
        snprintf(items[i].name, sizeof items[i].name, "n%d", (int)i);
        HASH_ADD(hh, by_id, id, sizeof items[i].id, &items[i]);
        assert_true(map_has_added(&items[i]));
        HASH_ADD_KEYPTR(by_name, by_name, items[i].name, strlen(items[i].name), &items[i]);
    }
    for (uint64_t i = 0; i < N; i++) {
        uint64_t id = i * i;
        HASH_FIND(hh, by_id, &id, sizeof id, found);
        assert_ptr_equal(found, &items[i]);
        HASH_FIND(by_name, by_name, items[i].name, strlen(items[i].name), found);
        assert_ptr_equal(found, &items[i]);
    }
    uint64_t none = 7;
    HASH_FIND(hh, by_id, &none, sizeof none, found);
    assert_null(found);
    HASH_CLEAR(hh, by_id);
    HASH_CLEAR(by_name, by_name);
    assert_null(by_id);
}

TEST(what_was_deleted_is_not_found_and_may_come_again)
{
    struct item a = {.id = 1}, b = {.id = 2}, *map = NULL, *found;
    uint64_t id = 1;
    HASH_ADD(hh, map, id, sizeof a.id, &a);
    HASH_ADD(hh, map, id, sizeof b.id, &b);
    HASH_DEL(map, &a);
    HASH_FIND(hh, map, &id, sizeof id, found);
    assert_null(found);
    HASH_ADD(hh, map, id, sizeof a.id, &a);
    HASH_FIND(hh, map, &id, sizeof id, found);
    assert_ptr_equal(found, &a);
    assert_int_equal(HASH_COUNT(map), 2);
    HASH_CLEAR(hh, map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_found_by_number_and_by_name),
        cmocka_unit_test(what_was_deleted_is_not_found_and_may_come_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
