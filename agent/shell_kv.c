/* Owns the way of keys and values between the core and the executor, and the links that they leave
 * over: one for each export, for as long as that goes on. */
#include <stdlib.h>
#include <string.h>

#include "agent/shell_int.h"

void shell_kv_import(struct agent *a, const struct agent_action *act)
{
    const struct shell_stage *s = shell_stage_of(a, act->u.kv_import.slot);
    if (!s) {
        data_buffer_release(a->data, act->u.kv_import.buffer);
        return; /* it has been unloaded */
    }
    executor_kv_import(s->executor, &(struct executor_kv){.slot = act->u.kv_import.slot,
                                                          .ticket = act->u.kv_import.ticket,
                                                          .sequence = act->u.kv_import.sequence,
                                                          .range = act->u.kv_import.range,
                                                          .format = act->u.kv_import.format,
                                                          .frame = act->u.kv_import.buffer});
}

/* Also where nothing could be posted. On any thread. */
static void piece_left(void *ctx, uint64_t ticket, uint64_t link, int status, bool reserved)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_KV_LEFT}};
    (void)link, (void)reserved;
    m.event.u.kv_left.ticket = ticket;
    m.event.u.kv_left.status = status;
    shell_event_put(ctx, &m);
}

static struct shell_kv_link *link_find(struct agent *a, uint64_t ticket)
{
    for (size_t i = 0; i < AGENT_MAX_KV_EXPORTS; i++)
        if (a->kv_links[i].ticket == ticket)
            return &a->kv_links[i];
    return NULL;
}

/* A paced agent's go as fast as they can: the profile says nothing of them. */
static struct outlet *link_make(struct agent *a, uint64_t ticket, struct pack_span to)
{
    struct shell_kv_link *l = link_find(a, 0);
    struct outlet_config c = {
        .data = a->data, .slot = ticket, .device = "", .left = piece_left, .ctx = a};
    struct err e = {0};
    if (!l || outlet_open(&c, to.data, to.size, &l->outlet, &e) < 0) {
        log_warn("agent", "kv_link_failed", "text=\"%s\"", l ? e.text : "too many exports");
        return NULL;
    }
    l->ticket = ticket;
    return l->outlet;
}

void shell_kv_export(struct agent *a, const struct agent_action *act)
{
    uint64_t ticket = act->u.kv_export.ticket;
    const struct shell_stage *s = shell_stage_of(a, act->u.kv_export.slot);
    struct shell_kv_link *l = link_find(a, ticket);
    struct outlet *o = !s ? NULL : l ? l->outlet : link_make(a, ticket, act->u.kv_export.to);
    if (!o) {
        piece_left(a, ticket, 0, HP_ELINK, false);
        return;
    }
    if (!act->u.kv_export.range.count) { /* a sign of life waits for no executor */
        outlet_post(o, &act->u.kv_export.header, NULL, false);
        return;
    }
    executor_kv_export(s->executor, &(struct executor_kv){.slot = act->u.kv_export.slot,
                                                          .ticket = ticket,
                                                          .sequence = act->u.kv_export.sequence,
                                                          .range = act->u.kv_export.range,
                                                          .format = act->u.kv_export.format,
                                                          .outlet = outlet_hold(o),
                                                          .header = act->u.kv_export.header});
}

void shell_kv_drop(struct agent *a, uint64_t ticket)
{
    struct shell_kv_link *l = link_find(a, ticket);
    if (!l || !ticket)
        return;
    outlet_release(l->outlet);
    *l = (struct shell_kv_link){0};
}

void shell_kv_links_close(struct agent *a)
{
    for (size_t i = 0; i < AGENT_MAX_KV_EXPORTS; i++)
        shell_kv_drop(a, a->kv_links[i].ticket);
}

/* ---- what is spilled ---- */

void shell_spill(struct agent *a, const struct agent_action *act)
{
    const struct shell_stage *s = shell_stage_of(a, act->u.spill.slot);
    struct digest *pages = s && a->spills ? malloc(act->u.spill.pages.size) : NULL;
    if (!pages)
        return;
    memcpy(pages, act->u.spill.pages.data, act->u.spill.pages.size);
    executor_spill_out(s->executor, &(struct executor_spill){.slot = s->slot,
                                                             .sequence = act->u.spill.sequence,
                                                             .n_pages = act->u.spill.n_pages,
                                                             .identity = act->u.spill.identity,
                                                             .pages = pages});
}

void shell_unspill(struct agent *a, const struct agent_action *act)
{
    const struct shell_stage *s = shell_stage_of(a, act->u.spill.slot);
    struct spill_want w = {.slot = act->u.spill.slot,
                           .ticket = act->u.spill.ticket,
                           .sequence = act->u.spill.sequence,
                           .executor = s ? s->executor : NULL,
                           .identity = act->u.spill.identity,
                           .n_pages = act->u.spill.n_pages,
                           .kept = act->u.spill.kept};
    if (!s || !a->spills)
        return;
    memcpy(w.page.bytes, act->u.spill.pages.data, DIGEST_BYTES);
    spill_store_get(a->spills, &w);
}

void shell_spills_tell(struct agent *a, const struct agent_action *act)
{
    if (a->spills)
        spill_store_tell(a->spills, act->u.spill.slot, &act->u.spill.identity);
}
