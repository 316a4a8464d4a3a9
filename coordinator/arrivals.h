/* Weights that come while stages serve (hp-agent --serve-while-loading): what each stage misses, as
 * its agent says, when all will be there at the rate so far, and who has to know. As long as some
 * come no sequence of the deployment is overdue, and its agents hear it with the answers to their
 * heartbeats, since a stage cannot see what a later one waits for. */
#ifndef HP_COORDINATOR_ARRIVALS_H
#define HP_COORDINATOR_ARRIVALS_H

#include <stddef.h>
#include <stdint.h>

struct coord;
struct deployment;
struct deployment_stage;
struct member;
struct message_loading;

/* A stage misses so many bytes of its weights, as its agent says: at most what its device holds is
 * believed, and only fewer than before are a sign that some came. */
void arrivals_hear(struct coord *c, struct deployment *d, struct deployment_stage *s,
                   uint64_t missing_bytes);
/* Of all stages. */
uint64_t arrivals_missing_bytes(const struct deployment *d);
/* Until all are there; 0 where nothing is missing, or nothing has come yet that would tell a rate.
 */
double arrivals_left_s(const struct deployment *d);
/* Deployments that miss something and have a stage on this agent, at most `room`; returns how many.
 */
size_t arrivals_of_member(const struct coord *c, const struct member *m,
                          struct message_loading *rows, size_t room);

#endif
