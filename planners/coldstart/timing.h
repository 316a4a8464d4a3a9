/* The exact timing of a cold-start plan: the judge of every method. Its rules are those of the plan
 * format (hp-plan/1, "A cold-start plan is timed so").
 *
 * An event-driven run over operator ends and copies that are forwarded, in order of time: what a
 * link carries next is known when it becomes ready, so that each event costs its own inputs and
 * outputs only. Nothing is allocated per run: the workspace is made once, belongs to one thread,
 * and keeps the times of the last run. */
#ifndef HP_PLANNERS_COLDSTART_TIMING_H
#define HP_PLANNERS_COLDSTART_TIMING_H

#include "planners/coldstart/problem.h"

/* Why a plan cannot be carried out. */
enum timing_fault {
    TIMING_OK,
    TIMING_DEADLOCK,      /* node: an operator that never starts */
    TIMING_MEMORY,        /* device */
    TIMING_NO_PATH,       /* node, from device, to device */
    TIMING_NOT_COPIED,    /* node: a parameter, needed on device */
    TIMING_COPIED_TWICE,  /* node to device */
    TIMING_READ_MISSING,  /* node: an operator in host mode */
    TIMING_READ_TWICE,    /* node */
    TIMING_READ_RESIDENT, /* node: an operator that is not in host mode */
};

/* One tensor on its way between two devices. */
struct timing_transfer {
    int node, from, to;
    double start_s, end_s;
};

/* The state of one node during a run, kept small: a run touches all of them in no order that a
 * cache would guess. */
union timing_node {
    struct {
        double ready_s;    /* when the inputs known so far are all there */
        double read_end_s; /* of its read from host memory; negative: none */
        int missing;       /* inputs whose arrival is not known yet */
        int next;          /* on its device; -1: none */
        int8_t device;
        bool host;
    } op;
    struct {
        uint64_t copied_to, forwarded_to; /* devices */
        int first_copy;                   /* by which it first appears */
    } param;
};

struct timing {
    struct arena arena;
    const struct coldstart_problem *problem;
    enum timing_fault fault; /* of the last run, with what it is about: */
    int fault_node, fault_device, fault_from;
    double latency_s;
    double *start_s, *end_s; /* [node] of operators */
    double *copy_end_s;      /* [copy] */
    bool record;             /* set before a run to fill `transfers` */
    struct timing_transfer *transfers;
    int n_transfers;

    /* Workspace. */
    int copy_capacity, transfer_capacity;
    union timing_node *nodes, *fresh; /* [node]; as a run starts */
    int *next_on_bus;                 /* [copy] the next one that is forwarded */
    double *arrival_s;                /* [node * n_devices + device] of parameters */
    double *link_free_s;              /* [from * n_devices + to] */
    double *used_bytes;               /* [device] */
    double *bus_free_s;               /* [bus] */
    int *bus_head;                    /* [bus] next forwarded copy */
    int *head;                        /* [device] next operator */
    double *pending_s; /* [device] end of the operator that runs; infinity when none does */
    double *free_s;    /* [device] */
};

/* `copy_capacity`: the most copies that a plan will have. HP_ENOMEM. */
int timing_init(struct timing *t, const struct coldstart_problem *p, int copy_capacity,
                struct err *e);
void timing_fini(struct timing *t);

/* Times a plan: t->latency_s, or infinity and t->fault. Gives the latency. */
double timing_run(struct timing *t, const struct coldstart_plan *plan);
/* The fault of the last run as a sentence; HP_EINFEASIBLE. */
int timing_explain(const struct timing *t, struct err *e);

#endif
