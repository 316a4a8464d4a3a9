/* What came of a load of models of fixed shape (infer_run.h): attainment, goodput, causes,
 * percentiles, what was planned beside what was measured; and pictures of it. */
#ifndef HP_HPCTL_INFER_REPORT_H
#define HP_HPCTL_INFER_REPORT_H

#include <jansson.h>

#include "hpctl/infer_run.h"

struct infer_report {
    const struct infer_options *options;
    const struct infer_run *run;
    const char *name; /* of the one model; NULL: all of the workload */
};

/* The whole report; NULL: no memory. A request is good that is answered within its deadline,
 * counted from when it arrived by the plan, not from when it was sent. */
json_t *infer_report_json(const struct infer_report *r);
/* The same for people, to standard output. */
int infer_report_print(const struct infer_report *r, struct err *e);

#endif
