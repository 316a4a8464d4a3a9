/* The OpenAI dialect: bodies to requests, tokens to replies and streams, errors in its shape. All
 * on the loop's thread; what takes long is done on others. */
#ifndef HP_COORDINATOR_GATEWAY_OPENAI_H
#define HP_COORDINATOR_GATEWAY_OPENAI_H

#include <stdbool.h>
#include <uv.h>

#include "coordinator/gateway/embedding_body.h"
#include "coordinator/gateway/http.h"
#include "coordinator/gateway/lanes.h"
#include "coordinator/gateway/latency.h"
#include "coordinator/pools/pool_requests.h"
#include "coordinator/requests.h"

struct completion;
struct dialect; /* dialect.h */
struct embedding;
struct kept_streams;

/* What the completions of a gateway share. */
struct openai {
    const struct requests *requests;
    const struct pool_requests *pools; /* NULL: there are none */
    struct lanes *lanes;
    uv_loop_t *loop;
    struct completion *open;      /* those that have not been answered */
    struct embedding *embeddings; /* the same */
    struct kept_streams *kept;    /* answers that may be read once more */
    struct latency latency;       /* of what was completed */
    size_t scores_bytes;          /* of logprobs that all open completions hold */
};

/* POST /v1/chat/completions (`chat`) and /v1/completions, and their likes in other dialects, which
 * say by themselves whether they are chats: takes the exchange's body. `client` (copied) is who
 * asks, for fair shares. */
void openai_complete(struct openai *o, struct http_exchange *x, const struct dialect *d, bool chat,
                     const char *client);
/* GET /v1/streams/ID: an answer whose request had an Idempotency-Key, from behind Last-Event-ID. */
void openai_resume(struct openai *o, struct http_exchange *x, const char *id, const char *client);
/* POST /v1/embeddings, and Ollama's: takes the exchange's body. */
void openai_embed(struct openai *o, struct http_exchange *x, enum embedding_form form,
                  const char *client);
/* Ends every embedding that is open with this error. */
void openai_embeddings_fail(struct openai *o, const struct err *why);
/* Ends every open completion with this error: streams with an event and [DONE], the others with a
 * reply. */
void openai_fail_all(struct openai *o, const struct err *why);

/* Every OPENAI_PULSE_MS: streams that have begun and told nothing since the last time tell a
 * comment (a line that begins with ":"), so that clients and what lies between do not give up on
 * them while their sequences wait for another place. */
enum { OPENAI_PULSE_MS = 1000 };
void openai_pulse(struct openai *o);

/* {"error": {"message", "type", "param", "code"}} with an HTTP status, or what the clients of
 * Ollama's and Anthropic's paths read; `param` and `code` may be NULL. Any bytes may stand in the
 * texts. */
void openai_error(struct http_exchange *x, int http_status, const char *message, const char *param,
                  const char *code);
/* ... with what it says of when to come again (429, 503). */
void openai_error_after(struct http_exchange *x, int http_status, uint32_t retry_after_s,
                        const char *message, const char *param, const char *code);
/* The same in another dialect's words, where it is known when a refusal that passes (429, 503) has
 * passed. openai_error says 1 s. */
void openai_error_as(const struct dialect *d, struct http_exchange *x, int http_status,
                     uint32_t retry_after_s, const char *message, const char *param,
                     const char *code);
/* A JSON document, which is freed; 503 where there was no memory for it. */
void openai_reply_json(struct http_exchange *x, int http_status, struct buffer *document);
/* When this client may come again to a model, as it is now; `otherwise` where there is none of that
 * name (NULL: none was said). */
uint32_t openai_retry_after_s(const struct requests *r, const char *client, const char *model,
                              uint32_t otherwise);
/* HP_ESTALE: why the model of a request does not serve. */
int openai_not_serving(const struct request_model *m, struct err *e);
/* The error code of a model that was not found or is not for this client; NULL: neither is so. */
const char *openai_model_code(int rc);
/* The HTTP status of a failure: 4xx for what the client can mend, 503 for what passes, 500 for our
 * own bugs alone. */
int openai_status_of(int rc);

#endif
