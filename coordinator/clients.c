#include "coordinator/clients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/api_keys.h"
#include "coordinator/deployment.h"

static uint32_t client_weight(const struct coord *c, const char *client)
{
    const char *name = client_key(client);
    const struct api_key *k = name ? api_keys_named(c, name) : NULL;
    return k ? k->limits.weight : 1;
}

const struct client_row *client_row_find(const struct deployment *d, const char *client)
{
    struct client_row *r;
    HASH_FIND_STR(d->clients, client, r);
    return r;
}

struct client_row *client_row_hold(const struct coord *c, struct deployment *d, const char *client)
{
    struct client_row *r;
    HASH_FIND_STR(d->clients, client, r);
    if (!r && (r = calloc(1, sizeof *r)) != NULL) {
        snprintf(r->client, sizeof r->client, "%s", client);
        r->weight = client_weight(c, client);
        HASH_ADD_STR(d->clients, client, r);
        if (!map_has_added(r)) {
            free(r);
            r = NULL;
        }
    }
    if (!r) {
        r = &d->nobody;
        r->weight = 1;
    }
    r->n_requests++;
    return r;
}

void client_row_leave(struct deployment *d, struct client_row *r)
{
    if (--r->n_requests || r == &d->nobody)
        return;
    HASH_DEL(d->clients, r);
    free(r);
}
