/* What a simulation is asked for, and what comes of it: counts of both schedulers' drivers. */
#ifndef HP_PLANNERS_DISPATCH_SIMULATION_H
#define HP_PLANNERS_DISPATCH_SIMULATION_H

#include <stdbool.h>

#include "planners/dispatch/arrivals.h"
#include "planners/dispatch/topology.h"

enum simulate_scheduler { SIMULATE_RESERVING, SIMULATE_REACTIVE };
extern const char *const simulate_scheduler_words[]; /* "reserving", "reactive", NULL */

struct simulate_options {
    enum simulate_scheduler scheduler;
    double latency_noise;  /* standard deviation of computing times, as a part of them; 0: exact */
    double network_jitter; /* the same of transfers */
    bool always_events;    /* simulate devices and NICs even without noise (for tests: nothing may
                              change) */
    uint64_t seed;         /* of the noise */
    const uint64_t *miss_limit; /* [model]: stop as soon as a model has missed more requests than
                                   this; NULL: go on to the end */
    /* For pictures: told of every stage that was planned, in the order of sending. May be NULL. */
    void (*watch)(void *ctx, int model, int pipeline, int stage, int share, uint32_t batch, int n,
                  int64_t start_ns, int64_t end_ns);
    void *watch_ctx;
};

/* Latencies in buckets that are 1.6 % wide. */
enum { SIMULATE_BUCKETS = 2048 };

struct simulate_model {
    uint64_t arrived, in_time, late, dropped;
    uint64_t batches;
    double latency_sum_s;
    int64_t latency_max_ns;
    uint32_t latency[SIMULATE_BUCKETS];
};

struct simulate_result {
    struct simulate_model *models; /* [topology.n_models] */
    int n_models;
    double busy_s[POOLS_MAX_KINDS]; /* device seconds of computing, by kind */
    double span_s;                  /* first arrival to last finish */
    uint64_t probes;
    bool stopped; /* by a miss limit: the counts are those so far */
};

/* Frees what the result owns. */
void simulate_result_free(struct simulate_result *r);

/* Part of a model's requests that were served in time; 1 when none arrived. */
double simulate_attainment(const struct simulate_model *m);
/* Latency that a part q of the served requests did not exceed; 0 when none was served. */
double simulate_percentile_s(const struct simulate_model *m, double q);

/* Counts a request that was served. */
void simulate_count(struct simulate_model *m, int64_t latency_ns, bool in_time);

#endif
