#include "coordinator/prefix_peers.h"

#include <math.h>

#include "common/log.h"
#include "coordinator/links.h"
#include "coordinator/model_slots.h"
#include "coordinator/planner_profile.h"
#include "coordinator/prefix_costs.h"
#include "coordinator/prefixes.h"

/* Orders to both sides, and answers. */
static const double fixed_s = 2e-3;
/* What is fetched has to be so much sooner there: it takes time of others' stages and links. */
static const double worth = 0.9;

bool prefix_peer_alike(const struct deployment *a, const struct deployment *b)
{
    return a->model == b->model && a->spec.f32 == b->spec.f32 && a->spec.kv == b->spec.kv &&
           deployment_wire(a) == deployment_wire(b);
}

/* Both sides come to the same rotation (docs/engine.md, Rotation). */
static bool rotation_same(const struct deployment *d, const struct sequence *s, uint32_t length)
{
    uint32_t from = d->model->facts.long_from;
    return !from || (s->n_prompt + s->max_tokens > from) == (length + 1 > from);
}

/* From one member to another; INFINITY: nothing is known of the way. */
static double bytes_seconds(const struct member *from, const struct member *to, double bytes)
{
    struct links_path paths[2];
    int n = links_paths(from, to, paths), i = n == 2 && paths[1].from == from;
    if (n == 0 || paths[i].wire.bandwidth_bytes_per_s <= 0)
        return INFINITY;
    return bytes / paths[i].wire.bandwidth_bytes_per_s + paths[i].wire.latency_s;
}

/* Keys and values of layers that two stages have in common, one after the other over their links.
 */
static double fetch_seconds(const struct coord *c, const struct deployment *p,
                            const struct deployment *d, uint32_t tokens)
{
    double sum = fixed_s;
    for (int i = 0; i < p->n_stages; i++)
        for (int k = 0; k < d->n_stages; k++) {
            const struct deployment_stage *a = &p->stages[i], *b = &d->stages[k];
            int first = a->first_layer > b->first_layer ? a->first_layer : b->first_layer,
                end = a->end_layer < b->end_layer ? a->end_layer : b->end_layer;
            double bytes = 0;
            for (int l = first; l < end; l++)
                bytes += planner_state_bytes_per_token(c, d, l) * tokens;
            sum += bytes > 0 ? bytes_seconds(a->agent, b->agent, bytes) : 0;
        }
    return sum;
}

/* Nobody goes before those who wait there, or onto stages between which a link has just broken. */
static bool peer_may_give(const struct coord *c, const struct deployment *p,
                          const struct deployment *d)
{
    return p != d && p->state == DEPLOYMENT_SERVING && prefix_peer_alike(p, d) && !p->n_waiting &&
           p->n_active < p->max_sequences && coord_now(c) >= p->doubted_ns;
}

/* The one that has most of the prompt. */
static struct prefix_offer offer_find(const struct coord *c, const struct deployment *d,
                                      const struct sequence *s, uint32_t have)
{
    struct prefix_offer best = {.length = have + PREFIX_PEER_LEAST_TOKENS - 1};
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *p = c->deployments[i];
        struct prefix_hit hit =
            peer_may_give(c, p, d) ? prefixes_find(c, p, s) : (struct prefix_hit){0};
        if (hit.from && hit.length > best.length && rotation_same(d, s, hit.length))
            best = (struct prefix_offer){p, hit.length};
    }
    return best;
}

struct prefix_offer prefix_peer_find(struct coord *c, struct deployment *d, struct sequence *s,
                                     uint32_t have)
{
    const struct prefix_offer none = {0};
    if (s->kind != SEQUENCE_REQUEST || s->embeds || s->reads_itself || s->alone || s->fork ||
        (d->spec.prefix_cache == PREFIX_CACHE_OFF && !s->replica) || !d->model->facts.kv_before ||
        d->model->facts.windows[0]) /* goes on where it ended alone: the other would compute it */
        return none;
    struct prefix_offer offer = offer_find(c, d, s, have);
    if (!offer.from)
        return none;
    bool keeps = offer.from->spec.copy_of[0]; /* it computes nothing */
    double compute_s = prefixes_seconds(c, d, have, offer.length),
           fetch_s = fetch_seconds(c, offer.from, d, offer.length) +
                     (keeps ? 0 : prefix_step_seconds(c, offer.from, offer.length));
    bool pays = fetch_s < worth * compute_s; /* not where either is unknown */
    if (s->weighed[1] == offer.length)       /* it waits for room, and was said before */
        return pays ? offer : none;
    s->weighed[1] = offer.length;
    d->peer_counts.declined += !pays;
    d->peer_counts.last_fetch_s = isfinite(fetch_s) ? fetch_s : 0;
    d->peer_counts.last_compute_s = isfinite(compute_s) ? compute_s : 0;
    log_info("coordinator", "prefix_of_peer",
             "deployment=%s from=%s tokens=%u own=%u fetch_s=%.4f compute_s=%.4f chosen=%s",
             d->name, offer.from->name, offer.length, have, fetch_s, compute_s,
             pays ? "fetch" : "compute");
    return pays ? offer : none;
}
