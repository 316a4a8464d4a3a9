/* Why the plan is as it is: the other methods, and the device kinds that it leaves out, each with its figure. */
#ifndef HP_PLANNERS_PIPELINE_WHY_H
#define HP_PLANNERS_PIPELINE_WHY_H

#include "planners/pipeline/answer.h"

/* Adds the rows to a->document. HP_ENOMEM. */
int why_add(struct cost *c, const struct pipeline_request *rq, const struct layout *chosen, struct pipeline_answer *a, struct err *e);

#endif
