#include <stdlib.h>

#include "agent/event_queue.h"
#include "tests/test.h"

TEST(kind_that_floods_takes_no_place_from_another)
{
    static const uint32_t places[] = {3, 1};
    struct event_queue b;
    event_queue_init_classes(&b, sizeof(int), places, 2);
    int n = 0, item = 100;
    while (event_queue_put_as(&b, 0, &n))
        n++;
    assert_int_equal(n, 3);
    assert_true(event_queue_put_as(&b, 1, &item));
    assert_false(event_queue_put_as(&b, 1, &item));
    assert_true(event_queue_take(&b, &item));
    assert_int_equal(item, 0);
    assert_false(
        event_queue_put_as(&b, 1, &item)); /* the place that is free is of the other kind */
    assert_true(event_queue_put_as(&b, 0, &n));
    static const int rest[] = {1, 2, 100, 3};
    for (int i = 0; i < 4; i++) {
        assert_true(event_queue_take(&b, &item));
        assert_int_equal(item, rest[i]);
    }
    assert_false(event_queue_take(&b, &item));
    assert_false(event_queue_wait(&b, &item, 0));
    event_queue_fini(&b);
}

TEST(items_come_out_in_the_order_in_which_they_were_put_in)
{
    struct event_queue b;
    event_queue_init(&b, sizeof(int));
    for (int put = 0, taken = 0, item; put < 30000;) {
        for (int k = put % 700; k >= 0; k--)
            if (event_queue_put(&b, &put))
                put++;
        for (int k = put % 600; k >= 0 && event_queue_take(&b, &item); k--)
            assert_int_equal(item, taken++);
    }
    event_queue_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kind_that_floods_takes_no_place_from_another),
        cmocka_unit_test(items_come_out_in_the_order_in_which_they_were_put_in),
    };
    return cmocka_run_group_tests_name("event_queue", tests, NULL, NULL);
}
