#include "planners/pools/served.h"

#include <math.h>

#include "planners/dispatch/arrivals.h"
#include "planners/dispatch/simulate.h"
#include "planners/dispatch/topology.h"

#define LOAD_PRECISION 0.004

int pools_load_is_met(const struct dispatch_topology *t, double level, double target,
                      double seconds, uint64_t seed, int n_seeds, bool *yes, struct err *e)
{
    double rates[ARRIVALS_MAX_MODELS];
    uint64_t limits[ARRIVALS_MAX_MODELS], arrived[ARRIVALS_MAX_MODELS] = {0},
                                          missed[ARRIVALS_MAX_MODELS] = {0};
    *yes = false;
    for (int m = 0; m < t->n_models; m++) {
        rates[m] = level * t->models[m].weight;
        /* Arrivals scatter by their square root: a run that missed more than this has failed for
         * certain. */
        double expected = rates[m] * seconds * n_seeds;
        limits[m] = (uint64_t)((1 - target) * (expected + 4 * sqrt(expected)));
    }
    for (int i = 0; i < n_seeds; i++) {
        struct arrivals a;
        struct simulate_options o = {.miss_limit = limits};
        struct simulate_result r = {0};
        arrivals_init(&a, ARRIVALS_POISSON, rates, t->n_models, seconds, seed + (uint64_t)i);
        int rc = simulate_run(t, &o, arrivals_next, &a, &r, e);
        bool stopped = r.stopped;
        for (int m = 0; rc == 0 && m < t->n_models; m++) {
            uint64_t gone = r.models[m].dropped + r.models[m].late;
            arrived[m] += r.models[m].arrived;
            missed[m] += gone;
            limits[m] -= gone < limits[m] ? gone : limits[m];
        }
        simulate_result_free(&r);
        if (rc < 0 || stopped)
            return rc;
    }
    *yes = true;
    for (int m = 0; m < t->n_models; m++)
        *yes = *yes && (double)missed[m] <= (1 - target) * (double)arrived[m];
    return 0;
}

int pools_load_between(const struct dispatch_topology *t, double low, double high, double target,
                       double seconds, uint64_t seed, int n_seeds, double *served, struct err *e)
{
    while (high - low > LOAD_PRECISION * high) {
        double middle = (low + high) / 2;
        bool yes;
        int rc = pools_load_is_met(t, middle, target, seconds, seed, n_seeds, &yes, e);
        if (rc < 0)
            return rc;
        if (yes)
            low = middle;
        else
            high = middle;
    }
    *served = low;
    return 0;
}

int pools_served(const struct dispatch_topology *t, double guess, double target, double seconds,
                 uint64_t seed, int n_seeds, double *served, struct err *e)
{
    double low = 0, high = guess;
    for (int i = 0; i < 40; i++) {
        bool yes;
        int rc = pools_load_is_met(t, high, target, seconds, seed, n_seeds, &yes, e);
        if (rc < 0)
            return rc;
        if (!yes)
            break;
        low = high;
        high *= 1.05;
    }
    return pools_load_between(t, low, high, target, seconds, seed, n_seeds, served, e);
}
