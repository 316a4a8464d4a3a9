/* Orders to the agents of a plan of pools (share by share), what they say of them, and what hpctl
 * is asked to upload. */
#ifndef HP_COORDINATOR_POOLS_POOL_ORDERS_H
#define HP_COORDINATOR_POOLS_POOL_ORDERS_H

#include "coordinator/pools/pool_state.h"

enum { POOL_UPLOAD_AGAIN_MS = 15000 };

/* Numbers a plan, and makes the token of its chunks. */
void pool_orders_number(struct coord *c, struct pool_plan *p);
/* The same, and tokens of its agents; HP_ENOMEM, HP_ELIMIT (agents), HP_ELINK (an agent has gone).
 */
int pool_orders_begin(struct coord *c, struct pool_plan *p, struct err *e);
/* Tells every share that has not heard; again after a while where its agent does not list it. */
void pool_orders_prepare(struct coord *c, struct pool_plan *p);
/* Where results go, to all agents of the plan (NULL), or to one that has not heard it. */
void pool_orders_connect(struct coord *c, struct pool_plan *p, const struct member *only);
void pool_orders_unload(struct coord *c, struct pool_plan *p);
/* A share's agent says how far it is; *why is set where it failed (HP_...), 0 otherwise. */
int pool_orders_state(struct coord *c, struct pool_plan *p, const struct member *m,
                      const struct message_stage_state *s, struct err *why);
/* All are ready. */
bool pool_orders_ready(const struct pool_plan *p);
/* Asks hpctl for what nobody else has. False: chunks are wanted and nobody listens. */
bool pool_orders_upload(struct coord *c, struct pool_plan *p, uint64_t peer, uint64_t ask);
/* Tokens of uploads end. */
void pool_orders_upload_end(struct coord *c, struct pool_plan *p);

#endif
