/* What a peer neither takes nor sends though nobody waits for it any more: its memory, of the host
 * or of a device, comes back, if need be with the end of the connection. UCX sees no such peer: its
 * process may be well but for the thread of its data channel, or mean it. */
#include <stdlib.h>

#include "transport/data_ucx_int.h"

static uint64_t patience_ns(void)
{
    const char *tested = getenv("HP_TEST_UCX_UNWANTED_MS");
    uint64_t ms = tested ? strtoull(tested, NULL, 10) : UCX_UNWANTED_MS;
    return ms * UINT64_C(1000000);
}

/* Whether it has been so for long enough. */
static bool is_overdue(uint64_t *since_ns, bool unwanted, uint64_t now_ns)
{
    if (!unwanted || !*since_ns) {
        *since_ns = unwanted ? now_ns : 0;
        return false;
    }
    return now_ns - *since_ns >= patience_ns();
}

static bool session_is_allowed(struct ucx_endpoint *d, uint64_t session)
{
    pthread_mutex_lock(&d->base.lock);
    bool allowed = data_session_find(&d->base, session) != NULL;
    pthread_mutex_unlock(&d->base.lock);
    return allowed;
}

void ucx_overdue_end(struct ucx_endpoint *d, uint64_t now_ns)
{
    enum { LOOKS = 10 }; /* while one is patient */
    if (now_ns - d->overdue_looked_ns < patience_ns() / LOOKS)
        return;
    d->overdue_looked_ns = now_ns;
    for (struct ucx_link *link = d->links; link; link = link->next)
        if (is_overdue(&link->unwanted_ns, link->closed && link->peer && link->in_flight > 0,
                       now_ns))
            ucx_peer_fail(link->peer, "it does not take what was sent to it");
    for (struct ucx_arrival *a = d->fetching; a; a = a->next)
        if (is_overdue(&a->unwanted_ns, !session_is_allowed(d, a->header.session), now_ns))
            ucx_peer_fail_sender(d, a->from);
}
