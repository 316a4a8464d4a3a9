/* Running the methods of the pipeline planner for real on a paced cluster. */
#ifndef HP_HPCTL_BENCH_RUN_H
#define HP_HPCTL_BENCH_RUN_H

#include <sys/types.h>

#include "common/cluster.h"
#include "common/profile.h"
#include "hpctl/client.h"
#include "hpctl/command.h"
#include "hpctl/progress.h"
#include "planners/pipeline/pipeline.h"

enum { BENCH_MAX_METHODS = 8, BENCH_MAX_REPEATS = 50 };

struct bench_row {
    char method[32];
    double paper_s, predicted_s, measured_s; /* paper: 0 where there is none; measured: median */
    double runs_s[BENCH_MAX_REPEATS];
    int stages, slices, together; /* micro-batches: so many prompts at once */
};

struct bench_job {
    const struct invocation *in;
    struct progress_bar bar;
    char cluster_file[1024], profile_file[1024], model[1024], published_file[1024];
    int tokens, n_repeats;
    struct cluster cluster;
    struct profile profile;
    char dir[64]; /* of a cluster of our own */
    pid_t guard;  /* who ends it; 0 for one that runs already */
    int guard_fd;
    const char *context;
    struct client *client;
    json_t *published;
    struct bench_row rows[BENCH_MAX_METHODS];
    int n_rows;
};

/* What the planner is asked for a method; HP_EUSAGE where it cannot be run. */
int bench_method_request(struct bench_job *b, const char *method, struct pipeline_request *rq,
                         struct err *e);

/* Runs every row on the cluster of b->context, or on one of its own that ends with it, whatever
 * ends this program. */
int bench_run(struct bench_job *b, struct err *e);

#endif
