/* Texts compared by their rows: POST /v1/rerank as Jina's, vLLM's and llama-server's clients ask
 * it, and vLLM's POST /v1/score. How near two texts are is the cosine of the angle between their
 * rows. Only embedding_body.c includes this. Any thread. */
#ifndef HP_COORDINATOR_GATEWAY_RANK_BODY_H
#define HP_COORDINATOR_GATEWAY_RANK_BODY_H

#include "coordinator/gateway/embedding_body.h"

/* Makes the texts that are compared the body's "input", those that are compared with others first,
 * and b->n_queries. HP_EINVAL, HP_ENOMEM: as embedding_body_parse. */
int rank_body_read(struct embedding_body *b);
/* Appends the answer, when all rows are there. */
void rank_body_write(const struct embedding_body *b, struct buffer *out);

#endif
