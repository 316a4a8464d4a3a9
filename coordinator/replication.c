#include "coordinator/replication.h"

#include "common/log.h"
#include "coordinator/growth.h"
#include "coordinator/handoffs.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/prefix_peers.h"
#include "coordinator/replicas.h"
#include "coordinator/sequence_create.h"
#include "coordinator/sequence_ends.h"
#include "coordinator/sequence_room.h"

enum { IDLE_FOR_ONE = 3, GROWN_BY = 4 }; /* a quarter of the time; by a quarter of what it had */

/* ---- where ---- */

/* Nobody waits there, and no prompt is being read. */
static bool deployment_is_idle(const struct deployment *d)
{
    if (d->state != DEPLOYMENT_SERVING || d->n_waiting)
        return false;
    for (const struct sequence *s = d->active; s; s = s->next)
        if (s->reads && s->kind != SEQUENCE_REPLICA)
            return false;
    return true;
}

static int agents_common(const struct deployment *d, const struct deployment *keeper)
{
    int n = 0;
    for (int i = 0; i < d->n_stages; i++)
        for (int k = 0; k < keeper->n_stages; k++)
            if (keeper->stages[k].agent == d->stages[i].agent) {
                n++;
                break;
            }
    return n;
}

/* Keeps what this one computes, and outlives the loss of one of its agents at least. */
static bool keeper_suits(const struct coord *c, const struct deployment *d,
                         const struct deployment *keeper)
{
    return keeper != d && deployment_is_idle(keeper) && prefix_peer_alike(keeper, d) &&
           keeper->spec.prefix_cache != PREFIX_CACHE_OFF && !keeper->spec.succeeds[0] &&
           !keeper->heir && keeper->n_active < keeper->max_sequences &&
           coord_now(c) >= keeper->doubted_ns && agents_common(d, keeper) < d->n_stages;
}

/* The one that has fewest of its agents; NULL: there is none. */
static struct deployment *keeper_find(struct coord *c, const struct deployment *d)
{
    struct deployment *best = NULL;
    int least = 0;
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment *o = c->deployments[i];
        int common = keeper_suits(c, d, o) ? agents_common(d, o) : -1;
        if (common >= 0 && (!best || common < least)) {
            best = o;
            least = common;
        }
    }
    return best;
}

/* ---- what ---- */

/* Others find a copy as one of so many tokens: it has to be rotated so (docs/engine.md, Rotation).
 */
static bool rotation_same(const struct deployment *d, const struct sequence *s)
{
    uint32_t from = d->model->facts.long_from;
    return !from || (s->n_prompt + s->max_tokens > from) == (s->n_ids > from);
}

/* Tokens whose keys and values are lacking where they are to be kept; 0: it is not to be copied. */
static uint64_t sequence_lacks(const struct deployment *d, const struct sequence *s,
                               const struct deployment *keeper)
{
    uint64_t had = replica_tokens(s, keeper), least = d->spec.replicate_kv;
    least = least > PREFIX_PEER_LEAST_TOKENS ? least : PREFIX_PEER_LEAST_TOKENS;
    bool may = s->kind == SEQUENCE_REQUEST && !s->embeds && !s->handoff && s->n_output &&
               s->n_ids == s->n_prompt + s->n_output && s->n_output < s->max_tokens &&
               s->n_ids < keeper->context && rotation_same(d, s);
    return may && s->n_ids >= least && s->n_ids > had + had / GROWN_BY + PREFIX_PEER_LEAST_TOKENS
               ? s->n_ids - had
               : 0;
}

static struct sequence *longest_find(const struct deployment *d, const struct deployment *keeper)
{
    struct sequence *best = NULL;
    uint64_t most = 0;
    for (struct sequence *s = d->active; s; s = s->next) {
        uint64_t lacks = sequence_lacks(d, s, keeper);
        if (lacks > most) {
            best = s;
            most = lacks;
        }
    }
    return best;
}

static bool copy_is_under_way(const struct deployment *d)
{
    for (const struct sequence *s = d->active; s; s = s->next)
        if (handoff_copies(s) && s == s->handoff->from)
            return true;
    return false;
}

/* ---- how ---- */

/* NULL: there is no room for it now. Whoever has no weights is not asked for the next token. */
static struct sequence *copy_create(struct coord *c, struct deployment *keeper,
                                    const struct sequence *s)
{
    struct sequence *copy;
    struct err ignored;
    struct prefix_hit none = {0};
    const struct sequence_asked asked = {
        s->client, s->prompt, s->n_ids - (keeper->spec.copy_of[0] != 0), 1, s->priority, false, 0};
    if (sequence_create(c, keeper, &asked, &copy, &ignored) < 0)
        return NULL;
    copy->kind = SEQUENCE_REPLICA;
    copy->number = s->number;
    copy->ignore_end = true;
    copy->handed = (uint32_t)s->n_ids - 1;
    copy->reserved = growth_first(keeper, copy);
    if (sequence_may_fit(keeper, copy, &none) && sequence_room_make(c, keeper, copy, &none))
        return copy;
    sequence_leave(c, keeper, copy);
    sequence_free(copy);
    return NULL;
}

static void copy_begin(struct coord *c, struct deployment *keeper, struct sequence *s)
{
    struct deployment *d = s->deployment;
    const struct prefix_hit none = {0};
    d->replicas.begun_ns = coord_now(c);
    d->replicas.next_ns = coord_now(c) + coord_ms(REPLICATION_AGAIN_MS);
    struct sequence *copy = copy_create(c, keeper, s);
    if (!copy)
        return;
    if (!handoff_tie(c, copy, s)) {
        sequence_leave(c, keeper, copy);
        sequence_free(copy);
        return;
    }
    d->replicas.failed++; /* until it is there */
    sequence_open(c, keeper, copy, &none);
    if (s->handoff && !handoff_imports_order(c, s->handoff))
        sequence_fail_memory(c, copy);
}

void replication_step(struct coord *c, struct deployment *d)
{
    if (!d->spec.replicate_kv || coord_now(c) < d->replicas.next_ns || !d->model->facts.kv_before ||
        d->model->facts.windows[0] || !deployment_is_idle(d) || copy_is_under_way(d))
        return;
    struct deployment *keeper = keeper_find(c, d);
    struct sequence *s = keeper ? longest_find(d, keeper) : NULL;
    if (s && handoff_may_begin(c, d, keeper))
        copy_begin(c, keeper, s);
}

/* Where it is counted: with all counts so far, where another has taken the place of its own. */
static struct deployment *place_of(struct coord *c, struct deployment *d)
{
    struct deployment *heir = deployment_of_id(c, d->heir);
    return heir ? heir : d;
}

void replication_done(struct coord *c, struct sequence *copy)
{
    struct sequence *s = copy->handoff->from;
    struct deployment *d = place_of(c, s->deployment);
    uint64_t now = coord_now(c), took_ns = now - d->replicas.begun_ns;
    handoff_done(c, copy);
    sequence_untie(s);
    replica_set(s, copy, (uint32_t)copy->n_prompt);
    d->replicas.failed--;
    d->replicas.copied++;
    d->replicas.tokens += copy->n_prompt;
    d->replicas.next_ns = now + IDLE_FOR_ONE * took_ns;
    log_info("coordinator", "sequence_copied",
             "request=%s deployment=%s sequence=%llu tokens=%zu to=%s seconds=%.4f",
             request_name(s->number).s, d->name, (unsigned long long)s->id, copy->n_prompt,
             copy->deployment->name, (double)took_ns * 1e-9);
}
