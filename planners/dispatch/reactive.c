#include "planners/dispatch/reactive.h"

#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "planners/dispatch/events.h"

struct reactive_request {
    int64_t arrival_ns, deadline_ns; /* of the whole way */
    int64_t due_ns;                  /* of this pool */
    int node;                        /* where its input lies; -1: at the front end */
};

struct reactive_pool {
    struct reactive_request *items; /* waiting: items[first .. first + n) */
    int first, n, room;
    int64_t part_ns;  /* of the SLO */
    int64_t *free_ns; /* [share] */
    int n_shares, cursor;
    int64_t check_ns; /* an event is due then; INT64_MAX: none */
};

struct reactive_flight {
    struct reactive_request *requests;
    int n, next_free;
};

enum reactive_event_kind { CHECK, DONE };

struct reactive {
    const struct dispatch_topology *t;
    struct simulate_result *result;
    struct reactive_pool *pools; /* [pipeline * PLAN_POOLS_MAX_STAGES + stage] */
    double *credit;              /* [pipeline]: of the shares of the model's requests */
    struct reactive_flight *flights;
    int n_flights, room_flights, first_free;
    struct events events;
    int64_t *up_free_ns, *down_free_ns;
    int64_t last_ns;
    bool out_of_memory;
};

static bool pool_push(struct reactive_pool *p, const struct reactive_request *r)
{
    if (p->first + p->n == p->room) {
        if (p->room >= 2 * (p->n + 1)) {
            memmove(p->items, p->items + p->first, (size_t)p->n * sizeof *p->items);
        } else {
            int more = p->room ? 2 * p->room : 64;
            struct reactive_request *bigger = malloc((size_t)more * sizeof *bigger);
            if (!bigger)
                return false;
            if (p->n > 0)
                memcpy(bigger, p->items + p->first, (size_t)p->n * sizeof *bigger);
            free(p->items);
            p->items = bigger;
            p->room = more;
        }
        p->first = 0;
    }
    p->items[p->first + p->n++] = *r;
    return true;
}

static int pool_init(struct reactive *w, int pipeline, int stage)
{
    const struct dispatch_pipeline *pl = &w->t->pipelines[pipeline];
    struct reactive_pool *p = &w->pools[pipeline * PLAN_POOLS_MAX_STAGES + stage];
    double total = 0, mine = 0;
    for (int s = 0; s < pl->n_stages; s++) {
        double cost = (double)(pl->stages[s].compute_ns[pl->batch] +
                               (s > 0 ? pl->stages[s - 1].transfer_ns[pl->batch] : 0));
        total += cost;
        if (s == stage)
            mine = cost;
    }
    p->part_ns = (int64_t)((double)w->t->models[pl->model].slo_ns * mine / total);
    p->n_shares = pl->stages[stage].n_shares;
    p->free_ns = calloc((size_t)p->n_shares, sizeof *p->free_ns);
    p->check_ns = INT64_MAX;
    return p->free_ns ? 0 : HP_ENOMEM;
}

static int free_share(const struct reactive_pool *p, int64_t now_ns, int64_t *soonest_ns)
{
    *soonest_ns = INT64_MAX;
    for (int i = 0; i < p->n_shares; i++) {
        int at = (p->cursor + i) % p->n_shares;
        if (p->free_ns[at] <= now_ns)
            return at;
        if (p->free_ns[at] < *soonest_ns)
            *soonest_ns = p->free_ns[at];
    }
    return -1;
}

static void check_at(struct reactive *w, int pool, int64_t at_ns)
{
    struct reactive_pool *p = &w->pools[pool];
    if (at_ns >= p->check_ns)
        return;
    p->check_ns = at_ns;
    if (!events_add(&w->events, at_ns, CHECK, pool, 0))
        w->out_of_memory = true;
}

static int flight_take(struct reactive *w, const struct reactive_request *requests, int n)
{
    int i = w->first_free;
    if (i >= 0) {
        w->first_free = w->flights[i].next_free;
    } else {
        if (!vector_reserve(w->flights, w->room_flights, w->n_flights + 1))
            return -1;
        i = w->n_flights++;
    }
    struct reactive_flight *f = &w->flights[i];
    f->n = n;
    f->requests = malloc((size_t)n * sizeof *f->requests);
    if (!f->requests)
        return -1;
    memcpy(f->requests, requests, (size_t)n * sizeof *requests);
    return i;
}

/* Moves a batch's inputs from wherever they lie, computes, and notes when that ends. */
static void pool_begin(struct reactive *w, int pool, int share, int n, int64_t now_ns)
{
    int pipeline = pool / PLAN_POOLS_MAX_STAGES, stage = pool % PLAN_POOLS_MAX_STAGES;
    const struct dispatch_pipeline *pl = &w->t->pipelines[pipeline];
    const struct dispatch_stage *s = &pl->stages[stage];
    const struct dispatch_share *device = &w->t->shares[s->first_share + share];
    struct reactive_pool *p = &w->pools[pool];
    struct reactive_request *batch = p->items + p->first;
    int64_t ready_ns = now_ns;
    for (int i = 0; stage > 0 && i < n;) {
        int from = batch[i].node, run = 1;
        while (i + run < n && batch[i + run].node == from)
            run++;
        /* Each direction serves in turn; what has left one NIC waits in the network for the other,
         * and holds up nobody behind it.
         */
        int64_t took = pl->stages[stage - 1].transfer_ns[run];
        int64_t start = now_ns > w->up_free_ns[from] ? now_ns : w->up_free_ns[from];
        w->up_free_ns[from] = start + took;
        start = start > w->down_free_ns[device->node] ? start : w->down_free_ns[device->node];
        int64_t end = w->down_free_ns[device->node] = start + took;
        end += pl->stages[stage - 1].hop_latency_ns;
        ready_ns = end > ready_ns ? end : ready_ns;
        i += run;
    }
    int64_t end_ns = ready_ns + s->compute_ns[n];
    for (int i = 0; i < n; i++)
        batch[i].node = device->node;
    int flight = flight_take(w, batch, n);
    if (flight < 0 || !events_add(&w->events, end_ns, DONE, pool, flight))
        w->out_of_memory = true;
    w->result->busy_s[device->kind] += (double)s->compute_ns[n] * 1e-9 * device->part;
    w->result->models[pl->model].batches += stage == 0;
    p->free_ns[share] = end_ns;
    p->cursor = (share + 1) % p->n_shares;
    p->first += n;
    p->n -= n;
}

/* Drops or begins until the pool can do nothing more now. */
static void pool_check(struct reactive *w, int pool, int64_t now_ns)
{
    const struct dispatch_pipeline *pl = &w->t->pipelines[pool / PLAN_POOLS_MAX_STAGES];
    int stage = pool % PLAN_POOLS_MAX_STAGES;
    const struct dispatch_stage *s = &pl->stages[stage];
    struct reactive_pool *p = &w->pools[pool];
    while (p->n > 0) {
        int64_t soonest_ns;
        int share = free_share(p, now_ns, &soonest_ns);
        if (share < 0) {
            check_at(w, pool, soonest_ns);
            return;
        }
        const struct reactive_request *oldest = &p->items[p->first];
        int64_t due_ns = oldest->due_ns, move_ns = 0;
        int n = pl->batch;
        for (; n > 0; n--) {
            move_ns = stage > 0 ? pl->stages[stage - 1].transfer_ns[n] +
                                      pl->stages[stage - 1].hop_latency_ns
                                : 0;
            if (now_ns + move_ns + s->compute_ns[n] <= due_ns)
                break;
        }
        if (n == 0) {
            w->result->models[pl->model].dropped++;
            p->first++;
            p->n--;
            continue;
        }
        pool_begin(w, pool, share, n < p->n ? n : p->n, now_ns);
    }
}

static void flight_done(struct reactive *w, int pool, int flight, int64_t now_ns)
{
    const struct dispatch_pipeline *pl = &w->t->pipelines[pool / PLAN_POOLS_MAX_STAGES];
    struct reactive_flight *f = &w->flights[flight];
    bool last = pool % PLAN_POOLS_MAX_STAGES == pl->n_stages - 1;
    for (int i = 0; i < f->n; i++) {
        struct reactive_request *r = &f->requests[i];
        if (last) {
            simulate_count(&w->result->models[pl->model], now_ns - r->arrival_ns,
                           now_ns <= r->deadline_ns);
            continue;
        }
        r->due_ns += w->pools[pool + 1].part_ns;
        if (!pool_push(&w->pools[pool + 1], r))
            w->out_of_memory = true;
    }
    free(f->requests);
    f->requests = NULL;
    f->next_free = w->first_free;
    w->first_free = flight;
    if (!last)
        pool_check(w, pool + 1, now_ns);
    pool_check(w, pool, now_ns);
    w->last_ns = now_ns;
}

static void pass_time(struct reactive *w, int64_t until_ns)
{
    while (w->events.n > 0 && events_next_ns(&w->events) <= until_ns) {
        struct dispatch_event ev = events_take(&w->events);
        if (ev.kind == DONE) {
            flight_done(w, ev.a, ev.b, ev.at_ns);
        } else {
            if (w->pools[ev.a].check_ns == ev.at_ns)
                w->pools[ev.a].check_ns = INT64_MAX;
            pool_check(w, ev.a, ev.at_ns);
        }
    }
}

/* The pipeline that has had least of its part of the model's requests, among those whose first pool
 * has a free share if there are any. */
static int turn_of(struct reactive *w, const struct dispatch_model *m, int64_t now_ns)
{
    int best = -1;
    bool best_free = false;
    for (int i = m->first_pipeline; i < m->first_pipeline + m->n_pipelines; i++) {
        int64_t soonest_ns;
        bool is_free = free_share(&w->pools[i * PLAN_POOLS_MAX_STAGES], now_ns, &soonest_ns) >= 0;
        w->credit[i] += w->t->pipelines[i].rate / m->rate;
        if (best < 0 || (is_free && !best_free) ||
            (is_free == best_free && w->credit[i] > w->credit[best])) {
            best = i;
            best_free = is_free;
        }
    }
    if (best >= 0)
        w->credit[best] -= 1;
    return best;
}

static int run_stream(struct reactive *w, arrival_next_fn next, void *next_ctx, struct err *e)
{
    struct arrival a;
    int rc;
    int64_t first_ns = -1;
    while ((rc = next(next_ctx, &a, e)) > 0) {
        const struct dispatch_model *m = &w->t->models[a.model];
        if (first_ns < 0)
            first_ns = a.at_ns;
        pass_time(w, a.at_ns);
        w->result->models[a.model].arrived++;
        int pipeline = turn_of(w, m, a.at_ns);
        if (pipeline < 0) {
            w->result->models[a.model].dropped++;
            continue;
        }
        int pool = pipeline * PLAN_POOLS_MAX_STAGES;
        struct reactive_request r = {a.at_ns, a.at_ns + m->slo_ns, a.at_ns + w->pools[pool].part_ns,
                                     -1};
        if (!pool_push(&w->pools[pool], &r))
            w->out_of_memory = true;
        pool_check(w, pool, a.at_ns);
        if (w->out_of_memory)
            return err_set(e, HP_ENOMEM, "out of memory while simulating");
    }
    if (rc < 0)
        return rc;
    pass_time(w, INT64_MAX - 1);
    w->result->span_s =
        first_ns >= 0 && w->last_ns > first_ns ? (double)(w->last_ns - first_ns) * 1e-9 : 0;
    return 0;
}

int simulate_reactive(const struct dispatch_topology *t, const struct simulate_options *o,
                      arrival_next_fn next, void *next_ctx, struct simulate_result *out,
                      struct err *e)
{
    struct reactive w = {.t = t, .result = out, .first_free = -1};
    (void)o; /* noise is for the scheduler that is corrected by reports */
    w.pools = calloc((size_t)(t->n_pipelines + 1) * PLAN_POOLS_MAX_STAGES, sizeof *w.pools);
    w.credit = calloc((size_t)t->n_pipelines + 1, sizeof *w.credit);
    w.up_free_ns = calloc((size_t)t->n_nodes + 1, sizeof *w.up_free_ns);
    w.down_free_ns = calloc((size_t)t->n_nodes + 1, sizeof *w.down_free_ns);
    bool good = w.pools && w.credit && w.up_free_ns && w.down_free_ns;
    for (int i = 0; good && i < t->n_pipelines; i++)
        for (int s = 0; good && s < t->pipelines[i].n_stages; s++)
            good = pool_init(&w, i, s) == 0;
    int rc = good ? run_stream(&w, next, next_ctx, e)
                  : err_set(e, HP_ENOMEM, "out of memory while simulating");
    for (int i = 0; w.pools && i < t->n_pipelines * PLAN_POOLS_MAX_STAGES; i++) {
        free(w.pools[i].items);
        free(w.pools[i].free_ns);
    }
    for (int i = 0; i < w.n_flights; i++)
        free(w.flights[i].requests);
    free(w.flights);
    free(w.pools);
    free(w.credit);
    free(w.up_free_ns);
    free(w.down_free_ns);
    events_free(&w.events);
    return rc;
}
