#include "coordinator/pools/pool_frames.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/clocks.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_lengths.h"
#include "transport/frame_tensors.h"

/* ---- tensors ---- */

/* What a sample's input is padded to. */
static struct pool_stretch input_stretch(const struct pool_request *r, int input, int64_t to_length)
{
    const struct pool_model *m = &r->spec->models[r->model];
    return pool_stretch_of(&r->call.inputs[input], m->batches,
                           m->n_lengths ? m->input_axes[input] : -1, to_length);
}

/* Written where frame_tensors_encode left room. */
static void samples_gather(const struct pool_request *r, uint32_t sample, int input,
                           int64_t to_length, uint8_t *to, int at)
{
    const struct ndarray *a = &r->call.inputs[input];
    struct pool_stretch s = input_stretch(r, input, to_length);
    pool_stretch_copy(&s, to + (size_t)at * s.rows * s.to_bytes,
                      (const uint8_t *)a->data + sample * s.rows * s.from_bytes);
}

static int tensors_describe(const struct pool_batch *b, const struct pool_request *one,
                            int64_t to_length, struct frame_tensor *tensors)
{
    const struct pool_model *m = &one->spec->models[one->model];
    for (int i = 0; i < m->facts.n_inputs; i++) {
        const struct ndarray *a = &one->call.inputs[i];
        struct frame_tensor *t = &tensors[i];
        *t = (struct frame_tensor){.type = a->type, .n_dims = (uint32_t)a->n_dims};
        memcpy(t->dims, a->dims, sizeof t->dims);
        struct pool_stretch s = input_stretch(one, i, to_length);
        t->bytes = s.rows * s.to_bytes * (uint64_t)b->n_parts;
        if (m->n_lengths && m->input_axes[i] >= 0)
            t->dims[m->input_axes[i]] = to_length;
        if (m->batches)
            t->dims[0] = b->n_parts;
    }
    return m->facts.n_inputs;
}

/* ---- the way ---- */

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

/* ---- the frame ---- */

/* With room for the payload, and where it goes. NULL: no memory. */
static struct coord_frame *frame_create(const struct member *to, uint64_t payload_bytes)
{
    struct coord_frame *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->payload = malloc(payload_bytes);
    f->address = malloc(to->address_size + 1);
    if (!f->payload || !f->address) {
        coord_frame_free(f);
        return NULL;
    }
    memcpy(f->address, to->address, to->address_size);
    f->address_size = to->address_size;
    return f;
}

static struct frame_header header_of(const struct pool_plan *p, const struct pool_batch *b,
                                     const struct pool_request *one, uint64_t payload_bytes)
{
    int first = b->path.legs[0].share;
    return (struct frame_header){
        .kind = FRAME_TENSORS,
        .dtype = FRAME_BYTES,
        .stage = (uint16_t)first,
        .n_runs = (uint16_t)p->topology.pipelines[b->path.pipeline].n_stages,
        .session = p->peers[p->shares[first].peer].session,
        .deployment = p->id,
        .generation = 1,
        .batch = b->id,
        .sequence = (uint64_t)p->lines[b->line].size,
        .n_tokens = (uint32_t)(b->n_parts * one->spec->models[one->model].unit),
        .payload_bytes = payload_bytes};
}

/* The inputs of all its requests, each where its tensor has it. */
static void parts_gather(const struct coord *c, const struct pool_batch *b,
                         const struct frame_tensor *tensors, int n, int64_t to_length,
                         uint8_t *payload)
{
    for (int i = 0; i < n; i++) {
        uint8_t *to = payload + ((const uint8_t *)tensors[i].data - payload);
        for (int k = 0; k < b->n_parts; k++)
            samples_gather(pool_request_of(c->pools, b->parts[k].request), b->parts[k].sample, i,
                           to_length, to, k);
    }
}

struct coord_frame *pool_frame_make(struct coord *c, const struct pool_plan *p,
                                    const struct pool_batch *b, struct err *why)
{
    struct frame_leg legs[FRAME_MAX_LEGS];
    struct frame_tensor tensors[FRAME_MAX_TENSORS];
    const struct pool_request *one = pool_request_of(c->pools, b->parts[0].request);
    int n_legs = p->topology.pipelines[b->path.pipeline].n_stages, ignored;
    int64_t to_length = pool_line_length(p, b->line);
    int n = tensors_describe(b, one, to_length, tensors);
    uint64_t bytes = frame_tensors_size(n_legs, tensors, n);
    if (!bytes) {
        err_set(why, HP_ELIMIT,
                "a batch of %d of these inputs is larger than the %d bytes of a frame", b->n_parts,
                FRAME_MAX_PAYLOAD_BYTES);
        return NULL;
    }
    struct coord_frame *f = frame_create(p->shares[b->path.legs[0].share].agent, bytes);
    if (!f) {
        err_no_memory(why, "a batch");
        return NULL;
    }
    f->header = header_of(p, b, one, bytes);
    legs_fill(c, p, b, legs);
    frame_tensors_encode(legs, n_legs, tensors, n, f->payload);
    if (frame_tensors_decode(&f->header, f->payload, legs, tensors, n, &ignored, why) < 0) {
        coord_frame_free(f);
        return NULL;
    }
    parts_gather(c, b, tensors, n, to_length, f->payload);
    return f;
}
