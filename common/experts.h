/* Mixtures of experts: how many of them a slice of tokens wakes, and in how many groups they are
 * where a block's fit nowhere together. */
#ifndef HP_COMMON_EXPERTS_H
#define HP_COMMON_EXPERTS_H

#include <math.h>

/* Experts, of `n`, that `tokens` wake together when each takes `used` of them as if by lot: the
 * first token wakes `used`, later ones fewer and fewer that are not awake yet. `n` at least 1. */
static inline double experts_awake(double n, double used, double tokens)
{
    return n * (1 - pow(1 - used / n, tokens));
}

enum { EXPERT_GROUPS_MAX = 16 };

/* How many groups are tried after `groups` of `experts`: twice as many, at most one an expert; 1:
 * as many as there may be do not help. */
static inline unsigned expert_groups_more(unsigned groups, unsigned experts)
{
    unsigned most = experts < EXPERT_GROUPS_MAX ? experts : EXPERT_GROUPS_MAX,
             next = 2 * groups < most ? 2 * groups : most;
    return next > groups ? next : 1;
}

#endif
