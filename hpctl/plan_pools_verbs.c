/* `hpctl plan pools`: which pools of devices run which pipelines. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fs.h"
#include "common/plan.h"
#include "hpctl/plan_report.h"
#include "hpctl/pools_output.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/verbs.h"
#include "hpctl/waiting.h"
#include "planners/pools/margin.h"
#include "planners/pools/pools.h"

static const struct command_option plan_pools_options[] = {
    {"cluster", "C.json", "the devices (hp-cluster/1)", 0},
    {"workload", "W.json", "the models, their weights and deadlines (hp-workload/1)", 0},
    {"method", "M", "exact (default), milp, np or dart", 0},
    {"slo-margin", "M|auto",
     "part of every deadline left to queueing (default: the workload's); auto: by simulation", 0},
    {"share-devices", "on|off",
     "fractions of a device may serve several pipelines of a model (default: the workload's)", 0},
    {"time-limit", "S", "seconds for lp_solve (milp: 60), or for auto (20)", 0},
    {"seed", "N", "of auto's simulations and of the search on large clusters (default 1)", 0},
    {"lp", "FILE.lp", "milp: where the programme goes (default: beside the plan, else pools.lp)",
     0},
    {"svg", "FILE", "draw the pools", 0},
    {"html", "FILE", "a report for a browser: plan, picture, what else was weighed", 0},
    {0},
};

enum { MILP_USUAL_S = 60 }; /* pools.h */

/* The .lp file of --method milp: written as the solver's text comes. */
struct lp_file {
    FILE *file;
    char name[4096];
};

static bool lp_file_put(void *ctx, const char *text, size_t size)
{
    struct lp_file *f = ctx;
    return fwrite(text, 1, size, f->file) == size;
}

static int lp_file_open(const struct invocation *in, struct lp_file *f, struct err *e)
{
    const char *given = invocation_option(in, "lp");
    if (given)
        snprintf(f->name, sizeof f->name, "%s", given);
    else if (in->output)
        snprintf(f->name, sizeof f->name, "%s.lp", in->output);
    else
        snprintf(f->name, sizeof f->name, "pools.lp");
    f->file = fopen(f->name, "w");
    return f->file ? 0 : err_set(e, HP_EIO, "%s: cannot be written", f->name);
}

static int read_request(const struct invocation *in, struct pools_request *rq, bool *automatic,
                        struct err *e)
{
    static const char *const switches[] = {"off", "on", NULL};
    const char *margin = invocation_option(in, "slo-margin");
    int method, rc;
    *automatic = margin && strcmp(margin, "auto") == 0;
    rq->slo_margin = -1;
    if ((rc = invocation_choice(in, "method", pools_method_words, POOLS_METHOD_EXACT, &method, e)) <
            0 ||
        (rc = invocation_choice(in, "share-devices", switches, -1, &rq->share_devices, e)) < 0 ||
        (rc = invocation_number(in, "time-limit", 0, &rq->time_limit_s, e)) < 0 ||
        (rc = invocation_u64(in, "seed", 1, &rq->seed, e)) < 0)
        return rc;
    rq->method = (enum pools_method)method;
    if (margin && !*automatic) {
        if ((rc = invocation_number(in, "slo-margin", 0, &rq->slo_margin, e)) < 0)
            return rc;
        if (rq->slo_margin < 0 || rq->slo_margin >= 1)
            return err_set(
                e, HP_EUSAGE,
                "--slo-margin: %s is not a part of the deadline (0 to below 1), nor auto", margin);
    }
    if (*automatic && rq->method != POOLS_METHOD_EXACT)
        return err_set(e, HP_EUSAGE, "--slo-margin auto goes with --method exact only");
    if (invocation_option(in, "time-limit") && rq->time_limit_s <= 0)
        return err_set(e, HP_EUSAGE, "--time-limit: %g s is no time", rq->time_limit_s);
    return 0;
}

static void show_progress(void *ctx, const char *text, double part)
{
    progress_show(ctx, shown_of("planning: %s", text).s, part * 100, 100);
}

/* At several margins: each step of it is told. */
static int plan_automatic(const struct invocation *in, struct pools_request *rq,
                          struct pools_answer *answer, struct err *e)
{
    struct progress_bar bar;
    struct pools_margin_options options = {.seed = rq->seed,
                                           .seconds = rq->time_limit_s,
                                           .progress = show_progress,
                                           .progress_ctx = &bar};
    progress_init(&bar, in->json);
    progress_once(&bar, "planning");
    int rc = pools_plan_auto(rq, &options, answer, e);
    progress_end(&bar);
    return rc;
}

/* lp_solve tells nothing meanwhile, but ends by its time. */
static int plan_once(const struct invocation *in, struct pools_request *rq,
                     struct pools_answer *answer, struct err *e)
{
    double limit_s = rq->time_limit_s > 0 ? rq->time_limit_s : MILP_USUAL_S;
    struct waiting *w =
        waiting_begin("planning", rq->method == POOLS_METHOD_MILP ? limit_s : 0, in->json);
    int rc = pools_plan(rq, answer, e);
    waiting_end(&w);
    return rc;
}

static int make_plan(const struct invocation *in, struct pools_request *rq, bool automatic,
                     struct pools_answer *answer, struct err *e)
{
    struct lp_file lp = {0};
    int rc = 0;
    if (rq->method == POOLS_METHOD_MILP) {
        if ((rc = lp_file_open(in, &lp, e)) < 0)
            return rc;
        rq->lp_put = lp_file_put;
        rq->lp_ctx = &lp;
    }
    rc = automatic ? plan_automatic(in, rq, answer, e) : plan_once(in, rq, answer, e);
    if (lp.file && fclose(lp.file) != 0 && rc == 0)
        rc = err_set(e, HP_EIO, "%s: could not be written whole: is the disk full?", lp.name);
    if (lp.file && !in->json)
        fprintf(stderr, "the programme is in %s\n", lp.name);
    return rc;
}

static int add_inputs(const struct invocation *in, const struct workload *w, json_t *plan,
                      struct err *e)
{
    int rc;
    if ((rc = plan_add_input(plan, invocation_option(in, "cluster"), e)) < 0 ||
        (rc = plan_add_input(plan, invocation_option(in, "workload"), e)) < 0)
        return rc;
    for (int m = 0; m < w->n_models && rc == 0; m++)
        rc = plan_add_input(plan, w->models[m].profile_file, e);
    return rc;
}

static int save_pictures(const struct invocation *in, const struct pools_request *rq,
                         const struct pools_answer *answer, const json_t *plan, struct err *e)
{
    const char *svg = invocation_option(in, "svg"), *html = invocation_option(in, "html");
    struct buffer picture = {0};
    int rc = 0;
    if (svg) {
        pools_picture_write(&answer->plan, rq->cluster, &picture);
        rc = fs_buffer_save(svg, &picture, e);
        picture = (struct buffer){0};
    }
    if (rc == 0 && html) {
        pools_picture_write(&answer->plan, rq->cluster, &picture);
        rc = plan_report_save(html, "Pools of devices under deadlines", plan, &picture, e);
    }
    return rc;
}

static int give_answer(const struct invocation *in, const struct pools_request *rq,
                       const struct pools_answer *answer, struct err *e)
{
    json_t *plan = pools_answer_json(answer);
    int rc = plan ? add_inputs(in, rq->workload, plan, e) : err_no_memory(e, "writing the plan");
    if (rc < 0) {
        json_decref(plan);
        return rc;
    }
    if ((rc = save_pictures(in, rq, answer, plan, e)) < 0) {
        json_decref(plan);
        return rc;
    }
    if (!in->json)
        pools_answer_print(answer, rq->cluster, rq->workload);
    if (in->json || in->output)
        return invocation_print_json(in, plan, e);
    json_decref(plan);
    return 0;
}

static int plan_pools_run(struct invocation *in, struct err *e)
{
    const char *cluster_file, *workload_file;
    struct cluster cluster = {0};
    struct workload workload = {0};
    struct pools_answer answer = {0};
    struct pools_request rq = {.cluster = &cluster, .workload = &workload, .env = &env_real};
    bool automatic;
    int rc;
    if ((rc = invocation_required(in, "cluster", &cluster_file, e)) < 0 ||
        (rc = invocation_required(in, "workload", &workload_file, e)) < 0 ||
        (rc = read_request(in, &rq, &automatic, e)) < 0 ||
        (rc = cluster_load(cluster_file, &cluster, e)) < 0)
        return rc;
    if ((rc = workload_load(workload_file, &workload, e)) == 0) {
        if ((rc = make_plan(in, &rq, automatic, &answer, e)) == 0)
            rc = give_answer(in, &rq, &answer, e);
        pools_answer_free(&answer);
        workload_free(&workload);
    }
    cluster_free(&cluster);
    return rc;
}

const struct command plan_pools_verbs[] = {
    {
        .path = "plan pools",
        .summary = "plan pools of devices for models with deadlines",
        .details = "Chooses pipelines (batch size, kinds of devices, shares, cuts) and how many "
                   "devices each pool gets, so that "
                   "the least\n"
                   "throughput / weight over the models is greatest (PPipe). exact: a dynamic "
                   "programme, and lp_solve for the "
                   "bound; milp: the\n"
                   "published programme with lp_solve; np: whole models on single kinds; dart: "
                   "chains of two devices. "
                   "--slo-margin auto plans at\n"
                   "several margins and keeps what serves most at 99 % attainment in simulation.",
        .examples =
            "  hpctl plan pools --cluster L4-P4.json --workload three-models.json\n"
            "  hpctl plan pools --cluster C.json --workload W.json --slo-margin auto -o plan.json\n"
            "  hpctl plan pools --cluster C.json --workload W.json --share-devices on -o json\n"
            "  hpctl plan pools --cluster C.json --workload W.json --method milp --time-limit 30 "
            "--lp ppipe.lp",
        .options = plan_pools_options,
        .run = plan_pools_run,
        .makes_file = true,
    },
    {0},
};
