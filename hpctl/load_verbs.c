/* `hpctl load`: drives a deployment with requests that arrive by themselves, and says what became
 * of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/names.h"
#include "hpctl/infer_target.h"
#include "hpctl/load_infer.h"
#include "hpctl/load_report.h"
#include "hpctl/load_target.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"

enum { NAME_BYTES = 64, MOST_OPEN = 100000 };

struct load_session {
    struct context where;
    struct load_options options;
    struct load_plan plan;
    struct load_run run;
    struct load_report report;
    struct progress_bar progress;
};

/* ---- reading the command line ---- */

static int read_arrivals(const struct invocation *in, struct load_options *o, struct err *e)
{
    const char *text = invocation_option_or(in, "arrivals", "poisson");
    int rc;
    o->kind = ARRIVALS_TRACE;
    o->file = text;
    for (int k = 0; arrivals_words[k]; k++)
        if (strcmp(text, arrivals_words[k]) == 0)
            o->kind = (enum arrivals_kind)k;
    if (o->kind != ARRIVALS_TRACE && !invocation_option(in, "rate")) {
        err_set(e, HP_EUSAGE, "hpctl load needs --rate, in requests per second");
        return err_hint(e, "e.g. --rate 2; only a file of arrivals has a pace of its own");
    }
    if (invocation_option(in, "rate") &&
        (rc = invocation_above_zero(in, "rate", 0, INFINITY, &o->rate_per_s, e)) < 0)
        return rc;
    return invocation_above_zero(in, "seconds", o->kind == ARRIVALS_TRACE ? INFINITY : 30, INFINITY,
                                 &o->seconds, e);
}

static int read_options(const struct invocation *in, struct load_session *j, struct err *e)
{
    uint64_t common, most_open;
    int rc;
    if ((rc = read_arrivals(in, &j->options, e)) < 0 ||
        (rc = load_lengths_parse(invocation_option_or(in, "prompt-tokens", "64..256"),
                                 "prompt-tokens", &j->options.prompt, e)) < 0 ||
        (rc = load_lengths_parse(invocation_option_or(in, "answer-tokens", "16..64"),
                                 "answer-tokens", &j->options.answer, e)) < 0 ||
        (rc = invocation_u64(in, "seed", 1, &j->options.seed, e)) < 0 ||
        (rc = invocation_u64(in, "common", 0, &common, e)) < 0 ||
        (rc = invocation_range(in, "max-open", 4096, 1, MOST_OPEN, &most_open, e)) < 0 ||
        (rc = invocation_duration(in, "ttft", INFINITY, &j->report.ttft_s, e)) < 0 ||
        (rc = invocation_duration(in, "tpot", INFINITY, &j->report.tpot_s, e)) < 0 ||
        (rc = invocation_above_zero(in, "patience", 60, INFINITY, &j->run.patience_s, e)) < 0)
        return rc;
    const char *name = in->n_arguments ? in->arguments[0] : NULL;
    if (!name == !invocation_flag(in, "workload")) {
        err_set(e, HP_EUSAGE, "%s",
                name ? "--workload drives all models of the pools: name none"
                     : "hpctl load needs the name of what it is to drive");
        return err_hint(e, "`hpctl load NAME`, or `hpctl load --workload`");
    }
    if (name && !name_is_valid(name, NAME_BYTES))
        return err_set(e, HP_EINVAL, "\"%.60s\" is no name of a deployment", name);
    j->run.common = common > LOAD_MAX_TOKENS ? LOAD_MAX_TOKENS : (uint32_t)common;
    j->run.most_open = (size_t)most_open;
    j->run.seed = j->options.seed;
    j->run.deployment = j->options.deployment = name;
    return 0;
}

/* ---- the verb ---- */

static void show_progress(void *ctx, double now_s, size_t open)
{
    struct load_session *j = ctx;
    double seconds = j->plan.seconds;
    progress_show(&j->progress,
                  now_s < seconds ? shown_of("requests arrive: %zu are open", open).s
                                  : shown_of("answers end: %zu are open", open).s,
                  fmin(now_s, seconds), seconds);
}

static int report_give(const struct invocation *in, struct load_session *j, struct err *e)
{
    const char *svg = invocation_option(in, "svg"), *trace = invocation_option(in, "trace");
    int rc = svg || trace ? load_report_draw(&j->report, svg, trace, e) : 0;
    if (rc < 0)
        return rc;
    if (!in->json)
        return load_report_print(&j->report, e);
    json_t *report = load_report_json(&j->report);
    return report ? invocation_print_json(in, report, e) : err_no_memory(e, "a report");
}

static int deployment_load(struct invocation *in, struct load_session *j, struct err *e)
{
    int rc;
    if (invocation_option(in, "deadline")) {
        err_set(e, HP_EUSAGE, "--deadline is of models that pools serve");
        return err_hint(e, "answers of language models have --ttft and --tpot");
    }
    if ((rc = load_plan_make(&j->options, &j->plan, e)) < 0)
        return rc;
    progress_init(&j->progress, in->json);
    j->run.progress = show_progress;
    j->run.ctx = j;
    rc = load_target_ask(&j->where, &j->run, e);
    if (rc == 0)
        rc = load_run(&j->run, e);
    progress_end(&j->progress);
    if (rc == 0)
        rc = report_give(in, j, e);
    load_run_free(&j->run);
    load_plan_free(&j->plan);
    return rc;
}

static int load_verb(struct invocation *in, struct err *e)
{
    struct load_session j = {0};
    bool pools = true;
    int rc;
    j.run.where = &j.where;
    j.run.plan = &j.plan;
    j.report.options = &j.options;
    j.report.run = &j.run;
    if ((rc = read_options(in, &j, e)) < 0 ||
        (rc = context_load(invocation_option(in, "context"), &j.where, e)) < 0 ||
        (j.run.deployment && (rc = infer_target_known(&j.where, j.run.deployment, &pools, e)) < 0))
        return rc;
    if (!pools)
        return deployment_load(in, &j, e);
    struct load_infer l = {&j.options, j.run.deployment, j.run.most_open, j.run.patience_s};
    return load_infer_run(in, &l, &j.where, e);
}

static const struct command_option load_options[] = {
    {"arrivals", "poisson|uniform|bursty|FILE",
     "how they come (default poisson), or a CSV file of seconds[,name][,prompt,answer]", 0},
    {"rate", "R", "requests per second; a file keeps its own pace without it", 0},
    {"seconds", "S", "over which they arrive (default 30; a file: all of it)", 0},
    {"prompt-tokens", "L",
     "of each prompt: N, A..B, or lognormal:A..B with 95 % between (default 64..256)", 0},
    {"answer-tokens", "L", "of each answer, likewise (default 16..64)", 0},
    {"common", "N", "the first N tokens of all prompts are the same (default 0)", 0},
    {"workload", NULL, "drive all models that pools serve, in the proportions of their weights", 0},
    {"deadline", "TIME", "pools: of every request, e.g. 100ms (default: the workload's slo_s)", 0},
    {"ttft", "TIME", "target: time to the first token, e.g. 500ms or 2s (default: none)", 0},
    {"tpot", "TIME",
     "target: time per token after the first, e.g. 50ms, on the mean of an answer (default: none)",
     0},
    {"seed", "N", "of arrivals, lengths and prompts (default 1)", 0},
    {"patience", "S", "seconds to wait for answers after the last arrival (default 60)", 0},
    {"max-open", "N", "requests open at once (default 4096); what arrives beyond is not sent", 0},
    {"svg", "FILE",
     "draw every request: waiting, prefill, decode; of pools also what shares and links did beside "
     "the plan",
     0},
    {"trace", "FILE", "the same as a Chrome trace (chrome://tracing, Perfetto)", 0},
    {"context", "NAME", "of the cluster (default: the current one)", 0},
    {0},
};

const struct command load_verbs[] = {
    {
        .path = "load",
        .arguments = "[NAME]",
        .min_arguments = 0,
        .max_arguments = 1,
        .summary = "drive a deployment or models of pools with many requests and measure them",
        .details =
            "Requests of random tokens arrive whether or not earlier ones are answered, each a "
            "stream of its own, and none is sent\n"
            "again. Printed as percentiles over the answers that came whole: seconds to the first "
            "token and to the last, counted from\n"
            "when a request arrived; per token between them; and in the queue, prefill (beside "
            "what "
            "the plan says of it alone) and\n"
            "decode as the coordinator says. Goodput counts those within both targets. Ctrl-C ends "
            "the load and prints what was\n"
            "measured. Equal seeds give equal loads.\n"
            "A model that pools serve (`hpctl pools`) gets infer requests with tensors of its "
            "shapes and its deadline, with --workload\n"
            "all of them do. Goodput then counts what was answered in time; what was predicted of "
            "each request and each stage stands\n"
            "beside what it took.",
        .examples = "  hpctl load demo --rate 4 --seconds 60 --ttft 1s --tpot 100ms\n"
                    "  hpctl load demo --arrivals bursty --rate 8 --prompt-tokens "
                    "lognormal:100..1000 --answer-tokens 16..256 -o json\n"
                    "  hpctl load demo --arrivals requests.csv --svg load.svg\n"
                    "  hpctl load demo --arrivals requests.csv --rate 20   # the same, at 20 a "
                    "second\n"
                    "  hpctl load --workload --rate 200 --seconds 30 --svg pools.svg",
        .options = load_options,
        .run = load_verb,
    },
    {0},
};
