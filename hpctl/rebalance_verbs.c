/* `hpctl rebalance`: deployments go where the planner would place them now, where that pays. */
#include <stdio.h>
#include <string.h>

#include "hpctl/ask.h"
#include "hpctl/client.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/verbs.h"
#include "hpctl/waiting.h"

enum { REBALANCE_PATIENCE_MS = 660000 }; /* the coordinator gives a successor 600 s */

struct rebalance_run {
    const struct invocation *in;
    double margin; /* below 0: the coordinator's */
    struct waiting *waiting;
};

/* ---- what a person sees ---- */

static int print_forecasts(const json_t *report, struct err *e)
{
    static const struct table_column columns[] = {
        {"", NULL, NULL},           {">FIRST TOKEN", NULL, NULL},
        {">PER TOKEN", NULL, NULL}, {">REQUEST", NULL, NULL},
        {">TOKENS/S", NULL, NULL},  {">REQUESTS/S", NULL, NULL},
        {"STAGES", NULL, NULL},     {0}};
    static const char *const rows[] = {"before", "after"};
    struct table *t = table_create(columns);
    for (size_t r = 0; r < 2; r++) {
        const json_t *f = json_object_get(report, rows[r]), *s;
        struct buffer stages = {0};
        size_t i;
        table_cell(t, "%s", rows[r]);
        table_cell(t, "%s", shown_seconds(number_member(f, "ttft_s")).s);
        table_cell(t, "%s", shown_seconds(number_member(f, "tpot_s")).s);
        table_cell(t, "%s", shown_seconds(number_member(f, "request_s")).s);
        table_cell(t, "%.4g", number_member(f, "tokens_per_s"));
        table_cell(t, "%.4g", number_member(f, "requests_per_s"));
        json_array_foreach(json_object_get(f, "stages"), i, s)
            buffer_printf(&stages, "%s%s:%.0f-%.0f", i ? "," : "", string_member(s, "on"),
                          number_member(s, "first_layer"), number_member(s, "last_layer"));
        table_cell(t, "%s", buffer_cstr(&stages));
        buffer_free(&stages);
    }
    return table_print(&t, NULL, e);
}

static void print_move(const json_t *move)
{
    const json_t *a;
    size_t i;
    json_array_foreach(json_object_get(move, "agents"), i, a)
        printf("  %s: %s of weights, %s of these it has, at most %s to fetch from other agents\n",
               string_member(a, "on"), shown_bytes(number_member(a, "weights_bytes")).s,
               shown_bytes(number_member(a, "stays_bytes")).s,
               shown_bytes(number_member(a, "fetch_bytes")).s);
    printf("  %s sequences with %s of keys and values go over; about %s in all, a pause of at most "
           "%s\n",
           shown_member(move, "sequences").s, shown_bytes(number_member(move, "kv_bytes")).s,
           shown_seconds(number_member(move, "seconds")).s,
           shown_seconds(number_member(move, "pause_s")).s);
}

static int print_report(const json_t *report, struct err *e)
{
    const char *verdict = string_member(report, "verdict");
    bool done = strcmp(verdict, "moved") == 0;
    if (done) {
        const json_t *d = json_object_get(report, "done");
        printf("%s moved in %s: %s sequences went over while they ran, %s were read again, %s of "
               "weights were fetched\n",
               string_member(report, "deployment"), shown_seconds(number_member(d, "took_s")).s,
               shown_member(d, "moved").s, shown_member(d, "failed").s,
               shown_bytes(number_member(d, "fetched_bytes")).s);
        return 0;
    }
    printf("%s %s: %s\n", string_member(report, "deployment"),
           strcmp(verdict, "would_move") == 0 ? "would move" : verdict,
           string_member(report, "why"));
    if (!json_object_get(report, "before"))
        return 0;
    printf("  a prompt of %s tokens and an answer of %.0f, by the planner:\n",
           shown_member(report, "prompt_tokens").s, number_member(report, "answer_tokens"));
    int rc = print_forecasts(report, e);
    if (rc == 0 && strcmp(verdict, "stays") != 0)
        print_move(json_object_get(report, "move"));
    return rc;
}

/* ---- the questions ---- */

static int on_part(void *ctx, const json_t *part, struct err *e)
{
    struct rebalance_run *r = ctx;
    waiting_end(&r->waiting);
    int rc = r->in->json ? 0 : print_report(part, e);
    fflush(stdout);
    r->waiting = waiting_begin("moving", 0, r->in->json);
    return rc;
}

static int rebalance_ask(struct client *c, struct rebalance_run *r, const char *name, json_t **out,
                         struct err *e)
{
    json_t *question =
        json_pack("{s:s, s:b}", "name", name, "dry_run", invocation_flag(r->in, "dry-run"));
    if (!question)
        return err_set(e, HP_EINVAL, "\"%s\" is not valid UTF-8", name);
    int rc = r->margin < 0 ? 0 : ask_option(question, "margin", json_real(r->margin), e);
    if (rc < 0) {
        json_decref(question);
        return rc;
    }
    struct client_ask ask = {.verb = "rebalance",
                             .arguments = question,
                             .patience_ms = REBALANCE_PATIENCE_MS,
                             .progress = on_part,
                             .ctx = r};
    r->waiting = waiting_begin("planning", 0, r->in->json);
    rc = client_ask(c, &ask, out, NULL, e);
    waiting_end(&r->waiting);
    return rc;
}

/* One of many: what cannot move is a row among the others. */
static int rebalance_one_of_all(struct client *c, struct rebalance_run *r, const char *name,
                                json_t *reports, struct err *e)
{
    json_t *report = NULL;
    struct err why = {0};
    int rc = rebalance_ask(c, r, name, &report, &why);
    if (rc == HP_EINFEASIBLE || rc == HP_EBUSY)
        report =
            json_pack("{s:s, s:s, s:s}", "deployment", name, "verdict", "stays", "why", why.text);
    else if (rc < 0) {
        *e = why;
        return rc;
    }
    rc = r->in->json ? 0 : print_report(report, e);
    return json_array_append_new(reports, report) == 0 ? rc : err_no_memory(e, "a report");
}

static int rebalance_all(struct client *c, struct rebalance_run *r, json_t **out, struct err *e)
{
    json_t *all = NULL, *d, *reports = json_array();
    size_t i;
    int rc = reports ? client_get(c, "deployment.ls", NULL, &all, e) : err_no_memory(e, "reports");
    json_array_foreach(all, i, d)
    {
        const char *name = string_member(d, "name");
        if (rc == 0 && !strchr(name, '/'))
            rc = rebalance_one_of_all(c, r, name, reports, e);
    }
    if (rc == 0 && !r->in->json && json_array_size(reports) == 0)
        printf("nothing is deployed; `hpctl deploy MODEL.gguf` does it\n");
    json_decref(all);
    if (rc < 0)
        json_decref(reports);
    else
        *out = reports;
    return rc;
}

static int run_rebalance(struct invocation *in, struct err *e)
{
    struct rebalance_run r = {.in = in};
    struct client *c = NULL;
    json_t *out = NULL;
    int rc = invocation_number(in, "margin", -1, &r.margin, e);
    if (rc == 0 && invocation_option(in, "margin") && !(r.margin >= 0 && r.margin <= 100))
        rc = err_set(e, HP_EUSAGE, "--margin is from 0 to 100: 0.1 is a tenth faster");
    rc = rc < 0 ? rc : client_open(invocation_option(in, "context"), &c, e);
    if (rc == 0 && in->n_arguments == 0)
        rc = rebalance_all(c, &r, &out, e);
    else if (rc == 0 && (rc = rebalance_ask(c, &r, in->arguments[0], &out, e)) == 0 && !in->json)
        rc = print_report(out, e);
    client_close(&c);
    if (rc == 0 && in->json)
        return invocation_print_json(in, out, e);
    json_decref(out);
    return rc;
}

static const struct command_option rebalance_options[] = {
    {"dry-run", NULL, "say what would be done, and change nothing", 0},
    {"margin", "X", "move where a request gets faster by X, 0.1 is a tenth (default 0.1)", 0},
    CONTEXT_OPTION,
    {0},
};

const struct command rebalance_verbs[] = {
    {"rebalance", "[NAME]", 0, 1, "move deployments where the planner would place them now",
     "Plans each (or the one named) over the agents that are there, beside the stages that it has, "
     "and says what a move gains and costs. Where it pays, the new place is prepared with weights "
     "of the agents' stores, what runs goes over with its keys and values, and the old place is "
     "left; no stream ends. Where there is no room beside, or nothing to gain, all stays and the "
     "reason is said: with NAME, what cannot move is an error (exit code 6).",
     "  hpctl rebalance --dry-run\n  hpctl rebalance llama\n  hpctl rebalance llama --margin 0.3 "
     "-o json",
     rebalance_options, run_rebalance, false},
    {0},
};
