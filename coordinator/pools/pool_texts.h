/* Language models among what pools serve: their tokenizers, which the shell opens from the heads of
 * their files as it does for deployments. */
#ifndef HP_COORDINATOR_POOLS_POOL_TEXTS_H
#define HP_COORDINATOR_POOLS_POOL_TEXTS_H

#include "coordinator/pools/pool_requests.h"
#include "coordinator/pools/pool_state.h"

/* What was applied has its models opened, and kept open while any plan of it is there. What cannot
 * be opened is said when it is asked for. */
void pool_texts_open(struct coord *c, struct pool_spec *s);
/* As pool_requests.h has it. */
int pool_text_find(const struct coord *c, const char *client, const char *name,
                   struct pool_text *out, struct err *e);

#endif
