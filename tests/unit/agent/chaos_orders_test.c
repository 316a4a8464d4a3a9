/* Signals with a value that say how late an agent's links are. */
#include <pthread.h>
#include <unistd.h>

#include "agent/chaos_orders.h"
#include "tests/test.h"

struct heard {
    uv_loop_t *loop;
    struct link_fault faults[8];
    int n;
};

static void on_order(void *ctx, struct link_fault fault)
{
    struct heard *h = ctx;
    h->faults[h->n++] = fault;
    uv_stop(h->loop);
}

TEST(a_signals_value_holds_delay_loss_and_end)
{
    static const struct link_fault faults[] = {
        {0, 0, 0},
        {2000, 50, 0},
        {1, LINK_FAULT_MOST_DELAY_MS, 0},
        {UINT32_MAX, 1, 20},
        {2000, 0, 1},
        {UINT32_MAX, LINK_FAULT_MOST_DELAY_MS, LINK_FAULT_MOST_LOST}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        union sigval v = link_fault_value(faults[i]);
        struct link_fault f = link_fault_of((uintptr_t)v.sival_ptr);
        assert_int_equal(f.delay_ms, faults[i].delay_ms);
        assert_int_equal(f.for_ms, faults[i].for_ms);
        assert_int_equal(f.lost, faults[i].lost);
    }
}

TEST(orders_are_heard_one_after_the_other_and_what_has_no_value_is_none)
{
    uv_loop_t loop;
    struct heard h = {.loop = &loop};
    struct chaos_orders o;
    chaos_orders_take();
    assert_int_equal(uv_loop_init(&loop), 0);
    /* also those that came before it listened */
    assert_int_equal(
        sigqueue(getpid(), LINK_FAULT_SIGNAL, link_fault_value((struct link_fault){2000, 50, 0})),
        0);
    assert_int_equal(kill(getpid(), LINK_FAULT_SIGNAL), 0);
    assert_int_equal(
        sigqueue(getpid(), LINK_FAULT_SIGNAL, link_fault_value((struct link_fault){0, 0, 0})), 0);
    assert_int_equal(chaos_orders_open(&o, &loop, on_order, &h, NULL), 0);
    while (h.n < 2)
        uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(h.n, 2);
    assert_true(h.faults[0].delay_ms == 50 && h.faults[0].for_ms == 2000);
    assert_true(h.faults[1].delay_ms == 0 && h.faults[1].for_ms == 0);
    chaos_orders_close(&o);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signals_value_holds_delay_loss_and_end),
        cmocka_unit_test(orders_are_heard_one_after_the_other_and_what_has_no_value_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
