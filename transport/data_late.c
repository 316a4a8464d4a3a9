#include "transport/data_late.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "common/log.h"
#include "transport/data_address.h"
#include "transport/data_int.h"

static const uint64_t ms = 1000000;

struct late_frame {
    struct late_frame *next;
    struct data_link *link;
    struct frame_header header;
    struct data_buffer *payload;
    data_done_fn done;
    void *done_ctx;
    uint64_t due_ns;
    bool link_ends; /* it is disconnected behind this frame */
};

struct data_late {
    struct data_endpoint *endpoint;
    const struct data_ops *real;
    struct data_ops ops;  /* those, but what is done here first */
    pthread_t thread;     /* once something was to be late */
    atomic_bool on;       /* posts are held; written under the lock */
    pthread_mutex_t lock; /* guards what follows; the endpoint is not called under it */
    pthread_cond_t changed;
    struct late_frame *first, *last; /* in the order in which they are due, and of their posts */
    struct late_frame *leaving;      /* the thread's, no longer among those */
    size_t n;
    uint64_t delay_ns, until_ns, n_held, n_lost;
    double lost;
    uint64_t random;
    bool started, quitting;
};

/* ---- what is held ---- */

/* When it is due: not before what its link holds. True: it is lost on its way. */
static bool frame_delay(struct data_late *l, struct late_frame *f)
{
    struct data_late_link *link = &f->link->late;
    bool lost = l->lost > 0 && random_unit(&l->random) < l->lost;
    uint64_t due = env_now_ns(&env_real) + l->delay_ns + (lost ? DATA_LATE_AGAIN_MS * ms : 0);
    f->due_ns = link->due_ns = link->n && link->due_ns > due ? link->due_ns : due;
    return lost;
}

/* Behind all that are due no later. */
static void frame_insert(struct data_late *l, struct late_frame *f)
{
    struct late_frame **at = &l->first;
    if (l->last && l->last->due_ns <= f->due_ns)
        at = &l->last->next;
    while (*at && (*at)->due_ns <= f->due_ns)
        at = &(*at)->next;
    f->next = *at;
    *at = f;
    l->last = f->next ? l->last : f;
    l->n++;
    l->n_held++;
    f->link->late.n++;
}

/* Takes a copy. HP_PENDING: it is held; 0: nothing is late (any more); HP_EBUSY, HP_ENOMEM. */
static int frame_hold(struct data_late *l, const struct late_frame *from)
{
    struct late_frame *f = malloc(sizeof *f);
    bool lost = false;
    if (!f)
        return HP_ENOMEM;
    *f = *from;
    pthread_mutex_lock(&l->lock);
    int rc = !atomic_load(&l->on) ? 0 : l->n == DATA_LATE_FRAMES ? HP_EBUSY : HP_PENDING;
    if (rc == HP_PENDING) {
        lost = frame_delay(l, f);
        l->n_lost += lost;
        frame_insert(l, f);
        pthread_cond_signal(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    if (lost && from->link->late.is_named)
        data_loss_add(l->endpoint, from->link->late.peer, 0, 1);
    if (rc != HP_PENDING)
        free(f);
    return rc;
}

static struct late_frame *frame_take(struct data_late *l)
{
    struct late_frame *f = l->first;
    if (f && !(l->first = f->next))
        l->last = NULL;
    if (f) {
        l->n--;
        f->link->late.n--;
    }
    return f;
}

static void frame_drop(struct data_late *l, struct late_frame *f, int status)
{
    data_buffer_release(l->endpoint, f->payload);
    if (f->done)
        f->done(f->done_ctx, status);
    if (f->link_ends)
        l->real->disconnect(f->link);
}

/* ---- the thread ---- */

/* Out of the lock: its link may be disconnected meanwhile. None overtakes it, since posts are held
 * until this thread finds nothing more to let go. */
static void frame_leave(struct data_late *l, struct late_frame *f)
{
    l->leaving = f;
    pthread_mutex_unlock(&l->lock);
    l->real->post(f->link, &f->header, f->payload, f->done, f->done_ctx);
    pthread_mutex_lock(&l->lock);
    l->leaving = NULL;
    bool link_ends = f->link_ends;
    pthread_mutex_unlock(&l->lock);
    if (link_ends)
        l->real->disconnect(f->link);
    free(f);
    pthread_mutex_lock(&l->lock);
}

static void late_end(struct data_late *l)
{
    atomic_store(&l->on, false);
    log_info("data", "links_on_time", "frames_held=%llu lost=%llu", (unsigned long long)l->n_held,
             (unsigned long long)l->n_lost);
}

static void change_await(struct data_late *l, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(&l->changed, &l->lock, &until);
}

static void *late_run(void *ctx)
{
    struct data_late *l = ctx;
    pthread_setname_np(pthread_self(), "hp-late");
    pthread_mutex_lock(&l->lock);
    while (!l->quitting) {
        uint64_t now = env_now_ns(&env_real);
        uint64_t due = l->first && l->first->due_ns < l->until_ns ? l->first->due_ns : l->until_ns;
        if (!atomic_load(&l->on))
            pthread_cond_wait(&l->changed, &l->lock);
        else if (now < due)
            change_await(l, due);
        else if (l->first)
            frame_leave(l, frame_take(l));
        else
            late_end(l);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- in the place of the endpoint's own ---- */

static int late_connect(struct data_endpoint *d, const uint8_t *address, size_t size,
                        struct data_link **out, struct err *e)
{
    struct data_address to;
    int rc = d->late->real->connect(d, address, size, out, e);
    if (rc < 0)
        return rc;
    struct data_late_link *link = &(*out)->late;
    (*out)->to_itself = size == d->address_size && memcmp(address, d->address, size) == 0;
    *link = (struct data_late_link){.is_named = data_address_parse(address, size, &to, NULL) == 0};
    if (link->is_named)
        memcpy(link->peer, to.key, KEY_BYTES);
    return rc;
}

/* True: the frame is held, or failed. */
static bool post_take(struct data_late *l, struct late_frame f)
{
    int rc = frame_hold(l, &f);
    if (rc < 0)
        frame_drop(l, &f, rc);
    return rc != 0;
}

static void late_post(struct data_link *link, const struct frame_header *h,
                      struct data_buffer *payload, data_done_fn done, void *done_ctx)
{
    struct data_late *l = link->endpoint->late;
    if (!atomic_load(&l->on) || link->to_itself ||
        !post_take(l, (struct late_frame){.link = link,
                                          .header = *h,
                                          .payload = payload,
                                          .done = done,
                                          .done_ctx = done_ctx}))
        l->real->post(link, h, payload, done, done_ctx);
}

/* Behind what is held of it, as if that had left already. */
static void late_disconnect(struct data_link *link)
{
    struct data_late *l = link->endpoint->late;
    pthread_mutex_lock(&l->lock);
    struct late_frame *last = l->leaving && l->leaving->link == link ? l->leaving : NULL;
    for (struct late_frame *f = l->first; f; f = f->next)
        last = f->link == link ? f : last;
    if (last)
        last->link_ends = true;
    pthread_mutex_unlock(&l->lock);
    if (!last)
        l->real->disconnect(link);
}

static void late_quit(struct data_late *l)
{
    pthread_mutex_lock(&l->lock);
    l->quitting = true;
    atomic_store(&l->on, false);
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (l->started)
        pthread_join(l->thread, NULL);
}

/* The real endpoint's thread finds `ops` until it has ended. */
static void late_close(struct data_endpoint *d)
{
    struct data_late *l = d->late;
    struct late_frame *f;
    late_quit(l);
    while ((f = frame_take(l)) != NULL) {
        frame_drop(l, f, HP_ELINK);
        free(f);
    }
    l->real->close(d);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- the face ---- */

int data_late_open(struct data_endpoint *d, struct err *e)
{
    struct data_late *l = calloc(1, sizeof *l);
    pthread_condattr_t attr;
    if (!l)
        return err_no_memory(e, "frames that are late");
    l->endpoint = d;
    l->real = d->ops;
    l->ops = *d->ops;
    l->ops.connect = late_connect;
    l->ops.post = late_post;
    l->ops.disconnect = late_disconnect;
    l->ops.close = late_close;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
    d->late = l;
    d->ops = &l->ops;
    return 0;
}

static int thread_start(struct data_late *l, struct err *e)
{
    if (!l->started && pthread_create(&l->thread, NULL, late_run, l) != 0)
        return err_no_memory(e, "the thread of frames that are late");
    l->started = true;
    return 0;
}

int data_late_set(struct data_endpoint *d, const struct data_lateness *how, struct err *e)
{
    struct data_late *l = d->late;
    uint64_t delay_ns = how->delay_ns, for_ns = how->for_ns;
    if (!l)
        return err_set(e, HP_EINVAL, "the frames of this endpoint are never late");
    pthread_mutex_lock(&l->lock);
    bool begins = for_ns && !atomic_load(&l->on);
    int rc = for_ns ? thread_start(l, e) : 0;
    if (rc == 0) {
        l->delay_ns = delay_ns;
        l->lost = how->lost;
        l->until_ns = env_now_ns(&env_real) + for_ns;
        l->n_held = begins ? 0 : l->n_held;
        l->n_lost = begins ? 0 : l->n_lost;
        atomic_store(&l->on, begins || atomic_load(&l->on));
        pthread_cond_signal(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    if (rc == 0 && for_ns)
        log_warn("data", "links_late", "delay_ms=%.0f lost=%.3g for_ms=%.0f",
                 (double)(delay_ns < for_ns ? delay_ns : for_ns) * 1e-6, how->lost,
                 (double)for_ns * 1e-6);
    return rc;
}
