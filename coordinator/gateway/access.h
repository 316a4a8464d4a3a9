/* Who may ask: API keys, and on loopback hosts and pages. On the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_ACCESS_H
#define HP_COORDINATOR_GATEWAY_ACCESS_H

#include "coordinator/gateway/http.h"
#include "coordinator/gateway/origin.h"
#include "coordinator/requests.h"

struct access {
    const struct requests *requests;
    struct origin_names names;   /* that loopback is called by */
    struct origin_names origins; /* whose pages may ask */
    bool beyond_loopback;
    bool open; /* on loopback nobody needs a key */
};

bool access_key_needed(const struct access *a);
bool access_allowed(const struct access *a, const struct http_request *r);
/* Whose share of the queue a request is of: "key NAME" or "address A". */
void access_client(const struct access *a, const struct http_request *r,
                   char client[REQUEST_CLIENT_BYTES]);

/* Why it may not: HP_EDENIED. */
int access_check_key(const struct access *a, const struct http_request *r, struct err *e);
/* One request more of its key, unless that one's limits are reached: HP_ERATE, HP_EQUOTA. */
int access_check_spent(const struct access *a, const struct http_request *r,
                       uint32_t *retry_after_s, struct err *e);
/* A page's browser asks whether it may ask: true, and it was answered that it may. */
bool access_grant_preflight(const struct access *a, struct http_exchange *x,
                            const struct http_request *r);
/* How the limits of its key stand, and that its page may read it, as headers of its answer. */
void access_headers(const struct access *a, const struct http_request *r, http_header_fn add,
                    void *out);

/* True: this request was answered with why it is not taken. */
bool access_refuse_stranger(const struct access *a, struct http_exchange *x,
                            const struct http_request *r);
bool access_refuse_keyless(const struct access *a, struct http_exchange *x,
                           const struct http_request *r);
/* ... because its key's limits are reached; counts it otherwise. */
bool access_refuse_spent(const struct access *a, struct http_exchange *x,
                         const struct http_request *r);
/* ... because its key may use some deployments, and this is about all of them. */
bool access_refuse_partial(const struct access *a, struct http_exchange *x,
                           const struct http_request *r);
/* ... because its body is said not to be JSON, nor, where those are `binary`, tensors, or to be
 * compressed. What is called a form is taken for JSON, unless a browser sent it. */
bool access_refuse_type(struct http_exchange *x, const struct http_request *r, bool binary);

#endif
