/* `hpctl simulate`: serves imagined requests with a plan of pools, by the scheduler that serves
 * real ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/plan_pools.h"
#include "hpctl/arrival_trace.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/simulate_output.h"
#include "hpctl/verbs.h"
#include "planners/dispatch/simulate.h"

static const struct command_option simulate_verb_options[] = {
    {"cluster", "C.json", "the devices (hp-cluster/1)", 0},
    {"workload", "W.json", "models and deadlines (hp-workload/1)", 0},
    {"arrivals", "poisson|uniform|bursty|FILE",
     "how they come (default poisson), or a CSV file of seconds,model", 0},
    {"scheduler", "S", "reserving (default) or reactive", 0},
    {"load", "X",
     "part of every model's planned throughput that arrives (default 0.95; a trace keeps its own "
     "pace)",
     0},
    {"sweep", NULL,
     "find the highest load that meets --target, for every model alone and for all together", 0},
    {"step", "X", "sweep: loads are multiples of X (default 0.05)", 0},
    {"max-load", "X", "sweep: the highest load tried (default 1)", 0},
    {"target", "X", "sweep: attainment to reach (default 0.99)", 0},
    {"together", NULL, "sweep: only all models together", 0},
    {"rates", "plan|weights",
     "loads are parts of each model's throughput in the plan (default), or follow the weights", 0},
    {"model", "NAME", "requests for this model only", 0},
    {"seconds", "S", "of arrivals (default 30; a trace: all of it)", 0},
    {"seed", "N", "of arrivals and noise (default 1)", 0},
    {"latency-noise", "X", "standard deviation of computing times, as a part of them (default 0)",
     0},
    {"network-jitter", "X", "the same of transfers (default 0)", 0},
    {"csv", "FILE", "one row a model (and load)", 0},
    {"svg", "FILE", "draw the first moments of every share, or the sweep", 0},
    {"trace", "FILE", "the first moments as a Chrome trace (chrome://tracing, Perfetto)", 0},
    {0},
};

struct simulate_job {
    struct cluster cluster;
    struct workload workload;
    struct arena arena;
    struct plan_pools plan;
    struct dispatch_topology t;
    struct simulate_options options;
    enum arrivals_kind arrivals;
    const char *trace_file;
    int only_model; /* -1: all */
    bool by_weights, load_given, seconds_given;
    double load, step, max_load, target, seconds;
    uint64_t seed;
    struct progress_bar bar;
};

/* ---- reading the command line ---- */

static int read_arrivals(const struct invocation *in, struct simulate_job *j)
{
    const char *text = invocation_option_or(in, "arrivals", "poisson");
    for (int k = 0; arrivals_words[k]; k++)
        if (strcmp(text, arrivals_words[k]) == 0) {
            j->arrivals = (enum arrivals_kind)k;
            return 0;
        }
    j->arrivals = ARRIVALS_TRACE;
    j->trace_file = text;
    return 0;
}

static int read_noise(const struct invocation *in, const char *name, double *out, struct err *e)
{
    int rc = invocation_number(in, name, 0, out, e);
    if (rc == 0 && (*out < 0 || *out > 1))
        return err_set(e, HP_EUSAGE, "--%s: %g is out of range: 0 to 1", name, *out);
    return rc;
}

static int read_options(const struct invocation *in, struct simulate_job *j, struct err *e)
{
    static const char *const rates[] = {"plan", "weights", NULL};
    int scheduler, by, rc;
    j->load_given = invocation_option(in, "load") != NULL;
    j->seconds_given = invocation_option(in, "seconds") != NULL;
    if ((rc = read_arrivals(in, j)) < 0 ||
        (rc = invocation_choice(in, "scheduler", simulate_scheduler_words, SIMULATE_RESERVING,
                                &scheduler, e)) < 0 ||
        (rc = invocation_choice(in, "rates", rates, 0, &by, e)) < 0 ||
        (rc = invocation_above_zero(in, "load", 0.95, 1000, &j->load, e)) < 0 ||
        (rc = invocation_above_zero(in, "step", 0.05, 1, &j->step, e)) < 0 ||
        (rc = invocation_above_zero(in, "max-load", 1, 100, &j->max_load, e)) < 0 ||
        (rc = invocation_above_zero(in, "target", 0.99, 1, &j->target, e)) < 0 ||
        (rc = invocation_above_zero(in, "seconds", 30, 1e6, &j->seconds, e)) < 0 ||
        (rc = invocation_u64(in, "seed", 1, &j->seed, e)) < 0 ||
        (rc = read_noise(in, "latency-noise", &j->options.latency_noise, e)) < 0 ||
        (rc = read_noise(in, "network-jitter", &j->options.network_jitter, e)) < 0)
        return rc;
    j->options.scheduler = (enum simulate_scheduler)scheduler;
    j->options.seed = j->seed;
    j->by_weights = by == 1;
    if (invocation_flag(in, "sweep") && j->trace_file)
        return err_set(e, HP_EUSAGE,
                       "--sweep draws its arrivals: it goes with poisson, uniform and bursty, not "
                       "with a trace");
    if (invocation_flag(in, "together") &&
        (!invocation_flag(in, "sweep") || invocation_option(in, "model")))
        return err_set(e, HP_EUSAGE, "--together goes with --sweep, and not with --model");
    if (invocation_option(in, "trace") &&
        (invocation_flag(in, "sweep") || scheduler == SIMULATE_REACTIVE))
        return err_set(e, HP_EUSAGE, "--trace follows one load under the reserving scheduler");
    if (invocation_flag(in, "sweep") && j->load_given)
        return err_set(e, HP_EUSAGE,
                       "--sweep tries many loads: leave --load out, or set --max-load");
    if (scheduler == SIMULATE_REACTIVE &&
        (j->options.latency_noise > 0 || j->options.network_jitter > 0))
        return err_set(e, HP_EUSAGE, "noise is simulated for the reserving scheduler only");
    return 0;
}

static int load_plan(const char *file, struct simulate_job *j, struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_load_at(file, &root, &at, e);
    if (rc < 0)
        return rc;
    if ((rc = plan_pools_from_json(&at, &j->arena, &j->plan, e)) == 0 &&
        (rc = dispatch_topology_make(&j->plan, &j->cluster, &j->workload, -1, &j->t, e)) < 0)
        err_at(e, "%s", file);
    json_decref(root);
    return rc;
}

static int find_model(const struct invocation *in, struct simulate_job *j, struct err *e)
{
    const char *name = invocation_option(in, "model");
    j->only_model = -1;
    if (!name)
        return 0;
    j->only_model = workload_find_model(&j->workload, name);
    return j->only_model >= 0 ? 0 : err_set(e, HP_ENOENT, "the workload has no model \"%s\"", name);
}

/* ---- one simulation ---- */

/* Requests per second of every model at a load: of `only` alone, or of all (-1). */
static void rates_at(const struct simulate_job *j, double load, int only, double *rates)
{
    double unit = INFINITY;
    for (int m = 0; m < j->t.n_models; m++)
        unit = fmin(unit, j->t.models[m].planned_rate / j->t.models[m].weight);
    for (int m = 0; m < j->t.n_models; m++) {
        double whole = j->by_weights ? unit * j->t.models[m].weight : j->t.models[m].planned_rate;
        rates[m] = only < 0 || only == m ? load * whole : 0;
    }
}

enum { SHOWN_EACH = 4096 };

/* Counts arrivals on their way, for a person who waits. */
struct counter {
    arrival_next_fn next;
    void *ctx;
    double total;
    struct progress_bar *bar; /* NULL: the simulation is one of many */
    long count;
};

static int count_next(void *ctx, struct arrival *out, struct err *e)
{
    struct counter *c = ctx;
    if (c->bar && ++c->count % SHOWN_EACH == 0)
        progress_show(c->bar, "simulating", (double)c->count, c->total);
    return c->next(c->ctx, out, e);
}

static int run_drawn(const struct simulate_job *j, double load, int only, uint64_t seed,
                     struct progress_bar *bar, struct simulate_result *r, struct err *e)
{
    struct arrivals *a = malloc(sizeof *a);
    double rates[ARRIVALS_MAX_MODELS], total = 0;
    if (!a)
        return err_no_memory(e, "simulating");
    rates_at(j, load, only, rates);
    for (int m = 0; m < j->t.n_models; m++)
        total += rates[m] * j->seconds;
    arrivals_init(a, j->arrivals, rates, j->t.n_models, j->seconds, seed);
    struct counter c = {arrivals_next, a, total, bar, 0};
    int rc = simulate_run(&j->t, &j->options, count_next, &c, r, e);
    free(a);
    return rc;
}

static int run_trace(struct simulate_job *j, double *load, struct simulate_result *r, struct err *e)
{
    struct arrival_trace trace;
    double rates[ARRIVALS_MAX_MODELS], whole = 0;
    int rc = arrival_trace_open(&trace, j->trace_file, &j->t, j->only_model,
                                j->seconds_given ? j->seconds : INFINITY, e);
    if (rc < 0)
        return rc;
    rates_at(j, 1, j->only_model, rates);
    for (int m = 0; m < j->t.n_models; m++)
        whole += rates[m];
    double pace = trace.span_s > 0 ? (double)trace.requests / trace.span_s : 0;
    if (j->load_given && pace > 0)
        trace.stretch = pace / (j->load * whole);
    *load = whole > 0 && pace > 0 ? pace / trace.stretch / whole : 0;
    struct counter c = {arrival_trace_next, &trace, (double)trace.requests, &j->bar, 0};
    rc = simulate_run(&j->t, &j->options, count_next, &c, r, e);
    arrival_trace_close(&trace);
    return rc;
}

static int one_load(const struct invocation *in, struct simulate_job *j, struct err *e)
{
    struct simulate_result r = {0};
    struct simulate_picture picture = {.t = &j->t};
    struct simulate_report report = {.t = &j->t,
                                     .arrivals = invocation_option_or(in, "arrivals", "poisson"),
                                     .options = &j->options,
                                     .load = j->load,
                                     .seconds = j->seconds,
                                     .seed = j->seed,
                                     .result = &r};
    const char *svg = invocation_option(in, "svg"), *csv = invocation_option(in, "csv"),
               *trace = invocation_option(in, "trace");
    if ((svg || trace) && j->options.scheduler == SIMULATE_RESERVING) {
        j->options.watch = simulate_picture_add;
        j->options.watch_ctx = &picture;
    }
    uint64_t started = env_now_ns(&env_real);
    int rc = j->trace_file ? run_trace(j, &report.load, &r, e)
                           : run_drawn(j, j->load, j->only_model, j->seed, &j->bar, &r, e);
    progress_end(&j->bar);
    report.wall_s = (double)(env_now_ns(&env_real) - started) * 1e-9;
    if (rc == 0 && svg)
        rc = simulate_picture_save(&picture, svg, false, e);
    if (rc == 0 && trace)
        rc = simulate_picture_save(&picture, trace, true, e);
    if (rc == 0 && csv)
        rc = simulate_report_csv(&report, csv, e);
    if (rc == 0 && !in->json)
        simulate_report_print(&report);
    if (rc == 0 && (in->json || in->output))
        rc = invocation_print_json(in, simulate_report_json(&report), e);
    simulate_picture_free(&picture);
    simulate_result_free(&r);
    return rc;
}

/* ---- sweep ---- */

/* Attainment at every load from the highest down, until one meets the target; `row` is a model, or
 * the last one for all together.
 */
static int sweep_row(struct simulate_job *j, struct simulate_sweep *s, int row, struct err *e)
{
    int only = row == s->n_models ? -1 : row, steps = (int)(j->max_load / j->step + 1e-9);
    const char *whose = only < 0 ? "all together" : j->t.models[only].name;
    for (int i = steps; i >= 1; i--) {
        struct simulate_result r = {0};
        double load = i * j->step, least = 1;
        progress_show(&j->bar, shown_of("simulating: %s at load %.4g", whose, load).s, row,
                      s->n_models + 1);
        int rc = run_drawn(j, load, only, j->seed * 1000 + (uint64_t)i, NULL, &r, e);
        for (int m = 0; rc == 0 && m < j->t.n_models; m++)
            least = fmin(least, simulate_attainment(&r.models[m]));
        simulate_result_free(&r);
        if (rc < 0 || (rc = simulate_sweep_add(s, row, load, least, e)) < 0)
            return rc;
        if (least >= j->target) {
            s->max_load[row] = load;
            break;
        }
    }
    return 0;
}

static int loads_sweep(const struct invocation *in, struct simulate_job *j, struct err *e)
{
    struct simulate_sweep s = {.t = &j->t,
                               .n_models = j->t.n_models,
                               .target = j->target,
                               .seconds = j->seconds,
                               .seed = j->seed,
                               .scheduler = simulate_scheduler_words[j->options.scheduler],
                               .arrivals = invocation_option_or(in, "arrivals", "poisson"),
                               .only_model = j->only_model};
    const char *svg = invocation_option(in, "svg"), *csv = invocation_option(in, "csv");
    if (j->max_load / j->step > 10000)
        return err_set(e, HP_EUSAGE, "--step: %g up to %g are too many loads", j->step,
                       j->max_load);
    int rc = 0;
    bool together = invocation_flag(in, "together");
    for (int row = together ? s.n_models : 0; rc == 0 && row <= s.n_models; row++)
        if (j->only_model < 0 || j->only_model == row)
            rc = sweep_row(j, &s, row, e);
    progress_end(&j->bar);
    if (rc == 0 && csv)
        rc = simulate_sweep_csv(&s, csv, e);
    if (rc == 0 && svg)
        rc = simulate_sweep_svg(&s, svg, e);
    if (rc == 0 && !in->json)
        simulate_sweep_print(&s);
    if (rc == 0 && (in->json || in->output))
        rc = invocation_print_json(in, simulate_sweep_json(&s), e);
    simulate_sweep_free(&s);
    return rc;
}

static int run_simulate(struct invocation *in, struct err *e)
{
    struct simulate_job j = {0};
    const char *cluster_file, *workload_file;
    int rc;
    progress_init(&j.bar, in->json);
    progress_once(&j.bar, "simulating");
    if ((rc = invocation_required(in, "cluster", &cluster_file, e)) < 0 ||
        (rc = invocation_required(in, "workload", &workload_file, e)) < 0 ||
        (rc = read_options(in, &j, e)) < 0 || (rc = cluster_load(cluster_file, &j.cluster, e)) < 0)
        return rc;
    if ((rc = workload_load(workload_file, &j.workload, e)) == 0 &&
        (rc = load_plan(in->arguments[0], &j, e)) == 0 && (rc = find_model(in, &j, e)) == 0)
        rc = invocation_flag(in, "sweep") ? loads_sweep(in, &j, e) : one_load(in, &j, e);
    dispatch_topology_free(&j.t);
    arena_free(&j.arena);
    workload_free(&j.workload);
    cluster_free(&j.cluster);
    return rc;
}

const struct command simulate_verbs[] = {
    {
        .path = "simulate",
        .arguments = "PLAN.json",
        .min_arguments = 1,
        .max_arguments = 1,
        .summary = "serve imagined requests with a plan of pools",
        .details = "Drives the scheduler that serves real requests with events under virtual time, "
                   "and counts what meets its "
                   "deadline. Without noise nothing\n"
                   "that was sent is late: what cannot be in time is dropped. --sweep finds the "
                   "highest load at 99 % attainment.",
        .examples = "  hpctl simulate plan.json --cluster C.json --workload W.json --load 0.9\n"
                    "  hpctl simulate plan.json --cluster C.json --workload W.json --sweep --csv "
                    "sweep.csv --svg sweep.svg\n"
                    "  hpctl simulate plan.json --cluster C.json --workload W.json --arrivals "
                    "bursty --scheduler reactive\n"
                    "  hpctl simulate plan.json --cluster C.json --workload W.json --arrivals "
                    "requests.csv --latency-noise 0.05 -o json",
        .options = simulate_verb_options,
        .run = run_simulate,
        .makes_file = true,
    },
    {0},
};
