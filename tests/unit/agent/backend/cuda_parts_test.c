/* Parts of a GPU, as the stand-in's driver makes them: who computes where. A process cuts its GPU
 * once into so many parts: where boxes differ, so do these. */
#include <stdio.h>

#include "tests/unit/agent/backend/cuda_fixture.h"

static void box_set(const char *settings)
{
    void (*restart)(void) = NULL;
    plugin_open();
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    if (settings)
        setenv("CUDA_ON_CPU", settings, 1);
    else
        unsetenv("CUDA_ON_CPU");
    restart();
}

static uint64_t work_of(uint64_t members)
{
    uint64_t (*work)(uint64_t members) = NULL;
    *(void **)&work = standin_symbol("cuda_on_cpu_work");
    return work(members);
}

static int part_open(struct device_part part, struct device **out, struct err *e)
{
    const struct device_config c = {
        .backend = "cuda", .of = plugin_open()->backend, .memory_bytes = 1 << 20, .part = part};
    return device_open(&c, out, e);
}

/* A weight, a product, a copy to the host: what it says. */
static void some_work(struct device *d)
{
    static float values[64 * 64], in[64], out[64];
    static uint8_t bytes[64 * 64 * 4];
    for (int i = 0; i < 64 * 64; i++)
        values[i] = (float)(i % 7);
    in[3] = 2;
    struct weight w = weight_make(DTYPE_F32, values, 64, 64, bytes);
    const struct weight *list[] = {&w, NULL};
    const struct graph_op op = {.kind = OP_MATMUL, .n_inputs = 1, .n_weights = 1, .weights = list};
    op_run_once(d, &op, (struct op_rows[]){{in, 1, 64}},
                (struct op_weight[]){{&w, WEIGHT_MATMUL}, {NULL, WEIGHT_VECTOR}}, NULL, out, 1, 64);
    for (int i = 0; i < 64; i++)
        assert_true(fabsf(out[i] - 2 * values[i * 64 + 3]) <= 1e-5f);
}

TEST(each_part_computes_on_its_own_multiprocessors)
{
    static const struct {
        const char *box;
        struct device_part part;
        uint64_t members;
        const char *says;
    } cases[] = {
        {"sms=16", {4, 0, 1}, 0x000f, "cuda:0/share=1/4 CUDA stand-in"},
        {"sms=16", {4, 1, 1}, 0x00f0, ", 4 of 16 multiprocessors"},
        {"sms=16", {4, 2, 2}, 0xff00, "cuda:0/share=1/2 CUDA stand-in"},
        {"sms=19", {3, 1, 1}, 0x0fc0, ", 6 of 19 multiprocessors"},
        {"sms=63,capability=90", {2, 1, 1}, 0x0000ffffff000000, ", 24 of 63 multiprocessors"},
        {"sms=60,capability=70", {6, 3, 3}, 0x0fffffffc0000000, ", 30 of 60 multiprocessors"},
    };
    struct err e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device *d = NULL;
        box_set(cases[i].box);
        if (part_open(cases[i].part, &d, &e) < 0)
            fail_msg("%s", e.text);
        assert_non_null(strstr(d->backend->device_describe(d), cases[i].says));
        uint64_t before = work_of(0), own = work_of(cases[i].members);
        some_work(d);
        device_close(&d);
        assert_int_equal(work_of(0), before);
        assert_true(work_of(cases[i].members) > own + 3);
    }
    box_set(NULL);
}

TEST(parts_side_by_side_have_nothing_in_common)
{
    struct device *parts[4];
    struct err e = {0};
    box_set("sms=17");
    for (int i = 0; i < 4; i++)
        if (part_open((struct device_part){4, i, 1}, &parts[i], &e) < 0)
            fail_msg("%s", e.text);
    for (int i = 0; i < 4; i++) {
        uint64_t before[4];
        for (int k = 0; k < 4; k++)
            before[k] = work_of((uint64_t)0xf << k * 4);
        some_work(parts[i]);
        for (int k = 0; k < 4; k++)
            assert_int_equal(work_of((uint64_t)0xf << k * 4) > before[k], k == i);
    }
    for (int i = 0; i < 4; i++)
        device_close(&parts[i]);
    box_set(NULL);
}

TEST(what_the_driver_cannot_do_is_said_by_name)
{
    static const struct {
        const char *box;
        struct device_part part;
        const char *says;
    } cases[] = {
        {"sms=15",
         {4, 0, 1},
         "device cuda:0/share=1/4: cut into 4 parts, its 15 multiprocessors are too few: the "
         "driver gives a part no fewer than 4"},
        {"sms=20,capability=90", {3, 0, 1}, "20 multiprocessors are too few"},
        {"sms=16,green=0",
         {4, 0, 1},
         "device cuda:0/share=1/4: the driver makes no green contexts for this GPU, and no MPS "
         "daemon listens at /nowhere/control"},
        {"sms=16,driver=0", {4, 0, 1}, "this box has no NVIDIA driver"},
        {"sms=16,devices=0", {4, 0, 1}, "no GPU can be used"},
    };
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plugin_facts facts;
        struct device *d = NULL;
        struct err e = {0};
        box_set(cases[i].box);
        assert_int_equal(plugin_open()->facts(0, &cases[i].part, &facts, &e), HP_EDEVICE);
        if (!strstr(e.text, cases[i].says))
            fail_msg("%s: %s", cases[i].box, e.text);
        assert_int_equal(part_open(cases[i].part, &d, &e), HP_EDEVICE);
        assert_null(d);
    }
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    box_set(NULL);
}

TEST(a_part_of_a_gpu_that_falls_off_the_bus_is_an_error_at_every_call)
{
    bool went_well = false;
    int refused = 0;
    for (int fails = 1; !went_well; fails++) {
        struct device *d = NULL;
        struct err e = {0};
        char settings[64];
        assert_true(fails < 100);
        snprintf(settings, sizeof settings, "sms=16,call_fails=%d", fails);
        box_set(settings);
        int rc = part_open((struct device_part){2, 1, 1}, &d, &e);
        went_well = rc == 0;
        refused += rc < 0;
        if (rc < 0)
            assert_int_equal(e.code, HP_EDEVICE);
        if (d)
            device_close(&d);
    }
    assert_true(refused > 4);
    box_set(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_computes_on_its_own_multiprocessors),
        cmocka_unit_test(parts_side_by_side_have_nothing_in_common),
        cmocka_unit_test(what_the_driver_cannot_do_is_said_by_name),
        cmocka_unit_test(a_part_of_a_gpu_that_falls_off_the_bus_is_an_error_at_every_call),
    };
    return cmocka_run_group_tests_name("cuda parts", tests, NULL, NULL);
}
