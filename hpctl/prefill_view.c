#include "hpctl/prefill_view.h"

#include <math.h>
#include <stdio.h>

#include "hpctl/shown.h"
#include "hpctl/table.h"
#include "hpctl/timeline_files.h"
#include "planners/pipeline/picture.h"

static const json_t *record_latest(const json_t *deployment)
{
    return json_array_get(json_object_get(json_object_get(deployment, "prefill"), "records"), 0);
}

static double stage_cell(const json_t *stage, const char *side, const char *what, size_t k)
{
    return json_number_value(
        json_array_get(json_object_get(json_object_get(stage, side), what), k));
}

/* Seconds of compute of a stage, and from the end of a slice's compute to its arrival at the next,
 * summed over slices. */
static double compute_s(const json_t *stage, const char *side, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += stage_cell(stage, side, "end_s", k) - stage_cell(stage, side, "start_s", k);
    return sum;
}

static double hop_s(const json_t *stage, const json_t *next, const char *side, size_t n)
{
    double sum = 0;
    for (size_t k = 0; next && k < n; k++)
        sum += stage_cell(next, side, "arrive_s", k) - stage_cell(stage, side, "end_s", k);
    return sum;
}

/* More digits than shown_seconds has: small differences are the point. */
static struct shown fine_seconds(double s)
{
    return fabs(s) < 1 ? shown_of("%.1f ms", s * 1e3) : shown_of("%.3f s", s);
}

static struct shown error_text(double measured, double planned)
{
    return planned > 0 ? shown_of("%+.1f %%", (measured / planned - 1) * 100) : shown_of("-");
}

static int print_stages(const json_t *stages, size_t n, bool planned, struct err *e)
{
    static const struct table_column columns[] = {
        {">STAGE", NULL, NULL},        {"AGENT", NULL, NULL},
        {">PLANNED", NULL, NULL},      {">MEASURED", NULL, NULL},
        {">ERROR", NULL, NULL},        {">HOP PLANNED", NULL, NULL},
        {">HOP MEASURED", NULL, NULL}, {0}};
    struct table *t = table_create(columns);
    for (size_t j = 0; j < json_array_size(stages); j++) {
        const json_t *s = json_array_get(stages, j), *next = json_array_get(stages, j + 1);
        double measured = compute_s(s, "measured", n),
               expected = planned ? compute_s(s, "planned", n) : 0;
        table_cell(t, "%zu", j);
        table_cell(t, "%s", string_member(s, "on"));
        table_cell(t, "%s", planned ? fine_seconds(expected).s : "-");
        table_cell(t, "%s", fine_seconds(measured).s);
        table_cell(t, "%s", error_text(measured, expected).s);
        table_cell(t, "%s", next && planned ? fine_seconds(hop_s(s, next, "planned", n)).s : "-");
        table_cell(t, "%s", next ? fine_seconds(hop_s(s, next, "measured", n)).s : "-");
    }
    return table_print(&t, NULL, e);
}

/* "measured 2.0 ms, planned 1.6 ms (+25.0 %)" */
static void print_compared(const json_t *sums)
{
    double measured = number_member(sums, "measured_s"), planned = number_member(sums, "planned_s");
    printf("measured %s, planned %s (%s)", fine_seconds(measured).s, fine_seconds(planned).s,
           error_text(measured, planned).s);
}

static void print_sums(const json_t *all)
{
    const json_t *first = json_object_get(all, "first");
    if (number_member(all, "count") > 0) {
        printf("%s prompt%s compared so far: ", shown_member(all, "count").s,
               number_member(all, "count") == 1 ? "" : "s");
        print_compared(all);
        printf("; profile corrected %s time%s\n", shown_member(all, "corrections").s,
               number_member(all, "corrections") == 1 ? "" : "s");
    }
    if (first) {
        printf("the first one after loading, which opened the connections, is not among them: ");
        print_compared(first);
        printf("\n");
    }
}

/* "the first 31 steps of its answer: measured 2.0 ms a step, planned 1.6 ms (+25.0 %)", and what
 * of that each stage took. */
static int print_decode(const json_t *d, struct err *e)
{
    size_t n = json_array_size(json_object_get(d, "steps"));
    double measured = number_member(d, "measured_s"), planned = number_member(d, "planned_s");
    if (!n)
        return 0;
    printf("\nthe first %zu step%s of its answer: measured %s a step", n, n == 1 ? "" : "s",
           fine_seconds(measured / (double)n).s);
    if (planned > 0)
        printf(", planned %s (%s)", fine_seconds(planned / (double)n).s,
               error_text(measured, planned).s);
    printf("%s\n", bool_member(d, "shared") ? ", beside other answers" : "");
    return print_stages(json_object_get(d, "stages"), n, planned > 0, e);
}

int prefill_view_print(const json_t *deployment, struct err *e)
{
    const json_t *r = record_latest(deployment), *all = json_object_get(deployment, "prefill");
    const json_t *stages = json_object_get(r, "stages");
    size_t n = json_array_size(json_object_get(r, "slices"));
    if (!r)
        return 0;
    bool planned = json_object_get(r, "planned_s") != NULL;
    printf("\nlast prompt: %s token%s", shown_member(r, "tokens").s,
           number_member(r, "tokens") == 1 ? "" : "s");
    if (number_member(r, "cached") > 0)
        printf(" after %s that were there", shown_member(r, "cached").s);
    printf(" in %zu slice%s, measured %s", n, n == 1 ? "" : "s",
           fine_seconds(number_member(r, "measured_s")).s);
    if (planned)
        printf(", planned %s (%s)", fine_seconds(number_member(r, "planned_s")).s,
               error_text(number_member(r, "measured_s"), number_member(r, "planned_s")).s);
    printf("%s%s\n", bool_member(r, "shared") ? ", beside other prompts" : "",
           bool_member(r, "loading") ? ", with the wait for weights that were still being loaded"
                                     : "");
    int rc = print_stages(stages, n, planned, e);
    if (rc == 0)
        rc = print_decode(json_object_get(r, "decode"), e);
    if (rc == 0)
        print_sums(all);
    return rc;
}

/* ---- pictures ---- */

static int plan_read(const json_t *r, struct arena *arena, struct plan_pipeline *p)
{
    const json_t *stages = json_object_get(r, "stages"), *slices = json_object_get(r, "slices");
    size_t n_stages = json_array_size(stages), n_slices = json_array_size(slices);
    *p = (struct plan_pipeline){.n_stages = (int)n_stages, .n_slices = (int)n_slices};
    p->stages = arena_alloc(arena, n_stages + 1, sizeof *p->stages);
    p->slices = arena_alloc(arena, n_slices + 1, sizeof *p->slices);
    if (!p->stages || !p->slices)
        return HP_ENOMEM;
    for (size_t j = 0; j < n_stages; j++) {
        const json_t *s = json_array_get(stages, j), *layers = json_object_get(s, "layers");
        p->stages[j] =
            (struct plan_stage){.device = arena_strdup(arena, string_member(s, "on")),
                                .first_layer = (int)json_integer_value(json_array_get(layers, 0)),
                                .end_layer = (int)json_integer_value(json_array_get(layers, 1))};
        if (!p->stages[j].device)
            return HP_ENOMEM;
    }
    for (size_t k = 0; k < n_slices; k++)
        p->slices[k] = (int)json_integer_value(json_array_get(slices, k));
    return 0;
}

/* A record says when slices arrive, which is the end of their hop; a hop begins when the slice is
 * done and the one before it has arrived. */
static int schedule_read(const json_t *r, const char *side, const struct plan_pipeline *p,
                         struct arena *arena, struct pipeline_schedule *out)
{
    size_t n = (size_t)p->n_slices, stages = (size_t)p->n_stages;
    const json_t *rows = json_object_get(r, "stages");
    struct pipeline_schedule s = {.n_stages = p->n_stages, .n_slices = p->n_slices};
    double **arrays[] = {&s.start_s, &s.end_s, &s.hop_start_s, &s.hop_end_s, &s.latency_s};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if ((*arrays[i] = arena_alloc(arena, stages * n + 1, sizeof(double))) == NULL)
            return HP_ENOMEM;
    for (size_t j = 0; j < stages; j++)
        for (size_t k = 0; k < n; k++) {
            const json_t *stage = json_array_get(rows, j), *next = json_array_get(rows, j + 1);
            size_t at = j * n + k;
            s.start_s[at] = stage_cell(stage, side, "start_s", k);
            s.end_s[at] = fmax(s.start_s[at], stage_cell(stage, side, "end_s", k));
            s.hop_start_s[at] = fmax(s.end_s[at], k ? s.hop_end_s[at - 1] : 0);
            s.hop_end_s[at] = next ? fmax(s.hop_start_s[at], stage_cell(next, side, "arrive_s", k))
                                   : s.hop_start_s[at];
        }
    *out = s;
    return 0;
}

int prefill_view_draw(const json_t *deployment, const char *svg, const char *trace, struct err *e)
{
    const json_t *r = record_latest(deployment);
    struct arena arena = {0};
    struct plan_pipeline plan;
    struct pipeline_schedule s;
    struct timeline t = {0};
    char title[200];
    if (!svg && !trace)
        return 0;
    if (!r)
        return err_set(e, HP_ENOENT, "nothing to draw: no prompt has run on \"%s\" yet",
                       string_member(deployment, "name"));
    bool planned = json_object_get(r, "planned_s") != NULL;
    snprintf(title, sizeof title, "%s, a prompt of %s tokens: measured %s%s%s",
             string_member(deployment, "name"), shown_member(r, "tokens").s,
             fine_seconds(number_member(r, "measured_s")).s, planned ? ", planned " : "",
             planned ? fine_seconds(number_member(r, "planned_s")).s : "");
    t.title = title;
    t.legend = "one colour a slice; between two stages the hop of each slice";
    int rc = plan_read(r, &arena, &plan);
    if (rc == 0 && planned && (rc = schedule_read(r, "planned", &plan, &arena, &s)) == 0)
        pipeline_picture_add(&t, &plan, &s, "planned", true);
    if (rc == 0 && (rc = schedule_read(r, "measured", &plan, &arena, &s)) == 0)
        pipeline_picture_add(&t, &plan, &s, "measured", true);
    if (rc < 0)
        err_set(e, rc, "out of memory while drawing");
    if (rc == 0)
        rc = timeline_save(&t, svg, trace, e);
    timeline_free(&t);
    arena_free(&arena);
    return rc;
}
