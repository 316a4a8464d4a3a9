/* A network that has run in some sizes allocates nothing when it runs in them again. */
#include "tests/unit/agent/engine/small_network.h"
#include "tests/unit/allocations.h"

TEST(a_run_of_known_sizes_allocates_nothing)
{
    /* As far as the picture: what follows is left to the reference, which allocates. */
    struct onnx_writer w = {.random = 5};
    ow_end(&w, 11, "x", 4, (int64_t[]){-1, 3, -1, -1});
    ow_conv(&w, "x", "c0", 3, 16, 3, 2, 1);
    ow_node(&w, "Relu", "c0", "r0");
    ow_conv(&w, "r0", "c1", 16, 16, 3, 1, 16);
    ow_node(&w, "Add", "c1 r0", "a1");
    ow_node(&w, "GlobalAveragePool", "a1", "p1");
    ow_node(&w, "Sigmoid", "p1", "s1");
    ow_node(&w, "Mul", "a1 s1", "y");
    ow_end(&w, 12, "y", 4, (int64_t[]){-1, 16, -1, -1});
    struct buffer file = ow_finish(&w, 17);
    struct onnx_network *n = network_of(&file, UINT32_MAX);
    struct network_engine *g = NULL;
    struct err e = {0};
    assert_int_equal(network_engine_open(&n, NULL, NULL, &g, &e), 0);
    struct ndarray x[2] = {random_picture(1, 16, 16), random_picture(2, 12, 20)}, y[2] = {0};
    for (int i = 0; i < 2; i++) {
        const struct ndarray *inputs[] = {&x[i]};
        assert_int_equal(network_engine_run(g, 1, inputs, &y[i], &e), 0);
    }
    allocations_begin();
    for (int i = 0; i < 20; i++) {
        const struct ndarray *inputs[] = {&x[i % 2]};
        assert_int_equal(network_engine_run(g, 1, inputs, &y[i % 2], &e), 0);
    }
    allocations_end_at_most(0, "20 runs in two sizes");
    for (int i = 0; i < 2; i++) {
        ndarray_free(&x[i]);
        ndarray_free(&y[i]);
    }
    network_engine_close(&g);
    buffer_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_of_known_sizes_allocates_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
