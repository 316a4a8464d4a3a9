/* The simulator: arrivals of the rates asked for, the same outcome by imagined devices as without
 * them, and noise that shows. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "planners/dispatch/simulate.h"
#include "planners/pools/margin.h"
#include "planners/pools/pools.h"
#include "planners/pools/served.h"
#include "tests/test.h"
#include "tests/unit/planners/pools_example.h"

static void make_topology(uint64_t seed, struct example *x, struct pools_answer *answer,
                          struct dispatch_topology *t)
{
    struct err e = {0};
    *answer = (struct pools_answer){0};
    *t = (struct dispatch_topology){0};
    example_make(&(struct example_options){.n_kinds = 2,
                                           .counts = {6, 14},
                                           .per_node = 2,
                                           .n_models = 2,
                                           .max_stages = 2,
                                           .slo_s = 0.06,
                                           .margin = 0.3,
                                           .nic_bytes_per_s = 6e8,
                                           .max_batch = 4,
                                           .shares = 2,
                                           .seed = seed},
                 x);
    struct pools_request rq = {.cluster = &x->c,
                               .workload = &x->w,
                               .slo_margin = -1,
                               .time_limit_s = 0.05,
                               .env = &env_real};
    if (pools_plan(&rq, answer, &e) < 0 ||
        dispatch_topology_make(&answer->plan, &x->c, &x->w, 0, t, &e) < 0)
        fail_msg("seed %llu: %s", (unsigned long long)seed, e.text);
}

static void run(const struct dispatch_topology *t, const struct simulate_options *o, double load,
                uint64_t seed, struct simulate_result *r)
{
    struct arrivals *a = malloc(sizeof *a);
    double rates[ARRIVALS_MAX_MODELS];
    struct err e = {0};
    assert_non_null(a);
    *r = (struct simulate_result){0};
    for (int m = 0; m < t->n_models; m++)
        rates[m] = load * t->models[m].rate;
    arrivals_init(a, ARRIVALS_POISSON, rates, t->n_models, 4, seed);
    if (simulate_run(t, o, arrivals_next, a, r, &e) < 0)
        fail_msg("%s", e.text);
    free(a);
}

TEST(arrivals_come_in_order_at_the_rate_asked_for)
{
    for (int kind = ARRIVALS_POISSON; kind <= ARRIVALS_BURSTY; kind++) {
        struct arrivals *a = malloc(sizeof *a);
        struct arrival x;
        struct err e = {0};
        double rates[2] = {700, 300};
        int64_t last = 0;
        long count[2] = {0};
        assert_non_null(a);
        arrivals_init(a, (enum arrivals_kind)kind, rates, 2, 300, 9);
        while (arrivals_next(a, &x, &e) > 0) {
            assert_true(x.at_ns >= last && x.at_ns < 300000000000);
            last = x.at_ns;
            count[x.model]++;
        }
        for (int m = 0; m < 2; m++)
            if (fabs((double)count[m] / (300 * rates[m]) - 1) >
                (kind == ARRIVALS_BURSTY ? 0.08 : 0.02))
                fail_msg("kind %d, model %d: %ld requests in 300 s, asked for %g a second", kind, m,
                         count[m], rates[m]);
        free(a);
    }
}

TEST(bursts_scatter_more_than_poisson)
{
    double variance[3] = {0};
    for (int kind = ARRIVALS_POISSON; kind <= ARRIVALS_BURSTY; kind++) {
        struct arrivals *a = malloc(sizeof *a);
        struct arrival x;
        struct err e = {0};
        double rate = 500, sum = 0, squares = 0;
        static int bins[2000];
        assert_non_null(a);
        memset(bins, 0, sizeof bins);
        arrivals_init(a, (enum arrivals_kind)kind, &rate, 1, 200, 4);
        while (arrivals_next(a, &x, &e) > 0)
            bins[x.at_ns / 100000000]++;
        for (int i = 0; i < 2000; i++) {
            sum += bins[i];
            squares += (double)bins[i] * bins[i];
        }
        variance[kind] = (squares - sum * sum / 2000) / sum; /* index of dispersion */
        free(a);
    }
    assert_true(variance[ARRIVALS_UNIFORM] < 0.1);
    assert_true(fabs(variance[ARRIVALS_POISSON] - 1) < 0.2);
    assert_true(variance[ARRIVALS_BURSTY] > 3);
}

TEST(imagined_devices_without_noise_change_nothing)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct example x;
        struct pools_answer answer;
        struct dispatch_topology t;
        struct simulate_result plain, events;
        make_topology(seed, &x, &answer, &t);
        run(&t, &(struct simulate_options){0}, 1.05, seed, &plain);
        run(&t, &(struct simulate_options){.always_events = true}, 1.05, seed, &events);
        for (int m = 0; m < t.n_models; m++) {
            assert_int_equal(plain.models[m].late, 0);
            assert_int_equal(plain.models[m].arrived, events.models[m].arrived);
            assert_int_equal(plain.models[m].in_time, events.models[m].in_time);
            assert_int_equal(events.models[m].late, 0);
            assert_int_equal(plain.models[m].dropped, events.models[m].dropped);
            assert_memory_equal(plain.models[m].latency, events.models[m].latency,
                                sizeof plain.models[m].latency);
            assert_int_equal(plain.models[m].arrived,
                             plain.models[m].in_time + plain.models[m].dropped);
        }
        simulate_result_free(&plain);
        simulate_result_free(&events);
        dispatch_topology_free(&t);
        pools_answer_free(&answer);
        example_free(&x);
    }
}

TEST(noise_makes_some_late_and_every_request_is_counted_once)
{
    struct example x;
    struct pools_answer answer;
    struct dispatch_topology t;
    struct simulate_result r;
    make_topology(2, &x, &answer, &t);
    run(&t, &(struct simulate_options){.latency_noise = 0.1, .network_jitter = 0.2, .seed = 5}, 0.8,
        3, &r);
    uint64_t late = 0;
    for (int m = 0; m < t.n_models; m++) {
        assert_int_equal(r.models[m].arrived,
                         r.models[m].in_time + r.models[m].late + r.models[m].dropped);
        assert_true(simulate_attainment(&r.models[m]) > 0.8);
        late += r.models[m].late;
    }
    assert_true(late > 0);
    simulate_result_free(&r);
    dispatch_topology_free(&t);
    pools_answer_free(&answer);
    example_free(&x);
}

TEST(the_reactive_scheduler_counts_every_request_too)
{
    struct example x;
    struct pools_answer answer;
    struct dispatch_topology t;
    struct simulate_result r;
    make_topology(3, &x, &answer, &t);
    run(&t, &(struct simulate_options){.scheduler = SIMULATE_REACTIVE}, 0.9, 3, &r);
    for (int m = 0; m < t.n_models; m++)
        assert_int_equal(r.models[m].arrived,
                         r.models[m].in_time + r.models[m].late + r.models[m].dropped);
    simulate_result_free(&r);
    dispatch_topology_free(&t);
    pools_answer_free(&answer);
    example_free(&x);
}

TEST(the_same_seed_gives_the_same_outcome)
{
    struct example x;
    struct pools_answer answer;
    struct dispatch_topology t;
    struct simulate_result a, b;
    struct simulate_options o = {.latency_noise = 0.05, .seed = 8};
    make_topology(4, &x, &answer, &t);
    run(&t, &o, 1, 6, &a);
    run(&t, &o, 1, 6, &b);
    assert_memory_equal(a.models, b.models, (size_t)t.n_models * sizeof *a.models);
    simulate_result_free(&a);
    simulate_result_free(&b);
    dispatch_topology_free(&t);
    pools_answer_free(&answer);
    example_free(&x);
}

TEST(percentiles_are_near_and_never_above_the_slowest)
{
    struct simulate_model m = {0};
    for (int i = 1; i <= 1000; i++)
        simulate_count(&m, (int64_t)i * 100000, true);
    assert_true(fabs(simulate_percentile_s(&m, 0.5) / 0.05 - 1) < 0.02);
    assert_true(fabs(simulate_percentile_s(&m, 0.99) / 0.099 - 1) < 0.02);
    assert_true(simulate_percentile_s(&m, 1) <= 0.1 + 1e-12);
}

TEST(auto_margins_serve_no_less_than_the_workloads_own)
{
    struct example x;
    struct err e = {0};
    double served[2];
    example_make(&(struct example_options){.n_kinds = 2,
                                           .counts = {8, 20},
                                           .per_node = 2,
                                           .n_models = 2,
                                           .max_stages = 2,
                                           .slo_s = 0.045,
                                           .margin = 0.4,
                                           .nic_bytes_per_s = 1e9,
                                           .max_batch = 4,
                                           .shares = 2,
                                           .seed = 21},
                 &x);
    struct pools_request rq = {
        .cluster = &x.c, .workload = &x.w, .slo_margin = -1, .env = &env_real};
    for (int i = 0; i < 2; i++) {
        struct pools_answer a = {0};
        struct dispatch_topology t = {0};
        int rc = i ? pools_plan_auto(
                         &rq, &(struct pools_margin_options){.seed = 3, .seconds = 20, .plans = 12},
                         &a, &e)
                   : pools_plan(&rq, &a, &e);
        if (rc < 0 || dispatch_topology_make(&a.plan, &x.c, &x.w, 0, &t, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(
            pools_served(&t, a.plan.normalized_throughput_per_s, 0.99, 10, 777, 2, &served[i], &e),
            0);
        dispatch_topology_free(&t);
        pools_answer_free(&a);
    }
    if (served[1] < served[0] * 0.99)
        fail_msg("auto serves %.1f, the workload's margin %.1f", served[1], served[0]);
    example_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrivals_come_in_order_at_the_rate_asked_for),
        cmocka_unit_test(bursts_scatter_more_than_poisson),
        cmocka_unit_test(imagined_devices_without_noise_change_nothing),
        cmocka_unit_test(noise_makes_some_late_and_every_request_is_counted_once),
        cmocka_unit_test(the_reactive_scheduler_counts_every_request_too),
        cmocka_unit_test(the_same_seed_gives_the_same_outcome),
        cmocka_unit_test(percentiles_are_near_and_never_above_the_slowest),
        cmocka_unit_test(auto_margins_serve_no_less_than_the_workloads_own),
    };
    return cmocka_run_group_tests_name("simulate", tests, NULL, NULL);
}
