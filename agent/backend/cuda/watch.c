/* Who hears that work is done: a thread of the device's waits for events in the order in which it
 * was asked to, and tells. It begins when somebody asks first. */
#include "agent/backend/cuda/cuda_int.h"

/* The first that is asked for, when there is one; NULL: the thread ends. */
static struct cuda_event *event_take(struct cuda_watch *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->ends)
        pthread_cond_wait(&w->changed, &w->lock);
    struct cuda_event *v = w->first;
    pthread_mutex_unlock(&w->lock);
    return v;
}

/* The event is its owner's again before anybody is told. */
static void event_tell(struct cuda_watch *w, struct cuda_event *v)
{
    void (*over)(void *ctx) = v->over;
    void *ctx = v->ctx;
    pthread_mutex_lock(&w->lock);
    w->first = v->next;
    if (!w->first)
        w->end = &w->first;
    v->watched = false;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    over(ctx);
}

static void *watch_thread(void *arg)
{
    struct cuda_device *d = arg;
    struct cuda_event *v;
    gpu_use(d->ordinal); /* of a device that is lost: waiting ends at once */
    while ((v = event_take(&d->watch))) {
        gpu_event_wait(v->event);
        event_tell(&d->watch, v);
    }
    return NULL;
}

void cuda_watch_init(struct cuda_watch *w)
{
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->end = &w->first;
}

void cuda_watch_fini(struct cuda_watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (w->runs)
        pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

bool cuda_event_pending(struct event *event, void (*over)(void *ctx), void *ctx)
{
    struct cuda_event *v = (struct cuda_event *)event;
    struct cuda_watch *w = &v->device->watch;
    int rc = gpu_use(v->device->ordinal);
    rc = v->failed ? v->failed : rc ? rc : gpu_event_done(v->event);
    if (rc != GPU_BUSY)
        return false;
    if (!w->runs && pthread_create(&w->thread, NULL, watch_thread, v->device) != 0) {
        gpu_event_wait(v->event); /* then whoever asks waits */
        return false;
    }
    w->runs = true;
    v->over = over;
    v->ctx = ctx;
    v->next = NULL;
    pthread_mutex_lock(&w->lock);
    v->watched = true;
    *w->end = v;
    w->end = &v->next;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return true;
}

void cuda_watch_leave(struct cuda_event *v)
{
    struct cuda_watch *w = &v->device->watch;
    pthread_mutex_lock(&w->lock);
    while (v->watched)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}
