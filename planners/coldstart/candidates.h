/* A plan in the making: the candidates that were weighed, and how the published methods and the
 * list schedule become candidates. */
#ifndef HP_PLANNERS_COLDSTART_CANDIDATES_H
#define HP_PLANNERS_COLDSTART_CANDIDATES_H

#include "planners/coldstart/bounds.h"
#include "planners/coldstart/coldstart.h"
#include "planners/coldstart/search.h"

enum { MAX_CANDIDATES = 24, MAX_PRIMARIES = 8 };

/* One plan that was weighed. */
struct coldstart_candidate {
    char name[32];
    double latency_s;
    char reason[200]; /* why it cannot be carried out; else where its time goes */
};

struct coldstart_making {
    const struct coldstart_options *options;
    struct coldstart_problem problem;
    struct search_budget budget;
    struct coldstart_search search;
    struct arena arena;
    struct coldstart_plan plan; /* the candidate at hand */
    struct coldstart_plan start;
    struct coldstart_candidate candidates[MAX_CANDIDATES];
    int n_candidates;
    struct coldstart_bounds bounds;
    double bound_s;
    char winner[32];
};

/* Weighs m->plan under a name; of several plans of one name (one for each primary device) the best
 * counts. */
void candidate_weigh(struct coldstart_making *m, const char *name);
/* Builds and weighs one method with one device as the primary. HP_ENOMEM. */
int candidate_weigh_method(struct coldstart_making *m, enum coldstart_method method, int primary);
/* All of them. HP_ENOMEM. */
int candidates_weigh_all(struct coldstart_making *m);
/* The devices that are worth being the primary one, of those that cannot be told apart one; gives
 * their number. */
int candidates_list_primaries(const struct coldstart_problem *p, int *primaries);

#endif
