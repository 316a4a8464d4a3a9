#include "coordinator/keeper_plans.h"

#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/utf8.h"
#include "coordinator/deployment_options.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement.h"
#include "coordinator/planner_cluster.h"
#include "coordinator/planner_profile.h"
#include "coordinator/record.h"
#include "coordinator/sequence.h"
#include "coordinator/stage_layout.h"

enum { FAILED_MS = 600000 }; /* so long after a failure others come first */
static const double share_of_free = 0.5;
static const char ending[] = "/copy";

/* ---- whether ---- */

static bool name_make(const struct deployment *d, char out[DEPLOYMENT_NAME])
{
    return snprintf(out, DEPLOYMENT_NAME, "%s%s", d->name, ending) < DEPLOYMENT_NAME;
}

/* As the other's, but for where it lies, what it does, and where weights are read. */
static json_t *options_of(const struct deployment *d)
{
    static const char *const own[] = {
        "plan",   "layers",        "agents",         "prefill",     "decode",     "prefill_kv",
        "copies", "replicate_to",  "replicate_kv",   "rebalance",   "ttft",       "tpot",
        "slice",  "max_sequences", "source_machine", "source_path", "upload_only"};
    json_t *o = json_copy(d->spec.options);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        json_object_del(o, own[i]);
    if (d->spec.prefix_cache == PREFIX_CACHE_OFF) /* of prompts; a copy is kept for its sequence */
        json_object_del(o, "prefix_cache");
    if (!deployment_keeps_anywhere(d))
        json_object_set_new(o, "agents", json_string(d->spec.replicate_to));
    json_object_set_new(o, "copy_of", json_string(d->name));
    return o;
}

void keeper_plan_step(struct coord *c, struct deployment *d)
{
    char name[DEPLOYMENT_NAME];
    struct deployment_spec spec;
    struct deployment *k;
    struct err e = {0};
    if (!d->spec.replicate_to[0] || d->spec.succeeds[0] || d->heir || !d->model->facts.kv_before ||
        d->model->facts.windows[0] || coord_now(c) < d->replicas.keeper_ns || !name_make(d, name) ||
        deployment_find(c, name))
        return;
    d->replicas.keeper_ns = coord_now(c) + coord_ms(DEPLOYMENT_RETRY_MS);
    json_t *options = options_of(d);
    int rc = options ? deployment_options_read(options, &spec, &e)
                     : err_set(&e, HP_ENOMEM, "no memory for a deployment");
    json_decref(options);
    if (rc == 0 && (rc = record_begin(c, name, d->model, &spec, &k, &e)) < 0)
        deployment_spec_free(&spec);
    if (rc < 0)
        log_warn("coordinator", "no_keeper", "deployment=%s why=\"%s\"", d->name, e.text);
}

/* ---- where ---- */

struct keeper_place {
    struct member *agent;
    int device;
    uint64_t tokens;    /* that it has room for */
    double bytes;       /* that these take */
    bool apart;         /* the deployment has no stage there */
    uint64_t failed_ns; /* when none could be made there; 0: not lately */
    bool held_off;      /* its agent comes and goes (flapping.h): better than none */
};

/* False: no loss would leave the copy and lose what it is of. */
static bool place_serves(const struct deployment *d, const struct member *m, bool *apart)
{
    bool others = false;
    *apart = true;
    for (int i = 0; i < d->n_stages; i++) {
        others = others || d->stages[i].agent != m;
        *apart = *apart && d->stages[i].agent != m;
    }
    return others;
}

static double token_bytes(const struct coord *c, const struct deployment *k)
{
    double bytes = 0;
    for (int l = 0; l < k->model->facts.n_layers; l++)
        bytes += planner_state_bytes_per_token(c, k, l);
    return bytes;
}

static void place_measure(const struct coord *c, const struct deployment *k,
                          const struct deployment *d, struct keeper_place *p)
{
    double free_bytes = share_of_free * planner_free_bytes(c, k, p->agent, p->device),
           of_token = token_bytes(c, k),
           of_ends = of_token * KV_PAGE_TOKENS * (double)d->max_sequences;
    double most = of_token > 0 ? (free_bytes - of_ends) / of_token : 0;
    uint64_t tokens = most > (double)d->kv_tokens ? d->kv_tokens : most > 0 ? (uint64_t)most : 0;
    p->tokens = tokens / DEPLOYMENT_KV_ROUND * DEPLOYMENT_KV_ROUND;
    p->bytes = of_token * (double)p->tokens + of_ends;
}

/* One sequence that is long enough finds room. */
static bool place_is_roomy(const struct keeper_place *p, const struct deployment *d)
{
    return p->tokens && p->tokens >= d->spec.replicate_kv;
}

static bool place_is_better(const struct keeper_place *a, const struct keeper_place *b,
                            const struct deployment *d)
{
    bool roomy = place_is_roomy(a, d);
    if (!b->agent || roomy != place_is_roomy(b, d))
        return !b->agent || roomy;
    if (a->failed_ns != b->failed_ns)
        return a->failed_ns < b->failed_ns;
    if (a->held_off != b->held_off)
        return b->held_off;
    return a->apart != b->apart ? a->apart : a->tokens > b->tokens;
}

/* A stage is on its way there, or found no memory there and will be tried again. */
static bool place_is_awaited(const struct coord *c, const struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        const struct deployment *o = c->deployments[i];
        bool comes = o->state == DEPLOYMENT_PREPARING ||
                     (o->state == DEPLOYMENT_BROKEN && o->why.code == HP_ENOMEM);
        for (int k = 0; comes && !o->spec.copy_of[0] && k < o->n_stages; k++)
            if (o->stages[k].agent == m)
                return true;
    }
    return false;
}

static void place_weigh(const struct coord *c, const struct deployment *k,
                        const struct deployment *d, struct keeper_place p,
                        struct keeper_place *best)
{
    if (!member_available(p.agent) || !member_device(p.agent, p.device) ||
        member_device_lost(p.agent, p.device) || place_is_awaited(c, p.agent) ||
        !place_serves(d, p.agent, &p.apart))
        return;
    bool lately = coord_now(c) - p.agent->copies_failed_ns < coord_ms(FAILED_MS);
    p.held_off = coord_now(c) < p.agent->held_off_until_ns;
    p.failed_ns = lately ? p.agent->copies_failed_ns : 0;
    place_measure(c, k, d, &p);
    if (place_is_better(&p, best, d))
        *best = p;
}

static struct keeper_place place_find(struct coord *c, const struct deployment *k,
                                      const struct deployment *d)
{
    struct keeper_place best = {0};
    struct placement_device named = {0};
    if (!deployment_keeps_anywhere(d))
        named = placement_device_named(c, d->spec.replicate_to);
    for (size_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];
        bool may = deployment_keeps_anywhere(d) || named.agent == m;
        for (int n = 0; may && m->node && n < m->node->cluster.n_devices; n++)
            if (!named.agent || named.device < 0 || named.device == n)
                place_weigh(c, k, d, (struct keeper_place){.agent = m, .device = n}, &best);
    }
    return best;
}

static struct stage_layout *layout_of(const struct deployment *k, const struct deployment *d,
                                      const struct keeper_place *p)
{
    struct stage_layout *l = stage_layout_create(1);
    if (!l)
        return NULL;
    l->wire = deployment_wire(d);
    l->context = d->context;
    l->kv_tokens = p->tokens;
    l->max_sequences = d->max_sequences;
    l->max_batch_tokens = 1;
    l->stages[0] = (struct layout_stage){
        .device = p->device, .end_layer = k->model->facts.n_layers, .memory_bytes = p->bytes};
    utf8_copy(l->stages[0].agent, sizeof l->stages[0].agent, p->agent->name);
    return l;
}

void keeper_plan_failed(const struct coord *c, struct deployment *k)
{
    if (k->n_stages)
        k->stages[0].agent->copies_failed_ns = coord_now(c);
}

int keeper_plan_place(struct coord *c, struct deployment *k, struct stage_layout **out,
                      struct err *e)
{
    const struct deployment *d = deployment_find(c, k->spec.copy_of);
    struct keeper_place p = d ? place_find(c, k, d) : (struct keeper_place){0};
    if (!p.agent)
        return err_set(
            e, HP_EINFEASIBLE,
            "no agent can keep copies for \"%s\" now: it takes one that is here and does "
            "not have all of its stages",
            k->spec.copy_of);
    if (!place_is_roomy(&p, d))
        return err_set(e, HP_EINFEASIBLE,
                       "agent \"%s\" has room for copies of %llu tokens, and sequences are copied "
                       "from %llu on",
                       p.agent->name, (unsigned long long)p.tokens,
                       (unsigned long long)d->spec.replicate_kv);
    *out = layout_of(k, d, &p);
    return *out ? 0 : err_set(e, HP_ENOMEM, "no memory for a stage");
}

/* ---- how long ---- */

/* Nothing comes there or is fetched from there, and what it keeps for serves. */
static bool keeper_rests(const struct coord *c, const struct deployment *k,
                         const struct deployment *d)
{
    if (k->state != DEPLOYMENT_SERVING || d->state != DEPLOYMENT_SERVING || k->n_active ||
        coord_now(c) - d->since_ns < coord_ms(DEPLOYMENT_GROW_MS))
        return false;
    for (const struct sequence *s = d->waiting_first; s; s = s->next)
        if (s->replica && s->keeper == k->id)
            return false;
    return true;
}

/* An agent has come since it was made, or the deployment has moved. */
static bool place_is_new(const struct coord *c, const struct deployment *k,
                         const struct deployment *d, const struct keeper_place *p)
{
    uint64_t joined = p->agent->joined_ns;
    return (joined > k->since_ns && coord_now(c) - joined >= coord_ms(DEPLOYMENT_GROW_MS)) ||
           d->since_ns > k->since_ns;
}

/* Where it lies a loss may take what it keeps together with what that is of, or does so always,
 * and need not. */
static bool keeper_lies_badly(struct coord *c, const struct deployment *k,
                              const struct deployment *d)
{
    bool apart;
    if (!place_serves(d, k->stages[0].agent, &apart))
        return true;
    if (apart)
        return false;
    struct keeper_place p = place_find(c, k, d);
    return p.agent && p.apart && place_is_roomy(&p, d) && place_is_new(c, k, d, &p);
}

bool keeper_plan_wanted(struct coord *c, const struct deployment *k)
{
    const struct deployment *d = deployment_find(c, k->spec.copy_of);
    if (!d || !d->spec.replicate_to[0] || d->model != k->model ||
        (keeper_rests(c, k, d) && keeper_lies_badly(c, k, d)))
        return false;
    json_t *options = options_of(d);
    bool same = !options || json_equal(options, k->spec.options); /* for want of memory: later */
    json_decref(options);
    return same;
}

/* ---- for whom it goes ---- */

bool keeper_plan_is_beside(const struct deployment *k, const struct deployment *to)
{
    for (int i = 0; k->n_stages && i < to->n_stages; i++)
        if (to->stages[i].agent == k->stages[0].agent)
            return true;
    return false;
}

bool keeper_plan_yields(const struct coord *c, const struct deployment *k)
{
    const struct deployment_stage *s = k->stages;
    return k->n_stages && planner_free_bytes(c, k, s->agent, s->device) < s->memory_bytes;
}
