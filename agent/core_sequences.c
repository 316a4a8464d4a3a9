/* Owns the life of sequences on this agent: opening, closing, failing. Batches have
 * files of their own. */
#include "agent/core_sequences.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/core_drafts.h"
#include "agent/core_links.h"
#include "agent/core_moves.h"
#include "agent/core_out.h"
#include "agent/core_prefill.h"
#include "agent/core_spills.h"
#include "agent/core_streams.h"
#include "common/log.h"
#include "model/graph/config.h"

/* ---- opening and closing ---- */

int core_queue_create(struct agent_core *c, struct core_stage *s, struct err *e)
{
    struct queue_config config = {.first = core_stage_is_first(s),
                                  .last = core_stage_is_last(s),
                                  .n_stages = (uint32_t)s->prepare.n_stages,
                                  .max_batch_tokens = (uint32_t)s->prepare.max_batch_tokens,
                                  .max_sequences = (uint32_t)s->prepare.max_sequences,
                                  .beside_tokens = (uint32_t)s->prepare.beside_tokens,
                                  .hold_limit_ns = (uint64_t)AGENT_HOLD_LIMIT_MS * 1000000,
                                  .flight_limit_ns = core_scaled_ns(c, AGENT_FLIGHT_LIMIT_MS),
                                  .flight_linger_ns = core_scaled_ns(c, AGENT_FLIGHT_LINGER_MS)};
    return queue_create(&config, &s->queue, e);
}

static void release_buffer(void *ctx, void *buffer)
{
    core_release(ctx, buffer);
}

void core_queue_destroy(struct agent_core *c, struct core_stage *s)
{
    if (!s->queue)
        return;
    core_sequences_close_all(c, s);
    struct core_run *runs = core_device_of(c, s)->runs;
    for (size_t i = 0; i < CORE_RUN_PLACES; i++)
        if (runs[i].queue == s->queue)
            runs[i].queue = NULL;
    queue_destroy(&s->queue, release_buffer, c);
}

void core_sequence_free(struct core_sequence *s)
{
    message_ref_release(s->message);
    drafts_destroy(s->drafts);
    free(s->slices);
    free(s->answer);
    free(s->scores);
    free(s);
}

static void close_order(struct agent_core *c, const struct core_stage *s, uint64_t id,
                        uint32_t keep)
{
    struct agent_action *a = core_act(c, AGENT_DO_SEQUENCE_CLOSE);
    if (!a)
        return;
    a->u.sequence_close.slot = s->slot;
    a->u.sequence_close.sequence = id;
    a->u.sequence_close.keep = keep;
}

/* False: it was not open. */
static bool own_sequence_end(struct agent_core *c, struct core_stage *s, uint64_t id, uint32_t keep)
{
    struct core_sequence *own = queue_sequence_close(s->queue, id, env_now_ns(c->env));
    if (!own)
        return false;
    keep = own->awaits_kv ? 0 : keep;
    core_kv_forget(c, s, own);
    core_stream_left(c, s, own);
    own->next_dead = c->dead_sequences;
    c->dead_sequences = own;
    if (keep && s->n_kept == KV_KEPT_MAX)
        keep = 0;
    if (keep)
        s->kept[s->n_kept++] = id;
    close_order(c, s, id, keep);
    return true;
}

static void own_sequence_close(struct agent_core *c, struct core_stage *s, uint64_t id)
{
    own_sequence_end(c, s, id, 0);
}

/* One that has ended is kept for fewer tokens, or no more. False: it is not kept. */
static bool kept_sequence_end(struct agent_core *c, struct core_stage *s, uint64_t id,
                              uint32_t keep)
{
    size_t i = 0;
    while (i < s->n_kept && s->kept[i] != id)
        i++;
    if (i == s->n_kept)
        return false;
    if (!keep)
        s->kept[i] = s->kept[--s->n_kept];
    close_order(c, s, id, keep);
    return true;
}

static void kept_sequences_end(struct agent_core *c, struct core_stage *s)
{
    while (s->n_kept)
        close_order(c, s, s->kept[--s->n_kept], 0);
}

void core_sequences_close_all(struct agent_core *c, struct core_stage *s)
{
    struct queue_sequence *q;
    while ((q = queue_sequence_at(s->queue, 0)) != NULL)
        own_sequence_close(c, s, q->id);
    kept_sequences_end(c, s);
}

void core_sequences_close_dead(struct agent_core *c, struct core_stage *s)
{
    struct queue_sequence *q;
    for (size_t i = 0; (q = queue_sequence_at(s->queue, i)) != NULL;) {
        const struct core_sequence *own = q->owner;
        if (own->open.stream && !own->awaits_kv)
            i++;
        else
            own_sequence_close(c, s, q->id);
    }
    kept_sequences_end(c, s);
}

static void failure_send(struct agent_core *c, uint64_t deployment, uint64_t generation,
                         uint64_t id, int code, const char *text)
{
    struct message *m = core_send(c, MESSAGE_SEQUENCE_FAILED);
    if (m)
        m->u.sequence_failed = (struct message_sequence_failed){
            deployment, generation, id, status_word(code), core_text(c, text)};
}

void core_sequence_fail(struct agent_core *c, struct core_stage *s, uint64_t id, int code,
                        const char *text)
{
    log_warn_limited("agent", "sequence_failed", "sequence=%llu code=%s text=\"%s\"",
                     (unsigned long long)id, status_word(code), text);
    failure_send(c, s->prepare.deployment, s->prepare.generation, id, code, text);
    own_sequence_close(c, s, id);
}

void core_sequences_fail_all(struct agent_core *c, struct core_stage *s, int code, const char *text)
{
    struct queue_sequence *q;
    while (s->queue && (q = queue_sequence_at(s->queue, 0)) != NULL)
        core_sequence_fail(c, s, q->id, code, text);
}

static int open_check(const struct core_stage *s, const struct message_sequence_open *o,
                      bool spills, struct err *e)
{
    if (!s->queue || (!s->connected && s->prepare.n_stages > 1))
        return err_set(e, HP_EBUSY, "the stage is not ready for sequences");
    if (!o->sequence || !o->kv_tokens || o->kv_tokens > UINT32_MAX ||
        o->prompt.count > o->kv_tokens)
        return err_set(e, HP_EINVAL, "a sequence of %zu tokens cannot live in %llu",
                       o->prompt.count, (unsigned long long)o->kv_tokens);
    if (o->reserved > o->kv_tokens || (o->reserved && o->reserved < o->prompt.count))
        return err_set(e, HP_EINVAL, "of a sequence of %zu tokens in %llu, %llu cannot be reserved",
                       o->prompt.count, (unsigned long long)o->kv_tokens,
                       (unsigned long long)o->reserved);
    if (o->length >= o->kv_tokens || (o->share && (!o->length || o->share >= o->sequence)) ||
        (core_stage_is_first(s) && o->length >= o->prompt.count) || o->sampled > o->prompt.count)
        return err_set(e, HP_EINVAL,
                       "a sequence of %zu tokens with room for %llu cannot begin with %llu, of "
                       "which %llu were sampled",
                       o->prompt.count, (unsigned long long)o->kv_tokens,
                       (unsigned long long)o->length, (unsigned long long)o->sampled);
    bool both = o->share && o->spilled.size; /* then some of each, in whole pages */
    if ((o->spilled.size && (o->spilled.size != DIGEST_BYTES || !o->length ||
                             o->length % KV_PAGE_TOKENS || !spills)) ||
        both != (o->shared > 0) || (both && o->shared >= o->length) || o->shared % KV_PAGE_TOKENS)
        return err_set(e, HP_EINVAL, "%llu tokens of the sequence are not spilled here",
                       (unsigned long long)o->length);
    if (o->pooling > POOLING_LAST || (o->pooling && !o->all_logits))
        return err_set(e, HP_EINVAL, "pooling %llu is none that is known here",
                       (unsigned long long)o->pooling);
    if (o->said_scores > 1 + SCORE_MAX_TOP || o->prompt_scores > 1 + SCORE_MAX_TOP ||
        (o->prompt_scores && (o->length || o->sampled || o->all_logits)))
        return err_set(e, HP_EINVAL,
                       "%llu scores of each token and %llu of the prompt's cannot be said of this "
                       "sequence",
                       (unsigned long long)o->said_scores, (unsigned long long)o->prompt_scores);
    for (size_t i = 0; core_stage_is_first(s) && i < o->prompt.count; i++)
        if (o->prompt.items[i] >= s->vocabulary)
            return err_set(e, HP_EINVAL, "token %u at position %zu is beyond the vocabulary of %u",
                           o->prompt.items[i], i, s->vocabulary);
    return 0;
}

/* NULL: no memory. */
static struct core_sequence *own_sequence_create(struct agent_core *c, struct message_ref *m)
{
    struct core_sequence *own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    own->message = message_ref_hold(m);
    own->open = m->message.u.sequence_open;
    own->ticket = ++c->last_ticket;
    own->sampled = own->open.sampled;
    own->awaits_kv = own->open.length && (!own->open.share || own->open.shared);
    own->kv_ns = env_now_ns(c->env);
    own->kv_left = UINT32_MAX;
    return own;
}

static int own_sequence_enqueue(const struct core_stage *s, struct core_sequence *own,
                                struct err *e)
{
    const struct message_sequence_open *o = &own->open;
    struct queue_sequence q = {.id = o->sequence,
                               .owner = own,
                               .all_logits = o->all_logits,
                               .said_width = (uint32_t)o->said_scores,
                               .scored_width = (uint32_t)o->prompt_scores,
                               .length = (uint32_t)o->length,
                               .reserved = (uint32_t)(o->reserved ? o->reserved : o->kv_tokens),
                               .prompt = o->prompt.items,
                               .n_prompt = (uint32_t)o->prompt.count,
                               .slices = o->slices.items,
                               .n_slices = (uint32_t)o->slices.count};
    return queue_sequence_open(s->queue, &q, e);
}

static void open_order(struct agent_core *c, const struct core_stage *s,
                       const struct core_sequence *own)
{
    struct agent_action *a = core_act(c, AGENT_DO_SEQUENCE_OPEN);
    if (!a)
        return;
    a->u.sequence_open.slot = s->slot;
    a->u.sequence_open.ticket = own->ticket;
    a->u.sequence_open.sampler = core_stage_is_last(s) && !own->open.all_logits;
    a->u.sequence_open.open = &own->open;
}

static int sequence_begin(struct agent_core *c, struct core_stage *s, struct message_ref *m,
                          struct err *e)
{
    int rc = open_check(s, &m->message.u.sequence_open, c->config->spills, e);
    if (rc < 0)
        return rc;
    struct core_sequence *own = own_sequence_create(c, m);
    if (!own)
        return err_set(e, HP_ENOMEM, "no memory for a sequence");
    rc = own_sequence_enqueue(s, own, e);
    if (rc < 0) {
        core_sequence_free(own);
        return rc;
    }
    core_drafts_begin(s, own);
    core_stream_begin(s, own);
    c->n_kv_awaiting += own->awaits_kv;
    core_stage_links_mend(c, s);
    open_order(c, s, own);
    core_spill_back(c, s, own);
    return 0;
}

void core_sequence_open(struct agent_core *c, struct message_ref *m)
{
    const struct message_sequence_open *o = &m->message.u.sequence_open;
    struct core_stage *s = core_stage_ordered(c, o->deployment, o->generation, o->stage);
    struct err e = {0};
    if (!s && o->generation < core_orders_term(c, o->deployment)) {
        c->dropped_stale++;
        return;
    }
    if (!s) {
        failure_send(c, o->deployment, o->generation, o->sequence, HP_ESTALE,
                     "this agent does not have that stage of that deployment and generation");
        return;
    }
    int rc = sequence_begin(c, s, m, &e);
    /* Said twice, or closed before: nothing to do. */
    if (rc < 0 && rc != HP_EEXIST && rc != HP_ECANCELED)
        failure_send(c, o->deployment, o->generation, o->sequence, rc, e.text);
}

void core_sequence_grow(struct agent_core *c, struct message_ref *m)
{
    const struct message_sequence_grow *grow = &m->message.u.sequence_grow;
    struct core_stage *s = core_stage_ordered(c, grow->deployment, grow->generation, grow->stage);
    struct queue_sequence *q = s && s->queue ? queue_sequence_find(s->queue, grow->sequence) : NULL;
    const struct core_sequence *own = q ? q->owner : NULL;
    if (!own || grow->reserved <= q->reserved || grow->reserved > own->open.kv_tokens)
        return;
    struct agent_action *a = core_act(c, AGENT_DO_SEQUENCE_GROW);
    if (!a)
        return;
    q->reserved = (uint32_t)grow->reserved;
    a->u.sequence_grow.slot = s->slot;
    a->u.sequence_grow.sequence = grow->sequence;
    a->u.sequence_grow.reserved = q->reserved;
}

void core_sequence_closed(struct agent_core *c, struct message_ref *m)
{
    const struct message_sequence_close *close = &m->message.u.sequence_close;
    struct core_stage *s = core_stage_of(c, close->deployment, close->generation, close->stage);
    if (!s || !s->queue)
        return;
    uint32_t keep = close->keep > UINT32_MAX ? 0 : (uint32_t)close->keep;
    struct queue_sequence *q = queue_sequence_find(s->queue, close->sequence);
    if (q)
        core_decode_ended(c, s, q->owner);
    if (!close->sequence)
        core_sequences_close_all(c, s);
    else if (!kept_sequence_end(c, s, close->sequence, keep))
        own_sequence_end(c, s, close->sequence, keep);
}

void core_sequence_opened(struct agent_core *c, const struct agent_event *ev)
{
    struct core_stage *s = core_stage_of_slot(c, ev->u.sequence_opened.slot);
    uint64_t id = ev->u.sequence_opened.sequence;
    struct queue_sequence *q = s && s->queue ? queue_sequence_find(s->queue, id) : NULL;
    if (!q || ((struct core_sequence *)q->owner)->ticket != ev->u.sequence_opened.ticket)
        return;
    const struct err *e = ev->u.sequence_opened.error;
    if (ev->u.sequence_opened.status < 0) {
        if (ev->u.sequence_opened.status == HP_EDEVICE)
            core_stage_break(c, s, e); /* as in core_batch_failed */
        core_sequence_fail(c, s, id, ev->u.sequence_opened.status,
                           e ? e->text : "the stage has no room for the sequence");
        return;
    }
    ((struct core_sequence *)q->owner)->kv_left = ev->u.sequence_opened.awaited;
    if (ev->u.sequence_opened.awaited)
        return;
    core_kv_received(c, s, q->owner);
    queue_sequence_ready(s->queue, id);
}

void core_events_lost(struct agent_core *c, const struct agent_event *ev)
{
    (void)ev;
    for (size_t i = 0; i < c->n_stages; i++)
        core_sequences_fail_all(c, c->stages[i], HP_EBUSY,
                                "more came to this agent at once than it could keep");
}
