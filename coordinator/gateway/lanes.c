#include "coordinator/gateway/lanes.h"

#include <stdlib.h>

struct work_lane {
    struct piece *first, *last;
    int running, at_once;
};

enum { LANE_SMALL, LANE_LARGE, LANE_COUNT };

struct lanes {
    const struct requests *requests;
    struct work_lane lanes[LANE_COUNT];
    size_t waiting, bytes;
    bool closed;
};

struct lanes *lanes_create(const struct requests *requests)
{
    struct lanes *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->requests = requests;
    l->lanes[LANE_SMALL].at_once = LANES_SMALL_AT_ONCE;
    l->lanes[LANE_LARGE].at_once = 1;
    return l;
}

static struct work_lane *lane_of(struct lanes *l, const struct piece *p)
{
    return &l->lanes[p->bytes >= LANES_LARGE_BYTES ? LANE_LARGE : LANE_SMALL];
}

static void lanes_free_when_idle(struct lanes *l)
{
    if (l->closed && l->lanes[LANE_SMALL].running + l->lanes[LANE_LARGE].running == 0)
        free(l);
}

static struct piece *lane_take(struct lanes *l, struct work_lane *lane)
{
    struct piece *p = lane->first;
    lane->first = p->next;
    if (!lane->first)
        lane->last = NULL;
    l->waiting--;
    return p;
}

static void piece_end(struct piece *p, const struct err *why)
{
    p->lanes->bytes -= p->bytes;
    p->done(p, why);
}

static void piece_run(struct coord_work *w)
{
    struct piece *p = (struct piece *)w;
    p->run(p);
}

static void piece_worked(struct coord_work *w, bool dropped);

static void lane_go_on(struct lanes *l, struct work_lane *lane)
{
    while (lane->first && lane->running < lane->at_once) {
        struct piece *p = lane_take(l, lane);
        struct err e = {0};
        p->work = (struct coord_work){.run = piece_run, .done = piece_worked};
        lane->running++;
        if (l->requests->work(l->requests->ctx, NULL, &p->work, &e) < 0) {
            lane->running--;
            piece_end(p, &e);
        }
    }
}

static void piece_worked(struct coord_work *w, bool dropped)
{
    static const struct err ending = {.code = HP_ECANCELED,
                                      .text = "the coordinator is stopping: try again later"};
    struct piece *p = (struct piece *)w;
    struct lanes *l = p->lanes;
    struct work_lane *lane = lane_of(l, p);
    lane->running--;
    piece_end(p, dropped ? &ending : NULL);
    if (!l->closed)
        lane_go_on(l, lane);
    lanes_free_when_idle(l);
}

int lanes_add(struct lanes *l, struct piece *p, size_t bytes, struct err *e)
{
    if (l->closed || l->waiting >= LANES_MAX_WAITING || l->bytes + bytes > LANES_MAX_BYTES)
        return err_set(e, HP_EBUSY, "too many prompts wait to be read: try again later");
    p->lanes = l;
    p->bytes = bytes;
    p->next = NULL;
    struct work_lane *lane = lane_of(l, p);
    *(lane->last ? &lane->last->next : &lane->first) = p;
    lane->last = p;
    l->waiting++;
    l->bytes += bytes;
    lane_go_on(l, lane);
    return 0;
}

struct dropped_tree {
    struct piece piece; /* the first */
    json_t *root;
};

static void tree_run(struct piece *p)
{
    struct dropped_tree *d = (struct dropped_tree *)p;
    json_decref(d->root);
    d->root = NULL;
}

static void tree_done(struct piece *p, const struct err *why)
{
    (void)why;
    tree_run(p); /* where no thread took it */
    free(p);
}

void lanes_drop_tree(struct lanes *l, json_t **root, size_t bytes)
{
    bool large = l && *root && bytes >= LANES_LARGE_BYTES;
    struct dropped_tree *d = large ? malloc(sizeof *d) : NULL;
    struct err busy;
    if (d)
        *d = (struct dropped_tree){.piece = {.run = tree_run, .done = tree_done}, .root = *root};
    if (!d || lanes_add(l, &d->piece, bytes, &busy) < 0) {
        json_decref(*root);
        free(d);
    }
    *root = NULL;
}

void lanes_close(struct lanes **out)
{
    static const struct err ending = {.code = HP_ECANCELED,
                                      .text = "the gateway is stopping: try again later"};
    struct lanes *l = *out;
    *out = NULL;
    if (!l)
        return;
    l->closed = true;
    for (int i = 0; i < LANE_COUNT; i++)
        while (l->lanes[i].first)
            piece_end(lane_take(l, &l->lanes[i]), &ending);
    lanes_free_when_idle(l);
}
