/* Requests that outlive a coordinator. Their stages go on without one, for `resume_ms` (config.h);
 * the next run finds what was asked for in the store (stream_records.h), hears of the stages'
 * agents how far each has come, and takes those over that all stages of the same generation still
 * have: nothing is computed twice. Of others the tokens that the last stage knows go into a
 * sequence that begins anew with them, as after the loss of an agent. */
#ifndef HP_COORDINATOR_STREAMS_H
#define HP_COORDINATOR_STREAMS_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"
#include "transport/message.h"

/* A record of kind "stream", after the deployments; a request that has no end waits from now on.
 * HP_EPARSE, HP_ENOMEM. */
int streams_restore(struct coord *c, const char *key, struct pack_span bytes, struct err *e);
/* What a stage says of streams of an earlier run. */
void streams_told(struct coord *c, struct member *m, const struct message_streams *t);
/* Whether all agents of its stages have told what they have of such. */
bool streams_all_told(const struct deployment *d);
/* The deployment serves: what not all of its stages have is computed. */
void streams_settle(struct coord *c, struct deployment *d);
void streams_free(struct coord *c);

/* As requests.h has them. */
void streams_each(struct coord *c, void (*each)(void *out, const struct request_before *s),
                  void *out);
uint64_t streams_attach(struct coord *c, uint64_t stream,
                        const struct request_callbacks *callbacks);

#endif
