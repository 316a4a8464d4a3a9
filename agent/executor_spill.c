/* Owns the way of a chain's keys and values between a stage and the store of what is spilled. */
#include <stdlib.h>

#include "agent/executor_int.h"
#include "agent/spill_store.h"
#include "common/env.h"
#include "common/log.h"

/* What the stage has of the chain, page by page: of layers with a window what the next token sees.
 * HP_EINVAL where some of that is gone. */
static int pages_export(struct slot *s, uint64_t sequence, const struct spill_head *h, uint8_t *out,
                        struct err *e)
{
    struct kv_cursor at = {0};
    struct kv_range r;
    int rc = 0;
    while (rc == 0 && spill_file_next(h, &at, &r)) {
        rc = s->table->state_export(s, sequence, &r, out, e);
        out += kv_shape_bytes(&h->shape, &r);
    }
    return rc;
}

static int chain_give(struct executor *x, const struct executor_spill *k, struct err *e)
{
    struct held_slot *h = executor_slot_find(x, k->slot);
    if (!h || h->kind != SLOT_STAGE)
        return err_set(e, HP_ENOENT, "the stage is not loaded");
    struct kv_shape shape = h->held->table->state_shape(h->held);
    struct spill_head head = spill_head_whole(&k->identity, k->pages, k->n_pages, &shape);
    uint8_t *keys;
    struct spill_image *i = spill_store_image(x->config.spills, &head, &keys);
    if (!i)
        return err_set(e, HP_ENOMEM, "no room for %llu bytes",
                       (unsigned long long)spill_file_bytes(&head));
    int rc = pages_export(h->held, k->sequence, &head, keys, e);
    if (rc < 0)
        spill_image_release(i);
    else
        spill_store_put(x->config.spills, i);
    return rc;
}

void executor_spill_give(struct executor *x, const struct executor_spill *k)
{
    struct err e = {0};
    if (chain_give(x, k, &e) < 0)
        log_warn_limited("agent", "spill_failed", "sequence=%llu text=\"%s\"",
                         (unsigned long long)k->sequence, e.text);
    free(k->pages);
}

/* What the sequence wants of a file, where it has the shape of what the stage keeps. */
static int image_import(struct slot *s, const struct executor_spill *k, const struct buffer *b,
                        struct spill_wanted *w, uint64_t *bytes, struct err *e)
{
    struct kv_shape own = s->table->state_shape(s);
    struct spill_head h;
    struct kv_cursor at = {0};
    struct kv_range r;
    size_t from;
    int rc = spill_file_head(b->data, b->size, &h, &from, e);
    if (rc == 0 && (!spill_shape_same(&own, &h.shape) || b->size != spill_file_bytes(&h)))
        rc = err_set(e, HP_ESTALE, "what was spilled is of another shape");
    while (rc == 0 && spill_file_next(&h, &at, &r)) {
        uint64_t n = kv_shape_bytes(&h.shape, &r);
        if (spill_wanted_has(w, &r)) {
            rc = s->table->state_import(s, k->sequence, &r, b->data + from, e);
            *bytes += n;
        }
        from += (size_t)n;
    }
    if (rc == 0)
        spill_wanted_pass(w, &h);
    return rc;
}

static int pages_import(struct slot *s, const struct executor_spill *k, uint64_t *bytes,
                        struct err *e)
{
    struct kv_shape own = s->table->state_shape(s);
    struct spill_wanted w = spill_wanted_of(&own, k->n_pages, k->kept);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < k->found->n; i++)
        rc = image_import(s, k, &k->found->images[i]->b, &w, bytes, e);
    return rc;
}

static int chain_take(struct executor *x, const struct executor_spill *k, uint32_t *awaited,
                      struct err *e)
{
    struct held_slot *h = executor_slot_find(x, k->slot);
    if (!h)
        return err_set(e, HP_ENOENT, "the stage is not loaded");
    uint64_t from_ns = env_now_ns(&env_real), bytes = 0;
    int rc = pages_import(h->held, k, &bytes, e);
    *awaited = h->held->table->state_awaited(h->held, k->sequence);
    if (rc == 0 && *awaited)
        rc = err_set(e, HP_ESTALE, "what was spilled is not all that the sequence begins with");
    if (rc == 0)
        spill_store_measured(x->config.spills, bytes,
                             (double)(env_now_ns(&env_real) - from_ns) * 1e-9);
    return rc;
}

void executor_spill_take(struct executor *x, const struct executor_spill *k)
{
    struct err e = {0};
    uint32_t awaited = 0;
    int rc = chain_take(x, k, &awaited, &e);
    spill_found_release(k->found);
    executor_tell(x, &(struct executor_report){.kind = EXECUTOR_KV_IMPORTED,
                                               .slot = k->slot,
                                               .ticket = k->ticket,
                                               .sequence = k->sequence,
                                               .status = rc,
                                               .error = &e,
                                               .awaited = awaited});
}
