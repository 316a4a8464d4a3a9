#include "planners/dispatch/sim_devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/vector.h"
#include "planners/dispatch/events.h"

/* A batch on its way. Slots are used again. */
struct sim_flight {
    struct dispatch_path path;
    struct dispatch_request *requests;
    int model, n, room;
    uint32_t batch;
    int64_t began_ns; /* of the work that is under way */
    int next_free;    /* while unused */
};

/* What happens to a batch at a stage. Work is begun by an event of its own, at its reserved start
 * or when its input is there, so that work that was reserved later but comes earlier finds the
 * device free. */
enum device_event_kind { MOVE, MOVED, START, COMPUTED };

struct sim_devices {
    const struct dispatch_topology *t;
    struct dispatch *d;
    struct simulate_result *result;
    double noise, jitter;
    uint64_t random;
    struct sim_flight *flights;
    int n_flights, room_flights, first_free;
    struct events events;
    int64_t *share_free_ns, *up_free_ns, *down_free_ns;
    int64_t last_ns;
    bool out_of_memory;
};

int sim_devices_create(const struct dispatch_topology *t, struct dispatch *d,
                       const struct simulate_options *o, struct simulate_result *result,
                       struct sim_devices **out, struct err *e)
{
    struct sim_devices *im = calloc(1, sizeof *im);
    if (im) {
        im->t = t;
        im->d = d;
        im->result = result;
        im->noise = o->latency_noise;
        im->jitter = o->network_jitter;
        im->random = o->seed ^ UINT64_C(0xA0761D6478BD642F);
        im->first_free = -1;
        im->share_free_ns = calloc((size_t)t->n_shares + 1, sizeof *im->share_free_ns);
        im->up_free_ns = calloc((size_t)t->n_nodes + 1, sizeof *im->up_free_ns);
        im->down_free_ns = calloc((size_t)t->n_nodes + 1, sizeof *im->down_free_ns);
    }
    if (!im || !im->share_free_ns || !im->up_free_ns || !im->down_free_ns) {
        sim_devices_destroy(&im);
        return err_set(e, HP_ENOMEM, "out of memory for the simulated devices");
    }
    *out = im;
    return 0;
}

void sim_devices_destroy(struct sim_devices **ip)
{
    struct sim_devices *im = *ip;
    if (!im)
        return;
    for (int i = 0; i < im->n_flights; i++)
        free(im->flights[i].requests);
    free(im->flights);
    events_free(&im->events);
    free(im->share_free_ns);
    free(im->up_free_ns);
    free(im->down_free_ns);
    free(im);
    *ip = NULL;
}

/* `planned` times a factor around 1 (normal, within 0.2 to 3). */
static int64_t time_vary(struct sim_devices *im, int64_t planned, double deviation)
{
    if (deviation <= 0)
        return planned;
    double u = 1 - random_unit(&im->random), v = random_unit(&im->random);
    double factor = 1 + deviation * sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
    return (int64_t)((double)planned * fmin(3, fmax(0.2, factor)));
}

static int64_t time_later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void event_add(struct sim_devices *im, int64_t at_ns, enum device_event_kind what,
                      int flight, int stage)
{
    if (!events_add(&im->events, at_ns, (int)what, flight, stage))
        im->out_of_memory = true;
}

static void flight_compute(struct sim_devices *im, int flight, int stage, int64_t now_ns)
{
    struct sim_flight *f = &im->flights[flight];
    const struct dispatch_leg *leg = &f->path.legs[stage];
    int64_t start = time_later(now_ns, im->share_free_ns[leg->share]);
    int64_t took = time_vary(im, leg->end_ns - leg->start_ns, im->noise);
    const struct dispatch_share *share = &im->t->shares[leg->share];
    im->result->busy_s[share->kind] += (double)took * 1e-9 * share->part;
    im->share_free_ns[leg->share] = start + took;
    f->began_ns = start;
    event_add(im, start + took, COMPUTED, flight, stage);
}

static void flight_move(struct sim_devices *im, int flight, int stage, int64_t now_ns)
{
    struct sim_flight *f = &im->flights[flight];
    const struct dispatch_leg *leg = &f->path.legs[stage];
    int from = im->t->shares[f->path.legs[stage - 1].share].node,
        to = im->t->shares[leg->share].node;
    int64_t start = time_later(now_ns, time_later(im->up_free_ns[from], im->down_free_ns[to]));
    int64_t end = start + time_vary(im, leg->transfer_end_ns - leg->transfer_start_ns, im->jitter);
    im->up_free_ns[from] = im->down_free_ns[to] = end;
    f->began_ns = start;
    event_add(im, end, MOVED, flight, stage);
}

int sim_devices_send(struct sim_devices *im, const struct dispatch_action *a)
{
    int i = im->first_free;
    if (i >= 0) {
        im->first_free = im->flights[i].next_free;
    } else {
        if (!vector_push(im->flights, im->n_flights, im->room_flights, (struct sim_flight){0}))
            return HP_ENOMEM;
        i = im->n_flights - 1;
    }
    struct sim_flight *f = &im->flights[i];
    if (f->room < a->n) {
        free(f->requests);
        f->room = 0;
        if (!(f->requests = malloc((size_t)a->n * sizeof *f->requests)))
            return HP_ENOMEM;
        f->room = a->n;
    }
    memcpy(f->requests, a->requests, (size_t)a->n * sizeof *f->requests);
    f->path = *a->path;
    f->model = a->model;
    f->n = a->n;
    f->batch = a->batch;
    event_add(im, f->path.legs[0].start_ns, START, i, 0);
    return im->out_of_memory ? HP_ENOMEM : 0;
}

static void flight_finish(struct sim_devices *im, int flight, int64_t now_ns)
{
    struct sim_flight *f = &im->flights[flight];
    for (int i = 0; i < f->n; i++)
        simulate_count(&im->result->models[f->model], now_ns - f->requests[i].arrival_ns,
                       now_ns <= f->requests[i].deadline_ns);
    im->last_ns = time_later(im->last_ns, now_ns);
    f->next_free = im->first_free;
    im->first_free = flight;
}

void sim_devices_step(struct sim_devices *im)
{
    struct dispatch_event ev = events_take(&im->events);
    int flight = ev.a, stage = ev.b;
    struct sim_flight *f = &im->flights[flight];
    const struct dispatch_leg *leg = &f->path.legs[stage];
    const struct dispatch_pipeline *pl = &im->t->pipelines[f->path.pipeline];
    struct dispatch_report r = {.batch = f->batch,
                                .share = leg->share,
                                .from_share = -1,
                                .planned_start_ns = leg->start_ns,
                                .start_ns = f->began_ns,
                                .end_ns = ev.at_ns};
    switch ((enum device_event_kind)ev.kind) {
    case START: flight_compute(im, flight, stage, ev.at_ns); break;
    case COMPUTED:
        dispatch_correct(im->d, &r);
        if (stage + 1 == pl->n_stages)
            flight_finish(im, flight, ev.at_ns);
        else
            event_add(im, time_later(ev.at_ns, f->path.legs[stage + 1].transfer_start_ns), MOVE,
                      flight, stage + 1);
        break;
    case MOVE: flight_move(im, flight, stage, ev.at_ns); break;
    case MOVED:
        r.from_share = f->path.legs[stage - 1].share;
        r.planned_start_ns = leg->transfer_start_ns;
        dispatch_correct(im->d, &r);
        event_add(im, time_later(ev.at_ns + pl->stages[stage - 1].hop_latency_ns, leg->start_ns),
                  START, flight, stage);
        break;
    }
}

int64_t sim_devices_next(const struct sim_devices *im)
{
    return events_next_ns(&im->events);
}
int64_t sim_devices_last(const struct sim_devices *im)
{
    return im->last_ns;
}
