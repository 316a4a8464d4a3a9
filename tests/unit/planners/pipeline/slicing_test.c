#include <stddef.h>
#include <stdint.h>

#include "planners/pipeline/pipeline.h"
#include "planners/pipeline/predict.h"
#include "planners/pipeline/slicing.h"
#include "tests/share.h"
#include "tests/test.h"
#include "tests/unit/planners/pipeline/cases.h"
#include "tests/unit/planners/pipeline/testbed.h"

enum { CONTEXT = 4096, MOST = 1024 };

struct slicing_bed {
    struct cluster cluster;
    struct profile profile;
    struct arena arena;
    struct pipeline_answer plan;
    struct slicing *slicing;
    struct pipeline_request rq;
};

/* HPipe's layers for the 2B model over all six devices: stages that are far from equal. */
static void bed_make(struct slicing_bed *b)
{
    struct err e = {0};
    *b = (struct slicing_bed){0};
    testbed_load("gpt3-2b", &b->cluster, &b->profile);
    b->rq = (struct pipeline_request){.cluster = &b->cluster,
                                      .profile = &b->profile,
                                      .tokens = 2048,
                                      .method = PIPELINE_HPIPE,
                                      .brief = true};
    if (pipeline_plan_make(&b->rq, &b->arena, &b->plan, &e) < 0 ||
        slicing_create(&b->rq, &b->plan.plan, CONTEXT, &b->slicing, &e) < 0)
        fail_msg("%s", e.text);
}

static void bed_free(struct slicing_bed *b)
{
    slicing_destroy(&b->slicing);
    json_decref(b->plan.document);
    arena_free(&b->arena);
    cluster_free(&b->cluster);
    profile_free(&b->profile);
}

static int list_slices(const struct slicing *s, int length, int cached, int *out)
{
    struct slicing_cursor c;
    int n = 0;
    assert_int_equal(slicing_begin(s, length, cached, &c), 0);
    for (int tokens; (tokens = slicing_next(&c)) > 0;) {
        assert_true(n < MOST);
        out[n++] = tokens;
    }
    assert_int_equal(slicing_next(&c), 0);
    return n;
}

TEST(slices_cover_every_length_and_prefix)
{
    struct slicing_bed b;
    int slices[MOST];
    bed_make(&b);
    int unit = slicing_unit(b.slicing);
    for (int cached = 0; cached < CONTEXT; cached += cached < 64 ? 7 : 331)
        for (int length = 1; length <= CONTEXT - cached;
             length += (length < 64 ? 1 : 37) * test_stride()) {
            int n = list_slices(b.slicing, length, cached, slices), sum = 0;
            for (int k = 0; k < n; k++) {
                assert_true(k + 1 == n || slices[k] % unit == 0);
                sum += slices[k];
            }
            assert_int_equal(sum, length);
        }
    bed_free(&b);
}

TEST(lookups_reject_what_is_beyond_the_context)
{
    struct slicing_bed b;
    struct slicing_cursor c;
    static const struct {
        int length, cached;
    } cases[] = {{0, 0},
                 {-1, 0},
                 {1, -1},
                 {CONTEXT + 1, 0},
                 {1, CONTEXT},
                 {CONTEXT, 1},
                 {INT32_MAX, INT32_MAX}};
    bed_make(&b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(slicing_begin(b.slicing, cases[i].length, cases[i].cached, &c), HP_EINVAL);
    assert_int_equal(slicing_begin(b.slicing, CONTEXT, 0, &c), 0);
    assert_int_equal(slicing_begin(b.slicing, 1, CONTEXT - 1, &c), 0);
    bed_free(&b);
}

/* Seconds of a prompt in these slices after `cached` tokens, by the exact flow. */
static double seconds_of(const struct slicing_bed *b, int cached, const int *slices, int n)
{
    struct arena arena = {0};
    struct err e = {0};
    struct pipeline_schedule s = {0};
    if (predict_schedule(&b->cluster, &b->profile, &b->plan.plan, slices, n, cached, 0, &arena, &s,
                         &e) < 0)
        fail_msg("%s", e.text);
    double end_s = s.end_s[b->plan.plan.n_stages * n - 1];
    arena_free(&arena);
    return end_s;
}

/* How much longer the prepared slices take than the best that a search finds for this length and
 * prefix. */
static double slower_than_search(struct slicing_bed *b, int length, int cached)
{
    int slices[MOST], devices[8], ends[8], n = list_slices(b->slicing, length, cached, slices);
    struct arena arena = {0};
    struct err e = {0};
    struct pipeline_answer a = {0};
    struct pipeline_request rq = b->rq;
    for (int j = 0; j < b->plan.plan.n_stages; j++) {
        devices[j] = cluster_find_device(&b->cluster, b->plan.plan.stages[j].device);
        ends[j] = b->plan.plan.stages[j].end_layer;
    }
    rq.method = PIPELINE_EXACT;
    rq.tokens = length;
    rq.cached_tokens = cached;
    rq.devices = devices;
    rq.n_devices = b->plan.plan.n_stages;
    rq.layer_ends = ends;
    if (pipeline_plan_make(&rq, &arena, &a, &e) < 0)
        fail_msg("%s", e.text);
    double ratio = seconds_of(b, cached, slices, n) / a.makespan_s;
    json_decref(a.document);
    arena_free(&arena);
    return ratio;
}

TEST(prepared_slices_are_close_to_the_best_for_each_length_and_prefix)
{
    struct slicing_bed b;
    double worst = 0, worst_cached = 0;
    int turn = 0;
    bed_make(&b);
    for (int length = 16; length <= CONTEXT; length = length * 3 / 2 + 16)
        if (turn++ % test_stride() == 0)
            worst = fmax(worst, slower_than_search(&b, length / 16 * 16, 0));
    for (int cached = 160; cached < CONTEXT; cached = cached * 2 + 48)
        for (int length = 16; length <= CONTEXT - cached; length = length * 2 + 16)
            if (turn++ % test_stride() == 0)
                worst_cached = fmax(worst_cached, slower_than_search(&b, length / 16 * 16, cached));
    print_message("# at most %.2f %% slower than a search without a prefix, %.2f %% with one; %zu "
                  "bytes for a context of %d\n",
                  (worst - 1) * 100, (worst_cached - 1) * 100, slicing_memory_bytes(b.slicing),
                  CONTEXT);
    assert_true(worst < 1.01);
    assert_true(worst_cached < 1.03);
    assert_true(slicing_memory_bytes(b.slicing) < 400000);
    bed_free(&b);
}

TEST(a_cached_prefix_changes_the_slices)
{
    struct slicing_bed b;
    int cold[MOST], warm[MOST];
    bed_make(&b);
    int n = list_slices(b.slicing, 2048, 0, cold), m = list_slices(b.slicing, 2048, 2048, warm);
    double as_cold = seconds_of(&b, 2048, cold, n);
    double as_warm = seconds_of(&b, 2048, warm, m);
    assert_true(n != m || memcmp(cold, warm, (size_t)n * sizeof *cold) != 0);
    assert_true(as_warm < as_cold * 1.02);
    bed_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_cover_every_length_and_prefix),
        cmocka_unit_test(lookups_reject_what_is_beyond_the_context),
        cmocka_unit_test(prepared_slices_are_close_to_the_best_for_each_length_and_prefix),
        cmocka_unit_test(a_cached_prefix_changes_the_slices),
    };
    return cmocka_run_group_tests_name("pipeline slicing", tests, NULL, NULL);
}
