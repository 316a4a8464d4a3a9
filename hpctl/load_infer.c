#include "hpctl/load_infer.h"

#include <math.h>
#include <stdio.h>

#include "hpctl/infer_drawing.h"
#include "hpctl/infer_report.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"

#define DEADLINE_LEAST_S 1e-6
#define DEADLINE_MOST_S 1e6

struct infer_session {
    struct infer_target target;
    struct infer_options options;
    struct infer_plan plan;
    struct infer_run run;
    struct infer_report report;
    struct progress_bar progress;
    const char *names[INFER_MODELS];
    double parts[INFER_MODELS];
};

/* What is said of tokens says nothing of tensors. */
static int token_options_refuse(const struct invocation *in, struct err *e)
{
    static const char *const of_tokens[] = {"prompt-tokens", "answer-tokens", "common",
                                            "ttft",          "tpot",          NULL};
    for (int i = 0; of_tokens[i]; i++)
        if (invocation_option(in, of_tokens[i])) {
            err_set(e, HP_EUSAGE, "--%s is of deployments of language models", of_tokens[i]);
            return err_hint(e, "requests to pools have a deadline: the workload's slo_s, or a "
                               "shorter --deadline");
        }
    return 0;
}

/* Which part of the rate each model has. */
static int infer_parts_set(struct infer_session *j, const struct load_infer *l, struct err *e)
{
    double sum = 0;
    for (int i = 0; i < j->target.n; i++)
        sum += j->target.models[i].weight;
    for (int i = 0; i < j->target.n; i++) {
        j->names[i] = j->target.models[i].name;
        j->parts[i] = sum > 0 ? j->target.models[i].weight / sum : 0;
    }
    j->options.names = j->names;
    j->options.parts = j->parts;
    j->options.n_models = j->target.n;
    j->options.only = l->name ? infer_target_find(&j->target, l->name) : -1;
    if (!l->name)
        return 0;
    if (j->options.only < 0)
        return err_set(e, HP_ENOENT, "\"%s\" is not applied any more", l->name);
    for (int i = 0; i < j->target.n; i++)
        j->parts[i] = i == j->options.only;
    return 0;
}

/* Requests carry it as a whole number of microseconds, of which 0 is none. */
static int deadline_read(const struct invocation *in, uint64_t *out_us, struct err *e)
{
    double deadline_s = 0;
    int rc = invocation_duration(in, "deadline", 0, &deadline_s, e);
    if (rc == 0 && invocation_option(in, "deadline") &&
        !(deadline_s >= DEADLINE_LEAST_S && deadline_s <= DEADLINE_MOST_S))
        return err_set(e, HP_EUSAGE, "--deadline: %g s is out of range: 0.001ms to 1000000s",
                       deadline_s);
    *out_us = (uint64_t)(deadline_s * 1e6);
    return rc;
}

static int infer_session_begin(const struct invocation *in, struct infer_session *j,
                               const struct load_infer *l, struct context *where, struct err *e)
{
    uint64_t deadline_us = 0;
    int rc = token_options_refuse(in, e);
    rc = rc < 0 ? rc : deadline_read(in, &deadline_us, e);
    j->options = (struct infer_options){.kind = l->options->kind,
                                        .file = l->options->file,
                                        .rate_per_s = l->options->rate_per_s,
                                        .seconds = l->options->seconds,
                                        .seed = l->options->seed};
    if (rc == 0)
        rc = infer_target_ask(where, l->options->seed, deadline_us, &j->target, e);
    rc = rc < 0 ? rc : infer_parts_set(j, l, e);
    rc = rc < 0 ? rc : infer_plan_make(&j->options, &j->plan, e);
    j->run.where = where;
    j->run.target = &j->target;
    j->run.plan = &j->plan;
    j->run.most_open = l->most_open;
    j->run.patience_s = l->patience_s;
    j->report = (struct infer_report){&j->options, &j->run, l->name};
    return rc;
}

static void infer_progress_show(void *ctx, double now_s, size_t open)
{
    struct infer_session *j = ctx;
    double seconds = j->plan.seconds;
    progress_show(&j->progress,
                  now_s < seconds ? shown_of("requests arrive: %zu are open", open).s
                                  : shown_of("answers come: %zu are open", open).s,
                  fmin(now_s, seconds), seconds);
}

static int infer_report_give(struct invocation *in, struct infer_session *j, struct err *e)
{
    const char *svg = invocation_option(in, "svg"), *trace = invocation_option(in, "trace");
    int rc = svg || trace
                 ? infer_draw(&j->run, j->report.name ? j->report.name : "pools", svg, trace, e)
                 : 0;
    if (rc < 0)
        return rc;
    if (!in->json)
        return infer_report_print(&j->report, e);
    json_t *report = infer_report_json(&j->report);
    return report ? invocation_print_json(in, report, e) : err_no_memory(e, "a report");
}

int load_infer_run(struct invocation *in, const struct load_infer *l, struct context *where,
                   struct err *e)
{
    struct infer_session j = {0};
    int rc = infer_session_begin(in, &j, l, where, e);
    progress_init(&j.progress, in->json);
    j.run.progress = infer_progress_show;
    j.run.ctx = &j;
    if (rc == 0)
        rc = infer_run(&j.run, e);
    progress_end(&j.progress);
    if (rc == 0)
        rc = infer_report_give(in, &j, e);
    infer_run_free(&j.run);
    infer_plan_free(&j.plan);
    infer_target_free(&j.target);
    return rc;
}
