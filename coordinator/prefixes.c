#include "coordinator/prefixes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/map.h"
#include "common/vector.h"
#include "coordinator/api_keys.h"
#include "coordinator/chain_names.h"
#include "coordinator/clients.h"
#include "coordinator/model_slots.h"
#include "coordinator/prefix_costs.h"

enum { LOOKED_AT = 64 }; /* sequences whose ids a request's are compared with, at most */

/* All sequences whose chain goes through one page. */
struct prefix_node {
    uint64_t hash;
    UT_hash_handle hh;
    struct prefix **holders;
    size_t n_holders, room_holders;
};

struct prefixes {
    struct prefix_node *nodes; /* a map by hash */
    struct prefix **all;
    size_t n_all, room_all;
    uint32_t n_kept;
    struct prefix_curve curve; /* as of the last choice of one to give up */
};

/* ---- the chain ---- */

static uint64_t hash_more(uint64_t hash, uint64_t value)
{
    uint64_t state = hash ^ (value + UINT64_C(0x9E3779B97F4A7C15));
    return random_next(&state);
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    while (*text)
        hash = hash_more(hash, (uint8_t)*text++);
    return hash_more(hash, 256);
}

static uint64_t chain_root(const struct deployment *d, const struct sequence *s, uint64_t salt)
{
    uint32_t long_from = d->model->facts.long_from;
    uint64_t hash = hash_text(salt, d->model->id);
    hash = hash_text(hash, deployment_spec_compute(&d->spec));
    hash = hash_text(hash, kv_format_word(d->spec.kv));
    hash = hash_more(hash, d->generation);
    /* As the stages' keys are rotated (docs/engine.md, Rotation). */
    return hash_more(hash, long_from && s->n_prompt + s->max_tokens > long_from);
}

static uint64_t chain_next(uint64_t hash, const uint32_t *ids)
{
    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        hash = hash_more(hash, ids[i]);
    return hash;
}

/* Whose prefixes the client may find. 0: nobody's (its key is gone). */
static uint64_t prefix_salt(const struct coord *c, const struct deployment *d, const char *client)
{
    const char *key = client_key(client);
    if (d->spec.prefix_cache == PREFIX_CACHE_SHARED || !key)
        return 1;
    const struct api_key *k = api_keys_named(c, key);
    return k ? hash_text(1, k->digest) | 1 : 0;
}

static const uint32_t *prefix_ids(const struct prefix *p)
{
    return p->kept ? p->own_ids : p->running->prompt;
}

/* ---- nodes ---- */

static struct prefix_node *node_find(const struct prefixes *x, uint64_t hash)
{
    struct prefix_node *n;
    HASH_FIND(hh, x->nodes, &hash, sizeof hash, n);
    return n;
}

static void node_leave(struct prefixes *x, uint64_t hash, const struct prefix *p)
{
    struct prefix_node *n = node_find(x, hash);
    size_t i = 0;
    while (n && i < n->n_holders && n->holders[i] != p)
        i++;
    if (!n || i == n->n_holders)
        return;
    vector_remove(n->holders, n->n_holders, i);
    if (n->n_holders)
        return;
    HASH_DEL(x->nodes, n);
    free(n->holders);
    free(n);
}

static bool node_join(struct prefixes *x, uint64_t hash, struct prefix *p)
{
    struct prefix_node *n = node_find(x, hash);
    bool made = !n;
    if (made && (n = calloc(1, sizeof *n)) != NULL) {
        n->hash = hash;
        HASH_ADD(hh, x->nodes, hash, sizeof n->hash, n);
        if (!map_has_added(n)) {
            free(n);
            n = NULL;
        }
    }
    if (n && vector_push(n->holders, n->n_holders, n->room_holders, p))
        return true;
    if (n && made) {
        HASH_DEL(x->nodes, n);
        free(n);
    }
    return false;
}

/* A prefix's chain goes as far as its tokens fill pages; without memory it ends before. */
static void chain_grow(struct prefixes *x, struct prefix *p, uint64_t root)
{
    for (uint32_t i = p->n_pages; i < p->n / KV_PAGE_TOKENS; i++) {
        uint64_t hash =
            chain_next(i ? p->pages[i - 1] : root, prefix_ids(p) + (size_t)i * KV_PAGE_TOKENS);
        if (!vector_reserve(p->pages, p->room_pages, i + 1) || !node_join(x, hash, p))
            return;
        p->pages[p->n_pages++] = hash;
    }
}

static void chain_shrink(struct prefixes *x, struct prefix *p, uint32_t n_pages)
{
    while (p->n_pages > n_pages)
        node_leave(x, p->pages[--p->n_pages], p);
}

/* ---- entries ---- */

static struct prefix *prefix_of(const struct deployment *d, uint64_t sequence)
{
    for (size_t i = d->prefixes ? d->prefixes->n_all : 0; i-- > 0;)
        if (d->prefixes->all[i]->sequence == sequence)
            return d->prefixes->all[i];
    return NULL;
}

void prefix_remove(struct deployment *d, struct prefix *p)
{
    struct prefixes *x = d->prefixes;
    chain_shrink(x, p, 0);
    size_t i = 0;
    while (x->all[i] != p)
        i++;
    x->all[i] = x->all[--x->n_all];
    x->n_kept -= p->kept;
    kv_account_close(&d->kv, &p->holding);
    free(p->pages);
    free(p->own_ids);
    free(p);
}

void prefix_cut(struct deployment *d, struct prefix *p, uint32_t length)
{
    p->n = length;
    chain_shrink(d->prefixes, p, length / KV_PAGE_TOKENS);
    kv_account_keep(&d->kv, &p->holding, length);
}

void prefixes_begin(const struct coord *c, struct deployment *d, const struct sequence *s)
{
    uint64_t salt = sequence_may_share(s) ? prefix_salt(c, d, s->client) : 0;
    bool hidden = d->spec.prefix_cache == PREFIX_CACHE_OFF || !salt || s->embeds ||
                  sequence_given(s) < PREFIX_LEAST_TOKENS;
    if (hidden && !s->forks && !s->fork)
        return;
    if (!d->prefixes && (d->prefixes = calloc(1, sizeof *d->prefixes)) == NULL)
        return;
    struct prefixes *x = d->prefixes;
    struct prefix *p = calloc(1, sizeof *p);
    if (!p || !vector_push(x->all, x->n_all, x->room_all, p)) {
        free(p);
        return;
    }
    *p = (struct prefix){.sequence = s->id,
                         .running = s,
                         .n = sequence_given(s),
                         .settled = (uint32_t)(s->n_prompt + s->max_tokens),
                         .rest = sequence_given(s) - sequence_had(s),
                         .hidden = hidden,
                         .root = chain_names_root(c, d, s),
                         .used_ns = coord_now(c)};
    if (!hidden)
        chain_grow(x, p, chain_root(d, s, salt));
}

void prefixes_ready(struct deployment *d, struct sequence *s)
{
    struct prefix *p = prefix_of(d, s->id);
    for (struct sequence *w = d->waiting_first; w; w = w->next)
        w->awaits = w->awaits == s->id ? 0 : w->awaits;
    if (p)
        p->ready = true;
}

/* ---- looking up ---- */

static uint32_t ids_common(const uint32_t *a, const uint32_t *b, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && a[n] == b[n])
        n++;
    return n;
}

bool prefix_reaches(const struct deployment *d, const struct prefix *p, uint32_t length)
{
    for (const uint32_t *w = d->model->facts.windows; *w; w++)
        if (kv_first_seen(*w, length) / KV_PAGE_TOKENS <
            kv_first_seen(*w, p->settled) / KV_PAGE_TOKENS)
            return false;
    return true;
}

/* Waiting for the other's prompt takes no longer than reading all beside it would, where both have
 * half of the device. */
static bool waiting_pays(const struct prefix *p, uint32_t common, const struct sequence *s,
                         uint32_t have)
{
    return common >= have + PREFIX_LEAST_TOKENS &&
           (uint64_t)p->rest + 2 * have <= sequence_given(s) + common;
}

struct prefix_search {
    const struct deployment *d;
    const struct sequence *s;
    struct prefix *ready, *coming;
    uint32_t ready_length, coming_length;
    int left; /* to compare with */
};

static void node_look(struct prefix_search *x, const struct prefix_node *n)
{
    for (size_t i = n->n_holders; i-- > 0 && x->left > 0; x->left--) {
        struct prefix *p = n->holders[i];
        uint32_t most = p->n < sequence_given(x->s) - 1 ? p->n : sequence_given(x->s) - 1,
                 common = ids_common(prefix_ids(p), x->s->prompt, most),
                 *best = p->ready ? &x->ready_length : &x->coming_length;
        if (common < PREFIX_LEAST_TOKENS || common <= *best || !prefix_reaches(x->d, p, common))
            continue;
        *(p->ready ? &x->ready : &x->coming) = p;
        *best = common;
    }
}

/* The pages of the chain that both have, in their order; returns how many. */
static uint32_t path_find(const struct deployment *d, const struct sequence *s, uint64_t hash,
                          const struct prefix_node **path, uint32_t most)
{
    uint32_t n = 0;
    for (; n < most; n++) {
        hash = chain_next(hash, s->prompt + (size_t)n * KV_PAGE_TOKENS);
        path[n] = node_find(d->prefixes, hash);
        if (!path[n])
            break;
    }
    return n;
}

/* All that a fork's next token sees: but for one token, whose logits it needs. Of the sequences of
 * this prompt that run any will do; before the first has read it the others wait. */
static struct prefix_hit fork_find(const struct coord *c, const struct deployment *d,
                                   const struct sequence *s)
{
    struct prefix_hit hit = {0};
    const struct sequence *first = sequence_of_request(c, s->fork);
    uint32_t length = (uint32_t)s->n_prompt - 1;
    for (const struct sequence *o = d->active; o && !hit.from; o = o->next) {
        struct prefix *p = o == first || o->fork == s->fork ? prefix_of(d, o->id) : NULL;
        if (p && !p->ready)
            hit.coming = p->sequence;
        else if (p && length && prefix_reaches(d, p, length))
            hit = (struct prefix_hit){.from = p, .length = length};
    }
    if (first && first->state == SEQUENCE_WAITING) /* it stands before this one */
        hit.coming = first->awaits;
    return hit;
}

struct prefix_hit prefixes_find(const struct coord *c, const struct deployment *d,
                                const struct sequence *s)
{
    struct prefix_hit hit = {0};
    if (s->fork && d->prefixes && !s->alone)
        hit = fork_find(c, d, s);
    if (hit.from || hit.coming)
        return hit;
    struct prefix_search x = {.d = d, .s = s, .left = LOOKED_AT};
    uint32_t pages = sequence_given(s) / KV_PAGE_TOKENS;
    uint64_t salt = sequence_may_share(s) ? prefix_salt(c, d, s->client) : 0;
    if (!d->prefixes || d->spec.prefix_cache == PREFIX_CACHE_OFF || !salt || s->alone || !pages)
        return hit;
    const struct prefix_node **path = calloc(pages, sizeof(struct prefix_node *));
    /* Whoever has a later page has more in common; the first that is found there is as good as any
     * before, but may not be ready, or not reach. */
    for (uint32_t i = path ? path_find(d, s, chain_root(d, s, salt), path, pages) : 0;
         i-- > 0 && !x.ready && x.left > 0;)
        node_look(&x, path[i]);
    free(path);
    hit.from = x.ready;
    hit.length = x.ready_length;
    if (x.coming && waiting_pays(x.coming, x.coming_length, s, hit.length))
        hit.coming = x.coming->sequence;
    return hit;
}

void prefixes_hit(const struct coord *c, struct deployment *d, const struct sequence *s,
                  const struct prefix_hit *hit)
{
    d->prefix_counts.requests += sequence_may_share(s);
    if (!hit->from)
        return;
    hit->from->used_ns = coord_now(c);
    hit->from->uses++;
    d->prefix_counts.hits++;
    d->prefix_counts.tokens += hit->length;
}

/* ---- ends ---- */

/* A prefix that is kept and has all tokens of this one. */
static struct prefix *kept_with(const struct deployment *d, const struct prefix *own)
{
    const struct prefix_node *n =
        own->n_pages ? node_find(d->prefixes, own->pages[own->n_pages - 1]) : NULL;
    for (size_t i = 0; n && i < n->n_holders; i++) {
        struct prefix *p = n->holders[i];
        if (p->kept && p->n >= own->n && prefix_reaches(d, p, own->n) &&
            ids_common(prefix_ids(p), prefix_ids(own), own->n) == own->n)
            return p;
    }
    return NULL;
}

struct prefix *prefixes_covered(const struct deployment *d, uint64_t sequence)
{
    const struct prefix *own = prefix_of(d, sequence);
    if (!own || d->model->facts.windows[0]) /* what a window has left may be there alone */
        return NULL;
    for (uint32_t i = 0; i < own->n_pages; i++) {
        const struct prefix_node *n = node_find(d->prefixes, own->pages[i]);
        for (size_t k = 0; n && k < n->n_holders; k++) {
            struct prefix *p = n->holders[k];
            if (p != own && p->kept && p->n_pages == i + 1 && p->n <= own->n &&
                ids_common(prefix_ids(p), prefix_ids(own), p->n) == p->n)
                return p;
        }
    }
    return NULL;
}

uint32_t prefixes_end(const struct coord *c, struct deployment *d, struct sequence *s, bool whole)
{
    struct prefix *p = prefix_of(d, s->id);
    for (struct sequence *w = d->waiting_first; w; w = w->next)
        w->awaits = w->awaits == s->id ? 0 : w->awaits;
    if (!p)
        return 0;
    uint64_t salt = prefix_salt(c, d, s->client);
    p->n = s->n_ids > sequence_given(s) ? (uint32_t)s->n_ids - 1 : 0; /* the last one has not run */
    p->settled = whole ? p->n : p->settled;
    if (p->n && salt && !p->hidden)
        chain_grow(d->prefixes, p, chain_root(d, s, salt));
    struct prefix *other = p->n ? kept_with(d, p) : NULL;
    if (other) {
        other->used_ns = coord_now(c);
        other->uses++;
    }
    if (!p->n || !salt || p->hidden || other || !p->ready || d->state != DEPLOYMENT_SERVING ||
        !prefix_reaches(d, p, p->n)) {
        prefix_remove(d, p);
        return 0;
    }
    p->kept = true;
    p->running = NULL;
    p->own_ids = s->prompt;
    p->holding = s->holding;
    p->used_ns = coord_now(c);
    s->prompt = NULL;
    s->holding = (struct kv_holding){0};
    d->prefixes->n_kept++;
    kv_account_keep(&d->kv, &p->holding, p->n);
    return p->n;
}

/* ---- whom it costs least ---- */

/* Seconds of its idle time to a second of computing a page of it anew; of pages that others have,
 * too, nothing would be computed. */
static double prefix_dispensable(const struct coord *c, const struct deployment *d,
                                 const struct prefix *p, uint32_t alone)
{
    uint32_t lost = (alone ? alone : 1) * KV_PAGE_TOKENS, from = p->n > lost ? p->n - lost : 0;
    double cost = prefix_curve_between(&d->prefixes->curve, from, p->n) / (alone ? alone : 1);
    return (double)(coord_now(c) - p->used_ns + 1) * 1e-9 / ((1 + p->uses) * cost);
}

struct prefix *prefixes_victim(struct coord *c, struct deployment *d, const struct prefix *except)
{
    struct prefix *best = NULL;
    double most = 0;
    bool best_gives = false;
    if (d->prefixes && d->prefixes->n_kept)
        prefix_curve_update(c, d, &d->prefixes->curve);
    for (size_t i = 0; d->prefixes && i < d->prefixes->n_all; i++) {
        struct prefix *p = d->prefixes->all[i];
        if (!p->kept || p == except)
            continue;
        uint32_t alone = kv_account_alone(&d->kv, &p->holding);
        double own = prefix_dispensable(c, d, p, alone);
        if (best && (best_gives != (alone > 0) ? best_gives : own <= most))
            continue;
        best = p;
        best_gives = alone > 0;
        most = own;
    }
    return best;
}

void prefixes_forget(struct deployment *d)
{
    for (size_t i = d->prefixes ? d->prefixes->n_all : 0; i-- > 0;)
        prefix_remove(d, d->prefixes->all[i]);
}

void prefixes_free(struct deployment *d)
{
    prefixes_forget(d);
    if (d->prefixes)
        free(d->prefixes->all);
    free(d->prefixes);
    d->prefixes = NULL;
    kv_account_free(&d->kv);
}

double prefixes_seconds(struct coord *c, struct deployment *d, uint32_t from, uint32_t to)
{
    if (!d->prefixes && (d->prefixes = calloc(1, sizeof *d->prefixes)) == NULL)
        return NAN;
    struct prefix_curve *curve = &d->prefixes->curve;
    prefix_curve_update(c, d, curve);
    return curve->known ? prefix_curve_between(curve, from, to) : NAN;
}

/* ---- what there is ---- */

uint32_t prefixes_kept(const struct deployment *d)
{
    return d->prefixes ? d->prefixes->n_kept : 0;
}

struct prefix *prefixes_kept_of(const struct deployment *d, uint64_t sequence)
{
    struct prefix *p = prefix_of(d, sequence);
    return p && p->kept ? p : NULL;
}

bool prefixes_narrow(const struct deployment *d)
{
    return d->model->facts.windows[0] != 0;
}

struct prefix_pages prefixes_pages(const struct deployment *d)
{
    struct prefix_pages n = {.all = (uint32_t)(d->kv_tokens / KV_PAGE_TOKENS),
                             .cached = d->kv.used - d->kv.used_growing};
    for (uint32_t i = 0; i < d->kv.n_pages; i++) {
        n.own += d->kv.pages[i].growing == 1;
        n.shared += d->kv.pages[i].growing > 1;
    }
    return n;
}
