/* A plan laid out on a cluster, in two sizes of its models over the same shares, with failing
 * allocations. */
#include "planners/dispatch/dispatch.h"
#include "planners/pools/pools.h"
#include "tests/unit/faults.h"
#include "tests/unit/planners/pools_example.h"

static struct example example;
static struct pools_answer answer;

static int sizes_lay(void *ctx)
{
    static const bool also[] = {true, false};
    struct dispatch_topology t = {0}, other = {0};
    struct dispatch *d = NULL;
    struct err e = {0};
    (void)ctx;
    int rc = dispatch_topology_make(&answer.plan, &example.c, &example.w, -1, &t, &e);
    rc = rc < 0 ? rc : dispatch_topology_make(&answer.plan, &example.c, &example.w, -1, &other, &e);
    rc = rc < 0 ? rc : dispatch_topology_add(&t, &other, also, &e);
    dispatch_topology_free(&other);
    rc = rc < 0 ? rc : dispatch_create(&t, 0, &d, &e);
    if (rc == 0 && (t.n_models != 3 || t.models[2].n_pipelines != t.models[0].n_pipelines))
        rc = HP_EBUG;
    dispatch_destroy(&d);
    dispatch_topology_free(&t);
    return rc;
}

TEST(a_plan_in_two_sizes_bears_every_failing_allocation)
{
    struct err e = {0};
    example_make(&(struct example_options){.n_kinds = 2,
                                           .counts = {5, 11},
                                           .per_node = 2,
                                           .n_models = 2,
                                           .max_stages = 2,
                                           .slo_s = 0.06,
                                           .margin = 0.2,
                                           .nic_bytes_per_s = 4e8,
                                           .max_batch = 2,
                                           .shares = 3,
                                           .seed = 1},
                 &example);
    struct pools_request rq = {.cluster = &example.c,
                               .workload = &example.w,
                               .share_devices = -1,
                               .slo_margin = -1,
                               .time_limit_s = 0.05,
                               .env = &env_real};
    assert_int_equal(pools_plan(&rq, &answer, &e), 0);
    assert_int_equal(sizes_lay(NULL), 0);
    faults_each("a plan in two sizes", sizes_lay, NULL);
    pools_answer_free(&answer);
    example_free(&example);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_in_two_sizes_bears_every_failing_allocation)};
    return cmocka_run_group_tests_name("dispatch faults", tests, NULL, NULL);
}
