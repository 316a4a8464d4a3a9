#include "hpctl/pools_output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/escape.h"
#include "common/svg.h"
#include "hpctl/shown.h"
#include "planners/timeline.h"

static void print_stage(const struct plan_pools_stage *s)
{
    char share[24] = "";
    if (s->share > 1)
        snprintf(share, sizeof share, " of 1/%d", s->share);
    printf("      layers %2d-%-2d  %4d x %s%s on %d device%s, %.3g ms a batch", s->first_layer,
           s->end_layer - 1, s->count, s->kind, share, s->devices, s->devices == 1 ? "" : "s",
           s->compute_s * 1e3);
    if (s->transfer_s > 0)
        printf(", then %.3g ms a sample on the wire", s->transfer_s * 1e3);
    printf("\n");
}

static void print_model(const struct plan_pools_model *m, const struct workload *w)
{
    const struct workload_model *asked = &w->models[workload_find_model(w, m->name)];
    printf("  %s: %.1f requests/s, %.1f per unit of weight; deadline %.4g ms", m->name,
           m->throughput_per_s, m->throughput_per_s / asked->weight, asked->slo_s * 1e3);
    if (m->slo_margin >= 0)
        printf(", margin %.0f %%", m->slo_margin * 100);
    printf("\n");
    for (int i = 0; i < m->n_pipelines; i++) {
        const struct plan_pools_pipeline *p = &m->pipelines[i];
        printf("    pipeline %d: %.1f requests/s, batch %d, %.4g ms without waiting\n", i,
               p->throughput_per_s, p->batch, p->latency_s * 1e3);
        for (int d = 0; d < p->n_stages; d++)
            print_stage(&p->stages[d]);
    }
}

static void print_devices(const struct plan_pools *plan, const struct cluster *c)
{
    for (int k = 0; k < c->n_pools; k++) {
        double used = 0;
        for (int m = 0; m < plan->n_models; m++)
            for (int i = 0; i < plan->models[m].n_pipelines; i++)
                for (int d = 0; d < plan->models[m].pipelines[i].n_stages; d++) {
                    const struct plan_pools_stage *s = &plan->models[m].pipelines[i].stages[d];
                    if (strcmp(s->kind, c->pools[k].kind) == 0)
                        used += (double)s->count / s->share;
                }
        printf("  %-6s %6.1f of %d devices\n", c->pools[k].kind, used, c->pools[k].count);
    }
}

/* One batch on its way through idle pools, from 0 to the model's deadline. */
static void add_batch(struct timeline *t, const struct plan_pools_model *m, int i, double slo_s)
{
    const struct plan_pools_pipeline *p = &m->pipelines[i];
    double now = 0;
    for (int d = 0; d < p->n_stages; d++) {
        const struct plan_pools_stage *s = &p->stages[d];
        char name[160];
        snprintf(name, sizeof name, "%.30s %d: %d x %.100s", m->name, i, s->count, s->kind);
        int lane = timeline_add_lane(t, m->name, name);
        timeline_add(t, lane, now, now + s->compute_s, 3 * i + d, "layers %d-%d", s->first_layer,
                     s->end_layer - 1);
        now += s->compute_s;
        if (s->transfer_s > 0) {
            timeline_add(t, lane, now, now + p->batch * s->transfer_s, TIMELINE_STALL,
                         "on the wire");
            now += p->batch * s->transfer_s;
        }
        if (d == p->n_stages - 1 && now < slo_s)
            timeline_add(t, lane, slo_s, slo_s, TIMELINE_STALL, "deadline");
    }
}

static void print_timeline(const struct plan_pools *plan, const struct workload *w)
{
    struct timeline t = {0};
    struct buffer text = {0};
    const char *columns = getenv("COLUMNS");
    int width = columns ? atoi(columns) : 100;
    for (int m = 0; m < plan->n_models; m++)
        for (int i = 0; i < plan->models[m].n_pipelines; i++)
            add_batch(&t, &plan->models[m], i,
                      w->models[workload_find_model(w, plan->models[m].name)].slo_s);
    if (timeline_write_text(&t, width < 40 ? 40 : width > 240 ? 240 : width, isatty(1), &text) == 0)
        printf("\none batch through idle pools, and the time until its deadline for waiting\n%s",
               buffer_cstr(&text));
    buffer_free(&text);
    timeline_free(&t);
}

void pools_answer_print(const struct pools_answer *a, const struct cluster *c,
                        const struct workload *w)
{
    double value = a->plan.normalized_throughput_per_s;
    printf("least throughput / weight: %.2f requests/s", value);
    if (isfinite(a->served))
        printf("; %.2f served at %.3g %% attainment in simulation", a->served, a->target * 100);
    if (isfinite(a->bound) && a->bound > 0)
        printf("; no plan serves more than %.2f (gap %.2f %%)", a->bound,
               100 * (a->bound - value) / a->bound);
    printf("\nplanned by %s in %.1f ms, of which lp_solve %.1f ms%s\n\n", a->method,
           a->seconds * 1e3, a->lp_seconds * 1e3,
           a->complete ? "" : " (time was up before the optimum was proven)");
    for (int m = 0; m < a->plan.n_models; m++)
        print_model(&a->plan.models[m], w);
    printf("\n");
    print_devices(&a->plan, c);
    print_timeline(&a->plan, w);
    printf("\nwhy\n");
    for (int i = 0; i < a->n_candidates; i++) {
        if (isnan(a->candidates[i].predicted))
            printf("  %-36s %10s  %s\n", a->candidates[i].name, "-", a->candidates[i].reason);
        else
            printf("  %-36s %10.2f  %s\n", a->candidates[i].name, a->candidates[i].predicted,
                   a->candidates[i].reason);
    }
}

/* ---- picture ---- */

enum {
    PICTURE_WIDTH = 1000, /* at least */
    PICTURE_LEFT = 14,
    PICTURE_NAME = 22, /* of a kind, above its bar */
    PICTURE_BAR = 34,
    PICTURE_ROW = 20,
    PICTURE_KIND = 70,
    PICTURE_TOP = 44,
    PICTURE_SWATCH = 20,   /* before a row of the legend */
    LEGEND_CELL_MOST = 560 /* a longer one is cut */
};

static const struct svg_font font_title = {.size = 15, .colour = SVG_INK, .bold = true},
                             font_kind = {.size = 13, .colour = SVG_INK},
                             font_stage = {.size = 12, .colour = SVG_INK},
                             font_head = {.size = 11, .colour = SVG_MUTED},
                             font_unused = {.size = 11, .colour = SVG_MUTED, .anchor = SVG_END};

/* A stage of a pipeline of a model: its colour, and what it is called. */
struct pool_place {
    const struct plan_pools_model *model;
    int colour, pipeline, stage;
    const struct plan_pools_stage *what;
};

static struct shown place_name(const struct pool_place *p)
{
    return shown_of("%.60s %d.%d", p->model->name, p->pipeline, p->stage);
}

/* Dark letters are read on all of them. */
static struct shown place_colour(const struct pool_place *p)
{
    int light = 82 - 7 * (p->stage < 3 ? p->stage : 3);
    return shown_of("hsl(%d,60%%,%d%%)", (210 + p->colour * 67) % 360, light);
}

static void places_each(const struct plan_pools *plan,
                        void (*each)(void *ctx, const struct pool_place *p), void *ctx)
{
    for (int m = 0; m < plan->n_models; m++)
        for (int i = 0; i < plan->models[m].n_pipelines; i++)
            for (int d = 0; d < plan->models[m].pipelines[i].n_stages; d++) {
                const struct pool_place p = {&plan->models[m], m, i, d,
                                             &plan->models[m].pipelines[i].stages[d]};
                each(ctx, &p);
            }
}

static const char *const legend_heads[] = {
    "model, pipeline.stage", "layers", "devices", "each", "a batch", "requests/s",
    "whole pipeline"};
enum { LEGEND_COLUMNS = sizeof legend_heads / sizeof *legend_heads };

struct pools_sheet {
    struct buffer out;
    const struct cluster_pool *pool; /* whose bar is drawn */
    double x, y, width;
    double columns[LEGEND_COLUMNS]; /* widths of the legend's */
};

static void draw_place(void *ctx, const struct pool_place *p)
{
    struct pools_sheet *s = ctx;
    if (strcmp(p->what->kind, s->pool->kind) != 0)
        return;
    double width = (s->width - 2.0 * PICTURE_LEFT) / (s->pool->count > 0 ? s->pool->count : 1) *
                   p->what->count / p->what->share;
    buffer_printf(&s->out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\" "
                  "stroke=\"#fff\"><title>",
                  s->x, s->y, width, PICTURE_BAR, place_colour(p).s);
    escape_xml(&s->out, place_name(p).s);
    buffer_printf(&s->out, ": layers %d-%d, %d of 1/%d, %.3g ms a batch</title></rect>\n",
                  p->what->first_layer, p->what->end_layer - 1, p->what->count, p->what->share,
                  p->what->compute_s * 1e3);
    if (svg_text_width(place_name(p).s, &font_stage) <= width - 10)
        svg_text(&s->out, s->x + 5, s->y + 21, &font_stage, place_name(p).s);
    s->x += width;
}

static void draw_kind(struct pools_sheet *s, const struct plan_pools *plan)
{
    double right = s->width - PICTURE_LEFT, whole = right - PICTURE_LEFT;
    svg_text_fit(&s->out, PICTURE_LEFT, s->y + 12, &font_kind, whole,
                 shown_of("%s (%d)", s->pool->kind, s->pool->count).s);
    s->y += PICTURE_NAME;
    buffer_printf(&s->out,
                  "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"#eef0f2\"/>\n",
                  PICTURE_LEFT, s->y, whole, PICTURE_BAR);
    s->x = PICTURE_LEFT;
    places_each(plan, draw_place, s);
    struct shown unused = shown_of("%.3g free", (right - s->x) / whole * s->pool->count);
    if (svg_text_width(unused.s, &font_unused) < right - s->x - 12)
        svg_text(&s->out, right - 6, s->y + 21, &font_unused, unused.s);
    s->y += PICTURE_KIND - PICTURE_NAME;
}

/* ---- what the colours are ---- */

static void legend_cells(const struct pool_place *p, struct shown cells[LEGEND_COLUMNS])
{
    const struct plan_pools_stage *w = p->what;
    const struct plan_pools_pipeline *whole = &p->model->pipelines[p->pipeline];
    cells[0] = place_name(p);
    cells[1] = shown_of("%d-%d", w->first_layer, w->end_layer - 1);
    cells[2] = shown_of("%d of %s", w->devices, w->kind);
    cells[3] =
        w->share > 1 ? shown_of("%d x 1/%d", w->count, w->share) : shown_of("%d whole", w->count);
    cells[4] = shown_of("%d: %.3g ms", whole->batch, w->compute_s * 1e3);
    cells[5] = shown_of("%.1f", whole->throughput_per_s);
    cells[6] = shown_of("%.3g ms", whole->latency_s * 1e3);
}

static void legend_measure(void *ctx, const struct pool_place *p)
{
    struct pools_sheet *s = ctx;
    struct shown cells[LEGEND_COLUMNS];
    legend_cells(p, cells);
    for (int i = 0; i < LEGEND_COLUMNS; i++)
        s->columns[i] =
            fmin(fmax(s->columns[i], svg_text_width(cells[i].s, &font_stage)), LEGEND_CELL_MOST);
}

/* Wide enough for the legend, whose columns share what is left. */
static void sheet_measure(struct pools_sheet *s, const struct plan_pools *plan)
{
    double all = 2 * PICTURE_LEFT + PICTURE_SWATCH;
    for (int i = 0; i < LEGEND_COLUMNS; i++)
        s->columns[i] = svg_text_width(legend_heads[i], &font_head);
    places_each(plan, legend_measure, s);
    for (int i = 0; i < LEGEND_COLUMNS; i++)
        all += s->columns[i] += 14;
    s->width = fmax(PICTURE_WIDTH, all);
    for (int i = 0; i < LEGEND_COLUMNS; i++)
        s->columns[i] += (s->width - all) / LEGEND_COLUMNS;
}

static void legend_row(struct pools_sheet *s, const struct svg_font *font,
                       const struct shown cells[LEGEND_COLUMNS])
{
    double x = PICTURE_LEFT + PICTURE_SWATCH;
    for (int i = 0; i < LEGEND_COLUMNS; x += s->columns[i++])
        svg_text_fit(&s->out, x, s->y + 10, font, s->columns[i] - 8, cells[i].s);
    s->y += PICTURE_ROW;
}

static void draw_legend(void *ctx, const struct pool_place *p)
{
    struct pools_sheet *s = ctx;
    struct shown cells[LEGEND_COLUMNS];
    buffer_printf(&s->out,
                  "<rect x=\"%d\" y=\"%.1f\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>\n",
                  PICTURE_LEFT, s->y, place_colour(p).s);
    legend_cells(p, cells);
    legend_row(s, &font_stage, cells);
}

static void count_place(void *ctx, const struct pool_place *p)
{
    (void)p;
    ++*(int *)ctx;
}

void pools_picture_write(const struct plan_pools *plan, const struct cluster *c, struct buffer *out)
{
    struct pools_sheet s = {.out = *out, .y = PICTURE_TOP};
    struct shown heads[LEGEND_COLUMNS];
    int places = 0;
    places_each(plan, count_place, &places);
    sheet_measure(&s, plan);
    svg_begin(&s.out, s.width,
              PICTURE_TOP + PICTURE_KIND * c->n_pools + PICTURE_ROW * (places + 1) + 12);
    svg_text_fit(&s.out, PICTURE_LEFT, 26, &font_title, s.width - 2 * PICTURE_LEFT,
                 shown_of("pools by kind of device: least throughput / weight %.1f requests/s",
                          plan->normalized_throughput_per_s)
                     .s);
    for (int k = 0; k < c->n_pools; k++) {
        s.pool = &c->pools[k];
        draw_kind(&s, plan);
    }
    for (int i = 0; i < LEGEND_COLUMNS; i++)
        heads[i] = shown_of("%s", legend_heads[i]);
    legend_row(&s, &font_head, heads);
    places_each(plan, draw_legend, &s);
    svg_end(&s.out);
    *out = s.out;
}
