/* Mixtures of experts: how many of them a slice of tokens wakes. */
#ifndef HP_COMMON_EXPERTS_H
#define HP_COMMON_EXPERTS_H

#include <math.h>

/* Experts, of `n`, that `tokens` wake together when each takes `used` of them as if by lot: the
 * first token wakes `used`, later ones fewer and fewer that are not awake yet. `n` at least 1. */
static inline double experts_awake(double n, double used, double tokens)
{
    return n * (1 - pow(1 - used / n, tokens));
}

#endif
