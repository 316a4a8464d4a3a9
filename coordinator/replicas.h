/* Copies of what long sequences have so far, kept by another deployment of the model (replication.h
 * makes them): which one a sequence has, and what becomes of it. */
#ifndef HP_COORDINATOR_REPLICAS_H
#define HP_COORDINATOR_REPLICAS_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

/* So many of its tokens were copied to this keeper, as far as one knows. */
uint32_t replica_tokens(const struct sequence *s, const struct deployment *keeper);
/* `s` has a copy of its first `tokens` tokens: what `copy` becomes when it ends. */
void replica_set(struct sequence *s, const struct sequence *copy, uint32_t tokens);
/* The sequence has ended: whoever keeps its copy forgets it. */
void replica_drop(struct coord *c, struct sequence *s);
/* A lost sequence has gone on: from its copy, where it has had one fetched. */
void replicas_count(struct deployment *d, const struct sequence *s);

#endif
