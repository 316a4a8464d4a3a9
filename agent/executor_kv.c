/* Owns the pieces of keys and values that come to a stage of the executor in frames, and those that
 * go. */
#include <assert.h>
#include <stdlib.h>

#include "agent/backend/plain/kv_convert.h"
#include "agent/executor_int.h"
#include "common/env.h"

/* A piece as the stage has it and as it crosses. */
struct kv_piece {
    enum kv_format own;
    size_t own_bytes, bytes; /* 0: the stage has not all of it */
    size_t elements;
};

static struct kv_piece piece_of(struct slot *s, const struct executor_kv *k)
{
    struct kv_shape shape = s->table->state_shape(s);
    struct kv_piece p = {.own_bytes = (size_t)kv_shape_bytes(&shape, &k->range)};
    if (!p.own_bytes)
        return p;
    struct kv_shape_group *g = &shape.groups[k->range.group];
    p.own = g->format;
    p.elements = (size_t)kv_format_elements(p.own, p.own_bytes);
    bool blocks = kv_shape_group_as(g, k->format);
    assert(blocks); /* whoever gave the order has looked at that */
    p.bytes = (size_t)kv_shape_bytes(&shape, &k->range);
    return p;
}

static int piece_memory(const struct kv_piece *p, void **out, struct err *e)
{
    *out = malloc(p->own_bytes);
    return *out ? 0
                : err_set(e, HP_ENOMEM, "no memory for %zu bytes of keys and values", p->own_bytes);
}

/* What a peer sends is looked at before it is computed with. */
static int scales_check(const struct executor_kv *k, const struct kv_piece *p, struct err *e)
{
    if (k->format != KV_Q8_0)
        return 0;
    int64_t bad = dtype_bad_block(DTYPE_Q8_0, k->frame->bytes + FRAME_KV_BYTES, p->elements);
    return bad < 0 ? 0
                   : err_set(e, HP_EPROTO,
                             "block %lld of the keys and values that came has a scale that is no "
                             "number",
                             (long long)bad);
}

/* As the stage has it, whatever it came as. */
static int piece_import(struct slot *s, const struct executor_kv *k, struct err *e)
{
    const void *came = k->frame->bytes + FRAME_KV_BYTES;
    struct kv_piece p = piece_of(s, k);
    int rc = p.bytes ? scales_check(k, &p, e) : 0;
    if (rc < 0)
        return rc;
    if (!p.bytes || p.own == k->format) /* of what it has not, the stage says so */
        return s->table->state_import(s, k->sequence, &k->range, came, e);
    void *own;
    if ((rc = piece_memory(&p, &own, e)) < 0)
        return rc;
    kv_convert(k->format, came, p.elements, p.own, own);
    rc = s->table->state_import(s, k->sequence, &k->range, own, e);
    free(own);
    return rc;
}

static int piece_take(struct executor *x, const struct executor_kv *k, uint32_t *awaited,
                      struct err *e)
{
    struct held_slot *h = executor_slot_find(x, k->slot);
    if (!h)
        return err_set(e, HP_ENOENT, "the stage is not loaded");
    int rc = piece_import(h->held, k, e);
    *awaited = h->held->table->state_awaited(h->held, k->sequence);
    return rc;
}

void executor_kv_take(struct executor *x, const struct executor_kv *k)
{
    struct err e = {0};
    uint32_t awaited = 0;
    int rc = piece_take(x, k, &awaited, &e);
    data_buffer_release(x->config.data, k->frame);
    executor_tell(x, &(struct executor_report){.kind = EXECUTOR_KV_IMPORTED,
                                               .slot = k->slot,
                                               .ticket = k->ticket,
                                               .sequence = k->sequence,
                                               .status = rc,
                                               .error = &e,
                                               .awaited = awaited});
}

/* Into out[p->bytes], as it crosses. */
static int piece_export(struct slot *s, const struct executor_kv *k, const struct kv_piece *p,
                        void *out, struct err *e)
{
    if (!p->bytes || p->own == k->format) /* of what it has not, the stage says so */
        return s->table->state_export(s, k->sequence, &k->range, out, e);
    void *own;
    int rc = piece_memory(p, &own, e);
    if (rc < 0)
        return rc;
    rc = s->table->state_export(s, k->sequence, &k->range, own, e);
    if (rc == 0)
        kv_convert(p->own, own, p->elements, k->format, out);
    free(own);
    return rc;
}

static int piece_give(struct executor *x, const struct executor_kv *k, struct err *e)
{
    struct held_slot *h = executor_slot_find(x, k->slot);
    if (!h)
        return err_set(e, HP_ENOENT, "the stage is not loaded");
    struct kv_piece p = piece_of(h->held, k);
    size_t bytes = FRAME_KV_BYTES + p.bytes;
    struct data_buffer *b = data_buffer_get(x->config.data, bytes);
    if (!b)
        return err_set(e, HP_EBUSY, "no buffer for %zu bytes of keys and values", bytes);
    b->size = bytes;
    frame_kv_encode(&k->range, b->bytes);
    int rc = piece_export(h->held, k, &p, b->bytes + FRAME_KV_BYTES, e);
    if (rc < 0) {
        data_buffer_release(x->config.data, b);
        return rc;
    }
    struct frame_header header = k->header;
    header.sent_ns = env_now_ns(&env_real);
    outlet_post(k->outlet, &header, b, false);
    return 0;
}

void executor_kv_give(struct executor *x, const struct executor_kv *k)
{
    struct err e = {0};
    int rc = piece_give(x, k, &e);
    outlet_release(k->outlet);
    if (rc < 0)
        executor_tell(x, &(struct executor_report){.kind = EXECUTOR_KV_EXPORTED,
                                                   .slot = k->slot,
                                                   .ticket = k->ticket,
                                                   .sequence = k->sequence,
                                                   .status = rc,
                                                   .error = &e,
                                                   .range = rc == HP_EBUSY ? k->range
                                                                           : (struct kv_range){0}});
}
