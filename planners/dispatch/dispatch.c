#include "planners/dispatch/dispatch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "planners/dispatch/dispatch_int.h"
#include "planners/dispatch/reservations.h"

enum {
    QUEUE_LIMIT = 65536,
    PATIENCE_GAPS = 3,
    LEAD_NS = 1000000 /* before a share is free, for the way there */
};
static const int64_t CLOSED_NS = INT64_MAX / 4;

/* ---- life ---- */

/* The soonest that work which is dispatched now comes to a stage. */
static int64_t stage_lead_ns(const struct dispatch_pipeline *pl, int stage)
{
    int64_t lead_ns = 0;
    for (int i = 0; i < stage; i++)
        lead_ns += pl->stages[i].compute_ns[1] + pl->stages[i].transfer_ns[1] +
                   pl->stages[i].hop_latency_ns;
    return lead_ns;
}

static int pool_init(const struct dispatch *d, int pipeline, int stage)
{
    const struct dispatch_pipeline *pl = &d->t->pipelines[pipeline];
    const struct dispatch_stage *s = &pl->stages[stage];
    struct share_pool *p = pool_of(d, pipeline, stage);
    int64_t lead_ns = stage_lead_ns(pl, stage);
    if (pl->beside) { /* holes are kept that the quicker one can use */
        p->shortest_ns = s->compute_ns[1] < p->shortest_ns ? s->compute_ns[1] : p->shortest_ns;
        p->lead_ns = lead_ns < p->lead_ns ? lead_ns : p->lead_ns;
        return 0;
    }
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
    p->lead_ns = lead_ns;
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

static void pool_free(struct share_pool *p)
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

/* ---- reserving ---- */

enum { MAX_GAPS = 65536 };

static void gap_add(struct share_pool *p, int at, int64_t from_ns, int64_t to_ns, int64_t now_ns)
{
    int64_t earliest = now_ns + p->lead_ns;
    if (from_ns < earliest)
        from_ns = earliest;
    if (to_ns - from_ns < p->shortest_ns)
        return;
    if (p->n_gaps >= MAX_GAPS || !vector_reserve(p->gaps, p->room_gaps, p->n_gaps + 1))
        return; /* the hole stays unused */
    p->gaps[p->n_gaps++] = (struct share_gap){at, from_ns, to_ns};
}

/* Cuts what was reserved out of the pool's holes, and forgets those that nothing can reach any
 * more. */
static void gaps_take(struct share_pool *p, int at, int64_t start_ns, int64_t end_ns,
                      int64_t now_ns)
{
    for (int g = p->n_gaps - 1; g >= 0; g--) {
        struct share_gap gap = p->gaps[g];
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

static void reserve_share(struct share_pool *p, int at, const struct dispatch_leg *leg,
                          int64_t now_ns, uint32_t batch)
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
        struct share_pool *p = pool_of(d, path->pipeline, s);
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

/* ---- deciding ---- */

void dispatch_eager(struct dispatch *d)
{
    d->eager = true;
}

/* Step 1 of algorithm 1: the pipeline that can take a batch of its own size with the least waiting.
 * Its path stays in `path`. */
static void path_choose(struct dispatch *d, const struct dispatch_model *m, int64_t now_ns,
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
static bool path_shrink(struct dispatch *d, int64_t now_ns, int64_t deadline_ns,
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
static bool path_rescue(struct dispatch *d, const struct dispatch_model *m, int64_t now_ns,
                        int64_t deadline_ns, struct dispatch_path *path)
{
    int tried = path->pipeline;
    for (int i = m->first_pipeline; i < m->first_pipeline + m->n_pipelines; i++) {
        if (i == tried)
            continue;
        dispatch_probe(d, i, d->t->pipelines[i].batch, now_ns, path);
        d->probes++;
        if (path_shrink(d, now_ns, deadline_ns, path))
            return true;
    }
    return false;
}

static void queue_take(struct request_queue *q, int n)
{
    q->first += n;
    q->n -= n;
    q->want = 0;
}

/* Whether as many will be there by then as the batch can have. Where nobody came for a few times as
 * long as it usually takes, nobody will. */
static bool batch_fills(struct request_queue *q, int n, int64_t now_ns)
{
    int64_t patience_ns = q->heard_ns + PATIENCE_GAPS * q->gap_ns;
    if (!q->gap_ns || now_ns >= patience_ns || q->gap_ns > (q->until_ns - now_ns) / (n - q->n))
        return false;
    q->until_ns = q->until_ns < patience_ns ? q->until_ns : patience_ns;
    return true;
}

/* Whether batches of so many, each sent as it is, would keep a stage's shares busy for more than a
 * half of the time: only then is anything gained by larger ones. */
static bool waiting_pays(const struct dispatch *d, const struct dispatch_path *path,
                         const struct request_queue *q)
{
    const struct dispatch_pipeline *pl = &d->t->pipelines[path->pipeline];
    for (int s = 0; s < pl->n_stages; s++) {
        int64_t busy_ns = path->legs[s].end_ns - path->legs[s].start_ns;
        if (2 * busy_ns / pool_of(d, path->pipeline, s)->n > q->gap_ns * path->n)
            return true;
    }
    return false;
}

/* Whether a batch of fewer than it could have is held back, until q->until_ns at most; else `path`
 * becomes that of a batch of as many as there are. */
static bool batch_waits(struct dispatch *d, struct request_queue *q, int64_t now_ns,
                        struct dispatch_path *path)
{
    if (!d->eager)
        return true;
    bool fills = batch_fills(q, path->n, now_ns);
    dispatch_probe(d, path->pipeline, q->n, now_ns, path);
    d->probes++;
    int64_t begins_ns = now_ns + path->wait_ns - LEAD_NS;
    if (begins_ns <= now_ns || now_ns >= q->until_ns)
        return fills && waiting_pays(d, path, q);
    if (begins_ns < q->until_ns) /* nothing is computed sooner for leaving sooner */
        q->until_ns = begins_ns;
    return true;
}

int64_t dispatch_run(struct dispatch *d, int model, int64_t now_ns, dispatch_act_fn act, void *ctx)
{
    const struct dispatch_model *m = &d->t->models[model];
    struct request_queue *q = &d->queues[model];
    struct dispatch_path path;
    if (q->arrived != q->seen)
        q->heard_ns = now_ns;
    q->seen = q->arrived;
    if (q->n < q->want && now_ns < q->until_ns)
        return q->until_ns;
    while (q->n > 0) {
        const struct dispatch_request *oldest = &q->items[q->first];
        struct dispatch_action a = {.model = model, .requests = oldest, .n = 1};
        bool possible = m->n_pipelines > 0 && now_ns < oldest->deadline_ns;
        if (possible) {
            path_choose(d, m, now_ns, &path);
            possible = path_shrink(d, now_ns, oldest->deadline_ns, &path) ||
                       path_rescue(d, m, now_ns, oldest->deadline_ns, &path);
        }
        if (!possible) {
            a.drop = true;
            queue_take(q, 1);
            act(ctx, &a);
            continue;
        }
        if (q->n < path.n) {
            /* From then on a batch so large would be late. */
            q->until_ns = now_ns + (oldest->deadline_ns - path.finish_ns) + 1;
            int full = path.n;
            if (batch_waits(d, q, now_ns, &path)) {
                q->want = full;
                return q->until_ns;
            }
        }
        a.batch = d->next_batch++;
        a.n = path.n;
        a.path = &path;
        dispatch_reserve(d, &path, now_ns, a.batch);
        queue_take(q, path.n);
        act(ctx, &a);
    }
    return INT64_MAX;
}

bool dispatch_alone(struct dispatch *d, int model, const struct dispatch_request *r, int64_t now_ns,
                    dispatch_act_fn act, void *ctx)
{
    const struct dispatch_model *m = &d->t->models[model];
    struct dispatch_path path, best = {.finish_ns = INT64_MAX};
    for (int i = m->first_pipeline; i < m->first_pipeline + m->n_pipelines; i++) {
        dispatch_probe(d, i, 1, now_ns, &path);
        d->probes++;
        best = path.finish_ns < best.finish_ns ? path : best;
    }
    if (best.finish_ns > r->deadline_ns)
        return false;
    struct dispatch_action a = {
        .model = model, .batch = d->next_batch++, .requests = r, .n = 1, .path = &best};
    dispatch_reserve(d, &best, now_ns, a.batch);
    act(ctx, &a);
    return true;
}

/* ---- feedback ---- */

void dispatch_reported(struct dispatch *d)
{
    for (int i = 0; i < d->t->n_pipelines * PLAN_POOLS_MAX_STAGES; i++)
        for (int k = 0; k < d->pools[i].n; k++)
            d->pools[i].lines[k].stay = true;
}

int dispatch_correct(struct dispatch *d, const struct dispatch_report *r)
{
    if (r->from_share >= 0) {
        struct reservation_line *up = &d->uplinks[d->t->shares[r->from_share].node],
                                *down = &d->downlinks[d->t->shares[r->share].node];
        bool known = line_correct(up, r->batch, r->planned_start_ns, r->start_ns, r->end_ns);
        known = line_correct(down, r->batch, r->planned_start_ns, r->start_ns, r->end_ns) || known;
        return known ? 0 : HP_ENOENT;
    }
    struct share_pool *p = &d->pools[d->pool_of_share[r->share]];
    int at = r->share - p->first_share;
    if (!line_correct(&p->lines[at], r->batch, r->planned_start_ns, r->start_ns, r->end_ns))
        return HP_ENOENT;
    if (p->free_ns[at] < CLOSED_NS)
        p->free_ns[at] = line_end(&p->lines[at]);
    /* The holes of this share were measured before; they are found again as new work is reserved.
     */
    for (int g = p->n_gaps - 1; g >= 0; g--)
        if (p->gaps[g].at == at)
            p->gaps[g] = p->gaps[--p->n_gaps];
    return 0;
}

/* As if it were reserved for ever, which no deadline outlasts. */
void dispatch_share_close(struct dispatch *d, int share, int64_t now_ns)
{
    struct share_pool *p = &d->pools[d->pool_of_share[share]];
    int at = share - p->first_share;
    for (int g = p->n_gaps - 1; g >= 0; g--)
        if (p->gaps[g].at == at)
            p->gaps[g] = p->gaps[--p->n_gaps];
    int64_t from_ns = p->free_ns[at] > now_ns ? p->free_ns[at] : now_ns;
    line_reserve(&p->lines[at], now_ns, from_ns, CLOSED_NS, UINT32_MAX);
    p->free_ns[at] = CLOSED_NS;
}

uint64_t dispatch_probes(const struct dispatch *d)
{
    return d->probes;
}
