/* Arrivals from a CSV file: one request a line, `seconds` or `seconds,model`, in order of time; a
 * first line that is no number is a header. Read line by line, so that a file of any length takes
 * no memory. */
#ifndef HP_HPCTL_ARRIVAL_TRACE_H
#define HP_HPCTL_ARRIVAL_TRACE_H

#include <stdbool.h>
#include <stdio.h>

#include "planners/dispatch/arrivals.h"
#include "planners/dispatch/topology.h"

struct arrival_trace {
    const char *file;
    FILE *stream;
    const struct dispatch_topology *t;
    int only_model; /* requests of others are left out; -1: none are */
    double stretch; /* times are multiplied by it */
    double end_s;   /* of the file's own time; what comes later is left out */
    long line;
    double last_s;
    /* Counted while checking: */
    long requests;
    double span_s;
};

/* Opens and checks the whole file: HP_ENOENT, HP_EIO; HP_EPARSE names the line: no number,
 * negative, earlier than the line before, an unknown model, or no model where there are several.
 * Then it stands at its start again. */
int arrival_trace_open(struct arrival_trace *a, const char *file, const struct dispatch_topology *t,
                       int only_model, double end_s, struct err *e);
void arrival_trace_close(struct arrival_trace *a);
/* An arrival_next_fn; ctx is the struct arrival_trace. */
int arrival_trace_next(void *ctx, struct arrival *out, struct err *e);

#endif
