/* When a profile no longer says what a device takes: ratios of measured to predicted compute, kind
 * by kind. */
#ifndef HP_COORDINATOR_TRUTH_DRIFT_H
#define HP_COORDINATOR_TRUTH_DRIFT_H

#include "coordinator/truth.h"

enum { TRUTH_DRIFT_KINDS = 16 };

struct truth_drift {
    struct {
        char kind[64];
        double ratios[TRUTH_DRIFT_PREFILLS]; /* the latest last */
        int n;
    } kinds[TRUTH_DRIFT_KINDS];
    int n_kinds;
};

/* One prefill's ratio on a kind. The factor by which its times are to be multiplied, after which it
 * starts anew; 0 while there is no need: the last TRUTH_DRIFT_PREFILLS must all be off to the same
 * side, and their median is the factor (0.1 to 10). */
double truth_drift_add(struct truth_drift *d, const char *kind, double ratio);
/* Multiplies the seconds of every table, and counts it: "corrected" is the product of all factors
 * so far. */
void truth_drift_scale(json_t *tables, double factor);

#endif
