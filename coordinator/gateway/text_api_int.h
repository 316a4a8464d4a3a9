/* A request about texts, tokens or templates, and the two steps of it that may run on a worker. */
#ifndef HP_COORDINATOR_GATEWAY_TEXT_API_INT_H
#define HP_COORDINATOR_GATEWAY_TEXT_API_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/gateway/lanes.h"
#include "coordinator/gateway/openai_body.h"
#include "coordinator/gateway/text_api.h"

struct text_call {
    struct openai *openai;
    struct http_exchange *x; /* NULL: an orphan */
    struct piece piece;
    bool working;
    enum text_task task;
    char client[REQUEST_CLIENT_BYTES];
    struct buffer raw, reply;
    struct openai_body *body;
    bool with_pieces;  /* each token's text, too, in the token's place (llama-server) */
    bool with_strings; /* the same in a list of their own (vLLM) */
    bool empty;        /* the text is: it has no tokens */
    bool embeds;       /* the model makes rows */
    uint32_t *ids;     /* [n_ids]: of TEXT_DETOKENIZE */
    size_t n_ids;
    struct model *model; /* shared */
    uint64_t context;
    uint32_t vocabulary;
    int rc;
    const char *param, *code;
    struct err failure;
};

static inline bool text_speaks_ollama(const struct text_call *c)
{
    return c->task == TEXT_SHOW || c->task == TEXT_PULL;
}

/* Makes `body` and what the task wants of it from `raw`. HP_EINVAL names the field in c->param;
 * HP_ENOMEM. */
int text_body_read(struct text_call *c, struct err *e);
/* Makes the reply from what was read and the model; where it fails, c->failure says why, with
 * c->param and c->code. */
int text_work_do(struct text_call *c);

#endif
