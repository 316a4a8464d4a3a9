#include "common/doubles.h"

#include <stdlib.h>

static int doubles_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void doubles_sort(double *x, size_t n)
{
    if (n)
        qsort(x, n, sizeof *x, doubles_compare);
}

double doubles_median(const double *sorted, size_t n)
{
    double low = sorted[(n - 1) / 2], high = sorted[n / 2];
    return low + (high - low) / 2;
}
