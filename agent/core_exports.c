/* Owns orders to send a sequence's keys and values elsewhere: what of them goes, piece by piece, as
 * many at once as may be on their way. Every order has an answer. */
#include "agent/core_exports.h"

#include "agent/core_moves.h"
#include "agent/core_out.h"

static const uint64_t ms = 1000000;

/* Of the stage's shape what the order asks for, in the format that it crosses in. */
static int shape_cut(const struct message_kv_export *o, struct kv_shape *shape, struct err *e)
{
    const struct message_kv_blocks *b = o->blocks.items;
    enum kv_format format;
    if (o->kv && o->kv[0]) {
        if (!kv_format_of_word(o->kv, false, &format))
            return err_set(e, HP_EINVAL, "nobody keeps keys and values as \"%.40s\"", o->kv);
        kv_shape_narrow(shape, format);
    }
    struct kv_shape all = *shape;
    for (uint32_t g = 0; o->blocks.count && g < shape->n_groups; g++)
        shape->groups[g].n_blocks = 0;
    for (size_t i = 0; i < o->blocks.count; i++) {
        if (b[i].group >= all.n_groups || b[i].first > UINT32_MAX || b[i].count > UINT32_MAX)
            return err_set(e, HP_EINVAL, "there is no group %llu of layers",
                           (unsigned long long)b[i].group);
        if (shape->groups[b[i].group].n_blocks)
            return err_set(e, HP_EINVAL, "group %u stands twice among what is to go",
                           (uint32_t)b[i].group);
        struct kv_range r = {(uint32_t)b[i].group, (uint32_t)b[i].first, (uint32_t)b[i].count, 0,
                             1};
        if (!kv_shape_bytes(&all, &r))
            return err_set(e, HP_EINVAL, "blocks %u to %u of group %u are not all on this stage",
                           r.first_block, r.first_block + r.n_blocks - 1, r.group);
        shape->groups[r.group].first_block = r.first_block;
        shape->groups[r.group].n_blocks = r.n_blocks;
    }
    return 0;
}

static int export_check(const struct core_stage *s, const struct message_kv_export *o,
                        struct err *e)
{
    const struct queue_sequence *q = queue_sequence_find(s->queue, o->sequence);
    unsigned long long id = o->sequence;
    if (!q)
        return err_set(e, HP_ENOENT, "sequence %llu is not open", id);
    uint64_t most = o->follow ? ((struct core_sequence *)q->owner)->open.kv_tokens : q->length;
    if (!o->length || o->length > most || ((struct core_sequence *)q->owner)->awaits_kv)
        return err_set(e, HP_EINVAL, "sequence %llu has %u tokens, not %llu", id,
                       ((struct core_sequence *)q->owner)->awaits_kv ? 0 : q->length,
                       (unsigned long long)o->length);
    if (!o->session || !o->to_address.size || o->to_stage > UINT16_MAX ||
        o->to_generation > UINT32_MAX)
        return err_set(e, HP_EINVAL, "it is not said where sequence %llu is to go", id);
    return 0;
}

static struct core_kv_export *export_free(struct agent_core *c, struct err *e)
{
    for (size_t i = 0; i < AGENT_MAX_KV_EXPORTS; i++)
        if (!c->kv_exports[i].message)
            return &c->kv_exports[i];
    err_set(e, HP_EBUSY, "this agent sends keys and values of %d sequences already",
            AGENT_MAX_KV_EXPORTS);
    return NULL;
}

/* How many of the tokens that are to go may go now: all, or the whole pages of those that have been
 * handed to the executor, which gives them after it has computed them. */
static uint32_t export_there(const struct agent_core *c, const struct core_kv_export *x)
{
    const struct core_stage *s = core_stage_of_slot(c, x->slot);
    const struct queue_sequence *q =
        s && s->queue ? queue_sequence_find(s->queue, x->order.sequence) : NULL;
    uint32_t n = q ? q->length : 0, length = (uint32_t)x->order.length;
    return n >= length ? length : n / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
}

/* Whether all pieces have been cut. */
static bool export_is_cut(const struct core_kv_export *x)
{
    return x->at.upto == x->order.length;
}

static bool piece_cut(struct core_kv_export *x, struct kv_range *out)
{
    return x->at.upto &&
           kv_shape_next(&x->shape, (uint32_t)x->order.length, AGENT_KV_PIECE_BYTES, &x->at, out);
}

static bool piece_next(const struct agent_core *c, struct core_kv_export *x, struct kv_range *out)
{
    if (x->n_again) {
        *out = x->again[--x->n_again];
        return true;
    }
    if (piece_cut(x, out))
        return true;
    uint32_t there = export_there(c, x);
    if (there <= x->at.upto)
        return false;
    x->at = (struct kv_cursor){.from = x->at.upto, .upto = there};
    return piece_cut(x, out);
}

static bool piece_send(struct agent_core *c, struct core_kv_export *x, const struct kv_range *r)
{
    const struct message_kv_export *o = &x->order;
    struct agent_action *a = core_act(c, AGENT_DO_KV_EXPORT);
    if (!a)
        return false;
    a->u.kv_export.slot = x->slot;
    a->u.kv_export.ticket = x->ticket;
    a->u.kv_export.sequence = o->sequence;
    a->u.kv_export.range = *r;
    a->u.kv_export.format = x->shape.groups[r->group].format;
    a->u.kv_export.to = core_span(c, o->to_address);
    a->u.kv_export.header = (struct frame_header){
        .kind = FRAME_KV,
        .stage = (uint16_t)o->to_stage,
        .dtype = (uint16_t)frame_dtype_of_kv(x->shape.groups[r->group].format),
        .session = o->session,
        .deployment = o->to_deployment,
        .generation = (uint32_t)o->to_generation,
        .sequence = o->to_sequence,
        .first_position = r->first,
        .n_tokens = r->count};
    x->n_out++;
    x->moved_bytes += kv_shape_bytes(&x->shape, r);
    return true;
}

/* As many pieces as may be on their way; the end, when none is left. */
static void pieces_send(struct agent_core *c, struct core_kv_export *x)
{
    struct kv_range r;
    struct err e = {0};
    while (x->n_out < AGENT_KV_WINDOW && piece_next(c, x, &r))
        if (!piece_send(c, x, &r)) {
            err_set(&e, HP_ENOMEM, "no memory to send keys and values");
            core_kv_export_end(c, x, &e);
            return;
        }
    if (!x->n_out && export_is_cut(x))
        core_kv_export_end(c, x, NULL);
}

/* Nothing of it can go before more has been computed. */
static bool export_waits(const struct core_kv_export *x)
{
    return !x->n_out && !x->n_again && !export_is_cut(x);
}

void core_kv_follow(struct agent_core *c)
{
    for (size_t i = 0; c->n_kv_exports && i < AGENT_MAX_KV_EXPORTS; i++) {
        struct core_kv_export *x = &c->kv_exports[i];
        if (x->message && export_waits(x) && export_there(c, x) > x->at.upto)
            pieces_send(c, x);
    }
}

void core_kv_export(struct agent_core *c, struct message_ref *ref)
{
    const struct message_kv_export *o = &ref->message.u.kv_export;
    struct err e = {0};
    struct core_stage *s = core_kv_stage(c, o->deployment, o->generation, o->stage, &e);
    struct kv_shape shape = s ? s->kv : (struct kv_shape){0};
    int rc = !s ? e.code : export_check(s, o, &e);
    rc = rc < 0 ? rc : shape_cut(o, &shape, &e);
    struct core_kv_export *x = rc < 0 ? NULL : export_free(c, &e);
    if (!x) {
        core_kv_say(c, ref->message.id,
                    &(struct message_kv_state){.deployment = o->deployment,
                                               .generation = o->generation,
                                               .stage = o->stage,
                                               .sequence = o->sequence},
                    &e);
        return;
    }
    *x = (struct core_kv_export){.message = message_ref_hold(ref),
                                 .order = *o,
                                 .slot = s->slot,
                                 .ticket = ++c->last_ticket,
                                 .id = ref->message.id,
                                 .shape = shape,
                                 .left_ns = c->now_ns};
    c->n_kv_exports++;
    pieces_send(c, x);
}

static struct core_kv_export *export_of(struct agent_core *c, uint64_t ticket)
{
    for (size_t i = 0; i < AGENT_MAX_KV_EXPORTS; i++)
        if (c->kv_exports[i].message && c->kv_exports[i].ticket == ticket)
            return &c->kv_exports[i];
    return NULL;
}

void core_kv_left(struct agent_core *c, const struct agent_event *ev)
{
    struct core_kv_export *x = export_of(c, ev->u.kv_left.ticket);
    struct err e = {0};
    if (!x || !x->n_out)
        return;
    x->n_out--;
    if (ev->u.kv_left.status == HP_EBUSY && ev->u.kv_left.range.count) {
        x->again[x->n_again++] = ev->u.kv_left.range;
        x->moved_bytes -= kv_shape_bytes(&x->shape, &ev->u.kv_left.range);
        x->retry_ns = c->now_ns + AGENT_KV_RETRY_MS * ms;
        return;
    }
    if (ev->u.kv_left.status < 0) {
        err_set(&e, ev->u.kv_left.status, "%s",
                ev->u.kv_left.error ? ev->u.kv_left.error->text
                                    : "the link to where keys and values go broke");
        core_kv_export_end(c, x, &e);
        return;
    }
    x->left_ns = c->now_ns;
    if (x->retry_ns <= c->now_ns)
        pieces_send(c, x);
}

/* ---- time ---- */

static uint64_t export_deadline_ns(const struct agent_core *c, const struct core_kv_export *x)
{
    const struct core_stage *s = core_stage_of_slot(c, x->slot);
    if (export_waits(x))
        return x->left_ns + AGENT_KV_BEAT_MS * ms;
    if (x->n_again && x->retry_ns)
        return x->retry_ns;
    if (x->order.follow && s && core_device_of(c, s)->n_running)
        return UINT64_MAX; /* its pieces wait for what the executor is at */
    return x->left_ns + core_scaled_ns(c, AGENT_KV_LIMIT_MS);
}

static void export_tick(struct agent_core *c, struct core_kv_export *x, uint64_t now_ns)
{
    struct err e = {0};
    if (export_waits(x)) {
        x->left_ns = now_ns;
        piece_send(c, x, &(struct kv_range){0}); /* a sign of life */
        return;
    }
    if (now_ns < x->left_ns + core_scaled_ns(c, AGENT_KV_LIMIT_MS)) {
        x->retry_ns = 0;
        pieces_send(c, x);
        return;
    }
    err_set(&e, HP_ETIMEOUT, "keys and values do not leave: %u pieces wait", x->n_out + x->n_again);
    core_kv_export_end(c, x, &e);
}

void core_exports_tick(struct agent_core *c, uint64_t now_ns)
{
    for (size_t i = 0; c->n_kv_exports && i < AGENT_MAX_KV_EXPORTS; i++)
        if (c->kv_exports[i].message && export_deadline_ns(c, &c->kv_exports[i]) <= now_ns)
            export_tick(c, &c->kv_exports[i], now_ns);
}

uint64_t core_exports_deadline(const struct agent_core *c)
{
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; c->n_kv_exports && i < AGENT_MAX_KV_EXPORTS; i++)
        if (c->kv_exports[i].message) {
            uint64_t d = export_deadline_ns(c, &c->kv_exports[i]);
            at = d < at ? d : at;
        }
    return at;
}
