#include <math.h>
#include <time.h>

#include "graphs.h"
#include "planners/coldstart/layers.h"

static double finish_of(const struct layers *l, const bool *host, bool contention)
{
    double end = 0, bus = 0;
    for (int i = 0; i < l->n; i++) {
        const struct layer *a = &l->layer[i];
        if (host[i] && a->has_params) {
            bus += contention ? a->read_s : 0;
            end = fmax(end + a->host_s, contention ? bus : 0);
        } else {
            bus += a->load_s;
            end = fmax(end, a->load_s > 0 || !contention ? bus : end) + a->exec_s;
        }
    }
    return end;
}

static void random_layers(uint64_t seed, int n, struct layer *out)
{
    uint64_t state = seed;
    for (int i = 0; i < n; i++) {
        bool params = random_unit(&state) < 0.7;
        double exec = round(64 * random_unit(&state)),
               host = exec + round(128 * random_unit(&state));
        out[i] = (struct layer){
            .node = i, .exec_s = exec, .host_s = params ? host : exec, .has_params = params};
        out[i].load_s = params ? round(100 * random_unit(&state)) + 1 : 0;
        out[i].read_s = params ? round(80 * random_unit(&state)) : 0;
    }
}

TEST(optimal_choice_equals_trying_all)
{
    enum { N = 11 };
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct layer layer[N];
        struct layers l = {.layer = layer, .n = N};
        bool host[N], exact;
        random_layers(seed, N, layer);
        for (int contention = 0; contention <= 1; contention++) {
            double best = INFINITY, finish;
            for (int mask = 0; mask < 1 << N; mask++) {
                for (int i = 0; i < N; i++)
                    host[i] = mask >> i & 1;
                best = fmin(best, finish_of(&l, host, contention));
            }
            assert_int_equal(layers_optimal(&l, contention, host, &finish, &exact), 0);
            assert_true(exact);
            if (fabs(finish - best) > 1e-9 || fabs(finish_of(&l, host, contention) - best) > 1e-9)
                fail_msg("seed %llu, contention %d: %.9g, best is %.9g", (unsigned long long)seed,
                         contention, finish, best);
        }
    }
}

TEST(chain_of_311_layers_is_exact_within_50_ms)
{
    enum { N = 311 };
    static struct layer layer[N];
    struct layers l = {.layer = layer, .n = N};
    bool host[N], exact;
    double finish, slowest_s = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct timespec a, b;
        random_layers(seed * 977, N, layer);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        assert_int_equal(layers_optimal(&l, seed % 2, host, &finish, &exact), 0);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        slowest_s =
            fmax(slowest_s, (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
        assert_true(exact);
    }
    print_message("slowest %.1f ms\n", slowest_s * 1e3);
    assert_true(slowest_s < 0.05 * env_time_scale());
}

static void read_golden_layers(const json_t *c, struct layer *out, int n)
{
    for (int i = 0; i < n; i++) {
        const json_t *row = json_array_get(json_object_get(c, "layers"), (size_t)i);
        bool params = json_number_value(json_object_get(row, "bytes")) > 0;
        out[i] = (struct layer){.node = i, .has_params = params};
        out[i].load_s = json_number_value(json_object_get(row, "load")) * 1e-3;
        out[i].exec_s = json_number_value(json_object_get(row, "exec")) * 1e-3;
        out[i].host_s = json_number_value(json_object_get(row, params ? "dha" : "exec")) * 1e-3;
    }
}

/* 40 chains with the plan of the authors' own greedy, and the optimum. */
TEST(greedy_and_optimum_equal_the_golden_cases)
{
    struct err e = {0};
    struct json_at at;
    json_t *root;
    assert_int_equal(
        json_load_at("tests/unit/planners/coldstart/cases/chains.json", &root, &at, &e), 0);
    size_t k;
    json_t *c;
    json_array_foreach(json_object_get(root, "cases"), k, c)
    {
        struct layer layer[64];
        struct layers l = {.layer = layer, .n = (int)json_array_size(json_object_get(c, "layers"))};
        bool host[64], exact;
        double finish;
        struct arena scratch = {0};
        read_golden_layers(c, layer, l.n);
        assert_int_equal(layers_greedy(&l, &scratch, host), 0);
        for (int i = 0; i < l.n; i++)
            if (host[i] != (json_integer_value(
                                json_array_get(json_object_get(c, "code_greedy"), (size_t)i)) == 1))
                fail_msg("case %zu: layer %d of the greedy differs", k, i);
        assert_true(fabs(finish_of(&l, host, false) * 1e3 -
                         json_number_value(json_object_get(c, "finish_greedy"))) < 1e-9);
        assert_int_equal(layers_optimal(&l, false, host, &finish, &exact), 0);
        assert_true(exact);
        assert_true(fabs(finish * 1e3 - json_number_value(json_object_get(c, "finish_optimal"))) <
                    1e-9);
        arena_free(&scratch);
    }
    assert_int_equal(k, 40);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimal_choice_equals_trying_all),
        cmocka_unit_test(chain_of_311_layers_is_exact_within_50_ms),
        cmocka_unit_test(greedy_and_optimum_equal_the_golden_cases),
    };
    return cmocka_run_group_tests_name("coldstart layers", tests, NULL, NULL);
}
