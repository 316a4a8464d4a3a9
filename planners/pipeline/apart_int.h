/* What apart.c, which searches, and apart_figures.c, which weighs one way, share. */
#ifndef HP_PLANNERS_PIPELINE_APART_INT_H
#define HP_PLANNERS_PIPELINE_APART_INT_H

#include "planners/pipeline/apart.h"

/* The search at hand. */
struct apart_search {
    const struct apart_request *rq;
    struct arena *arena;
    int answer_tokens, sequences;
    int devices[APART_MOST_DEVICES], n; /* of the cluster, that may read */
    double read_s[APART_MOST_DEVICES];  /* a prompt alone on each */
    double step_s[APART_MOST_DEVICES];
    struct apart_answer best;
};

/* What one stage of a plan takes. */
struct stage_load {
    double compute_s, slice_s, wire_s; /* of a prompt; slice_s: the longest of its slices */
    double step_s, step_wire_s;        /* of a step of all sequences */
};
struct plan_load {
    struct stage_load *stages; /* [n] */
    int n;
    double ttft_s, step_s; /* from end to end */
};

/* What a plan's stages and hops take of the request's prompt, and of a step of all sequences behind
 * it; in the arena. HP_ENOMEM and predict_schedule's errors. */
int apart_loads_make(const struct apart_search *x, const struct plan_pipeline *plan,
                     struct plan_load *out, struct err *e);
/* The figures of one plan that reads and answers. */
struct apart_figures apart_figures_together(const struct apart_search *x,
                                            const struct plan_load *l);
/* The figures of a plan that reads (`from`) and one that answers (`to`), with what hands keys and
 * values over between them; INFINITY as a time, and 0 requests a second, where they have no path.
 */
int apart_figures_apart(const struct apart_search *x, const struct plan_pipeline *from,
                        const struct plan_pipeline *to, struct apart_figures *out, struct err *e);

#endif
