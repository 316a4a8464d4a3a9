#include "hpctl/pools_output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/escape.h"
#include "common/fs.h"
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
        char name[96];
        snprintf(name, sizeof name, "%.30s %d: %.30s x %d", m->name, i, s->kind, s->count);
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

static void draw_pool(struct buffer *b, double x, double y, double width, int colour,
                      const char *model, int pipeline, int stage, const struct plan_pools_stage *s)
{
    buffer_printf(b,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"34\" "
                  "fill=\"hsl(%d,55%%,%d%%)\" stroke=\"white\">",
                  x, y, width, colour * 67 % 360, 72 - 10 * stage);
    buffer_printf(b, "<title>");
    escape_xml(b, model);
    buffer_printf(b,
                  ", pipeline %d, stage %d: layers %d-%d, %d shares of 1/%d, %.3g ms a "
                  "batch</title></rect>\n",
                  pipeline, stage, s->first_layer, s->end_layer - 1, s->count, s->share,
                  s->compute_s * 1e3);
    if (width > 60) {
        buffer_printf(b, "<text x=\"%.1f\" y=\"%.1f\">", x + 4, y + 21);
        escape_xml(b, model);
        buffer_printf(b, " %d.%d</text>\n", pipeline, stage);
    }
}

static void draw_kind(struct buffer *b, const struct plan_pools *plan,
                      const struct cluster_pool *pool, double y)
{
    double x = 90, unit = 800.0 / (pool->count > 0 ? pool->count : 1);
    buffer_printf(b, "<text x=\"8\" y=\"%.1f\">", y + 21);
    escape_xml(b, pool->kind);
    buffer_printf(b,
                  " (%d)</text>\n<rect x=\"90\" y=\"%.1f\" width=\"800\" height=\"34\" "
                  "fill=\"#eee\"/>\n",
                  pool->count, y);
    for (int m = 0; m < plan->n_models; m++)
        for (int i = 0; i < plan->models[m].n_pipelines; i++)
            for (int d = 0; d < plan->models[m].pipelines[i].n_stages; d++) {
                const struct plan_pools_stage *s = &plan->models[m].pipelines[i].stages[d];
                if (strcmp(s->kind, pool->kind) != 0)
                    continue;
                double width = unit * s->count / s->share;
                draw_pool(b, x, y, width, m, plan->models[m].name, i, d, s);
                x += width;
            }
}

int pools_picture_save(const struct plan_pools *plan, const struct cluster *c, const char *file,
                       struct err *e)
{
    struct buffer b = {0};
    buffer_printf(&b,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"%d\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n",
                  40 + 50 * c->n_pools);
    buffer_printf(&b,
                  "<text x=\"8\" y=\"20\">pools by kind of device: model, pipeline.stage; least "
                  "throughput / weight %.1f "
                  "requests/s</text>\n",
                  plan->normalized_throughput_per_s);
    for (int k = 0; k < c->n_pools; k++)
        draw_kind(&b, plan, &c->pools[k], 34 + 50 * k);
    buffer_printf(&b, "</svg>\n");
    return fs_buffer_save(file, &b, e);
}
