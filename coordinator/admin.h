/* What hpctl asks: one row of a table a verb. */
#ifndef HP_COORDINATOR_ADMIN_H
#define HP_COORDINATOR_ADMIN_H

#include "coordinator/state.h"
#include "transport/message.h"

struct member;

/* A question from the admin's key; answered now, or when the agents it needs have spoken. */
void admin_ask(struct coord *c, uint64_t peer, uint64_t id, const struct message_ask *ask);
/* The answers of agents to what a verb asked them. */
void admin_log_text(struct coord *c, struct member *m, uint64_t id,
                    const struct message_log_text *l);
void admin_store_state(struct coord *c, struct member *m, uint64_t id,
                       const struct message_store_state *s);
/* Answers what waited too long for an agent. */
void admin_tick(struct coord *c);

#endif
