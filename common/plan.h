/* What to do (file format hp-plan/1): the envelope that every planner writes around its own part,
 * and the three parts. The runtime executes a plan without knowing which planner wrote it. */
#ifndef HP_COMMON_PLAN_H
#define HP_COMMON_PLAN_H

#include <stddef.h>

#include "common/arena.h"
#include "common/json.h"
#include "common/status.h"

/* ---- writing ---- */

/* A new plan object {"format", "kind", "inputs": [], "solver": {"method", "seconds"}, "why": []}.
 * The caller adds its own part with jansson and releases it with json_decref. NULL when memory runs
 * out. */
json_t *plan_envelope(const char *kind, const char *method, double solver_seconds);
/* Records an input file with its SHA-256. */
int plan_add_input(json_t *plan, const char *file, struct err *e);
/* Records what the method proved: adds `bound` and `gap` = (value - bound) / bound to the solver's
 * object (for a maximum, give `gap` yourself through `gap`; pass NaN to have it computed for a
 * minimum). */
void plan_set_bound(json_t *plan, double bound, double value, double gap);
/* One candidate that was weighed: {"candidate", "predicted", "reason"}. */
void plan_add_why(json_t *plan, const char *candidate, double predicted, const char *reason);

/* ---- the pipeline part ---- */

struct plan_stage {
    const char *device;   /* "node/device" */
    const char **devices; /* tensor parallel: all of them; else NULL */
    int n_devices;
    int first_layer, end_layer; /* [first, end) */
    double compute_s, memory_bytes;
};

struct plan_pipeline {
    struct plan_stage *stages;
    int n_stages;
    int *slices; /* tokens of each; NULL when the plan leaves them to the request */
    int n_slices;
    double micro_batches;   /* 0: none */
    double makespan_s;      /* 0: not predicted */
    unsigned expert_groups; /* layers are parts, with each mixture's experts in so many groups
                               (common/profile_parts.h); 0: none is divided */
};

/* Reads the kind of a plan ("pipeline", "pools", "coldstart") after checking its format. */
int plan_kind(const struct json_at *at, const char **kind, struct err *e);
/* HP_EPARSE: it is a plan of another kind, or none. */
int plan_kind_expect(const struct json_at *at, const char *expected, struct err *e);
/* The `layers` of a stage: a half-open range that begins where the stage before it ends. */
int plan_layers_from_json(const struct json_at *at, int expected_first, int *first, int *end,
                          struct err *e);
/* Reads the pipeline part into the arena; stages must follow each other without gap or overlap from
 * layer 0. */
int plan_pipeline_from_json(const struct json_at *at, struct arena *arena,
                            struct plan_pipeline *out, struct err *e);
/* Adds `stages`, `slices` and `predicted` to a plan object. */
int plan_pipeline_to_json(const struct plan_pipeline *p, json_t *plan);

#endif
