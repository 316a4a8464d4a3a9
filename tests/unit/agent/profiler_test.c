#include <jansson.h>

#include "agent/backend/backend.h"
#include "agent/profiler.h"
#include "common/fs.h"
#include "common/log.h"
#include "common/profile.h"
#include "tests/test.h"
#include "tests/unit/agent/store_fixture.h"
#include "tests/unit/model/tiny_gguf.h"
#include "transport/message.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";

static bool demo_is_missing(void)
{
    if (access(demo_model, R_OK) == 0)
        return false;
    print_message("%s is not here\n", demo_model);
    return true;
}

static struct device *device_of(uint64_t memory_bytes)
{
    struct device_config c = {.backend = "cpu", .n_threads = 1, .memory_bytes = memory_bytes};
    struct device *d;
    struct err e = {0};
    if (device_open(&c, &d, &e) < 0)
        fail_msg("%s", e.text);
    return d;
}

static double mlp_seconds(const char *text)
{
    json_t *tables = json_loads(text, 0, NULL);
    const json_t *rows = json_object_get(json_object_get(tables, "mlp"), "seconds");
    double seconds = json_real_value(json_array_get(json_array_get(rows, 1), 0));
    json_decref(tables);
    return seconds;
}

/* Slices of which a part is left over by the kernels' tiles would make all others look cheap. */
static void check_slices_fill_tiles(const char *text)
{
    json_t *tables = json_loads(text, 0, NULL), *slice;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(tables, "mlp"), "slice"), i, slice)
        assert_true(json_integer_value(slice) <= 16 || json_integer_value(slice) % 48 == 0);
    assert_in_range(i, 3, 5);
    json_decref(tables);
}

TEST(results_are_tables_that_the_planner_reads_and_are_kept)
{
    if (demo_is_missing())
        skip();
    char folder[256], cache[300];
    struct buffer first = {0}, again = {0};
    struct err e = {0};
    test_folder_make(folder);
    snprintf(cache, sizeof cache, "%s/profiles", folder);
    struct profiler_config c = {
        .path = demo_model, .cache = cache, .device = device_of(0), .budget_ms = 1000};
    if (profiler_measure(&c, &first, &e) < 0)
        fail_msg("%s", e.text);
    check_slices_fill_tiles(buffer_cstr(&first));
    json_t *tables = json_loads(buffer_cstr(&first), 0, NULL);
    json_t *layers = json_incref(json_object_get(tables, "layers"));
    json_object_del(tables, "layers");
    json_t *root = json_pack("{s:s, s:s, s:i, s:o, s:{s:o}}", "format", "hp-profile/1", "model",
                             "demo", "batch", 1, "layers", layers, "latency", "here", tables);
    struct json_at at = {.file = "profile", .value = root};
    struct profile p = {0};
    if (profile_from_json(&at, &p, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(p.n_layers, 18);
    assert_int_equal(p.n_classes, 4);
    for (int k = 0; k < p.n_classes; k++) {
        double few = profile_table_at(profile_table_of(&p, 0, k), 1, 0),
               many = profile_table_at(profile_table_of(&p, 0, k), 256, 1000);
        assert_true(few > 0 && many > 0);
        if (strcmp(p.classes[k], "mlp") == 0)
            assert_true(many > few);
    }
    assert_true(json_integer_value(json_object_get(
                    json_array_get(json_object_get(root, "layers"), 1), "resident_bytes")) > 0);
    const json_t *scratch = json_object_get(tables, "scratch");
    assert_true(json_array_size(json_object_get(scratch, "tokens")) > 20);
    assert_int_equal(json_array_size(json_object_get(scratch, "tokens")),
                     json_array_size(json_object_get(scratch, "bytes")));
    profile_free(&p);
    json_decref(root);
    /* The second time nothing is measured: no two measurements agree to nine digits. */
    assert_int_equal(profiler_measure(&c, &again, &e), 0);
    assert_true(mlp_seconds(buffer_cstr(&again)) > 0.999999999 * mlp_seconds(buffer_cstr(&first)));
    assert_true(mlp_seconds(buffer_cstr(&again)) < 1.000000001 * mlp_seconds(buffer_cstr(&first)));
    device_close(&c.device);
    buffer_free(&first);
    buffer_free(&again);
    test_folder_remove(folder);
}

/* What slices of an mlp layer are quickest in multiples of; 0: nothing is said. */
static json_int_t mlp_step(bool f32)
{
    struct buffer text = {0};
    struct err e = {0};
    setenv("HP_TEST_LEAST_VALUES", "1", 1); /* a small model's matrices count as large */
    struct profiler_config c = {
        .path = demo_model, .device = device_of(0), .budget_ms = 20, .f32 = f32};
    unsetenv("HP_TEST_LEAST_VALUES");
    if (profiler_measure(&c, &text, &e) < 0)
        fail_msg("%s", e.text);
    json_t *tables = json_loads(buffer_cstr(&text), 0, NULL);
    json_int_t step = json_integer_value(json_object_get(json_object_get(tables, "mlp"), "step"));
    json_decref(tables);
    device_close(&c.device);
    buffer_free(&text);
    return step;
}

TEST(what_is_multiplied_in_tiles_of_rows_says_so)
{
    if (demo_is_missing())
        skip();
    json_int_t step = mlp_step(false); /* of quantised weights, in tiles of six */
    assert_true(step == 12 || step == 30);
    assert_int_equal(mlp_step(true), 0);
}

TEST(layer_that_does_not_fit_is_an_error_that_says_what_is_missing)
{
    if (demo_is_missing())
        skip();
    struct buffer out = {0};
    struct err e = {0};
    struct profiler_config c = {
        .path = demo_model, .device = device_of(10000), .budget_ms = 1, .fine = true};
    assert_int_equal(profiler_measure(&c, &out, &e), HP_ENOMEM);
    assert_non_null(strstr(e.text, "embed"));
    assert_non_null(strstr(e.text, "missing"));
    c.fine = false; /* a quick look says what layers would take, without times */
    assert_int_equal(profiler_measure(&c, &out, &e), 0);
    json_t *tables = json_loads(buffer_cstr(&out), 0, NULL);
    assert_int_equal(json_object_size(tables), 2);
    assert_int_equal(json_array_size(json_object_get(tables, "layers")), 18);
    assert_non_null(json_object_get(tables, "scratch"));
    json_decref(tables);
    device_close(&c.device);
    buffer_free(&out);
}

/* The last point of an axis of a class. */
static json_int_t longest(const json_t *tables, const char *name, const char *axis)
{
    const json_t *points = json_object_get(json_object_get(tables, name), axis);
    return json_integer_value(json_array_get(points, json_array_size(points) - 1));
}

/* A straight line through short ones would have long slices of a prompt cost what they do not. */
TEST(a_quick_look_takes_longer_slices_of_attention_than_of_products)
{
    if (demo_is_missing())
        skip();
    struct buffer text = {0};
    struct err e = {0};
    struct profiler_config c = {.path = demo_model, .device = device_of(0), .budget_ms = 20000};
    if (profiler_measure(&c, &text, &e) < 0)
        fail_msg("%s", e.text);
    json_t *tables = json_loads(buffer_cstr(&text), 0, NULL);
    assert_int_equal(longest(tables, "attn", "slice"), 384);
    assert_int_equal(longest(tables, "mlp", "slice"), 192);
    json_decref(tables);
    device_close(&c.device);
    buffer_free(&text);
}

/* Else a prompt's slices would seem to cost the same wherever they lie in it. */
TEST(a_quick_look_takes_as_long_a_prefix_as_a_short_context_has_room_for)
{
    static const uint32_t contexts[][2] = {{2048, 1536}, {1000, 616}, {800, 416}, {500, 0}};
    char folder[256], path[300];
    test_folder_make(folder);
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        struct buffer model = {0}, text = {0};
        struct err e = {0};
        tiny_llama_make(&(struct tiny_llama){.dtype = DTYPE_Q8_0,
                                             .key = "llama.context_length",
                                             .value = contexts[i][0]},
                        &model);
        assert_int_equal(fs_file_write(path, model.data, model.size, 0600, &e), 0);
        struct profiler_config c = {.path = path, .device = device_of(0), .budget_ms = 20000};
        if (profiler_measure(&c, &text, &e) < 0)
            fail_msg("%s", e.text);
        json_t *tables = json_loads(buffer_cstr(&text), 0, NULL);
        long step =
            (long)json_integer_value(json_object_get(json_object_get(tables, "attn"), "step"));
        long slice = step == 30 ? 360 : 384;
        assert_int_equal(longest(tables, "attn", "slice"), slice); /* whole steps */
        assert_int_equal(longest(tables, "attn", "prefix"),
                         contexts[i][1] % 1536 ? contexts[i][1] + 384 - slice : contexts[i][1]);
        json_decref(tables);
        device_close(&c.device);
        buffer_free(&text);
        buffer_free(&model);
    }
    test_folder_remove(folder);
}

static const struct backend *quick;

static void slow_op_run(struct stream *s, const struct device_op *op, const struct tensor *in,
                        const struct tensor *out, const struct op_batch *batch)
{
    usleep(5000);
    quick->op_run(s, op, in, out, batch);
}

static size_t class_points(const json_t *tables, const char *name)
{
    const json_t *c = json_object_get(tables, name);
    return json_array_size(json_object_get(c, "slice")) *
           json_array_size(json_object_get(c, "prefix"));
}

TEST(slow_device_is_measured_at_two_slices_and_no_longer)
{
    if (demo_is_missing())
        skip();
    struct buffer text = {0};
    struct err e = {0};
    struct device *d = device_of(0);
    struct backend slow = *d->backend;
    quick = d->backend;
    slow.op_run = slow_op_run;
    slow.ops_run = NULL; /* operators one by one */
    d->backend = &slow;
    struct profiler_config c = {.path = demo_model, .device = d, .budget_ms = 40};
    if (profiler_measure(&c, &text, &e) < 0)
        fail_msg("%s", e.text);
    json_t *tables = json_loads(buffer_cstr(&text), 0, NULL);
    assert_int_equal(class_points(tables, "attn"), 2);
    assert_int_equal(class_points(tables, "mlp"), 2);
    assert_int_equal(class_points(tables, "embed"), 2);
    json_decref(tables);
    d->backend = quick;
    device_close(&d);
    buffer_free(&text);
}

enum { COPY_US = 20000 };

static void slow_copy(struct stream *s, const struct tensor *to, const struct tensor *from)
{
    usleep(COPY_US);
    quick->copy(s, to, from);
}

/* Seconds of an mlp layer where every copy is slow, at 16 tokens. */
static double copied_seconds(bool own_memory)
{
    struct buffer text = {0};
    struct err e = {0};
    struct device *d = device_of(0);
    struct backend slow = *d->backend;
    quick = d->backend;
    slow.copy = slow_copy;
    slow.own_memory = own_memory;
    d->backend = &slow;
    struct profiler_config c = {.path = demo_model, .device = d, .budget_ms = 40};
    if (profiler_measure(&c, &text, &e) < 0)
        fail_msg("%s", e.text);
    double seconds = mlp_seconds(buffer_cstr(&text));
    d->backend = quick;
    device_close(&d);
    buffer_free(&text);
    return seconds;
}

TEST(rows_that_come_from_the_host_are_no_part_of_a_layer_where_the_device_has_its_own_memory)
{
    if (demo_is_missing())
        skip();
    assert_true(copied_seconds(false) > COPY_US * 1e-6);
    assert_true(copied_seconds(true) < COPY_US * 1e-6);
}

struct progress_seen {
    int points;
    double elapsed_s;
};

static void progress_count(void *ctx, const struct message_profile_progress *p)
{
    struct progress_seen *seen = ctx;
    assert_int_equal(p->points, ++seen->points);
    assert_true(p->elapsed_s >= seen->elapsed_s);
    seen->elapsed_s = p->elapsed_s;
    assert_true(p->what && *p->what && p->error >= 0);
}

TEST(fine_measurement_adds_points_batches_and_what_they_are_from)
{
    if (demo_is_missing())
        skip();
    struct buffer text = {0};
    struct err e = {0};
    struct progress_seen seen = {0};
    struct profiler_config c = {.path = demo_model,
                                .device = device_of(0),
                                .budget_ms = 600,
                                .fine = true,
                                .progress = progress_count,
                                .progress_ctx = &seen};
    if (profiler_measure(&c, &text, &e) < 0)
        fail_msg("%s", e.text);
    json_t *tables = json_loads(buffer_cstr(&text), 0, NULL);
    const json_t *attn = json_object_get(tables, "attn"), *decode = json_object_get(attn, "decode"),
                 *source = json_object_get(tables, "source");
    assert_true(json_array_size(json_object_get(attn, "slice")) >= 4 &&
                json_array_size(json_object_get(attn, "prefix")) >= 3);
    assert_int_equal(json_array_size(json_object_get(decode, "batch")), 4);
    assert_int_equal(json_array_size(json_object_get(decode, "seconds")), 4);
    json_int_t useful =
        json_integer_value(json_object_get(json_object_get(tables, "useful_slice"), "tokens"));
    assert_true(useful >= 1 && useful <= 512);
    assert_int_equal(json_integer_value(json_object_get(source, "points")), seen.points);
    assert_non_null(strstr(json_string_value(json_object_get(source, "libraries")), "oneDNN"));
    assert_true(strlen(json_string_value(json_object_get(source, "driver"))) > 0);
    json_decref(tables);
    device_close(&c.device);
    buffer_free(&text);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_tables_that_the_planner_reads_and_are_kept),
        cmocka_unit_test(fine_measurement_adds_points_batches_and_what_they_are_from),
        cmocka_unit_test(slow_device_is_measured_at_two_slices_and_no_longer),
        cmocka_unit_test(
            rows_that_come_from_the_host_are_no_part_of_a_layer_where_the_device_has_its_own_memory),
        cmocka_unit_test(what_is_multiplied_in_tiles_of_rows_says_so),
        cmocka_unit_test(a_quick_look_takes_longer_slices_of_attention_than_of_products),
        cmocka_unit_test(a_quick_look_takes_as_long_a_prefix_as_a_short_context_has_room_for),
        cmocka_unit_test(layer_that_does_not_fit_is_an_error_that_says_what_is_missing),
    };
    return cmocka_run_group_tests_name("profiler", tests, NULL, NULL);
}
