/* When a profile no longer says what a device takes: ratios of measured to predicted compute, kind
 * by kind, and device by device. */
#ifndef HP_COORDINATOR_PLAN_DRIFT_H
#define HP_COORDINATOR_PLAN_DRIFT_H

#include "coordinator/state.h"

enum {
    PLAN_DRIFT_KINDS = 64,
    PLAN_DRIFT_PREFILLS = 5, /* in a row, on one kind of device, before its profile is corrected */
    PLAN_DRIFT_TOKENS = 64,  /* shorter prompts are all overhead and correct nothing */
};
/* Measured over predicted compute beyond this, or below 1 / this, is drift. */
#define PLAN_DRIFT 1.1

struct plan_drift {
    struct {
        char kind[DEVICE_KIND];
        double ratios[PLAN_DRIFT_PREFILLS]; /* the latest last */
        int n;
    } kinds[PLAN_DRIFT_KINDS];
    int n_kinds;
};

/* One prefill's ratio on a kind. The factor by which its times are to be multiplied, after which it
 * starts anew; 0 while there is no need: the last PLAN_DRIFT_PREFILLS must all be off to the same
 * side, and their median is the factor (0.1 to 10). */
double plan_drift_add(struct plan_drift *d, const char *kind, double ratio);

#endif
