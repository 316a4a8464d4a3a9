#include "coordinator/gateway/work.h"

#include <stdlib.h>

struct lane {
    struct work *first, *last;
    int running, at_once;
};

enum { LANE_SMALL, LANE_LARGE, LANES };

struct work_queue {
    uv_loop_t *loop;
    struct lane lanes[LANES];
    size_t waiting, bytes;
    bool closed;
};

struct work_queue *work_queue_create(uv_loop_t *loop)
{
    struct work_queue *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->loop = loop;
    q->lanes[LANE_SMALL].at_once = WORK_SMALL_AT_ONCE;
    q->lanes[LANE_LARGE].at_once = 1;
    return q;
}

static struct lane *lane_of(struct work_queue *q, const struct work *w)
{
    return &q->lanes[w->bytes >= WORK_LARGE_BYTES ? LANE_LARGE : LANE_SMALL];
}

static void on_run(uv_work_t *request)
{
    struct work *w = request->data;
    w->run(w);
}

static void queue_free_when_idle(struct work_queue *q)
{
    if (q->closed && q->lanes[LANE_SMALL].running + q->lanes[LANE_LARGE].running == 0)
        free(q);
}

static struct work *lane_take(struct work_queue *q, struct lane *l)
{
    struct work *w = l->first;
    l->first = w->next;
    if (!l->first)
        l->last = NULL;
    q->waiting--;
    return w;
}

static void lane_go_on(struct work_queue *q, struct lane *l);

static void on_done(uv_work_t *request, int status)
{
    struct work *w = request->data;
    struct work_queue *q = w->queue;
    struct lane *l = lane_of(q, w);
    l->running--;
    q->bytes -= w->bytes;
    w->done(w, status == 0);
    if (!q->closed)
        lane_go_on(q, l);
    queue_free_when_idle(q);
}

static void lane_go_on(struct work_queue *q, struct lane *l)
{
    while (l->first && l->running < l->at_once) {
        struct work *w = lane_take(q, l);
        l->running++;
        w->request.data = w;
        uv_queue_work(q->loop, &w->request, on_run, on_done);
    }
}

int work_submit(struct work_queue *q, struct work *w, size_t bytes, struct err *e)
{
    if (q->closed || q->waiting >= WORK_MAX_WAITING || q->bytes + bytes > WORK_MAX_BYTES)
        return err_set(e, HP_EBUSY, "too many prompts wait to be read: try again later");
    w->queue = q;
    w->bytes = bytes;
    w->next = NULL;
    struct lane *l = lane_of(q, w);
    *(l->last ? &l->last->next : &l->first) = w;
    l->last = w;
    q->waiting++;
    q->bytes += bytes;
    lane_go_on(q, l);
    return 0;
}

void work_queue_close(struct work_queue **out)
{
    struct work_queue *q = *out;
    *out = NULL;
    if (!q)
        return;
    q->closed = true;
    for (int i = 0; i < LANES; i++)
        while (q->lanes[i].first) {
            struct work *w = lane_take(q, &q->lanes[i]);
            w->done(w, false);
        }
    queue_free_when_idle(q);
}
