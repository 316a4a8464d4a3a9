/* Lists of measurements. */
#ifndef HP_COMMON_DOUBLES_H
#define HP_COMMON_DOUBLES_H

#include <stddef.h>

/* Ascending, in place. None of x[n] is NaN. */
void doubles_sort(double *x, size_t n);
/* Of a list that is sorted, n above 0: the one in the middle, or the mean of the two there. */
double doubles_median(const double *sorted, size_t n);

#endif
