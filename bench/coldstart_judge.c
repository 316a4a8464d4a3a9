/* How long the judge of cold-start plans takes for one plan, and the exact planner for one chain:
 * processor time, since others may use this machine too. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/env.h"
#include "planners/coldstart/layers.h"
#include "planners/coldstart/list.h"
#include "planners/coldstart/published.h"
#include "planners/coldstart/timing.h"

enum { REPEATS = 2000, ROUNDS = 7, CHAIN = 311 };

static double processor_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double best_us(struct timing *t, const struct coldstart_plan *plan)
{
    double best = 1e30;
    for (int round = 0; round < ROUNDS; round++) {
        double start = processor_us();
        for (int i = 0; i < REPEATS; i++)
            timing_run(t, plan);
        double us = (processor_us() - start) / REPEATS;
        best = us < best ? us : best;
    }
    return best;
}

static void judge(const char *file)
{
    struct opgraph g = {0};
    struct coldstart_problem p = {0};
    struct timing t = {0};
    struct arena arena = {0};
    struct coldstart_plan plan;
    struct err e = {0};
    if (opgraph_load(file, &g, &e) < 0) {
        printf("skipped: %s\n", e.text);
        return;
    }
    if (coldstart_problem_init(&p, &g, true, &e) == 0 &&
        coldstart_plan_init(&p, 0, &arena, &plan) == 0 &&
        timing_init(&t, &p, plan.capacity, &e) == 0) {
        double one = published_interleaved(&p, 0, NULL, &plan) == 0 ? best_us(&t, &plan) : 0;
        double many = list_schedule(&p, &plan) == 0 ? best_us(&t, &plan) : 0;
        printf("%-28s %5d nodes: %6.2f us a plan on one device, %6.2f us on all (%.1f and %.1f ns "
               "a node)\n",
               g.model, g.n_nodes, one, many, one * 1e3 / g.n_nodes, many * 1e3 / g.n_nodes);
    }
    timing_fini(&t);
    coldstart_problem_fini(&p);
    opgraph_free(&g);
    arena_free(&arena);
}

static void exact_chain(void)
{
    struct layer layer[CHAIN];
    struct layers l = {.layer = layer, .n = CHAIN};
    bool host[CHAIN], exact = true;
    double slowest = 0, finish;
    uint64_t state = 311;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < CHAIN; i++) {
            double exec = 1e-3 * random_unit(&state);
            layer[i] = (struct layer){.node = i,
                                      .exec_s = exec,
                                      .load_s = 1.2e-3 * random_unit(&state),
                                      .read_s = 1e-3 * random_unit(&state),
                                      .host_s = exec + 2e-3 * random_unit(&state),
                                      .has_params = true};
        }
        double start = processor_us();
        bool proven = false;
        layers_optimal(&l, round % 2 == 1, host, &finish, &proven);
        double ms = (processor_us() - start) * 1e-3;
        exact = exact && proven;
        slowest = ms > slowest ? ms : slowest;
    }
    printf("chains of %d layers: %s, at most %.2f ms each\n", CHAIN,
           exact ? "all exact" : "NOT all exact", slowest);
}

int main(void)
{
    static const char *const names[] = {"gpt2-large_1_1024_v100", "openllama-3b_1_32_v100",
                                        "openllama-3b_32_64_v100"};
    const char *shared = getenv("HP_SHARED");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/data/coldstart/graphs/%s.json",
                 shared ? shared : "../shared", names[i]);
        judge(file);
    }
    exact_chain();
    return 0;
}
