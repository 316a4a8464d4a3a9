#include "coordinator/truth_drift.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/core_int.h"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double truth_drift_add(struct truth_drift *d, const char *kind, double ratio)
{
    double sorted[TRUTH_DRIFT_PREFILLS];
    int i = 0;
    while (i < d->n_kinds && strcmp(d->kinds[i].kind, kind) != 0)
        i++;
    if (i == TRUTH_DRIFT_KINDS)
        return 0;
    if (i == d->n_kinds)
        core_text_set(d->kinds[d->n_kinds++].kind, sizeof d->kinds[i].kind, kind);
    double *ratios = d->kinds[i].ratios;
    if (d->kinds[i].n == TRUTH_DRIFT_PREFILLS)
        memmove(ratios, ratios + 1, (TRUTH_DRIFT_PREFILLS - 1) * sizeof *ratios);
    else
        d->kinds[i].n++;
    ratios[d->kinds[i].n - 1] = ratio;
    if (d->kinds[i].n < TRUTH_DRIFT_PREFILLS)
        return 0;
    memcpy(sorted, ratios, sizeof sorted);
    qsort(sorted, TRUTH_DRIFT_PREFILLS, sizeof *sorted, by_size);
    if (sorted[0] <= TRUTH_DRIFT && sorted[TRUTH_DRIFT_PREFILLS - 1] >= 1 / TRUTH_DRIFT)
        return 0;
    double factor = sorted[TRUTH_DRIFT_PREFILLS / 2];
    d->kinds[i].n = 0;
    return factor < 0.1 ? 0.1 : factor > 10 ? 10 : factor;
}

void truth_drift_scale(json_t *tables, double factor)
{
    const char *name;
    json_t *table, *row, *cell;
    size_t i, k;
    json_object_foreach(tables, name, table)
        json_array_foreach(json_object_get(table, "seconds"), i, row)
            json_array_foreach(row, k, cell) if (json_is_number(cell))
                json_array_set_new(row, k, json_real(json_number_value(cell) * factor));
    double before = json_number_value(json_object_get(tables, "corrected"));
    json_object_set_new(tables, "corrected", json_real((before > 0 ? before : 1) * factor));
}
