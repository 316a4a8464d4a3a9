#include "hpctl/infer_drawing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/map.h"
#include "hpctl/shown.h"
#include "hpctl/timeline_files.h"

enum { LANE_NAME = 160 };

/* Planned and, below it, measured: of a share, an uplink or a downlink. */
struct lane_pair {
    char name[LANE_NAME];
    int planned, measured;
    UT_hash_handle hh;
};

struct infer_drawing {
    const struct infer_run *run;
    struct timeline t;
    struct lane_pair *pairs;
    double offset_s; /* the coordinator's clock is ahead of ours by so much */
    bool failed;
};

/* ---- lanes ---- */

static const struct lane_pair *pair_named(struct infer_drawing *d, const char *group,
                                          const char *name)
{
    struct lane_pair *p;
    HASH_FIND_STR(d->pairs, name, p);
    if (p)
        return p;
    p = calloc(1, sizeof *p);
    if (!p || d->t.n_lanes + 2 > TIMELINE_MAX_LANES) {
        free(p);
        d->failed = true;
        return NULL;
    }
    snprintf(p->name, sizeof p->name, "%s", name);
    p->planned = timeline_add_lane(&d->t, group, shown_of("%s, planned", name).s);
    p->measured = timeline_add_lane(&d->t, group, shown_of("%s, measured", name).s);
    HASH_ADD_STR(d->pairs, name, p);
    if (!map_has_added(p)) {
        free(p);
        d->failed = true;
        return NULL;
    }
    return p;
}

/* What the coordinator says of a share, while its plan is the one that served before the load. */
static const json_t *share_said(const struct infer_drawing *d, uint64_t plan, int share)
{
    const json_t *current = json_object_get(d->run->target->pools, "current");
    bool known = (uint64_t)number_member(current, "number") == plan;
    return known ? json_array_get(json_object_get(current, "shares"), (size_t)share) : NULL;
}

static struct shown share_name(const struct infer_drawing *d, uint64_t plan, int share)
{
    const json_t *said = share_said(d, plan, share);
    if (!said)
        return shown_of("plan %llu, share %d", (unsigned long long)plan, share);
    return shown_of("%s share %d: %s, stage %d", string_member(said, "on"), share,
                    string_member(said, "model"), (int)number_member(said, "stage"));
}

/* "a0" of "a0/cpu:0"; of a plan that is not known each share stands for itself. */
static struct shown agent_name(const struct infer_drawing *d, uint64_t plan, int share)
{
    struct shown s = share_name(d, plan, share);
    if (share_said(d, plan, share))
        s.s[strcspn(s.s, "/ ")] = '\0';
    return s;
}

/* All of the plan's shares in its order, the idle ones too. */
static void shares_prepare(struct infer_drawing *d)
{
    const json_t *current = json_object_get(d->run->target->pools, "current");
    uint64_t plan = (uint64_t)number_member(current, "number");
    size_t n = json_array_size(json_object_get(current, "shares"));
    for (size_t i = 0; i < n && !d->failed; i++)
        pair_named(d, "shares", share_name(d, plan, (int)i).s);
}

/* ---- batches ---- */

static void pair_draw(struct infer_drawing *d, const struct lane_pair *p, const double planned_s[2],
                      const double measured_s[2], double zero_s, int colour, const char *what)
{
    if (!p)
        return;
    if (planned_s[1] > planned_s[0])
        timeline_add(&d->t, p->planned, zero_s + planned_s[0], zero_s + planned_s[1], colour,
                     "%s, planned", what);
    if (measured_s[1] > measured_s[0])
        timeline_add(&d->t, p->measured, zero_s + measured_s[0], zero_s + measured_s[1], colour,
                     "%s", what);
}

static void batch_draw(struct infer_drawing *d, size_t index)
{
    const struct infer_result *r = &d->run->results[index];
    int model = d->run->plan->requests[index].model;
    double zero_s = r->came_s - d->offset_s;
    struct shown what = shown_of("batch %u of %s, %d samples", r->batch,
                                 d->run->target->models[model].name, r->samples);
    for (int i = 0; i < r->n_stages; i++) {
        const struct infer_stage *s = &r->stages[i];
        pair_draw(d, pair_named(d, "shares", share_name(d, r->plan, s->share).s), s->planned_s,
                  s->ran_s, zero_s, model, what.s);
        if (i == 0 || s->planned_transfer_s[1] <= s->planned_transfer_s[0])
            continue;
        double moved_s[2] = {s[-1].ran_s[1], s->arrived_s};
        struct shown up = shown_of("%s uplink", agent_name(d, r->plan, s[-1].share).s),
                     down = shown_of("%s downlink", agent_name(d, r->plan, s->share).s);
        pair_draw(d, pair_named(d, "links", up.s), s->planned_transfer_s, moved_s, zero_s, model,
                  what.s);
        pair_draw(d, pair_named(d, "links", down.s), s->planned_transfer_s, moved_s, zero_s, model,
                  what.s);
    }
}

struct batch_of {
    uint64_t plan;
    uint32_t batch;
    size_t request;
};

static int batch_order(const void *a, const void *b)
{
    const struct batch_of *x = a, *y = b;
    if (x->plan != y->plan)
        return x->plan < y->plan ? -1 : 1;
    if (x->batch != y->batch)
        return x->batch < y->batch ? -1 : 1;
    return x->request < y->request ? -1 : x->request > y->request;
}

/* Each batch once, though each of its requests tells of it. */
static void batches_draw(struct infer_drawing *d, struct batch_of *room)
{
    size_t n = 0;
    for (size_t i = 0; i < d->run->plan->n; i++) {
        const struct infer_result *r = &d->run->results[i];
        if (r->outcome == LOAD_DONE)
            room[n++] = (struct batch_of){r->plan, r->batch, i};
    }
    qsort(room, n, sizeof *room, batch_order);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || room[i].plan != room[i - 1].plan || room[i].batch != room[i - 1].batch)
            batch_draw(d, room[i].request);
}

/* ---- requests ---- */

struct request_lane {
    int lane;
    double free_s; /* its last request ended then */
};

/* The first lane that is free at this time, or a new one; -1: too many. */
static int request_lane_at(struct infer_drawing *d, struct request_lane *lanes, int *n, double at_s,
                           double end_s)
{
    int i = 0;
    while (i < *n && lanes[i].free_s > at_s)
        i++;
    if (i == *n && (*n == TIMELINE_MAX_LANES || d->t.n_lanes == TIMELINE_MAX_LANES))
        return -1;
    if (i == *n)
        lanes[(*n)++].lane = timeline_add_lane(&d->t, "requests", shown_of("%d", i + 1).s);
    lanes[i].free_s = end_s;
    return lanes[i].lane;
}

static void infer_request_draw(struct infer_drawing *d, size_t i, int lane)
{
    const struct infer_result *r = &d->run->results[i];
    const struct infer_arrival *a = &d->run->plan->requests[i];
    const char *model = d->run->target->models[a->model].name;
    double zero_s = r->came_s - d->offset_s,
           end_s = r->outcome == LOAD_OPEN ? d->run->seconds : r->end_s;
    if (r->outcome != LOAD_DONE) {
        timeline_add(&d->t, lane, a->at_s, fmax(end_s, a->at_s), TIMELINE_STALL,
                     "request %zu of %s: %s", i, model, load_outcomes[r->outcome]);
        return;
    }
    double batched_s = fmin(fmax(zero_s + r->batched_s, a->at_s), end_s);
    double answered_s = fmin(fmax(zero_s + r->total_s, batched_s), end_s);
    timeline_add(&d->t, lane, a->at_s, batched_s, TIMELINE_STALL, "request %zu of %s waits", i,
                 model);
    timeline_add(&d->t, lane, batched_s, answered_s, a->model, "request %zu of %s in batch %u", i,
                 model, r->batch);
    timeline_add(&d->t, lane, answered_s, end_s, TIMELINE_STALL, "request %zu of %s is answered", i,
                 model);
}

static void infer_requests_draw(struct infer_drawing *d, struct request_lane *lanes)
{
    int n = 0;
    for (size_t i = 0; i < d->run->plan->n; i++) {
        const struct infer_result *r = &d->run->results[i];
        double at_s = d->run->plan->requests[i].at_s;
        if (r->outcome == LOAD_UNSENT || r->outcome == LOAD_FAILED)
            continue;
        double end_s = r->outcome == LOAD_OPEN ? d->run->seconds : r->end_s;
        int lane = request_lane_at(d, lanes, &n, at_s, end_s);
        if (lane >= 0)
            infer_request_draw(d, i, lane);
    }
}

/* ---- the picture ---- */

static double offset_of(const struct infer_run *run)
{
    double least = INFINITY;
    for (size_t i = 0; i < run->plan->n; i++)
        if (run->results[i].outcome == LOAD_DONE)
            least = fmin(least, run->results[i].came_s - run->results[i].sent_s);
    return isfinite(least) ? least : 0;
}

static void drawing_free(struct infer_drawing *d)
{
    struct lane_pair *p = d->pairs;
    HASH_CLEAR(hh, d->pairs);
    for (struct lane_pair *next; p; p = next) {
        next = p->hh.next;
        free(p);
    }
    timeline_free(&d->t);
}

int infer_draw(const struct infer_run *run, const char *title, const char *svg, const char *trace,
               struct err *e)
{
    struct infer_drawing d = {.run = run, .offset_s = offset_of(run)};
    struct batch_of *room = malloc(run->plan->n * sizeof *room);
    struct request_lane *lanes = calloc(TIMELINE_MAX_LANES, sizeof *lanes);
    int rc = room && lanes ? 0 : err_no_memory(e, "a picture");
    d.t.title = title;
    d.t.legend = "colours: models; grey: waiting, or not answered";
    if (rc == 0) {
        shares_prepare(&d);
        batches_draw(&d, room);
        infer_requests_draw(&d, lanes);
    }
    if (d.failed)
        rc = err_set(e, HP_ELIMIT,
                     "a picture has up to %d lanes: fewer --seconds, or less memory is there than "
                     "it takes",
                     TIMELINE_MAX_LANES);
    rc = rc < 0 ? rc : timeline_save(&d.t, svg, trace, e);
    free(room);
    free(lanes);
    drawing_free(&d);
    return rc;
}
