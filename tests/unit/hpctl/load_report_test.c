/* What is said of a load, from results made by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hpctl/load_report.h"
#include "hpctl/shown.h"
#include "tests/test.h"

enum { REQUESTS = 104 };

struct report_bed {
    struct load_request requests[REQUESTS];
    struct load_result results[REQUESTS];
    struct load_options options;
    struct load_plan plan;
    struct load_run run;
    struct load_report report;
};

/* A hundred answers of 11 tokens, of which number i took (i + 1) ms to the first token and as many
 * for each after it; then one refused, one failed, one open and one that was not sent. */
static void bed_make(struct report_bed *b)
{
    *b = (struct report_bed){.options = {.kind = ARRIVALS_UNIFORM, .rate_per_s = 10},
                             .plan = {.n = REQUESTS, .seconds = 10.4},
                             .run = {.deployment = "demo", .seconds = 12, .n_causes = 3},
                             .report = {.ttft_s = INFINITY, .tpot_s = INFINITY}};
    for (int i = 0; i < REQUESTS; i++) {
        double at_s = 0.1 * i, step_s = 1e-3 * (i + 1);
        b->requests[i] = (struct load_request){at_s, 20, 11, (size_t)i};
        b->results[i] = (struct load_result){.outcome = LOAD_DONE,
                                             .cause = -1,
                                             .sent_s = at_s,
                                             .first_s = at_s + step_s,
                                             .end_s = at_s + 11 * step_s,
                                             .answer_tokens = 11,
                                             .waited_s = 0.25,
                                             .prefill_s = step_s,
                                             .planned_s = i < 50 ? 0.5 * step_s : 0,
                                             .decode_s = 10 * step_s};
    }
    static const enum load_outcome last[] = {LOAD_REFUSED, LOAD_FAILED, LOAD_OPEN, LOAD_UNSENT};
    for (int i = 0; i < 4; i++) {
        b->results[100 + i].outcome = last[i];
        b->results[100 + i].cause = last[i] == LOAD_OPEN ? -1 : i == 3 ? 2 : i;
    }
    strcpy(b->run.causes[0].kind, "429 busy");
    strcpy(b->run.causes[1].kind, "connection");
    strcpy(b->run.causes[2].kind, "hpctl");
    b->plan.requests = b->requests;
    b->run.results = b->results;
    b->run.plan = &b->plan;
    b->report.options = &b->options;
    b->report.run = &b->run;
}

static double number_at(const json_t *o, const char *key, const char *inner)
{
    const json_t *v = json_object_get(o, key);
    return json_number_value(inner ? json_object_get(v, inner) : v);
}

static void close_to(double got, double want)
{
    if (!(fabs(got - want) < 1e-9))
        fail_msg("%.12g, expected %.12g", got, want);
}

TEST(percentiles_and_counts_are_those_of_the_results)
{
    struct report_bed b;
    bed_make(&b);
    json_t *o = load_report_json(&b.report);
    close_to(number_at(o, "requests", NULL), 104);
    close_to(number_at(o, "done", NULL), 100);
    close_to(number_at(o, "refused", NULL), 1);
    close_to(number_at(o, "failed", NULL), 1);
    close_to(number_at(o, "open", NULL), 1);
    close_to(number_at(o, "unsent", NULL), 1);
    close_to(number_at(o, "ttft_s", "p50"), 0.050);
    close_to(number_at(o, "ttft_s", "p90"), 0.090);
    close_to(number_at(o, "ttft_s", "p99"), 0.099);
    close_to(number_at(o, "ttft_s", "max"), 0.100);
    close_to(number_at(o, "ttft_s", "mean"), 0.0505);
    close_to(number_at(o, "tpot_s", "p50"), 0.050);
    close_to(number_at(o, "end_to_end_s", "max"), 1.1);
    close_to(number_at(o, "queue_s", "p50"), 0.25);
    close_to(number_at(o, "prefill_s", "p50"), 0.050);
    close_to(number_at(o, "planned_s", "max"), 0.025); /* of those of which it is known */
    close_to(number_at(o, "answer_tokens", NULL), 1100);
    close_to(number_at(o, "rate_per_s", NULL), 10);
    const json_t *causes = json_object_get(o, "causes");
    assert_int_equal(json_array_size(causes), 3);
    assert_string_equal(string_member(json_array_get(causes, 0), "cause"), "429 busy");
    close_to(number_at(json_array_get(causes, 0), "count", NULL), 1);
    json_decref(o);
}

/* The last tokens of a hundred answers come together with the first: what the coordinator says of
 * their making counts. */
TEST(tokens_that_come_at_once_were_not_made_at_once)
{
    struct report_bed b;
    bed_make(&b);
    for (int i = 0; i < 100; i++)
        b.results[i].end_s = b.results[i].first_s;
    b.report.tpot_s = 0.0305;
    json_t *o = load_report_json(&b.report);
    close_to(number_at(o, "tpot_s", "p50"), 0.050);
    close_to(number_at(o, "good", NULL), 30);
    json_decref(o);
}

TEST(goodput_counts_what_is_within_both_targets)
{
    static const struct {
        double ttft_s, tpot_s;
        int good;
    } cases[] = {{INFINITY, INFINITY, 100}, {0.0405, INFINITY, 40}, {INFINITY, 0.0305, 30},
                 {0.0405, 0.0305, 30},      {0.0205, 0.0305, 20},   {1e-9, INFINITY, 0}};
    struct report_bed b;
    bed_make(&b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        b.report.ttft_s = cases[i].ttft_s;
        b.report.tpot_s = cases[i].tpot_s;
        json_t *o = load_report_json(&b.report);
        close_to(number_at(o, "good", NULL), cases[i].good);
        close_to(number_at(o, "goodput_per_s", NULL), cases[i].good / 10.4);
        close_to(number_at(o, "attainment", NULL), cases[i].good / 104.0);
        json_decref(o);
    }
}

TEST(an_answer_of_one_token_has_no_time_per_token)
{
    struct report_bed b;
    bed_make(&b);
    for (int i = 0; i < REQUESTS; i++)
        b.results[i].answer_tokens = 1;
    b.report.tpot_s = 1e-9;
    json_t *o = load_report_json(&b.report);
    close_to(number_at(o, "good", NULL), 100);
    close_to(number_at(o, "tpot_s", "max"), 0);
    json_decref(o);
}

TEST(after_an_interruption_what_never_arrived_does_not_count)
{
    struct report_bed b;
    bed_make(&b);
    b.run.interrupted = true;
    b.run.seconds = 4.95;
    for (int i = 50; i < REQUESTS; i++)
        b.results[i] = (struct load_result){.cause = -1};
    json_t *o = load_report_json(&b.report);
    assert_true(json_is_true(json_object_get(o, "interrupted")));
    close_to(number_at(o, "requests", NULL), 50);
    close_to(number_at(o, "seconds", NULL), 4.95);
    close_to(number_at(o, "attainment", NULL), 1);
    json_decref(o);
}

TEST(every_request_that_was_sent_is_drawn)
{
    struct report_bed b;
    char path[] = "/tmp/hp-load-XXXXXX";
    json_error_t wrong;
    size_t i, waits = 0, open = 0;
    json_t *event;
    close(mkstemp(path));
    bed_make(&b);
    assert_int_equal(load_report_draw(&b.report, NULL, path, NULL), 0);
    json_t *trace = json_load_file(path, 0, &wrong);
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        waits += strstr(string_member(event, "name"), "waits") != NULL;
        open += strstr(string_member(event, "name"), ": open") != NULL;
    }
    assert_int_equal(waits, 100);
    assert_int_equal(open, 1);
    json_decref(trace);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_and_counts_are_those_of_the_results),
        cmocka_unit_test(tokens_that_come_at_once_were_not_made_at_once),
        cmocka_unit_test(goodput_counts_what_is_within_both_targets),
        cmocka_unit_test(an_answer_of_one_token_has_no_time_per_token),
        cmocka_unit_test(after_an_interruption_what_never_arrived_does_not_count),
        cmocka_unit_test(every_request_that_was_sent_is_drawn),
    };
    return cmocka_run_group_tests_name("load report", tests, NULL, NULL);
}
