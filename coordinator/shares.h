/* Fair shares of the queue of a deployment: whose turn it is, and when there is room again. Pure
 * functions over its lists (sequences.h). */
#ifndef HP_COORDINATOR_SHARES_H
#define HP_COORDINATOR_SHARES_H

#include <stdint.h>

struct deployment;
struct sequence;

enum {
    SHARES_PATIENCE_MS = 10000, /* who has waited longer goes before everybody */
    SHARES_WAIT_MOST_S = 60,    /* who would have to wait longer is refused at once */
    SHARES_RETRY_MAX_S = 600,
};

/* The one to admit next: of those with the lowest priority one that ran before, then of those whose
 * client has the fewest running, the one that came first, so that a client of many requests does
 * not make all others wait for them; but nobody is overtaken for longer than SHARES_PATIENCE_MS by
 * one of the same priority. Those that wait for another's prompt (awaits) are left out meanwhile.
 * NULL: nobody waits. */
struct sequence *shares_next(const struct deployment *d, uint64_t now_ns);
/* How many of this client's requests wait. */
uint32_t shares_waiting_of(const struct deployment *d, const char *client);
/* A sequence that ran for so long has ended. */
void shares_note(struct deployment *d, uint64_t ran_ns);
/* Seconds that one more of this client's would wait, as fast as sequences have been let in lately
 * and with clients taking turns by their weights, behind none of a higher priority; 0: nobody knows
 * yet. */
double shares_wait_s(const struct deployment *d, const char *client, int32_t priority);
/* Seconds, at least 1, until one that is refused now is likely to be let into the queue: until the
 * turns of all clients have come once, and the queue is no longer than may be waited for. */
uint32_t shares_retry_after_s(const struct deployment *d);

#endif
