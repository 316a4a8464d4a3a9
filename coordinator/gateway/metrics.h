/* GET /metrics: every figure that the coordinator and its gateway keep, in Prometheus' text form.
 */
#ifndef HP_COORDINATOR_GATEWAY_METRICS_H
#define HP_COORDINATOR_GATEWAY_METRICS_H

#include "coordinator/gateway/http.h"
#include "coordinator/gateway/latency.h"
#include "coordinator/requests.h"

void metrics_reply(const struct requests *r, const struct http_figures *http,
                   const struct latency *latency, struct http_exchange *x);

#endif
