/* The gateway's client: one POST, answered whole or as server-sent events. */
#ifndef HP_HPCTL_HTTP_CLIENT_H
#define HP_HPCTL_HTTP_CLIENT_H

#include <curl/curl.h>
#include <jansson.h>

#include "common/status.h"
#include "hpctl/context.h"

struct curl_slist; /* of libcurl */

/* What the API sent, parsed, or NULL. An answer is whatever the model says, and that may be a NUL
 * (\u0000): its strings have a length. The caller releases it. */
json_t *http_json(const char *bytes, size_t size);

/* Each event of a stream, parsed. A negative return ends the request with that code. */
typedef int (*http_event_fn)(void *ctx, const json_t *event, struct err *e);

/* Posts `body` (taken) to `path` ("/v1/completions") of the context's API. With `on_event` the
 * answer is a stream; *result (may be NULL) is a whole JSON answer otherwise. The bearer key is
 * HP_API_KEY's, else the context's; where the API wants one and the context has none, the
 * coordinator is asked for one with the admin's key, and the context keeps it. HP_ENOCLUSTER:
 * nobody listens; HP_ETIMEOUT: the coordinator stands still; else the gateway's own error, with its
 * message. HP_ECANCELED after Ctrl-C. */
int http_post(struct context *where, const char *path, json_t *body, http_event_fn on_event,
              void *ctx, json_t **result, struct err *e);

/* The whole JSON answer of a GET; else as http_post. */
int http_get(struct context *where, const char *path, json_t **result, struct err *e);

/* The headers of a request with a JSON body, and of its key where there is one: the caller frees
 * them (curl_slist_free_all). */
struct curl_slist *http_headers(const struct context *where);

/* A transfer for a multi handle, whose bytes go to `take` with `ctx`, which is its private pointer,
 * too. It believes the certificates of HP_CA_FILE, else of the context, else of the system. NULL:
 * no memory. */
CURL *http_transfer(const struct context *where, curl_write_callback take, void *ctx);

/* The code of an answer that is not 200, or of an event that is an error (`status` 200 then), and
 * its message in `e`. */
int http_error_of(const json_t *value, long status, struct err *e);

/* Whether the context's API answers at all (`/health`, within 3 s); else as http_post, with what to
 * do. */
int http_answers(const struct context *where, struct err *e);

/* Has the coordinator make an API key for this context, and keeps it there. */
int api_key_make(struct context *where, struct err *e);

#endif
