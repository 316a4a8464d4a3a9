#include "hpctl/simulate_output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fs.h"
#include "common/svg.h"
#include "common/vector.h"
#include "hpctl/shown.h"

/* Of virtual time, in the picture. */
#define PICTURE_S 0.4

/* Least requests per second in time / weight, over the models that had requests. */
static double served_normalized(const struct simulate_report *r)
{
    double least = INFINITY;
    for (int m = 0; m < r->t->n_models; m++)
        if (r->result->models[m].arrived > 0)
            least = fmin(least, (double)r->result->models[m].in_time / r->seconds /
                                    r->t->models[m].weight);
    return isfinite(least) ? least : 0;
}

static double kind_utilization(const struct simulate_report *r, int kind)
{
    double stock = r->t->devices[kind] * r->result->span_s;
    return stock > 0 ? r->result->busy_s[kind] / stock : 0;
}

static uint64_t requests_of(const struct simulate_result *r)
{
    uint64_t n = 0;
    for (int m = 0; m < r->n_models; m++)
        n += r->models[m].arrived;
    return n;
}

static double least_attainment(const struct simulate_result *r)
{
    double least = 1;
    for (int m = 0; m < r->n_models; m++)
        least = fmin(least, simulate_attainment(&r->models[m]));
    return least;
}

static double mean_latency_s(const struct simulate_model *m)
{
    uint64_t served = m->in_time + m->late;
    return served ? m->latency_sum_s / (double)served : 0;
}

static double mean_batch(const struct simulate_model *m)
{
    return m->batches ? (double)(m->in_time + m->late) / (double)m->batches : 0;
}

void simulate_report_print(const struct simulate_report *r)
{
    printf("%s scheduler, %s arrivals, load %.3g, %llu requests in %.3g s of virtual time\n\n",
           simulate_scheduler_words[r->options->scheduler], r->arrivals, r->load,
           (unsigned long long)requests_of(r->result), r->result->span_s);
    printf("  %-14s %10s %10s %10s %8s %8s %8s %8s %8s %7s\n", "model", "requests", "in time",
           "dropped", "late", "p50 ms", "p90 ms", "p99 ms", "SLO ms", "batch");
    for (int m = 0; m < r->t->n_models; m++) {
        const struct simulate_model *s = &r->result->models[m];
        if (s->arrived == 0)
            continue;
        printf("  %-14s %10llu %8.3f %% %10llu %8llu %8.2f %8.2f %8.2f %8.2f %7.2f\n",
               r->t->models[m].name, (unsigned long long)s->arrived, 100 * simulate_attainment(s),
               (unsigned long long)s->dropped, (unsigned long long)s->late,
               1e3 * simulate_percentile_s(s, 0.5), 1e3 * simulate_percentile_s(s, 0.9),
               1e3 * simulate_percentile_s(s, 0.99), (double)r->t->models[m].slo_ns * 1e-6,
               mean_batch(s));
    }
    printf("\n");
    for (int k = 0; k < r->t->n_kinds; k++)
        if (r->t->devices[k] > 0)
            printf("  %-6s %4d devices, busy %.1f %%\n", r->t->kinds[k], r->t->devices[k],
                   100 * kind_utilization(r, k));
    printf("\n%.3g million requests per second of wall time\n",
           (double)requests_of(r->result) / r->wall_s / 1e6);
}

json_t *simulate_report_json(const struct simulate_report *r)
{
    json_t *models = json_array(), *busy = json_object();
    for (int m = 0; m < r->t->n_models; m++) {
        const struct simulate_model *s = &r->result->models[m];
        json_array_append_new(
            models,
            json_pack("{s:s, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:{s:f, s:f, s:f, s:f, s:f}}",
                      "name", r->t->models[m].name, "slo_s", (double)r->t->models[m].slo_ns * 1e-9,
                      "arrived", (json_int_t)s->arrived, "in_time", (json_int_t)s->in_time, "late",
                      (json_int_t)s->late, "dropped", (json_int_t)s->dropped, "attainment",
                      simulate_attainment(s), "mean_batch", mean_batch(s), "latency_s", "mean",
                      mean_latency_s(s), "p50", simulate_percentile_s(s, 0.5), "p90",
                      simulate_percentile_s(s, 0.9), "p99", simulate_percentile_s(s, 0.99), "p999",
                      simulate_percentile_s(s, 0.999)));
    }
    for (int k = 0; k < r->t->n_kinds; k++)
        json_object_set_new(busy, r->t->kinds[k], json_real(kind_utilization(r, k)));
    return json_pack("{s:s, s:s, s:f, s:f, s:I, s:I, s:f, s:f, s:o, s:o, s:f, s:f, s:I}",
                     "scheduler", simulate_scheduler_words[r->options->scheduler], "arrivals",
                     r->arrivals, "load", r->load, "seconds", r->seconds, "seed",
                     (json_int_t)r->seed, "requests", (json_int_t)requests_of(r->result),
                     "attainment", least_attainment(r->result), "served_throughput_per_s",
                     served_normalized(r), "models", models, "utilization", busy, "wall_s",
                     r->wall_s, "requests_per_wall_s", (double)requests_of(r->result) / r->wall_s,
                     "probes", (json_int_t)r->result->probes);
}

int simulate_report_csv(const struct simulate_report *r, const char *file, struct err *e)
{
    struct buffer b = {0};
    buffer_printf(&b,
                  "model,load,arrived,in_time,late,dropped,attainment,mean_s,p50_s,p90_s,p99_s\n");
    for (int m = 0; m < r->t->n_models; m++) {
        const struct simulate_model *s = &r->result->models[m];
        buffer_printf(&b, "%s,%g,%llu,%llu,%llu,%llu,%.6f,%.6f,%.6f,%.6f,%.6f\n",
                      r->t->models[m].name, r->load, (unsigned long long)s->arrived,
                      (unsigned long long)s->in_time, (unsigned long long)s->late,
                      (unsigned long long)s->dropped, simulate_attainment(s), mean_latency_s(s),
                      simulate_percentile_s(s, 0.5), simulate_percentile_s(s, 0.9),
                      simulate_percentile_s(s, 0.99));
    }
    return fs_buffer_save(file, &b, e);
}

/* ---- picture of one load ---- */

static void lanes_make(struct simulate_picture *p)
{
    p->lanes = malloc(((size_t)p->t->n_shares + 1) * sizeof *p->lanes);
    for (int i = 0; p->lanes && i < p->t->n_pipelines; i++) {
        const struct dispatch_pipeline *pl = &p->t->pipelines[i];
        for (int s = 0; s < pl->n_stages; s++)
            for (int k = 0; k < pl->stages[s].n_shares; k++) {
                char group[128], name[96];
                int share = pl->stages[s].first_share + k;
                snprintf(group, sizeof group, "%.60s pipeline %d stage %d",
                         p->t->models[pl->model].name, i - p->t->models[pl->model].first_pipeline,
                         s);
                snprintf(name, sizeof name, "%.60s %d", p->t->kinds[pl->stages[s].kind],
                         p->t->shares[share].device);
                p->lanes[share] = p->t->n_shares <= TIMELINE_MAX_LANES
                                      ? timeline_add_lane(&p->timeline, group, name)
                                      : -1;
            }
    }
}

void simulate_picture_add(void *ctx, int model, int pipeline, int stage, int share, uint32_t batch,
                          int n, int64_t start_ns, int64_t end_ns)
{
    struct simulate_picture *p = ctx;
    if (!p->lanes)
        lanes_make(p);
    if (p->end_ns == 0)
        p->end_ns = start_ns + (int64_t)(PICTURE_S * 1e9);
    if (!p->lanes || p->lanes[share] < 0 || start_ns >= p->end_ns)
        return;
    timeline_add(&p->timeline, p->lanes[share], (double)start_ns * 1e-9, (double)end_ns * 1e-9,
                 (int)(batch % 1000), "%s pipeline %d stage %d: batch %u of %d",
                 p->t->models[model].name, pipeline, stage, batch, n);
}

int simulate_picture_save(struct simulate_picture *p, const char *file, bool trace, struct err *e)
{
    struct buffer b = {0};
    p->timeline.title = "The first 0.4 s";
    p->timeline.legend =
        "one row a share of a device, under its pipeline and stage; one colour a batch";
    int rc = trace ? timeline_write_trace(&p->timeline, &b) : timeline_write_svg(&p->timeline, &b);
    if (rc < 0) {
        buffer_free(&b);
        return err_set(e, rc, "out of memory while drawing");
    }
    return fs_buffer_save(file, &b, e);
}

void simulate_picture_free(struct simulate_picture *p)
{
    timeline_free(&p->timeline);
    free(p->lanes);
}

/* ---- sweep ---- */

int simulate_sweep_add(struct simulate_sweep *s, int row, double load, double attainment,
                       struct err *e)
{
    struct simulate_sweep_point point = {row, load, attainment};
    return vector_push(s->points, s->n_points, s->room, point) ? 0 : err_no_memory(e, "the sweep");
}

static const char *row_name(const struct simulate_sweep *s, int row)
{
    return row == s->n_models ? "all together" : s->t->models[row].name;
}

static bool row_used(const struct simulate_sweep *s, int row)
{
    return s->only_model < 0 || s->only_model == row;
}

static bool row_tried(const struct simulate_sweep *s, int row)
{
    for (int i = 0; i < s->n_points; i++)
        if (s->points[i].row == row)
            return true;
    return false;
}

void simulate_sweep_print(const struct simulate_sweep *s)
{
    printf("highest load at %.3g %% attainment; %s scheduler, %s arrivals, %g s each\n\n",
           s->target * 100, s->scheduler, s->arrivals, s->seconds);
    printf("  %-16s %10s %14s   attainment by load\n", "model", "load", "requests/s");
    for (int row = 0; row <= s->n_models; row++) {
        if (!row_used(s, row) || !row_tried(s, row))
            continue;
        printf("  %-16s %8.0f %% ", row_name(s, row), 100 * s->max_load[row]);
        if (row < s->n_models)
            printf("%14.1f  ", s->max_load[row] * s->t->models[row].planned_rate);
        else
            printf("%14s  ", "");
        for (int i = 0; i < s->n_points; i++)
            if (s->points[i].row == row)
                printf(" %.0f%%:%.4f", 100 * s->points[i].load, s->points[i].attainment);
        printf("\n");
    }
}

json_t *simulate_sweep_json(const struct simulate_sweep *s)
{
    json_t *models = json_array(), *points = json_array();
    for (int row = 0; row < s->n_models; row++)
        if (row_used(s, row) && row_tried(s, row))
            json_array_append_new(models,
                                  json_pack("{s:s, s:f, s:f}", "name", s->t->models[row].name,
                                            "max_load", s->max_load[row], "max_throughput_per_s",
                                            s->max_load[row] * s->t->models[row].planned_rate));
    for (int i = 0; i < s->n_points; i++)
        json_array_append_new(
            points, json_pack("{s:s, s:f, s:f}", "model", row_name(s, s->points[i].row), "load",
                              s->points[i].load, "attainment", s->points[i].attainment));
    json_t *o = json_pack("{s:s, s:s, s:f, s:f, s:I, s:o, s:o}", "scheduler", s->scheduler,
                          "arrivals", s->arrivals, "target", s->target, "seconds", s->seconds,
                          "seed", (json_int_t)s->seed, "models", models, "points", points);
    if (s->only_model < 0)
        json_object_set_new(o, "max_load", json_real(s->max_load[s->n_models]));
    else
        json_object_set_new(o, "max_load", json_real(s->max_load[s->only_model]));
    return o;
}

int simulate_sweep_csv(const struct simulate_sweep *s, const char *file, struct err *e)
{
    struct buffer b = {0};
    buffer_printf(&b, "model,load,attainment\n");
    for (int i = 0; i < s->n_points; i++)
        buffer_printf(&b, "%s,%g,%.6f\n", row_name(s, s->points[i].row), s->points[i].load,
                      s->points[i].attainment);
    return fs_buffer_save(file, &b, e);
}

enum {
    SWEEP_WIDTH = 760,
    SWEEP_HEIGHT = 420,
    SWEEP_LEFT = 64,
    SWEEP_RIGHT = 520,
    SWEEP_TOP = 56,
    SWEEP_BOTTOM = 370,
    SWEEP_ROW = 20,
    SWEEP_TICKS = 5
};

static const struct svg_font font_title = {.size = 15, .colour = SVG_INK, .bold = true},
                             font_tick = {.size = 11, .colour = SVG_MUTED, .anchor = SVG_MIDDLE},
                             font_side = {.size = 11, .colour = SVG_MUTED, .anchor = SVG_END},
                             font_name = {.size = 12, .colour = SVG_INK};

/* What the axes show: loads from 0, attainment from a round figure below the least. */
struct sweep_axes {
    double most_load, bottom;
};

static double sweep_x(const struct sweep_axes *a, double load)
{
    return SWEEP_LEFT + (SWEEP_RIGHT - SWEEP_LEFT) * load / a->most_load;
}

static double sweep_y(const struct sweep_axes *a, double attainment)
{
    return SWEEP_BOTTOM - (SWEEP_BOTTOM - SWEEP_TOP) * (attainment - a->bottom) / (1 - a->bottom);
}

static void sweep_line(struct buffer *b, double x1, double y1, double x2, double y2,
                       const char *stroke)
{
    buffer_printf(b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1,
                  y1, x2, y2, stroke);
}

static void sweep_grid(struct buffer *b, const struct simulate_sweep *s, const struct sweep_axes *a)
{
    for (int i = 0; i <= SWEEP_TICKS; i++) {
        double load = a->most_load * i / SWEEP_TICKS,
               attainment = a->bottom + (1 - a->bottom) * i / SWEEP_TICKS;
        sweep_line(b, sweep_x(a, load), SWEEP_TOP, sweep_x(a, load), SWEEP_BOTTOM, SVG_LINE);
        sweep_line(b, SWEEP_LEFT, sweep_y(a, attainment), SWEEP_RIGHT, sweep_y(a, attainment),
                   SVG_LINE);
        svg_text(b, sweep_x(a, load), SWEEP_BOTTOM + 16, &font_tick,
                 shown_of("%.3g %%", 100 * load).s);
        svg_text(b, SWEEP_LEFT - 6, sweep_y(a, attainment) + 4, &font_side,
                 shown_of("%.4g %%", 100 * attainment).s);
    }
    svg_text(b, (SWEEP_LEFT + SWEEP_RIGHT) / 2.0, SWEEP_BOTTOM + 36, &font_tick,
             "load, as a part of the planned throughput");
    sweep_line(b, SWEEP_LEFT, sweep_y(a, s->target), SWEEP_RIGHT, sweep_y(a, s->target),
               "#c62828\" stroke-dasharray=\"5 4");
}

/* Marks grow with the rows, and stand around each other where two are at one place. */
static void sweep_row_draw(struct buffer *b, const struct simulate_sweep *s,
                           const struct sweep_axes *a, int row, int number)
{
    struct shown colour = shown_of("hsl(%d,65%%,38%%)", (210 + row * 67) % 360);
    double y = SWEEP_TOP + 12 + (number + 1) * SWEEP_ROW;
    buffer_printf(b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
                  colour.s);
    for (int i = 0; i < s->n_points; i++)
        if (s->points[i].row == row)
            buffer_printf(b, "%.1f,%.1f ", sweep_x(a, s->points[i].load),
                          sweep_y(a, s->points[i].attainment));
    buffer_printf(b, "\"/>\n<g fill=\"none\" stroke=\"%s\" stroke-width=\"2\">\n", colour.s);
    for (int i = 0; i < s->n_points; i++)
        if (s->points[i].row == row)
            buffer_printf(b,
                          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"><title>%.3g %%: "
                          "%.4f</title></circle>\n",
                          sweep_x(a, s->points[i].load), sweep_y(a, s->points[i].attainment),
                          3 + 2 * (number % 6), 100 * s->points[i].load, s->points[i].attainment);
    buffer_printf(b, "<circle cx=\"%d\" cy=\"%.1f\" r=\"5\"/></g>\n", SWEEP_RIGHT + 26, y - 4);
    svg_text_fit(b, SWEEP_RIGHT + 40, y, &font_name, SWEEP_WIDTH - SWEEP_RIGHT - 52,
                 shown_of("%.100s: %.0f %%", row_name(s, row), 100 * s->max_load[row]).s);
}

int simulate_sweep_svg(const struct simulate_sweep *s, const char *file, struct err *e)
{
    struct buffer b = {0};
    struct sweep_axes a = {0};
    double least = 1;
    int rows = 0;
    for (int i = 0; i < s->n_points; i++) {
        least = fmin(least, s->points[i].attainment);
        a.most_load = fmax(a.most_load, s->points[i].load);
    }
    a.bottom = fmax(0, fmin(0.95, floor(fmin(least, s->target) * 20 - 0.5) / 20));
    for (int row = 0; row <= s->n_models; row++)
        rows += row_used(s, row) && row_tried(s, row);
    svg_begin(&b, SWEEP_WIDTH, fmax(SWEEP_HEIGHT, SWEEP_TOP + 40 + (rows + 1) * SWEEP_ROW));
    svg_text_fit(&b, 12, 26, &font_title, SWEEP_WIDTH - 24,
                 shown_of("requests in time by load; %s scheduler, %s arrivals, %g s each",
                          s->scheduler, s->arrivals, s->seconds)
                     .s);
    sweep_grid(&b, s, &a);
    svg_text_fit(&b, SWEEP_RIGHT + 20, SWEEP_TOP + 8, &font_name, SWEEP_WIDTH - SWEEP_RIGHT - 32,
                 shown_of("highest load at %.4g %%", 100 * s->target).s);
    for (int row = 0, drawn = 0; row <= s->n_models; row++)
        if (row_used(s, row) && row_tried(s, row))
            sweep_row_draw(&b, s, &a, row, drawn++);
    svg_end(&b);
    return fs_buffer_save(file, &b, e);
}

void simulate_sweep_free(struct simulate_sweep *s)
{
    free(s->points);
    s->points = NULL;
}
