/* `hpctl plan coldstart`: what one host loads where, in which order, to start a model soonest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fs.h"
#include "common/plan.h"
#include "hpctl/plan_report.h"
#include "hpctl/progress.h"
#include "hpctl/timeline_files.h"
#include "hpctl/verbs.h"
#include "planners/coldstart/coldstart.h"

static const struct command_option plan_coldstart_options[] = {
    {"graph", "G.json", "the host and the model's operators and parameters (hp-graph/1)", 0},
    {"method", "M", "best (default), serial, pipeline, dha, pt, pt-dha, interleaved, list or milp",
     0},
    {"contention", "on|off", "reads from host memory take their time on the bus (default on)", 0},
    {"dominators", "N", "milp: narrow points of the graph per sub-model (default 1)", 0},
    {"slots", "Q", "milp: subgraphs per device in a sub-model, even (default 2)", 0},
    {"lp-dir", "DIR", "milp: keep each sub-model's programme as DIR/sub-NNN.lp", 0},
    {"time-limit", "S", "seconds for best and milp (default 10, or two million plans; milp 30)", 0},
    {"evaluations", "N", "best: plans to time; the same seed and N give the same plan", 0},
    {"seed", "N", "best: of the search's random steps (default 0)", 0},
    {"svg", "FILE", "draw buses, devices and links", 0},
    {"html", "FILE", "a report for a browser: plan, picture, what else was weighed", 0},
    {"trace", "FILE", "the same as a Chrome trace (chrome://tracing, Perfetto)", 0},
    {0},
};

/* ---- the command line ---- */

static int read_count(const struct invocation *in, const char *name, int *out, struct err *e)
{
    uint64_t v;
    int rc = invocation_u64(in, name, 0, &v, e);
    if (rc == 0 && invocation_option(in, name) && (v < 1 || v > 1000))
        return err_set(e, HP_EUSAGE, "--%s: %llu is not between 1 and 1000", name,
                       (unsigned long long)v);
    *out = (int)v;
    return rc;
}

static int read_options(const struct invocation *in, struct coldstart_options *o, struct err *e)
{
    static const char *const switches[] = {"off", "on", NULL};
    const char *words[COLDSTART_METHODS + 1] = {0};
    int method, contention, rc;
    for (int i = 0; i < COLDSTART_METHODS; i++)
        words[i] = coldstart_method_word((enum coldstart_method)i);
    if ((rc = invocation_choice(in, "method", words, COLDSTART_BEST, &method, e)) < 0 ||
        (rc = invocation_choice(in, "contention", switches, 1, &contention, e)) < 0 ||
        (rc = read_count(in, "dominators", &o->dominators, e)) < 0 ||
        (rc = read_count(in, "slots", &o->slots, e)) < 0 ||
        (rc = invocation_number(in, "time-limit", 0, &o->time_limit_s, e)) < 0 ||
        (rc = invocation_u64(in, "evaluations", 0, &o->evaluations, e)) < 0 ||
        (rc = invocation_u64(in, "seed", 0, &o->seed, e)) < 0)
        return rc;
    if (invocation_option(in, "time-limit") && o->time_limit_s <= 0)
        return err_set(e, HP_EUSAGE, "--time-limit: %g s is no time", o->time_limit_s);
    if (invocation_option(in, "evaluations") && o->evaluations == 0)
        return err_set(e, HP_EUSAGE, "--evaluations: 0 plans are none");
    if (o->slots % 2 != 0)
        return err_set(
            e, HP_EUSAGE,
            "--slots: %d is odd; a device has as many slots for host memory as for residents",
            o->slots);
    o->method = (enum coldstart_method)method;
    o->contention = contention == 1;
    return 0;
}

/* ---- files ---- */

static bool keep_program(void *ctx, int sub_model, const char *text, size_t size)
{
    char file[4096];
    struct err e = {0};
    snprintf(file, sizeof file, "%.4000s/sub-%03d.lp", (const char *)ctx, sub_model);
    return fs_file_write(file, text, size, 0666, &e) == 0;
}

static int save_pictures(const struct invocation *in, struct coldstart_result *r, const char *model,
                         struct err *e)
{
    const char *svg = invocation_option(in, "svg"), *trace = invocation_option(in, "trace"),
               *html = invocation_option(in, "html");
    char title[200];
    snprintf(title, sizeof title, "%.100s, cold start by %s: %.4g ms", model, r->winner,
             r->latency_s * 1e3);
    r->timeline.title = title;
    r->timeline.legend =
        "devices: blue runs on parameters that were copied, orange reads them in host "
        "memory; buses: orange is such a read, every other colour the copies of one device";
    int rc = timeline_save(&r->timeline, svg, trace, e);
    if (rc == 0 && html)
        rc = plan_report_save_timeline(html, r->plan, &r->timeline, e);
    r->timeline.title = NULL;
    return rc;
}

/* ---- what a person sees ---- */

struct telling {
    struct progress_bar bar;
    bool milp;
};

static void progress_tell(void *ctx, double progress, double best_s)
{
    struct telling *t = ctx;
    char what[64];
    snprintf(what, sizeof what, "planning: %s %.4f ms", t->milp ? "planned up to" : "best so far",
             best_s * 1e3);
    progress_show(&t->bar, what, progress * 100, 100);
}

static void print_why(const json_t *plan)
{
    const json_t *row;
    size_t i;
    printf("\n%-24s %12s  %s\n", "candidate", "latency", "why");
    json_array_foreach(json_object_get(plan, "why"), i, row)
    {
        const json_t *predicted = json_object_get(row, "predicted");
        char latency[32] = "-";
        if (json_is_number(predicted))
            snprintf(latency, sizeof latency, "%.4f ms", json_number_value(predicted) * 1e3);
        printf("%-24s %12s  %s\n", json_string_value(json_object_get(row, "candidate")), latency,
               json_string_value(json_object_get(row, "reason")));
    }
}

static int print_timeline(const struct timeline *t, struct err *e)
{
    struct buffer text = {0};
    const char *columns = getenv("COLUMNS");
    int width = columns ? atoi(columns) : 100;
    int rc = timeline_write_text(t, width < 40 ? 40 : width > 240 ? 240 : width, isatty(1), &text);
    if (rc == 0)
        printf("\n%s", buffer_cstr(&text));
    buffer_free(&text);
    return rc < 0 ? err_set(e, rc, "out of memory while drawing") : 0;
}

static int print_result(const struct opgraph *g, const struct coldstart_result *r, struct err *e)
{
    double gap = r->bound_s > 0 ? 100 * (r->latency_s / r->bound_s - 1) : 0;
    printf("%s: %d operators, %d parameters, %d device%s on %d bus%s\n",
           g->model[0] ? g->model : "model", g->n_ops, g->n_nodes - g->n_ops, g->n_devices,
           g->n_devices == 1 ? "" : "s", g->n_buses, g->n_buses == 1 ? "" : "es");
    printf("cold start in %.4f ms by %s; no plan is below %.4f ms, gap %.2f %%\n",
           r->latency_s * 1e3, r->winner, r->bound_s * 1e3, gap);
    print_why(r->plan);
    return print_timeline(&r->timeline, e);
}

static int give_result(const struct invocation *in, const struct opgraph *g, const char *file,
                       struct coldstart_result *r, struct err *e)
{
    int rc;
    if ((rc = plan_add_input(r->plan, file, e)) < 0 || (rc = save_pictures(in, r, g->model, e)) < 0)
        return rc;
    if (in->json || in->output) {
        rc = invocation_print_json(in, json_incref(r->plan), e);
        if (rc < 0 || in->json)
            return rc;
    }
    return print_result(g, r, e);
}

static int plan_coldstart_run(struct invocation *in, struct err *e)
{
    struct opgraph g = {0};
    struct coldstart_result result = {0};
    struct telling telling = {0};
    struct coldstart_options o = {.env = &env_real, .tell = progress_tell, .tell_ctx = &telling};
    const char *file;
    int rc;
    if ((rc = invocation_required(in, "graph", &file, e)) < 0 ||
        (rc = read_options(in, &o, e)) < 0 || (rc = opgraph_load(file, &g, e)) < 0)
        return rc;
    if (invocation_option(in, "lp-dir")) {
        o.program = keep_program;
        o.program_ctx = (void *)(uintptr_t)invocation_option(in, "lp-dir");
    }
    telling.milp = o.method == COLDSTART_MILP;
    progress_init(&telling.bar, in->json);
    progress_once(&telling.bar, "planning");
    rc = coldstart_plan_make(&g, &o, &result, e);
    progress_end(&telling.bar);
    if (rc == 0)
        rc = give_result(in, &g, file, &result, e);
    coldstart_result_free(&result);
    opgraph_free(&g);
    return rc;
}

const struct command plan_coldstart_verbs[] = {
    {
        .path = "plan coldstart",
        .summary = "plan what one host loads where, in which order, to start a model soonest",
        .details = "best weighs the published methods and our own, then searches over devices, "
                   "buses, order and host memory; it "
                   "is never worse\n"
                   "than any of them. dha is DeepPlan's direct host access, pt its parallel "
                   "transmission, milp SortingHat's "
                   "programme with lp_solve.\n"
                   "Without -o a table and a time line; with -o FILE the plan too, with -o json "
                   "nothing else. Exit code 6 when "
                   "nothing fits.",
        .examples =
            "  hpctl plan coldstart --graph openllama-3b.json\n"
            "  hpctl plan coldstart --graph G.json --time-limit 10 -o plan.json --svg plan.svg\n"
            "  hpctl plan coldstart --graph G.json --evaluations 200000 --seed 7 -o json\n"
            "  hpctl plan coldstart --graph chain.json --method dha --contention off\n"
            "  hpctl plan coldstart --graph sub.json --method milp --time-limit 30 --lp-dir "
            "/tmp/lp",
        .options = plan_coldstart_options,
        .run = plan_coldstart_run,
        .makes_file = true,
    },
    {0},
};
