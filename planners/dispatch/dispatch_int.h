/* What the scheduler's parts share: the shares that run a stage, the NICs and the queues. */
#ifndef HP_PLANNERS_DISPATCH_DISPATCH_INT_H
#define HP_PLANNERS_DISPATCH_DISPATCH_INT_H

#include "planners/dispatch/dispatch.h"
#include "planners/dispatch/reservations.h"

/* A hole between reservations of one share, long enough for one request. */
struct share_gap {
    int at; /* in the pool */
    int64_t from_ns, to_ns;
};

/* The shares that run one stage. free_ns stands apart from the lines because every probe looks
 * through it. */
struct share_pool {
    int n, first_share;
    int cursor; /* where the search for a free share begins: behind the one taken last, so that they
                   are taken in turn */
    int64_t *free_ns;               /* [n]: end of the last reservation */
    struct reservation_line *lines; /* [n] */
    int *nodes;                     /* [n] */
    int64_t shortest_ns;            /* computing of one request */
    int64_t lead_ns;                /* no work that is dispatched now arrives before now + this */
    struct share_gap *gaps;
    int n_gaps, room_gaps;
};

/* Requests of one model, the earliest deadline first: items[first .. first + n). */
struct request_queue {
    struct dispatch_request *items;
    int first, n, room;
    int want;                  /* not worth looking again before so many wait ... */
    int64_t until_ns;          /* ... or this time has come */
    uint64_t arrived, seen;    /* in all; when dispatch_run was called last */
    int64_t heard_ns;          /* when it saw new ones last */
    int64_t latest_ns, gap_ns; /* the latest arrival, and the mean time between two; 0: not known */
};

struct dispatch {
    const struct dispatch_topology *t;
    struct share_pool *pools;                     /* [pipeline * PLAN_POOLS_MAX_STAGES + stage] */
    struct reservation_line *uplinks, *downlinks; /* [node] */
    struct request_queue *queues;                 /* [model] */
    int *pool_of_share;                           /* [share]: index into pools */
    int queue_limit;
    bool eager; /* dispatch_eager */
    uint32_t next_batch;
    uint64_t probes;
};

/* The shares of a stage: those of the pipeline beside which it runs, where there is one. */
static inline struct share_pool *pool_of(const struct dispatch *d, int pipeline, int stage)
{
    int beside = d->t->pipelines[pipeline].beside;
    return &d->pools[(beside ? beside - 1 : pipeline) * PLAN_POOLS_MAX_STAGES + stage];
}

#endif
