#include "coordinator/spills.h"

#include <math.h>
#include <stdlib.h>

#include "common/log.h"
#include "coordinator/model_slots.h"
#include "coordinator/planner_profile.h"
#include "coordinator/prefixes.h"
#include "coordinator/spilled_pages.h"

static const double fixed_s = 2e-3,       /* orders, and the end of what is read */
    worth = 0.9,                          /* it has to be so much sooner there */
    memory_guess = 1e9, disk_guess = 2e8; /* bytes/s, before anything was measured */

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
 * does, or in memory (NULL). A file is read as a whole: from token `file` on. */
static double copy_seconds(const struct coord *c, const struct deployment *d,
                           const struct spills *x, const struct spill_node *at, uint32_t file,
                           uint32_t from, uint32_t to)
{
    double sum = fixed_s;
    for (int i = 0; i < x->n_stages; i++) {
        bool disk = at && !at->of[i].memory;
        double bytes = 0;
        for (int l = d->stages[i].first_layer; l < d->stages[i].end_layer; l++)
            bytes += layer_bytes(c, d, l, disk ? file : from, to);
        sum += bytes / rate_of(&x->stages[i], disk);
    }
    return sum;
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
 * there is none. With windows those before it may be there or not. The first `kept` pages are not
 * read but where they share a file with others: `*file` is with which page the first file begins
 * that is. */
static const struct spill_node *pages_find(const struct coord *c, const struct deployment *d,
                                           const struct spills *x, const struct sequence *s,
                                           uint32_t kept, uint32_t *n_pages, uint32_t *file)
{
    const struct spill_node *last = NULL, *n;
    struct digest name = chain_names_root(c, d, s);
    uint32_t most = (sequence_given(s) - 1) / KV_PAGE_TOKENS;
    for (uint32_t i = 0; i < most; i++) {
        name = chain_names_next(&name, s->prompt + (size_t)i * KV_PAGE_TOKENS);
        if ((n = spilled_page_find(x, &name)) != NULL) {
            last = n;
            *n_pages = i + 1;
            *file = i <= kept && spilled_page_begins(x, n) ? i : *file;
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
    const struct spills *x = sequence_looks(d, s) ? spilled_pages_now(d) : NULL;
    uint32_t pages = 0, file = 0;
    const struct spill_node *last =
        x && x->nodes ? pages_find(c, d, x, s, kept / KV_PAGE_TOKENS, &pages, &file) : NULL;
    uint32_t length = pages * KV_PAGE_TOKENS;
    if (!last || length <= have)
        return hit;
    double compute_s = prefixes_seconds(c, d, have, length),
           read_s = copy_seconds(c, d, x, last, file * KV_PAGE_TOKENS, kept, length);
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
    const struct spills *x = spilled_pages_now(d);
    uint32_t pages = (uint32_t)(n / KV_PAGE_TOKENS);
    if (!x || !pages || d->state != DEPLOYMENT_SERVING)
        return NULL;
    /* It goes there and comes back. */
    double copies_s = 2 * copy_seconds(c, d, x, NULL, 0, 0, pages * KV_PAGE_TOKENS),
           compute_s = prefixes_seconds(c, d, 0, pages * KV_PAGE_TOKENS);
    bool pays = copies_s < worth * compute_s && pages_whole(d, n);
    struct digest *names = pays ? calloc(pages, sizeof *names) : NULL;
    if (!names) {
        d->spill_counts.given_up += !pays;
        return NULL;
    }
    for (uint32_t i = 0; i < pages; i++)
        names[i] = chain_names_next(i ? &names[i - 1] : root, ids + (size_t)i * KV_PAGE_TOKENS);
    if (spilled_page_find(x, &names[pages - 1])) {
        free(names);
        return NULL;
    }
    d->spill_counts.spilled++;
    *n_pages = pages;
    return names;
}
