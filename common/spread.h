/* Work of several threads at once, of which the caller is one, where it is done seldom and takes
 * milliseconds: threads are made for it and end with it. */
#ifndef HP_COMMON_SPREAD_H
#define HP_COMMON_SPREAD_H

#include <stdint.h>

/* How many threads are worth it for so many parts: as many as the caller may use cores, and at most
 * `most`; at least 1. */
int spread_threads(int most, uint64_t parts);
/* work(ctx, i) for each i below n, each on a thread of its own, the caller's for the first, and
 * returns when all are done. Where a thread cannot be made the caller does its work as well. */
void spread_run(int n, void (*work)(void *ctx, int i), void *ctx);

#endif
