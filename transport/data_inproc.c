/* The in-process twin of the data channel: endpoints find each other in a registry, frames are
 * copied and delivered on the receiver's thread. */
#include <stdlib.h>
#include <string.h>

#include "transport/data_int.h"

enum { ADDRESS_BYTES = sizeof(uint64_t) };

struct delivery {
    struct delivery *next;
    uint8_t header[FRAME_HEADER_BYTES];
    struct data_buffer *payload; /* of the receiver's pool */
    struct data_link *down;      /* not a frame: this link broke */
};

struct inproc_endpoint {
    struct data_endpoint base;
    uint64_t number; /* its address */
    struct inproc_endpoint *next_registered;
    pthread_t thread;
    pthread_cond_t wake;
    struct delivery *head, **tail; /* under base.lock, with `stopping` */
    bool stopping;
};

struct inproc_link {
    struct data_link base;
    uint64_t peer;
    bool down;
};

/* The registry is the one thing that endpoints of a process share: it stands for the network. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct inproc_endpoint *registry;
static uint64_t next_number = 1;

static void delivery_enqueue(struct inproc_endpoint *d, struct delivery *item)
{
    pthread_mutex_lock(&d->base.lock);
    *d->tail = item;
    d->tail = &item->next;
    pthread_mutex_unlock(&d->base.lock);
    pthread_cond_signal(&d->wake);
}

static void delivery_hand_over(struct inproc_endpoint *d, struct delivery *item)
{
    struct frame_header h;
    if (item->down) {
        if (d->base.callbacks.link_down)
            d->base.callbacks.link_down(
                d->base.callbacks.ctx, item->down,
                &(struct err){HP_ELINK, "the peer's endpoint is closed, or its buffers are full",
                              ""});
        return;
    }
    if (data_admit(&d->base, item->header, sizeof item->header,
                   item->payload ? item->payload->size : 0, NULL, &h) < 0) {
        data_buffer_release(&d->base, item->payload);
        return;
    }
    data_count_received(&d->base, h.payload_bytes);
    d->base.callbacks.frame(d->base.callbacks.ctx, &h, item->payload);
}

static void *deliver_all(void *ctx)
{
    struct inproc_endpoint *d = ctx;
    pthread_mutex_lock(&d->base.lock);
    for (;;) {
        while (!d->head && !d->stopping)
            pthread_cond_wait(&d->wake, &d->base.lock);
        struct delivery *item = d->head;
        if (!item)
            break;
        if (!(d->head = item->next))
            d->tail = &d->head;
        bool drop = d->stopping;
        pthread_mutex_unlock(&d->base.lock);
        if (drop)
            data_buffer_release(&d->base, item->payload);
        else
            delivery_hand_over(d, item);
        free(item);
        pthread_mutex_lock(&d->base.lock);
    }
    pthread_mutex_unlock(&d->base.lock);
    return NULL;
}

static void inproc_close(struct data_endpoint *base)
{
    struct inproc_endpoint *d = (struct inproc_endpoint *)base;
    pthread_mutex_lock(&registry_lock);
    for (struct inproc_endpoint **p = &registry; *p; p = &(*p)->next_registered)
        if (*p == d) {
            *p = d->next_registered;
            break;
        }
    pthread_mutex_unlock(&registry_lock);
    pthread_mutex_lock(&base->lock);
    d->stopping = true;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&base->lock);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->wake);
    data_base_fini(base);
    free(d);
}

static int inproc_connect(struct data_endpoint *base, const uint8_t *address, size_t size,
                          struct data_link **out, struct err *e)
{
    struct inproc_link *link;
    if (size != sizeof link->peer)
        return err_set(e, HP_EINVAL, "%zu bytes are no address of an in-process endpoint", size);
    if (!(link = calloc(1, sizeof *link)))
        return err_set(e, HP_ENOMEM, "out of memory for a link");
    link->base.endpoint = base;
    memcpy(&link->peer, address, size);
    *out = &link->base;
    return 0;
}

static void inproc_disconnect(struct data_link *link)
{
    free(link);
}

/* Hands the frame to the peer while the registry is locked, so that it cannot go away. False when
 * there is no such peer, or no room there: a frame that cannot be taken breaks its link, it is
 * never lost in silence. */
static bool hand_over(struct inproc_link *link, const struct frame_header *h,
                      const struct data_buffer *payload)
{
    bool found = false;
    pthread_mutex_lock(&registry_lock);
    for (struct inproc_endpoint *peer = registry; peer && !found; peer = peer->next_registered) {
        if (peer->number != link->peer)
            continue;
        struct delivery *item = calloc(1, sizeof *item);
        if (item && payload && !(item->payload = data_receive_buffer(&peer->base, h))) {
            data_count_full(&peer->base);
            free(item);
            break;
        }
        if (!item)
            break;
        found = true;
        frame_header_encode(h, item->header);
        if (payload)
            memcpy(item->payload->bytes, payload->bytes, payload->size);
        delivery_enqueue(peer, item);
    }
    pthread_mutex_unlock(&registry_lock);
    return found;
}

static void inproc_post(struct data_link *base, const struct frame_header *h,
                        struct data_buffer *payload, data_done_fn done, void *done_ctx)
{
    struct inproc_link *link = (struct inproc_link *)base;
    struct inproc_endpoint *own = (struct inproc_endpoint *)base->endpoint;
    bool sent = !link->down && hand_over(link, h, payload);
    if (sent) {
        data_count_sent(base->endpoint, h->payload_bytes);
    } else if (!link->down) {
        link->down = true;
        struct delivery *item = calloc(1, sizeof *item);
        if (item) {
            item->down = base;
            delivery_enqueue(own, item);
        }
    }
    data_buffer_release(base->endpoint, payload);
    if (done)
        done(done_ctx, sent ? 0 : HP_ELINK);
}

static void inproc_room(struct data_endpoint *base)
{
    (void)base;
}

static const struct data_ops inproc_ops = {
    inproc_close, inproc_connect, inproc_disconnect, inproc_post, inproc_room, NULL, NULL};

int data_open_inproc(const struct data_config *c, struct data_endpoint **out, struct err *e)
{
    struct inproc_endpoint *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, HP_ENOMEM, "out of memory for a data endpoint");
    data_base_init(&d->base, &inproc_ops, c);
    d->tail = &d->head;
    pthread_cond_init(&d->wake, NULL);
    pthread_mutex_lock(&registry_lock);
    d->number = next_number++;
    pthread_mutex_unlock(&registry_lock);
    d->base.address = malloc(ADDRESS_BYTES);
    if (!d->base.address || pthread_create(&d->thread, NULL, deliver_all, d) != 0) {
        data_base_fini(&d->base);
        free(d);
        return err_set(e, HP_ENOMEM, "cannot start the thread of a data endpoint");
    }
    memcpy(d->base.address, &d->number, ADDRESS_BYTES);
    d->base.address_size = ADDRESS_BYTES;
    pthread_mutex_lock(&registry_lock);
    d->next_registered = registry;
    registry = d;
    pthread_mutex_unlock(&registry_lock);
    *out = &d->base;
    return 0;
}
