/* The search for the largest context and number of sequences that a plan exists for, and the words
 * for what is missing where none does. Pure functions of a `struct placement_job`: any thread, no
 * core.
 */
#include "coordinator/deployment.h"
#include "coordinator/placement_int.h"
#include "planners/pipeline/apart.h"
#include "transport/stage_bytes.h"

/* Another layout is worth moving weights when it is faster by more than this. */
#define PLACEMENT_MOVE_GAIN 1.05

#include <stdio.h>
#include <string.h>

/* ---- asking the planner ---- */

/* What a planner's request of this deployment begins with. */
static struct pipeline_request planner_request(const struct placement_job *p, int tokens)
{
    return (struct pipeline_request){
        .cluster = &p->cluster,
        .profile = &p->profile,
        .tokens = tokens,
        .objective = PIPELINE_LATENCY,
        .method = PIPELINE_EXACT,
        .seed = p->deployment,
        .devices = p->devices,
        .n_devices = p->n_devices,
        .layer_ends = p->ends,
        .max_slice = p->max_slice,
        .brief = true,
        .env = p->env,
    };
}

uint64_t placing_open_sequences(const struct placement_job *p, uint64_t context, uint64_t sequences)
{
    if (p->planned || p->max_sequences)
        return p->planned ? sequences : p->max_sequences;
    uint64_t many =
        placing_round_up(context, DEPLOYMENT_KV_ROUND) * sequences / DEPLOYMENT_SEQUENCE_TOKENS;
    many = many < DEPLOYMENT_SEQUENCES ? many : DEPLOYMENT_SEQUENCES;
    return many > sequences ? many : sequences;
}

uint64_t placing_kv_tokens(const struct placement_job *p, uint64_t context, uint64_t sequences)
{
    /* Agents that stand for a plan's devices keep what the plan says. */
    uint64_t steps = p->planned ? 0 : placing_open_sequences(p, context, sequences);
    return placing_round_up(context, DEPLOYMENT_KV_ROUND) * sequences + steps * DEPLOYMENT_KV_ROUND;
}

double placing_beside_bytes(const struct placement_job *p, uint64_t context, uint64_t sequences,
                            bool last)
{
    struct stage_shape s = {.last = last,
                            .max_batch_tokens = (uint64_t)p->max_slice,
                            .max_sequences = placing_open_sequences(p, context, sequences),
                            .width = p->width,
                            .vocabulary = p->vocabulary,
                            .wire = p->wire};
    return p->paced ? 0 : (double)stage_beside_bytes(&s);
}

/* With the room that so many sequences of whole contexts take. */
static struct pipeline_request roomy_request(const struct placement_job *p, uint64_t context,
                                             uint64_t sequences, int tokens)
{
    struct pipeline_request rq = planner_request(p, tokens);
    rq.hands_on_bytes = placing_beside_bytes(p, context, sequences, false);
    rq.last_bytes = placing_beside_bytes(p, context, sequences, true);
    rq.context_tokens = (double)placing_kv_tokens(p, context, sequences) / (double)sequences;
    rq.sequences = (double)sequences * p->inputs->stands_for;
    int n = p->devices ? p->n_devices : p->cluster.n_devices;
    /* The joint search grows with the devices: less effort beyond a few, and beyond many the
     * published programmes. */
    if (!p->ends && n > 8)
        rq.effort = 0.1;
    if (!p->ends && n > 32)
        rq.method = PIPELINE_HPIPE;
    return rq;
}

static int ask_planner(struct placement_job *p, uint64_t context, uint64_t sequences, int tokens,
                       struct pipeline_answer *out, struct err *e)
{
    if (atomic_load(&p->work.canceled))
        return err_set(e, HP_ECANCELED, "nobody waits for this plan any more");
    struct pipeline_request rq = roomy_request(p, context, sequences, tokens);
    return pipeline_plan_make(&rq, &p->arena, out, e);
}

static int placing_tokens(uint64_t context)
{
    return (int)(context < PLACEMENT_TOKENS ? context : PLACEMENT_TOKENS);
}

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
            int rc = ask_planner(p, context, sequences, p->tokens, &p->answer, e);
            if (rc != HP_EINFEASIBLE)
                return rc;
        }
        if (p->max_context || p->planned || context / 2 < PLACEMENT_LEAST_CONTEXT)
            return HP_EINFEASIBLE;
    }
}

/* ---- what does not fit ---- */

static void bytes_text(double bytes, char out[32])
{
    if (bytes >= 1e9)
        snprintf(out, 32, "%.2f GB", bytes / 1e9);
    else
        snprintf(out, 32, "%.1f MB", bytes / 1e6);
}

/* Bytes of layers [first, end) with the KV of one sequence of `context` tokens. */
static double need_bytes(const struct placement_job *p, int first, int end, uint64_t context,
                         double *weights)
{
    double sum = 0, w = 0;
    for (int l = first; l < end; l++) {
        w += p->inputs->resident_bytes[l];
        sum += p->inputs->state_bytes_per_token[l] *
               (double)placing_round_up(context, DEPLOYMENT_KV_ROUND);
    }
    if (weights)
        *weights = w;
    return sum + w;
}

/* The stages as given: where how much is missing. */
static int explain_ranges(const struct placement_job *p, uint64_t context, struct err *e)
{
    char text[600] = "";
    size_t used = 0;
    for (int i = 0; i < p->n_devices && used < sizeof text - 1; i++) {
        const struct placing_range *r = &p->ranges[i];
        double need = need_bytes(p, r->first, r->end, context, NULL) +
                      p->inputs->workspace_bytes[p->devices[i]] +
                      placing_beside_bytes(p, context, 1, i + 1 == p->n_devices),
               room = p->inputs->free_bytes[p->devices[i]];
        if (need <= room)
            continue;
        char a[32], b[32];
        bytes_text(need, a);
        bytes_text(room, b);
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             "%slayers %d-%d need %s on agent \"%s\", which has %s free: %.0f "
                             "bytes are missing there",
                             used ? "; " : "", r->first, r->end - 1, a, r->agent, b, need - room);
    }
    return err_set(e, HP_EINFEASIBLE, "%s", text);
}

/* An agent with one device is called by its own name. */
static const char *device_text(const struct cluster *c, int device)
{
    const struct cluster_node *node = &c->nodes[c->devices[device].node];
    return node->n_devices > 1 ? c->devices[device].id : node->name;
}

static int explain_free(const struct placement_job *p, uint64_t context, struct err *e)
{
    const struct cluster *cluster = &p->cluster;
    double weights, need = need_bytes(p, 0, p->inputs->n_layers, context, &weights), room = 0;
    char have[300] = "", a[32], b[32], w[32];
    size_t used = 0;
    for (int i = 0; i < cluster->n_devices; i++) {
        bool named = !p->devices;
        for (int k = 0; k < p->n_devices; k++)
            named = named || p->devices[k] == i;
        if (!named)
            continue;
        room += cluster->devices[i].memory_bytes;
        bytes_text(cluster->devices[i].memory_bytes, b);
        if (used < sizeof have - 1)
            used += (size_t)snprintf(have + used, sizeof have - used, "%s%s %s", used ? ", " : "",
                                     device_text(cluster, i), b);
    }
    bytes_text(need, a);
    bytes_text(weights, w);
    if (cluster->n_devices == 0)
        return err_set(e, HP_EINFEASIBLE,
                       "no agent is ready: the model needs %s (weights %s, the rest KV cache of "
                       "one sequence of %llu tokens)",
                       a, w, (unsigned long long)context);
    if (need > room)
        return err_set(e, HP_EINFEASIBLE,
                       "the model needs %s (weights %s, the rest KV cache of one sequence of %llu "
                       "tokens) and its agents have "
                       "less for these (%s, beside "
                       "their work space): %.0f bytes are missing",
                       a, w, (unsigned long long)context, have, need - room);
    return err_set(e, HP_EINFEASIBLE,
                   "the model needs %s and its agents have enough together (%s), but no cut "
                   "between layers fits each of them",
                   a, have);
}

/* Says how many bytes are missing where, and which context would fit. */
static int missing_explain(struct placement_job *p, uint64_t context, struct err *e)
{
    if (p->ends)
        explain_ranges(p, context, e);
    else
        explain_free(p, context, e);
    for (uint64_t smaller = context / 2; smaller >= PLACEMENT_LEAST_CONTEXT; smaller /= 2) {
        struct pipeline_answer answer = {0};
        struct err ignored;
        if (ask_planner(p, smaller, 1, placing_tokens(smaller), &answer, &ignored) == 0) {
            json_decref(answer.document);
            err_hint(e, "a context of %llu tokens would fit: --max-context %llu",
                     (unsigned long long)smaller, (unsigned long long)smaller);
            return e->code;
        }
    }
    double weights, all = need_bytes(p, 0, p->inputs->n_layers, PLACEMENT_LEAST_CONTEXT, &weights);
    return err_hint(
        e, "no context fits: add agents, or memory to them (--memory), up to %.0f bytes in all",
        all);
}

/* Weights that lie where they are wanted need not be moved: the layout that served last is taken
 * when it is hardly slower. */
static void prefer_last(struct placement_job *p)
{
    struct pipeline_answer last = {0};
    struct err ignored;
    int *devices = p->devices, *ends = p->ends, n = p->n_devices;
    p->devices = p->last_devices;
    p->ends = p->last_ends;
    p->n_devices = p->n_last;
    int rc = ask_planner(p, p->context, p->sequences, p->tokens, &last, &ignored);
    p->devices = devices;
    p->ends = ends;
    p->n_devices = n;
    if (rc < 0)
        return;
    bool taken = last.makespan_s <= PLACEMENT_MOVE_GAIN * p->answer.makespan_s;
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
    struct pipeline_request rq = planner_request(p, p->tokens);
    rq.cluster = &roomy;
    rq.profile = profile;
    rq.devices = devices;
    rq.layer_ends = ends;
    rq.n_devices = n;
    rq.decode_tokens = (int)p->answer_tokens;
    int rc = pipeline_plan_make(&rq, &p->arena, &a, e);
    if (rc < 0)
        return rc;
    *out = (struct placement_forecast){a.makespan_s, a.decode_step_s, a.decode_tokens_per_s,
                                       a.requests_per_s};
    json_decref(a.document);
    return 0;
}

static int forecasts_make(struct placement_job *p, struct err *e)
{
    const struct plan_pipeline *plan = &p->answer.plan;
    size_t n = (size_t)plan->n_stages;
    int *devices = arena_alloc(&p->arena, n, sizeof *devices),
        *ends = arena_alloc(&p->arena, n, sizeof *ends);
    if (!devices || !ends)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    for (size_t i = 0; i < n; i++) {
        devices[i] = cluster_find_device(&p->cluster, plan->stages[i].device);
        ends[i] = plan->stages[i].end_layer;
    }
    int rc =
        forecast_make(p, &p->inputs->profile, p->own_devices, p->own_ends, p->n_own, &p->before, e);
    return rc < 0 ? rc : forecast_make(p, &p->profile, devices, ends, (int)n, &p->after, e);
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

/* ---- prompts read by devices of their own ---- */

/* Weighs it with as much room for keys and values as all have together, and with half of that as
 * long as no way apart has so much. */
static int apart_weigh(struct placement_job *p, struct err *e)
{
    struct apart_answer a = {0};
    uint64_t sequences = p->sequences, least = p->least_sequences;
    for (int rc = 0; a.n_prefill == 0 && sequences >= least && sequences; sequences /= 2) {
        struct pipeline_request base = roomy_request(p, p->context, sequences, p->tokens);
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
    if (p->status == 0 && p->n_last && !p->devices)
        prefer_last(p);
    if (p->status == 0 && p->apart && (p->status = apart_weigh(p, &p->error)) < 0) {
        json_decref(p->answer.document);
        p->answer.document = NULL;
        return;
    }
    if (p->status == 0 && p->n_own && (p->status = forecasts_make(p, &p->error)) < 0) {
        json_decref(p->answer.document);
        p->answer.document = NULL;
        return;
    }
    if (p->status == HP_EINFEASIBLE)
        p->status = missing_explain(p,
                                    p->context       ? p->context
                                    : p->max_context ? p->max_context
                                                     : p->trained_context,
                                    &p->error);
}
