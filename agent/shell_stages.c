/* Owns what the shell keeps of the stages that the core holds, and the way of their frames out. */
#include <stdlib.h>
#include <string.h>

#include "agent/shell_int.h"
#include "common/vector.h"
#include "transport/stage_bytes.h"

/* So many batches on their way to a share have room in the pool of received frames. */
enum { SHARE_INPUTS = 8 };

/* ---- stages ---- */

struct shell_stage *shell_stage_of(struct agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_stages; i++)
        if (a->stages[i].slot == slot)
            return &a->stages[i];
    return NULL;
}

/* ---- the pool of received frames ---- */

uint64_t shell_pool_least_bytes(const struct agent *a)
{
    return a->config.pool_limit_bytes ? a->config.pool_limit_bytes
                                      : discover_pool_bytes(&a->config.share);
}

/* The pool has room for all that can be on its way to the stages at once. What that is beyond its
 * own share is the stages' to pay. */
static uint64_t pool_size(struct agent *a)
{
    uint64_t inputs = 0, least = shell_pool_least_bytes(a);
    for (size_t i = 0; i < a->n_stages; i++)
        inputs += a->stages[i].inputs_bytes;
    if (a->config.pool_limit_bytes)
        return 0;
    uint64_t need = inputs + STAGE_KV_BYTES;
    data_pool_limit(a->data, need > least ? need : least);
    return stage_receiving_bytes(inputs, least);
}

/* What comes of a token from the stage before. */
static struct frame_row entering_row(const struct message_stage_prepare *p)
{
    const struct message_value *values = p->enters.items;
    struct frame_row row = {0};
    for (size_t i = 0; i < p->enters.count; i++) {
        row.width += values[i].width;
        row.exact += values[i].exact ? values[i].width : 0;
    }
    return row;
}

/* How much more of the memory for stages the pool takes from now on. */
static uint64_t stage_receives(struct agent *a, struct shell_stage *s, struct frame_row row)
{
    s->inputs_bytes = 0;
    uint64_t before = pool_size(a);
    if (row.width)
        s->inputs_bytes = stage_inputs_bytes(s->n_stages, s->max_batch_tokens, row, s->wire);
    return pool_size(a) - before;
}

/* Who ordered it may not have said what comes: then nobody has counted it. */
void shell_stage_loaded(struct agent *a, struct shell_stage *s, const struct agent_progress *loaded)
{
    s->vocabulary = loaded->vocabulary;
    s->hop = loaded->hop;
    if (s->runner) {
        s->inputs_bytes = SHARE_INPUTS * share_runner_view(s->runner).input_bytes;
        pool_size(a);
    } else if (!s->inputs_bytes)
        stage_receives(a, s, loaded->row_in);
}

/* ---- frames ---- */

/* The table of a frame without rows; NULL when memory ran out. */
static struct data_buffer *tokens_buffer(struct agent *a, const struct agent_action *act)
{
    size_t bytes = (size_t)act->u.post.header.n_runs * FRAME_TOKEN_BYTES;
    struct data_buffer *b = data_buffer_get(a->data, bytes);
    if (b) {
        frame_tokens_encode(act->u.post.tokens, act->u.post.header.n_runs, b->bytes);
        b->size = bytes;
    }
    return b;
}

/* A frame that cannot be posted is as good as a link that broke. */
static void outlet_left(void *ctx, uint64_t slot, uint64_t link, int status, bool reserved)
{
    struct agent *a = ctx;
    if (reserved) {
        struct queued_event m = {.event = {.kind = AGENT_EVENT_OUTPUT_BACK}};
        m.event.u.output_back.slot = slot;
        shell_event_put(a, &m);
    }
    if (status >= 0)
        return;
    struct queued_event m = {.event = {.kind = AGENT_EVENT_LINK_DOWN}, .link = link};
    m.event.u.link_down.slot = slot;
    shell_event_put(a, &m);
}

void shell_frame_post(struct agent *a, const struct agent_action *act)
{
    struct shell_stage *s = shell_stage_of(a, act->u.post.slot);
    struct outlet *o = !s ? NULL : act->u.post.link == AGENT_LINK_NEXT ? s->next : s->first;
    struct data_buffer *b = act->u.post.buffer;
    bool tokens = act->u.post.header.kind == FRAME_TOKEN && act->u.post.header.n_runs > 0;
    if (tokens && o)
        b = tokens_buffer(a, act);
    if (o && (b || !tokens)) {
        outlet_post(o, &act->u.post.header, b, false);
        return;
    }
    if (act->u.post.header.kind == FRAME_ALIVE)
        return; /* its loss is what tells */
    log_warn("agent", "frame_lost", "batch=%u reason=%s", act->u.post.header.batch,
             o ? "no_memory" : "no_link");
    if (b)
        data_buffer_release(a->data, b);
    if (s)
        outlet_left(a, s->slot, o ? outlet_number(o) : 0, HP_ELINK, false);
}

static void outlet_drop(struct outlet **o)
{
    if (*o)
        outlet_forget(*o);
    outlet_release(*o);
    *o = NULL;
}

void shell_stage_drop(struct agent *a, uint64_t slot)
{
    struct shell_stage *s = shell_stage_of(a, slot);
    if (!s)
        return;
    shell_share_drop(a, s);
    outlet_drop(&s->next);
    outlet_drop(&s->first);
    free(s->path);
    if (a->spills)
        spill_store_forget(a->spills, slot);
    *s = a->stages[--a->n_stages];
    pool_size(a);
}

static struct shell_stage *stage_make(struct agent *a, uint64_t slot, uint64_t device)
{
    struct shell_stage *s = shell_stage_of(a, slot);
    if (s)
        return s;
    struct shell_stage made = {.slot = slot, .executor = a->executors[device]};
    bool added = vector_push(a->stages, a->n_stages, a->stage_capacity, made);
    return added ? &a->stages[a->n_stages - 1] : NULL;
}

/* What could not even begin fails as if it had been tried. */
static void work_failed(struct agent *a, enum agent_event_kind kind, const struct agent_action *act,
                        int code, const char *text)
{
    struct queued_event m = {.event = {.kind = kind}, .error = calloc(1, sizeof(struct err))};
    m.event.u.progress.slot = act->u.work.slot;
    m.event.u.progress.ticket = act->u.work.ticket;
    m.event.u.progress.status = code;
    err_set(m.error, code, "%s", text);
    shell_event_put(a, &m);
}

void shell_stage_fetch(struct agent *a, const struct agent_action *act)
{
    if (stage_make(a, act->u.work.slot, act->u.work.prepare->message.u.stage_prepare.device))
        store_worker_fetch(a->store, act->u.work.slot, act->u.work.ticket, act->u.work.prepare);
    else
        work_failed(a, AGENT_EVENT_FETCHED, act, HP_ENOMEM, "no memory for a stage");
}

void shell_stage_load(struct agent *a, const struct agent_action *act)
{
    const struct message_stage_prepare *p = &act->u.work.prepare->message.u.stage_prepare;
    struct shell_stage *s = shell_stage_of(a, act->u.work.slot);
    if (!s || !s->path) {
        work_failed(a, AGENT_EVENT_LOADED, act, HP_ENOMEM,
                    "the store did not say where the model lies");
        return;
    }
    if (p->share.count > 0) {
        shell_share_load(a, s, act, shell_pool_least_bytes(a));
        return;
    }
    struct executor_load l = {.slot = act->u.work.slot,
                              .ticket = act->u.work.ticket,
                              .path = s->path,
                              .first_layer = (int)p->first_layer,
                              .end_layer = (int)p->end_layer,
                              .expert_groups = (int)p->expert_groups,
                              .f32 = strcmp(p->compute, "f32") == 0,
                              .keeps = p->keeps,
                              .kv_tokens = p->kv_tokens,
                              .max_sequences = (uint32_t)p->max_sequences,
                              .max_batch_tokens = (uint32_t)p->max_batch_tokens,
                              .n_stages = (uint32_t)p->n_stages,
                              .stands_for = p->stands_for,
                              .enters = p->enters,
                              .crosses = p->crosses};
    frame_dtype_of_word(p->wire, &l.wire);
    l.kv_given = kv_format_of_word(p->kv, l.f32, &l.kv);
    s->wire = l.wire;
    s->stands_for = p->stands_for;
    s->n_stages = p->n_stages;
    s->max_batch_tokens = p->max_batch_tokens;
    l.receiving_bytes = stage_receives(a, s, p->stage ? entering_row(p) : (struct frame_row){0});
    executor_load(s->executor, &l);
}

void shell_stage_unload(struct agent *a, uint64_t slot)
{
    const struct shell_stage *s = shell_stage_of(a, slot);
    if (s)
        executor_unload(s->executor, slot);
    store_worker_drop(a->store, slot);
    shell_stage_drop(a, slot);
}

static void outlet_make(struct agent *a, const struct shell_stage *s, struct pack_span address,
                        const char *device, bool tokens, struct outlet **out)
{
    struct err e = {0};
    struct outlet_config c = {.data = a->data,
                              .slot = s->slot,
                              .line = a->line,
                              .paced = a->paced,
                              .device = device,
                              .tokens = tokens,
                              .hop = s->hop,
                              .stands_for = s->stands_for,
                              .left = outlet_left,
                              .ctx = a};
    outlet_drop(out);
    if (address.size && outlet_open(&c, address.data, address.size, out, &e) < 0) {
        log_warn("agent", "link_failed", "text=\"%s\"", e.text);
        *out = NULL;
    }
}

void shell_stage_connect(struct agent *a, const struct agent_action *act)
{
    struct shell_stage *s = shell_stage_of(a, act->u.connect.slot);
    if (!s)
        return;
    outlet_make(a, s, act->u.connect.next, act->u.connect.next_device, false, &s->next);
    outlet_make(a, s, act->u.connect.first, act->u.connect.first_device, true, &s->first);
    if (act->u.connect.session)
        executor_expect(s->executor, s->slot, act->u.connect.session);
}
