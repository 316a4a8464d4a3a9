/* Live figures: the cluster's document (requests.h), once a second, as server-sent events for
 * everybody who looks. Made once for all of them, and not at all while nobody looks. Who reads too
 * slowly misses some. On the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_LIVE_H
#define HP_COORDINATOR_GATEWAY_LIVE_H

#include <uv.h>

#include "coordinator/gateway/http.h"
#include "coordinator/requests.h"

enum { LIVE_EVERY_MS = 1000, LIVE_READERS = 64, LIVE_UNSENT_BYTES = 1 << 20 };

struct live_reader {
    struct live *live;
    struct http_exchange *x; /* NULL: a free place */
};

struct live {
    const struct requests *requests;
    uv_timer_t timer;
    struct live_reader readers[LIVE_READERS];
    int n_readers;
};

/* Its timer is the caller's to close. */
void live_init(struct live *l, uv_loop_t *loop, const struct requests *requests);
/* A stream that begins with what is now; 503 where LIVE_READERS look already. */
void live_open(struct live *l, struct http_exchange *x);
/* Ends all streams. */
void live_end(struct live *l);

#endif
