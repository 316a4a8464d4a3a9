/* What came of a load (load_run.h), as percentiles and counts: JSON, tables and time lines. */
#ifndef HP_HPCTL_LOAD_REPORT_H
#define HP_HPCTL_LOAD_REPORT_H

#include <jansson.h>

#include "hpctl/load_run.h"

struct load_report {
    const struct load_options *options;
    const struct load_run *run;
    double ttft_s, tpot_s; /* targets: seconds to the first token, and per token after it, on the
                              mean of a request; INFINITY: none */
};

/* The whole report; NULL: no memory. Seconds to the first token and end to end count from when the
 * request arrived by the plan, not from when it was sent; queue, prefill and decode are what the
 * server says. */
json_t *load_report_json(const struct load_report *r);
/* The same for people, to standard output. */
int load_report_print(const struct load_report *r, struct err *e);
/* Each request that was sent on a lane of its own among those that were open beside it: waiting,
 * prefill, decode. As SVG and as a trace for Chrome and Perfetto; NULL: not asked for. HP_EIO,
 * HP_ENOMEM. */
int load_report_draw(const struct load_report *r, const char *svg, const char *trace,
                     struct err *e);

#endif
