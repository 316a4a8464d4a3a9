/* Agents' clocks beside ours. A message takes at least no time: the least difference seen is the
 * best guess, and as good as the fastest message was quick. Agents of one box share a clock. On the
 * core's thread. */
#ifndef HP_COORDINATOR_CLOCKS_H
#define HP_COORDINATOR_CLOCKS_H

#include <stdint.h>

struct coord;
struct member;

/* The agent said so not before its clock was at `clock_ns`; 0: it did not tell. */
void clock_hear(struct coord *c, struct member *m, uint64_t clock_ns);
/* What is to be added to the agent's clock to have ours: the best guess of any agent of its box. */
double clock_offset_s(const struct coord *c, const struct member *m);
/* That moment of the agent's clock, by the same guess, as coord_now() counts: now at the latest,
 * and now where nothing is known. */
uint64_t clock_moment(const struct coord *c, const struct member *m, uint64_t clock_ns);

#endif
