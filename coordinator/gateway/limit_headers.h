/* How the limits of a client's key stand, as OpenAI tells it: x-ratelimit-limit-requests, -tokens,
 * -remaining-... and -reset-... (a duration: "20ms", "1.5s", "6m0s"). Headers of limits that there
 * are not, are left out, and the reset of one that does not come back. */
#ifndef HP_COORDINATOR_GATEWAY_LIMIT_HEADERS_H
#define HP_COORDINATOR_GATEWAY_LIMIT_HEADERS_H

#include "coordinator/gateway/http.h"
#include "coordinator/requests.h"

enum { LIMIT_DURATION_BYTES = 48 };

void limit_headers_add(const struct request_limits *limits, http_header_fn add, void *out);
/* Seconds as Go writes durations, up to the next millisecond. */
void limit_duration_write(double seconds, char out[LIMIT_DURATION_BYTES]);

#endif
