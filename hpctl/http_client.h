/* The gateway's client: one POST, answered whole or as server-sent events. */
#ifndef HP_HPCTL_HTTP_CLIENT_H
#define HP_HPCTL_HTTP_CLIENT_H

#include "common/status.h"

#include <jansson.h>

/* Each event of a stream, parsed. A negative return ends the request with that code. */
typedef int (*http_event_fn)(void *ctx, const json_t *event, struct err *e);

/* Posts `body` (taken) to `url`. With `on_event` the answer is a stream; *result (may be NULL) is a whole JSON answer otherwise. HP_API_KEY is sent as a bearer key. HP_ENOCLUSTER: nobody
 * listens; else the gateway's own error, with its message. HP_ECANCELED after Ctrl-C. */
int http_post(const char *url, json_t *body, http_event_fn on_event, void *ctx, json_t **result, struct err *e);

#endif
