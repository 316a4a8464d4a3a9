/* The search for the largest context and number of sequences that a plan exists for, and for what
 * is better than that plan: the layout that served last, another wire format, prompts read apart.
 * Pure functions of a `struct placement_job`: any thread, no core. */
#include <math.h>
#include <stdio.h>

#include "coordinator/deployment.h"
#include "coordinator/placement_int.h"
#include "planners/pipeline/apart.h"

/* Another layout is worth moving weights when it is faster by more than this. */
#define PLACEMENT_MOVE_GAIN 1.05

enum {
    SHRINK_STAGES = 8, /* of plans with more the devices stay */
    EVEN_DEVICES = 8   /* among more the layers are planned for one length of prompts */
};

/* ---- how much fits ---- */

/* The next smaller number of sequences to try: half, and `least` before anything below it. */
static uint64_t fewer_sequences(uint64_t sequences, uint64_t least)
{
    return sequences > least && sequences / 2 < least ? least : sequences / 2;
}

/* The largest context (halving) and number of sequences that a plan exists for. */
static int context_fit(struct placement_job *p, struct err *e)
{
    uint64_t most = p->trained_context ? p->trained_context : PLACEMENT_LEAST_CONTEXT,
             least = p->least_sequences;
    uint64_t context = p->max_context ? p->max_context : most;
    if (p->plan_tokens && !p->max_context && p->plan_tokens + DEPLOYMENT_KV_ROUND < most)
        context = p->plan_tokens + DEPLOYMENT_KV_ROUND;
    for (;; context /= 2) {
        for (uint64_t sequences = p->most_sequences > least ? p->most_sequences : least;
             sequences >= least; sequences = fewer_sequences(sequences, least)) {
            p->context = context;
            p->sequences = sequences;
            p->tokens = p->plan_tokens ? (int)p->plan_tokens : placing_tokens(context);
            int rc = placing_ask(p, context, sequences, p->tokens, &p->answer, e);
            if (rc != HP_EINFEASIBLE)
                return rc;
        }
        if (p->max_context || p->planned || context / 2 < PLACEMENT_LEAST_CONTEXT)
            return HP_EINFEASIBLE;
    }
}

/* ---- other layouts ---- */

struct layers_on {
    int *devices, *ends, n; /* ends: where each device's layers end */
};

/* A plan with these layers for prompts of so many tokens. */
static int layout_ask(struct placement_job *p, const struct layers_on *l, int tokens,
                      struct pipeline_answer *out, struct err *e)
{
    const struct layers_on own = {p->devices, p->ends, p->n_devices};
    p->devices = l->devices;
    p->ends = l->ends;
    p->n_devices = l->n;
    int rc = placing_ask(p, p->context, p->sequences, tokens, out, e);
    p->devices = own.devices;
    p->ends = own.ends;
    p->n_devices = own.n;
    return rc;
}

static int layout_of(struct placement_job *p, const struct plan_pipeline *plan,
                     struct layers_on *out, struct err *e)
{
    size_t n = (size_t)plan->n_stages;
    *out = (struct layers_on){arena_alloc(&p->arena, n, sizeof *out->devices),
                              arena_alloc(&p->arena, n, sizeof *out->ends), plan->n_stages};
    if (!out->devices || !out->ends)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    for (size_t i = 0; i < n; i++) {
        out->devices[i] = cluster_find_device(&p->cluster, plan->stages[i].device);
        out->ends[i] = plan->stages[i].end_layer;
    }
    return 0;
}

/* INFINITY: it cannot be. */
static double layout_seconds(struct placement_job *p, const struct layers_on *l, int tokens)
{
    struct pipeline_answer a = {0};
    struct err ignored;
    if (layout_ask(p, l, tokens, &a, &ignored) < 0)
        return INFINITY;
    json_decref(a.document);
    return a.makespan_s;
}

/* Of the long prompts that layers are to be good for beside those they are planned for; 0: of none.
 */
static int long_tokens(const struct placement_job *p)
{
    int tokens = p->context < PLACEMENT_LONG_TOKENS ? (int)p->context : PLACEMENT_LONG_TOKENS;
    return !p->plan_tokens && tokens > p->tokens ? tokens : 0;
}

static bool last_is_as_good(struct placement_job *p, const struct layers_on *last)
{
    struct layers_on own;
    struct err ignored;
    int tokens = long_tokens(p);
    return !tokens || (layout_of(p, &p->answer.plan, &own, &ignored) == 0 &&
                       layout_seconds(p, last, tokens) <=
                           PLACEMENT_MOVE_GAIN * layout_seconds(p, &own, tokens));
}

/* Weights that lie where they are wanted need not be moved: the layout that served last is taken
 * when it is hardly slower. */
static void prefer_last(struct placement_job *p)
{
    const struct layers_on l = {p->last_devices, p->last_ends, p->n_last};
    struct pipeline_answer last = {0};
    struct err ignored;
    if (layout_ask(p, &l, p->tokens, &last, &ignored) < 0)
        return;
    bool taken =
        last.makespan_s <= PLACEMENT_MOVE_GAIN * p->answer.makespan_s && last_is_as_good(p, &l);
    json_decref(taken ? p->answer.document : last.document);
    if (taken)
        p->answer = last;
}

/* ---- what there is, beside what would be ---- */

/* Whatever else takes of the devices' memory: who asks knows that these stages have room. */
static int forecast_make(struct placement_job *p, const struct profile *profile, const int *devices,
                         const int *ends, int n, struct placement_forecast *out, struct err *e)
{
    const struct cluster *own = &p->cluster;
    struct cluster roomy = *own;
    struct pipeline_answer a = {0};
    roomy.devices =
        arena_memdup(&p->arena, own->devices, (size_t)own->n_devices * sizeof *own->devices);
    if (!roomy.devices)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    for (int i = 0; i < roomy.n_devices; i++)
        roomy.devices[i].memory_bytes = 1e18;
    struct pipeline_request rq = placing_request(p, p->tokens);
    rq.cluster = &roomy;
    rq.profile = profile;
    rq.devices = devices;
    rq.layer_ends = ends;
    rq.n_devices = n;
    rq.decode_tokens = (int)p->answer_tokens;
    rq.brief = true;
    int rc = pipeline_plan_make(&rq, &p->arena, &a, e);
    if (rc < 0)
        return rc;
    *out = (struct placement_forecast){a.makespan_s, a.decode_step_s, a.decode_tokens_per_s,
                                       a.requests_per_s};
    json_decref(a.document);
    return 0;
}

static int plan_forecast(struct placement_job *p, const struct plan_pipeline *plan,
                         struct placement_forecast *out, struct err *e)
{
    struct layers_on l;
    int rc = layout_of(p, plan, &l, e);
    return rc < 0 ? rc : forecast_make(p, &p->profile, l.devices, l.ends, l.n, out, e);
}

static int forecasts_make(struct placement_job *p, struct err *e)
{
    int rc = p->n_own ? forecast_make(p, &p->inputs->profile, p->own_devices, p->own_ends, p->n_own,
                                      &p->before, e)
                      : 0;
    return rc < 0 ? rc : plan_forecast(p, &p->answer.plan, &p->after, e);
}

/* ---- as what activations cross ---- */

static int wire_set(struct placement_job *p, enum frame_dtype wire, struct err *e)
{
    const struct profile *own = &p->inputs->profile;
    double factor = frame_dtype_ratio(wire) / frame_dtype_ratio(p->inputs->wire);
    struct profile_layer *layers =
        arena_memdup(&p->arena, own->layers, (size_t)own->n_layers * sizeof *layers);
    if (!layers)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    for (int i = 0; i < own->n_layers; i++)
        layers[i].output_bytes_per_token *= factor;
    p->profile.layers = layers;
    p->wire = wire;
    return 0;
}

/* How many times as long as the slower of its two stages a prompt's slices take over the link. */
static double hop_times(const struct pipeline_schedule *s, int hop)
{
    double link = 0, before = 0, after = 0;
    for (int k = 0; k < s->n_slices; k++) {
        int here = hop * s->n_slices + k, next = here + s->n_slices;
        link += s->hop_end_s[here] - s->hop_start_s[here];
        before += s->end_s[here] - s->start_s[here];
        after += s->end_s[next] - s->start_s[next];
    }
    return link / (before > after ? before : after);
}

/* Whether a link holds the plan up; says which does most, or that none does. */
static bool plan_is_bound(struct placement_job *p)
{
    const struct pipeline_answer *a = &p->answer;
    int worst = 0;
    for (int hop = 1; hop + 1 < a->schedule.n_stages; hop++)
        worst = hop_times(&a->schedule, hop) > hop_times(&a->schedule, worst) ? hop : worst;
    bool one = a->schedule.n_stages < 2;
    double times = one ? 0 : hop_times(&a->schedule, worst);
    const char *word = frame_dtype_word(p->wire);
    if (one)
        snprintf(p->wire_why, sizeof p->wire_why, "one stage: no rows cross");
    else if (times > 1)
        snprintf(p->wire_why, sizeof p->wire_why,
                 "as %s the link from %s to %s takes %.3g times as long as the slower of its "
                 "stages",
                 word, a->plan.stages[worst].device, a->plan.stages[worst + 1].device, times);
    else if (p->wire == FRAME_F32)
        snprintf(p->wire_why, sizeof p->wire_why,
                 "no link takes longer than the slower of its stages");
    return times > 1;
}

/* By float32 first; where a link holds the plan up, by f16, and where it still does, by q8. */
static int fit_wire(struct placement_job *p, struct err *e)
{
    static const enum frame_dtype steps[] = {FRAME_F32, FRAME_F16, FRAME_Q8};
    int rc = p->wire_auto ? wire_set(p, steps[0], e) : 0;
    rc = rc < 0 ? rc : context_fit(p, e);
    for (size_t i = 1; rc == 0 && p->wire_auto && plan_is_bound(p); i++) {
        if (i == sizeof steps / sizeof *steps || p->border_elements % frame_dtype_block(steps[i]))
            break;
        json_decref(p->answer.document);
        p->answer.document = NULL;
        rc = wire_set(p, steps[i], e);
        rc = rc < 0 ? rc : context_fit(p, e);
    }
    return rc;
}

/* ---- prompts of any length ---- */

/* Nobody knows how long the prompts will be, and where layers are cut depends on it: long ones
 * have many slices, so that the stages' shares of work count alone, and short ones are over before
 * the last stage has much to do. Of the plans for either the one is taken that the other kind of
 * prompt suffers less from, each beside the best for it. */
static void prefer_even(struct placement_job *p)
{
    int tokens = long_tokens(p), n = p->devices ? p->n_devices : p->cluster.n_devices;
    struct pipeline_answer best = {0}, even = {0};
    struct layers_on own, other;
    struct err ignored;
    if (!tokens || p->answer.plan.n_stages < 2 || n > EVEN_DEVICES ||
        layout_of(p, &p->answer.plan, &own, &ignored) < 0 ||
        placing_ask(p, p->context, p->sequences, tokens, &best, &ignored) < 0)
        return;
    double own_times = layout_seconds(p, &own, tokens) / best.makespan_s;
    bool taken = layout_of(p, &best.plan, &other, &ignored) == 0 &&
                 layout_ask(p, &other, p->tokens, &even, &ignored) == 0 &&
                 even.makespan_s / p->answer.makespan_s < own_times;
    json_decref(taken ? p->answer.document : even.document);
    json_decref(best.document);
    if (taken)
        p->answer = even;
}

/* ---- fewer devices ---- */

/* Of a whole request; INFINITY: not known. */
static double plan_seconds(struct placement_job *p, const struct plan_pipeline *plan)
{
    struct placement_forecast f;
    struct err ignored;
    return plan_forecast(p, plan, &f, &ignored) < 0 ? INFINITY
                                                    : f.ttft_s + p->answer_tokens * f.tpot_s;
}

/* The best plan without one of the devices that this one has, which is left out from then on; false
 * where none is sooner done. */
static bool plan_shrink(struct placement_job *p, double *seconds)
{
    struct pipeline_answer best = {0};
    struct err ignored;
    int out = -1;
    for (int i = 0; i < p->answer.plan.n_stages; i++) {
        struct pipeline_answer a = {0};
        int device = cluster_find_device(&p->cluster, p->answer.plan.stages[i].device);
        double room = p->cluster.devices[device].memory_bytes;
        p->cluster.devices[device].memory_bytes = 0;
        bool good = placing_ask(p, p->context, p->sequences, p->tokens, &a, &ignored) == 0;
        p->cluster.devices[device].memory_bytes = room;
        double own_s = good ? plan_seconds(p, &a.plan) : INFINITY;
        bool better = own_s * PLACEMENT_MOVE_GAIN < *seconds;
        json_decref(better ? best.document : a.document);
        if (!better)
            continue;
        *seconds = own_s;
        best = a;
        out = device;
    }
    if (out < 0)
        return false;
    p->cluster.devices[out].memory_bytes = 0;
    json_decref(p->answer.document);
    p->answer = best;
    return true;
}

/* The planner looks for the soonest first token, and each token crosses every link of its plan:
 * where links are slow, or lose what crosses them, fewer devices may be sooner done with all. */
static void prefer_fewer(struct placement_job *p)
{
    struct cluster_device *own = arena_memdup(
        &p->arena, p->cluster.devices, (size_t)p->cluster.n_devices * sizeof *p->cluster.devices);
    double seconds = own ? plan_seconds(p, &p->answer.plan) : 0;
    if (!own)
        return;
    p->cluster.devices = own;
    while (p->answer.plan.n_stages > 1 && p->answer.plan.n_stages <= SHRINK_STAGES &&
           plan_shrink(p, &seconds))
        ;
    if (p->wire_auto)
        plan_is_bound(p); /* says why again */
}

/* ---- prompts read by devices of their own ---- */

/* Weighs it with as much room for keys and values as all have together, and with half of that as
 * long as no way apart has so much. */
static int apart_weigh(struct placement_job *p, struct err *e)
{
    struct apart_answer a = {0};
    uint64_t sequences = p->sequences, least = p->least_sequences;
    for (int rc = 0; a.n_prefill == 0 && sequences >= least && sequences; sequences /= 2) {
        struct pipeline_request base = placing_roomy_request(p, p->context, sequences, p->tokens);
        uint64_t open = placing_open_sequences(p, p->context, sequences);
        const struct apart_request rq = {.base = &base,
                                         .together = &p->answer.plan,
                                         .answer_tokens = (int)p->answer_tokens,
                                         .sequences =
                                             open < APART_SEQUENCES ? (int)open : APART_SEQUENCES,
                                         .ttft_s = p->ttft_s,
                                         .tpot_s = p->tpot_s};
        if (atomic_load(&p->work.canceled))
            return err_set(e, HP_ECANCELED, "nobody waits for this plan any more");
        if ((rc = apart_find(&rq, &p->arena, &a, e)) < 0)
            return rc;
        if (a.pays) {
            json_decref(p->answer.document);
            p->answer = a.decode;
            p->sequences = sequences;
            if (p->wire_auto)
                plan_is_bound(p); /* says why again */
        } else {
            json_decref(a.decode.document);
        }
    }
    p->apart_said = apart_document(&a);
    return p->apart_said ? 0 : err_set(e, HP_ENOMEM, "no memory for planning");
}

void placing_search(struct placement_job *p)
{
    p->status = p->cluster.n_devices ? fit_wire(p, &p->error) : HP_EINFEASIBLE;
    /* A move is weighed for prompts of one length, and so is what the wire is chosen for. */
    if (p->status == 0 && !p->ends && !p->n_own && !p->imagined && !p->wire_auto)
        prefer_even(p);
    if (p->status == 0 && p->n_last && !p->devices)
        prefer_last(p);
    if (p->status == 0 && p->n_own && !p->imagined && !p->devices)
        prefer_fewer(p);
    if (p->status == 0 && p->apart && (p->status = apart_weigh(p, &p->error)) < 0) {
        json_decref(p->answer.document);
        p->answer.document = NULL;
        return;
    }
    if (p->status == 0 && (p->n_own || p->imagined) &&
        (p->status = forecasts_make(p, &p->error)) < 0) {
        json_decref(p->answer.document);
        p->answer.document = NULL;
        return;
    }
    if (p->status == HP_EINFEASIBLE) {
        uint64_t context = p->context       ? p->context
                           : p->max_context ? p->max_context
                                            : p->trained_context;
        p->has_room = !p->ends && placing_has_room(p, context);
        p->status = placing_missing_explain(p, context, &p->error);
    }
}
