#include "coordinator/pools/pool_metrics.h"

#include <stdio.h>

#include "common/names.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_load.h"

enum { LABEL_BYTES = 400 };

/* ---- models ---- */

static void models_rows(const struct pool_service *s, const struct pool_spec *spec,
                        metrics_row_fn row, void *out)
{
    static const struct {
        const char *name, *type, *help;
    } metrics[] = {
        {"hp_pool_serving", "gauge", "1 where pools serve a model"},
        {"hp_pool_planned_per_second", "gauge", "Samples a second that the plan promises"},
        {"hp_pool_asked_per_second", "gauge",
         "Samples a second that were asked for in the last whole ten seconds"},
        {"hp_pool_requests_total", "counter", "Requests that the scheduler took"},
        {"hp_pool_on_time_total", "counter", "Requests answered within their deadline"},
        {"hp_pool_late_total", "counter", "Requests answered after it"},
        {"hp_pool_dropped_total", "counter", "Requests refused because they could not be on time"},
        {"hp_pool_failed_total", "counter", "Requests that ended with another error"},
        {"hp_pool_batches_total", "counter", "Batches that gave a result"},
        {"hp_pool_samples_total", "counter", "Samples in them"},
        {"hp_pool_seconds_total", "counter", "From requests to their answers, together"},
        {"hp_pool_queue_seconds_total", "counter",
         "From answered requests to the beginning of their first batch, together"}};
    const struct pool_plan *p = s->current;
    char labels[LABEL_BYTES];
    for (size_t f = 0; f < sizeof metrics / sizeof *metrics; f++)
        for (int i = 0; i < spec->workload.n_models; i++) {
            const struct pool_counts *n = &spec->models[i].counts;
            const double values[] = {p && pool_plan_serves(p, i),
                                     p ? p->topology.models[i].rate : 0,
                                     p ? pool_load_asked(p, i) : 0,
                                     (double)n->arrived,
                                     (double)n->on_time,
                                     (double)n->late,
                                     (double)n->dropped,
                                     (double)n->failed,
                                     (double)n->batches,
                                     (double)n->batched,
                                     (double)n->total_ns * 1e-9,
                                     (double)n->queue_ns * 1e-9};
            snprintf(labels, sizeof labels, "model=\"%s\"", spec->models[i].facts.name);
            row(out, metrics[f].name, metrics[f].type, metrics[f].help, labels, values[f]);
        }
}

/* ---- shares ---- */

static void share_labels(const struct pool_plan *p, int i, char out[LABEL_BYTES])
{
    const struct pool_share *s = &p->shares[i];
    const struct cluster_device *own = s->agent ? member_device(s->agent, s->device) : NULL;
    snprintf(out, LABEL_BYTES, "model=\"%s\",share=\"%d\",agent=\"%s\",device=\"%s\"",
             p->spec->models[s->model].facts.name, i, s->agent ? s->agent->name : "",
             own && name_is_valid(own->name, MEMBER_NAME) ? own->name : "");
}

static void shares_rows(const struct pool_plan *p, metrics_row_fn row, void *out)
{
    static const struct {
        const char *name, *type, *help;
    } metrics[] = {
        {"hp_pool_share_batches_total", "counter", "Batches that a share of the plan ran"},
        {"hp_pool_share_busy_seconds_total", "counter", "What it took for them"},
        {"hp_pool_share_planned_seconds_total", "counter", "What the plan reserved for them"}};
    char labels[LABEL_BYTES];
    for (size_t f = 0; f < sizeof metrics / sizeof *metrics; f++)
        for (int i = 0; i < p->topology.n_shares; i++) {
            const double values[] = {(double)p->shares[i].batches, p->shares[i].actual_s,
                                     p->shares[i].planned_s};
            share_labels(p, i, labels);
            row(out, metrics[f].name, metrics[f].type, metrics[f].help, labels, values[f]);
        }
}

/* ---- all ---- */

void pool_metrics_rows(const struct coord *c, metrics_row_fn row, void *out)
{
    const struct pool_service *s = c->pools;
    const struct pool_spec *spec = !s ? NULL : s->current ? s->current->spec : s->spec;
    if (!spec)
        return;
    const struct {
        const char *name, *help;
        uint64_t value;
    } counters[] = {
        {"hp_pool_plans_total", "Plans of pools that served", s->plans},
        {"hp_pool_shares_lost_total", "Shares of plans whose agent was lost", s->lost_shares},
        {"hp_pool_sent_again_total", "Samples that were sent anew since an agent was lost",
         s->again}};
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        row(out, counters[i].name, "counter", counters[i].help, "", (double)counters[i].value);
    models_rows(s, spec, row, out);
    if (s->current)
        shares_rows(s->current, row, out);
}
