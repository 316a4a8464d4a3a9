/* How an agent becomes a member, or comes back: its key, its token, its node. */
#ifndef HP_COORDINATOR_JOINING_H
#define HP_COORDINATOR_JOINING_H

#include "coordinator/member.h"

enum { MEMBER_RIVAL_MS = 700 };

/* The member that has joined (again) and is new on this connection; NULL: it was refused, is to ask
 * again, or had only missed our answer. */
struct member *joining_join(struct coord *c, uint64_t peer, const char *key, uint64_t id,
                            const struct message_join *j);
/* Tells one member, or all that are here (NULL), whose connections their data endpoints may take.
 */
void joining_tell(struct coord *c, const struct member *only);

#endif
