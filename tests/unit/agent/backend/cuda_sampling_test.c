/* Tokens that the cuda backend picks where the logits are: those of the host's sampler, or the row
 * for the host to pick from. */
#include "agent/engine/sampler.h"
#include "tests/unit/agent/backend/cuda_fixture.h"

enum { ROWS = 5, STEPS = 2, PROMPT = 7 };

enum logits_kind { RANDOM, FEW_VALUES, ALL_EQUAL, STEEP, NO_NUMBERS, LOGITS_KINDS };

static void logits_fill(float *x, size_t n, enum logits_kind kind, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        double u = random_unit(seed);
        switch (kind) {
        case RANDOM: x[i] = (float)(u * u * 16 - 8); break;
        case FEW_VALUES: x[i] = (float)((int)(u * 6)) * 0.5f; break;
        case ALL_EQUAL: x[i] = 1.25f; break;
        case STEEP: x[i] = (float)(u * 3000 - 1500); break; /* most weigh nothing */
        default: x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? -INFINITY : (float)u; break;
        }
    }
}

struct sampling_bench {
    struct device *device;
    const struct backend *backend;
    struct stream *stream;
    struct memory memory;
    size_t width;
    float *logits, *rows;
    uint32_t picked[ROWS];
};

static void bench_init(struct sampling_bench *b, size_t width)
{
    struct err e = {0};
    *b = (struct sampling_bench){.device = cuda_open(0), .width = width};
    b->backend = b->device->backend;
    assert_int_equal(b->backend->stream_create(b->device, &b->stream, &e), 0);
    assert_int_equal(
        b->backend->memory_alloc(b->device, ROWS * width * sizeof(float), &b->memory, &e), 0);
    b->logits = calloc(ROWS * width, sizeof *b->logits);
    b->rows = calloc(ROWS * width, sizeof *b->rows);
}

static void bench_fini(struct sampling_bench *b)
{
    b->backend->memory_release(b->device, &b->memory);
    b->backend->stream_destroy(&b->stream);
    device_close(&b->device);
    free(b->logits);
    free(b->rows);
}

/* Whether the device can; its failure, if any, is the status. */
static bool bench_sample(struct sampling_bench *b, const struct sample_ask *asks, int *status,
                         struct err *e)
{
    struct tensor there = tensor_rows(b->memory, DTYPE_F32, ROWS, b->width),
                  here = tensor_on_host(b->logits, DTYPE_F32, ROWS, b->width);
    b->backend->copy(b->stream, &there, &here);
    bool can = b->backend->sample(b->stream, &there, asks, b->picked, b->rows);
    *status = b->backend->stream_wait(b->stream, e);
    return can;
}

static bool row_came(const struct sampling_bench *b, int r)
{
    return memcmp(b->rows + (size_t)r * b->width, b->logits + (size_t)r * b->width,
                  b->width * sizeof(float)) == 0;
}

/* ---- the host's token, whatever is asked for ---- */

struct sampling_case {
    const char *what;
    struct sampling_params params;
    bool biased;
};
#define PARAMS(...)                                                                                \
    {                                                                                              \
        .seed = 77, __VA_ARGS__                                                                    \
    }
static const struct sampling_case cases[] = {
    {"greedy", PARAMS(.temperature = 0), false},
    {"greedy with penalties", PARAMS(.temperature = 0, .frequency_penalty = 1.5), true},
    {"temperature", PARAMS(.temperature = 0.8), false},
    {"min-p", PARAMS(.temperature = 1.3, .min_p = 0.05), false},
    {"top-p", PARAMS(.temperature = 1, .top_p = 0.9), false},
    {"little top-p", PARAMS(.temperature = 1, .top_p = 0.01), false},
    {"top-p and top-k", PARAMS(.temperature = 0.7, .top_p = 0.8, .top_k = 20), false},
    {"top-p, top-k of more than there are, min-p",
     PARAMS(.temperature = 2, .top_p = 0.99, .top_k = 100000, .min_p = 0.2), false},
    {"top-p and min-p", PARAMS(.temperature = 1, .top_p = 0.95, .min_p = 0.3), false},
    {"top-k", PARAMS(.temperature = 0.9, .top_k = 40), false},
    {"top-k of one", PARAMS(.temperature = 0.9, .top_k = 1), false},
    {"top-k of many, min-p", PARAMS(.temperature = 1.5, .top_k = 700, .min_p = 0.01), false},
    {"all penalties and a bias",
     PARAMS(.temperature = 0.6, .top_p = 0.9, .repetition_penalty = 1.3, .presence_penalty = 0.7,
            .frequency_penalty = -0.4, .min_tokens = 2),
     true},
    {"penalties of the output alone", PARAMS(.temperature = 0.6, .presence_penalty = -1), false},
};
enum { CASES = sizeof cases / sizeof *cases };

static void samplers_make(struct sampler *s[ROWS], const struct sampling_case *c, size_t width)
{
    struct err e = {0};
    struct sampling_bias bias[2] = {{3, 2.5}, {width - 1, -4}};
    uint32_t late[2] = {1, (uint32_t)width / 2};
    for (int r = 0; r < ROWS; r++) {
        uint32_t prompt[PROMPT];
        struct sampling_params p = c->params;
        p.seed += (uint64_t)r * 1000;
        sampling_fill(&p);
        for (int i = 0; i < PROMPT; i++)
            prompt[i] = (uint32_t)((size_t)(i * 13 + r) % width);
        if (c->biased) {
            p.bias = (struct pack_list){.items = bias, .count = 2};
            p.late_ids = (struct pack_u32s){.items = late, .count = 2};
        }
        if (sampler_create(&p, (int)width, prompt, PROMPT, &s[r], &e) < 0)
            fail_msg("%s", e.text);
    }
}

/* Tokens of the device's, or of the host's where it is in doubt: how often it was. */
static int tokens_compare(struct sampling_bench *b, const struct sampling_case *c,
                          enum logits_kind kind)
{
    struct sampler *here[ROWS], *there[ROWS];
    struct sample_ask asks[ROWS];
    uint64_t seed = 5 + kind;
    int doubts = 0, status;
    struct err e = {0};
    samplers_make(here, c, b->width);
    samplers_make(there, c, b->width);
    for (int step = 0; step < STEPS; step++) {
        logits_fill(b->logits, ROWS * b->width, kind, &seed);
        for (int r = 0; r < ROWS; r++)
            assert_true(sampler_ask(there[r], &asks[r]));
        assert_true(bench_sample(b, asks, &status, &e));
        assert_int_equal(status, 0);
        for (int r = 0; r < ROWS; r++) {
            const float *row = b->logits + (size_t)r * b->width;
            uint32_t want = sampler_pick(here[r], row), got = b->picked[r];
            if (got == SAMPLE_IN_DOUBT) {
                doubts++;
                assert_true(row_came(b, r));
                got = sampler_pick(there[r], b->rows + (size_t)r * b->width);
            } else {
                sampler_accept(there[r], got);
            }
            if (got != want)
                fail_msg("%s, logits %d, %zu of them, step %d, row %d: %u is not the host's %u",
                         c->what, kind, b->width, step, r, got, want);
        }
    }
    for (int r = 0; r < ROWS; r++) {
        sampler_destroy(&here[r]);
        sampler_destroy(&there[r]);
    }
    return doubts;
}

TEST(the_device_picks_the_token_that_the_host_would)
{
    static const size_t widths[] = {130, 65, 2500};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        struct sampling_bench b;
        bench_init(&b, widths[w]);
        for (size_t c = 0; c < CASES; c++)
            for (int kind = 0; kind < (w == 0 ? LOGITS_KINDS : 1); kind++) {
                int doubts = tokens_compare(&b, &cases[c], (enum logits_kind)kind);
                if (kind == RANDOM && doubts > 1)
                    fail_msg("%s: %d of %d random rows are in doubt", cases[c].what, doubts,
                             ROWS * STEPS);
            }
        bench_fini(&b);
    }
}

/* ---- doubt ---- */

TEST(a_row_that_nobody_samples_from_comes_as_it_is)
{
    struct sampling_bench b;
    struct sample_ask asks[ROWS] = {[1] = {.wanted = true, .top_p = 1, .repetition = 1}};
    uint64_t seed = 9;
    struct err e = {0};
    int status;
    bench_init(&b, 777);
    logits_fill(b.logits, ROWS * b.width, RANDOM, &seed);
    assert_true(bench_sample(&b, asks, &status, &e));
    assert_int_equal(status, 0);
    for (int r = 0; r < ROWS; r++) {
        assert_true((r == 1) == (b.picked[r] != SAMPLE_IN_DOUBT));
        assert_true((r == 1) != row_came(&b, r)); /* nor does one that is sampled from */
    }
    bench_fini(&b);
}

/* e to this lies in the middle between two floats, as far as double can tell. */
static const float between_floats = -0x1.e1dbe2p-8f;

TEST(a_weight_that_two_libraries_could_round_differently_is_left_to_the_host)
{
    struct sampling_bench b;
    struct sample_ask asks[ROWS];
    struct err e = {0};
    int status;
    bench_init(&b, 100);
    for (int r = 0; r < ROWS; r++)
        asks[r] = (struct sample_ask){.wanted = true,
                                      .temperature = 1,
                                      .top_p = r < 3 ? 1 : 0.503,
                                      .chance = 0.303,
                                      .repetition = 1};
    b.logits[2 * b.width + 50] = b.logits[4 * b.width + 99] = between_floats;
    assert_true(bench_sample(&b, asks, &status, &e));
    assert_int_equal(status, 0);
    for (int r = 0; r < ROWS; r++)
        assert_int_equal(b.picked[r] == SAMPLE_IN_DOUBT, r == 2 || r == 4);
    bench_fini(&b);
}

TEST(a_draw_at_the_very_edge_of_a_token_is_left_to_the_host)
{
    struct sampling_bench b;
    struct sample_ask asks[ROWS];
    struct err e = {0};
    int status;
    bench_init(&b, 128); /* of equal weights, so that quarters of the mass are edges */
    static const struct {
        double top_p, chance;
        bool doubt;
    } draws[ROWS] = {{1, 0.25, true},
                     {1, 0.251, false},
                     {0.5, 0.251, true},
                     {0.995, 0.251, false},
                     {0.995, 0.25, true}};
    for (int r = 0; r < ROWS; r++)
        asks[r] = (struct sample_ask){.wanted = true,
                                      .temperature = 1,
                                      .top_p = draws[r].top_p,
                                      .chance = draws[r].chance,
                                      .repetition = 1};
    assert_true(bench_sample(&b, asks, &status, &e));
    assert_int_equal(status, 0);
    for (int r = 0; r < ROWS; r++)
        assert_int_equal(b.picked[r] == SAMPLE_IN_DOUBT, draws[r].doubt);
    bench_fini(&b);
}

TEST(a_vocabulary_that_is_too_small_or_too_large_is_left_to_the_host)
{
    struct sampling_bench b;
    struct sample_ask asks[ROWS] = {0};
    struct err e = {0};
    int status;
    bench_init(&b, 64);
    assert_false(bench_sample(&b, asks, &status, &e));
    bench_fini(&b);
}

/* ---- failures ---- */

TEST(each_allocation_that_fails_leaves_the_row_to_the_host_or_is_an_error)
{
    struct sample_ask asks[ROWS];
    struct sample_change changes[300] = {0};
    uint64_t (*mallocs)(void) = NULL;
    void (*restart)(void) = NULL;
    uint64_t seed = 9, first, last;
    int status = 0, left = 0;
    plugin_open();
    *(void **)&mallocs = plugin_symbol("cuda_on_cpu_mallocs");
    if (!mallocs)
        return; /* a GPU's do not fail when they are told to */
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    for (uint32_t i = 0; i < 300; i++)
        changes[i].token = i;
    for (int r = 0; r < ROWS; r++) /* with changes they need more room than the logits did */
        asks[r] = (struct sample_ask){
            .wanted = true, .top_p = 1, .repetition = 1, .changes = changes, .n_added = 300};
    for (uint64_t k = 0, n = 1; k <= n; k++) {
        struct sampling_bench b;
        struct err e = {0};
        char setting[64];
        bench_init(&b, 300);
        first = mallocs();
        bench_fini(&b);
        snprintf(setting, sizeof setting, "malloc_fails=%llu",
                 (unsigned long long)(k ? first + k : 0));
        setenv("CUDA_ON_CPU", setting, 1);
        restart();
        bench_init(&b, 300);
        first = mallocs();
        logits_fill(b.logits, ROWS * b.width, RANDOM, &seed);
        bool can = bench_sample(&b, asks, &status, &e);
        last = mallocs();
        n = k ? n : last - first;
        assert_true(k || (can && status == 0));
        assert_true(status == 0 || status == HP_ENOMEM);
        for (int r = 0; status == 0 && can && r < ROWS; r++) {
            left += b.picked[r] == SAMPLE_IN_DOUBT;
            assert_true(b.picked[r] != SAMPLE_IN_DOUBT || row_came(&b, r));
        }
        unsetenv("CUDA_ON_CPU");
        bench_fini(&b);
        restart();
    }
    assert_true(left > 0);
}

TEST(a_gpu_that_falls_off_the_bus_while_it_picks_is_an_error)
{
    struct sample_ask asks[ROWS] = {{.wanted = true, .top_p = 1, .repetition = 1}};
    void (*lose)(uint64_t) = NULL, (*restart)(void) = NULL;
    plugin_open();
    *(void **)&lose = plugin_symbol("cuda_on_cpu_lose");
    if (!lose)
        return; /* a GPU does not fall off the bus when it is told to */
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    for (uint64_t after = 1; after < 9; after++) {
        struct sampling_bench b;
        struct err e = {0};
        int status = 0;
        bench_init(&b, 300);
        lose(after);
        bench_sample(&b, asks, &status, &e);
        assert_int_equal(status, HP_EDEVICE);
        bench_fini(&b);
        restart();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_picks_the_token_that_the_host_would),
        cmocka_unit_test(a_row_that_nobody_samples_from_comes_as_it_is),
        cmocka_unit_test(a_weight_that_two_libraries_could_round_differently_is_left_to_the_host),
        cmocka_unit_test(a_draw_at_the_very_edge_of_a_token_is_left_to_the_host),
        cmocka_unit_test(a_vocabulary_that_is_too_small_or_too_large_is_left_to_the_host),
        cmocka_unit_test(each_allocation_that_fails_leaves_the_row_to_the_host_or_is_an_error),
        cmocka_unit_test(a_gpu_that_falls_off_the_bus_while_it_picks_is_an_error),
    };
    return cmocka_run_group_tests_name("cuda_sampling", tests, NULL, NULL);
}
