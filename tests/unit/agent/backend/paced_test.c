#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/backend/paced.h"
#include "tests/test.h"

#define assert_near(a, b, within) assert_true(fabs((a) - (b)) <= (within))

/* Two kinds: `fast` takes 1 ms a token, `slow` 4 ms and 1 ms more per 100 cached ones; the head
 * takes next to nothing. */
static const char cluster_text[] =
    "{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"n\", \"nics\": [{\"name\": \"e\", "
    "\"bandwidth_bytes_per_s\": 1e6, \"latency_s\": 0.001}],"
    " \"devices\": [{\"name\": \"g0\", \"kind\": \"fast\", \"memory_bytes\": 5000}]},"
    " {\"name\": \"m\", \"nics\": [{\"name\": \"e\", \"bandwidth_bytes_per_s\": 2e6, "
    "\"latency_s\": 0.002}],"
    " \"devices\": [{\"name\": \"g0\", \"kind\": \"slow\", \"memory_bytes\": 9000}, {\"name\": "
    "\"odd\", \"kind\": \"other\", \"memory_bytes\": 1}]}]}";
static const char profile_text[] =
    "{\"format\": \"hp-profile/1\", \"model\": \"p\", \"batch\": 2, \"layers\": ["
    "{\"name\": \"a\", \"class\": \"attn\", \"param_bytes\": 1000, \"state_bytes_per_token\": 5, "
    "\"output_bytes_per_token\": 100},"
    "{\"name\": \"b\", \"class\": \"attn\", \"param_bytes\": 1000, \"state_bytes_per_token\": 5, "
    "\"output_bytes_per_token\": 100},"
    "{\"name\": \"h\", \"class\": \"head\", \"param_bytes\": 500, \"state_bytes_per_token\": 0, "
    "\"output_bytes_per_token\": 4}],"
    " \"latency\": {\"fast\": {\"attn\": {\"slice\": [100, 200], \"prefix\": [0], \"seconds\": "
    "[[0.1], [0.2]]}, \"head\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1e-12]]}},"
    " \"slow\": {\"attn\": {\"slice\": [100, 200], \"prefix\": [0, 100], \"seconds\": [[0.4, 0.5], "
    "[0.8, 1]]}, \"head\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1e-12]]}}}}";

static char cluster_file[] = "/tmp/hp-paced-cluster-XXXXXX",
            profile_file[] = "/tmp/hp-paced-profile-XXXXXX";

static void write_file(char *name, const char *text)
{
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static int write_files(void **state)
{
    (void)state;
    write_file(cluster_file, cluster_text);
    write_file(profile_file, profile_text);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    unlink(cluster_file);
    unlink(profile_file);
    return 0;
}

static struct paced *stand_for(const char *as)
{
    struct paced *p = NULL;
    struct err e = {0};
    if (paced_open(cluster_file, profile_file, as, &p, &e) < 0)
        fail_msg("%s: %s", as, e.text);
    return p;
}

TEST(a_device_without_times_is_refused)
{
    static const struct {
        const char *as, *says;
    } cases[] = {{"n/g1", "no device \"n/g1\""},
                 {"", "no device"},
                 {"m/odd", "no times for m/odd, which is of kind other"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct paced *p = NULL;
        struct err e = {0};
        assert_int_equal(paced_open(cluster_file, profile_file, cases[i].as, &p, &e), HP_ENOENT);
        assert_non_null(strstr(e.text, cases[i].says));
        assert_null(p);
    }
}

TEST(a_batch_takes_what_the_profile_says)
{
    static const struct {
        const char *as;
        int first, end;
        double batch;
        struct batch_run runs[2];
        uint32_t n;
        double seconds;
    } cases[] = {
        {"n/g0", 0, 3, 0, {{.first_position = 0, .n_tokens = 100}}, 1, 0.2},
        {"n/g0", 0, 1, 0, {{.first_position = 0, .n_tokens = 50}}, 1, 0.05},
        {"n/g0", 2, 3, 0, {{.first_position = 0, .n_tokens = 50}}, 1, 0},
        {"m/g0", 0, 1, 0, {{.first_position = 0, .n_tokens = 100}}, 1, 0.4},
        {"m/g0", 0, 1, 0, {{.first_position = 100, .n_tokens = 100}}, 1, 0.5},
        {"m/g0", 0, 1, 0, {{.first_position = 50, .n_tokens = 100}}, 1, 0.45},
        /* half the batch: 50 tokens' work after (100 - 50) / 2 more cached ones */
        {"m/g0", 0, 1, 1, {{.first_position = 0, .n_tokens = 100}}, 1, 0.2 + 0.05 * 25 / 100},
        /* two slices follow each other, two decode tokens go together */
        {"n/g0",
         0,
         1,
         0,
         {{.first_position = 0, .n_tokens = 100}, {.first_position = 0, .n_tokens = 50}},
         2,
         0.15},
        {"n/g0",
         0,
         1,
         0,
         {{.first_position = 10, .n_tokens = 1}, {.first_position = 30, .n_tokens = 1}},
         2,
         0.002},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct paced *p = stand_for(cases[i].as);
        double got = paced_batch_seconds(p, NULL, cases[i].first, cases[i].end, cases[i].batch,
                                         cases[i].runs, cases[i].n);
        if (fabs(got - cases[i].seconds) > 1e-9)
            fail_msg("case %zu: %g s, expected %g", i, got, cases[i].seconds);
        paced_close(&p);
    }
}

TEST(a_stage_holds_the_profiles_bytes)
{
    struct paced *p = stand_for("n/g0");
    assert_near(paced_memory_bytes(p), 5000, 0);
    assert_near(paced_stage_bytes(p, NULL, 0, 3, 0, 0), 2500, 0);
    assert_near(paced_stage_bytes(p, NULL, 0, 1, 100, 0), 1000 + 5 * 100 * 2, 0);
    assert_near(paced_stage_bytes(p, NULL, 0, 1, 100, 1), 1000 + 5 * 100, 0);
    paced_close(&p);
}

TEST(a_part_of_a_layer_takes_its_share_of_bytes_and_times)
{
    static const struct profile_part parts[] = {
        {0, NULL, 0.75, 2.5}, {0, NULL, 0.25, 1}, {1, NULL, 1, 1}, {2, NULL, 1, 1}};
    const struct batch_run prompt = {.first_position = 0, .n_tokens = 100};
    struct paced *p = stand_for("n/g0");
    struct profile layers;
    struct err e = {0};
    assert_int_equal(paced_divide(p, parts, 4, &layers, &e), 0);
    double whole = paced_batch_seconds(p, NULL, 0, 1, 0, &prompt, 1);
    assert_true(whole > 0);
    assert_near(paced_stage_bytes(p, &layers, 0, 1, 100, 1), 0.75 * (1000 + 5 * 100), 1e-9);
    assert_near(paced_stage_bytes(p, &layers, 1, 4, 0, 0), 2500 - 750, 1e-9);
    assert_near(paced_batch_seconds(p, &layers, 0, 1, 0, &prompt, 1), 0.75 * whole, 1e-12);
    assert_near(paced_batch_seconds(p, &layers, 0, 2, 0, &prompt, 1), whole, 1e-12);
    profile_free(&layers);
    const struct profile_part beyond = {3, NULL, 1, 1};
    assert_int_equal(paced_divide(p, &beyond, 1, &layers, &e), HP_EINVAL);
    paced_close(&p);
}

TEST(a_hop_takes_what_the_link_would)
{
    struct paced *p = stand_for("n/g0");
    struct cluster_wire w;
    struct err e = {0};
    assert_int_equal(paced_hop(p, "m/g0", &w, &e), 0);
    assert_near(w.latency_s, 0.003, 1e-12);
    assert_near(paced_hop_seconds(p, &w, 1, 50, 0), 100 * 50 * 2 / 1e6, 1e-12);
    assert_near(paced_hop_seconds(p, &w, 1, 50, 1), 100 * 50 / 1e6, 1e-12);
    assert_near(paced_token_seconds(p, &w, 3, 0), 2 * 3 * 4 / 1e6, 1e-12);
    assert_int_equal(paced_hop(p, "x/g0", &w, &e), HP_ENOENT);
    assert_int_equal(paced_hop(p, "n/g0", &w, &e), HP_ELINK);
    paced_close(&p);
}

TEST(a_node_tells_its_links_and_its_tables_the_whole_profile)
{
    struct paced *p = stand_for("m/g0");
    struct buffer node = {0}, tables = {0};
    struct err e = {0};
    assert_int_equal(paced_node(p, "agent", &node, &e), 0);
    assert_int_equal(paced_tables(p, &tables, &e), 0);
    json_t *n = json_loads(buffer_cstr(&node), 0, NULL),
           *t = json_loads(buffer_cstr(&tables), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(n, "name")), "agent");
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(n, "devices"), 0), "kind")),
                        "slow");
    const json_t *paced = json_object_get(n, "paced");
    assert_string_equal(json_string_value(json_object_get(paced, "as")), "m/g0");
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(paced, "links"), 0), "to")),
                        "n/g0");
    assert_int_equal(json_array_size(json_object_get(t, "layers")), 3);
    assert_near(json_number_value(json_object_get(t, "batch")), 2, 0);
    assert_near(json_number_value(json_object_get(json_array_get(json_object_get(t, "layers"), 2),
                                                  "resident_bytes")),
                500, 0);
    assert_true(json_equal(json_object_get(t, "pace"), json_object_get(paced, "profile")));
    json_decref(n);
    json_decref(t);
    buffer_free(&node);
    buffer_free(&tables);
    paced_close(&p);
}

static const uint64_t ms = 1000000;

TEST(work_begins_when_it_was_there_and_the_queue_was_free)
{
    static const struct {
        uint64_t free_ms, ready_ms, now_ms, begin_ms;
    } cases[] = {
        {0, 1000, 1000, 1000},    /* idle, on time */
        {0, 1000, 1003, 1000},    /* the host is late: the device was not */
        {1500, 1000, 1504, 1500}, /* it waited for the one before */
        {1000, 0, 1002, 1000},    /* it was there before that ended */
        {1000, 900, 1200, 1150},  /* so late that the credit does not cover it */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct paced_queue q = {cases[i].free_ms * ms};
        assert_int_equal(paced_queue_begin(&q, cases[i].ready_ms * ms, cases[i].now_ms * ms) / ms,
                         cases[i].begin_ms);
    }
}

/* Slices through a queue whose host is late by a little each time: the delays do not add up. */
TEST(lateness_does_not_add_up)
{
    struct paced_queue q = {0};
    uint64_t now = 1000 * ms, due = 0;
    for (int i = 0; i < 100; i++) {
        due = paced_queue_take(&q, i ? 0 : now, now, 0.010);
        now = due + 3 * ms; /* woken 3 ms late */
    }
    assert_int_equal(due, (1000 + 100 * 10) * ms);
}

TEST(a_host_too_slow_to_stand_in_shows)
{
    struct paced_queue q = {0};
    uint64_t now = 1000 * ms, due = 0;
    for (int i = 0; i < 100; i++) {
        due = paced_queue_take(&q, i ? 0 : now, now, 0.010);
        now += 20 * ms; /* each takes twice the time that it stands for */
        now = due > now ? due : now;
    }
    assert_true(due >= (1000 + 99 * 20) * ms - PACED_CREDIT_NS);
}

TEST(a_stamp_counts_within_the_credit_and_on_the_same_clock)
{
    assert_int_equal(paced_stamp(1000 * ms, 1004 * ms), 1000 * ms);
    assert_int_equal(paced_stamp(1000 * ms, 1200 * ms), 1200 * ms);
    assert_int_equal(paced_stamp(5000 * ms, 1000 * ms), 1000 * ms);
    assert_int_equal(paced_stamp(0, 7 * ms), 7 * ms);
}

TEST(what_a_share_gives_crosses_as_many_bytes_as_its_model_has_there_or_as_there_are)
{
    const struct cluster_wire wire = {.bandwidth_bytes_per_s = 1000};
    assert_true(paced_share_seconds(&wire, 500, 4, 64) == 2);
    assert_true(paced_share_seconds(&wire, 0, 4, 64) == 0.064);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_without_times_is_refused),
        cmocka_unit_test(a_batch_takes_what_the_profile_says),
        cmocka_unit_test(a_stage_holds_the_profiles_bytes),
        cmocka_unit_test(a_part_of_a_layer_takes_its_share_of_bytes_and_times),
        cmocka_unit_test(a_hop_takes_what_the_link_would),
        cmocka_unit_test(a_node_tells_its_links_and_its_tables_the_whole_profile),
        cmocka_unit_test(work_begins_when_it_was_there_and_the_queue_was_free),
        cmocka_unit_test(lateness_does_not_add_up),
        cmocka_unit_test(a_host_too_slow_to_stand_in_shows),
        cmocka_unit_test(a_stamp_counts_within_the_credit_and_on_the_same_clock),
        cmocka_unit_test(
            what_a_share_gives_crosses_as_many_bytes_as_its_model_has_there_or_as_there_are),
    };
    return cmocka_run_group_tests(tests, write_files, remove_files);
}
