/* Where simulated agents spill: what toy layers remembered after each position of a chain. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster_int.h"

static void spill_free(struct sim_spill *p)
{
    free(p->pages);
    free(p->history);
}

void sim_spills_free(struct sim_agent *a)
{
    while (a->n_spills)
        spill_free(&a->spills[--a->n_spills]);
    free(a->spills);
    a->spills = NULL;
}

static void spill_told(struct sim *s, struct sim_agent *a, uint64_t slot, bool anew,
                       struct message_spill *rows, size_t n)
{
    struct agent_event ev = {.kind = AGENT_EVENT_SPILLS};
    ev.u.spills.slot = slot;
    ev.u.spills.told = (struct message_spills){
        .anew = anew, .chains = {rows, n}, .memory_bytes_per_s = 1e12, .disk_bytes_per_s = 1e12};
    sim_agent_event(s, a, &ev);
}

static struct message_spill row_of(const struct sim_spill *p, bool gone)
{
    size_t n = p->n_pages - p->least + 1;
    return (struct message_spill){
        {(const uint8_t *)(p->pages + p->least - 1), n * sizeof *p->pages}, true, gone};
}

void sim_spills_tell(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    struct message_spill rows[MESSAGE_MAX_SPILLS];
    uint64_t slot = act->u.spill.slot;
    struct digest identity = act->u.spill.identity;
    size_t n = 0;
    if (!s->most_spills)
        return;
    for (size_t i = 0; i < a->n_spills; i++)
        if (memcmp(&a->spills[i].identity, &identity, sizeof identity) == 0) {
            a->spills[i].slot = slot;
            rows[n++] = row_of(&a->spills[i], false);
        }
    spill_told(s, a, slot, true, rows, n);
}

/* The place of a chain that has this page; n_spills: none has. */
static size_t spill_find(const struct sim_agent *a, const struct digest *identity, uint32_t n_pages,
                         const struct digest *page)
{
    size_t i = 0;
    while (i < a->n_spills && (memcmp(&a->spills[i].identity, identity, sizeof *identity) != 0 ||
                               a->spills[i].n_pages < n_pages || a->spills[i].least > n_pages ||
                               memcmp(&a->spills[i].pages[n_pages - 1], page, sizeof *page) != 0))
        i++;
    return i;
}

/* Whether the pages before those that it tells of are nobody's any more. */
static bool spill_is_cut_off(const struct sim *s, const struct sim_agent *a,
                             const struct sim_spill *p)
{
    uint32_t before = p->least - 1;
    return before && !s->window &&
           spill_find(a, &p->identity, before, &p->pages[before - 1]) == a->n_spills;
}

/* The one at this place goes, and whatever needs its pages. */
static void spill_drop(struct sim *s, struct sim_agent *a, size_t i)
{
    struct sim_spill gone = a->spills[i];
    struct message_spill row = row_of(&gone, true);
    memmove(&a->spills[i], &a->spills[i + 1], (--a->n_spills - i) * sizeof gone);
    spill_told(s, a, gone.slot, false, &row, 1);
    spill_free(&gone);
    for (size_t k = 0; k < a->n_spills; k++)
        if (spill_is_cut_off(s, a, &a->spills[k])) {
            spill_drop(s, a, k);
            return; /* which has looked at the others */
        }
}

void sim_spill_order(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    size_t bytes = act->u.spill.pages.size;
    struct digest *pages = malloc(bytes);
    assert(pages);
    memcpy(pages, act->u.spill.pages.data, bytes);
    sim_order_add(s, a,
                  (struct sim_order){.kind = act->kind,
                                     .slot = act->u.spill.slot,
                                     .ticket = act->u.spill.ticket,
                                     .sequence = act->u.spill.sequence,
                                     .length = act->u.spill.n_pages,
                                     .identity = act->u.spill.identity,
                                     .pages = pages});
}

static void spill_out(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    const struct sim_sequence *q = sim_sequence_of(a, o->slot, o->sequence);
    uint32_t tokens = o->length * KV_PAGE_TOKENS;
    if (!q || q->n_awaited || q->memory.length < tokens || sim_first_seen(s, tokens) < q->gone ||
        spill_find(a, &o->identity, o->length, &o->pages[o->length - 1]) < a->n_spills)
        return;
    if ((double)sim_random(s, 1000) < s->spill_lie * 1000) {
        struct message_spill lie = {
            {(const uint8_t *)o->pages, o->length * sizeof *o->pages}, true, false};
        spill_told(s, a, o->slot, false, &lie, 1);
        return;
    }
    struct sim_spill p = {.identity = o->identity,
                          .pages = malloc(o->length * sizeof *p.pages),
                          .n_pages = o->length,
                          .least = 1,
                          .slot = o->slot,
                          .history = calloc(tokens, sizeof *p.history)};
    a->spills = realloc(a->spills, (a->n_spills + 1) * sizeof *a->spills);
    assert(a->spills && p.pages && p.history);
    while (sim_first_seen(s, p.least * KV_PAGE_TOKENS) < sim_first_seen(s, tokens))
        p.least++;
    while (!s->window && p.least < o->length &&
           spill_find(a, &o->identity, p.least, &o->pages[p.least - 1]) < a->n_spills)
        p.least++; /* others have these */
    memcpy(p.pages, o->pages, o->length * sizeof *p.pages);
    memcpy(p.history, q->history, tokens * sizeof *p.history);
    a->spills[a->n_spills++] = p;
    s->spilled++;
    struct message_spill row = row_of(&p, false);
    spill_told(s, a, o->slot, false, &row, 1);
    while (a->n_spills > s->most_spills)
        spill_drop(s, a, 0);
}

static int spill_in(struct sim *s, struct sim_agent *a, const struct sim_order *o,
                    struct sim_sequence *q)
{
    size_t i = spill_find(a, &o->identity, o->length, o->pages);
    if (i == a->n_spills || !q || !q->came || q->memory.length != o->length * KV_PAGE_TOKENS)
        return HP_ENOENT;
    if ((double)sim_random(s, 1000) < s->spill_flip * 1000) { /* found out by its digest */
        spill_drop(s, a, i);
        return HP_EPARSE;
    }
    memcpy(q->history + q->lent, a->spills[i].history + q->lent,
           (q->memory.length - q->lent) * sizeof *q->history);
    memcpy(q->memory.mixed, q->history[q->memory.length - 1], sizeof q->memory.mixed);
    q->n_awaited = 0;
    s->unspilled++;
    return 0;
}

void sim_spill_done(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    if (o->kind == AGENT_DO_SPILL) {
        spill_out(s, a, o);
    } else {
        struct agent_event ev = {.kind = AGENT_EVENT_KV_IMPORTED};
        struct err e = {0};
        struct sim_sequence *q = sim_sequence_of(a, o->slot, o->sequence);
        int rc = spill_in(s, a, o, q);
        if (rc < 0)
            err_set(&e, rc, "the simulated agent cannot read back what was spilled");
        q = sim_sequence_of(a, o->slot, o->sequence);
        ev.u.kv_imported.slot = o->slot;
        ev.u.kv_imported.ticket = o->ticket;
        ev.u.kv_imported.sequence = o->sequence;
        ev.u.kv_imported.status = rc;
        ev.u.kv_imported.error = &e;
        ev.u.kv_imported.awaited = q ? q->n_awaited : 0;
        sim_agent_event(s, a, &ev);
    }
    free(o->pages);
}
