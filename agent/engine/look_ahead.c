#include "agent/engine/look_ahead.h"

#include <pthread.h>
#include <stdlib.h>

#include "agent/engine/sampler.h"
#include "common/thread_turns.h"
#include "common/vector.h"

struct look_ahead {
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t came, left;
    struct sampler **list; /* those that wait */
    size_t n, room;
    bool busy, ends; /* one is being looked after; the thread is to end */
};

static void *look_ahead_thread(void *ctx)
{
    struct look_ahead *l = ctx;
    pthread_setname_np(pthread_self(), "hp-masks");
    /* Logits are there in a few milliseconds, while threads that compute have all processors. */
    thread_turns_short();
    pthread_mutex_lock(&l->lock);
    while (!l->ends) {
        if (!l->n) {
            pthread_cond_wait(&l->came, &l->lock);
            continue;
        }
        struct sampler *s = l->list[0];
        vector_remove(l->list, l->n, 0);
        l->busy = true;
        pthread_mutex_unlock(&l->lock);
        sampler_look_ahead(s);
        pthread_mutex_lock(&l->lock);
        l->busy = false;
        pthread_cond_signal(&l->left);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

int look_ahead_create(struct look_ahead **out, struct err *e)
{
    struct look_ahead *l = calloc(1, sizeof *l);
    if (!l)
        return err_no_memory(e, "samplers that are looked after ahead of their picks");
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->came, NULL);
    pthread_cond_init(&l->left, NULL);
    *out = l;
    return 0;
}

void look_ahead_destroy(struct look_ahead **self)
{
    struct look_ahead *l = *self;
    *self = NULL;
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->n = 0;
    l->ends = true;
    pthread_cond_signal(&l->came);
    pthread_mutex_unlock(&l->lock);
    if (l->started)
        pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->came);
    pthread_cond_destroy(&l->left);
    pthread_mutex_destroy(&l->lock);
    free(l->list);
    free(l);
}

/* Without a thread, or memory, picks find what they need themselves. */
void look_ahead_add(struct look_ahead *l, struct sampler *s)
{
    if (!sampler_lacks(s))
        return;
    pthread_mutex_lock(&l->lock);
    if (!l->started)
        l->started = pthread_create(&l->thread, NULL, look_ahead_thread, l) == 0;
    if (l->started && vector_push(l->list, l->n, l->room, s))
        pthread_cond_signal(&l->came);
    pthread_mutex_unlock(&l->lock);
}

void look_ahead_stop(struct look_ahead *l)
{
    pthread_mutex_lock(&l->lock);
    l->n = 0;
    while (l->busy)
        pthread_cond_wait(&l->left, &l->lock);
    pthread_mutex_unlock(&l->lock);
}
