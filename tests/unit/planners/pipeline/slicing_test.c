#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "planners/pipeline/pipeline.h"
#include "planners/pipeline/slicing.h"
#include "tests/unit/planners/pipeline/cases.h"
#include "tests/unit/planners/pipeline/shared.h"

enum { CONTEXT = 4096, MOST = 1024 };

struct bed {
    struct cluster cluster;
    struct profile profile;
    struct arena arena;
    struct pipeline_answer plan;
    struct slicing *slicing;
    struct pipeline_request rq;
};

/* HPipe's layers for the 2B model over all six devices: stages that are far from equal. */
static bool bed_make(struct bed *b)
{
    struct err e = {0};
    *b = (struct bed){0};
    if (!shared_load("hpipe/testbed.cluster.json", "hpipe/gpt3-2b.profile.json", &b->cluster,
                     &b->profile))
        return false;
    b->rq = (struct pipeline_request){.cluster = &b->cluster,
                                      .profile = &b->profile,
                                      .tokens = 2048,
                                      .method = PIPELINE_HPIPE,
                                      .brief = true};
    if (pipeline_plan_make(&b->rq, &b->arena, &b->plan, &e) < 0 ||
        slicing_create(&b->rq, &b->plan.plan, CONTEXT, &b->slicing, &e) < 0)
        fail_msg("%s", e.text);
    return true;
}

static void bed_free(struct bed *b)
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

static void slices_cover_every_length_and_prefix(void **state)
{
    (void)state;
    struct bed b;
    int slices[MOST];
    if (!bed_make(&b))
        skip();
    int unit = slicing_unit(b.slicing);
    for (int cached = 0; cached < CONTEXT; cached += cached < 64 ? 7 : 331)
        for (int length = 1; length <= CONTEXT - cached; length += length < 64 ? 1 : 37) {
            int n = list_slices(b.slicing, length, cached, slices), sum = 0;
            for (int k = 0; k < n; k++) {
                assert_true(k + 1 == n || slices[k] % unit == 0);
                sum += slices[k];
            }
            assert_int_equal(sum, length);
        }
    bed_free(&b);
}

static void lookups_reject_what_is_beyond_the_context(void **state)
{
    (void)state;
    struct bed b;
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
    if (!bed_make(&b))
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(slicing_begin(b.slicing, cases[i].length, cases[i].cached, &c), HP_EINVAL);
    assert_int_equal(slicing_begin(b.slicing, CONTEXT, 0, &c), 0);
    assert_int_equal(slicing_begin(b.slicing, 1, CONTEXT - 1, &c), 0);
    bed_free(&b);
}

/* How much longer the prepared slices take than the best that a search finds for this length and
 * prefix. */
static double slower_than_search(struct bed *b, int length, int cached)
{
    int slices[MOST], devices[8], ends[8], n = list_slices(b->slicing, length, cached, slices);
    static double scratch[MOST * 17];
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
    double ratio =
        slicing_predict(b->slicing, cached, slices, n, NULL, NULL, scratch) / a.makespan_s;
    json_decref(a.document);
    arena_free(&arena);
    return ratio;
}

static void prepared_slices_are_close_to_the_best_for_each_length_and_prefix(void **state)
{
    (void)state;
    struct bed b;
    double worst = 0, worst_cached = 0;
    if (!bed_make(&b))
        skip();
    for (int length = 16; length <= CONTEXT; length = length * 3 / 2 + 16)
        worst = fmax(worst, slower_than_search(&b, length / 16 * 16, 0));
    for (int cached = 160; cached < CONTEXT; cached = cached * 2 + 48)
        for (int length = 16; length <= CONTEXT - cached; length = length * 2 + 16)
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

static void a_cached_prefix_changes_the_slices(void **state)
{
    (void)state;
    struct bed b;
    int cold[MOST], warm[MOST];
    if (!bed_make(&b))
        skip();
    int n = list_slices(b.slicing, 2048, 0, cold), m = list_slices(b.slicing, 2048, 2048, warm);
    static double scratch[MOST * 17];
    double as_cold = slicing_predict(b.slicing, 2048, cold, n, NULL, NULL, scratch);
    double as_warm = slicing_predict(b.slicing, 2048, warm, m, NULL, NULL, scratch);
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
