#include "coordinator/plan_drift.h"

#include <stdlib.h>
#include <string.h>

#include "common/doubles.h"
#include "common/utf8.h"

double plan_drift_add(struct plan_drift *d, const char *kind, double ratio)
{
    double sorted[PLAN_DRIFT_PREFILLS];
    int i = 0;
    while (i < d->n_kinds && strcmp(d->kinds[i].kind, kind) != 0)
        i++;
    if (i == PLAN_DRIFT_KINDS)
        return 0;
    if (i == d->n_kinds)
        utf8_copy(d->kinds[d->n_kinds++].kind, sizeof d->kinds[i].kind, kind);
    double *ratios = d->kinds[i].ratios;
    if (d->kinds[i].n == PLAN_DRIFT_PREFILLS)
        memmove(ratios, ratios + 1, (PLAN_DRIFT_PREFILLS - 1) * sizeof *ratios);
    else
        d->kinds[i].n++;
    ratios[d->kinds[i].n - 1] = ratio;
    if (d->kinds[i].n < PLAN_DRIFT_PREFILLS)
        return 0;
    memcpy(sorted, ratios, sizeof sorted);
    doubles_sort(sorted, PLAN_DRIFT_PREFILLS);
    if (sorted[0] <= PLAN_DRIFT && sorted[PLAN_DRIFT_PREFILLS - 1] >= 1 / PLAN_DRIFT)
        return 0;
    double factor = doubles_median(sorted, PLAN_DRIFT_PREFILLS);
    d->kinds[i].n = 0;
    return factor < 0.1 ? 0.1 : factor > 10 ? 10 : factor;
}
