#include "hpctl/infer_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hpctl/load_spread.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"

enum { OUTCOMES = LOAD_FAILED + 1, ALL = -1 };

/* ---- measures of a request ---- */

enum infer_measure {
    INFER_END,
    INFER_SENT_LATE,
    INFER_BATCHED,
    INFER_PLANNED,
    INFER_COMPUTED,
    INFER_OFF,
    INFER_ANSWER,
    INFER_MEASURES
};

static const struct {
    const char *key, *shown;
} measures[] = {
    [INFER_END] = {"end_to_end_s", "arrival to answer"},
    [INFER_SENT_LATE] = {"sent_late_s", "sent late by hpctl"},
    [INFER_BATCHED] = {"batched_s", "waits until its batch leaves"},
    [INFER_PLANNED] = {"planned_s", "computed by then: planned"},
    [INFER_COMPUTED] = {"computed_s", "computed by then: measured"},
    [INFER_OFF] = {"off_plan_s", "  measured beyond planned"},
    [INFER_ANSWER] = {"answer_s", "computed to answered"},
};

static double infer_measure_of(const struct infer_run *run, size_t index, enum infer_measure m)
{
    const struct infer_result *r = &run->results[index];
    double at_s = run->plan->requests[index].at_s;
    const struct infer_stage *last = r->n_stages ? &r->stages[r->n_stages - 1] : NULL;
    switch (m) {
    case INFER_END: return r->end_s - at_s;
    case INFER_SENT_LATE: return r->sent_s - at_s;
    case INFER_BATCHED: return r->batched_s;
    case INFER_PLANNED: return last ? last->planned_s[1] : NAN;
    case INFER_COMPUTED: return last ? last->ran_s[1] : NAN;
    case INFER_OFF: return last ? last->ran_s[1] - last->planned_s[1] : NAN;
    default: return last ? r->total_s - last->ran_s[1] : NAN;
    }
}

/* Of one stage: on its way there, waiting there, computing, and that beside the plan. */
enum stage_measure {
    STAGE_TRANSFER,
    STAGE_WAITING,
    STAGE_COMPUTING,
    STAGE_PLANNED,
    STAGE_LATE,
    STAGE_MEASURES
};

static const char *const stage_measures[] = {[STAGE_TRANSFER] = "transfer_s",
                                             [STAGE_WAITING] = "waiting_s",
                                             [STAGE_COMPUTING] = "computing_s",
                                             [STAGE_PLANNED] = "planned_s",
                                             [STAGE_LATE] = "late_s"};

static double stage_measure_of(const struct infer_result *r, int stage, enum stage_measure m)
{
    const struct infer_stage *s = &r->stages[stage];
    switch (m) {
    case STAGE_TRANSFER: return s->arrived_s - (stage ? s[-1].ran_s[1] : r->batched_s);
    case STAGE_WAITING: return s->ran_s[0] - s->arrived_s;
    case STAGE_COMPUTING: return s->ran_s[1] - s->ran_s[0];
    case STAGE_PLANNED: return s->planned_s[1] - s->planned_s[0];
    default: return s->ran_s[0] - s->planned_s[0];
    }
}

static bool is_of(const struct infer_run *run, size_t i, int model)
{
    return (model == ALL || run->plan->requests[i].model == model) &&
           !(run->interrupted && run->plan->requests[i].at_s > run->seconds);
}

static bool is_good(const struct infer_run *run, size_t i)
{
    return run->results[i].outcome == LOAD_DONE &&
           infer_measure_of(run, i, INFER_END) <=
               run->target->models[run->plan->requests[i].model].slo_s;
}

/* ---- counts ---- */

struct infer_counts {
    size_t of[OUTCOMES], arrived, good, in_time;
    double samples; /* of the batches of those that are done */
    int stages;     /* the most that one took */
    double seconds; /* over which they arrived, as far as the load went */
};

static struct infer_counts infer_counts_of(const struct infer_run *run, int model)
{
    struct infer_counts c = {.seconds =
                                 fmin(fmax(run->plan->seconds, 1e-3), fmax(run->seconds, 1e-3))};
    for (size_t i = 0; i < run->plan->n; i++) {
        const struct infer_result *r = &run->results[i];
        if (!is_of(run, i, model))
            continue;
        c.arrived++;
        c.of[r->outcome]++;
        c.good += is_good(run, i);
        if (r->outcome != LOAD_DONE)
            continue;
        c.in_time += r->total_s <= run->target->models[run->plan->requests[i].model].slo_s;
        c.samples += r->samples;
        c.stages = r->n_stages > c.stages ? r->n_stages : c.stages;
    }
    return c;
}

static size_t causes_count(const struct infer_run *run, int cause, int model)
{
    size_t n = 0;
    for (size_t i = 0; i < run->plan->n; i++)
        n += run->results[i].cause == cause && is_of(run, i, model);
    return n;
}

static double part_of(size_t n, size_t all)
{
    return all ? (double)n / (double)all : 0;
}

/* ---- spreads; `room` for all requests ---- */

static struct load_spread measure_spread(const struct infer_run *run, enum infer_measure m,
                                         int model, double *room)
{
    size_t n = 0;
    for (size_t i = 0; i < run->plan->n; i++) {
        if (!is_of(run, i, model) || run->results[i].outcome != LOAD_DONE)
            continue;
        double value = infer_measure_of(run, i, m);
        if (!isnan(value))
            room[n++] = value;
    }
    return load_spread_of(room, n);
}

static struct load_spread stage_spread(const struct infer_run *run, int stage, enum stage_measure m,
                                       int model, double *room)
{
    size_t n = 0;
    for (size_t i = 0; i < run->plan->n; i++)
        if (is_of(run, i, model) && run->results[i].outcome == LOAD_DONE &&
            run->results[i].n_stages > stage)
            room[n++] = stage_measure_of(&run->results[i], stage, m);
    return load_spread_of(room, n);
}

/* ---- JSON ---- */

static json_t *causes_json(const struct infer_run *run, int model)
{
    json_t *all = json_array();
    for (int i = 0; i < run->n_causes; i++) {
        size_t n = causes_count(run, i, model);
        if (n > 0)
            json_array_append_new(all, json_pack("{s:s, s:s, s:I}", "cause", run->causes[i].kind,
                                                 "message", run->causes[i].text, "count",
                                                 (json_int_t)n));
    }
    return all;
}

static json_t *stages_json(const struct infer_run *run, int stages, int model, double *room)
{
    json_t *all = json_array();
    for (int s = 0; s < stages; s++) {
        json_t *one = json_pack("{s:i}", "stage", s);
        for (int m = 0; m < STAGE_MEASURES; m++) {
            struct load_spread spread = stage_spread(run, s, (enum stage_measure)m, model, room);
            json_object_set_new(one, stage_measures[m], load_spread_json(&spread));
        }
        json_array_append_new(all, one);
    }
    return all;
}

static json_t *part_json(const struct infer_run *run, int model, double *room)
{
    struct infer_counts c = infer_counts_of(run, model);
    json_t *out =
        json_pack("{s:I, s:f, s:I, s:f, s:f, s:I, s:f}", "requests", (json_int_t)c.arrived,
                  "rate_per_s", (double)c.arrived / c.seconds, "good", (json_int_t)c.good,
                  "goodput_per_s", (double)c.good / c.seconds, "attainment",
                  part_of(c.good, c.arrived), "in_time_at_coordinator", (json_int_t)c.in_time,
                  "mean_batch", c.of[LOAD_DONE] ? c.samples / (double)c.of[LOAD_DONE] : 0.0);
    for (int i = 0; i < OUTCOMES; i++)
        json_object_set_new(out, load_outcomes[i], json_integer((json_int_t)c.of[i]));
    json_object_set_new(out, "causes", causes_json(run, model));
    for (int m = 0; m < INFER_MEASURES; m++) {
        struct load_spread s = measure_spread(run, (enum infer_measure)m, model, room);
        json_object_set_new(out, measures[m].key, load_spread_json(&s));
    }
    json_object_set_new(out, "stages", stages_json(run, c.stages, model, room));
    return out;
}

static const char *arrivals_said(const struct infer_report *r)
{
    return r->options->kind == ARRIVALS_TRACE ? r->options->file : arrivals_words[r->options->kind];
}

json_t *infer_report_json(const struct infer_report *r)
{
    const struct infer_run *run = r->run;
    double *room = malloc(run->plan->n * sizeof *room);
    if (!room)
        return NULL;
    json_t *out = part_json(run, ALL, room), *models = json_array();
    json_object_set_new(out, "arrivals", json_string(arrivals_said(r)));
    json_object_set_new(out, "seconds", json_real(infer_counts_of(run, ALL).seconds));
    json_object_set_new(out, "seed", json_integer((json_int_t)r->options->seed));
    json_object_set_new(out, "interrupted", json_boolean(run->interrupted));
    json_object_set_new(out, "wall_s", json_real(run->seconds));
    json_object_set_new(out, "hpctl_processor_s", json_real(run->processor_s));
    for (int m = 0; m < run->target->n; m++) {
        const struct infer_target_model *t = &run->target->models[m];
        json_t *part = infer_counts_of(run, m).arrived ? part_json(run, m, room) : NULL;
        if (!part)
            continue;
        json_object_set_new(part, "name", json_string(t->name));
        json_object_set_new(part, "deadline_s", json_real(t->slo_s));
        json_object_set_new(part, "planned_per_s", json_real(t->planned_per_s));
        json_array_append_new(models, part);
    }
    json_object_set_new(out, "models", models);
    free(room);
    return out;
}

/* ---- for people ---- */

static void counts_print(const struct infer_report *r)
{
    const struct infer_run *run = r->run;
    struct infer_counts c = infer_counts_of(run, ALL);
    printf("%s: %zu requests in %s (%s, %.3g a second, seed %llu)%s: %zu done, %zu refused, %zu "
           "failed",
           r->name ? r->name : "all models", c.arrived, shown_seconds(c.seconds).s,
           arrivals_said(r), (double)c.arrived / c.seconds, (unsigned long long)r->options->seed,
           run->interrupted ? ", interrupted" : "", c.of[LOAD_DONE], c.of[LOAD_REFUSED],
           c.of[LOAD_FAILED]);
    if (c.of[LOAD_OPEN])
        printf(", %zu without an answer", c.of[LOAD_OPEN]);
    if (c.of[LOAD_UNSENT])
        printf(", %zu not sent", c.of[LOAD_UNSENT]);
    printf("\n");
    for (int i = 0; i < run->n_causes; i++)
        printf("  %zu x %s: %s\n", causes_count(run, i, ALL), run->causes[i].kind,
               run->causes[i].text);
    printf("\n");
}

static int models_print(const struct infer_report *r, struct err *e)
{
    static const struct table_column columns[] = {
        {"MODEL", NULL, NULL},    {">REQUESTS", NULL, NULL}, {">RATE", NULL, NULL},
        {">PLANNED", NULL, NULL}, {">DEADLINE", NULL, NULL}, {">GOOD", NULL, NULL},
        {">REFUSED", NULL, NULL}, {">BATCH", NULL, NULL},    {NULL, NULL, NULL}};
    const struct infer_run *run = r->run;
    struct table *t = table_create(columns);
    for (int m = 0; m < run->target->n; m++) {
        const struct infer_target_model *to = &run->target->models[m];
        struct infer_counts c = infer_counts_of(run, m);
        if (c.arrived == 0)
            continue;
        table_cell(t, "%s", to->name);
        table_cell(t, "%zu", c.arrived);
        table_cell(t, "%.1f/s", (double)c.arrived / c.seconds);
        table_cell(t, "%.1f/s", to->planned_per_s);
        table_cell(t, "%s", shown_seconds(to->slo_s).s);
        table_cell(t, "%.2f %%", 100 * part_of(c.good, c.arrived));
        table_cell(t, "%zu", c.of[LOAD_REFUSED]);
        table_cell(t, "%.2f", c.of[LOAD_DONE] ? c.samples / (double)c.of[LOAD_DONE] : 0.0);
    }
    return table_print(&t, NULL, e);
}

static int measures_print(const struct infer_run *run, double *room, struct err *e)
{
    static const struct table_column columns[] = {{"", NULL, NULL},     {">P50", NULL, NULL},
                                                  {">P90", NULL, NULL}, {">P99", NULL, NULL},
                                                  {">MAX", NULL, NULL}, {NULL, NULL, NULL}};
    struct table *t = table_create(columns);
    for (int m = 0; m < INFER_MEASURES; m++) {
        struct load_spread s = measure_spread(run, (enum infer_measure)m, ALL, room);
        double shown[] = {s.p50, s.p90, s.p99, s.most};
        table_cell(t, "%s", measures[m].shown);
        for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
            table_cell(t, "%s", s.n ? shown_seconds(shown[i]).s : "-");
    }
    printf("\n");
    return table_print(&t, NULL, e);
}

static int stages_print(const struct infer_run *run, double *room, struct err *e)
{
    static const struct table_column columns[] = {
        {">STAGE", NULL, NULL},         {">TRANSFER", NULL, NULL}, {">WAITS", NULL, NULL},
        {">COMPUTES", NULL, NULL},      {">PLANNED", NULL, NULL},  {">BEGINS LATE", NULL, NULL},
        {"(median, 99 %)", NULL, NULL}, {NULL, NULL, NULL}};
    struct table *t = table_create(columns);
    int stages = infer_counts_of(run, ALL).stages;
    for (int s = 0; s < stages; s++) {
        table_cell(t, "%d", s);
        for (int m = 0; m < STAGE_MEASURES; m++) {
            struct load_spread spread = stage_spread(run, s, (enum stage_measure)m, ALL, room);
            table_cell(t, "%s, %s", shown_seconds(spread.p50).s, shown_seconds(spread.p99).s);
        }
        table_cell(t, "%s", "");
    }
    if (stages == 0) {
        table_discard(&t);
        return 0;
    }
    printf("\n");
    return table_print(&t, NULL, e);
}

int infer_report_print(const struct infer_report *r, struct err *e)
{
    struct infer_counts c = infer_counts_of(r->run, ALL);
    double *room = malloc(r->run->plan->n * sizeof *room);
    if (!room)
        return err_no_memory(e, "a report");
    counts_print(r);
    int rc = models_print(r, e);
    rc = rc < 0 ? rc : measures_print(r->run, room, e);
    rc = rc < 0 ? rc : stages_print(r->run, room, e);
    free(room);
    printf("\ngoodput %.4g requests a second; %.2f %% of all were answered within their deadline\n",
           (double)c.good / c.seconds, 100 * part_of(c.good, c.arrived));
    return rc;
}
