/* GET /ready, /ready/NAME and /ready?model=NAME: does it serve? For load balancers and scripts;
 * /health says only that the process lives. */
#ifndef HP_COORDINATOR_GATEWAY_READY_H
#define HP_COORDINATOR_GATEWAY_READY_H

#include <stdbool.h>

#include "coordinator/gateway/http.h"
#include "coordinator/pools/pool_requests.h"
#include "coordinator/requests.h"

/* 200 when the deployment or the model of pools `name` serves (NULL: at least one does), else 503;
 * 404 when there is none of that name. While `draining`, always 503. `with_models` lists every one
 * that the client may use with its state and why it does not serve; names are for those who have a
 * key. `pools` may be NULL. */
void ready_reply(const struct requests *r, const struct pool_requests *pools,
                 struct http_exchange *x, const char *client, const char *name, bool draining,
                 bool with_models);

#endif
