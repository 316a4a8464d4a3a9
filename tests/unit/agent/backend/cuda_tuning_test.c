/* How the cuda backend finds out which way products of one row go: by the clock of the stand-in,
 * which is told what kernels take. */
#include "tests/unit/agent/backend/cuda_fixture.h"

enum { INPUTS = 64, PRODUCTS = 2, OUTPUTS_MOST = 75, WAYS = 2, TRIALS = 8 * WAYS };
/* Of one multiprocessor, on which six blocks of 8 outputs would stay: one product has more of them,
 * the other not. */
static const size_t outputs_of[PRODUCTS] = {OUTPUTS_MOST, 24};

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

/* ---- what launches are called, and what they take ---- */

enum launch { WIDE, WIDE_STAY, SMALL, LAUNCHES };
static const char *const launches[LAUNCHES] = {
    "(decode_kernel<DTYPE, ROWS, false>), 10 blocks",
    "decode_persistent_kernel<DTYPE>, 6 blocks",
    "(decode_kernel<DTYPE, ROWS, false>), 3 blocks",
};
/* Of each way. */
static const enum launch launches_of[WAYS][PRODUCTS] = {{WIDE, SMALL}, {WIDE_STAY, SMALL}};

static void launches_take(const double *us)
{
    for (int i = 0; i < LAUNCHES; i++)
        takes(launches[i], us[i] * 1e-6);
}

static void launches_count(uint64_t *out)
{
    for (int i = 0; i < LAUNCHES; i++)
        out[i] = runs(launches[i]);
}

/* Since `before` so many steps went some way, and no other. */
static void launches_are(const uint64_t *before, int way, uint64_t n)
{
    for (enum launch i = 0; i < LAUNCHES; i++) {
        bool own = i == launches_of[way][0] || i == launches_of[way][1];
        assert_int_equal(runs(launches[i]) - before[i], own ? n : 0);
    }
}

/* ---- steps ---- */

/* A step of two products of the same row. */
struct tuning_bench {
    struct device *device;
    const struct backend *backend;
    struct stream *stream;
    struct graph_op op[PRODUCTS];
    struct weight matrix[PRODUCTS];
    const struct weight *list[PRODUCTS][2];
    struct device_weight *loaded[PRODUCTS];
    struct device_op *ready[PRODUCTS];
    struct tensor in, out[PRODUCTS];
    uint8_t bytes[PRODUCTS][INPUTS * OUTPUTS_MOST * 2];
    bool whole; /* `first` is there */
    float first[PRODUCTS][OUTPUTS_MOST];
};

static void product_init(struct tuning_bench *b, int i)
{
    float *values = op_random(INPUTS * outputs_of[i], 5, 0.2f);
    struct err e = {0};
    b->matrix[i] = weight_make(DTYPE_Q8_0, values, outputs_of[i], INPUTS, b->bytes[i]);
    b->list[i][0] = &b->matrix[i];
    b->op[i] =
        (struct graph_op){.kind = OP_MATMUL, .n_inputs = 1, .n_weights = 1, .weights = b->list[i]};
    assert_int_equal(
        b->backend->weight_load(b->device, &b->matrix[i], WEIGHT_MATMUL, false, &b->loaded[i], &e),
        0);
    const struct op_request request = {.op = &b->op[i], .weights = {b->loaded[i]}};
    assert_int_equal(b->backend->op_prepare(b->device, &request, &b->ready[i], &e), 0);
    b->out[i] = op_tensor(b->device, b->stream, &(struct op_rows){NULL, 1, outputs_of[i]});
    free(values);
}

/* The stand-in as `settings` say, on which launches take so many microseconds. False: this build
 * has none. */
static bool bench_begin(struct tuning_bench *b, const char *settings, const double *us)
{
    float *x = op_random(INPUTS, 3, 1);
    struct err e = {0};
    if (!standin_begin(settings)) {
        free(x);
        return false;
    }
    launches_take(us);
    *b = (struct tuning_bench){.device = cuda_open(0)};
    b->backend = b->device->backend;
    assert_int_equal(b->backend->stream_create(b->device, &b->stream, &e), 0);
    b->in = op_tensor(b->device, b->stream, &(struct op_rows){x, 1, INPUTS});
    for (int i = 0; i < PRODUCTS; i++)
        product_init(b, i);
    assert_int_equal(b->backend->stream_wait(b->stream, &e), 0);
    free(x);
    return true;
}

static void bench_end(struct tuning_bench *b)
{
    for (int i = 0; i < PRODUCTS; i++) {
        b->backend->op_release(&b->ready[i]);
        b->backend->memory_release(b->device, &b->out[i].memory);
        b->backend->weight_free(b->device, &b->loaded[i]);
    }
    b->backend->memory_release(b->device, &b->in.memory);
    b->backend->stream_destroy(&b->stream);
    device_close(&b->device);
    unsetenv("CUDA_ON_CPU");
    restart();
}

static void products_put(struct tuning_bench *b)
{
    for (int i = 0; i < PRODUCTS; i++)
        b->backend->op_run(b->stream, b->ready[i], &b->in, &b->out[i], NULL);
}

/* Key 0: no step is kept. */
static void step_put(struct tuning_bench *b, uint64_t key)
{
    if (key && b->backend->steps_begin(b->stream, key, NULL))
        return;
    products_put(b);
    if (key && !b->backend->steps_end(b->stream, NULL))
        products_put(b);
}

/* So many steps, whose numbers are to the bit those of the first. */
static void steps_run(struct tuning_bench *b, uint64_t key, int n)
{
    for (int k = 0; k < n; k++) {
        float out[PRODUCTS][OUTPUTS_MOST] = {{0}};
        struct err e = {0};
        step_put(b, key);
        for (int i = 0; i < PRODUCTS; i++) {
            struct tensor host = tensor_on_host(out[i], DTYPE_F32, 1, outputs_of[i]);
            b->backend->copy(b->stream, &host, &b->out[i]);
        }
        if (b->backend->stream_wait(b->stream, &e) < 0)
            fail_msg("%s", e.text);
        if (!b->whole)
            memcpy(b->first, out, sizeof out);
        b->whole = true;
        assert_memory_equal(out, b->first, sizeof out);
    }
}

/* So many from now on all go one way. */
static void steps_are(struct tuning_bench *b, uint64_t key, int n, int way)
{
    uint64_t before[LAUNCHES];
    launches_count(before);
    steps_run(b, key, n);
    launches_are(before, way, (uint64_t)n);
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

static const double usual[LAUNCHES] = {100, 90, 20}; /* way 1 takes less */

/* ---- what is found ---- */

TEST(steps_go_the_way_that_took_less)
{
    static const struct {
        double us[LAUNCHES];
        int way;
        const char *how;
    } cases[] = {{{100, 90, 20}, 1, "6 blocks stay"},
                 {{100, 98.5, 20}, 1, "6 blocks stay"},
                 {{100, 99.2, 20}, 0, "no block stays"},
                 {{100, 110, 20}, 0, "no block stays"}};
    static struct tuning_bench b;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!bench_begin(&b, "sms=1", cases[i].us))
            return;
        steps_run(&b, 7, 1 + TRIALS); /* the first is not kept */
        assert_null(choice_find(&b)); /* nobody has looked at what they took */
        steps_are(&b, 7, 5, cases[i].way);
        const struct device_choice *said = choice_find(&b);
        assert_non_null(said);
        assert_string_equal(said->how, cases[i].how);
        if (i == 0)
            assert_string_equal(said->why, "120.0 110.0* us");
        bench_end(&b);
    }
}

/* While they are tried, each way has its turn, and every step but the first is kept. */
TEST(each_way_has_its_turns)
{
    static struct tuning_bench b;
    if (!bench_begin(&b, "sms=1", usual))
        return;
    steps_run(&b, 7, 1);
    for (int i = 0; i < TRIALS; i++) {
        uint64_t before = graph_launches();
        steps_are(&b, 7, 1, i % WAYS);
        assert_int_equal(graph_launches() - before, 1);
    }
    bench_end(&b);
}

/* A graph's first start may take long, and so may any that runs beside another stream's. */
TEST(what_takes_long_for_once_is_no_part_of_what_is_measured)
{
    static struct tuning_bench b;
    if (!bench_begin(&b, "sms=1", usual))
        return;
    steps_run(&b, 7, 1);
    for (int k = 0; k < TRIALS; k++) {
        takes(launches[WIDE_STAY], k / WAYS % 2 ? 90e-6 : 1); /* four of eight */
        steps_run(&b, 7, 1);
    }
    steps_are(&b, 7, 3, 1);
    bench_end(&b);
}

TEST(what_cannot_be_measured_goes_as_it_always_did)
{
    static struct tuning_bench b;
    if (!bench_begin(&b, "sms=1,moments=0", (const double[LAUNCHES]){100, 1, 100}))
        return;
    uint64_t before = graph_launches();
    steps_are(&b, 7, TRIALS + 3, 0);
    assert_null(choice_find(&b));
    assert_int_equal(graph_launches() - before, TRIALS + 2);
    bench_end(&b);
}

TEST(each_kind_of_steps_goes_its_own_way)
{
    static struct tuning_bench b;
    if (!bench_begin(&b, "sms=1", usual))
        return;
    steps_run(&b, 7, 2 + TRIALS);
    launches_take((const double[LAUNCHES]){100, 110, 20});
    steps_run(&b, 8, 2 + TRIALS);
    steps_are(&b, 7, 2, 1);
    steps_are(&b, 8, 2, 0);
    steps_are(&b, 7, 2, 1);
    const struct device_choice *said = choice_find(&b);
    assert_non_null(said);
    assert_string_equal(said->how, "no block stays"); /* the last */
    assert_string_equal(said->why, "120.0* 130.0 us; 120.0 110.0* us");
    bench_end(&b);
}

/* Nothing says what would be faster there. */
TEST(products_of_steps_that_are_not_kept_go_as_they_always_did)
{
    static struct tuning_bench b;
    if (!bench_begin(&b, "sms=1", usual))
        return;
    steps_are(&b, 0, TRIALS + 3, 0);
    steps_run(&b, 7, 2 + TRIALS);
    steps_are(&b, 7, 1, 1);
    steps_are(&b, 0, 2, 0);
    bench_end(&b);
}

/* Where what they took is never known, they go on as they did before. */
TEST(steps_whose_trials_are_never_over_go_as_they_always_did)
{
    enum { STEPS = 2 * TRIALS };
    static struct tuning_bench b;
    struct err e = {0};
    if (!bench_begin(&b, "sms=1", usual))
        return;
    uint64_t before = graph_launches();
    for (int i = 0; i < STEPS; i++) /* nobody waits */
        step_put(&b, 7);
    assert_int_equal(graph_launches() - before, STEPS - 1);
    assert_int_equal(b.backend->stream_wait(b.stream, &e), 0);
    assert_int_equal(runs(launches[WIDE_STAY]), TRIALS / WAYS); /* its own turns alone */
    steps_are(&b, 7, 2, 1);                                     /* and now they are over */
    bench_end(&b);
}

/* A graph for each way may be more than a GPU has room for. */
TEST(a_way_that_cannot_be_recorded_is_none)
{
    static struct tuning_bench b;
    uint64_t before = 0;
    if (!bench_begin(&b, "sms=1,graphs_most=1", usual))
        return;
    before = graph_launches();
    steps_run(&b, 7, 2);
    steps_are(&b, 7, TRIALS + 3, 0);
    assert_int_equal(graph_launches() - before, 1 + TRIALS + 2); /* but the one that failed */
    assert_null(choice_find(&b));
    bench_end(&b);
}

/* Steps of two rows, which no way is for. */
TEST(steps_without_products_of_one_row_are_not_tried)
{
    static struct tuning_bench b;
    struct err e = {0};
    if (!bench_begin(&b, "sms=1,graphs_most=1", usual))
        return;
    float x[2 * INPUTS] = {1};
    struct tensor in = op_tensor(b.device, b.stream, &(struct op_rows){x, 2, INPUTS}),
                  out = op_tensor(b.device, b.stream, &(struct op_rows){NULL, 2, outputs_of[0]});
    uint64_t before = graph_launches();
    for (int i = 0; i < TRIALS + 3; i++)
        if (!b.backend->steps_begin(b.stream, 7, NULL)) {
            b.backend->op_run(b.stream, b.ready[0], &in, &out, NULL);
            assert_true(b.backend->steps_end(b.stream, NULL)); /* one graph is enough */
        }
    assert_int_equal(b.backend->stream_wait(b.stream, &e), 0);
    assert_int_equal(graph_launches() - before, TRIALS + 2);
    assert_null(choice_find(&b));
    b.backend->memory_release(b.device, &in.memory);
    b.backend->memory_release(b.device, &out.memory);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_go_the_way_that_took_less),
        cmocka_unit_test(each_way_has_its_turns),
        cmocka_unit_test(what_takes_long_for_once_is_no_part_of_what_is_measured),
        cmocka_unit_test(what_cannot_be_measured_goes_as_it_always_did),
        cmocka_unit_test(each_kind_of_steps_goes_its_own_way),
        cmocka_unit_test(products_of_steps_that_are_not_kept_go_as_they_always_did),
        cmocka_unit_test(steps_whose_trials_are_never_over_go_as_they_always_did),
        cmocka_unit_test(a_way_that_cannot_be_recorded_is_none),
        cmocka_unit_test(steps_without_products_of_one_row_are_not_tried),
    };
    return cmocka_run_group_tests_name("cuda_tuning", tests, NULL, NULL);
}
