/* Planning and running a network while allocations fail. */
#include <stdio.h>
#include <unistd.h>

#include "agent/engine/network/network_part.h"
#include "model/text_network.h"
#include "tests/unit/agent/engine/small_network.h"
#include "tests/unit/faults.h"
#include "tests/unit/model/tiny_gguf.h"

static int network_used(void *ctx)
{
    const struct buffer *file = ctx;
    struct err e = {0};
    const struct onnx *o;
    struct onnx_network *n = NULL;
    struct network_engine *g = NULL;
    struct ndarray x = {0}, y[2] = {0};
    const struct ndarray *inputs[] = {&x};
    int rc = onnx_parse("test.onnx", NULL, file->data, file->size, &o, &e);
    rc = rc < 0 ? rc : network_make("test.onnx", &o, UINT32_MAX, &n, &e);
    rc = rc < 0 ? rc : network_engine_open(&n, NULL, NULL, &g, &e);
    rc = rc < 0 ? rc : ndarray_make(&x, ND_F32, 4, (int64_t[]){1, 3, 8, 8}, UINT64_MAX, &e);
    rc = rc < 0 ? rc : network_engine_run(g, 2, inputs, y, &e);
    for (int i = 0; i < 2; i++)
        ndarray_free(&y[i]);
    ndarray_free(&x);
    network_engine_close(&g);
    return rc;
}

static int part_used(void *ctx)
{
    const struct buffer *file = ctx;
    static const struct network_dim sides[] = {{"", 8}, {"", 6}};
    const struct device_config c = {.backend = "cpu"};
    struct network_account account = {NULL, 1};
    const struct network_part_ask ask = {sides, 1, 2, NULL, 1, 2, 2, 2, NULL, NULL, &account};
    struct device *device = NULL;
    struct err e = {0};
    const struct onnx *o;
    struct onnx_network *n = NULL;
    struct network_part *p = NULL;
    int n_in, rc = device_open(&c, &device, &e);
    rc = rc < 0 ? rc : network_memory_create(device, &account.memory, &e);
    rc = rc < 0 ? rc : onnx_parse("test.onnx", NULL, file->data, file->size, &o, &e);
    rc = rc < 0 ? rc : network_make("test.onnx", &o, UINT32_MAX, &n, &e);
    rc = rc < 0 ? rc : network_part_open(&n, &ask, &p, &e);
    if (rc == 0) {
        const struct ndarray *in = network_part_enters(p, 2, &n_in);
        rc = network_part_run(p, 2, in, n_in, &e);
        network_part_close(&p);
    }
    assert_true(!account.memory || network_memory_bytes(account.memory) == 0);
    network_memory_destroy(&account.memory);
    device_close(&device);
    return rc;
}

/* A language model's, with matrices in blocks. */
static int text_part_used(void *ctx)
{
    static const struct network_dim lengths[] = {{"tokens", 8}, {"tokens", 4}};
    const struct network_part_ask ask = {lengths, 1, 4, NULL, 1, 3, 1, 2, NULL, NULL, NULL};
    struct err e = {0};
    struct onnx_network *n = NULL;
    struct network_part *p = NULL;
    int n_in, rc = text_network_open(ctx, UINT32_MAX, &n, &e);
    rc = rc < 0 ? rc : network_part_open(&n, &ask, &p, &e);
    if (rc == 0) {
        const struct ndarray *in = network_part_enters(p, 1, &n_in);
        rc = network_part_run(p, 1, in, n_in, &e);
        network_part_close(&p);
    }
    return rc;
}

TEST(parts_of_language_models_survive_any_failing_allocation)
{
    const char *path = tiny_llama_write(DTYPE_Q8_0);
    faults_each("part of a language model", text_part_used, (void *)(uintptr_t)path);
    unlink(path);
}

TEST(planning_and_running_survive_any_failing_allocation)
{
    struct onnx_writer w = {.random = 5};
    ow_end(&w, 11, "x", 4, (int64_t[]){-1, 3, -1, -1});
    ow_conv(&w, "x", "c0", 3, 8, 3, 2, 1);
    ow_node(&w, "Relu", "c0", "r0");
    ow_begin(&w, "Concat", "r0 c0", "j0");
    ow_int(&w, "axis", 1);
    ow_done(&w);
    ow_node(&w, "GlobalAveragePool", "j0", "p0");
    ow_node(&w, "Flatten", "p0", "f0");
    ow_weight(&w, "m", 0, 2, (int64_t[]){16, 4});
    ow_node(&w, "MatMul", "f0 m", "y0");
    ow_node(&w, "Erf", "y0", "y1");
    ow_end(&w, 12, "y0", 2, (int64_t[]){-1, 4});
    ow_end(&w, 12, "y1", 2, (int64_t[]){-1, 4});
    struct buffer file = ow_finish(&w, 17);
    faults_each("network engine", network_used, &file);
    faults_each("part of a network", part_used, &file);
    buffer_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planning_and_running_survive_any_failing_allocation),
        cmocka_unit_test(parts_of_language_models_survive_any_failing_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
