#include "coordinator/spills.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/map.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/planner_profile.h"
#include "coordinator/prefixes.h"

enum {
    PAGES_MOST = 1 << 16, /* that a stage tells of: four million tokens */
    STRIKES_MOST = 16,    /* beyond what was read back well */
};
static const uint64_t TOLD_MOST = UINT64_C(1) << 53;
static const double fixed_s = 2e-3,       /* orders, and the end of what is read */
    worth = 0.9,                          /* it has to be so much sooner there */
    memory_guess = 1e9, disk_guess = 2e8; /* bytes/s, before anything was measured */

struct spill_count {
    uint16_t memory, disk; /* chains that have the page */
};

struct spill_node {
    struct digest name;
    UT_hash_handle hh;
    struct spill_count of[]; /* [n_stages] */
};

struct spill_stage {
    bool told;
    uint32_t pages; /* nodes that have some of its own */
    double memory_bytes_per_s, disk_bytes_per_s;
    uint64_t memory_bytes, disk_bytes, dropped;
};

struct spills {
    uint64_t generation;
    int n_stages;
    uint64_t strikes, hits_before; /* of this generation; the deployment's hits when it began */
    struct spill_stage *stages;    /* [n_stages] */
    struct spill_node *nodes;      /* a map by name */
};

/* ---- what agents tell ---- */

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

void spills_free(struct deployment *d)
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
    spills_free(d);
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
        n->of[stage] = (struct spill_count){0, 0};
        if (node_is_empty(x, n))
            node_remove(x, n);
    }
}

static void page_told(struct spills *x, int stage, const struct digest *name,
                      const struct message_spill *t)
{
    struct spill_node *n = t->gone ? node_find(x, name) : node_make(x, stage, name);
    if (!n)
        return;
    bool before = page_is_of(n, stage);
    uint16_t *count = t->disk ? &n->of[stage].disk : &n->of[stage].memory;
    if (!t->gone)
        *count = (uint16_t)(*count + (*count < UINT16_MAX));
    else
        *count = (uint16_t)(*count - (*count > 0));
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
        page_told(x, stage, &name, t);
    }
}

/* What several agents tell adds up to a number that people can read, whatever one says. */
static uint64_t count_of(uint64_t told)
{
    return told < TOLD_MOST ? told : TOLD_MOST;
}

void spills_told(struct coord *c, struct member *m, const struct message_spills *t)
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

/* ---- what it is worth ---- */

static const struct spills *spills_now(const struct deployment *d)
{
    const struct spills *x = d->spills;
    bool now = x && x->generation == d->generation && x->n_stages == d->n_stages &&
               d->model->facts.kv_before &&
               x->strikes <= STRIKES_MOST + (d->spill_counts.hits - x->hits_before);
    for (int i = 0; now && i < x->n_stages; i++)
        now = x->stages[i].told;
    return now ? x : NULL;
}

static double rate_of(const struct spill_stage *s, bool disk)
{
    double told = disk ? s->disk_bytes_per_s : s->memory_bytes_per_s,
           rate = told > 0 && isfinite(told) ? told
                  : disk                     ? disk_guess
                                             : memory_guess;
    return rate;
}

/* That a layer keeps of tokens [from, to), where the next one stands behind them. */
static double layer_bytes(const struct coord *c, const struct deployment *d, int layer,
                          uint32_t from, uint32_t to)
{
    uint32_t seen =
        kv_first_seen(d->model->facts.layers[layer].window, to) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    return planner_state_bytes_per_token(c, d, layer) * (to - (from > seen ? from : seen));
}

/* Of copying tokens [from, to) on all stages, one after the other; of pages that lie where this one
 * does, or in memory (NULL). A file is read as a whole. */
static double copy_seconds(const struct coord *c, const struct deployment *d,
                           const struct spills *x, const struct spill_node *at, uint32_t from,
                           uint32_t to)
{
    double sum = fixed_s;
    for (int i = 0; i < x->n_stages; i++) {
        bool disk = at && !at->of[i].memory;
        double bytes = 0;
        for (int l = d->stages[i].first_layer; l < d->stages[i].end_layer; l++)
            bytes += layer_bytes(c, d, l, disk ? 0 : from, to);
        sum += bytes / rate_of(&x->stages[i], disk);
    }
    return sum;
}

static bool all_have(const struct spills *x, const struct spill_node *n)
{
    for (int i = 0; i < x->n_stages; i++)
        if (!page_is_of(n, i))
            return false;
    return true;
}

/* A page that all stages have. */
static const struct spill_node *page_find(const struct spills *x, const struct digest *name)
{
    const struct spill_node *n = node_find(x, name);
    return n && all_have(x, n) ? n : NULL;
}

/* Who may look: not a fork, which has the first one's pages, nor whoever asked for none of this,
 * unless it comes back. */
static bool sequence_looks(const struct deployment *d, const struct sequence *s)
{
    if (s->embeds || s->unspilled || s->handoff || sequence_is_silent(s) || s->planned)
        return false;
    return s->resumed || (sequence_may_share(s) && !s->fork && !s->alone &&
                          d->spec.prefix_cache != PREFIX_CACHE_OFF);
}

/* The last page of a sequence's tokens that all stages have, and how many pages that is; NULL:
 * there is none. With windows those before it may be there or not. */
static const struct spill_node *pages_find(const struct coord *c, const struct deployment *d,
                                           const struct spills *x, const struct sequence *s,
                                           uint32_t *n_pages)
{
    const struct spill_node *last = NULL, *n;
    struct digest name = chain_names_root(c, d, s);
    uint32_t most = (sequence_given(s) - 1) / KV_PAGE_TOKENS;
    for (uint32_t i = 0; i < most; i++) {
        name = chain_names_next(&name, s->prompt + (size_t)i * KV_PAGE_TOKENS);
        if ((n = page_find(x, &name)) != NULL) {
            last = n;
            *n_pages = i + 1;
        } else if (!d->model->facts.windows[0]) {
            break;
        }
    }
    return last;
}

struct spill_hit spills_find(struct coord *c, struct deployment *d, struct sequence *s,
                             uint32_t have, uint32_t kept)
{
    struct spill_hit hit = {0};
    const struct spills *x = sequence_looks(d, s) ? spills_now(d) : NULL;
    uint32_t pages = 0;
    const struct spill_node *last = x && x->nodes ? pages_find(c, d, x, s, &pages) : NULL;
    uint32_t length = pages * KV_PAGE_TOKENS;
    if (!last || length <= have)
        return hit;
    double compute_s = prefixes_seconds(c, d, have, length),
           read_s = copy_seconds(c, d, x, last, kept, length);
    bool pays = read_s < worth * compute_s; /* not where either is unknown */
    if (pays)
        hit = (struct spill_hit){length, last->name};
    if (s->weighed[0] == length) /* it waits for room, and was said before */
        return hit;
    s->weighed[0] = length;
    d->spill_counts.declined += !pays;
    d->spill_counts.last_read_s = read_s;
    d->spill_counts.last_compute_s = isfinite(compute_s) ? compute_s : 0;
    log_info("coordinator", "spilled_prefix",
             "deployment=%s tokens=%u own=%u kept=%u read_s=%.4f compute_s=%.4f chosen=%s", d->name,
             length, have, kept, read_s, compute_s, pays ? "read" : "compute");
    return hit;
}

void spills_strike(struct deployment *d, const struct digest *page)
{
    struct spills *x = d->spills;
    struct spill_node *n = x ? node_find(x, page) : NULL;
    if (n)
        node_remove(x, n);
    if (x && ++x->strikes == STRIKES_MOST + 1 + (d->spill_counts.hits - x->hits_before))
        log_warn("coordinator", "spills_not_believed", "deployment=%s strikes=%llu", d->name,
                 (unsigned long long)x->strikes);
}

/* Whether a sequence of n tokens still has all that the one behind its whole pages sees. */
static bool pages_whole(const struct deployment *d, size_t n)
{
    uint32_t length = (uint32_t)n, whole = length / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    for (const uint32_t *w = d->model->facts.windows; *w; w++)
        if (kv_first_seen(*w, whole) / KV_PAGE_TOKENS < kv_first_seen(*w, length) / KV_PAGE_TOKENS)
            return false;
    return true;
}

struct digest *spills_worth(struct coord *c, struct deployment *d, const struct digest *root,
                            const uint32_t *ids, size_t n, uint32_t *n_pages)
{
    const struct spills *x = spills_now(d);
    uint32_t pages = (uint32_t)(n / KV_PAGE_TOKENS);
    if (!x || !pages || d->state != DEPLOYMENT_SERVING)
        return NULL;
    /* It goes there and comes back. */
    double copies_s = 2 * copy_seconds(c, d, x, NULL, 0, pages * KV_PAGE_TOKENS),
           compute_s = prefixes_seconds(c, d, 0, pages * KV_PAGE_TOKENS);
    bool pays = copies_s < worth * compute_s && pages_whole(d, n);
    struct digest *names = pays ? calloc(pages, sizeof *names) : NULL;
    if (!names) {
        d->spill_counts.given_up += !pays;
        return NULL;
    }
    for (uint32_t i = 0; i < pages; i++)
        names[i] = chain_names_next(i ? &names[i - 1] : root, ids + (size_t)i * KV_PAGE_TOKENS);
    if (page_find(x, &names[pages - 1])) {
        free(names);
        return NULL;
    }
    d->spill_counts.spilled++;
    *n_pages = pages;
    return names;
}

/* ---- for people ---- */

struct spill_totals spills_totals(const struct deployment *d)
{
    const struct spills *x = spills_now(d);
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
