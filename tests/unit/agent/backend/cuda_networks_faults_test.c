/* Networks on the cuda backend, as the stand-in runs it, while allocations fail. */
#include "agent/engine/network/network_device.h"
#include "tests/unit/agent/backend/cuda_fixture.h"
#include "tests/unit/agent/engine/small_network.h"
#include "tests/unit/faults.h"

struct gpu_scene {
    struct device *gpu;
    struct buffer file;
    uint64_t free_bytes;
};

static struct buffer tiny_file(void)
{
    static const float scales[] = {1, 1, 2, 2};
    struct onnx_writer w = {.random = 5};
    ow_end(&w, 11, "x", 4, (int64_t[]){-1, 2, 4, 4});
    ow_conv(&w, "x", "c", 2, 4, 3, 2, 1);
    ow_node(&w, "Relu", "c", "r");
    ow_array(&w, "scales", 1, 1, (int64_t[]){4}, scales, sizeof scales);
    ow_begin(&w, "Resize", "r - scales", "u");
    ow_done(&w);
    ow_node(&w, "GlobalAveragePool", "u", "p");
    ow_node(&w, "Flatten", "p", "f");
    ow_weight(&w, "m", 0, 2, (int64_t[]){4, 3});
    ow_node(&w, "MatMul", "f m", "y");
    ow_node(&w, "Erf", "y", "z");
    ow_end(&w, 12, "y", 2, (int64_t[]){-1, 3});
    ow_end(&w, 12, "z", 2, (int64_t[]){-1, 3});
    return ow_finish(&w, 17);
}

/* Cut, with what the host computes in between. */
static int network_used(void *ctx)
{
    const struct gpu_scene *s = ctx;
    struct err e = {0};
    const struct onnx *o;
    struct onnx_network *n = NULL;
    struct network_device *d = NULL;
    struct network_engine *g = NULL;
    struct ndarray x = {0}, y[2] = {0};
    const struct ndarray *inputs[] = {&x};
    int rc = network_device_open(s->gpu, 0, 1, NULL, &d, &e);
    rc = rc < 0 ? rc : onnx_parse("test.onnx", NULL, s->file.data, s->file.size, &o, &e);
    rc = rc < 0 ? rc : network_make("test.onnx", &o, UINT32_MAX, &n, &e);
    rc = rc < 0 ? rc : network_engine_open(&n, NULL, d, &g, &e);
    rc = rc < 0 ? rc : ndarray_make(&x, ND_F32, 4, (int64_t[]){1, 2, 4, 4}, UINT64_MAX, &e);
    rc = rc < 0 ? rc : network_engine_run(g, 2, inputs, y, &e);
    for (int i = 0; i < 2; i++)
        ndarray_free(&y[i]);
    ndarray_free(&x);
    network_engine_close(&g);
    network_device_close(&d);
    assert_true(s->gpu->backend->memory_free(s->gpu) == s->free_bytes);
    return rc;
}

TEST(networks_on_a_gpu_survive_any_failing_allocation)
{
    struct gpu_scene s = {.gpu = cuda_open(8 << 20), .file = tiny_file()};
    s.free_bytes = s.gpu->backend->memory_free(s.gpu);
    faults_each("a network on a GPU", network_used, &s);
    buffer_free(&s.file);
    device_close(&s.gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_on_a_gpu_survive_any_failing_allocation),
    };
    return cmocka_run_group_tests_name("cuda networks faults", tests, NULL, NULL);
}
