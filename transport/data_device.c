/* Memory of devices that frames are sent from and received into: whether an endpoint reaches it,
 * and which session's rows come to which. Refuses to know what is done there: transports do that,
 * as far as they can. */
#include "common/log.h"
#include "transport/data_int.h"

bool data_takes(const struct data_endpoint *d, enum memory_kind kind)
{
    return kind == MEMORY_HOST || d->takes[kind];
}

bool data_link_takes(const struct data_link *link, enum memory_kind kind)
{
    return kind == MEMORY_HOST || (!link->to_itself && data_takes(link->endpoint, kind));
}

int data_reserve_open_device(struct data_endpoint *d, const struct data_lent *lent,
                             struct data_reserve **out, struct err *e)
{
    if (lent->kind == MEMORY_HOST || !data_takes(d, lent->kind))
        return err_set(e, HP_EUNSUPPORTED, "the data channel reaches no memory of this device");
    return data_pool_reserve(&d->pool, lent->n, lent->bytes, lent, out, e);
}

int data_receive_into(struct data_endpoint *d, uint64_t session, struct data_reserve *r,
                      struct err *e)
{
    pthread_mutex_lock(&d->lock);
    struct data_session *s = data_session_find(d, session);
    if (s)
        s->into = r;
    pthread_mutex_unlock(&d->lock);
    return s ? 0 : err_set(e, HP_ENOENT, "frames of this session are not welcome");
}

void data_receive_end(struct data_endpoint *d, const struct data_reserve *r)
{
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->n_sessions; i++)
        if (d->sessions[i].into == r)
            d->sessions[i].into = NULL;
    pthread_mutex_unlock(&d->lock);
}

struct data_buffer *data_receive_device(struct data_endpoint *d, const struct frame_header *h,
                                        size_t head)
{
    pthread_mutex_lock(&d->lock);
    const struct data_session *s = data_session_find(d, h->session);
    struct data_buffer *b =
        s && s->into ? data_reserve_get_device(s->into, head, h->payload_bytes) : NULL;
    pthread_mutex_unlock(&d->lock);
    return b;
}

void data_device_enter(const struct data_buffer *b)
{
    const struct data_lent *lent = data_pool_lent(b);
    if (lent->enter)
        lent->enter(lent->ctx);
}

void data_device_spoil(const struct data_buffer *b)
{
    if (!b || !b->device)
        return;
    log_warn("data", "device_not_reached",
             "text=\"rows do not go to memory of a device or from there, and go by the host's from "
             "now on\"");
    data_pool_spoil(b);
}

void data_count_device(struct data_endpoint *d, bool came)
{
    pthread_mutex_lock(&d->lock);
    d->stats.device_received += came;
    d->stats.device_sent += !came;
    pthread_mutex_unlock(&d->lock);
}
