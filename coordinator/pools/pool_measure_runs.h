/* Measurements of networks: what is asked for, and which devices do it. */
#ifndef HP_COORDINATOR_POOLS_POOL_MEASURE_RUNS_H
#define HP_COORDINATOR_POOLS_POOL_MEASURE_RUNS_H

#include "coordinator/pools/pool_measuring.h"
#include "planners/pools/split.h"

enum { POOL_MEASURE_RUNS = 64 }; /* devices, at once */

struct pool_measuring {
    struct pool_measuring *next;
    struct pool_measuring_ask ask;
    struct pool_measure measure; /* arrays in the spec's arena */
    struct pool_plan *plan;      /* a share for each device that measures */
    struct pool_measure_run {
        char kind[DEVICE_KIND];
        json_t *profile;
        bool over; /* it has a profile, or there will be none */
    } * runs;      /* [plan's shares] */
    json_t *failed;
    struct err first; /* of those that failed */
    int blocks;
    struct split split; /* the blocks that it is to have; n_blocks 0: any */
    bool every, any;
};

/* What the spec's document wishes (pool_measuring.h). HP_EPARSE, HP_ENOMEM; HP_ENOENT, HP_ELINK: an
 * agent that is named. */
int pool_measure_wishes_read(struct coord *c, struct pool_measuring *g, struct err *e);
/* One device of each kind, or every one, of agents that do nothing else. HP_EBUSY: there is none;
 * HP_ELIMIT. */
int pool_measure_runs_choose(struct coord *c, struct pool_measuring *g, struct err *e);
/* Another such device of a run's kind; false: there is none. */
bool pool_measure_run_replace(struct coord *c, struct pool_measuring *g, int run);
/* Whether an agent holds stages or shares, and which. */
bool pool_measure_agent_serves(struct coord *c, const struct member *m, struct err *why);
/* Whether an agent holds stages, shares or a measurement, which another one would disturb; why. */
bool pool_measure_is_disturbed(struct coord *c, const struct member *m, struct err *why);

#endif
