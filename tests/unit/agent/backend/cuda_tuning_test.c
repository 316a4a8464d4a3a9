/* How the cuda backend finds out which way products of one row go: by the clock of the stand-in,
 * which is told what kernels take. */
#include "tests/unit/agent/backend/cuda_fixture.h"

enum { INPUTS = 64, OUTPUTS_MOST = 75, WAYS = 3, TRIALS = 6 * WAYS };

static void (*restart)(void);
static void (*takes)(const char *word, double seconds);
static uint64_t (*runs)(const char *word), (*graph_launches)(void);

/* The stand-in with settings. False: a GPU runs, whose kernels take what they take. */
static bool standin_begin(const char *settings)
{
    plugin_open();
    *(void **)&restart = plugin_symbol("cuda_on_cpu_restart");
    *(void **)&takes = plugin_symbol("cuda_on_cpu_kernel_takes");
    *(void **)&runs = plugin_symbol("cuda_on_cpu_kernel_runs");
    *(void **)&graph_launches = plugin_symbol("cuda_on_cpu_graph_launches");
    if (!restart)
        return false;
    setenv("CUDA_ON_CPU", settings, 1);
    restart();
    return true;
}

static void standin_end(void)
{
    unsetenv("CUDA_ON_CPU");
    restart();
}

/* Products of one shape by a matrix; four of their blocks would stay, and have 32 outputs. */
struct tuning_bench {
    struct device *device;
    const struct backend *backend;
    struct stream *stream;
    struct graph_op op;
    struct weight matrix;
    const struct weight *list[2];
    struct device_weight *loaded;
    struct device_op *ready;
    struct tensor in, out;
    size_t outputs;
    uint8_t bytes[INPUTS * OUTPUTS_MOST * 2];
};

/* `device` NULL: one of its own, as cuda_open makes it. */
static void bench_init_on(struct tuning_bench *b, struct device *device, size_t outputs)
{
    float *values = op_random(INPUTS * outputs, 5, 0.2f), *x = op_random(INPUTS, 3, 1);
    struct err e = {0};
    *b = (struct tuning_bench){.device = device ? device : cuda_open(0), .outputs = outputs};
    b->backend = b->device->backend;
    b->matrix = weight_make(DTYPE_Q8_0, values, outputs, INPUTS, b->bytes);
    b->list[0] = &b->matrix;
    b->op = (struct graph_op){.kind = OP_MATMUL, .n_inputs = 1, .n_weights = 1, .weights = b->list};
    assert_int_equal(b->backend->stream_create(b->device, &b->stream, &e), 0);
    assert_int_equal(
        b->backend->weight_load(b->device, &b->matrix, WEIGHT_MATMUL, false, &b->loaded, &e), 0);
    const struct op_request request = {.op = &b->op, .weights = {b->loaded}};
    assert_int_equal(b->backend->op_prepare(b->device, &request, &b->ready, &e), 0);
    b->in = op_tensor(b->device, b->stream, &(struct op_rows){x, 1, INPUTS});
    b->out = op_tensor(b->device, b->stream, &(struct op_rows){NULL, 1, outputs});
    assert_int_equal(b->backend->stream_wait(b->stream, &e), 0);
    free(values), free(x);
}

static void bench_leave(struct tuning_bench *b)
{
    b->backend->op_release(&b->ready);
    b->backend->memory_release(b->device, &b->in.memory);
    b->backend->memory_release(b->device, &b->out.memory);
    b->backend->weight_free(b->device, &b->loaded);
    b->backend->stream_destroy(&b->stream);
}

static void bench_end(struct tuning_bench *b)
{
    bench_leave(b);
    device_close(&b->device);
    standin_end();
}

/* Its numbers are always the first one's. */
static void product_again(struct tuning_bench *b, uint64_t step, const float *first)
{
    float out[OUTPUTS_MOST] = {0};
    struct tensor host = tensor_on_host(out, DTYPE_F32, 1, b->outputs);
    struct err e = {0};
    if (!step || !b->backend->steps_begin(b->stream, step, NULL)) {
        b->backend->op_run(b->stream, b->ready, &b->in, &b->out, NULL);
        if (step && !b->backend->steps_end(b->stream, NULL))
            b->backend->op_run(b->stream, b->ready, &b->in, &b->out, NULL);
    }
    b->backend->copy(b->stream, &host, &b->out);
    if (b->backend->stream_wait(b->stream, &e) < 0)
        fail_msg("%s", e.text);
    if (first)
        assert_memory_equal(out, first, b->outputs * sizeof *out);
}

static void first_find(struct tuning_bench *b, float *first)
{
    struct tensor host = tensor_on_host(first, DTYPE_F32, 1, b->outputs);
    struct err e = {0};
    product_again(b, 0, NULL);
    b->backend->copy(b->stream, &host, &b->out);
    assert_int_equal(b->backend->stream_wait(b->stream, &e), 0);
}

/* What launches by each way are called. */
static const char *const launches[WAYS] = {"decode_kernel", "persistent_kernel<DTYPE>, 4 blocks",
                                           "persistent_kernel<DTYPE>, 6 blocks"};

static void launches_take(const double *us)
{
    for (int i = 0; i < WAYS; i++)
        takes(launches[i], us[i] * 1e-6);
}

/* The stand-in as `settings` say, on which products go each way in so many microseconds. False:
 * this build has none. */
static bool bench_begin(struct tuning_bench *b, const char *settings, const double *us,
                        size_t outputs)
{
    if (!standin_begin(settings))
        return false;
    launches_take(us);
    bench_init_on(b, NULL, outputs);
    return true;
}

/* So many products from now on all go one way. */
static void products_are(struct tuning_bench *b, uint64_t n, int way, const float *first)
{
    uint64_t before[WAYS];
    for (int i = 0; i < WAYS; i++)
        before[i] = runs(launches[i]);
    for (uint64_t i = 0; i < n; i++)
        product_again(b, 0, first);
    for (int i = 0; i < WAYS; i++)
        assert_int_equal(runs(launches[i]) - before[i], i == way ? n : 0);
}

static const struct device_choice *choice_find(const struct tuning_bench *b)
{
    static struct device_choice all[DEVICE_CHOICES_MAX];
    int n = b->backend->choices(b->device, all, DEVICE_CHOICES_MAX);
    for (int i = 0; i < n; i++)
        if (strcmp(all[i].what, "products of one row") == 0)
            return &all[i];
    return NULL;
}

TEST(products_go_the_way_that_took_least)
{
    static const struct {
        double us[WAYS];
        int way;
        const char *how;
    } cases[] = {{{100, 90, 95}, 1, "blocks stay for 1 of 1 shapes"},
                 {{100, 99.5, 97}, 2, "blocks stay for 1 of 1 shapes"},
                 {{100, 110, 120}, 0, "blocks stay for 0 of 1 shapes"},
                 {{100, 99.5, 99.1}, 0, "blocks stay for 0 of 1 shapes"},
                 {{100, 98.9, 98.9}, 1, "blocks stay for 1 of 1 shapes"}};
    static struct tuning_bench b;
    float first[OUTPUTS_MOST];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!bench_begin(&b, "sms=1", cases[i].us, OUTPUTS_MOST))
            return;
        first_find(&b, first);
        for (int k = 1; k < TRIALS; k++)
            product_again(&b, 0, first);
        for (int k = 0; k < WAYS; k++)
            assert_int_equal(runs(launches[k]), TRIALS / WAYS);
        assert_null(choice_find(&b)); /* nobody has looked at what they took */
        products_are(&b, 5, cases[i].way, first);
        const struct device_choice *said = choice_find(&b);
        assert_non_null(said);
        assert_string_equal(said->how, cases[i].how);
        if (i == 0)
            assert_string_equal(said->why, "Q8_0 64 to 75: 100.0 90.0* 95.0 us");
        bench_end(&b);
    }
}

/* A kernel's first launch may take long, and so may any that runs beside another stream's. */
TEST(what_takes_long_for_once_is_no_part_of_what_is_measured)
{
    static struct tuning_bench b;
    float first[OUTPUTS_MOST];
    if (!bench_begin(&b, "sms=1", (const double[WAYS]){100, 90, 95}, OUTPUTS_MOST))
        return;
    first_find(&b, first);
    for (int k = 1; k < TRIALS; k++) {
        takes(launches[1], k / WAYS % 2 ? 90e-6 : 1); /* three of six */
        product_again(&b, 0, first);
    }
    products_are(&b, 3, 1, first);
    bench_end(&b);
}

TEST(what_cannot_be_measured_goes_as_it_always_did)
{
    static struct tuning_bench b;
    float first[OUTPUTS_MOST];
    if (!bench_begin(&b, "sms=1,moments=0", (const double[WAYS]){100, 1, 1}, OUTPUTS_MOST))
        return;
    first_find(&b, first);
    products_are(&b, TRIALS + 3, 0, first);
    assert_null(choice_find(&b));
    uint64_t before = graph_launches();
    for (int i = 0; i < 3; i++) /* no step waits for it */
        product_again(&b, 7, first);
    assert_int_equal(graph_launches() - before, 2);
    bench_end(&b);
}

TEST(each_shape_goes_its_own_way)
{
    static struct tuning_bench wide, narrow;
    float first[2][OUTPUTS_MOST];
    if (!bench_begin(&wide, "sms=1", (const double[WAYS]){100, 90, 95}, OUTPUTS_MOST))
        return;
    takes("false>), 6 blocks", -50e-6); /* of 48 outputs, which do not stay */
    bench_init_on(&narrow, wide.device, 48);
    first_find(&wide, first[0]);
    first_find(&narrow, first[1]);
    for (int k = 1; k < TRIALS; k++) {
        product_again(&wide, 0, first[0]);
        product_again(&narrow, 0, first[1]);
    }
    products_are(&wide, 2, 1, first[0]);
    products_are(&narrow, 2, 0, first[1]);
    products_are(&wide, 2, 1, first[0]);
    bench_leave(&narrow);
    bench_end(&wide);
}

/* As many blocks as may stay, or fewer: none would have a second turn. */
TEST(products_whose_blocks_all_run_at_once_are_not_tried)
{
    static struct tuning_bench b;
    float first[OUTPUTS_MOST];
    if (!bench_begin(&b, "sms=1", (const double[WAYS]){100, 1, 1}, 32))
        return;
    first_find(&b, first);
    products_are(&b, TRIALS + 3, 0, first);
    bench_end(&b);
}

/* Steps are recorded when it is known how their products go, and not before. */
TEST(steps_are_kept_once_their_products_are_decided)
{
    enum { STEPS = TRIALS + 5 };
    static struct tuning_bench b;
    float first[OUTPUTS_MOST];
    if (!bench_begin(&b, "sms=1", (const double[WAYS]){100, 90, 95}, OUTPUTS_MOST))
        return;
    uint64_t before = graph_launches(), stay_before = 0;
    first_find(&b, first);
    for (uint64_t i = 1; i < STEPS; i++) {
        if (i == TRIALS)
            stay_before = runs(launches[1]);
        product_again(&b, 7, first);
        if (i <= TRIALS)
            assert_int_equal(graph_launches(), before);
    }
    assert_int_equal(graph_launches() - before, STEPS - 1 - TRIALS);
    assert_int_equal(runs(launches[1]) - stay_before, STEPS - TRIALS);
    bench_end(&b);
}

/* Where a step's product is never decided, it is kept all the same. */
TEST(steps_do_not_wait_for_ever_for_their_products)
{
    enum { STEPS = 2 * TRIALS };
    static struct tuning_bench b;
    struct err e = {0};
    if (!bench_begin(&b, "sms=1", (const double[WAYS]){100, 90, 95}, OUTPUTS_MOST))
        return;
    uint64_t before = graph_launches();
    for (uint64_t i = 0; i < STEPS; i++) /* nobody waits, so that no trial is ever over */
        if (!b.backend->steps_begin(b.stream, 7, NULL)) {
            b.backend->op_run(b.stream, b.ready, &b.in, &b.out, NULL);
            b.backend->steps_end(b.stream, NULL);
        }
    assert_in_range(graph_launches() - before, STEPS - TRIALS - 6, STEPS - TRIALS - 1);
    assert_int_equal(b.backend->stream_wait(b.stream, &e), 0);
    bench_end(&b);
}

/* Two rows, which no block stays for: the stream has room for integers from then on. */
static void room_make(struct tuning_bench *b)
{
    float x[2 * INPUTS] = {1};
    struct err e = {0};
    struct tensor in = op_tensor(b->device, b->stream, &(struct op_rows){x, 2, INPUTS}),
                  out = op_tensor(b->device, b->stream, &(struct op_rows){NULL, 2, b->outputs});
    b->backend->op_run(b->stream, b->ready, &in, &out, NULL);
    assert_int_equal(b->backend->stream_wait(b->stream, &e), 0);
    b->backend->memory_release(b->device, &in.memory);
    b->backend->memory_release(b->device, &out.memory);
}

/* A product that comes for the first time while steps are recorded goes as it always did: what is
 * measured would be no part of them. */
TEST(products_are_not_tried_while_steps_are_recorded)
{
    static struct tuning_bench b;
    float first[OUTPUTS_MOST];
    struct err e = {0};
    if (!bench_begin(&b, "sms=1", (const double[WAYS]){100, 90, 95}, OUTPUTS_MOST))
        return;
    uint64_t before = graph_launches();
    room_make(&b);
    assert_false(b.backend->steps_begin(b.stream, 7, NULL)); /* steps of nothing */
    assert_true(b.backend->steps_end(b.stream, NULL));
    for (uint64_t i = 1; i < 4; i++) {
        product_again(&b, 7, i > 1 ? first : NULL);
        struct tensor host = tensor_on_host(first, DTYPE_F32, 1, b.outputs);
        b.backend->copy(b.stream, &host, &b.out);
        assert_int_equal(b.backend->stream_wait(b.stream, &e), 0);
        assert_int_equal(graph_launches() - before, i);
    }
    assert_int_equal(runs(launches[0]), 3);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_go_the_way_that_took_least),
        cmocka_unit_test(what_takes_long_for_once_is_no_part_of_what_is_measured),
        cmocka_unit_test(what_cannot_be_measured_goes_as_it_always_did),
        cmocka_unit_test(each_shape_goes_its_own_way),
        cmocka_unit_test(products_are_not_tried_while_steps_are_recorded),
        cmocka_unit_test(products_whose_blocks_all_run_at_once_are_not_tried),
        cmocka_unit_test(steps_are_kept_once_their_products_are_decided),
        cmocka_unit_test(steps_do_not_wait_for_ever_for_their_products),
    };
    return cmocka_run_group_tests_name("cuda_tuning", tests, NULL, NULL);
}
