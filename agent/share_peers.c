#include "agent/share_peers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "transport/message.h"

struct share_peer {
    char *name, *device;
    uint8_t *address;
    size_t address_size;
    uint64_t session;
    struct data_link *link;      /* NULL: nothing went there yet, or it broke */
    atomic_uint_fast64_t broken; /* number of the link over which a post failed last */
    struct paced_queue queue;
    struct cluster_wire wire;
    bool known; /* `wire` says how slow the link is */
};

struct share_peers {
    struct share_peers_config config;
    atomic_uint holders;  /* who may post */
    atomic_uint users;    /* those together, and the posts on their way */
    pthread_mutex_t lock; /* guards links and queues */
    struct share_peer *rows;
    size_t n;
};

/* A frame on its way. */
struct peer_post {
    struct share_peers *peers;
    size_t row;
    uint64_t link;
    struct frame_header header;
    uint32_t share;
};

static void peers_free(struct share_peers *p)
{
    for (size_t i = 0; p->rows && i < p->n; i++) {
        free(p->rows[i].name);
        free(p->rows[i].device);
        free(p->rows[i].address);
    }
    free(p->rows);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void user_leave(struct share_peers *p)
{
    if (atomic_fetch_sub(&p->users, 1) == 1)
        peers_free(p);
}

static void wire_find(const struct share_peers_config *c, struct share_peer *r)
{
    struct err e = {0};
    if (!c->paced || !r->device[0])
        return;
    r->known = paced_hop(c->paced, r->device, &r->wire, &e) == 0;
    if (!r->known)
        log_warn("agent", "link_not_paced", "text=\"%s\"", e.text);
}

static bool row_fill(const struct share_peers_config *c, const struct message_share_peer *from,
                     struct share_peer *r)
{
    r->name = strdup(from->name ? from->name : "");
    r->device = strdup(from->device ? from->device : "");
    r->address = malloc(from->data_address.size + 1);
    r->session = from->session;
    r->address_size = from->data_address.size;
    if (!r->name || !r->device || !r->address)
        return false;
    if (r->address_size)
        memcpy(r->address, from->data_address.data, r->address_size);
    wire_find(c, r);
    return true;
}

int share_peers_create(const struct share_peers_config *c, const struct pack_list *peers,
                       struct share_peers **out, struct err *e)
{
    const struct message_share_peer *list = peers->items;
    struct share_peers *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory(e, "the links of a plan");
    p->config = *c;
    pthread_mutex_init(&p->lock, NULL);
    atomic_store(&p->holders, 1);
    atomic_store(&p->users, 1);
    p->rows = calloc(peers->count + 1, sizeof *p->rows);
    p->n = p->rows ? peers->count : 0;
    bool good = p->rows != NULL;
    for (size_t i = 0; i < p->n && good; i++)
        good = row_fill(c, &list[i], &p->rows[i]);
    if (!good) {
        peers_free(p);
        return err_no_memory(e, "the links of a plan");
    }
    *out = p;
    return 0;
}

struct share_peers *share_peers_hold(struct share_peers *p)
{
    if (!p)
        return NULL;
    atomic_fetch_add(&p->holders, 1);
    atomic_fetch_add(&p->users, 1);
    return p;
}

void share_peers_release(struct share_peers *p)
{
    if (!p)
        return;
    if (atomic_fetch_sub(&p->holders, 1) == 1)
        for (size_t i = 0; i < p->n; i++)
            if (p->rows[i].link) {
                delay_line_forget(p->config.line, p->rows[i].link);
                data_disconnect(&p->rows[i].link);
            }
    user_leave(p);
}

/* Under the data channel's locks, or the delay line's: it calls neither. */
static void post_left(void *ctx, int status)
{
    struct peer_post *post = ctx;
    struct share_peers *p = post->peers;
    if (status < 0) {
        if (status == HP_ELINK)
            atomic_store(&p->rows[post->row].broken, post->link);
        p->config.lost(p->config.ctx, &post->header, post->share, status);
    }
    free(post);
    user_leave(p);
}

/* The link of a row, made anew where it broke. A broken link's frames have all failed, or will on
 * their own. */
static int link_get(struct share_peers *p, struct share_peer *r, struct err *e)
{
    if (r->link && data_link_number(r->link) == atomic_load(&r->broken)) {
        struct data_link *gone = r->link;
        r->link = NULL;
        delay_line_forget(p->config.line, gone);
        data_disconnect(&gone);
    }
    if (r->link)
        return 0;
    int rc = data_connect(p->config.data, r->address, r->address_size, &r->link, e);
    return rc < 0 ? err_at(e, "%s cannot be reached", r->name) : 0;
}

/* When the frame is to be posted: 0 at once. */
static uint64_t due_ns(struct share_peer *r, const struct share_post *post,
                       const struct frame_header *h, uint64_t bytes)
{
    uint64_t leaves = post->send_ns;
    if (!r->known)
        return leaves;
    double seconds = paced_share_seconds(&r->wire, post->sample_bytes, h->n_tokens, bytes);
    uint64_t now = env_now_ns(&env_real), ready = post->ready_ns > leaves ? post->ready_ns : leaves;
    return paced_queue_take(&r->queue, ready, now > ready ? now : ready, seconds) +
           (uint64_t)(r->wire.latency_s * 1e9);
}

int share_peers_post(struct share_peers *p, const struct share_post *post, struct frame_header *h,
                     struct data_buffer *payload, struct err *e)
{
    struct share_peer *r = post->peer < p->n ? &p->rows[post->peer] : NULL;
    struct peer_post *own = r ? malloc(sizeof *own) : NULL;
    int rc = !r     ? err_set(e, HP_EINVAL, "peer %u of a plan with %zu", post->peer, p->n)
             : !own ? err_no_memory(e, "a batch on its way")
                    : 0;
    if (rc == 0) {
        pthread_mutex_lock(&p->lock);
        rc = link_get(p, r, e);
        if (rc < 0)
            pthread_mutex_unlock(&p->lock);
    }
    if (rc < 0) {
        free(own);
        data_buffer_release(p->config.data, payload);
        return rc;
    }
    h->session = r->session;
    uint64_t due = due_ns(r, post, h, payload ? payload->size : 0), now = env_now_ns(&env_real);
    h->sent_ns = due > now ? due : now;
    *own = (struct peer_post){.peers = p,
                              .row = (size_t)(r - p->rows),
                              .link = data_link_number(r->link),
                              .header = *h,
                              .share = post->share};
    atomic_fetch_add(&p->users, 1);
    /* Under the lock, so that nobody makes the link anew meanwhile; neither call blocks. */
    if (due > now)
        delay_line_post(p->config.line, r->link, h, payload, due, post_left, own);
    else
        data_post(r->link, h, payload, post_left, own);
    pthread_mutex_unlock(&p->lock);
    return 0;
}
