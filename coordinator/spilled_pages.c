#include "coordinator/spilled_pages.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"

enum {
    PAGES_MOST = 1 << 16, /* that a stage tells of: four million tokens */
    STRIKES_MOST = 16,    /* beyond what was read back well */
};
static const uint64_t TOLD_MOST = UINT64_C(1) << 53;

static bool page_is_of(const struct spill_node *n, int stage)
{
    return n->of[stage].memory || n->of[stage].disk;
}

static void node_remove(struct spills *x, struct spill_node *n)
{
    for (int i = 0; i < x->n_stages; i++)
        x->stages[i].pages -= page_is_of(n, i);
    HASH_DEL(x->nodes, n);
    free(n);
}

void spilled_pages_free(struct deployment *d)
{
    struct spills *x = d->spills;
    if (!x)
        return;
    struct spill_node *n = x->nodes, *next;
    HASH_CLEAR(hh, x->nodes);
    for (; n; n = next) {
        next = n->hh.next;
        free(n);
    }
    free(x->stages);
    free(x);
    d->spills = NULL;
}

/* Of this generation; NULL: no memory. */
static struct spills *spills_of(struct deployment *d)
{
    if (d->spills && d->spills->generation == d->generation && d->spills->n_stages == d->n_stages)
        return d->spills;
    spilled_pages_free(d);
    struct spills *x = calloc(1, sizeof *x);
    if (x && (x->stages = calloc((size_t)d->n_stages, sizeof *x->stages)) == NULL) {
        free(x);
        x = NULL;
    }
    if (!x)
        return NULL;
    x->generation = d->generation;
    x->hits_before = d->spill_counts.hits;
    x->n_stages = d->n_stages;
    d->spills = x;
    return x;
}

static struct spill_node *node_find(const struct spills *x, const struct digest *name)
{
    struct spill_node *n;
    HASH_FIND(hh, x->nodes, name, sizeof *name, n);
    return n;
}

/* For a page of this stage. NULL: it tells of too many, or there is no memory. */
static struct spill_node *node_make(struct spills *x, int stage, const struct digest *name)
{
    struct spill_node *n = node_find(x, name);
    if (x->stages[stage].pages >= PAGES_MOST)
        return n && page_is_of(n, stage) ? n : NULL;
    if (n)
        return n;
    n = calloc(1, sizeof *n + (size_t)x->n_stages * sizeof *n->of);
    if (!n)
        return NULL;
    n->name = *name;
    HASH_ADD(hh, x->nodes, name, sizeof n->name, n);
    if (map_has_added(n))
        return n;
    free(n);
    return NULL;
}

static bool node_is_empty(const struct spills *x, const struct spill_node *n)
{
    for (int i = 0; i < x->n_stages; i++)
        if (page_is_of(n, i))
            return false;
    return true;
}

static void stage_forget(struct spills *x, int stage)
{
    for (struct spill_node *n = x->nodes, *next; n; n = next) {
        next = n->hh.next;
        x->stages[stage].pages -= page_is_of(n, stage);
        n->of[stage] = (struct spill_count){0};
        if (node_is_empty(x, n))
            node_remove(x, n);
    }
}

/* One chain more or less. */
static void count_tell(uint16_t *count, bool gone)
{
    if (!gone)
        *count = (uint16_t)(*count + (*count < UINT16_MAX));
    else
        *count = (uint16_t)(*count - (*count > 0));
}

static void page_told(struct spills *x, int stage, const struct digest *name, bool first,
                      const struct message_spill *t)
{
    struct spill_node *n = t->gone ? node_find(x, name) : node_make(x, stage, name);
    if (!n)
        return;
    bool before = page_is_of(n, stage);
    count_tell(t->disk ? &n->of[stage].disk : &n->of[stage].memory, t->gone);
    if (first && t->disk)
        count_tell(&n->of[stage].begins, t->gone);
    x->stages[stage].pages += page_is_of(n, stage);
    x->stages[stage].pages -= before;
    if (node_is_empty(x, n))
        node_remove(x, n);
}

static void chain_told(struct spills *x, int stage, const struct message_spill *t)
{
    for (size_t at = 0; at + DIGEST_BYTES <= t->pages.size; at += DIGEST_BYTES) {
        struct digest name;
        memcpy(name.bytes, t->pages.data + at, DIGEST_BYTES);
        page_told(x, stage, &name, at == 0, t);
    }
}

/* What several agents tell adds up to a number that people can read, whatever one says. */
static uint64_t count_of(uint64_t told)
{
    return told < TOLD_MOST ? told : TOLD_MOST;
}

void spilled_pages_told(struct coord *c, struct member *m, const struct message_spills *t)
{
    struct deployment *d = deployment_of_id(c, t->deployment);
    bool mine = d && d->generation == t->generation && t->stage < (uint64_t)d->n_stages &&
                d->stages[t->stage].agent == m;
    struct spills *x = mine ? spills_of(d) : NULL;
    if (!x) {
        c->counts.stale += !mine;
        return;
    }
    struct spill_stage *s = &x->stages[t->stage];
    *s = (struct spill_stage){true,
                              s->pages,
                              t->memory_bytes_per_s,
                              t->disk_bytes_per_s,
                              count_of(t->memory_bytes),
                              count_of(t->disk_bytes),
                              count_of(t->dropped)};
    m->spilled_memory_bytes = s->memory_bytes;
    m->spilled_disk_bytes = s->disk_bytes;
    if (t->anew && s->pages)
        stage_forget(x, (int)t->stage);
    const struct message_spill *chains = t->chains.items;
    for (size_t i = 0; i < t->chains.count; i++)
        chain_told(x, (int)t->stage, &chains[i]);
}

const struct spills *spilled_pages_now(const struct deployment *d)
{
    const struct spills *x = d->spills;
    bool now = x && x->generation == d->generation && x->n_stages == d->n_stages &&
               d->model->facts.kv_before &&
               x->strikes <= STRIKES_MOST + (d->spill_counts.hits - x->hits_before);
    for (int i = 0; now && i < x->n_stages; i++)
        now = x->stages[i].told;
    return now ? x : NULL;
}

static bool all_have(const struct spills *x, const struct spill_node *n)
{
    for (int i = 0; i < x->n_stages; i++)
        if (!page_is_of(n, i))
            return false;
    return true;
}

const struct spill_node *spilled_page_find(const struct spills *x, const struct digest *name)
{
    const struct spill_node *n = node_find(x, name);
    return n && all_have(x, n) ? n : NULL;
}

bool spilled_page_begins(const struct spills *x, const struct spill_node *n)
{
    for (int i = 0; i < x->n_stages; i++)
        if (!n->of[i].begins)
            return false;
    return true;
}

void spilled_pages_strike(struct deployment *d, const struct digest *page)
{
    struct spills *x = d->spills;
    struct spill_node *n = x ? node_find(x, page) : NULL;
    if (n)
        node_remove(x, n);
    if (x && ++x->strikes == STRIKES_MOST + 1 + (d->spill_counts.hits - x->hits_before))
        log_warn("coordinator", "spills_not_believed", "deployment=%s strikes=%llu", d->name,
                 (unsigned long long)x->strikes);
}

struct spill_totals spilled_pages_totals(const struct deployment *d)
{
    const struct spills *x = spilled_pages_now(d);
    struct spill_totals t = {0};
    if (!x)
        return t;
    for (const struct spill_node *n = x->nodes; n; n = n->hh.next)
        t.pages += all_have(x, n);
    for (int i = 0; i < x->n_stages; i++) {
        bool again = false; /* an agent tells the same of all its stages */
        for (int k = 0; k < i; k++)
            again = again || d->stages[k].agent == d->stages[i].agent;
        t.memory_bytes += again ? 0 : x->stages[i].memory_bytes;
        t.disk_bytes += again ? 0 : x->stages[i].disk_bytes;
        t.dropped += again ? 0 : x->stages[i].dropped;
    }
    return t;
}
