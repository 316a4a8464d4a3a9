#include "planners/pipeline/apart.h"

#include <math.h>
#include <stdio.h>

#include "planners/pipeline/apart_int.h"

enum { SUBSETS_UP_TO = 4, STEPS_OF_AN_ORDER = 7, MOST_WAYS = 3 * STEPS_OF_AN_ORDER };

/* ---- which is better ---- */

static bool time_gains(double before, double after, double target)
{
    return before >= APART_GAIN * after && (target <= 0 || before > target);
}

static bool time_loses(double before, double after, double target)
{
    return after > APART_LOSS * before && (target <= 0 || after > target);
}

/* What speaks against it; NULL: nothing, and something gains. */
static const char *against_it(const struct apart_request *rq, const struct apart_figures *before,
                              const struct apart_figures *after)
{
    bool ttft = time_gains(before->ttft_s, after->ttft_s, rq->ttft_s),
         tpot = time_gains(before->tpot_s, after->tpot_s, rq->tpot_s),
         kept = (ttft && rq->ttft_s > 0) || (tpot && rq->tpot_s > 0);
    double rate = after->requests_per_s / before->requests_per_s;
    if (rate < (kept ? APART_LEAST_RATE : APART_RATE))
        return "fewer requests";
    if (time_loses(before->ttft_s, after->ttft_s, rq->ttft_s))
        return "later first tokens";
    if (time_loses(before->tpot_s, after->tpot_s, rq->tpot_s))
        return "slower answers";
    return ttft || tpot || rate >= APART_GAIN ? NULL : "nothing gains a fifth";
}

/* ---- one way ---- */

/* Devices of `mask` (or of all others) have no room. */
static int part_plan(const struct apart_search *x, uint32_t mask, bool reads,
                     struct pipeline_answer *out, struct err *e)
{
    const struct pipeline_request *b = x->rq->base;
    struct cluster part = *b->cluster;
    struct pipeline_request rq = *b;
    part.devices =
        arena_memdup(x->arena, part.devices, (size_t)part.n_devices * sizeof *part.devices);
    if (!part.devices)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    if (reads)
        for (int i = 0; i < part.n_devices; i++)
            part.devices[i].memory_bytes = -1;
    for (int i = 0; i < x->n; i++) {
        int d = x->devices[i];
        bool in = (mask >> i & 1) == reads;
        part.devices[d].memory_bytes = in ? b->cluster->devices[d].memory_bytes : -1;
    }
    rq.cluster = &part;
    rq.brief = true;
    rq.effort = (rq.effort > 0 ? rq.effort : 1) * (x->n > 2 ? 0.1 : 0.5);
    if (reads) {
        rq.devices = rq.layer_ends = NULL;
        rq.n_devices = 0;
    }
    return pipeline_plan_make(&rq, x->arena, out, e);
}

static bool is_better(const struct apart_search *x, bool pays, const struct apart_figures *f)
{
    const struct apart_answer *best = &x->best;
    if (best->n_prefill == 0 || pays != best->pays)
        return best->n_prefill == 0 || pays;
    double rate = f->requests_per_s / best->apart.requests_per_s;
    return rate > 1.01 || (rate > 0.99 && f->ttft_s < best->apart.ttft_s);
}

static int best_set(struct apart_search *x, const struct plan_pipeline *from,
                    const struct pipeline_answer *to, const struct apart_figures *f, bool pays,
                    struct err *e)
{
    struct apart_answer *best = &x->best;
    int *prefill = arena_alloc(x->arena, (size_t)from->n_stages, sizeof *prefill);
    if (!prefill)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    for (int i = 0; i < from->n_stages; i++)
        prefill[i] = cluster_find_device(x->rq->base->cluster, from->stages[i].device);
    json_decref(best->decode.document);
    best->pays = pays;
    best->prefill = prefill;
    best->n_prefill = from->n_stages;
    best->apart = *f;
    best->decode = *to;
    json_incref(to->document);
    return 0;
}

/* Devices of `mask` read, the others answer. A way that cannot be is none. */
static int way_weigh(struct apart_search *x, uint32_t mask, struct err *e)
{
    struct pipeline_answer from = {0}, to = {0};
    struct apart_figures f;
    int rc = part_plan(x, mask, true, &from, e);
    rc = rc < 0 ? rc : part_plan(x, mask, false, &to, e);
    rc = rc < 0 ? rc : apart_figures_apart(x, &from.plan, &to.plan, &f, e);
    if (rc == 0 && isfinite(f.ttft_s) && isfinite(f.requests_per_s)) {
        bool pays = !against_it(x->rq, &x->best.together, &f);
        if (is_better(x, pays, &f))
            rc = best_set(x, &from.plan, &to, &f, pays, e);
    }
    json_decref(from.document);
    json_decref(to.document);
    return rc == HP_EINFEASIBLE ? 0 : rc;
}

/* ---- which ways ---- */

/* A device of a kind without times, or without memory, runs nothing. */
static int devices_list(struct apart_search *x, struct err *e)
{
    const struct pipeline_request *b = x->rq->base;
    for (int i = 0; i < b->cluster->n_devices; i++) {
        const struct cluster_device *d = &b->cluster->devices[i];
        bool takes = d->memory_bytes > 0 && profile_find_kind(b->profile, d->kind) >= 0;
        for (int k = 0; b->devices && k < b->n_devices; k++)
            takes = takes && b->devices[k] != i;
        if (!takes)
            continue;
        struct plan_stage all = {.device = d->id, .end_layer = b->profile->n_layers};
        const struct plan_pipeline alone = {.stages = &all, .n_stages = 1};
        struct plan_load l;
        if (x->n == APART_MOST_DEVICES) {
            x->n++;
            return 0;
        }
        int rc = apart_loads_make(x, &alone, &l, e);
        if (rc < 0)
            return rc;
        x->read_s[x->n] = l.ttft_s;
        x->step_s[x->n] = l.step_s;
        x->devices[x->n++] = i;
    }
    return 0;
}

/* 0: better at reading than at answering, 1: the faster, 2: the slower. */
static double device_rank(const struct apart_search *x, int i, int order)
{
    return order == 0 ? x->read_s[i] / x->step_s[i] : order == 1 ? x->read_s[i] : -x->read_s[i];
}

/* The first k in that order. */
static uint32_t first_mask(const struct apart_search *x, int order, int k)
{
    uint32_t mask = 0;
    for (int picked = 0; picked < k; picked++) {
        int next = -1;
        for (int i = 0; i < x->n; i++)
            if (!(mask >> i & 1) &&
                (next < 0 || device_rank(x, i, order) < device_rank(x, next, order)))
                next = i;
        if (next >= 0)
            mask |= UINT32_C(1) << next;
    }
    return mask;
}

static int ways_of_orders(struct apart_search *x, int most, struct err *e)
{
    uint32_t seen[MOST_WAYS];
    int n_seen = 0, rc = 0;
    int steps = most < STEPS_OF_AN_ORDER ? most : STEPS_OF_AN_ORDER;
    for (int order = 0; order < 3; order++)
        for (int s = 1; rc == 0 && s <= steps; s++) {
            uint32_t mask = first_mask(x, order, (s * most + steps - 1) / steps);
            bool again = false;
            for (int i = 0; i < n_seen; i++)
                again = again || seen[i] == mask;
            if (again)
                continue;
            seen[n_seen++] = mask;
            rc = way_weigh(x, mask, e);
        }
    return rc;
}

static int ways_weigh(struct apart_search *x, struct err *e)
{
    int rc = 0, most = x->n - !x->rq->base->devices; /* somebody has to answer */
    if (x->n > SUBSETS_UP_TO)
        return ways_of_orders(x, most, e);
    uint32_t all = (UINT32_C(1) << x->n) - 1;
    for (uint32_t mask = 1; rc == 0 && mask <= all; mask++)
        if (x->rq->base->devices || mask != all)
            rc = way_weigh(x, mask, e);
    return rc;
}

/* ---- in words ---- */

static const char *device_text(const struct cluster *c, int device)
{
    const struct cluster_node *node = &c->nodes[c->devices[device].node];
    return node->n_devices > 1 ? c->devices[device].id : node->name;
}

static const char *devices_text(struct apart_search *x, const int *devices, int n)
{
    const char *out = "";
    for (int i = 0; out && i < n; i++)
        out = arena_printf(x->arena, "%s%s%s", out, i ? "," : "",
                           device_text(x->rq->base->cluster, devices[i]));
    return out;
}

static int sides_name(struct apart_search *x, struct err *e)
{
    struct apart_answer *a = &x->best;
    const struct plan_pipeline *to = &a->decode.plan;
    int *answer = arena_alloc(x->arena, (size_t)to->n_stages + 1, sizeof *answer);
    for (int i = 0; answer && i < to->n_stages; i++)
        answer[i] = cluster_find_device(x->rq->base->cluster, to->stages[i].device);
    a->readers = devices_text(x, a->prefill, a->n_prefill);
    a->answerers = answer ? devices_text(x, answer, to->n_stages) : NULL;
    return a->readers && a->answerers ? 0 : err_set(e, HP_ENOMEM, "no memory for planning");
}

static void seconds_text(double s, char out[24])
{
    snprintf(out, 24, s < 1 ? "%.3g ms" : "%.3g s", s < 1 ? s * 1e3 : s);
}

static void why_write(const struct apart_search *x, struct apart_answer *a)
{
    const char *against = a->n_prefill ? against_it(x->rq, &a->together, &a->apart) : NULL;
    char t[4][24];
    seconds_text(a->apart.ttft_s, t[0]);
    seconds_text(a->together.ttft_s, t[1]);
    seconds_text(a->apart.tpot_s, t[2]);
    seconds_text(a->together.tpot_s, t[3]);
    if (x->n > APART_MOST_DEVICES)
        snprintf(a->why, sizeof a->why, "together: ways apart are weighed for up to %d devices",
                 APART_MOST_DEVICES);
    else if (!a->n_prefill)
        snprintf(a->why, sizeof a->why, "together: %s",
                 x->n < 2 - !!x->rq->base->devices
                     ? "no other device is there that could read prompts"
                     : "no two parts of the devices have room for all layers each, and a path "
                       "between them");
    else
        snprintf(a->why, sizeof a->why,
                 "%s%s%sprompts read by %.60s, answered by %.60s: %.3g requests/s (together %.3g), "
                 "first token after %s (%s), a token beside prompts %s (%s)",
                 against ? "together: apart means " : "apart: ", against ? against : "",
                 against ? "; at best " : "", a->readers, a->answerers, a->apart.requests_per_s,
                 a->together.requests_per_s, t[0], t[1], t[2], t[3]);
}

/* ---- the face ---- */

int apart_find(const struct apart_request *rq, struct arena *arena, struct apart_answer *out,
               struct err *e)
{
    int answer = rq->answer_tokens > 0 ? rq->answer_tokens : APART_ANSWER_TOKENS,
        sequences = rq->sequences > 0 ? rq->sequences : APART_SEQUENCES;
    struct apart_search x = {
        .rq = rq, .arena = arena, .answer_tokens = answer, .sequences = sequences};
    struct plan_load l;
    *out = (struct apart_answer){0};
    int rc = apart_loads_make(&x, rq->together, &l, e);
    if (rc == 0) {
        x.best.together = apart_figures_together(&x, &l);
        rc = devices_list(&x, e);
    }
    if (rc == 0 && x.n <= APART_MOST_DEVICES)
        rc = ways_weigh(&x, e);
    if (rc == 0 && x.best.n_prefill)
        rc = sides_name(&x, e);
    if (rc < 0) {
        json_decref(x.best.decode.document);
        return rc;
    }
    why_write(&x, &x.best);
    *out = x.best;
    return 0;
}

static json_t *figures_json(const struct apart_figures *f)
{
    return json_pack("{s:f, s:f, s:f}", "requests_per_s", f->requests_per_s, "ttft_s", f->ttft_s,
                     "tpot_s", f->tpot_s);
}

json_t *apart_document(const struct apart_answer *a)
{
    json_t *out = json_pack("{s:b, s:s}", "chosen", a->pays, "why", a->why);
    if (!out || !a->n_prefill)
        return out;
    json_object_set_new(out, "prefill", json_string(a->readers));
    json_object_set_new(out, "decode", json_string(a->answerers));
    json_object_set_new(out, "together", figures_json(&a->together));
    json_object_set_new(out, "apart", figures_json(&a->apart));
    return out;
}
