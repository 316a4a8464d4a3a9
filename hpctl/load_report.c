#include "hpctl/load_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hpctl/load_spread.h"
#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/timeline_files.h"

enum { OUTCOMES = LOAD_FAILED + 1, COLOUR_PREFILL = 0, COLOUR_DECODE = 1 };

/* ---- measures of a request ---- */

enum load_measure {
    MEASURE_TTFT,
    MEASURE_TPOT,
    MEASURE_END,
    MEASURE_QUEUE,
    MEASURE_PREFILL,
    MEASURE_PLANNED,
    MEASURE_DECODE,
    MEASURE_LATE,
    MEASURES
};

static const struct {
    const char *key, *shown;
} measures[] = {
    [MEASURE_TTFT] = {"ttft_s", "first token"},
    [MEASURE_TPOT] = {"tpot_s", "per token after it"},
    [MEASURE_END] = {"end_to_end_s", "whole answer"},
    [MEASURE_QUEUE] = {"queue_s", "  in the queue"},
    [MEASURE_PREFILL] = {"prefill_s", "  prefill"},
    [MEASURE_PLANNED] = {"planned_s", "  prefill alone, as planned"},
    [MEASURE_DECODE] = {"decode_s", "  decode"},
    [MEASURE_LATE] = {"sent_late_s", "sent late by hpctl"},
};

/* NAN where a request has none: an answer of one token has no time per token. */
static double measure_of(const struct load_run *run, size_t index, enum load_measure m)
{
    const struct load_result *r = &run->results[index];
    double at_s = run->plan->requests[index].at_s;
    switch (m) {
    case MEASURE_TTFT: return r->first_s - at_s;
    case MEASURE_TPOT: /* tokens held up on their way come at once, and were not made so */
        return r->answer_tokens > 1
                   ? fmax(r->end_s - r->first_s, r->decode_s) / (r->answer_tokens - 1)
                   : NAN;
    case MEASURE_END: return r->end_s - at_s;
    case MEASURE_QUEUE: return r->waited_s;
    case MEASURE_PREFILL: return r->prefill_s;
    case MEASURE_PLANNED: return r->planned_s > 0 ? r->planned_s : NAN;
    case MEASURE_DECODE: return r->decode_s;
    default: return r->sent_s - at_s;
    }
}

/* A request that is done within both targets. */
static bool load_result_good(const struct load_report *r, size_t index)
{
    double tpot_s = measure_of(r->run, index, MEASURE_TPOT);
    return r->run->results[index].outcome == LOAD_DONE &&
           measure_of(r->run, index, MEASURE_TTFT) <= r->ttft_s &&
           (isnan(tpot_s) || tpot_s <= r->tpot_s);
}

/* ---- percentiles ---- */

/* Of one measure over the requests that are done; `room` for all requests. */
static struct load_spread spread_of(const struct load_run *run, enum load_measure m, double *room)
{
    size_t n = 0;
    for (size_t i = 0; i < run->plan->n; i++) {
        double value = run->results[i].outcome == LOAD_DONE ? measure_of(run, i, m) : (double)NAN;
        if (!isnan(value))
            room[n++] = value;
    }
    return load_spread_of(room, n);
}

/* ---- counts ---- */

struct load_counts {
    size_t of[OUTCOMES], arrived, good;
    double prompt_tokens, cached_tokens, answer_tokens; /* of those that are done */
    double seconds; /* over which they arrived, as far as the load went */
};

static struct load_counts counts_of(const struct load_report *r)
{
    const struct load_run *run = r->run;
    struct load_counts c = {.seconds =
                                fmin(fmax(run->plan->seconds, 1e-3), fmax(run->seconds, 1e-3))};
    for (size_t i = 0; i < run->plan->n; i++) {
        const struct load_result *result = &run->results[i];
        if (run->interrupted && run->plan->requests[i].at_s > run->seconds)
            continue; /* it would have come after Ctrl-C */
        c.arrived++;
        c.of[result->outcome]++;
        c.good += load_result_good(r, i);
        if (result->outcome != LOAD_DONE)
            continue;
        c.prompt_tokens += run->plan->requests[i].prompt_tokens;
        c.cached_tokens += result->cached_tokens;
        c.answer_tokens += result->answer_tokens;
    }
    return c;
}

static size_t count_of_cause(const struct load_run *run, int cause)
{
    size_t n = 0;
    for (size_t i = 0; i < run->plan->n; i++)
        n += run->results[i].cause == cause;
    return n;
}

/* ---- JSON ---- */

static json_t *causes_json(const struct load_run *run)
{
    json_t *all = json_array();
    for (int i = 0; i < run->n_causes; i++)
        json_array_append_new(all, json_pack("{s:s, s:s, s:I}", "cause", run->causes[i].kind,
                                             "message", run->causes[i].text, "count",
                                             (json_int_t)count_of_cause(run, i)));
    return all;
}

static json_t *target_json(double seconds)
{
    return isfinite(seconds) ? json_real(seconds) : json_null();
}

json_t *load_report_json(const struct load_report *r)
{
    const struct load_run *run = r->run;
    const struct load_options *o = r->options;
    struct load_counts c = counts_of(r);
    double *room = malloc(run->plan->n * sizeof *room);
    if (!room)
        return NULL;
    json_t *out = json_pack(
        "{s:s, s:s, s:f, s:f, s:I, s:b, s:I}", "deployment", run->deployment, "arrivals",
        o->kind == ARRIVALS_TRACE ? o->file : arrivals_words[o->kind], "rate_per_s",
        (double)c.arrived / c.seconds, "seconds", c.seconds, "seed", (json_int_t)run->seed,
        "interrupted", run->interrupted, "requests", (json_int_t)c.arrived);
    for (int i = 0; i < OUTCOMES; i++)
        json_object_set_new(out, load_outcomes[i], json_integer((json_int_t)c.of[i]));
    json_object_set_new(out, "causes", causes_json(run));
    json_object_set_new(out, "targets",
                        json_pack("{s:o, s:o}", "ttft_s", target_json(r->ttft_s), "tpot_s",
                                  target_json(r->tpot_s)));
    json_object_set_new(out, "good", json_integer((json_int_t)c.good));
    json_object_set_new(out, "goodput_per_s", json_real((double)c.good / c.seconds));
    json_object_set_new(out, "attainment",
                        json_real(c.arrived ? (double)c.good / (double)c.arrived : 0));
    json_object_set_new(out, "wall_s", json_real(run->seconds));
    json_object_set_new(out, "prompt_tokens", json_real(c.prompt_tokens));
    json_object_set_new(out, "cached_tokens", json_real(c.cached_tokens));
    json_object_set_new(out, "answer_tokens", json_real(c.answer_tokens));
    json_object_set_new(out, "answer_tokens_per_s", json_real(c.answer_tokens / run->seconds));
    for (int m = 0; m < MEASURES; m++) {
        struct load_spread s = spread_of(run, (enum load_measure)m, room);
        json_object_set_new(out, measures[m].key, load_spread_json(&s));
    }
    free(room);
    return out;
}

/* ---- for people ---- */

static void print_counts(const struct load_report *r, const struct load_counts *c)
{
    const struct load_run *run = r->run;
    printf("%s: %zu requests in %s (%s, %.3g a second, seed %llu)%s: %zu done, %zu refused, %zu "
           "failed",
           run->deployment, c->arrived, shown_seconds(c->seconds).s,
           r->options->kind == ARRIVALS_TRACE ? r->options->file : arrivals_words[r->options->kind],
           (double)c->arrived / c->seconds, (unsigned long long)run->seed,
           run->interrupted ? ", interrupted" : "", c->of[LOAD_DONE], c->of[LOAD_REFUSED],
           c->of[LOAD_FAILED]);
    if (c->of[LOAD_OPEN])
        printf(", %zu without the end of their answer", c->of[LOAD_OPEN]);
    if (c->of[LOAD_UNSENT])
        printf(", %zu not sent", c->of[LOAD_UNSENT]);
    printf("\n");
    for (int i = 0; i < run->n_causes; i++)
        printf("  %zu x %s: %s\n", count_of_cause(run, i), run->causes[i].kind,
               run->causes[i].text);
}

static void print_goodput(const struct load_report *r, const struct load_counts *c)
{
    printf("\ngoodput %.3g requests a second, %.1f %% of all", (double)c->good / c->seconds,
           c->arrived ? 100 * (double)c->good / (double)c->arrived : 0);
    if (isfinite(r->ttft_s))
        printf(", within %s to the first token", shown_seconds(r->ttft_s).s);
    if (isfinite(r->tpot_s))
        printf("%s %s for each token after it", isfinite(r->ttft_s) ? " and" : ", within",
               shown_seconds(r->tpot_s).s);
    if (!isfinite(r->ttft_s) && !isfinite(r->tpot_s))
        printf(" (done in whatever time: --ttft and --tpot set targets)");
    printf("\n%.0f prompt tokens (%.0f were there already), %.0f of answers, %.1f a second\n",
           c->prompt_tokens, c->cached_tokens, c->answer_tokens,
           c->answer_tokens / r->run->seconds);
}

int load_report_print(const struct load_report *r, struct err *e)
{
    static const struct table_column columns[] = {{"", NULL, NULL},     {">P50", NULL, NULL},
                                                  {">P90", NULL, NULL}, {">P99", NULL, NULL},
                                                  {">MAX", NULL, NULL}, {NULL, NULL, NULL}};
    struct load_counts c = counts_of(r);
    double *room = malloc(r->run->plan->n * sizeof *room);
    struct table *t = table_create(columns);
    if (!room) {
        table_discard(&t);
        return err_no_memory(e, "a report");
    }
    print_counts(r, &c);
    for (int m = 0; m < MEASURES; m++) {
        struct load_spread s = spread_of(r->run, (enum load_measure)m, room);
        double shown[] = {s.p50, s.p90, s.p99, s.most};
        table_cell(t, "%s", measures[m].shown);
        for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
            table_cell(t, "%s", s.n ? shown_seconds(shown[i]).s : "-");
    }
    free(room);
    printf("\n");
    int rc = table_print(&t, NULL, e);
    print_goodput(r, &c);
    return rc;
}

/* ---- time lines ---- */

struct load_lane {
    int lane;
    double free_s; /* its last request ended then */
};

/* The first lane that is free at this time, or a new one; -1: no memory, or too many. */
static int lane_at(struct timeline *t, struct load_lane *lanes, int *n, double at_s, double end_s)
{
    int i = 0;
    while (i < *n && lanes[i].free_s > at_s)
        i++;
    if (i == TIMELINE_MAX_LANES)
        return -1;
    if (i == *n)
        lanes[(*n)++].lane = timeline_add_lane(t, "requests", shown_of("%d", i + 1).s);
    lanes[i].free_s = end_s;
    return lanes[i].lane;
}

static void request_draw(struct timeline *t, const struct load_run *run, size_t i, int lane)
{
    const struct load_result *r = &run->results[i];
    double at_s = run->plan->requests[i].at_s,
           begun_s = fmin(fmax(r->first_s - r->prefill_s, at_s), r->first_s);
    uint32_t tokens = run->plan->requests[i].prompt_tokens;
    if (r->outcome != LOAD_DONE) {
        timeline_add(t, lane, at_s, run->seconds < at_s ? at_s : run->seconds, TIMELINE_STALL,
                     "request %zu: %s", i, load_outcomes[r->outcome]);
        return;
    }
    timeline_add(t, lane, at_s, begun_s, TIMELINE_STALL, "request %zu waits", i);
    timeline_add(t, lane, begun_s, r->first_s, COLOUR_PREFILL, "request %zu: prefill of %u tokens",
                 i, tokens);
    timeline_add(t, lane, r->first_s, fmax(r->end_s, r->first_s), COLOUR_DECODE,
                 "request %zu: %u tokens", i, r->answer_tokens);
}

int load_report_draw(const struct load_report *r, const char *svg, const char *trace, struct err *e)
{
    const struct load_run *run = r->run;
    struct timeline t = {.title = run->deployment};
    struct load_lane *lanes = calloc(TIMELINE_MAX_LANES, sizeof *lanes);
    int n = 0;
    if (!lanes)
        return err_no_memory(e, "a picture");
    for (size_t i = 0; i < run->plan->n; i++) {
        bool done = run->results[i].outcome == LOAD_DONE;
        if (!done && run->results[i].outcome != LOAD_OPEN)
            continue;
        int lane = lane_at(&t, lanes, &n, run->plan->requests[i].at_s,
                           done ? run->results[i].end_s : run->seconds);
        if (lane >= 0)
            request_draw(&t, run, i, lane);
    }
    int rc = timeline_save(&t, svg, trace, e);
    timeline_free(&t);
    free(lanes);
    return rc;
}
