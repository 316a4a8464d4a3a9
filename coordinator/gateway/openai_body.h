/* A checked body of a completion request. Only openai*.c includes this. */
#ifndef HP_COORDINATOR_GATEWAY_OPENAI_BODY_H
#define HP_COORDINATOR_GATEWAY_OPENAI_BODY_H

#include "coordinator/gateway/completion.h"
#include "coordinator/gateway/openai.h"

#include <jansson.h>

struct openai_body {
    json_t *root; /* owns what is borrowed below */
    bool chat, stream, include_usage, ignore_end;
    const char *model;
    json_t *messages;  /* chat: an array whose contents are plain strings */
    const char *text;  /* completion: a text prompt, or NULL and ids */
    uint32_t *ids;
    size_t n_ids;
    uint64_t max_tokens; /* 0: to the end of the context */
    const char *stops[COMPLETION_MAX_STOPS];
    int n_stops;
    struct request_sampling sampling;
};

#endif
