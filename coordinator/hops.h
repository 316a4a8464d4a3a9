/* Whether the stages of a deployment hear each other over the data channel. Agents that reach the
 * coordinator need not reach one another (a firewall, a WLAN that isolates its clients): a
 * deployment serves when every stage has heard the one before it, and breaks when one falls silent.
 */
#ifndef HP_COORDINATOR_HOPS_H
#define HP_COORDINATOR_HOPS_H

#include "coordinator/deployment.h"
#include "coordinator/verdict.h"
#include "transport/message.h"

enum {
    HOPS_TRY_MS = 6000
}; /* a stage that has not heard the one before it by then, after both were connected, cannot */

/* The stages are connected: nothing was heard yet. */
void hops_begin(struct coord *c, struct deployment *d);
/* What an agent says of one hop; its heartbeats repeat what it hears (stage_reports.h). */
struct verdict hops_told(struct coord *c, struct member *m, const struct message_hop_state *h);
bool hops_all_heard(const struct deployment *d);
/* What was not heard by now does not come: those paths are broken. */
void hops_give_up(struct coord *c, const struct deployment *d);
/* Names the pairs that do not hear each other, and where they should: HP_ELINK. */
int hops_why(const struct deployment *d, struct err *e);

#endif
