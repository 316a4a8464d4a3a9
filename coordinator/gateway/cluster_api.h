/* What the page shows of the cluster: documents (requests.h) under /api/hp/, read only, and plans
 * over boxes that a reader chooses. On the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_CLUSTER_API_H
#define HP_COORDINATOR_GATEWAY_CLUSTER_API_H

#include "coordinator/gateway/http.h"
#include "coordinator/requests.h"

enum { CLUSTER_API_WITHOUT_BYTES = 4096 };

void cluster_document_reply(const struct requests *r, struct http_exchange *x,
                            enum request_document which, const char *name);
/* GET …?without=a0,a1: answered when the plan is made. */
void cluster_plan_reply(const struct requests *r, struct http_exchange *x, const char *deployment);

#endif
