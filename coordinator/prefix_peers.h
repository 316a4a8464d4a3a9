/* Prompts of whose beginning another deployment of the same model has more than the stages that are
 * to answer: a replica, the deployment whose place this one takes, the plan that reads prompts for
 * it, or any other. Its keys and values can be fetched over the frames of a handoff (handoffs.h),
 * or computed here: whichever takes less time, by t(L, x) of both and the links between their
 * agents, as these were measured. */
#ifndef HP_COORDINATOR_PREFIX_PEERS_H
#define HP_COORDINATOR_PREFIX_PEERS_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

enum { PREFIX_PEER_LEAST_TOKENS = 64 }; /* fewer more than there are here are not looked for */

struct prefix_offer {
    struct deployment *from; /* NULL: what there is here is kept, and the rest computed */
    uint32_t length;         /* so many tokens of the prompt */
};

/* Both deployments keep, compute and send the same numbers of the same model. */
bool prefix_peer_alike(const struct deployment *a, const struct deployment *b);

/* Of the prompt's tokens `have` are on its own stages. Only deployments that compute, keep and send
 * numbers as this one does are asked, so that tokens are those of an undisturbed run; whose prompts
 * a client may find there is that deployment's rule (prefixes.h). Counts what is not
 * worth fetching. */
struct prefix_offer prefix_peer_find(struct coord *c, struct deployment *d, struct sequence *s,
                                     uint32_t have);

#endif
