#include "coordinator/pools/pool_batches.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/clocks.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_admission.h"
#include "coordinator/pools/pool_feedback.h"
#include "coordinator/pools/pool_results.h"
#include "transport/frame_tensors.h"

enum { EXPIRE_MS = 5000 };

static int64_t now_of(const struct coord *c)
{
    return (int64_t)coord_clock(c);
}

/* ---- sending ---- */

/* The tensors of a batch: of each input the samples one after the other. Their data is written
 * where frame_tensors_encode left room. */
static void samples_gather(const struct pool_request *r, uint32_t sample, int input, uint8_t *to,
                           int at)
{
    const struct ndarray *a = &r->call.inputs[input];
    size_t bytes = ndarray_bytes(a) / r->n_samples;
    memcpy(to + (size_t)at * bytes, (const uint8_t *)a->data + sample * bytes, bytes);
}

static int tensors_describe(const struct pool_batch *b, const struct pool_request *one,
                            struct frame_tensor *tensors)
{
    const struct pool_model *m = &one->spec->models[b->model];
    for (int i = 0; i < m->facts.n_inputs; i++) {
        const struct ndarray *a = &one->call.inputs[i];
        struct frame_tensor *t = &tensors[i];
        *t = (struct frame_tensor){.type = a->type, .n_dims = (uint32_t)a->n_dims};
        memcpy(t->dims, a->dims, sizeof t->dims);
        t->bytes = ndarray_bytes(a);
        if (m->batches) {
            t->dims[0] = b->n_parts;
            t->bytes = t->bytes / one->n_samples * (uint64_t)b->n_parts;
        }
    }
    return m->facts.n_inputs;
}

/* A moment of ours by an agent's clock; 0 where that is not known: at once. */
static uint64_t agent_moment(const struct coord *c, const struct member *m, int64_t ns)
{
    if (!m || !m->clock_heard_ns)
        return 0;
    int64_t there = ns - (int64_t)(clock_offset_s(c, m) * 1e9);
    return there > 0 ? (uint64_t)there : 0;
}

static void legs_fill(const struct coord *c, const struct pool_plan *p, const struct pool_batch *b,
                      struct frame_leg *legs)
{
    int n = p->topology.pipelines[b->path.pipeline].n_stages;
    for (int i = 0; i < n; i++) {
        const struct dispatch_leg *from = &b->path.legs[i];
        const struct pool_share *s = &p->shares[from->share];
        const struct member *before = i ? p->shares[from[-1].share].agent : NULL;
        legs[i] =
            (struct frame_leg){.share = (uint32_t)from->share,
                               .peer = (uint32_t)s->peer,
                               .send_ns = i ? agent_moment(c, before, from->transfer_start_ns) : 0,
                               .start_ns = agent_moment(c, s->agent, from->start_ns)};
    }
}

static struct coord_frame *frame_make(struct coord *c, struct pool_plan *p,
                                      const struct pool_batch *b)
{
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor tensors[FRAME_MAX_TENSORS];
    const struct pool_request *one = pool_request_of(c->pools, b->parts[0].request);
    int n_legs = p->topology.pipelines[b->path.pipeline].n_stages;
    int n = tensors_describe(b, one, tensors);
    uint64_t bytes = frame_tensors_size(n_legs, tensors, n);
    const struct member *m = p->shares[b->path.legs[0].share].agent;
    struct coord_frame *f = bytes ? calloc(1, sizeof *f) : NULL;
    if (f) {
        f->payload = malloc(bytes);
        f->address = malloc(m->address_size + 1);
    }
    if (!f || !f->payload || !f->address) {
        coord_frame_free(f);
        return NULL;
    }
    memcpy(f->address, m->address, m->address_size);
    f->address_size = m->address_size;
    f->header =
        (struct frame_header){.kind = FRAME_TENSORS,
                              .dtype = FRAME_BYTES,
                              .stage = (uint16_t)b->path.legs[0].share,
                              .n_runs = (uint16_t)n_legs,
                              .session = p->peers[p->shares[b->path.legs[0].share].peer].session,
                              .deployment = p->id,
                              .generation = 1,
                              .batch = b->id,
                              .n_tokens = (uint32_t)b->n_parts,
                              .payload_bytes = bytes};
    legs_fill(c, p, b, legs);
    frame_tensors_encode(legs, n_legs, tensors, n, f->payload);
    int ignored;
    if (frame_tensors_decode(&f->header, f->payload, legs, tensors, n, &ignored, NULL) < 0) {
        coord_frame_free(f);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < b->n_parts; k++)
            samples_gather(pool_request_of(c->pools, b->parts[k].request), b->parts[k].sample, i,
                           f->payload + ((const uint8_t *)tensors[i].data - f->payload), k);
    return f;
}

static void request_began(struct pool_request *r, int64_t at_ns)
{
    if (!r->began_ns)
        r->began_ns = at_ns;
}

static bool batch_send(struct coord *c, struct pool_plan *p, struct pool_batch *b)
{
    struct coord_frame *f = frame_make(c, p, b);
    struct coord_action *a = f ? effects_add(c, COORD_FRAME, NULL, 0) : NULL;
    if (!a) {
        coord_frame_free(f);
        return false;
    }
    a->frame = f;
    b->sent_ns = now_of(c);
    for (int k = 0; k < b->n_parts; k++)
        request_began(pool_request_of(c->pools, b->parts[k].request), b->path.legs[0].start_ns);
    return true;
}

/* ---- what the scheduler decides ---- */

struct pool_run {
    struct coord *c;
    struct pool_plan *p;
};

/* The soonest that one request more would be done, in milliseconds from now. */
static double soonest_ms(const struct pool_plan *p, int model, int64_t now)
{
    const struct dispatch_model *m = &p->topology.models[model];
    struct dispatch_path path;
    int64_t best = INT64_MAX / 8;
    for (int i = 0; i < m->n_pipelines; i++) {
        dispatch_probe(p->dispatch, m->first_pipeline + i, 1, now, &path);
        best = path.finish_ns < best ? path.finish_ns : best;
    }
    return (double)(best - now) * 1e-6;
}

static void request_drop(struct coord *c, struct pool_plan *p, struct pool_request *r)
{
    struct err why = {0};
    int64_t now = now_of(c);
    double ms = soonest_ms(p, r->model, now),
           slo_ms = (double)p->topology.models[r->model].slo_ns * 1e-6;
    if (ms > 1e9)
        err_set(&why, HP_EBUSY, "no agent is left that computes a part of \"%s\"",
                p->topology.models[r->model].name);
    else
        err_set(&why, HP_ETIMEOUT,
                "too late: one more request would be done in %.1f ms, and the deadline is %.1f ms",
                ms, slo_ms);
    r->spec->models[r->model].counts.dropped++;
    pool_request_fail(c, r, &why);
}

static void batch_begin(struct coord *c, struct pool_plan *p, const struct dispatch_action *a)
{
    struct pool_batch *b = calloc(1, sizeof *b);
    if (b)
        b->parts = calloc((size_t)a->n, sizeof *b->parts);
    if (b && b->parts) {
        b->id = a->batch;
        b->model = a->model;
        b->path = *a->path;
        for (int i = 0; i < a->n; i++) {
            struct pool_part part = pool_part_of(a->requests[i].tag);
            if (pool_request_of(c->pools, part.request)) /* nobody waits for the others */
                b->parts[b->n_parts++] = part;
        }
        HASH_ADD(hh, p->batches, id, sizeof b->id, b);
    }
    struct err why;
    if (!b || !b->parts || !map_has_added(b)) {
        err_no_memory(&why, "a batch");
        for (int i = 0; i < a->n; i++)
            pool_request_fail(
                c, pool_request_of(c->pools, pool_part_of(a->requests[i].tag).request), &why);
        if (b)
            free(b->parts);
        free(b);
        return;
    }
    if (b->n_parts > 0 && !batch_send(c, p, b)) {
        err_no_memory(&why, "a batch");
        pool_batch_end(c, p, b, &why);
    } else if (b->n_parts == 0) {
        pool_batch_free(p, b);
    }
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
    int rc = frame_tensors_decode(h, payload, legs, tensors, FRAME_MAX_TENSORS, &n, &why);
    if (rc == 0 && (h->n_runs != n_legs || h->first_position != h->n_runs ||
                    h->n_tokens != (uint32_t)b->n_parts))
        rc = err_set(&why, HP_EPROTO, "a batch of %d samples came back as %u", b->n_parts,
                     h->n_tokens);
    if (rc == 0)
        pool_feedback_take(c, p, b, legs, &times);
    double compute_s = 0;
    for (int i = 0; rc == 0 && i < n_legs; i++)
        compute_s += (double)(legs[i].ended_ns - legs[i].began_ns) * 1e-9;
    rc = rc < 0 ? rc : pool_results_give(c, b, tensors, n, compute_s, &times, &why);
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
        dispatch_return(to->dispatch, r->model, pool_tag_of(r, sample), r->queued_ns) < 0)
        return false;
    to->wake_ns[r->model] = c->pools->wake_ns = now_of(c);
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

void pool_batches_failed(struct coord *c, struct pool_plan *p, const struct message_share_failed *f)
{
    struct pool_batch *b = f->batch <= UINT32_MAX ? pool_batch_of(p, (uint32_t)f->batch) : NULL;
    if (!b)
        return;
    struct err why = {0};
    err_set(&why, coord_failure_code(f->code), "%s", f->text);
    if (why.code == HP_ELINK)
        batch_again(c, p, b, &why);
    else
        pool_batch_end(c, p, b, &why);
}

void pool_batches_agent_lost(struct coord *c, struct pool_plan *p, const struct member *m)
{
    struct pool_batch *b, *next;
    struct err why = {0};
    err_set(&why, HP_EBUSY, "agent \"%s\" was lost", m->name);
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

void pool_batches_expire(struct coord *c, struct pool_plan *p)
{
    struct pool_batch *b, *next;
    struct err why = {0};
    int64_t patience = (int64_t)coord_ms(EXPIRE_MS);
    HASH_ITER(hh, p->batches, b, next)
    {
        if (now_of(c) < b->path.finish_ns + patience)
            continue;
        err_set(&why, HP_ETIMEOUT, "no result came for %d s after it was due", EXPIRE_MS / 1000);
        pool_batch_end(c, p, b, &why);
    }
}

bool pool_batches_idle(const struct pool_plan *p)
{
    bool idle = p->batches == NULL;
    for (int m = 0; idle && m < p->topology.n_models; m++)
        idle = dispatch_waiting(p->dispatch, m) == 0;
    return idle;
}
