/* The request scheduler of models with deadlines: resource reservation-based adaptive batching
 * (PPipe, USENIX ATC 2025, section 5.4, algorithms 1 and 2).
 *
 * It decides and does nothing else: requests arrive, dispatch_run says which are sent where and
 * when, or dropped, and when it wants to be asked again. Time is handed in, in nanoseconds of any
 * clock that does not go back. For every batch it reserves a share of a device per stage and, for
 * every hop, the uplink of one node and the downlink of another, ahead of time; whoever executes
 * reports what was really used, which corrects the tables.
 *
 * With latencies as profiled nothing that was sent finishes after its deadline. Several models
 * share the NICs; each has its queue. One thread at a time. */
#ifndef HP_PLANNERS_DISPATCH_DISPATCH_H
#define HP_PLANNERS_DISPATCH_DISPATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "planners/dispatch/topology.h"

struct dispatch;

struct dispatch_request {
    uint64_t tag; /* the caller's */
    int64_t arrival_ns, deadline_ns;
};

/* One stage of a batch's way. The transfer leads into this stage; both its times are 0 for the
 * first. */
struct dispatch_leg {
    int share; /* index into topology.shares */
    int64_t transfer_start_ns,
        transfer_end_ns;      /* both NICs are reserved; the data is there a hop's latency later */
    int64_t start_ns, end_ns; /* computing */
};

struct dispatch_path {
    int pipeline, n;
    struct dispatch_leg legs[PLAN_POOLS_MAX_STAGES];
    int64_t finish_ns;
    int64_t wait_ns; /* of that, spent waiting for devices and NICs */
};

struct dispatch_action {
    bool drop; /* one request that cannot meet its deadline; otherwise a batch to send */
    int model;
    uint32_t batch;                          /* its id, for reports; unique among 2^32 */
    const struct dispatch_request *requests; /* by deadline; valid during the call */
    int n;
    const struct dispatch_path *path; /* NULL for a drop */
};

/* May forget requests that wait; lets none arrive. */
typedef void (*dispatch_act_fn)(void *ctx, const struct dispatch_action *action);

/* What a reservation was really used for. */
struct dispatch_report {
    uint32_t batch;
    int share;      /* that computed, or that received */
    int from_share; /* of a transfer: that sent; -1: computing */
    int64_t planned_start_ns, start_ns, end_ns;
};

/* The topology must outlive the scheduler. `queue_limit` requests may wait per model (0: 65536).
 * HP_ENOMEM. */
int dispatch_create(const struct dispatch_topology *t, int queue_limit, struct dispatch **out,
                    struct err *e);
void dispatch_destroy(struct dispatch **d);

/* From now on a batch that is not full is sent as soon as it can be computed where, by the mean
 * time between arrivals, it will not fill before it has to leave, and where its shares have so
 * little to do that larger ones would serve nobody; else it waits as in the paper. */
void dispatch_eager(struct dispatch *d);

/* From now on every batch that was sent is reported by dispatch_correct, in the order in which its
 * share ran it: until then its share is not taken to be done with it, however late that is. */
void dispatch_reported(struct dispatch *d);

/* A request of a model is there; its deadline is arrival + SLO. Requests of a model come in order
 * of arrival. Decides nothing yet. HP_EBUSY: the queue is full, and the request was not taken. */
int dispatch_arrive(struct dispatch *d, int model, uint64_t tag, int64_t arrival_ns);
/* The same with a deadline of its own. Of those that wait the one with the earliest deadline goes
 * first. */
int dispatch_arrive_by(struct dispatch *d, int model, uint64_t tag, int64_t arrival_ns,
                       int64_t deadline_ns);

/* A request that arrived before and was sent, and is to be sent again: to its place in the queue,
 * by its deadline. HP_EBUSY: no memory. */
int dispatch_return(struct dispatch *d, int model, uint64_t tag, int64_t arrival_ns,
                    int64_t deadline_ns);
/* Nobody wants it any more. False: it does not wait here. */
bool dispatch_forget(struct dispatch *d, int model, uint64_t tag, int64_t deadline_ns);
/* A share that is lost: nothing is sent there any more. */
void dispatch_share_close(struct dispatch *d, int share, int64_t now_ns);

/* Decides for one model all that can be decided at `now_ns`, calling `act` for each. Gives the time
 * at which it wants to be called again if nothing arrives before: INT64_MAX when its queue is
 * empty. */
int64_t dispatch_run(struct dispatch *d, int model, int64_t now_ns, dispatch_act_fn act, void *ctx);

/* Sends a request that does not wait in the queue by itself, now, where it is done first. False: it
 * would be late everywhere, and nothing was decided. */
bool dispatch_alone(struct dispatch *d, int model, const struct dispatch_request *r, int64_t now_ns,
                    dispatch_act_fn act, void *ctx);

/* Corrects the tables. HP_ENOENT: that reservation is past and forgotten, which is no harm. */
int dispatch_correct(struct dispatch *d, const struct dispatch_report *r);

/* Requests of a model that wait. */
int dispatch_waiting(const struct dispatch *d, int model);

/* The way through a pipeline's pools with the earliest finish, stage by stage, for a batch of n
 * that is ready at `now_ns`. Reserves nothing. */
void dispatch_probe(const struct dispatch *d, int pipeline, int n, int64_t now_ns,
                    struct dispatch_path *out);
/* Marks a path's resources as reserved. Where memory ran out for a table, that one reservation is
 * lost, and reports set it right.
 */
void dispatch_reserve(struct dispatch *d, const struct dispatch_path *path, int64_t now_ns,
                      uint32_t batch);

/* Probes so far, for statistics. */
uint64_t dispatch_probes(const struct dispatch *d);

#endif
