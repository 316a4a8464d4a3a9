#include "coordinator/pools/pool_batches.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_feedback.h"
#include "coordinator/pools/pool_frames.h"
#include "coordinator/pools/pool_results.h"
#include "coordinator/pools/pool_times.h"
#include "transport/frame_tensors.h"

enum { EXPIRE_MS = 5000 };

static int64_t now_of(const struct coord *c)
{
    return (int64_t)coord_clock(c);
}

/* ---- sending ---- */

static void request_began(struct pool_request *r, int64_t at_ns)
{
    if (!r->began_ns)
        r->began_ns = at_ns;
}

static int frame_send(struct coord *c, struct pool_plan *p, struct pool_batch *b, struct err *why)
{
    struct coord_frame *f = pool_frame_make(c, p, b, why);
    struct coord_action *a = f ? effects_add(c, COORD_FRAME, NULL, 0) : NULL;
    if (!a) {
        coord_frame_free(f);
        return f ? err_no_memory(why, "a batch") : why->code;
    }
    a->frame = f;
    pool_batch_sent(p, b, f->header.payload_bytes);
    b->sent_ns = now_of(c);
    for (int k = 0; k < b->n_parts; k++)
        request_began(pool_request_of(c->pools, b->parts[k].request), b->path.legs[0].start_ns);
    return 0;
}

/* Without what nobody waits for any more. */
static void batch_send(struct coord *c, struct pool_plan *p, struct pool_batch *b)
{
    struct err why = {0};
    int n = 0;
    for (int k = 0; k < b->n_parts; k++)
        if (pool_request_of(c->pools, b->parts[k].request))
            b->parts[n++] = b->parts[k];
    b->n_parts = n;
    if (n == 0)
        pool_batch_free(p, b);
    else if (frame_send(c, p, b, &why) < 0)
        pool_batch_end(c, p, b, &why);
}

/* Where deadlines are long more may be reserved than a share takes at once. */
static void held_send(struct coord *c, struct pool_plan *p)
{
    for (int i = 0; p->n_held > 0 && i < p->topology.n_shares; i++) {
        struct pool_share *s = &p->shares[i];
        while (s->held && pool_share_takes(s))
            batch_send(c, p, s->held);
    }
}

/* ---- what the scheduler decides ---- */

struct pool_run {
    struct coord *c;
    struct pool_plan *p;
};

static void request_drop(struct coord *c, struct pool_plan *p, struct pool_request *r)
{
    struct err why = {0};
    int64_t now = now_of(c), has_ns = r->deadline_ns - r->arrived_ns;
    double ms = pool_times_soonest_ms(p, r->line, now);
    if (ms > 1e9)
        err_set(&why, HP_EBUSY, "no agent is left that computes a part of \"%s\"",
                p->topology.models[r->line].name);
    else
        err_set(&why, HP_ETIMEOUT,
                "too late: one more request would be done in %.1f ms, and the deadline is %.1f ms",
                ms, (double)has_ns * 1e-6);
    if (has_ns == p->topology.models[r->line].slo_ns)
        pool_times_doubt(p, r->line);
    pool_request_drop(c, r, &why);
}

/* NULL: no memory. */
static struct pool_batch *batch_make(struct pool_plan *p, const struct dispatch_action *a)
{
    struct pool_batch *b = calloc(1, sizeof *b);
    struct pool_part *parts = calloc((size_t)a->n, sizeof *parts);
    if (b && parts) {
        *b =
            (struct pool_batch){.id = a->batch, .line = a->model, .path = *a->path, .parts = parts};
        for (int i = 0; i < a->n; i++)
            b->parts[b->n_parts++] = pool_part_of(a->requests[i].tag);
        HASH_ADD(hh, p->batches, id, sizeof b->id, b);
        if (map_has_added(b)) {
            p->under_way[b->line]++;
            return b;
        }
    }
    free(parts);
    free(b);
    return NULL;
}

static void batch_begin(struct coord *c, struct pool_plan *p, const struct dispatch_action *a)
{
    struct pool_batch *b = batch_make(p, a);
    struct err why = {0};
    if (!b) {
        err_no_memory(&why, "a batch");
        for (int i = 0; i < a->n; i++)
            pool_request_fail(
                c, pool_request_of(c->pools, pool_part_of(a->requests[i].tag).request), &why);
        return;
    }
    const struct pool_share *s = &p->shares[b->path.legs[0].share];
    if (!s->held && pool_share_takes(s))
        batch_send(c, p, b);
    else
        pool_batch_hold(p, b);
}

static void on_decision(void *ctx, const struct dispatch_action *a)
{
    struct pool_run *run = ctx;
    if (!a->drop) {
        batch_begin(run->c, run->p, a);
        return;
    }
    struct pool_request *r = pool_request_of(run->c->pools, pool_part_of(a->requests->tag).request);
    if (r)
        request_drop(run->c, run->p, r);
}

void pool_batches_run(struct coord *c, struct pool_plan *p)
{
    struct pool_run run = {c, p};
    int64_t now = now_of(c);
    for (int m = 0; m < p->topology.n_models; m++)
        if (p->wake_ns[m] <= now)
            p->wake_ns[m] = dispatch_run(p->dispatch, m, now, on_decision, &run);
    held_send(c, p);
}

/* ---- results ---- */

void pool_batches_result(struct coord *c, struct pool_plan *p, const struct frame_header *h,
                         const uint8_t *payload)
{
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor tensors[FRAME_MAX_TENSORS];
    struct pool_batch *b = pool_batch_of(p, h->batch);
    struct infer_times times;
    struct err why = {0};
    int n = 0, n_legs = b ? p->topology.pipelines[b->path.pipeline].n_stages : 0;
    if (!b)
        return; /* it was given up */
    int n_samples = b->n_parts * p->spec->models[p->lines[b->line].model].unit;
    int rc = frame_tensors_decode(h, payload, legs, tensors, FRAME_MAX_TENSORS, &n, &why);
    if (rc == 0 && (h->n_runs != n_legs || h->first_position != h->n_runs ||
                    h->n_tokens != (uint32_t)n_samples))
        rc = err_set(&why, HP_EPROTO, "a batch of %d samples came back as %u", n_samples,
                     h->n_tokens);
    double compute_s = rc == 0 ? pool_feedback_take(c, p, b, legs, &times) : 0;
    rc = rc < 0 ? rc
                : pool_results_give(c, &p->spec->models[p->lines[b->line].model], b, tensors, n,
                                    pool_line_length(p, b->line), compute_s, &times, &why);
    if (rc < 0)
        log_warn_limited("coordinator", "pool_result_bad", "batch=%u why=\"%s\"", b->id, why.text);
    pool_batch_end(c, p, b, rc < 0 ? &why : NULL);
}

/* ---- what goes wrong ---- */

/* Once more, where that may still be in time. */
static bool part_again(struct coord *c, struct pool_plan *to, struct pool_request *r,
                       uint32_t sample)
{
    if (!to || ++r->tries > (int)r->n_samples * POOL_MAX_TRIES || now_of(c) >= r->deadline_ns ||
        to->spec != r->spec ||
        dispatch_return(to->dispatch, r->line, pool_tag_of(r, sample), r->arrived_ns, r->due_ns) <
            0)
        return false;
    to->wake_ns[r->line] = c->pools->wake_ns = now_of(c);
    c->pools->again++;
    return true;
}

static void batch_again(struct coord *c, struct pool_plan *p, struct pool_batch *b,
                        const struct err *why)
{
    for (int k = 0; k < b->n_parts; k++) {
        struct pool_request *r = pool_request_of(c->pools, b->parts[k].request);
        if (r && !part_again(c, c->pools->current, r, b->parts[k].sample))
            pool_request_fail(c, r, why);
    }
    pool_batch_free(p, b);
}

static bool batch_crosses(const struct pool_plan *p, const struct pool_batch *b,
                          const struct member *m)
{
    for (int i = 0; i < p->topology.pipelines[b->path.pipeline].n_stages; i++)
        if (p->shares[b->path.legs[i].share].agent == m)
            return true;
    return false;
}

/* Whether a stage has shares of others than this agent. */
static bool stage_has_others(const struct pool_plan *p, const struct dispatch_stage *st,
                             const struct member *m)
{
    for (int i = 0; i < st->n_shares; i++) {
        const struct member *other = p->shares[st->first_share + i].agent;
        if (other && other != m)
            return true;
    }
    return false;
}

const struct member *pool_batches_beyond(struct pool_plan *p, const struct member *m,
                                         const struct message_share_failed *f)
{
    struct pool_batch *b = f->batch <= UINT32_MAX ? pool_batch_of(p, (uint32_t)f->batch) : NULL;
    const struct dispatch_pipeline *pl = b ? &p->topology.pipelines[b->path.pipeline] : NULL;
    for (int i = 0; b && i + 1 < pl->n_stages; i++) {
        int share = b->path.legs[i].share;
        const struct member *next = p->shares[b->path.legs[i + 1].share].agent;
        if ((uint64_t)share == f->stage && p->shares[share].agent == m && next && next != m &&
            stage_has_others(p, &pl->stages[i + 1], next))
            return next;
    }
    return NULL;
}

static bool batch_is_shared(const struct pool_batch *b)
{
    for (int k = 1; k < b->n_parts; k++)
        if (b->parts[k].request != b->parts[0].request)
            return true;
    return false;
}

/* What one of its requests brought may be why: each goes by itself, so that the others do not hear
 * of it. */
static void batch_part(struct coord *c, struct pool_plan *p, struct pool_batch *b)
{
    struct pool_run run = {c, p};
    struct pool_part *parts = b->parts;
    int n = b->n_parts;
    b->parts = NULL;
    pool_batch_free(p, b);
    for (int k = 0; k < n; k++) {
        struct pool_request *r = pool_request_of(c->pools, parts[k].request);
        if (!r)
            continue; /* nobody waits for it any more */
        struct dispatch_request one = {pool_tag_of(r, parts[k].sample), r->arrived_ns, r->due_ns};
        if (!dispatch_alone(p->dispatch, r->line, &one, now_of(c), on_decision, &run))
            request_drop(c, p, r);
    }
    free(parts);
}

void pool_batches_failed(struct coord *c, struct pool_plan *p, const struct member *m,
                         const struct message_share_failed *f)
{
    struct pool_batch *b = f->batch <= UINT32_MAX ? pool_batch_of(p, (uint32_t)f->batch) : NULL;
    if (!b || !batch_crosses(p, b, m))
        return;
    struct err why = {0};
    err_set(&why, coord_failure_code(f->code), "%s", f->text);
    if (why.code == HP_ELINK || why.code == HP_ENOENT)
        batch_again(c, p, b, &why);
    else if (why.code == HP_EINVAL && batch_is_shared(b))
        batch_part(c, p, b);
    else
        pool_batch_end(c, p, b, &why);
}

void pool_batches_agent_lost(struct coord *c, struct pool_plan *p, const struct member *m)
{
    struct pool_batch *b, *next;
    struct err why = {0};
    err_set(&why, HP_EBUSY, "agent \"%s\" was lost", m->name);
    p->lacks = true;
    for (int i = 0; i < p->topology.n_shares; i++)
        if (p->shares[i].agent == m)
            dispatch_share_close(p->dispatch, i, now_of(c));
    HASH_ITER(hh, p->batches, b, next)
    {
        if (!batch_crosses(p, b, m))
            continue;
        batch_again(c, p, b, &why);
    }
    for (int i = 0; i < p->topology.n_shares; i++)
        if (p->shares[i].agent == m) {
            p->shares[i].agent = NULL;
            p->shares[i].state = POOL_SHARE_LOST;
            c->pools->lost_shares++;
        }
    for (int i = 1; i < p->n_peers; i++)
        if (p->peers[i].agent == m)
            p->peers[i].agent = NULL;
}

static bool batch_has_time(const struct coord *c, const struct pool_batch *b)
{
    for (int k = 0; k < b->n_parts; k++) {
        const struct pool_request *r = pool_request_of(c->pools, b->parts[k].request);
        if (r && now_of(c) < r->deadline_ns)
            return true;
    }
    return false;
}

void pool_batches_link_broken(struct coord *c, struct pool_plan *p, const struct member *m)
{
    struct pool_batch *b, *next;
    struct err why = {0};
    err_set(&why, HP_ELINK, "the link to agent \"%s\" broke", m->name);
    HASH_ITER(hh, p->batches, b, next)
    {
        if (b->sent && p->shares[b->path.legs[0].share].agent == m && batch_has_time(c, b))
            batch_again(c, p, b, &why);
    }
}

void pool_batches_expire(struct coord *c, struct pool_plan *p)
{
    struct pool_batch *b, *next;
    struct err why = {0};
    int64_t patience = (int64_t)coord_ms(EXPIRE_MS);
    HASH_ITER(hh, p->batches, b, next)
    {
        if (now_of(c) < b->path.finish_ns + patience)
            continue;
        err_set(&why, HP_EBUSY, "no result came for %d s after it was due", EXPIRE_MS / 1000);
        pool_batch_end(c, p, b, &why);
    }
}

void pool_batches_give_up(struct coord *c, struct pool_plan *p, const struct err *why)
{
    struct pool_batch *b, *next_batch;
    struct pool_request *r, *next;
    HASH_ITER(hh, p->batches, b, next_batch)
    {
        batch_again(c, p, b, why);
    }
    for (r = c->pools->requests; r; r = next) {
        bool lost = false;
        next = r->hh.next;
        for (uint32_t i = 0; i < r->n_samples; i++)
            if (dispatch_forget(p->dispatch, r->line, pool_tag_of(r, i), r->due_ns))
                lost = !part_again(c, c->pools->current, r, i) || lost;
        if (!lost)
            continue;
        /* Who hears of it may have no use for the next one either, and cancel it. */
        uint64_t next_id = next ? next->id : 0;
        pool_request_fail(c, r, why);
        next = next && pool_request_of(c->pools, next_id) == next ? next : c->pools->requests;
    }
}

bool pool_batches_idle(const struct pool_plan *p)
{
    bool idle = p->batches == NULL;
    for (int m = 0; idle && m < p->topology.n_models; m++)
        idle = dispatch_waiting(p->dispatch, m) == 0;
    return idle;
}
