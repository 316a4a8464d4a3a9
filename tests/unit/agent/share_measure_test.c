/* A network is measured share by share, beside neighbours that compute the same; who has enough
 * stops it. */
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/backend/paced.h"
#include "agent/share_measure.h"
#include "common/fs.h"
#include "common/json.h"
#include "tests/test.h"
#include "tests/unit/agent/engine/small_network.h"
#include "tests/unit/folder.h"

enum { SIDE = 20 };

struct measure_bench {
    char folder[256], path[300];
    struct message_measure measure;
    struct message_dim side;
    struct message_share share;
    struct share_measure_config config;
    atomic_bool stop;
    int told, stop_after; /* 0: never */
    struct share_measuring first, last;
};

static void goes_on(void *ctx, const struct share_measuring *how)
{
    struct measure_bench *b = ctx;
    b->last = *how;
    b->first = b->told ? b->first : *how;
    if (++b->told == b->stop_after)
        atomic_store(&b->stop, true);
}

static void bench_open(struct measure_bench *b)
{
    static const int cores[] = {0, 0};
    struct buffer file = small_network_file();
    struct err e = {0};
    *b = (struct measure_bench){.measure = {.id = 1, .budget_ms = 50}, .side = {"", SIDE}};
    test_folder_make(b->folder);
    snprintf(b->path, sizeof b->path, "%s/net.onnx", b->folder);
    if (fs_file_write(b->path, file.data, file.size, 0644, &e) < 0)
        fail_msg("%s", e.text);
    buffer_free(&file);
    b->share =
        (struct message_share){.parts = 1, .dims = {&b->side, 1}, .measure = {&b->measure, 1}};
    b->config = (struct share_measure_config){.share = &b->share,
                                              .path = b->path,
                                              .model = "net",
                                              .kind = "K",
                                              .cores = cores,
                                              .n_cores = 2,
                                              .memory_bytes = UINT32_MAX,
                                              .stop = &b->stop,
                                              .goes_on = goes_on,
                                              .ctx = b};
}

static void bench_close(struct measure_bench *b)
{
    test_folder_remove(b->folder);
}

static void fails_with(struct measure_bench *b, int code, const char *says)
{
    struct buffer json = {0};
    struct err e = {0};
    assert_int_equal(share_measure(&b->config, &json, &e), code);
    if (!strstr(e.text, says))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
    buffer_free(&json);
}

TEST(layers_have_times_of_every_share_and_batch_and_add_up)
{
    static const uint32_t batches[] = {1, 3};
    struct measure_bench b;
    struct buffer json = {0};
    struct err e = {0};
    bench_open(&b);
    b.measure.batches = (struct pack_u32s){batches, 2};
    if (share_measure(&b.config, &json, &e) < 0)
        fail_msg("%s", e.text);
    json_t *made = json_loads(buffer_cstr(&json), 0, NULL), *row, *table;
    json_t *classes = json_object_get(json_object_get(made, "latency"), "K");
    json_t *measured = json_object_get(made, "measured");
    const char *name;
    size_t i;
    assert_true(json_object_size(classes) > 1);
    assert_int_equal(json_object_size(classes), json_array_size(json_object_get(made, "layers")));
    assert_int_equal(json_array_size(measured), 4); /* 2 shares of 2 batches */
    json_array_foreach(measured, i, row)
    {
        double sum = 0;
        json_object_foreach(classes, name, table)
        {
            json_t *rows = json_object_get(table, "seconds");
            sum += json_number_value(json_array_get(json_array_get(rows, i / 2), i % 2));
        }
        double sum_s = json_number_value(json_object_get(row, "sum_s"));
        assert_true(sum_s > 0 && sum > 0.5 * sum_s && sum < 2 * sum_s);
        assert_int_equal(json_integer_value(json_object_get(row, "share")), 1 + (int)i / 2);
        assert_int_equal(json_integer_value(json_object_get(row, "batch")), batches[i % 2]);
        assert_true(json_integer_value(json_object_get(row, "runs")) >= 11);
    }
    json_decref(made);
    buffer_free(&json);
    bench_close(&b);
}

TEST(where_nothing_is_said_batches_are_1_to_8_and_shares_as_cores_go)
{
    struct measure_bench b;
    struct buffer json = {0};
    bench_open(&b);
    assert_int_equal(share_measure(&b.config, &json, NULL), 0);
    json_t *made = json_loads(buffer_cstr(&json), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(made, "measured")), 8);
    assert_true(b.told >= 1 && b.first.parts == 1);
    assert_true(b.last.parts == 1 || b.last.parts == 2);
    json_decref(made);
    buffer_free(&json);
    bench_close(&b);
}

TEST(what_cannot_be_measured_is_said)
{
    static const uint32_t falling[] = {2, 1}, none[] = {0};
    struct measure_bench b;
    bench_open(&b);
    b.measure.batches = (struct pack_u32s){falling, 2};
    fails_with(&b, HP_EINVAL, "sizes rise");
    b.measure.batches = (struct pack_u32s){0};
    b.measure.shares = (struct pack_u32s){none, 1};
    fails_with(&b, HP_EINVAL, "numbers of parts rise");
    b.measure.shares = (struct pack_u32s){0};
    b.share.dims.count = 0;
    fails_with(&b, HP_EINVAL, "has no size");
    b.share.dims.count = 1;
    b.config.memory_bytes = 64;
    fails_with(&b, HP_ELIMIT, "");
    b.config.memory_bytes = UINT32_MAX;
    b.config.path = "/nowhere/net.onnx";
    fails_with(&b, HP_ENOENT, "net.onnx");
    bench_close(&b);
}

TEST(a_measurement_ends_when_it_is_stopped_also_beside_neighbours)
{
    static const uint32_t shares[] = {3};
    struct measure_bench b;
    bench_open(&b);
    b.measure.budget_ms = 3600000;
    b.measure.shares = (struct pack_u32s){shares, 1};
    b.stop_after = 1;
    fails_with(&b, HP_ECANCELED, "");
    atomic_store(&b.stop, true); /* before it begins */
    fails_with(&b, HP_ECANCELED, "");
    bench_close(&b);
}

TEST(a_paced_agent_answers_with_its_profile)
{
    static const char cluster[] =
        "{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"n\", \"devices\": [{\"name\": "
        "\"d\", \"kind\": \"X\", \"memory_bytes\": 1e9}]}]}";
    static const char fixed[] =
        "{\"format\": \"hp-profile/1\", \"model\": \"p\", \"bounds\": [0, 4], \"layers\": "
        "[{\"name\": "
        "\"b\", \"class\": \"b\", \"output_bytes\": 8}], \"latency\": {\"X\": {\"b\": {\"share\": "
        "[1], \"batch\": [1], \"seconds\": [[0.5]]}}, \"Y\": {\"b\": {\"share\": [1], \"batch\": "
        "[1], \"seconds\": [[0.7]]}}}}";
    static const char sequences[] =
        "{\"format\": \"hp-profile/1\", \"layers\": [{\"class\": \"b\", "
        "\"output_bytes_per_token\": "
        "8}], \"latency\": {\"X\": {\"b\": {\"slice\": [1], \"prefix\": [0], \"seconds\": "
        "[[0.5]]}}}}";
    char cluster_file[300], profile_file[300];
    struct measure_bench b;
    struct paced *p = NULL;
    struct buffer json = {0};
    struct err e = {0};
    bench_open(&b);
    snprintf(cluster_file, sizeof cluster_file, "%s/c.json", b.folder);
    snprintf(profile_file, sizeof profile_file, "%s/p.json", b.folder);
    assert_int_equal(fs_file_write(cluster_file, cluster, strlen(cluster), 0644, &e), 0);
    assert_int_equal(fs_file_write(profile_file, fixed, strlen(fixed), 0644, &e), 0);
    assert_int_equal(paced_open(cluster_file, profile_file, "n/d", &p, &e), 0);
    b.config.paced = p;
    assert_int_equal(share_measure(&b.config, &json, &e), 0);
    json_t *made = json_loads(buffer_cstr(&json), 0, NULL);
    assert_int_equal(json_object_size(json_object_get(made, "latency")), 1);
    assert_non_null(json_object_get(json_object_get(made, "latency"), "X"));
    assert_int_equal(json_array_size(json_object_get(made, "bounds")), 2);
    assert_true(json_is_string(json_object_get(made, "pace")));
    json_decref(made);
    paced_close(&p);
    assert_int_equal(fs_file_write(profile_file, sequences, strlen(sequences), 0644, &e), 0);
    assert_int_equal(paced_open(cluster_file, profile_file, "n/d", &p, &e), 0);
    b.config.paced = p;
    fails_with(&b, HP_EUNSUPPORTED, "says nothing of networks");
    paced_close(&p);
    buffer_free(&json);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_have_times_of_every_share_and_batch_and_add_up),
        cmocka_unit_test(where_nothing_is_said_batches_are_1_to_8_and_shares_as_cores_go),
        cmocka_unit_test(what_cannot_be_measured_is_said),
        cmocka_unit_test(a_measurement_ends_when_it_is_stopped_also_beside_neighbours),
        cmocka_unit_test(a_paced_agent_answers_with_its_profile),
    };
    return cmocka_run_group_tests_name("share_measure", tests, NULL, NULL);
}
