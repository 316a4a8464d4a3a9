/* Who gets how many devices: the exact dynamic programme over whole devices.
 *
 * For every model the best single pipeline is tabled over the grid of devices by kind; a max-plus
 * closure of that table gives the most that any set of pipelines serves with a given number of
 * devices; a max-min over the models shares the cluster out. Exact for the structures that it is
 * given, as long as every stage has whole devices. Time and memory grow with the grid, the product
 * of (devices of a kind + 1). */
#ifndef HP_PLANNERS_POOLS_ALLOCATE_H
#define HP_PLANNERS_POOLS_ALLOCATE_H

#include "planners/pools/problem.h"
#include "planners/pools/structures.h"

/* A pipeline of a plan: a structure with its devices. */
struct pools_use {
    struct pools_structure s;
    int count[POOLS_MAX_STAGES];   /* shares of each stage */
    int devices[POOLS_MAX_STAGES]; /* whole devices that these take, were they not shared with
                                      another pipeline */
    double rate;                   /* the least count * X */
};

struct pools_model_plan {
    struct pools_use *uses;
    int n_uses, room;
    double rate; /* sum over uses */
};

struct pools_allocation {
    struct pools_model_plan *models;
    int n_models;
    double objective; /* least rate / weight */
};

/* Without pipelines. HP_ENOMEM. */
int pools_allocation_init(struct pools_allocation *a, int n_models, struct err *e);
void pools_allocation_free(struct pools_allocation *a);
/* A copy; `to` is uninitialised before. HP_ENOMEM. */
int pools_allocation_copy(const struct pools_allocation *from, struct pools_allocation *to,
                          struct err *e);
/* Adds a pipeline of `devices` whole devices per stage, or more devices to the equal one that is
 * there. */
int pools_allocation_add(const struct pools_problem *p, struct pools_allocation *a, int model,
                         const struct pools_structure *s, const int *devices, struct err *e);
/* Adds shares instead of whole devices. */
int pools_allocation_add_shares(const struct pools_problem *p, struct pools_allocation *a,
                                int model, const struct pools_structure *s, const int *count,
                                struct err *e);
/* Brings rates and objective up to date after counts changed. */
void pools_allocation_refresh(const struct pools_problem *p, struct pools_allocation *a);
/* Whole devices of each kind in use; fractions are rounded up per pipeline stage, or, when the
 * problem shares devices, per model and stage position. */
void pools_allocation_devices(const struct pools_problem *p, const struct pools_allocation *a,
                              int *by_kind);

/* Structures of a model whose pairs may share devices. */
enum { POOLS_MAX_CHOSEN = 48 };
struct pools_chosen {
    int structures[POOLS_MAX_CHOSEN];
    int n;
};

/* Cells of the grid over `available`; 0 when that would be too many. */
int pools_grid_cells(const struct pools_problem *p, const int *available);

/* Adds the best pipelines over `available` devices by kind to those of `a`, which already give each
 * model a.models[m].rate. `rule` says how structures may be counted (POOLS_CHAINS and POOLS_WHOLE
 * one device a stage at a time). `pairs` (by model, or NULL) names structures that may share
 * devices in twos; it has no effect where pipelines per assignment are limited. Nothing may be left
 * without a pipeline for a model without an error: the objective is then 0. HP_ENOMEM. */
int pools_allocate(const struct pools_problem *p, const struct pools_structures *by_model,
                   enum pools_rule rule, const struct pools_chosen *pairs, const int *available,
                   struct pools_allocation *a, struct err *e);

/* Spends the devices that are left over, each on the stage of its kind with the least compute
 * headroom. */
void pools_spend_rest(const struct pools_problem *p, struct pools_allocation *a);

#endif
