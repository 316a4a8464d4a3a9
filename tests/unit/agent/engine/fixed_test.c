/* Graphs of fixed shape on both backends, against plain loops in double precision. */
#include <math.h>
#include <string.h>

#include "agent/engine/fixed.h"
#include "tests/test.h"
#include "tests/unit/agent/backend/async_backend.h"
#include "tests/unit/agent/engine/small_graph.h"
#include "tests/unit/agent/engine/tiny_model.h"

enum { N_OUT = FIXED_ROWS * FIXED_OUT };

static const char *const backends[] = {"cpu", "plain"};

static struct device *open_device(const char *backend, uint64_t memory_bytes)
{
    struct device_config c = {.backend = backend, .n_threads = 2, .memory_bytes = memory_bytes};
    struct device *d;
    struct err e = {0};
    if (device_open(&c, &d, &e) < 0)
        fail_msg("%s", e.text);
    return d;
}

static struct fixed_config config_of(const struct small_graph *g, struct device *d, bool f32)
{
    return (struct fixed_config){.section = {.graph = &g->graph,
                                             .first_layer = 0,
                                             .end_layer = g->graph.n_layers,
                                             .device = d,
                                             .f32 = f32}};
}

static struct fixed *load(const struct fixed_config *c)
{
    struct fixed *f;
    struct err e = {0};
    if (fixed_load(c, &f, &e) < 0)
        fail_msg("%s", e.text);
    return f;
}

static struct fixed_value value_of(const char *name, void *data, size_t bytes)
{
    return (struct fixed_value){name, DTYPE_F32, data, bytes};
}

static void near_all(const float *got, const float *want, size_t n, float within)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= within * (1 + fabsf(want[i]))))
            fail_msg("element %zu: %g, should be %g", i, (double)got[i], (double)want[i]);
}

static void run(struct fixed *f, struct small_fixed_io *io, float *result, float *mixed)
{
    struct err e = {0};
    const struct fixed_value in[] = {value_of("beside", io->beside, sizeof io->beside),
                                     value_of("pixels", io->pixels, sizeof io->pixels)},
                             out[] = {value_of(FIXED_MIXED, mixed, N_OUT * sizeof *mixed),
                                      value_of(FIXED_RESULT, result, N_OUT * sizeof *result)};
    if (fixed_submit(f, in, 2, out, 2, &e) < 0 || fixed_complete(f, &e) < 0)
        fail_msg("%s", e.text);
}

TEST(a_graph_gives_what_plain_loops_give)
{
    struct small_graph *g = small_fixed_make(11);
    for (int i = 0; i < 4; i++) {
        struct device *d = open_device(backends[i % 2], 0);
        bool f32 = i < 2;
        struct fixed_config c = config_of(g, d, f32);
        struct fixed *f = load(&c);
        struct err e = {0};
        assert_int_equal(fixed_warm(f, &e), 0);
        for (uint64_t seed = 1; seed <= 3; seed++) {
            struct small_fixed_io io;
            float result[N_OUT], mixed[N_OUT];
            small_fixed_fill(g, seed, &io);
            run(f, &io, result, mixed);
            near_all(mixed, io.mixed, N_OUT, f32 ? 1e-5f : 3e-2f);
            near_all(result, io.result, N_OUT, f32 ? 1e-5f : 3e-2f);
        }
        fixed_unload(&f);
        assert_null(f);
        device_close(&d);
    }
    small_graph_free(&g);
}

TEST(values_come_and_go_in_other_formats_and_only_those_that_are_wanted)
{
    struct small_graph *g = small_fixed_make(11);
    for (int i = 0; i < 2; i++) {
        struct device *d = open_device(backends[i], 0);
        struct fixed_config c = config_of(g, d, true);
        struct fixed *f = load(&c);
        struct err e = {0};
        struct small_fixed_io io;
        uint16_t pixels[FIXED_ROWS * FIXED_IN], result[N_OUT];
        float got[N_OUT];
        small_fixed_fill(g, 4, &io);
        for (int k = 0; k < FIXED_ROWS * FIXED_IN; k++)
            pixels[k] = dtype_f32_to_f16(io.pixels[k]);
        const struct fixed_value in[] = {{"pixels", DTYPE_F16, pixels, sizeof pixels},
                                         value_of("beside", io.beside, sizeof io.beside)},
                                 out[] = {{FIXED_RESULT, DTYPE_BF16, result, sizeof result}};
        if (fixed_submit(f, in, 2, out, 1, &e) < 0 || fixed_complete(f, &e) < 0)
            fail_msg("%s", e.text);
        for (int k = 0; k < N_OUT; k++)
            got[k] = dtype_bf16_to_f32(result[k]);
        near_all(got, io.result, N_OUT, 2e-2f);
        fixed_unload(&f);
        device_close(&d);
    }
    small_graph_free(&g);
}

TEST(what_is_missing_or_wrong_is_named_and_nothing_is_run)
{
    struct small_graph *g = small_fixed_make(11);
    struct device *d = open_device("plain", 0);
    struct fixed_config c = config_of(g, d, true);
    struct fixed *f = load(&c);
    struct small_fixed_io io;
    float out[N_OUT] = {0};
    small_fixed_fill(g, 4, &io);
    const struct fixed_value pixels = value_of("pixels", io.pixels, sizeof io.pixels),
                             beside = value_of("beside", io.beside, sizeof io.beside),
                             result = value_of(FIXED_RESULT, out, sizeof out);
    struct fixed_value unknown = pixels, small = pixels, words = pixels, no_output = result;
    unknown.name = "points";
    small.bytes -= 4;
    words.dtype = DTYPE_U32;
    no_output.name = "body.gelu";
    const struct {
        struct fixed_value in[3];
        int n_in;
        struct fixed_value out[2];
        int n_out;
        const char *says;
    } cases[] = {
        {{pixels}, 1, {result}, 1, "the input beside is missing"},
        {{pixels, beside, unknown}, 3, {result}, 1, "no input points"},
        {{pixels, beside, pixels}, 3, {result}, 1, "pixels is given twice"},
        {{small, beside},
         2,
         {result},
         1,
         "pixels has 120 elements of F32 in 480 bytes, not in 476"},
        {{words, beside}, 2, {result}, 1, "pixels is F32"},
        {{pixels, beside}, 2, {no_output}, 1, "no output body.gelu"},
        {{pixels, beside}, 2, {result, result}, 2, "given twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        assert_int_equal(
            fixed_submit(f, cases[i].in, cases[i].n_in, cases[i].out, cases[i].n_out, &e),
            HP_EINVAL);
        if (!strstr(e.text, cases[i].says))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].says, e.text);
        assert_int_equal(fixed_complete(f, &e), HP_EINVAL); /* none is under way */
    }
    fixed_unload(&f);
    device_close(&d);
    small_graph_free(&g);
}

TEST(a_graph_of_sequences_is_refused_by_the_dimension_that_is_open)
{
    struct tiny_model *tiny = tiny_model_make(3);
    struct device *d = open_device("plain", 0);
    struct fixed *f = NULL;
    struct err e = {0};
    struct fixed_config c = {
        .section = {
            .graph = &tiny->graph, .first_layer = 0, .end_layer = TINY_LAYERS, .device = d}};
    assert_int_equal(fixed_load(&c, &f, &e), HP_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "\"tokens\""));
    c.section.end_layer = TINY_LAYERS + 1;
    assert_int_equal(fixed_load(&c, &f, &e), HP_EINVAL);
    assert_null(f);
    device_close(&d);
    tiny_model_free(&tiny);
}

static void stop_now(void *ctx, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    atomic_store((atomic_bool *)ctx, true);
}

TEST(loading_counts_its_memory_gives_it_back_and_stops_when_told)
{
    struct small_graph *g = small_fixed_make(11);
    for (int i = 0; i < 2; i++) {
        struct device *d = open_device(backends[i], 1 << 20);
        struct fixed_config c = config_of(g, d, true);
        struct section_need need;
        struct err e = {0};
        atomic_bool stop = false;
        uint64_t before = d->backend->memory_free(d);
        assert_int_equal(section_footprint(&c.section, &need, &e), 0);
        struct fixed *f = load(&c);
        assert_int_equal(before - d->backend->memory_free(d),
                         need.weight_bytes + need.activation_bytes);
        fixed_unload(&f);
        assert_int_equal(d->backend->memory_free(d), before);
        c.beside_bytes = before - need.weight_bytes;
        assert_int_equal(fixed_load(&c, &f, &e), HP_ENOMEM);
        assert_non_null(strstr(e.text, "bytes are missing"));
        c.beside_bytes = 0;
        c.section.progress = stop_now;
        c.section.progress_ctx = &stop;
        c.section.stop = &stop;
        assert_int_equal(fixed_load(&c, &f, &e), HP_ECANCELED);
        assert_int_equal(d->backend->memory_free(d), before);
        device_close(&d);
    }
    small_graph_free(&g);
}

/* Each batch of two under way gives its own values, and fails for itself. */
TEST(two_batches_are_under_way_at_once)
{
    struct small_graph *g = small_fixed_make(11);
    struct device_config plain = {.backend = "plain"}, async = async_device_of(&plain);
    struct device *d;
    struct err e = {0};
    assert_int_equal(device_open(&async, &d, &e), 0);
    struct fixed_config c = config_of(g, d, true);
    struct fixed *f = load(&c);
    struct small_fixed_io io[2];
    float out[2][N_OUT];
    async_hold();
    async_let_fail(3);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 2; i++) {
            small_fixed_fill(g, (uint64_t)(7 + i), &io[i]);
            const struct fixed_value in[] = {value_of("pixels", io[i].pixels, sizeof io[i].pixels),
                                             value_of("beside", io[i].beside, sizeof io[i].beside)},
                                     result = value_of(FIXED_RESULT, out[i], sizeof out[i]);
            assert_int_equal(fixed_submit(f, in, 2, &result, 1, &e), 0);
        }
        assert_int_equal(async_wait_recorded(2 * (unsigned)turn + 2), 2 * turn);
        const struct fixed_value again[] = {value_of("pixels", io[0].pixels, sizeof io[0].pixels),
                                            value_of("beside", io[0].beside, sizeof io[0].beside)};
        assert_int_equal(fixed_submit(f, again, 2, NULL, 0, &e), HP_EBUSY);
        async_let_go(2);
        assert_int_equal(fixed_complete(f, &e), turn ? HP_EDEVICE : 0);
        assert_int_equal(fixed_complete(f, &e), 0);
        near_all(out[1], io[1].result, N_OUT, 1e-5f);
    }
    near_all(out[0], io[0].result, N_OUT, 1e-5f);
    async_hold_no_more();
    fixed_unload(&f);
    device_close(&d);
    small_graph_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_gives_what_plain_loops_give),
        cmocka_unit_test(values_come_and_go_in_other_formats_and_only_those_that_are_wanted),
        cmocka_unit_test(what_is_missing_or_wrong_is_named_and_nothing_is_run),
        cmocka_unit_test(a_graph_of_sequences_is_refused_by_the_dimension_that_is_open),
        cmocka_unit_test(loading_counts_its_memory_gives_it_back_and_stops_when_told),
        cmocka_unit_test(two_batches_are_under_way_at_once),
    };
    return cmocka_run_group_tests_name("fixed", tests, NULL, NULL);
}
