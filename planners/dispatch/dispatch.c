#include "planners/dispatch/dispatch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planners/dispatch/reservations.h"

enum { QUEUE_LIMIT = 65536 };

/* A hole between reservations of one share, long enough for one request. */
struct gap {
    int at; /* in the pool */
    int64_t from_ns, to_ns;
};

/* The shares that run one stage. free_ns stands apart from the lines because every probe looks
 * through it. */
struct pool {
    int n, first_share;
    int cursor; /* where the search for a free share begins: behind the one taken last, so that they
                   are taken in turn */
    int64_t *free_ns;    /* [n]: end of the last reservation */
    struct line *lines;  /* [n] */
    int *nodes;          /* [n] */
    int64_t shortest_ns; /* computing of one request */
    int64_t lead_ns;     /* no work that is dispatched now arrives before now + this */
    struct gap *gaps;
    int n_gaps, room_gaps;
};

/* Requests of one model, oldest first: items[first .. first + n). */
struct queue {
    struct dispatch_request *items;
    int first, n, room;
    int want;         /* not worth looking again before so many wait ... */
    int64_t until_ns; /* ... or this time has come */
};

struct dispatch {
    const struct dispatch_topology *t;
    struct pool *pools;               /* [pipeline * PLAN_POOLS_MAX_STAGES + stage] */
    struct line *uplinks, *downlinks; /* [node] */
    struct queue *queues;             /* [model] */
    int *pool_of_share;               /* [share]: index into pools */
    int queue_limit;
    uint32_t next_batch;
    uint64_t probes;
};

static struct pool *pool_of(const struct dispatch *d, int pipeline, int stage)
{
    return &d->pools[pipeline * PLAN_POOLS_MAX_STAGES + stage];
}

/* ---- life
 * -------------------------------------------------------------------------------------------------------------
 */

static int pool_init(const struct dispatch *d, int pipeline, int stage)
{
    const struct dispatch_pipeline *pl = &d->t->pipelines[pipeline];
    const struct dispatch_stage *s = &pl->stages[stage];
    struct pool *p = pool_of(d, pipeline, stage);
    p->n = s->n_shares;
    p->first_share = s->first_share;
    p->free_ns = malloc((size_t)p->n * sizeof *p->free_ns);
    p->lines = calloc((size_t)p->n, sizeof *p->lines);
    p->nodes = malloc((size_t)p->n * sizeof *p->nodes);
    if (!p->free_ns || !p->lines || !p->nodes)
        return HP_ENOMEM;
    for (int i = 0; i < p->n; i++) {
        d->pool_of_share[p->first_share + i] = pipeline * PLAN_POOLS_MAX_STAGES + stage;
        p->free_ns[i] = INT64_MIN;
        p->nodes[i] = d->t->shares[p->first_share + i].node;
    }
    p->shortest_ns = s->compute_ns[1];
    for (int i = 0; i < stage; i++)
        p->lead_ns += pl->stages[i].compute_ns[1] + pl->stages[i].transfer_ns[1] +
                      pl->stages[i].hop_latency_ns;
    return 0;
}

int dispatch_create(const struct dispatch_topology *t, int queue_limit, struct dispatch **out,
                    struct err *e)
{
    struct dispatch *d = calloc(1, sizeof *d);
    bool good = d != NULL;
    if (good) {
        d->t = t;
        d->queue_limit = queue_limit > 0 ? queue_limit : QUEUE_LIMIT;
        d->pools = calloc((size_t)(t->n_pipelines + 1) * PLAN_POOLS_MAX_STAGES, sizeof *d->pools);
        d->uplinks = calloc((size_t)t->n_nodes + 1, sizeof *d->uplinks);
        d->downlinks = calloc((size_t)t->n_nodes + 1, sizeof *d->downlinks);
        d->queues = calloc((size_t)t->n_models, sizeof *d->queues);
        d->pool_of_share = calloc((size_t)t->n_shares + 1, sizeof *d->pool_of_share);
        good = d->pools && d->uplinks && d->downlinks && d->queues && d->pool_of_share;
    }
    for (int i = 0; good && i < t->n_pipelines; i++)
        for (int s = 0; good && s < t->pipelines[i].n_stages; s++)
            good = pool_init(d, i, s) == 0;
    if (!good) {
        dispatch_destroy(&d);
        return err_set(e, HP_ENOMEM, "out of memory for the scheduler's tables");
    }
    *out = d;
    return 0;
}

static void pool_free(struct pool *p)
{
    for (int i = 0; p->lines && i < p->n; i++)
        line_free(&p->lines[i]);
    free(p->lines);
    free(p->free_ns);
    free(p->nodes);
    free(p->gaps);
}

void dispatch_destroy(struct dispatch **dp)
{
    struct dispatch *d = *dp;
    if (!d)
        return;
    for (int i = 0; d->pools && i < d->t->n_pipelines * PLAN_POOLS_MAX_STAGES; i++)
        pool_free(&d->pools[i]);
    for (int i = 0; d->uplinks && i < d->t->n_nodes; i++)
        line_free(&d->uplinks[i]);
    for (int i = 0; d->downlinks && i < d->t->n_nodes; i++)
        line_free(&d->downlinks[i]);
    for (int i = 0; d->queues && i < d->t->n_models; i++)
        free(d->queues[i].items);
    free(d->pools);
    free(d->uplinks);
    free(d->downlinks);
    free(d->queues);
    free(d->pool_of_share);
    free(d);
    *dp = NULL;
}

/* ---- probing
 * ----------------------------------------------------------------------------------------------------------
 */

/* The share of the first stage that can begin first. Nothing that is dispatched now may begin in
 * the past, so only the end of each line counts. */
static void probe_first(const struct pool *p, int64_t now_ns, struct dispatch_leg *leg)
{
    int best = p->cursor;
    int64_t least = INT64_MAX;
    for (int i = p->cursor, left = p->n; left > 0; left--) {
        int64_t t = p->free_ns[i];
        if (t < least) {
            least = t;
            best = i;
            if (t <= now_ns)
                break;
        }
        if (++i == p->n)
            i = 0;
    }
    leg->share = best;
    leg->start_ns = least > now_ns ? least : now_ns;
    leg->transfer_start_ns = leg->transfer_end_ns = 0;
}

struct hop {
    const struct line *uplink;
    int64_t transfer_ns, latency_ns, compute_ns;
    int64_t first_ns; /* the uplink's first chance */
};

/* Fills a hole, if one is free earlier than what was found. */
static void probe_gaps(const struct dispatch *d, const struct pool *p, const struct hop *h,
                       struct dispatch_leg *leg)
{
    for (int g = 0; g < p->n_gaps; g++) {
        const struct gap *gap = &p->gaps[g];
        if (gap->to_ns - h->compute_ns < h->first_ns + h->transfer_ns + h->latency_ns)
            continue;
        int64_t move = line_earliest_both(h->uplink, &d->downlinks[p->nodes[gap->at]], h->first_ns,
                                          h->transfer_ns);
        int64_t there = move + h->transfer_ns + h->latency_ns,
                start = there > gap->from_ns ? there : gap->from_ns;
        if (start + h->compute_ns > gap->to_ns || start >= leg->start_ns)
            continue;
        leg->share = gap->at;
        leg->transfer_start_ns = move;
        leg->start_ns = start;
    }
}

/* The share of a later stage that can begin first, with the transfer to its node. */
static void probe_next(const struct dispatch *d, const struct pool *p, const struct hop *h,
                       struct dispatch_leg *leg)
{
    int64_t soonest = h->first_ns + h->transfer_ns + h->latency_ns, move = h->first_ns;
    int node = -1;
    leg->start_ns = INT64_MAX;
    for (int i = p->cursor, left = p->n; left > 0; left--) {
        int64_t free_ns = p->free_ns[i];
        if (free_ns < leg->start_ns) {
            if (p->nodes[i] != node) {
                node = p->nodes[i];
                move =
                    line_earliest_both(h->uplink, &d->downlinks[node], h->first_ns, h->transfer_ns);
            }
            int64_t there = move + h->transfer_ns + h->latency_ns,
                    start = there > free_ns ? there : free_ns;
            if (start < leg->start_ns) {
                leg->share = i;
                leg->transfer_start_ns = move;
                leg->start_ns = start;
                if (start == soonest)
                    break;
            }
        }
        if (++i == p->n)
            i = 0;
    }
    if (p->n_gaps > 0 && leg->start_ns > soonest)
        probe_gaps(d, p, h, leg);
    leg->transfer_end_ns = leg->transfer_start_ns + h->transfer_ns;
}

void dispatch_probe(const struct dispatch *d, int pipeline, int n, int64_t now_ns,
                    struct dispatch_path *out)
{
    const struct dispatch_pipeline *pl = &d->t->pipelines[pipeline];
    int64_t ready_ns = now_ns, work_ns = 0;
    assert(n >= 1 && n <= pl->batch);
    out->pipeline = pipeline;
    out->n = n;
    for (int s = 0; s < pl->n_stages; s++) {
        const struct pool *p = pool_of(d, pipeline, s);
        struct dispatch_leg *leg = &out->legs[s];
        int64_t compute_ns = pl->stages[s].compute_ns[n];
        if (s == 0) {
            probe_first(p, now_ns, leg);
        } else {
            const struct dispatch_stage *before = &pl->stages[s - 1];
            const struct line *uplink = &d->uplinks[d->t->shares[out->legs[s - 1].share].node];
            struct hop h = {uplink, before->transfer_ns[n], before->hop_latency_ns, compute_ns, 0};
            h.first_ns = line_earliest(uplink, ready_ns, h.transfer_ns);
            probe_next(d, p, &h, leg);
            work_ns += h.transfer_ns + h.latency_ns;
        }
        leg->share += p->first_share;
        leg->end_ns = ready_ns = leg->start_ns + compute_ns;
        work_ns += compute_ns;
    }
    out->finish_ns = ready_ns;
    out->wait_ns = ready_ns - now_ns - work_ns;
}

/* ---- reserving
 * --------------------------------------------------------------------------------------------------------
 */

static void gap_add(struct pool *p, int at, int64_t from_ns, int64_t to_ns, int64_t now_ns)
{
    int64_t earliest = now_ns + p->lead_ns;
    if (from_ns < earliest)
        from_ns = earliest;
    if (to_ns - from_ns < p->shortest_ns)
        return;
    if (p->n_gaps == p->room_gaps) {
        int more = p->room_gaps ? 2 * p->room_gaps : 16;
        struct gap *bigger = more <= 65536 ? realloc(p->gaps, (size_t)more * sizeof *bigger) : NULL;
        if (!bigger)
            return; /* the hole stays unused */
        p->gaps = bigger;
        p->room_gaps = more;
    }
    p->gaps[p->n_gaps++] = (struct gap){at, from_ns, to_ns};
}

/* Cuts what was reserved out of the pool's holes, and forgets those that nothing can reach any
 * more. */
static void gaps_take(struct pool *p, int at, int64_t start_ns, int64_t end_ns, int64_t now_ns)
{
    for (int g = p->n_gaps - 1; g >= 0; g--) {
        struct gap gap = p->gaps[g];
        bool hit = gap.at == at && gap.from_ns < end_ns && gap.to_ns > start_ns;
        if (!hit && gap.to_ns >= now_ns + p->lead_ns + p->shortest_ns)
            continue;
        p->gaps[g] = p->gaps[--p->n_gaps];
        if (hit) {
            gap_add(p, at, gap.from_ns, start_ns, now_ns);
            gap_add(p, at, end_ns, gap.to_ns, now_ns);
        }
    }
}

static void reserve_share(struct pool *p, int at, const struct dispatch_leg *leg, int64_t now_ns,
                          uint32_t batch)
{
    if (leg->start_ns >= p->free_ns[at]) {
        if (p->n_gaps > 0)
            gaps_take(p, -1, 0, 0, now_ns);
        if (p->lead_ns > 0)
            gap_add(p, at, p->free_ns[at], leg->start_ns, now_ns);
        p->free_ns[at] = leg->end_ns;
    } else {
        gaps_take(p, at, leg->start_ns, leg->end_ns, now_ns);
    }
    line_reserve(&p->lines[at], now_ns, leg->start_ns, leg->end_ns, batch);
    p->cursor = at + 1 == p->n ? 0 : at + 1;
}

void dispatch_reserve(struct dispatch *d, const struct dispatch_path *path, int64_t now_ns,
                      uint32_t batch)
{
    const struct dispatch_pipeline *pl = &d->t->pipelines[path->pipeline];
    for (int s = 0; s < pl->n_stages; s++) {
        const struct dispatch_leg *leg = &path->legs[s];
        struct pool *p = pool_of(d, path->pipeline, s);
        reserve_share(p, leg->share - p->first_share, leg, now_ns, batch);
        if (s == 0 || leg->transfer_end_ns == leg->transfer_start_ns)
            continue;
        int from = d->t->shares[path->legs[s - 1].share].node, to = d->t->shares[leg->share].node;
        line_reserve(&d->uplinks[from], now_ns, leg->transfer_start_ns, leg->transfer_end_ns,
                     batch);
        line_reserve(&d->downlinks[to], now_ns, leg->transfer_start_ns, leg->transfer_end_ns,
                     batch);
    }
}

/* ---- deciding
 * ---------------------------------------------------------------------------------------------------------
 */

int dispatch_arrive(struct dispatch *d, int model, uint64_t tag, int64_t arrival_ns)
{
    struct queue *q = &d->queues[model];
    if (q->n >= d->queue_limit)
        return HP_EBUSY;
    if (q->first + q->n == q->room) {
        if (q->room >= 2 * (q->n + 1)) {
            memmove(q->items, q->items + q->first, (size_t)q->n * sizeof *q->items);
            q->first = 0;
        } else {
            int more = q->room ? 2 * q->room : 64;
            struct dispatch_request *bigger = realloc(q->items, (size_t)more * sizeof *bigger);
            if (!bigger)
                return HP_EBUSY;
            q->items = bigger;
            q->room = more;
        }
    }
    q->items[q->first + q->n++] =
        (struct dispatch_request){tag, arrival_ns, arrival_ns + d->t->models[model].slo_ns};
    return 0;
}

/* Step 1 of algorithm 1: the pipeline that can take a batch of its own size with the least waiting.
 * Its path stays in `path`. */
static void choose_pipeline(struct dispatch *d, const struct dispatch_model *m, int64_t now_ns,
                            struct dispatch_path *path)
{
    struct dispatch_path other;
    int end = m->first_pipeline + m->n_pipelines;
    dispatch_probe(d, m->first_pipeline, d->t->pipelines[m->first_pipeline].batch, now_ns, path);
    d->probes++;
    for (int i = m->first_pipeline + 1; i < end && path->wait_ns > 0; i++) {
        dispatch_probe(d, i, d->t->pipelines[i].batch, now_ns, &other);
        d->probes++;
        if (other.wait_ns < path->wait_ns)
            *path = other;
    }
}

/* Step 2: the largest batch on that pipeline that meets the deadline. False when not even one
 * request does. */
static bool shrink_to_deadline(struct dispatch *d, int64_t now_ns, int64_t deadline_ns,
                               struct dispatch_path *path)
{
    while (path->finish_ns > deadline_ns) {
        if (path->n == 1)
            return false;
        dispatch_probe(d, path->pipeline, path->n - 1, now_ns, path);
        d->probes++;
    }
    return true;
}

/* Before a request is dropped: any other pipeline on which it would still be in time, alone. */
static bool rescue(struct dispatch *d, const struct dispatch_model *m, int64_t now_ns,
                   int64_t deadline_ns, struct dispatch_path *path)
{
    int tried = path->pipeline;
    for (int i = m->first_pipeline; i < m->first_pipeline + m->n_pipelines; i++) {
        if (i == tried)
            continue;
        dispatch_probe(d, i, d->t->pipelines[i].batch, now_ns, path);
        d->probes++;
        if (shrink_to_deadline(d, now_ns, deadline_ns, path))
            return true;
    }
    return false;
}

static void take_from_queue(struct queue *q, int n)
{
    q->first += n;
    q->n -= n;
    q->want = 0;
}

int64_t dispatch_run(struct dispatch *d, int model, int64_t now_ns, dispatch_act_fn act, void *ctx)
{
    const struct dispatch_model *m = &d->t->models[model];
    struct queue *q = &d->queues[model];
    struct dispatch_path path;
    if (q->n < q->want && now_ns < q->until_ns)
        return q->until_ns;
    while (q->n > 0) {
        const struct dispatch_request *oldest = &q->items[q->first];
        struct dispatch_action a = {.model = model, .requests = oldest, .n = 1};
        bool possible = m->n_pipelines > 0 && now_ns < oldest->deadline_ns;
        if (possible) {
            choose_pipeline(d, m, now_ns, &path);
            possible = shrink_to_deadline(d, now_ns, oldest->deadline_ns, &path) ||
                       rescue(d, m, now_ns, oldest->deadline_ns, &path);
        }
        if (!possible) {
            a.drop = true;
            act(ctx, &a);
            take_from_queue(q, 1);
            continue;
        }
        if (q->n < path.n) {
            /* From then on a batch so large would be late. */
            q->want = path.n;
            q->until_ns = now_ns + (oldest->deadline_ns - path.finish_ns) + 1;
            return q->until_ns;
        }
        a.batch = d->next_batch++;
        a.n = path.n;
        a.path = &path;
        dispatch_reserve(d, &path, now_ns, a.batch);
        act(ctx, &a);
        take_from_queue(q, path.n);
    }
    return INT64_MAX;
}

/* ---- feedback
 * ---------------------------------------------------------------------------------------------------------
 */

int dispatch_correct(struct dispatch *d, const struct dispatch_report *r)
{
    if (r->from_share >= 0) {
        struct line *up = &d->uplinks[d->t->shares[r->from_share].node],
                    *down = &d->downlinks[d->t->shares[r->share].node];
        bool known = line_correct(up, r->batch, r->planned_start_ns, r->start_ns, r->end_ns);
        known = line_correct(down, r->batch, r->planned_start_ns, r->start_ns, r->end_ns) || known;
        return known ? 0 : HP_ENOENT;
    }
    struct pool *p = &d->pools[d->pool_of_share[r->share]];
    int at = r->share - p->first_share;
    if (!line_correct(&p->lines[at], r->batch, r->planned_start_ns, r->start_ns, r->end_ns))
        return HP_ENOENT;
    p->free_ns[at] = line_end(&p->lines[at]);
    /* The holes of this share were measured before; they are found again as new work is reserved.
     */
    for (int g = p->n_gaps - 1; g >= 0; g--)
        if (p->gaps[g].at == at)
            p->gaps[g] = p->gaps[--p->n_gaps];
    return 0;
}

int dispatch_waiting(const struct dispatch *d, int model)
{
    return d->queues[model].n;
}

uint64_t dispatch_probes(const struct dispatch *d)
{
    return d->probes;
}
