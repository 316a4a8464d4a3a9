#include "hpctl/simulate_output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fs.h"
#include "common/vector.h"

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
    p->timeline.title = "The first 0.4 s; one row a share, one colour a batch";
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

int simulate_sweep_svg(const struct simulate_sweep *s, const char *file, struct err *e)
{
    struct buffer b = {0};
    double least = 1, most_load = 0;
    for (int i = 0; i < s->n_points; i++) {
        least = fmin(least, s->points[i].attainment);
        most_load = fmax(most_load, s->points[i].load);
    }
    double bottom = fmin(0.95, floor(least * 20) / 20), range = 1 - bottom;
    buffer_printf(
        &b,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"380\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n"
        "<text x=\"60\" y=\"20\">attainment by load (part of the planned throughput)</text>\n"
        "<rect x=\"60\" y=\"30\" width=\"420\" height=\"300\" fill=\"none\" stroke=\"#888\"/>\n");
    double target_y = 330 - 300 * (s->target - bottom) / range;
    buffer_printf(&b,
                  "<line x1=\"60\" x2=\"480\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#c00\" "
                  "stroke-dasharray=\"4\"/>\n",
                  target_y, target_y);
    buffer_printf(&b,
                  "<text x=\"10\" y=\"40\">100 %%</text><text x=\"10\" y=\"330\">%.0f "
                  "%%</text><text x=\"455\" y=\"346\">%.0f %%</text>\n",
                  bottom * 100, most_load * 100);
    for (int row = 0, drawn = 0; row <= s->n_models; row++) {
        if (!row_used(s, row) || !row_tried(s, row))
            continue;
        buffer_printf(&b, "<g fill=\"hsl(%d,60%%,45%%)\"><text x=\"495\" y=\"%d\">", row * 67 % 360,
                      50 + 16 * drawn++);
        for (const char *c = row_name(s, row); *c; c++)
            if (strchr("<>&", *c))
                buffer_printf(&b, "_");
            else
                buffer_append(&b, c, 1);
        buffer_printf(&b, ": %.0f %%</text>\n", 100 * s->max_load[row]);
        for (int i = 0; i < s->n_points; i++)
            if (s->points[i].row == row)
                buffer_printf(&b,
                              "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%.0f %%: "
                              "%.4f</title></circle>\n",
                              60 + 420 * s->points[i].load / most_load,
                              330 - 300 * (s->points[i].attainment - bottom) / range,
                              100 * s->points[i].load, s->points[i].attainment);
        buffer_printf(&b, "</g>\n");
    }
    buffer_printf(&b, "</svg>\n");
    return fs_buffer_save(file, &b, e);
}

void simulate_sweep_free(struct simulate_sweep *s)
{
    free(s->points);
    s->points = NULL;
}
