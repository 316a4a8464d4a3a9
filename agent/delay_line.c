#include "agent/delay_line.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "common/env.h"
#include "common/log.h"

struct delay_line_frame {
    struct delay_line_frame *next;
    struct data_link *link;
    struct frame_header header;
    struct data_buffer *payload;
    uint64_t due_ns;
    data_done_fn done;
    void *done_ctx;
};

struct delay_line {
    struct data_endpoint *data;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, quitting;
    struct delay_line_frame *first; /* by due_ns */
};

static void frame_drop(struct delay_line *w, struct delay_line_frame *f)
{
    if (f->payload)
        data_buffer_release(w->data, f->payload);
    if (f->done)
        f->done(f->done_ctx, HP_ELINK);
    free(f);
}

/* Posted under the lock, so that delay_line_forget never returns while its link is in use;
 * data_post does not block. */
static void *delay_line_thread(void *ctx)
{
    struct delay_line *w = ctx;
    pthread_setname_np(pthread_self(), "hp-delay");
    pthread_mutex_lock(&w->lock);
    while (!w->quitting) {
        struct delay_line_frame *f = w->first;
        if (!f) {
            pthread_cond_wait(&w->changed, &w->lock);
        } else if (env_now_ns(&env_real) < f->due_ns) {
            struct timespec until = {(time_t)(f->due_ns / 1000000000u),
                                     (long)(f->due_ns % 1000000000u)};
            pthread_cond_timedwait(&w->changed, &w->lock, &until);
        } else {
            w->first = f->next;
            data_post(f->link, &f->header, f->payload, f->done, f->done_ctx);
            free(f);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int delay_line_create(struct data_endpoint *data, struct delay_line **out, struct err *e)
{
    struct delay_line *w = calloc(1, sizeof *w);
    pthread_condattr_t attr;
    if (!w)
        return err_set(e, HP_ENOMEM, "no memory for a paced link");
    w->data = data;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    w->started = pthread_create(&w->thread, NULL, delay_line_thread, w) == 0;
    *out = w;
    if (w->started)
        return 0;
    delay_line_destroy(out);
    return err_set(e, HP_ENOMEM, "cannot start the thread of a paced link");
}

void delay_line_destroy(struct delay_line **pw)
{
    struct delay_line *w = *pw;
    *pw = NULL;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quitting = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (w->started)
        pthread_join(w->thread, NULL);
    while (w->first) {
        struct delay_line_frame *f = w->first;
        w->first = f->next;
        frame_drop(w, f);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void delay_line_post(struct delay_line *w, struct data_link *link, const struct frame_header *h,
                     struct data_buffer *payload, uint64_t due_ns, data_done_fn done,
                     void *done_ctx)
{
    struct delay_line_frame *f = malloc(sizeof *f);
    if (!f) {
        log_error("agent", "frame_lost", "reason=no_memory");
        if (payload)
            data_buffer_release(w->data, payload);
        if (done)
            done(done_ctx, HP_ENOMEM);
        return;
    }
    *f = (struct delay_line_frame){.link = link,
                                   .header = *h,
                                   .payload = payload,
                                   .due_ns = due_ns,
                                   .done = done,
                                   .done_ctx = done_ctx};
    pthread_mutex_lock(&w->lock);
    struct delay_line_frame **at = &w->first;
    while (*at && (*at)->due_ns <= due_ns)
        at = &(*at)->next;
    f->next = *at;
    *at = f;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void delay_line_forget(struct delay_line *w, struct data_link *link)
{
    pthread_mutex_lock(&w->lock);
    for (struct delay_line_frame **at = &w->first; *at;) {
        struct delay_line_frame *f = *at;
        if (f->link != link) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        frame_drop(w, f);
    }
    pthread_mutex_unlock(&w->lock);
}
