/* Drives models of fixed shape by a plan of requests (infer_plan.h) over the KServe v2 API, each
 * sent when it arrives, however many are open, over connections that stay; none is sent again. A
 * few microseconds of a processor each: thousands a second on one core. */
#ifndef HP_HPCTL_INFER_RUN_H
#define HP_HPCTL_INFER_RUN_H

#include "common/arena.h"
#include "hpctl/infer_plan.h"
#include "hpctl/infer_target.h"
#include "hpctl/load_run.h"

/* What the coordinator says of one stage of a request's way (docs/api.md, KServe v2): seconds since
 * the request came there. */
struct infer_stage {
    int share;
    double planned_transfer_s[2], planned_s[2], arrived_s, ran_s[2];
};

/* Times are seconds after the start; of a request that is done all are there. */
struct infer_result {
    enum load_outcome outcome;
    int cause; /* of what is neither done nor open: index of infer_run.causes; -1: none */
    double sent_s, end_s;
    double came_s;             /* by the coordinator's clock */
    double batched_s, total_s; /* since it came: until its batch left, until all was there */
    uint64_t plan;
    uint32_t batch; /* of that plan */
    int samples;    /* of its batch */
    int n_stages;
    struct infer_stage *stages; /* of infer_run.arena */
};

struct infer_run {
    /* From the caller: */
    const struct context *where;
    const struct infer_target *target;
    const struct infer_plan *plan;
    size_t most_open;
    double patience_s; /* after the last arrival */
    /* Called four times a second, may be NULL: seconds since the start, how many are open. */
    void (*progress)(void *ctx, double now_s, size_t open);
    void *ctx;
    /* What came of it: */
    struct infer_result *results; /* [plan->n] */
    struct arena arena;
    struct load_cause causes[LOAD_MAX_CAUSES];
    int n_causes;
    double seconds;     /* from the start to the end of waiting */
    double processor_s; /* that hpctl took for it */
    bool interrupted;   /* by Ctrl-C; results are of what came until then */
};

/* Sends all, and waits until every request has ended, the patience is over or Ctrl-C. HP_ENOMEM. */
int infer_run(struct infer_run *r, struct err *e);
void infer_run_free(struct infer_run *r);

#endif
