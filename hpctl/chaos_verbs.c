/* `hpctl chaos`: disturbs a cluster of `local up` by a seeded script while clients ask, and says
 * what they saw. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/doubles.h"
#include "common/env.h"
#include "common/names.h"
#include "hpctl/chaos_clients.h"
#include "hpctl/chaos_faults.h"
#include "hpctl/load_target.h"
#include "hpctl/progress.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"

enum {
    NAME_BYTES = 64,
    MOST_CLIENTS = 1000,
    MOST_PROMPTS = 1000,
    REQUESTS_A_CLIENT_S = 50,
    MOST_SECONDS = 1000000
};

struct chaos_session {
    struct context where;
    struct local_cluster cluster;
    struct chaos_options options;
    struct chaos_script script;
    struct load_options load;
    struct load_plan plan;
    struct load_run run;
    struct chaos_clients clients;
    struct chaos_faults faults;
    struct chaos_guard guard;
    struct progress_bar progress;
    uint64_t n_clients;
};

/* ---- reading the command line ---- */

static int read_options(const struct invocation *in, struct chaos_session *s, struct err *e)
{
    struct chaos_options *o = &s->options;
    uint64_t prompts;
    double loss_percent;
    int rc;
    if ((rc = invocation_u64(in, "seed", 1, &o->seed, e)) < 0 ||
        (rc = invocation_above_zero(in, "seconds", 30, MOST_SECONDS, &o->seconds, e)) < 0 ||
        (rc = invocation_above_zero(in, "every", 5, MOST_SECONDS, &o->every_s, e)) < 0 ||
        (rc = invocation_above_zero(in, "hold", 2, MOST_SECONDS, &o->hold_s, e)) < 0 ||
        (rc = invocation_above_zero(in, "patience", 60, MOST_SECONDS, &s->run.patience_s, e)) < 0 ||
        (rc = chaos_kinds_parse(invocation_option_or(in, "faults", "kill,stop,slow,disk,delay"),
                                &o->kinds, e)) < 0 ||
        (rc = invocation_duration(in, "delay", 0.05, &o->delay_s, e)) < 0 ||
        (rc = invocation_above_zero(in, "loss", 2, 100, &loss_percent, e)) < 0 ||
        (rc = invocation_range(in, "clients", 20, 1, MOST_CLIENTS, &s->n_clients, e)) < 0 ||
        (rc = invocation_range(in, "prompts", 8, 1, MOST_PROMPTS, &prompts, e)) < 0 ||
        (rc = load_lengths_parse(invocation_option_or(in, "prompt-tokens", "16..64"),
                                 "prompt-tokens", &s->load.prompt, e)) < 0 ||
        (rc = load_lengths_parse(invocation_option_or(in, "answer-tokens", "100..200"),
                                 "answer-tokens", &s->load.answer, e)) < 0)
        return rc;
    if (!name_is_valid(in->arguments[0], NAME_BYTES))
        return err_set(e, HP_EINVAL, "\"%.60s\" is no name of a deployment", in->arguments[0]);
    o->loss = loss_percent / 100;
    s->clients.n_prompts = prompts;
    s->run.resumes = !invocation_flag(in, "no-resume");
    s->load.seconds = o->seconds;
    s->load.seed = s->run.seed = o->seed;
    s->run.deployment = in->arguments[0];
    return 0;
}

/* ---- what it does ---- */

static void answer_hear(void *ctx, size_t index, const char *text, size_t n, double now_s)
{
    struct chaos_session *s = ctx;
    chaos_clients_hear(&s->clients, index, text, n, now_s);
}

static void show_progress(void *ctx, double now_s, size_t open)
{
    struct chaos_session *s = ctx;
    progress_show(&s->progress,
                  shown_of(s->clients.learning ? "undisturbed answers: %zu are open"
                                               : "chaos: %zu clients wait for tokens",
                           open)
                      .s,
                  s->clients.learning ? 0 : fmin(now_s, s->plan.seconds),
                  s->clients.learning ? 0 : s->plan.seconds);
}

/* Requests after one another until the plan's seconds have passed. */
static int clients_run(struct chaos_session *s, size_t n_requests, size_t n_clients, bool learning,
                       struct err *e)
{
    load_run_free(&s->run);
    load_plan_free(&s->plan);
    s->run.n_causes = 0;
    s->run.clients = n_clients;
    s->run.most_open = n_clients;
    int rc = load_plan_repeat(&s->load, s->clients.n_prompts, n_requests, &s->plan, e);
    if (rc == 0 && learning)
        s->plan.seconds = (double)s->clients.n_prompts * s->run.patience_s;
    if (rc == 0 && learning)
        rc = load_target_ask(&s->where, &s->run, e);
    if (rc == 0)
        rc = chaos_clients_begin(&s->clients, &s->run, learning, e);
    return rc == 0 ? load_run(&s->run, e) : rc;
}

/* The answers that the prompts get while nothing is disturbed, one after the other. */
static int answers_learn(struct chaos_session *s, struct err *e)
{
    int rc = clients_run(s, s->clients.n_prompts, 1, true, e);
    if (rc < 0)
        return rc;
    if (s->run.interrupted)
        return err_set(e, HP_ECANCELED, "interrupted before anything was disturbed");
    for (size_t i = 0; i < s->plan.n; i++)
        if (s->run.results[i].outcome != LOAD_DONE)
            return err_set(e, HP_ELINK, "a request failed before anything was disturbed: %s",
                           s->run.results[i].cause < 0
                               ? "its answer did not end"
                               : s->run.causes[s->run.results[i].cause].text);
    return 0;
}

static int chaos_run(struct chaos_session *s, struct err *e)
{
    size_t n = (size_t)ceil((double)s->n_clients * s->options.seconds * REQUESTS_A_CLIENT_S);
    s->faults = (struct chaos_faults){.cluster = &s->cluster,
                                      .script = &s->script,
                                      .guard = &s->guard,
                                      .start_ns = env_now_ns(&env_real)};
    int rc = chaos_faults_start(&s->faults, e);
    if (rc < 0)
        return rc;
    rc = clients_run(s, n < LOAD_MAX_REQUESTS ? n : LOAD_MAX_REQUESTS, s->n_clients, false, e);
    chaos_faults_end(&s->faults, rc < 0 || s->run.interrupted);
    return rc == 0 && s->clients.no_memory ? err_no_memory(e, "what clients saw") : rc;
}

/* ---- what it says ---- */

static const char *fault_of(const struct chaos_session *s, const struct chaos_fault *f)
{
    return f->agent < 0 ? "coordinator" : s->cluster.agents[f->agent].name;
}

/* The script alone, or with what became of it; the longest waits are put into `pauses`. */
static json_t *faults_json(const struct chaos_session *s, bool done, double *pauses, size_t *n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->script.n; i++) {
        const struct chaos_fault *f = &s->script.faults[i];
        json_t *row = json_pack("{s:s, s:s, s:f, s:f}", "fault", chaos_words[f->kind], "of",
                                fault_of(s, f), "at_s", f->at_s, "for_s", f->for_s);
        if (done && f->healed_s > 0) {
            pauses[*n] = chaos_clients_pause(&s->clients, f);
            json_object_set_new(row, "begun_s", json_real(f->begun_s));
            json_object_set_new(row, "healed_s", json_real(f->healed_s));
            json_object_set_new(row, "pause_s", json_real(pauses[(*n)++]));
        }
        if (f->late_s > 0)
            json_object_set_new(row, "late_s", json_real(f->late_s));
        if (f->lost > 0)
            json_object_set_new(row, "lost", json_real(f->lost));
        if (f->why[0])
            json_object_set_new(row, "failed", json_string(f->why));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *causes_json(const struct load_run *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_causes; i++) {
        size_t n = 0;
        for (size_t k = 0; k < r->plan->n; k++)
            n += r->results[k].cause == i && r->results[k].outcome != LOAD_UNSENT;
        if (n)
            json_array_append_new(list,
                                  json_pack("{s:s, s:I, s:s}", "cause", r->causes[i].kind, "count",
                                            (json_int_t)n, "message", r->causes[i].text));
    }
    return list;
}

static json_t *report_json(const struct chaos_session *s)
{
    struct chaos_counts c = chaos_clients_count(&s->clients);
    double *pauses = calloc(s->script.n + 1, sizeof *pauses);
    size_t n = 0;
    if (!pauses)
        return NULL;
    json_t *faults = faults_json(s, true, pauses, &n);
    doubles_sort(pauses, n);
    json_t *out = json_pack(
        "{s:s, s:I, s:f, s:b, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:o, s:o, s:{s:f, s:f}, s:f}",
        "deployment", s->run.deployment, "seed", (json_int_t)s->options.seed, "seconds",
        s->run.seconds, "interrupted", s->run.interrupted, "answers", "clients",
        (json_int_t)s->n_clients, "whole", (json_int_t)c.whole, "different",
        (json_int_t)c.different, "refused", (json_int_t)c.refused, "failed", (json_int_t)c.failed,
        "open", (json_int_t)c.open, "tokens", (json_int_t)c.tokens, "causes", causes_json(&s->run),
        "faults", faults, "pause", "median_s", n ? doubles_median(pauses, n) : 0.0, "longest_s",
        n ? pauses[n - 1] : 0.0, "settled_s", s->faults.settled_s);
    free(pauses);
    return out;
}

static void cell_pause(struct buffer *cell, const json_t *value)
{
    double s = json_number_value(value);
    buffer_printf(cell, "%s", !value ? "-" : s > 0 ? shown_seconds(s).s : "none");
}

static const struct table_column fault_columns[] = {{">AT", "at_s", cell_seconds},
                                                    {"FAULT", "fault", NULL},
                                                    {"OF", "of", NULL},
                                                    {">LASTS", "for_s", cell_seconds},
                                                    {">PAUSE", "pause_s", cell_pause},
                                                    {"FAILED", "failed", NULL},
                                                    {0}};

static int print_report(const json_t *report, struct err *e)
{
    const json_t *a = json_object_get(report, "answers"), *cause;
    size_t i;
    int rc = table_print_list(fault_columns, json_object_get(report, "faults"), "no fault", e);
    printf("\n%s clients: %s answers whole, %s different, %s refused, %s failed, %s still open; %s "
           "tokens\n",
           shown_member(a, "clients").s, shown_member(a, "whole").s, shown_member(a, "different").s,
           shown_member(a, "refused").s, shown_member(a, "failed").s, shown_member(a, "open").s,
           shown_member(a, "tokens").s);
    json_array_foreach(json_object_get(report, "causes"), i, cause)
        printf("  %s times %s: %s\n", shown_member(cause, "count").s, string_member(cause, "cause"),
               shown_plain(string_member(cause, "message")).s);
    const json_t *pause = json_object_get(report, "pause");
    double settled_s = number_member(report, "settled_s");
    printf("longest wait between two tokens, by fault: median %s, longest %s; %s\n",
           shown_seconds(number_member(pause, "median_s")).s,
           shown_seconds(number_member(pause, "longest_s")).s,
           settled_s < 0 ? "not all agents are ready again (hpctl local ls)"
                         : shown_of("all agents ready %s after the last was healed",
                                    shown_seconds(settled_s).s)
                               .s);
    return rc;
}

static int report_give(const struct invocation *in, const struct chaos_session *s, struct err *e)
{
    struct chaos_counts c = chaos_clients_count(&s->clients);
    json_t *report = report_json(s);
    int rc = report ? 0 : err_no_memory(e, "a report");
    if (rc == 0 && in->json) {
        rc = invocation_print_json(in, report, e);
    } else if (rc == 0) {
        rc = print_report(report, e);
        json_decref(report);
    }
    bool seen = c.different || c.failed || c.refused || c.open;
    if (rc == 0 && !seen && s->faults.settled_s < 0)
        return err_set(e, HP_EIO, "not all agents are ready again: `hpctl local ls` shows them");
    if (rc == 0 && seen) {
        rc = err_set(e, HP_EIO,
                     "clients saw it: %zu answers differ, %zu failed, %zu were refused, "
                     "%zu did not end",
                     c.different, c.failed, c.refused, c.open);
        err_hint(e, "with `deploy --compute auto` answers may differ where requests meet in other "
                    "batches; --copies 2 lets a deployment go on without an agent");
    }
    return rc;
}

/* ---- the verb ---- */

static int script_print(const struct invocation *in, const struct chaos_session *s, struct err *e)
{
    static const struct table_column columns[] = {{">AT", "at_s", cell_seconds},
                                                  {"FAULT", "fault", NULL},
                                                  {"OF", "of", NULL},
                                                  {">LASTS", "for_s", cell_seconds},
                                                  {0}};
    json_t *faults = faults_json(s, false, NULL, NULL);
    if (in->json)
        return invocation_print_json(in, faults, e);
    int rc = table_print_list(columns, faults, NULL, e);
    json_decref(faults);
    return rc;
}

static int chaos_verb(struct invocation *in, struct err *e)
{
    struct chaos_session *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "chaos");
    s->run.where = &s->where;
    s->run.plan = &s->plan;
    s->run.progress = show_progress;
    s->run.heard = answer_hear;
    s->run.ctx = s;
    progress_init(&s->progress, in->json);
    int rc = read_options(in, s, e);
    if (rc == 0)
        rc = context_load(invocation_option(in, "context"), &s->where, e);
    if (rc == 0)
        rc = local_load(s->where.name, &s->cluster, e);
    s->options.n_agents = s->cluster.n_agents;
    if (rc == 0)
        rc = chaos_script_draw(&s->options, &s->script, e);
    if (rc == 0 && invocation_flag(in, "dry-run")) {
        rc = script_print(in, s, e);
    } else if (rc == 0 && (rc = chaos_guard_open(&s->guard, s->cluster.dir, e)) == 0 &&
               (rc = answers_learn(s, e)) == 0 && (rc = chaos_run(s, e)) == 0) {
        progress_end(&s->progress);
        rc = report_give(in, s, e);
    }
    progress_end(&s->progress);
    chaos_guard_close(&s->guard);
    chaos_clients_free(&s->clients);
    chaos_script_free(&s->script);
    load_run_free(&s->run);
    load_plan_free(&s->plan);
    free(s);
    return rc;
}

static const struct command_option chaos_options[] = {
    {"faults", "LIST",
     "of kill, stop, slow, disk, delay, hang, loss, kill-coordinator, stop-coordinator, "
     "disk-coordinator (default kill,stop,slow,disk,delay)",
     0},
    {"seconds", "S", "how long clients ask (default 30)", 0},
    {"every", "S", "from one fault's begin to the next's, on average (default 5)", 0},
    {"hold", "S", "how long a fault lasts, on average (default 2)", 0},
    {"delay", "D", "how much later frames come with `delay` (default 50ms)", 0},
    {"loss", "PERCENT", "of the frames that are lost with `loss` (default 2)", 0},
    {"seed", "N", "of faults and prompts: equal ones give equal scripts (default 1)", 0},
    {"clients", "N", "each asks as soon as it has its answer (default 20)", 0},
    {"prompts", "N", "how many different ones (default 8)", 0},
    {"prompt-tokens", "L", "of each: N, A..B, or lognormal:A..B (default 16..64)", 0},
    {"answer-tokens", "L", "of each answer, likewise (default 100..200)", 0},
    {"patience", "S", "seconds to wait for the last answers (default 60)", 0},
    {"no-resume", NULL, "clients do not ask again for an answer that broke off", 0},
    {"dry-run", NULL, "print the script of faults and do nothing", 0},
    {"context", "NAME", "of the cluster (default: the current one)", 0},
    {0},
};

const struct command chaos_verbs[] = {
    {
        .path = "chaos",
        .arguments = "NAME",
        .min_arguments = 1,
        .max_arguments = 1,
        .summary = "kill, stop and slow a local cluster's processes and links while clients ask",
        .details =
            "Only for clusters of `hpctl local up`. First each prompt is asked alone: those are "
            "the answers that clients are to get. Then\n"
            "they ask without end, while one process after the other is disturbed: `kill` "
            "(SIGKILL, started again), `stop` (SIGSTOP),\n"
            "`slow` (runs a tenth of the time), `disk` (its files cannot grow), `delay` (what an "
            "agent sends to others comes later, by\n"
            "--delay), `hang` (it comes when the fault is over; the coordinator hears the agent as "
            "ever), `loss` (a part of it is lost, and comes\n"
            "0.2 s later, as TCP sends it again), and the same with the coordinator. All of them "
            "are "
            "as before when the verb ends, also after\n"
            "Ctrl-C, and when it is killed (but for what it had killed). A client whose answer "
            "breaks "
            "off, with its coordinator, asks for it again\n"
            "by its Idempotency-Key "
            "and reads on. PAUSE is the longest that any client waited between two tokens. Exit "
            "code 1 when an answer failed or differs:\n"
            "deploy with --compute f32, whose answers do not hang on which requests meet, and with "
            "--copies 2.",
        .examples =
            "  hpctl chaos demo\n"
            "  hpctl chaos demo --faults kill --seconds 120 --every 3 --seed 7 -o json\n"
            "  hpctl chaos demo --faults delay --delay 80ms --hold 20 --every 40 --seconds 300\n"
            "  hpctl chaos demo --faults loss --loss 5 --hold 20 --every 40 --seconds 300\n"
            "  hpctl chaos demo --faults stop,kill-coordinator --dry-run",
        .options = chaos_options,
        .run = chaos_verb,
    },
    {0},
};
