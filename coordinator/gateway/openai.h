/* The OpenAI dialect: bodies to requests, tokens to replies and streams, errors in its shape. */
#ifndef HP_COORDINATOR_GATEWAY_OPENAI_H
#define HP_COORDINATOR_GATEWAY_OPENAI_H

#include "coordinator/gateway/http.h"
#include "coordinator/requests.h"

#include <stdbool.h>

/* POST /v1/chat/completions (`chat`) and /v1/completions. */
void openai_complete(const struct requests *r, struct http_exchange *x, bool chat, const char *body, size_t n);
/* GET /v1/models, and /v1/models/NAME when `name` is not NULL. */
void openai_models(const struct requests *r, struct http_exchange *x, const char *name);
/* {"error": {"message", "type", "param", "code"}} with an HTTP status; `param` may be NULL. */
void openai_error(struct http_exchange *x, int http_status, const char *message, const char *param, const char *code);

/* What a body asks for. `error_param` names the field that was refused. */
struct openai_body;
int openai_body_parse(const char *body, size_t n, bool chat, struct openai_body **out, const char **error_param, struct err *e);
void openai_body_destroy(struct openai_body **b);

#endif
