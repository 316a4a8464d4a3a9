/* A prompt becomes a sequence that waits: what of it is refused at once, and why. */
#ifndef HP_COORDINATOR_SEQUENCE_CREATE_H
#define HP_COORDINATOR_SEQUENCE_CREATE_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

struct sequence_asked {
    const char *client;  /* REQUEST_CLIENT_BYTES at most */
    const uint32_t *ids; /* copied */
    size_t n;
    uint64_t max_tokens; /* 0: as many as the context has room for */
    int32_t priority;
    bool embeds;         /* no token is made of the prompt, but a row */
    uint32_t n_requests; /* that have to find room in the queue; 0: it has been found */
};
/* Makes a sequence at the end of the queue. The deployment owns it until sequence_close or
 * sequence_leave. HP_EBUSY: the deployment does not serve, or its queue is full; HP_EINVAL: the
 * prompt is empty, too long, of other tokens than the model's, or not what this model is for;
 * HP_ENOMEM. */
int sequence_create(struct coord *c, struct deployment *d, const struct sequence_asked *a,
                    struct sequence **out, struct err *e);
/* The same without a question: whoever asks for it knows all that. HP_ENOMEM. */
int sequence_make(struct coord *c, struct deployment *d, const struct sequence_asked *a,
                  struct sequence **out, struct err *e);
/* What its prompt and its longest answer take of keys and values, in tokens. */
uint64_t sequence_kv_tokens(const struct sequence *s);

#endif
