/* Search around a plan, judged by the simulator: simulated annealing over devices, order, host
 * memory and buses, with the same decision for equal nodes of all layers beside decisions for
 * single nodes. */
#ifndef HP_PLANNERS_COLDSTART_SEARCH_H
#define HP_PLANNERS_COLDSTART_SEARCH_H

#include "common/env.h"
#include "planners/coldstart/dominators.h"
#include "planners/coldstart/moves.h"
#include "planners/coldstart/timing.h"

/* What a search may spend: evaluations, time, or whichever ends first. Progress runs from 0 to 1.
 */
struct search_budget {
    const struct env *env; /* NULL only where seconds is 0 */
    double seconds;        /* 0: no limit on time */
    uint64_t evaluations;  /* 0: no limit on evaluations */
    uint64_t started_ns, used;
    double progress; /* as of the last look */
    void (*tell)(void *ctx, double progress,
                 double best_s); /* a few times a second at most; may be NULL */
    void *tell_ctx;
    uint64_t told_ns;
};

/* From now on its time counts. */
void search_budget_start(struct search_budget *b);
/* The share that is used up; looks at the clock. */
double search_budget_look(struct search_budget *b);

struct coldstart_search {
    const struct coldstart_problem *p;
    struct arena arena;
    struct timing timing;
    struct moves moves;
    struct node_classes classes;
    struct search_budget *budget;
    uint64_t random;
    double bound_s; /* a search ends when it reaches this */
    struct coldstart_plan current, candidate, best;
    struct coldstart_plan
        round; /* the best since search_coarse, search_fine or search_rolling was last called */
    double current_s, best_s, round_s;
    enum moves_rule rule; /* how copies are laid in the coarse phase */
    double window_from,
        window_to;             /* shares of the order and of the copies in which moves take place */
    int *segments, n_segments; /* places in the topological order where the graph narrows */
    int *picked; /* nodes of one move; twice n_nodes, since one may exchange two sets */
    bool *class_picked;
};

/* HP_ENOMEM. `budget` is borrowed. */
int search_init(struct coldstart_search *s, const struct coldstart_problem *p,
                struct search_budget *budget, uint64_t seed, struct err *e);
void search_fini(struct coldstart_search *s);

/* Times a plan and keeps it if it is the best so far; gives its latency. */
double search_offer(struct coldstart_search *s, const struct coldstart_plan *plan);

/* Anneals from `start` (may be s->best or s->round) until the budget's progress reaches `until`.
 * Coarse: operators' devices, modes and order change, and all copies are laid out anew by a rule.
 * Fine: copies change one by one too. `heat` scales the first temperature. */
void search_coarse(struct coldstart_search *s, const struct coldstart_plan *start, double until,
                   double heat);
void search_fine(struct coldstart_search *s, const struct coldstart_plan *start, double until,
                 double heat);
/* Fine search from s->round in a window that rolls from the first sub-model between dominators to
 * the last; the rest of the plan stays as it is but is timed along. */
void search_rolling(struct coldstart_search *s, double until, double heat);

#endif
