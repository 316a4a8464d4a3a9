#include <math.h>

#include "graphs.h"
#include "planners/coldstart/coldstart.h"
#include "tests/share.h"

static const enum coldstart_method others[] = {
    COLDSTART_SERIAL, COLDSTART_PIPELINE, COLDSTART_DHA,         COLDSTART_PT,
    COLDSTART_PT_DHA, COLDSTART_MILP,     COLDSTART_INTERLEAVED, COLDSTART_LIST};

static struct coldstart_options options_of(enum coldstart_method method, uint64_t evaluations)
{
    return (struct coldstart_options){.method = method,
                                      .contention = true,
                                      .evaluations = evaluations,
                                      .env = &env_real,
                                      .time_limit_s = method == COLDSTART_MILP ? 0.3 : 0};
}

static void make(const struct opgraph *g, const struct coldstart_options *o,
                 struct coldstart_result *r)
{
    struct err e = {0};
    if (coldstart_plan_make(g, o, r, &e) < 0)
        fail_msg("%s: %s", coldstart_method_word(o->method), e.text);
}

/* Judges the plan as a file and compares with what it predicts. */
static void check_predictions(const struct opgraph *g, const struct coldstart_result *r)
{
    struct json_at at = {.file = "plan", .value = r->plan};
    struct coldstart_verdict v;
    struct err e = {0};
    if (coldstart_plan_check(&at, g, false, false, &v, NULL, &e) < 0)
        fail_msg("%s", e.text);
    assert_true(fabs(v.latency_s - r->latency_s) <= 1e-12 * r->latency_s);
    assert_true(fabs(v.predicted_s - r->latency_s) <= 1e-12 * r->latency_s);
    assert_true(v.bound_s <= v.latency_s);
}

static const struct {
    int devices, buses;
} hosts[] = {{1, 1}, {2, 1}, {2, 2}, {4, 2}, {8, 4}};

/* A proven bound that some other method's plan beats would be none. */
TEST(best_is_never_worse_than_the_others_and_never_below_a_bound)
{
    for (uint64_t seed = 1; seed <= (uint64_t)test_share(20); seed++) {
        struct opgraph g = {0};
        struct coldstart_result best, r;
        struct coldstart_options o = options_of(COLDSTART_BEST, 4000);
        graph_random(seed, hosts[seed % 5].devices, hosts[seed % 5].buses, &g);
        make(&g, &o, &best);
        check_predictions(&g, &best);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            if (others[i] == COLDSTART_MILP && seed > 3)
                continue;
            o = options_of(others[i], 0);
            make(&g, &o, &r);
            check_predictions(&g, &r);
            if (others[i] != COLDSTART_MILP && best.latency_s > r.latency_s)
                fail_msg("seed %llu: best %.9g, %s %.9g", (unsigned long long)seed, best.latency_s,
                         coldstart_method_word(others[i]), r.latency_s);
            assert_true(best.bound_s <= r.latency_s * (1 + 1e-9));
            assert_true(r.bound_s <= best.latency_s * (1 + 1e-9));
            coldstart_result_free(&r);
        }
        coldstart_result_free(&best);
        opgraph_free(&g);
    }
}

TEST(same_seed_and_evaluations_give_the_same_plan)
{
    struct opgraph g = {0};
    graph_random(5, 4, 2, &g);
    struct coldstart_options o = options_of(COLDSTART_BEST, 3000);
    struct coldstart_result first, second;
    o.seed = 17;
    make(&g, &o, &first);
    make(&g, &o, &second);
    json_object_del(json_object_get(first.plan, "solver"), "seconds");
    json_object_del(json_object_get(second.plan, "solver"), "seconds");
    assert_true(json_equal(first.plan, second.plan));
    coldstart_result_free(&first);
    coldstart_result_free(&second);
    opgraph_free(&g);
}

/* With evaluations given and no time limit the clock decides nothing: one that stands still gives
 * the same plan. */
TEST(plan_does_not_depend_on_the_clock)
{
    struct opgraph g = {0};
    struct env_virtual still;
    struct env env = env_virtual_init(&still, 1);
    struct coldstart_options o = options_of(COLDSTART_BEST, 2000);
    struct coldstart_result real, virtual;
    graph_random(9, 4, 2, &g);
    make(&g, &o, &real);
    o.env = &env;
    make(&g, &o, &virtual);
    assert_true(real.latency_s == virtual.latency_s);
    assert_true(
        json_equal(json_object_get(real.plan, "copies"), json_object_get(virtual.plan, "copies")));
    coldstart_result_free(&real);
    coldstart_result_free(&virtual);
    opgraph_free(&g);
}

TEST(more_bandwidth_or_memory_is_never_worse)
{
    for (uint64_t seed = 40; seed < 40 + (uint64_t)test_share(12); seed++) {
        struct opgraph g = {0};
        struct coldstart_result before, after;
        struct coldstart_options o = options_of(COLDSTART_BEST, 30000);
        graph_random(seed, hosts[seed % 5].devices, hosts[seed % 5].buses, &g);
        double total = 0;
        for (int v = 0; v < g.n_nodes; v++)
            total += g.nodes[v].is_op ? 0 : g.nodes[v].bytes;
        for (int d = 0; d < g.n_devices; d++)
            g.devices[d].memory_bytes = total * 0.6 + 60e6;
        make(&g, &o, &before);
        for (int change = 0; change < 2; change++) {
            for (int b = 0; b < g.n_buses && change == 0; b++)
                g.bus_bytes_per_s[b] *= 1.5;
            for (int d = 0; d < g.n_devices && change == 1; d++)
                g.devices[d].memory_bytes *= 2;
            make(&g, &o, &after);
            if (after.latency_s > before.latency_s * 1.02)
                fail_msg("seed %llu, change %d: %.9g, before %.9g", (unsigned long long)seed,
                         change, after.latency_s, before.latency_s);
            coldstart_result_free(&before);
            before = after;
        }
        coldstart_result_free(&before);
        opgraph_free(&g);
    }
}

TEST(what_does_not_fit_is_named)
{
    struct opgraph g = {0};
    struct coldstart_result r;
    struct err e = {0};
    struct coldstart_options o = options_of(COLDSTART_BEST, 1000);
    graph_random(3, 2, 2, &g);
    g.devices[0].memory_bytes = g.devices[1].memory_bytes = 10;
    assert_int_equal(coldstart_plan_make(&g, &o, &r, &e), HP_EINFEASIBLE);
    assert_non_null(strstr(e.text, "bytes of parameters; the largest device holds 10"));
    double most = 0;
    for (int v = 0; v < g.n_nodes; v++)
        most = g.nodes[v].is_op ? most : most + g.nodes[v].bytes;
    g.devices[0].memory_bytes = g.devices[1].memory_bytes = most * 0.9;
    o.method = COLDSTART_SERIAL;
    assert_int_equal(coldstart_plan_make(&g, &o, &r, &e), HP_EINFEASIBLE);
    assert_non_null(strstr(e.text, "method serial: cannot be carried out"));
    o.method = COLDSTART_BEST;
    make(&g, &o, &r);
    check_predictions(&g, &r);
    coldstart_result_free(&r);
    opgraph_free(&g);
}

struct programmes {
    int n;
    bool has_objective;
};

static bool take_programme(void *ctx, int sub_model, const char *text, size_t size)
{
    struct programmes *p = ctx;
    assert_int_equal(sub_model, p->n);
    p->has_objective = memmem(text, size, "TotalLatency", 12) != NULL;
    p->n++;
    return true;
}

TEST(published_programme_is_written_for_every_sub_model)
{
    struct opgraph g = {0};
    struct programmes p = {0};
    struct coldstart_result r;
    struct coldstart_options o = options_of(COLDSTART_MILP, 0);
    graph_random(11, 2, 2, &g);
    o.time_limit_s = 2 * env_time_scale();
    o.program = take_programme;
    o.program_ctx = &p;
    make(&g, &o, &r);
    assert_true(p.n >= 3 && p.has_objective);
    check_predictions(&g, &r);
    coldstart_result_free(&r);
    opgraph_free(&g);
}

/* A second is enough for nearly all of it; the full measurement is a benchmark. */
TEST(models_reach_what_is_known)
{
    static const struct {
        const char *file;
        double known_s;
    } known[] = {{"graphs/sub_3b_1_32_block.json", 22.2200e-3},
                 {"graphs/sub_3b_32_64_attn.json", 14.8514e-3},
                 {"graphs/sub_3b_4_128_block.json", 24.7170e-3},
                 {"graphs/gpt2-large_1_32_v100.json", 132.2e-3}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct opgraph g = {0};
        struct err e = {0};
        struct coldstart_result r;
        struct coldstart_options o = options_of(COLDSTART_BEST, 0);
        assert_int_equal(opgraph_load(shared_file(known[i].file), &g, &e), 0);
        o.evaluations = g.n_nodes > 100 ? 15000 : 150000;
        make(&g, &o, &r);
        if (r.latency_s > 1.01 * known[i].known_s)
            fail_msg("%s: %.6g s, known %.6g s", known[i].file, r.latency_s, known[i].known_s);
        coldstart_result_free(&r);
        opgraph_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_is_never_worse_than_the_others_and_never_below_a_bound),
        cmocka_unit_test(same_seed_and_evaluations_give_the_same_plan),
        cmocka_unit_test(plan_does_not_depend_on_the_clock),
        cmocka_unit_test(more_bandwidth_or_memory_is_never_worse),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(published_programme_is_written_for_every_sub_model),
        cmocka_unit_test(models_reach_what_is_known),
    };
    return cmocka_run_group_tests_name("coldstart", tests, NULL, NULL);
}
