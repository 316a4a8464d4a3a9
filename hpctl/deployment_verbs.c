/* `hpctl ps|describe|undeploy`: the deployments there are, and their end. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hpctl/ask.h"
#include "hpctl/client.h"
#include "hpctl/deployment_view.h"
#include "hpctl/pools_view.h"
#include "hpctl/prefill_view.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"
#include "hpctl/watched.h"

/* ---- what a person sees ---- */

int deployment_print_stages(const json_t *deployment, struct err *e)
{
    static const struct table_column columns[] = {{">STAGE", NULL, NULL},
                                                  {"AGENT", NULL, NULL},
                                                  {"LAYERS", NULL, NULL},
                                                  {"STATE", NULL, NULL},
                                                  {">MEMORY", NULL, NULL},
                                                  {">MOVED", NULL, NULL},
                                                  {">SEQUENCES", NULL, NULL},
                                                  {">KV", NULL, NULL},
                                                  {">BUSY", NULL, NULL},
                                                  {">PACE", NULL, NULL},
                                                  {0}};
    struct table *t = table_create(columns);
    size_t i;
    json_t *s;
    json_array_foreach(json_object_get(deployment, "stages"), i, s)
    {
        double pace = number_member(s, "pace");
        table_cell(t, "%zu", i);
        table_cell(t, "%s", string_member(s, "on"));
        table_cell(t, "%.0f-%.0f", number_member(s, "first_layer"), number_member(s, "last_layer"));
        table_cell(t, "%s", string_member(s, "state"));
        table_cell(t, "%s", shown_bytes(number_member(s, "memory_bytes")).s);
        table_cell(t, "%s", shown_bytes(number_member(s, "moved_bytes")).s);
        table_cell(t, "%s", shown_member(s, "sequences").s);
        table_cell(t, "%s", shown_member(s, "kv_used_tokens").s);
        table_cell(t, "%s", shown_seconds(number_member(s, "busy_s")).s);
        if (fabs(pace - 1) < 1e-9)
            table_cell(t, "as profiled");
        else
            table_cell(t, "%.3g times as long", pace);
    }
    return table_print(&t, NULL, e);
}

void deployment_print_apart(const json_t *deployment)
{
    const json_t *apart = json_object_get(json_object_get(deployment, "plan"), "apart");
    if (apart)
        printf("%-14s %s\n", "prefill auto", string_member(apart, "why"));
}

/* Where the stages are, in their order: an agent's name, or of one with several devices the id. */
static void cell_agents(struct buffer *cell, const json_t *stages)
{
    size_t i;
    json_t *s;
    json_array_foreach(stages, i, s)
        buffer_printf(cell, "%s%s", i ? "," : "", string_member(s, "on"));
}

static const struct table_column ps_columns[] = {
    {"NAME", "name", NULL},
    {"STATE", "state", NULL},
    {"MODEL", "model", NULL},
    {">STAGES", "stages", cell_count},
    {"AGENTS", "stages", cell_agents},
    {"WIRE", "wire", NULL},
    {"KV", "kv", NULL},
    {">CONTEXT", "context", NULL},
    {">ACTIVE", "sequences_active", NULL},
    {">WAITING", "sequences_waiting", NULL},
    {">GENERATION", "generation", NULL},
    {"WHY", "text", NULL},
    {0},
};

/* What came of agents' memory and disks, and of other deployments, counts there. */
static void print_prefix_cache(const json_t *p, const json_t *spills, const json_t *peers)
{
    double read = number_member(spills, "hits"), fetched = number_member(peers, "fetched");
    double tokens = number_member(p, "page_tokens");
    if (!p)
        return;
    printf("%-14s %s: %s hits of %s requests, %s tokens were not computed again", "prefix_cache",
           string_member(p, "mode"), shown_member(p, "hits").s, shown_member(p, "requests").s,
           shown_member(p, "tokens").s);
    if (read > 0)
        printf("; %s began with what was spilled (%s tokens)", shown_member(spills, "hits").s,
               shown_member(spills, "tokens").s);
    if (fetched > 0)
        printf("; %s with what another deployment had (%s tokens)",
               shown_member(peers, "fetched").s, shown_member(peers, "tokens").s);
    printf("\n");
    printf("%-14s %s of %.0f tokens: %s own (of one request), %s shared, %s cached (of %s that "
           "ended), %s spilled; %s that ended made room\n",
           "kv_pages", shown_member(p, "pages").s, tokens, shown_member(p, "pages_own").s,
           shown_member(p, "pages_shared").s, shown_member(p, "pages_cached").s,
           shown_member(p, "kept").s,
           number_member(spills, "pages") > 0 ? shown_member(spills, "pages").s : "0",
           shown_member(p, "evicted").s);
}

static void print_speculation(const json_t *s)
{
    if (s)
        printf("%-14s %s: %s of %s guessed tokens were right, %.2f tokens a step with guesses\n",
               "speculation", string_member(s, "mode"), shown_member(s, "accepted").s,
               shown_member(s, "drafts").s, number_member(s, "tokens_per_step"));
}

static void print_handoffs(const json_t *h)
{
    if (json_object_get(h, "prefill_plan"))
        printf("%-14s by %s: %s prompts, %s of keys and values as %s, %s failed, %s after the last "
               "token in all\n",
               "prefill", string_member(h, "prefill_plan"), shown_member(h, "done").s,
               shown_bytes(number_member(h, "bytes")).s, string_member(h, "kv"),
               shown_member(h, "failed").s, shown_seconds(number_member(h, "exposed_s")).s);
}

/* Beginnings of prompts that another deployment had more of. */
static void print_peers(const json_t *p)
{
    double fetched = number_member(p, "fetched"), declined = number_member(p, "declined");
    if (fetched + declined > 0)
        printf("%-14s %s beginnings fetched of other deployments (%s tokens), %s computed all the "
               "same; the last: %s to fetch, %s to compute\n",
               "prefix_peers", shown_member(p, "fetched").s, shown_member(p, "tokens").s,
               shown_member(p, "declined").s, shown_seconds(number_member(p, "last_fetch_s")).s,
               shown_seconds(number_member(p, "last_compute_s")).s);
}

/* Copies of what long sequences have, and who went on from theirs. */
static void print_replicas(const json_t *r)
{
    if (json_is_object(r))
        printf("%-14s of sequences of %s tokens: %s copies made, %s failed, %s running sequences "
               "have one; %s lost ones went on from theirs (%s tokens not computed anew)\n",
               "replicas", shown_member(r, "from_tokens").s, shown_member(r, "copied").s,
               shown_member(r, "failed").s, shown_member(r, "sequences").s,
               shown_member(r, "used").s, shown_member(r, "used_tokens").s);
}

/* Why rows cross as they do, and what that costs. */
static void print_wire(const json_t *plan)
{
    if (json_object_get(plan, "wire_why"))
        printf("%-14s %s; costs: %s\n", "wire_why", string_member(plan, "wire_why"),
               string_member(plan, "wire_costs"));
}

static void print_growth(const json_t *g, const json_t *spills)
{
    if (g)
        printf("%-14s answers took %.0f tokens lately; %s sequences gave way to older ones: %.0f "
               "swaps, %s tokens computed again; %s wait for room to grow\n",
               "kv_growth", number_member(g, "answer_tokens"), shown_member(g, "preempted").s,
               number_member(spills, "swaps"), shown_member(g, "recomputed_tokens").s,
               shown_member(g, "starved").s);
}

/* What it has lost while it served, and how that went. */
static void print_losses(const json_t *l)
{
    if (number_member(l, "places") + number_member(l, "sequences") <= 0)
        return;
    printf("%-14s %s places and %s running sequences, %s of which went on", "losses",
           shown_member(l, "places").s, shown_member(l, "sequences").s,
           shown_member(l, "recovered").s);
    if (number_member(l, "recovered") > 0)
        printf(" after %s each", shown_seconds(number_member(l, "mean_pause_s")).s);
    if (number_member(l, "places") > 0)
        printf("; the last loss was found after %s, ",
               shown_seconds(number_member(l, "last_found_s")).s);
    if (number_member(l, "last_place_s") > 0)
        printf("another place %s later", shown_seconds(number_member(l, "last_place_s")).s);
    else if (number_member(l, "places") > 0)
        printf("and there is no other place so far");
    printf("; %s\n", string_member(l, "last_why"));
}

/* KV cache that was given up for others, and is kept in the agents' memory and on their disks. */
static void print_spills(const json_t *s)
{
    double spilled = number_member(s, "spilled") + number_member(s, "given_up"),
           there = number_member(s, "pages");
    if (spilled + there <= 0)
        return;
    printf("%-14s %s pages (%s in memory, %s on disk of its agents); %s chains spilled, %s not "
           "worth it; %s hits (%s tokens; %s swaps), %s computed all the same, %s could not read "
           "it; %s files dropped\n",
           "kv_spills", shown_member(s, "pages").s, shown_bytes(number_member(s, "memory_bytes")).s,
           shown_bytes(number_member(s, "disk_bytes")).s, shown_member(s, "spilled").s,
           shown_member(s, "given_up").s, shown_member(s, "hits").s, shown_member(s, "tokens").s,
           shown_member(s, "swaps").s, shown_member(s, "declined").s, shown_member(s, "failed").s,
           shown_member(s, "dropped").s);
}

/* What the last rebalancing found and did. */
static void print_rebalance(const json_t *r)
{
    if (!r)
        return;
    const json_t *done = json_object_get(r, "done");
    printf("%-14s %s (%s): %s", "rebalance", string_member(r, "verdict"),
           shown_date(number_member(r, "at_s")).s, string_member(r, "why"));
    if (done)
        printf("; %s sequences went over while they ran, %s were read again, in %s",
               shown_member(done, "moved").s, shown_member(done, "failed").s,
               shown_seconds(number_member(done, "took_s")).s);
    printf("\n");
}

/* Weights that come while it serves. */
static void print_loading(const json_t *l)
{
    if (!l)
        return;
    printf("%-14s %s of weights have not come yet", "loading",
           shown_bytes(number_member(l, "missing_bytes")).s);
    if (number_member(l, "left_s") > 0)
        printf(", for about %s at the rate so far", shown_seconds(number_member(l, "left_s")).s);
    printf("; prompts wait for them\n");
}

/* How prompts are cut beside running answers. */
static void print_beside(const json_t *b)
{
    if (number_member(b, "tokens") > 0)
        printf("%-14s slices of at most %s tokens, for a time per token of %s%s\n", "beside decode",
               shown_member(b, "tokens").s, shown_seconds(number_member(b, "tpot_ms") * 1e-3).s,
               json_is_true(json_object_get(b, "default")) ? " (default: --tpot says another)"
                                                           : "");
}

static int print_deployment(const json_t *d, struct err *e)
{
    static const char *const keys[] = {
        "name",    "state",   "text",       "model",      "model_id",      "compute",
        "wire",    "kv",      "context",    "kv_tokens",  "max_sequences", "weight",
        "ttft_ms", "tpot_ms", "generation", "rebalances", "copies"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_is_string(json_object_get(d, keys[i])))
            printf("%-14s %s\n", keys[i], string_member(d, keys[i]));
        else
            printf("%-14s %s\n", keys[i], shown_member(d, keys[i]).s);
    if (number_member(d, "expert_groups") > 1)
        printf("%-14s %s: parts of blocks are layers, since no agent has the room for a block\n",
               "expert_groups", shown_member(d, "expert_groups").s);
    print_loading(json_object_get(d, "loading"));
    print_wire(json_object_get(d, "plan"));
    print_beside(json_object_get(d, "beside"));
    print_prefix_cache(json_object_get(d, "prefix_cache"), json_object_get(d, "spills"),
                       json_object_get(d, "prefix_peers"));
    print_speculation(json_object_get(d, "speculation"));
    deployment_print_apart(d);
    print_handoffs(json_object_get(d, "handoffs"));
    print_peers(json_object_get(d, "prefix_peers"));
    print_replicas(json_object_get(d, "replicas"));
    print_growth(json_object_get(d, "growth"), json_object_get(d, "spills"));
    print_losses(json_object_get(d, "losses"));
    print_spills(json_object_get(d, "spills"));
    print_rebalance(json_object_get(d, "rebalance"));
    printf("\n");
    int rc = deployment_print_stages(d, e);
    if (rc == 0)
        puts("layers as `hpctl model describe` counts them: the embedding, of each block attention "
             "and feed-forward,\nthe head; memory: their weights, and keys and values of all "
             "sequences");
    return rc == 0 ? prefill_view_print(d, e) : rc;
}

/* ---- the verbs ---- */

static const struct ask_verb asks[] = {
    {"ps", "deployment.ls", .columns = ps_columns,
     .said = "nothing is deployed; `hpctl deploy MODEL.gguf` does it (models of pools: `hpctl "
             "pools`)"},
    {"undeploy", "undeploy", "name",
     .said = "is gone; its weights stay in the agents' stores (`hpctl weights ls`)"},
    {0},
};

static int run_ask(struct invocation *in, struct err *e)
{
    return ask_verb_run(asks, in, e);
}

/* A model that pools serve; where there is none, `e` says as before that there is no deployment. */
static int describe_pools(const struct invocation *in, struct err *e)
{
    json_t *pools = NULL, *own = NULL;
    struct err unused = {0};
    int code = e->code;
    if (!invocation_option(in, "svg") && !invocation_option(in, "trace") &&
        client_get_once(invocation_option(in, "context"), "pools", NULL, &pools, &unused) == 0)
        own = pools_of_model(pools, in->arguments[0]);
    json_decref(pools);
    if (!own)
        return code;
    *e = (struct err){0};
    if (in->json)
        return invocation_print_json(in, own, e);
    int rc = pools_print(own, e);
    json_decref(own);
    return rc;
}

static int describe_show(const void *none, const struct invocation *in, struct err *e)
{
    (void)none;
    json_t *d = NULL;
    int rc = client_get_once(invocation_option(in, "context"), "deployment.describe",
                             json_pack("{s:s}", "name", in->arguments[0]), &d, e);
    if (rc == HP_ENOENT)
        return describe_pools(in, e);
    if (rc == 0)
        rc = prefill_view_draw(d, invocation_option(in, "svg"), invocation_option(in, "trace"), e);
    if (rc == 0 && in->json)
        return invocation_print_json(in, d, e);
    if (rc == 0)
        rc = print_deployment(d, e);
    json_decref(d);
    return rc;
}

static int run_describe(struct invocation *in, struct err *e)
{
    return watched_run(in, describe_show, NULL, e);
}

static const struct command_option context_options[] = {CONTEXT_OPTION, {0}};
static const struct command_option list_options[] = {CONTEXT_OPTION, WATCH_OPTION, {0}};

static const struct command_option describe_options[] = {
    {"svg", "FILE", "draw the last prompt, planned above measured", 0},
    {"trace", "FILE", "the same as a Chrome trace (chrome://tracing, Perfetto)", 0},
    CONTEXT_OPTION,
    WATCH_OPTION,
    {0},
};

const struct command deployment_verbs[] = {
    {"ps", "", 0, 0, "list deployments", NULL, "  hpctl ps\n  hpctl ps --watch\n  hpctl ps -o json",
     list_options, run_ask, false},
    {"describe", "NAME", 1, 1,
     "show one deployment: stages, memory, what its last prompt took and should have taken; or one "
     "model that pools serve: its shares, and why they are planned so",
     NULL,
     "  hpctl describe llama\n  hpctl describe llama --watch\n  hpctl describe llama -o json\n  "
     "hpctl describe llama --trace "
     "prompt.json",
     describe_options, run_describe, false},
    {"undeploy", "NAME", 1, 1, "end a deployment", NULL, "  hpctl undeploy llama", context_options,
     run_ask, false},
    {0},
};
