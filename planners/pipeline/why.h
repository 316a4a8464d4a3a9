/* Why the plan is as it is: the other methods, and the device kinds that it leaves out, each with
 * its figure. */
#ifndef HP_PLANNERS_PIPELINE_WHY_H
#define HP_PLANNERS_PIPELINE_WHY_H

#include "planners/pipeline/pipeline_answer.h"

/* The best plan found that uses all devices of a kind of which the chosen plan leaves some out. */
struct why_kind {
    int kind, unused;
    double with; /* of the objective; NAN: no plan uses them all */
};

struct why_kinds {
    struct why_kind *rows;
    int n;
};

/* Looks for plans with the kinds that `chosen` leaves out. One that turns out to be better takes
 * its place (the random search was unlucky), and *value with it. HP_ENOMEM. */
int why_weigh_kinds(struct pipeline_cost *c, const struct pipeline_request *rq,
                    struct layout *chosen, double *value, struct why_kinds *out, struct err *e);

/* Adds the rows to a->document. HP_ENOMEM. */
int why_add(struct pipeline_cost *c, const struct pipeline_request *rq, const struct layout *chosen,
            const struct why_kinds *kinds, struct pipeline_answer *a, struct err *e);

#endif
