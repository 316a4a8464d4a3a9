/* `hpctl apply`, `hpctl plan diff`, `hpctl pools`: models of fixed shape, served by pools. */
#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "hpctl/ask.h"
#include "hpctl/client.h"
#include "hpctl/pools_diff.h"
#include "hpctl/pools_view.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/upload.h"
#include "hpctl/verbs.h"
#include "hpctl/watched.h"
#include "hpctl/workload_document.h"

enum { APPLY_PATIENCE_MS = 600000 };

struct applying {
    struct workload_document document;
    struct progress_bar bar;
    const struct key_pair *keys;
    struct upload *uploads[WORKLOAD_NETWORKS]; /* by network; NULL until one is asked for */
};

/* ---- what the coordinator asks for meanwhile ---- */

static int upload_do(struct applying *a, const json_t *part, struct err *e)
{
    const char *model = string_member(part, "model");
    uint64_t bytes = 0;
    for (int i = 0; i < a->document.n_networks; i++) {
        const struct workload_network *w = &a->document.networks[i];
        if (strcmp(w->name, model) != 0)
            continue;
        int rc = a->uploads[i] ? 0 : upload_open(w->path, &w->manifest, a->keys, &a->uploads[i], e);
        return rc < 0 ? rc : upload_send(a->uploads[i], part, &a->bar, &bytes, e);
    }
    return err_set(e, HP_EPROTO, "the coordinator asks for the bytes of \"%.60s\"", model);
}

static void measuring_show(struct progress_bar *bar, const json_t *part)
{
    progress_show(bar,
                  shown_of("%s measures %s, %s: known to %.1f %%", string_member(part, "agent"),
                           string_member(part, "model"), string_member(part, "what"),
                           100 * number_member(part, "error"))
                      .s,
                  number_member(part, "elapsed_s"), number_member(part, "budget_s"));
}

static int on_progress(void *ctx, const json_t *part, struct err *e)
{
    struct applying *a = ctx;
    const char *phase = string_member(part, "phase");
    const json_t *stages = json_object_get(part, "stages"), *s;
    double done = 0, total = 0;
    size_t i, ready = 0;
    char what[120];
    if (strcmp(phase, "upload") == 0)
        return upload_do(a, part, e);
    if (strcmp(phase, "profile") == 0) {
        measuring_show(&a->bar, part);
        return 0;
    }
    json_array_foreach(stages, i, s)
    {
        done += number_member(s, "done_bytes");
        total += number_member(s, "total_bytes");
        ready += strcmp(string_member(s, "state"), "ready") == 0;
    }
    snprintf(what, sizeof what, "%s: %zu of %zu shares are ready", phase, ready,
             json_array_size(stages));
    progress_show_bytes(&a->bar, stages ? what : phase, done, total);
    return 0;
}

/* ---- apply ---- */

static int document_make(const struct invocation *in, struct applying *a, struct err *e)
{
    static const char *const methods[] = {"exact", "np", "dart", NULL};
    const char *file;
    int method, rc = invocation_required(in, "file", &file, e);
    rc = rc < 0 ? rc : invocation_choice(in, "method", methods, 0, &method, e);
    rc = rc < 0 ? rc : workload_document_read(file, &a->bar, &a->document, e);
    if (rc == 0 && invocation_option(in, "agents"))
        json_object_set_new(a->document.json, "agents", invocation_names(in, "agents"));
    if (rc == 0)
        json_object_set_new(a->document.json, "method", json_string(methods[method]));
    return rc;
}

static int apply_ask(struct applying *a, const char *context, bool dry, json_t **result,
                     struct err *e)
{
    struct client *client = NULL;
    int rc = client_open(context, &client, e);
    if (rc < 0)
        return rc;
    a->keys = &client_context(client)->admin;
    struct client_ask ask = {.verb = "apply",
                             .arguments =
                                 json_pack("{s:O*, s:b, s:b}", "document", a->document.json,
                                           "dry_run", (int)dry, "load", !a->document.json),
                             .patience_ms = APPLY_PATIENCE_MS,
                             .progress = on_progress,
                             .ctx = a};
    rc = ask.arguments ? client_ask(client, &ask, result, NULL, e) : err_no_memory(e, "a workload");
    client_close(&client);
    return rc;
}

static void applying_end(struct applying *a)
{
    progress_end(&a->bar);
    for (int i = 0; i < WORKLOAD_NETWORKS; i++)
        upload_close(&a->uploads[i]);
    workload_document_free(&a->document);
}

static int load_only(const struct invocation *in, struct err *e)
{
    static const char *const of_a_file[] = {"file", "agents", "method"};
    for (size_t i = 0; i < sizeof of_a_file / sizeof *of_a_file; i++)
        if (invocation_option(in, of_a_file[i]))
            return err_set(e, HP_EUSAGE, "--load is for what is applied: it goes without --%s",
                           of_a_file[i]);
    return 0;
}

/* Reads the file, asks (`dry`: what it would change), and shows the answer. */
static int applying_run(const struct invocation *in, bool dry,
                        int (*print)(const json_t *answer, struct err *e), struct err *e)
{
    struct applying a = {0};
    json_t *result = NULL;
    progress_init(&a.bar, in->json);
    int rc = dry && invocation_flag(in, "load") ? load_only(in, e) : document_make(in, &a, e);
    if (rc == 0 && !dry && invocation_flag(in, "upload"))
        json_object_set_new(a.document.json, "upload_only", json_true());
    rc = rc < 0 ? rc : apply_ask(&a, invocation_option(in, "context"), dry, &result, e);
    applying_end(&a);
    if (rc == 0 && in->json)
        return invocation_print_json(in, result, e);
    rc = rc < 0 ? rc : print(result, e);
    json_decref(result);
    return rc;
}

static int run_apply(struct invocation *in, struct err *e)
{
    return applying_run(in, false, pools_print, e);
}

/* ---- plan diff ---- */

static int diff_print(const json_t *answer, struct err *e)
{
    const json_t *load = json_object_get(answer, "load"), *per_s;
    const char *name, *between = "\nasked for of late: ";
    (void)e;
    pools_diff_print(json_object_get(answer, "serves"), json_object_get(answer, "next"));
    pools_diff_why_print(json_object_get(answer, "why"), json_object_get(answer, "next"));
    json_object_foreach((json_t *)(uintptr_t)load, name, per_s)
    {
        printf("%s%s %.1f/s", between, name, json_number_value(per_s));
        between = ", ";
    }
    if (load)
        printf("\nof this load the plan that serves promises %.2f times as much, the next one %.2f "
               "times\n",
               number_member(answer, "level"), number_member(answer, "next_level"));
    return 0;
}

static int run_diff(struct invocation *in, struct err *e)
{
    return applying_run(in, true, diff_print, e);
}

/* ---- pools ---- */

static int print_pools(const struct invocation *in, const json_t *answer, struct err *e)
{
    (void)in;
    return pools_print(answer, e);
}

static const struct ask_verb asks[] = {{"pools", "pools", .print = print_pools}, {0}};

static int run_pools(struct invocation *in, struct err *e)
{
    return ask_verb_run(asks, in, e);
}

static int run_pools_remove(struct invocation *in, struct err *e)
{
    int rc = client_get_once(invocation_option(in, "context"), "pools.remove", NULL, NULL, e);
    if (rc == 0 && in->json)
        rc = invocation_print_json(in, json_pack("{s:b}", "removed", 1), e);
    else if (rc == 0)
        printf("the pools end once what they had admitted is answered\n");
    return rc;
}

/* What is planned, on which agents and how: of apply and of plan diff. */
#define PLANNING_OPTIONS                                                                           \
    {"file", "FILE", "the workload: hp-workload/1, as YAML or JSON", 'f'},                         \
        {"agents", "A,B", "agents that it may use (all)", 0},                                      \
    {                                                                                              \
        "method", "M",                                                                             \
            "of planning: exact (default), or, to compare with it, np (whole models on single "    \
            "kinds of devices) or dart (chains of two devices)",                                   \
            0                                                                                      \
    }
static const struct command_option apply_options[] = {
    PLANNING_OPTIONS,
    {"upload", NULL, "send the networks even to agents of this box", 0},
    CONTEXT_OPTION,
    {0},
};
static const struct command_option diff_options[] = {
    PLANNING_OPTIONS,
    {"load", NULL, "instead of a file: what is applied, with weights as the load of late is", 0},
    CONTEXT_OPTION,
    {0},
};
static const struct command_option pools_options[] = {CONTEXT_OPTION, WATCH_OPTION, {0}};
static const struct command_option pools_rm_options[] = {CONTEXT_OPTION, {0}};

const struct command apply_verbs[] = {
    {.path = "apply",
     .arguments = "-f FILE",
     .summary = "serve ONNX models under deadlines by pools of devices",
     .details =
         "Plans pools for the models of the file on the agents that are there, brings the "
         "networks to them, and serves them at /v2 by the KServe protocol. Each model of the "
         "file has \"name\", \"model\" (the ONNX file), \"profile\" (what its blocks take on "
         "each kind of device; without one the agents measure it, once), \"slo_s\" (the deadline "
         "of a request), \"weight\" (its part "
         "of the load) and, where the network leaves sizes free, \"dims\", or \"lengths\" for "
         "texts, which are padded to the next of its \"buckets\". Applied again, "
         "the new plan is made ready beside the one that serves and takes over.",
     .examples = "  hpctl apply -f workload.yaml\n"
                 "  hpctl apply -f workload.json --agents a0,a1 -o json",
     .options = apply_options,
     .run = run_apply},
    {.path = "plan diff",
     .arguments = "-f FILE|--load",
     .summary = "what `apply` of this file would change, and why",
     .details = "Plans pools for the file on the agents that are there, and prints what differs "
                "from the plan that serves, why (what the file says otherwise, agents that came or "
                "went), and what else was weighed. Nothing changes. With --load the models that "
                "are served "
                "are planned with what clients asked of each in the last whole ten seconds as "
                "weights: what a workload with \"replan_margin\" does by itself where a model is "
                "not on time and the other plan serves enough more of the load.",
     .examples = "  hpctl plan diff -f workload.yaml\n"
                 "  hpctl plan diff --load",
     .options = diff_options,
     .run = run_diff},
    {.path = "pools",
     .arguments = "",
     .summary = "the models that pools serve: plan, shares, attainment",
     .examples = "  hpctl pools\n  hpctl pools --watch\n  hpctl pools -o json",
     .options = pools_options,
     .run = run_pools},
    {.path = "pools rm",
     .arguments = "",
     .summary = "end what `apply` began",
     .examples = "  hpctl pools rm",
     .options = pools_rm_options,
     .run = run_pools_remove},
    {0},
};
