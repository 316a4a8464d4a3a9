/* Whose requests wait and run on a deployment: one row a client (an API key, an address), as long
 * as it has any there. Counted by the lists of sequences (sequence.h). */
#ifndef HP_COORDINATOR_CLIENTS_H
#define HP_COORDINATOR_CLIENTS_H

#include "common/map.h"
#include "coordinator/requests.h"

struct coord;
struct deployment;

struct client_row {
    char client[REQUEST_CLIENT_BYTES];
    UT_hash_handle hh;
    uint32_t n_waiting, n_active, n_requests; /* n_requests: that point here */
    uint32_t weight; /* of its API key, when its first of these came; others 1 */
};

/* The client's row, with one request more; made where there is none. Without memory for it the
 * request counts as nobody's in particular. */
struct client_row *client_row_hold(const struct coord *c, struct deployment *d, const char *client);
/* One request less; the last takes the row with it. */
void client_row_leave(struct deployment *d, struct client_row *r);
/* NULL: the client has no request here. */
const struct client_row *client_row_find(const struct deployment *d, const char *client);

#endif
