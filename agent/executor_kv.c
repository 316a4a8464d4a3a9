/* Owns the pieces of keys and values that come to a stage of the executor in frames, and those that
 * go. */
#include "agent/executor_int.h"
#include "common/env.h"

static int piece_take(struct executor *x, const struct executor_kv *k, uint32_t *awaited,
                      struct err *e)
{
    struct held_slot *h = executor_slot_find(x, k->slot);
    if (!h)
        return err_set(e, HP_ENOENT, "the stage is not loaded");
    int rc = h->held->table->state_import(h->held, k->sequence, &k->range,
                                          k->frame->bytes + FRAME_KV_BYTES, e);
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

static int piece_give(struct executor *x, const struct executor_kv *k, struct err *e)
{
    struct held_slot *h = executor_slot_find(x, k->slot);
    if (!h)
        return err_set(e, HP_ENOENT, "the stage is not loaded");
    struct kv_shape shape = h->held->table->state_shape(h->held);
    size_t bytes = FRAME_KV_BYTES + (size_t)kv_shape_bytes(&shape, &k->range);
    struct data_buffer *b = data_buffer_get(x->config.data, bytes);
    if (!b)
        return err_set(e, HP_EBUSY, "no buffer for %zu bytes of keys and values", bytes);
    b->size = bytes;
    frame_kv_encode(&k->range, b->bytes);
    int rc =
        h->held->table->state_export(h->held, k->sequence, &k->range, b->bytes + FRAME_KV_BYTES, e);
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
