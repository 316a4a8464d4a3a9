/* Batches that wait for a share: their order, their begins, and how many there may be. */
#include <stdlib.h>

#include "agent/share_queue.h"
#include "tests/test.h"

static struct share_batch batch_of(uint32_t number, uint64_t start_ns, uint64_t bytes)
{
    return (struct share_batch){.header = {.batch = number, .payload_bytes = bytes},
                                .start_ns = start_ns};
}

static int put(struct share_queue *q, uint32_t number, uint64_t start_ns, uint64_t bytes)
{
    struct share_batch b = batch_of(number, start_ns, bytes);
    return share_queue_put(q, &b, NULL);
}

/* Its number; 0: none may begin. */
static uint32_t taken(struct share_queue *q, uint64_t now_ns)
{
    struct share_batch b;
    return share_queue_take(q, now_ns, &b) ? b.header.batch : 0;
}

TEST(batches_come_in_the_order_of_their_begins_and_not_before)
{
    struct share_queue q = {.limit_bytes = 1000};
    assert_int_equal(share_queue_due_ns(&q), UINT64_MAX);
    assert_int_equal(taken(&q, UINT64_MAX - 1), 0);
    assert_int_equal(put(&q, 1, 300, 1), 0);
    assert_int_equal(put(&q, 2, 100, 1), 0);
    assert_int_equal(put(&q, 3, 300, 1), 0);
    assert_int_equal(put(&q, 4, 0, 1), 0);
    assert_int_equal(put(&q, 5, 200, 1), 0);
    assert_int_equal(share_queue_due_ns(&q), 0);
    assert_int_equal(taken(&q, 50), 4);
    assert_int_equal(share_queue_due_ns(&q), 100);
    assert_int_equal(taken(&q, 99), 0);
    assert_int_equal(taken(&q, 100), 2);
    assert_int_equal(taken(&q, 400), 5);
    assert_int_equal(taken(&q, 400), 1); /* came before the other of the same begin */
    assert_int_equal(taken(&q, 400), 3);
    assert_int_equal(taken(&q, 400), 0);
    assert_int_equal(q.bytes, 0);
}

TEST(batches_and_bytes_are_bounded_and_one_alone_always_passes)
{
    struct share_queue q = {.limit_bytes = 100};
    assert_int_equal(put(&q, 1, 1, 5000), 0);
    assert_int_equal(put(&q, 2, 1, 1), HP_EBUSY);
    assert_int_equal(taken(&q, 1), 1);
    assert_int_equal(put(&q, 3, 1, 60), 0);
    assert_int_equal(put(&q, 4, 1, 41), HP_EBUSY);
    assert_int_equal(put(&q, 5, 1, 40), 0);
    assert_int_equal(put(&q, 6, 1, 0), 0);
    for (uint32_t i = 3; i < SHARE_QUEUE_BATCHES; i++)
        assert_int_equal(put(&q, 100 + i, 2, 0), 0);
    struct err e = {0};
    struct share_batch b = batch_of(7, 1, 0);
    assert_int_equal(share_queue_put(&q, &b, &e), HP_EBUSY);
    assert_string_equal(e.text, "256 batches wait for this share already");
}

TEST(any_order_of_arrivals_is_sorted)
{
    struct share_queue q = {.limit_bytes = 1};
    uint64_t chance = 77, before = 0;
    for (uint32_t i = 0; i < SHARE_QUEUE_BATCHES; i++) {
        chance = chance * 6364136223846793005u + 1442695040888963407u;
        assert_int_equal(put(&q, i + 1, chance >> 58, 0), 0);
    }
    uint32_t latest[64] = {0};
    for (uint32_t i = 0; i < SHARE_QUEUE_BATCHES; i++) {
        struct share_batch b;
        assert_true(share_queue_take(&q, UINT64_MAX, &b));
        assert_true(b.start_ns >= before);
        assert_true(b.header.batch > latest[b.start_ns]);
        latest[b.start_ns] = b.header.batch;
        before = b.start_ns;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_come_in_the_order_of_their_begins_and_not_before),
        cmocka_unit_test(batches_and_bytes_are_bounded_and_one_alone_always_passes),
        cmocka_unit_test(any_order_of_arrivals_is_sorted),
    };
    return cmocka_run_group_tests_name("share_queue", tests, NULL, NULL);
}
