/* How long answers took, as histograms for /metrics: one set for each deployment. On the loop's
 * thread. */
#ifndef HP_COORDINATOR_GATEWAY_LATENCY_H
#define HP_COORDINATOR_GATEWAY_LATENCY_H

#include "common/bytes.h"
#include "coordinator/requests.h"

struct latency_row;
struct latency { /* zero-initialised: nothing was answered */
    struct latency_row *rows;
    int n_rows;
};

/* One answer of a deployment is over. Of more deployments than may be listed at once, or without
 * memory, the newest are not counted. */
void latency_note(struct latency *l, const char *deployment, const struct request_usage *u);
/* Prometheus text. */
void latency_write(const struct latency *l, struct buffer *out);
void latency_free(struct latency *l);

#endif
