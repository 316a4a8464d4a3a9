#include "coordinator/placement.h"

#include "common/cluster.h"
#include "common/log.h"
#include "common/profile.h"
#include "coordinator/core_int.h"
#include "coordinator/costs.h"
#include "planners/pipeline/pipeline.h"
#include "planners/pipeline/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one planning works on. */
struct placing {
    struct core *core;
    struct deployment *deployment;
    struct cluster cluster;
    struct profile profile;
    struct arena arena;
    int *devices, *ends; /* from the spec, or of the stages that there are */
    int n_devices;
};

void placement_free(struct placement *p)
{
    free(p->stages);
    json_decref(p->document);
    *p = (struct placement){0};
}

static void placing_end(struct placing *p)
{
    cluster_free(&p->cluster);
    profile_free(&p->profile);
    arena_free(&p->arena);
}

static int placing_begin(struct placing *p, struct core *c, struct deployment *d, struct err *e)
{
    *p = (struct placing){.core = c, .deployment = d};
    json_t *cluster = costs_cluster_for(c, d), *profile = costs_profile(c, d);
    struct json_at at = {.file = "members", .value = cluster}, costs = {.file = "profile", .value = profile};
    int rc = cluster && profile ? cluster_from_json(&at, &p->cluster, e) : err_set(e, HP_ENOMEM, "no memory for planning");
    if (rc == 0)
        rc = profile_from_json(&costs, &p->profile, e);
    json_decref(cluster);
    json_decref(profile);
    if (rc < 0)
        placing_end(p);
    return rc;
}

/* The device on which a member runs its stage. */
static int device_of(const struct placing *p, const struct member *m)
{
    int node = cluster_find_node(&p->cluster, m->name);
    return node < 0 ? -1 : p->cluster.nodes[node].first_device;
}

static struct member *member_of_device(const struct placing *p, const char *id)
{
    char name[MEMBER_NAME];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(id, "/"), id);
    return member_find(p->core, name);
}

/* By name, or by the id of its device. */
static struct member *member_named(const struct placing *p, const char *text)
{
    struct member *m = member_find(p->core, text);
    for (size_t i = 0; !m && i < p->core->n_members; i++)
        if (p->core->members[i]->node && strcmp(costs_paced_as(p->core->members[i]), text) == 0)
            m = p->core->members[i];
    return m ? m : cluster_find_device(&p->cluster, text) >= 0 ? member_of_device(p, text) : NULL;
}

/* ---- what the spec asks for ------------------------------------------------------------------------------------------ */

static int range_check(const struct placing *p, int i, struct err *e)
{
    const struct deployment_spec *s = &p->deployment->spec;
    const struct deployment_range *r = &s->ranges[i];
    const struct member *m = member_named(p, r->agent);
    if (!m)
        return err_set(e, HP_ENOENT, "there is no %s \"%s\" in this cluster", s->planned ? "device" : "agent", r->agent);
    if (!member_available(m))
        return err_set(e, HP_ELINK, "agent \"%s\" is %s", r->agent, member_states[m->state].word);
    if (!s->with_layers)
        return 0;
    int n = p->deployment->model->facts.n_layers, before = i ? s->ranges[i - 1].end : 0;
    if (r->first > before)
        return err_set(e, HP_EINVAL, "--layers leaves out layer %d%s: every layer belongs to one agent", before, r->first - before > 1 ? " and more" : "");
    if (r->first < before)
        return err_set(e, HP_EINVAL, "--layers gives layer %d to two agents", r->first);
    if (r->end > n)
        return err_set(e, HP_EINVAL, "--layers names layer %d; the last layer of this model is %d", r->end - 1, n - 1);
    if (i == s->n_ranges - 1 && r->end < n)
        return err_set(e, HP_EINVAL, "--layers ends at layer %d; the last layer of this model is %d", r->end - 1, n - 1);
    return 0;
}

static int ranges_read(struct placing *p, struct err *e)
{
    const struct deployment_spec *s = &p->deployment->spec;
    if (s->n_ranges == 0)
        return 0;
    p->devices = arena_alloc(&p->arena, (size_t)s->n_ranges, sizeof *p->devices);
    p->ends = arena_alloc(&p->arena, (size_t)s->n_ranges, sizeof *p->ends);
    if (!p->devices || !p->ends)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    p->n_devices = s->n_ranges;
    for (int i = 0; i < s->n_ranges; i++) {
        int rc = range_check(p, i, e);
        if (rc < 0)
            return rc;
        p->devices[i] = device_of(p, member_named(p, s->ranges[i].agent));
        p->ends[i] = s->ranges[i].end;
    }
    if (!s->with_layers)
        p->ends = NULL;
    return 0;
}

/* ---- asking the planner ----------------------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t v, uint64_t to) { return (v + to - 1) / to * to; }

static int ask_planner(struct placing *p, uint64_t context, uint64_t sequences, int tokens, bool brief, struct pipeline_answer *out, struct err *e)
{
    struct pipeline_request rq = {
        .cluster = &p->cluster,
        .profile = &p->profile,
        .tokens = tokens,
        .objective = PIPELINE_LATENCY,
        .method = PIPELINE_EXACT,
        .seed = p->deployment->id,
        .context_tokens = (double)round_up(context, DEPLOYMENT_KV_ROUND),
        .sequences = (double)sequences * costs_stands_for(p->core, p->deployment),
        .devices = p->devices,
        .n_devices = p->n_devices,
        .layer_ends = p->ends,
        .brief = brief,
        .env = p->core->env,
    };
    int n = p->devices ? p->n_devices : p->cluster.n_devices;
    /* The joint search grows with the devices and runs on the coordinator's loop: less effort beyond a few, and beyond many the published programmes. */
    if (!p->ends && n > 8)
        rq.effort = 0.1;
    if (!p->ends && n > 32)
        rq.method = PIPELINE_HPIPE;
    return pipeline_plan_make(&rq, &p->arena, out, e);
}

static int placing_tokens(uint64_t context) { return (int)(context < PLACEMENT_TOKENS ? context : PLACEMENT_TOKENS); }

/* The next smaller number of sequences to try: half, and `least` before anything below it. */
static uint64_t fewer(uint64_t sequences, uint64_t least) { return sequences > least && sequences / 2 < least ? least : sequences / 2; }

/* The largest context (halving) and number of sequences that a plan exists for. */
static int fit(struct placing *p, struct placement *out, struct pipeline_answer *answer, struct err *e)
{
    const struct deployment *d = p->deployment;
    uint64_t most = d->model->facts.context ? d->model->facts.context : PLACEMENT_LEAST_CONTEXT;
    uint64_t context = d->spec.max_context ? d->spec.max_context : most;
    /* A plan is for prompts of its length, and for its micro-batches at once. */
    uint64_t least = d->spec.micro_batches > 1 ? (uint64_t)d->spec.micro_batches : 1, most_sequences = p->core->config.max_sequences;
    if (d->spec.plan_tokens && !d->spec.max_context && d->spec.plan_tokens + DEPLOYMENT_KV_ROUND < most)
        context = d->spec.plan_tokens + DEPLOYMENT_KV_ROUND;
    for (;; context /= 2) {
        for (uint64_t sequences = most_sequences > least ? most_sequences : least; sequences >= least; sequences = fewer(sequences, least)) {
            out->context = context;
            out->sequences = sequences;
            out->tokens = d->spec.plan_tokens ? (int)d->spec.plan_tokens : placing_tokens(context);
            int rc = ask_planner(p, context, sequences, out->tokens, true, answer, e);
            if (rc != HP_EINFEASIBLE)
                return rc;
        }
        if (d->spec.max_context || d->spec.planned || context / 2 < PLACEMENT_LEAST_CONTEXT)
            return HP_EINFEASIBLE;
    }
}

static int take(struct placing *p, const struct pipeline_answer *a, struct placement *out, struct err *e)
{
    const struct deployment *d = p->deployment;
    out->stages = calloc((size_t)a->plan.n_stages, sizeof *out->stages);
    if (!out->stages)
        return err_set(e, HP_ENOMEM, "no memory for planning");
    out->n_stages = a->plan.n_stages;
    uint64_t kv = round_up(out->context, DEPLOYMENT_KV_ROUND) * out->sequences;
    for (int i = 0; i < out->n_stages; i++) {
        const struct plan_stage *s = &a->plan.stages[i];
        out->stages[i] = (struct placement_stage){member_of_device(p, s->device), s->first_layer, s->end_layer, s->compute_s, 0};
        if (!out->stages[i].agent)
            return err_set(e, HP_EBUG, "the plan names %s, which is no member", s->device);
        out->stages[i].memory_bytes = costs_workspace_bytes(d, out->stages[i].agent);
        for (int l = s->first_layer; l < s->end_layer; l++)
            out->stages[i].memory_bytes += costs_resident_bytes(p->core, d, l) + costs_state_bytes_per_token(p->core, d, l) * (double)kv;
    }
    out->document = json_incref(a->document);
    json_object_set_new(out->document, "inputs", json_array());
    static const char *const given[] = {"solver", "slices", "micro_batches", "predicted"};
    for (size_t i = 0; d->spec.planned && i < sizeof given / sizeof *given; i++)
        json_object_set(out->document, given[i], json_object_get(json_object_get(d->spec.options, "plan"), given[i]));
    return 0;
}

/* ---- what does not fit -------------------------------------------------------------------------------------------------- */

static void bytes_text(double bytes, char out[32])
{
    if (bytes >= 1e9)
        snprintf(out, 32, "%.2f GB", bytes / 1e9);
    else
        snprintf(out, 32, "%.1f MB", bytes / 1e6);
}

/* Bytes of layers [first, end) with the KV of one sequence of `context` tokens. */
static double need_bytes(const struct placing *p, int first, int end, uint64_t context, double *weights)
{
    double sum = 0, w = 0;
    for (int l = first; l < end; l++) {
        w += costs_resident_bytes(p->core, p->deployment, l);
        sum += costs_state_bytes_per_token(p->core, p->deployment, l) * (double)round_up(context, DEPLOYMENT_KV_ROUND);
    }
    if (weights)
        *weights = w;
    return sum + w;
}

/* The stages as given: where how much is missing. */
static int explain_ranges(const struct placing *p, uint64_t context, struct err *e)
{
    const struct deployment_spec *s = &p->deployment->spec;
    char text[600] = "";
    size_t used = 0;
    for (int i = 0; i < s->n_ranges && used < sizeof text - 1; i++) {
        const struct member *m = member_named(p, s->ranges[i].agent);
        double need = need_bytes(p, s->ranges[i].first, s->ranges[i].end, context, NULL) + costs_workspace_bytes(p->deployment, m),
               room = costs_free_bytes(p->core, p->deployment, m);
        if (need <= room)
            continue;
        char a[32], b[32];
        bytes_text(need, a);
        bytes_text(room, b);
        used += (size_t)snprintf(text + used, sizeof text - used, "%slayers %d-%d need %s on agent \"%s\", which has %s free: %.0f bytes are missing there",
                                 used ? "; " : "", s->ranges[i].first, s->ranges[i].end - 1, a, m->name, b, need - room);
    }
    return err_set(e, HP_EINFEASIBLE, "%s", text);
}

static int explain_free(const struct placing *p, uint64_t context, struct err *e)
{
    const struct deployment *d = p->deployment;
    double weights, need = need_bytes(p, 0, d->model->facts.n_layers, context, &weights), room = 0;
    char have[300] = "", a[32], b[32], w[32];
    size_t used = 0;
    for (int i = 0; i < p->cluster.n_devices; i++) {
        bool named = !p->devices;
        for (int k = 0; k < p->n_devices; k++)
            named = named || p->devices[k] == i;
        if (!named)
            continue;
        room += p->cluster.devices[i].memory_bytes;
        bytes_text(p->cluster.devices[i].memory_bytes, b);
        if (used < sizeof have - 1)
            used += (size_t)snprintf(have + used, sizeof have - used, "%s%s %s", used ? ", " : "", p->cluster.nodes[p->cluster.devices[i].node].name, b);
    }
    bytes_text(need, a);
    bytes_text(weights, w);
    if (p->cluster.n_devices == 0)
        return err_set(e, HP_EINFEASIBLE, "no agent is ready: the model needs %s (weights %s, the rest KV cache of one sequence of %llu tokens)", a, w,
                       (unsigned long long)context);
    if (need > room)
        return err_set(e, HP_EINFEASIBLE,
                       "the model needs %s (weights %s, the rest KV cache of one sequence of %llu tokens) and its agents have less for these (%s, beside "
                       "their work space): %.0f bytes are missing",
                       a, w, (unsigned long long)context, have, need - room);
    return err_set(e, HP_EINFEASIBLE, "the model needs %s and its agents have enough together (%s), but no cut between layers fits each of them", a, have);
}

/* Says how many bytes are missing where, and which context would fit. */
static int explain(struct placing *p, uint64_t context, struct err *e)
{
    if (p->ends)
        explain_ranges(p, context, e);
    else
        explain_free(p, context, e);
    for (uint64_t smaller = context / 2; smaller >= PLACEMENT_LEAST_CONTEXT; smaller /= 2) {
        struct pipeline_answer answer = {0};
        struct err ignored;
        if (ask_planner(p, smaller, 1, placing_tokens(smaller), true, &answer, &ignored) == 0) {
            json_decref(answer.document);
            err_hint(e, "a context of %llu tokens would fit: --max-context %llu", (unsigned long long)smaller, (unsigned long long)smaller);
            return e->code;
        }
    }
    double weights, all = need_bytes(p, 0, p->deployment->model->facts.n_layers, PLACEMENT_LEAST_CONTEXT, &weights);
    return err_hint(e, "no context fits: add agents, or memory to them (--memory), up to %.0f bytes in all", all);
}

/* ---- the face ------------------------------------------------------------------------------------------------------------- */

int placement_make(struct core *c, struct deployment *d, struct placement *out, struct err *e)
{
    uint64_t trained = d->model->facts.context;
    *out = (struct placement){0};
    if (trained && d->spec.max_context > trained)
        return err_set(e, HP_EINVAL, "--max-context %llu is more than the model's %llu", (unsigned long long)d->spec.max_context, (unsigned long long)trained);
    struct placing p;
    int rc = placing_begin(&p, c, d, e);
    if (rc < 0)
        return rc;
    struct pipeline_answer answer = {0};
    rc = ranges_read(&p, e);
    if (rc == 0)
        rc = p.cluster.n_devices ? fit(&p, out, &answer, e) : HP_EINFEASIBLE;
    if (rc == HP_EINFEASIBLE)
        rc = explain(&p, out->context ? out->context : d->spec.max_context ? d->spec.max_context : trained, e);
    if (rc == 0)
        rc = take(&p, &answer, out, e);
    json_decref(answer.document);
    placing_end(&p);
    if (rc < 0)
        placement_free(out);
    return rc;
}

int placement_unmeasured(struct core *c, const struct deployment *d, struct member **out, int max)
{
    int n = 0;
    for (size_t i = 0; i < c->n_members && n < max; i++) {
        struct member *m = c->members[i];
        const json_t *tables = core_profile_find(c, d->model->id, m->kind, d->spec.f32 ? "f32" : "auto");
        const json_t *pace = json_object_get(json_object_get(m->node, "paced"), "profile");
        bool known = !member_available(m) || (tables && (!pace || json_equal(pace, json_object_get(tables, "pace"))));
        for (int k = 0; k < n; k++)
            known = known || strcmp(out[k]->kind, m->kind) == 0;
        if (!known)
            out[n++] = m;
    }
    return n;
}

/* ---- slices ------------------------------------------------------------------------------------------------------------------ */

/* The planner's slices for `tokens` on the stages as they are. */
static int plan_slices(struct core *c, struct deployment *d, uint32_t tokens, struct deployment_slices *out, struct err *e)
{
    struct placing p;
    int rc = placing_begin(&p, c, d, e);
    if (rc < 0)
        return rc;
    struct pipeline_answer answer = {0};
    p.devices = arena_alloc(&p.arena, (size_t)d->n_stages, sizeof *p.devices);
    p.ends = arena_alloc(&p.arena, (size_t)d->n_stages, sizeof *p.ends);
    p.n_devices = d->n_stages;
    rc = p.devices && p.ends ? 0 : err_set(e, HP_ENOMEM, "no memory for slices");
    for (int i = 0; rc == 0 && i < d->n_stages; i++) {
        p.devices[i] = device_of(&p, d->stages[i].agent);
        p.ends[i] = d->stages[i].end_layer;
    }
    if (rc == 0)
        rc = ask_planner(&p, d->context, 1, (int)tokens, true, &answer, e);
    if (rc == 0 && answer.plan.n_slices > 0) {
        out->slices = calloc((size_t)answer.plan.n_slices, sizeof *out->slices);
        out->count = out->slices ? (uint32_t)answer.plan.n_slices : 0;
        for (uint32_t i = 0; i < out->count; i++)
            out->slices[i] = (uint32_t)answer.plan.slices[i];
    }
    json_decref(answer.document);
    placing_end(&p);
    return rc;
}

/* Prompts of similar length share their slices, so that the planner is asked once for each length there is. */
static const struct deployment_slices *slices_of(struct core *c, struct deployment *d, uint32_t n)
{
    uint32_t tokens = (uint32_t)round_up(n, n <= 1024 ? 64 : 256);
    for (size_t i = 0; i < d->n_slices; i++)
        if (d->slices[i].tokens == tokens)
            return &d->slices[i];
    struct deployment_slices *s = core_array_add(&d->slices, &d->n_slices, sizeof *s);
    if (!s)
        return NULL;
    s->tokens = tokens;
    struct err e = {0};
    uint64_t from = core_clock(c);
    if (plan_slices(c, d, tokens, s, &e) == 0) {
        log_info("coordinator", "slices_planned", "deployment=%s tokens=%u slices=%u first=%u seconds=%.3f", d->name, tokens, s->count,
                 s->count ? s->slices[0] : 0, (double)(core_clock(c) - from) * 1e-9);
        return s;
    }
    /* An agent may be suspect just now; the next prompt asks again. */
    log_warn("coordinator", "slices_not_planned", "deployment=%s tokens=%u why=\"%s\"", d->name, tokens, e.text);
    core_array_remove(d->slices, &d->n_slices, sizeof *d->slices, d->n_slices - 1);
    return NULL;
}

int placement_slices(struct core *c, struct deployment *d, uint32_t n, uint32_t *out)
{
    const struct deployment_slices *s = NULL;
    if (n == d->spec.plan_tokens && d->spec.slice == 0) {
        memcpy(out, d->spec.slices, d->spec.n_slices * sizeof *out);
        return (int)d->spec.n_slices;
    }
    if (d->spec.slice == 0 && n > 32 && d->n_stages > 1)
        s = slices_of(c, d, n);
    uint32_t equal = d->spec.slice ? (uint32_t)d->spec.slice : (uint32_t)d->max_batch_tokens;
    int count = 0;
    for (uint32_t done = 0; done < n; count++) {
        uint32_t size = s && s->count ? (uint32_t)count < s->count ? s->slices[count] : n - done : equal;
        out[count] = size && size < n - done ? size : n - done;
        done += out[count];
    }
    return count;
}

/* ---- what to expect -------------------------------------------------------------------------------------------------------------- */

int placement_predict(struct core *c, struct deployment *d, const int *slices, int n, struct arena *arena, struct pipeline_schedule *out, struct err *e)
{
    struct placing p;
    int rc = placing_begin(&p, c, d, e);
    if (rc < 0)
        return rc;
    struct plan_pipeline plan = {.n_stages = d->n_stages, .stages = arena_alloc(arena, (size_t)d->n_stages, sizeof *plan.stages)};
    rc = plan.stages ? 0 : err_set(e, HP_ENOMEM, "no memory for a prediction");
    for (int i = 0; rc == 0 && i < d->n_stages; i++) {
        int device = device_of(&p, d->stages[i].agent);
        if (device < 0)
            rc = err_set(e, HP_ELINK, "agent \"%s\" is not here now", d->stages[i].agent->name);
        else
            plan.stages[i] = (struct plan_stage){.device = p.cluster.devices[device].id, .first_layer = d->stages[i].first_layer, .end_layer = d->stages[i].end_layer};
    }
    if (rc == 0)
        rc = predict_schedule(&p.cluster, &p.profile, &plan, slices, n, 0, costs_stands_for(c, d), arena, out, e);
    placing_end(&p);
    return rc;
}
