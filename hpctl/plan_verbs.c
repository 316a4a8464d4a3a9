/* `hpctl plan check`: judges a plan file, whoever made it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/plan.h"
#include "hpctl/plan_experts.h"
#include "hpctl/plan_wire.h"
#include "hpctl/verbs.h"
#include "planners/coldstart/coldstart.h"
#include "planners/pipeline/pipeline.h"
#include "planners/pools/check.h"

static const struct command_option check_options[] = {
    {"cluster", "C.json", "pipeline, pools: the devices (hp-cluster/1)", 0},
    {"profile", "P.json", "pipeline: what the model costs (hp-profile/1)", 0},
    {"tokens", "N", "pipeline: tokens of each prompt", 0},
    {"batch", "B", "pipeline: prompts that go together (default: the profile's)", 0},
    {"workload", "W.json", "pools: models and deadlines (hp-workload/1)", 0},
    {"share-devices", "on|off",
     "pools: fractions of a device may serve several pipelines (default: the workload's)", 0},
    {"slo-margin", "M",
     "pools: part of every deadline left to queueing (default: the plan's, else the workload's)",
     0},
    {"graph", "G.json", "coldstart: the host and the model (hp-graph/1)", 0},
    {"contention", "on|off",
     "coldstart: reads take their time on the bus (default: as the plan says)", 0},
    {0},
};

/* ---- pools ---- */

static int judge_pools(const struct plan_pools *plan, const struct cluster *c,
                       const struct workload *w, const struct invocation *in, json_t **report,
                       struct err *e)
{
    static const char *const switches[] = {"off", "on", NULL};
    struct pools_check_options options = {.slo_margin = -1};
    struct pools_check_result result;
    int rc;
    if ((rc = invocation_choice(in, "share-devices", switches, -1, &options.share_devices, e)) <
            0 ||
        (rc = invocation_number(in, "slo-margin", -1, &options.slo_margin, e)) < 0)
        return rc;
    if (options.slo_margin >= 1)
        return err_set(e, HP_EUSAGE, "--slo-margin: %g leaves no time", options.slo_margin);
    if ((rc = pools_check(plan, c, w, &options, &result, e)) < 0)
        return rc;
    json_t *devices = json_object();
    for (int k = 0, i = 0; k < c->n_pools; k++)
        if (c->pools[k].count > 0)
            json_object_set_new(devices, c->pools[k].kind, json_integer(result.devices[i++]));
    *report = json_pack("{s:b, s:s, s:f, s:f, s:o}", "valid", 1, "kind", "pools",
                        "normalized_throughput_per_s", result.normalized_throughput_per_s,
                        "least_slack_s", result.least_slack_s, "devices", devices);
    return 0;
}

static int check_pools(const struct invocation *in, const struct json_at *at, json_t **report,
                       struct err *e)
{
    struct cluster c = {0};
    struct workload w = {0};
    struct arena arena = {0};
    struct plan_pools plan;
    const char *cluster_file, *workload_file;
    int rc;
    if ((rc = invocation_required(in, "cluster", &cluster_file, e)) < 0 ||
        (rc = invocation_required(in, "workload", &workload_file, e)) < 0 ||
        (rc = cluster_load(cluster_file, &c, e)) < 0)
        return rc;
    if ((rc = workload_load(workload_file, &w, e)) == 0) {
        if ((rc = plan_pools_from_json(at, &arena, &plan, e)) == 0)
            rc = judge_pools(&plan, &c, &w, in, report, e);
        workload_free(&w);
    }
    arena_free(&arena);
    cluster_free(&c);
    return rc;
}

/* ---- pipeline ---- */

/* The rules that a plan breaks, as one sentence. */
static int violations_as_error(const json_t *report, struct err *e)
{
    const json_t *list = json_object_get(report, "violations");
    char text[600] = "";
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(list) && used < sizeof text; i++) {
        int n = snprintf(text + used, sizeof text - used, "%s%s", i ? "; " : "",
                         json_string_value(json_array_get(list, i)));
        used += n > 0 ? (size_t)n : 0;
    }
    return err_set(e, HP_EINFEASIBLE, "the plan is not valid: %s", text);
}

/* A plan that says as what rows cross is judged so. */
static int check_wire(const struct json_at *at, struct profile *p, struct err *e)
{
    struct json_at wire;
    const char *word = NULL;
    int rc = json_find(at, "wire", &wire) ? json_as_string(&wire, &word, e) : 0;
    return rc < 0 ? rc : plan_wire_apply(word, p, e);
}

/* One over the parts of a mixture's blocks is judged over these. */
static int check_experts(const struct json_at *at, struct profile *p, struct err *e)
{
    struct json_at groups;
    uint64_t n = 0;
    int rc = json_find(at, "expert_groups", &groups) ? json_as_u64(&groups, &n, e) : 0;
    if (rc == 0 && n > PROFILE_EXPERTS_MAX)
        return json_fail(&groups, e, "%llu is no number of groups: 1 to %d", (unsigned long long)n,
                         PROFILE_EXPERTS_MAX);
    return rc < 0 ? rc : plan_experts_divide(p, (unsigned)n, e);
}

static int check_pipeline(const struct invocation *in, const struct json_at *at, json_t **report,
                          struct err *e)
{
    struct cluster c = {0};
    struct profile p = {0};
    struct pipeline_request rq = {.cluster = &c, .profile = &p, .env = &env_real};
    const char *cluster_file, *profile_file, *tokens_text;
    uint64_t tokens;
    int rc;
    if ((rc = invocation_required(in, "cluster", &cluster_file, e)) < 0 ||
        (rc = invocation_required(in, "profile", &profile_file, e)) < 0 ||
        (rc = invocation_required(in, "tokens", &tokens_text, e)) < 0 ||
        (rc = invocation_u64(in, "tokens", 0, &tokens, e)) < 0 ||
        (rc = invocation_number(in, "batch", 0, &rq.batch, e)) < 0)
        return rc;
    if (tokens < 1 || tokens > 1 << 30)
        return err_set(e, HP_EUSAGE, "--tokens: a prompt has 1 to %d tokens", 1 << 30);
    rq.tokens = (int)tokens;
    if ((rc = cluster_load(cluster_file, &c, e)) < 0)
        return rc;
    if ((rc = profile_load(profile_file, &p, e)) == 0) {
        rc = check_wire(at, &p, e);
        rc = rc < 0 ? rc : check_experts(at, &p, e);
        rc = rc < 0 ? rc : pipeline_plan_check(&rq, at, report, e);
        if (rc == 0 && !json_is_true(json_object_get(*report, "valid")))
            rc = violations_as_error(*report, e);
        profile_free(&p);
    }
    cluster_free(&c);
    return rc;
}

/* ---- coldstart ---- */

static int check_coldstart(const struct invocation *in, const struct json_at *at, json_t **report,
                           struct err *e)
{
    static const char *const switches[] = {"off", "on", NULL};
    struct opgraph g = {0};
    struct coldstart_verdict v;
    const char *graph_file;
    int contention, rc;
    if ((rc = invocation_required(in, "graph", &graph_file, e)) < 0 ||
        (rc = invocation_choice(in, "contention", switches, -1, &contention, e)) < 0 ||
        (rc = opgraph_load(graph_file, &g, e)) < 0)
        return rc;
    rc = coldstart_plan_check(at, &g, contention >= 0, contention == 1, &v, NULL, e);
    opgraph_free(&g);
    if (rc < 0)
        return rc;
    *report = json_pack("{s:b, s:s, s:f, s:f, s:b}", "valid", 1, "kind", "coldstart", "latency_s",
                        v.latency_s, "bound_s", v.bound_s, "contention", v.contention);
    if (v.predicted_s >= 0)
        json_object_set_new(*report, "predicted_latency_s", json_real(v.predicted_s));
    return 0;
}

/* ---- the verb ---- */

static void print_report(const json_t *report)
{
    const char *key;
    json_t *value;
    printf("the plan is valid\n");
    json_object_foreach((json_t *)report, key, value)
    {
        if (json_is_number(value))
            printf("  %-30s %.6g\n", key, json_number_value(value));
        else if (json_is_object(value)) {
            const char *name;
            json_t *count;
            json_object_foreach(value, name, count)
                printf("  %s of %-19s %.6g\n", key, name, json_number_value(count));
        }
    }
}

static int plan_check_run(struct invocation *in, struct err *e)
{
    json_t *root, *report = NULL;
    struct json_at at;
    const char *kind;
    int rc = json_load_at(in->arguments[0], &root, &at, e);
    if (rc < 0)
        return rc;
    if ((rc = plan_kind(&at, &kind, e)) == 0) {
        if (strcmp(kind, "pools") == 0)
            rc = check_pools(in, &at, &report, e);
        else if (strcmp(kind, "pipeline") == 0)
            rc = check_pipeline(in, &at, &report, e);
        else if (strcmp(kind, "coldstart") == 0)
            rc = check_coldstart(in, &at, &report, e);
        else
            rc = json_fail(
                &at, e, "is a plan of kind \"%s\"; there are pipeline, pools and coldstart", kind);
    }
    json_decref(root);
    if (rc == 0 && (in->json || in->output))
        return invocation_print_json(in, report, e);
    if (rc == 0)
        print_report(report);
    json_decref(report);
    return rc;
}

const struct command plan_verbs[] = {
    {
        .path = "plan check",
        .arguments = "PLAN.json",
        .min_arguments = 1,
        .max_arguments = 1,
        .summary = "judge a plan file, whoever made it",
        .details = "Recomputes what the plan promises and checks every rule of its kind (pipeline, "
                   "pools or coldstart). Exit "
                   "code 6: the plan breaks a\n"
                   "rule, and the message says which and where.",
        .examples = "  hpctl plan check plan.json --cluster C.json --profile P.json --tokens 2048\n"
                    "  hpctl plan check plan.json --cluster C.json --workload W.json\n"
                    "  hpctl plan check plan.json --graph G.json",
        .options = check_options,
        .run = plan_check_run,
        .makes_file = true,
    },
    {0},
};
