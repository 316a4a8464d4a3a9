/* The face of cold-start planning: from one host and a model's graph to a plan of what to load
 * where, in which order, and what to read in place (DeepPlan, EuroSys 2023; SortingHat, ICS 2025),
 * and judging such a plan.
 *
 * Does no I/O. Time is read through the env that is handed in, and only where a time limit is
 * given. One call uses one thread and may run for as long as its limit. */
#ifndef HP_PLANNERS_COLDSTART_COLDSTART_H
#define HP_PLANNERS_COLDSTART_COLDSTART_H

#include <stdbool.h>
#include <stdint.h>

#include "common/env.h"
#include "common/json.h"
#include "common/opgraph.h"
#include "common/status.h"
#include "planners/timeline.h"

enum coldstart_method {
    COLDSTART_BEST,     /* everything below but milp, then a search; never worse than any of them */
    COLDSTART_SERIAL,   /* load all, then run */
    COLDSTART_PIPELINE, /* PipeSwitch: load in order, run what is loaded */
    COLDSTART_DHA,      /* DeepPlan's direct host access, Algorithm 1 */
    COLDSTART_PT,       /* DeepPlan's parallel transmission */
    COLDSTART_PT_DHA,   /* both */
    COLDSTART_MILP,     /* SortingHat's programme by sub-model, solved by lp_solve */
    COLDSTART_INTERLEAVED, /* each parameter over the bus that frees first */
    COLDSTART_LIST,        /* the list scheduler alone */
    COLDSTART_METHODS
};

/* "best", "serial", ... as on the command line. */
const char *coldstart_method_word(enum coldstart_method m);

/* Receives the text of each sub-model's programme, in order; false stops the planning with HP_EIO.
 */
typedef bool (*coldstart_program_fn)(void *ctx, int sub_model, const char *lp_text, size_t size);

struct coldstart_options {
    enum coldstart_method method;
    bool contention;      /* reads from host memory take their time on the bus */
    double time_limit_s;  /* of the search and of milp; 0: none */
    uint64_t evaluations; /* of the search: the same seed and number give the same plan; 0: none.
                             Without any limit: 10 s, or two million */
    uint64_t seed;
    int dominators; /* milp: operators on every path per sub-model; 0: one */
    int slots;      /* milp: subgraphs per device, an even number; 0: two */
    const struct env *env;
    void (*tell)(void *ctx, double progress,
                 double best_s); /* a few times a second while searching; may be NULL */
    void *tell_ctx;
    coldstart_program_fn program; /* milp; may be NULL */
    void *program_ctx;
};

/* The plan file is `plan` (kind "coldstart", without inputs). Release with coldstart_result_free.
 */
struct coldstart_result {
    json_t *plan;
    double latency_s, bound_s;
    char winner[32];          /* the candidate whose plan it is */
    struct timeline timeline; /* buses, devices, links that are used */
};

/* HP_EINFEASIBLE where no plan fits, HP_ENOMEM; HP_ELIMIT and HP_EIO only with milp. On failure
 * nothing is left to free. */
int coldstart_plan_make(const struct opgraph *g, const struct coldstart_options *options,
                        struct coldstart_result *out, struct err *e);
void coldstart_result_free(struct coldstart_result *r);

/* What judging a plan found. */
struct coldstart_verdict {
    double latency_s;   /* by the rules of the format */
    double predicted_s; /* what the plan says; negative: nothing */
    double bound_s;     /* what no plan beats */
    bool contention;
};

/* Judges a plan file of kind "coldstart", whoever made it. `contention` is as the plan says (on
 * where it does not) unless `force` holds. HP_EPARSE where it is not such a plan of this graph,
 * HP_EINFEASIBLE where it cannot be carried out. `timeline` may be NULL; free it with
 * timeline_free. */
int coldstart_plan_check(const struct json_at *plan, const struct opgraph *g, bool force,
                         bool contention, struct coldstart_verdict *out, struct timeline *timeline,
                         struct err *e);

#endif
