#include "coordinator/plan_vs_actual.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/clocks.h"
#include "coordinator/decode_steps.h"
#include "coordinator/deployment.h"
#include "coordinator/effects.h"
#include "coordinator/late_links.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/placement.h"
#include "coordinator/plan_learning.h"
#include "coordinator/sequence.h"
#include "coordinator/slices.h"
#include "coordinator/stage_times.h"
#include "planners/pipeline/pipeline.h"

struct plan_vs_actual_record {
    uint64_t sequence;
    int n_stages, n_slices, n_heard;
    uint32_t tokens, cached; /* that ran; that stood before them already */
    bool *heard;
    int *slices;
    struct stage_times measured, planned; /* by slice */
    double *own_s; /* [n_stages]: seconds of compute, divided by the runs of each batch */
    struct decode_steps *decode; /* of its answer; NULL: none were told */
    bool shared, complete, predicted;
    bool loading; /* it waited for weights: no plan says how long */
    double at_s, measured_s, planned_s;
};

struct plan_vs_actual {
    uint64_t generation;
    struct plan_vs_actual_record
        *records[PLAN_VS_ACTUAL_RECORDS]; /* a ring; `last` is the youngest */
    size_t last;
    uint64_t predicted_ns, part_ns; /* of a prompt that was through, of one that went on */
    bool warm;                      /* a prompt of this generation has ended on all stages */
    struct plan_vs_actual_totals totals;
    struct plan_drift drift;
};

/* ---- records ---- */

static void record_free(struct plan_vs_actual_record *r)
{
    if (!r)
        return;
    decode_steps_free(&r->decode);
    free(r->heard);
    free(r->slices);
    free(r->measured.arrive_s); /* the one allocation of all times */
    free(r);
}

void plan_vs_actual_free(struct plan_vs_actual **t)
{
    for (size_t i = 0; *t && i < PLAN_VS_ACTUAL_RECORDS; i++)
        record_free((*t)->records[i]);
    free(*t);
    *t = NULL;
}

static struct plan_vs_actual_record *record_create(const struct deployment *d,
                                                   const struct message_prefill *p)
{
    size_t n = p->slices.count, cells = (size_t)d->n_stages * n;
    if (n == 0 || cells > PLAN_VS_ACTUAL_MAX_CELLS)
        return NULL;
    struct plan_vs_actual_record *r = calloc(1, sizeof *r);
    double *times = calloc(6 * cells + (size_t)d->n_stages, sizeof *times);
    if (r) {
        r->heard = calloc((size_t)d->n_stages, sizeof *r->heard);
        r->slices = calloc(n, sizeof *r->slices);
    }
    if (!r || !times || !r->heard || !r->slices) {
        free(times);
        record_free(r);
        return NULL;
    }
    r->sequence = p->sequence;
    r->n_stages = d->n_stages;
    r->n_slices = (int)n;
    r->measured = (struct stage_times){times, times + cells, times + 2 * cells};
    r->planned = (struct stage_times){times + 3 * cells, times + 4 * cells, times + 5 * cells};
    r->own_s = times + 6 * cells;
    return r;
}

static void generation_begin(struct plan_vs_actual *t, uint64_t generation)
{
    for (size_t i = 0; i < PLAN_VS_ACTUAL_RECORDS; i++) {
        record_free(t->records[i]);
        t->records[i] = NULL;
    }
    t->generation = generation;
    t->warm = false;
    t->totals.first_planned_s = t->totals.first_measured_s = 0;
}

/* NULL: it has none. */
static struct plan_vs_actual_record *record_find(const struct deployment *d, uint64_t sequence)
{
    const struct plan_vs_actual *t = d->plan_vs_actual;
    for (size_t i = 0; t && t->generation == d->generation && i < PLAN_VS_ACTUAL_RECORDS; i++)
        if (t->records[i] && t->records[i]->sequence == sequence)
            return t->records[i];
    return NULL;
}

/* Of the deployment's generation; NULL: no memory. */
static struct plan_vs_actual *records_of(struct deployment *d)
{
    if (!d->plan_vs_actual)
        d->plan_vs_actual = calloc(1, sizeof *d->plan_vs_actual);
    if (d->plan_vs_actual && d->plan_vs_actual->generation != d->generation)
        generation_begin(d->plan_vs_actual, d->generation);
    return d->plan_vs_actual;
}

/* The record of a sequence, made when its first stage is heard of; the oldest makes room. */
static struct plan_vs_actual_record *record_of(struct deployment *d,
                                               const struct message_prefill *p)
{
    struct plan_vs_actual *t = records_of(d);
    if (!t)
        return NULL;
    struct plan_vs_actual_record *r = record_find(d, p->sequence);
    if (!r && (r = record_create(d, p)) != NULL) {
        t->last = (t->last + 1) % PLAN_VS_ACTUAL_RECORDS;
        record_free(t->records[t->last]);
        t->records[t->last] = r;
    }
    return r;
}

/* Slices follow each other and are the same on every stage. */
static bool stage_take(struct plan_vs_actual_record *r, const struct message_prefill *p)
{
    const struct message_prefill_slice *s = p->slices.items;
    size_t row = (size_t)p->stage * (size_t)r->n_slices;
    uint64_t first = p->slices.count ? s[0].first_position : 0, position = first;
    if (first > INT32_MAX || (r->n_heard && first != r->cached) || r->complete ||
        r->heard[p->stage] || p->slices.count != (size_t)r->n_slices)
        return false;
    for (size_t k = 0; k < p->slices.count; k++) {
        if (s[k].first_position != position || s[k].tokens == 0 || s[k].tokens > INT32_MAX ||
            s[k].end_ns < s[k].start_ns || (r->n_heard && (uint64_t)r->slices[k] != s[k].tokens))
            return false;
        r->slices[k] = (int)s[k].tokens;
        position += s[k].tokens;
    }
    for (size_t k = 0; k < p->slices.count; k++) {
        stage_times_set(&r->measured, row + k, &s[k]);
        r->shared = r->shared || s[k].runs > 1;
        r->own_s[p->stage] +=
            (double)(s[k].end_ns - s[k].start_ns) * 1e-9 / (double)(s[k].runs > 1 ? s[k].runs : 1);
    }
    r->loading |= p->loading;
    r->tokens = (uint32_t)(position - first);
    r->cached = (uint32_t)first;
    r->heard[p->stage] = true;
    r->n_heard++;
    return true;
}

/* ---- a record that is complete ---- */

static void record_predict(struct coord *c, struct deployment *d, struct plan_vs_actual_record *r)
{
    struct arena arena = {0};
    struct pipeline_schedule s;
    struct err e = {0};
    int n = r->n_slices;
    if (placement_predict(c, d, r->slices, n, (int)r->cached, &arena, &s, &e) == 0) {
        for (int j = 0; j < r->n_stages; j++)
            for (int k = 0; k < n; k++) {
                r->planned.start_s[j * n + k] = s.start_s[j * n + k];
                r->planned.end_s[j * n + k] = s.end_s[j * n + k];
                r->planned.arrive_s[j * n + k] =
                    j ? s.hop_end_s[(j - 1) * n + k] + s.latency_s[j - 1] : 0;
            }
        r->planned_s = r->planned.end_s[r->n_stages * n - 1];
        r->predicted = r->planned_s > 0;
    } else {
        log_debug("coordinator", "no_prediction", "deployment=%s why=\"%s\"", d->name, e.text);
    }
    arena_free(&arena);
}

/* Whether people are told what was planned beside what was measured. */
static bool record_compares(const struct plan_vs_actual_record *r)
{
    return r->predicted && !r->shared && !r->loading;
}

/* Seconds of compute of one stage. */
static double busy_s(const struct plan_vs_actual_record *r, const struct stage_times *t, int stage)
{
    double sum = 0;
    for (int k = stage * r->n_slices; k < (stage + 1) * r->n_slices; k++)
        sum += t->end_s[k] - t->start_s[k];
    return sum;
}

/* From a slice's end on a stage to its arrival at the next one: the least of all slices. */
static double hop_least_s(const struct plan_vs_actual_record *r, const struct stage_times *t,
                          int stage)
{
    double least = INFINITY;
    for (int k = 0; k < r->n_slices; k++)
        least = fmin(least, t->arrive_s[(stage + 1) * r->n_slices + k] -
                                t->end_s[stage * r->n_slices + k]);
    return least;
}

static void hops_learn(struct coord *c, struct deployment *d, const struct plan_vs_actual_record *r)
{
    bool changed = false;
    for (int j = 0; j + 1 < r->n_stages; j++) {
        const struct hop_seconds hop = {.planned = hop_least_s(r, &r->planned, j),
                                        .measured = hop_least_s(r, &r->measured, j)};
        changed = late_links_hear(c, d, j, &hop) || changed;
    }
    if (changed)
        slices_forget(d);
}

static struct stage_seconds stage_seconds(const struct plan_vs_actual_record *r, int stage)
{
    return (struct stage_seconds){.planned = busy_s(r, &r->planned, stage),
                                  .measured = busy_s(r, &r->measured, stage),
                                  .own = r->own_s[stage]};
}

static void record_learn(struct coord *c, struct deployment *d,
                         const struct plan_vs_actual_record *r)
{
    struct stage_seconds stages[PLAN_LEARNING_STAGES];
    if (r->n_stages > PLAN_LEARNING_STAGES)
        return;
    for (int j = 0; j < r->n_stages; j++)
        stages[j] = stage_seconds(r, j);
    d->plan_vs_actual->totals.corrections +=
        plan_learn(c, d, &d->plan_vs_actual->drift, stages, r->tokens, r->shared);
}

static bool record_is_quick(const struct deployment *d, const struct plan_vs_actual_record *r)
{
    return d->model->facts.n_layers * r->n_slices <= PLAN_VS_ACTUAL_QUICK;
}

static void record_count(struct plan_vs_actual *t, const struct plan_vs_actual_record *r,
                         bool first)
{
    if (first) {
        t->totals.first_planned_s = r->planned_s;
        t->totals.first_measured_s = r->measured_s;
        return;
    }
    t->totals.prefills++;
    t->totals.planned_s += r->planned_s;
    t->totals.measured_s += r->measured_s;
    t->totals.error = r->measured_s / r->planned_s - 1;
}

static void record_complete(struct coord *c, struct deployment *d, struct plan_vs_actual_record *r)
{
    struct plan_vs_actual *t = d->plan_vs_actual;
    bool first = !t->warm;
    r->complete = true;
    t->warm |= !r->loading;
    r->shared = r->shared || d->n_active + d->n_waiting > 1;
    r->at_s = stage_times_align(c, d, &r->measured, (size_t)r->n_slices, r->n_slices);
    r->measured_s = r->measured.end_s[r->n_stages * r->n_slices - 1];
    if (r->loading ||
        (r->shared && (!record_is_quick(d, r) || !plan_learning_compares(r->tokens))) ||
        (t->predicted_ns && coord_now(c) - t->predicted_ns < coord_ms(PLAN_VS_ACTUAL_PREDICT_MS)))
        return;
    t->predicted_ns = coord_now(c);
    record_predict(c, d, r);
    if (!r->predicted)
        return;
    hops_learn(c, d, r);
    record_learn(c, d, r);
    if (!r->shared)
        record_count(t, r, first);
}

/* ---- prompts that go on ---- */

/* What a stage has computed of a prompt so far, beside what those took that are through with it. */
static void part_learn(struct coord *c, struct deployment *d, struct plan_vs_actual_record *so_far,
                       int stage)
{
    struct plan_vs_actual_record *whole = record_find(d, so_far->sequence);
    struct stage_seconds stages[PLAN_LEARNING_STAGES] = {0};
    if (so_far->loading || !record_is_quick(d, so_far) || (whole && whole->heard[stage]))
        return;
    record_predict(c, d, so_far);
    if (whole && !whole->predicted && record_is_quick(d, whole))
        record_predict(c, d, whole);
    if (so_far->predicted)
        stages[stage] = stage_seconds(so_far, stage);
    for (int j = 0; whole && whole->predicted && j < d->n_stages; j++)
        if (whole->heard[j])
            stages[j] = stage_seconds(whole, j);
    d->plan_vs_actual->totals.corrections +=
        plan_learn_part(c, d, &d->plan_vs_actual->drift, stages, stage,
                        so_far->shared || d->n_active + d->n_waiting > 1);
}

static void part_take(struct coord *c, struct deployment *d, const struct message_prefill *p)
{
    struct plan_vs_actual *t = records_of(d);
    struct plan_vs_actual_record *so_far = NULL;
    if (!t || d->n_stages > PLAN_LEARNING_STAGES ||
        (t->part_ns && coord_now(c) - t->part_ns < coord_ms(PLAN_VS_ACTUAL_PREDICT_MS)))
        return;
    t->part_ns = coord_now(c);
    so_far = record_create(d, p);
    if (so_far && stage_take(so_far, p))
        part_learn(c, d, so_far, (int)p->stage);
    record_free(so_far);
}

/* A stage tells something: of which deployment; NULL: it is none of that agent's, or of a
 * generation before. */
static struct deployment *stage_heard(struct coord *c, struct member *m, uint64_t deployment,
                                      uint64_t generation, uint64_t stage)
{
    struct deployment *d = deployment_of_id(c, deployment);
    if (d && generation == d->generation && stage < (uint64_t)d->n_stages &&
        d->stages[stage].agent == m)
        return d;
    c->counts.stale++;
    return NULL;
}

/* Batches of others go between its steps, though they are in none of them. */
static bool others_run(const struct deployment *d, uint64_t sequence)
{
    for (const struct sequence *s = d->active; s; s = s->next)
        if (s->id != sequence)
            return true;
    return false;
}

void plan_vs_actual_decode(struct coord *c, struct member *m, const struct message_decode *p)
{
    clock_hear(c, m, p->clock_ns);
    struct deployment *d = stage_heard(c, m, p->deployment, p->generation, p->stage);
    struct plan_vs_actual_record *r = d ? record_find(d, p->sequence) : NULL;
    if (!r)
        return; /* so many prompts came since that it is gone */
    if (!r->decode)
        r->decode = decode_steps_create(r->n_stages);
    if (r->decode)
        decode_steps_take(c, d, r->decode, p, others_run(d, p->sequence));
}

void plan_vs_actual_prefill(struct coord *c, struct member *m, const struct message_prefill *p)
{
    clock_hear(c, m, p->clock_ns);
    struct deployment *d = stage_heard(c, m, p->deployment, p->generation, p->stage);
    if (d && p->part) {
        part_take(c, d, p);
        return;
    }
    struct plan_vs_actual_record *r = d ? record_of(d, p) : NULL;
    if (!r || !stage_take(r, p))
        return;
    /* Another prompt may have begun and ended between the first stage and the last: it shows in
     * either's word. */
    r->shared = r->shared || d->n_active + d->n_waiting > 1;
    if (r->n_heard == r->n_stages)
        record_complete(c, d, r);
}

double plan_vs_actual_planned(struct coord *c, struct deployment *d, uint64_t sequence)
{
    struct plan_vs_actual_record *r = record_find(d, sequence);
    if (!r || !r->n_heard || r->shared || r->loading)
        return 0; /* one stage's word is enough: it has the slices */
    if (!r->predicted && record_is_quick(d, r))
        record_predict(c, d, r);
    return r->predicted ? r->planned_s : 0;
}

/* ---- for people ---- */

struct plan_vs_actual_totals plan_vs_actual_totals(const struct deployment *d)
{
    return d->plan_vs_actual ? d->plan_vs_actual->totals : (struct plan_vs_actual_totals){0};
}

static json_t *record_json(struct coord *c, struct deployment *d, struct plan_vs_actual_record *r)
{
    json_t *stages = json_array(), *slices = json_array();
    for (int k = 0; k < r->n_slices; k++)
        json_array_append_new(slices, json_integer(r->slices[k]));
    for (int j = 0; j < r->n_stages; j++) {
        size_t row = (size_t)j * (size_t)r->n_slices;
        json_t *stage = stage_name_json(d, j);
        json_object_set_new(stage, "measured", stage_times_json(&r->measured, row, r->n_slices));
        if (record_compares(r))
            json_object_set_new(stage, "planned", stage_times_json(&r->planned, row, r->n_slices));
        json_array_append_new(stages, stage);
    }
    json_t *out =
        json_pack("{s:I, s:I, s:I, s:o, s:b, s:b, s:f, s:f, s:o}", "sequence",
                  (json_int_t)r->sequence, "tokens", (json_int_t)r->tokens, "cached",
                  (json_int_t)r->cached, "slices", slices, "shared", r->shared, "loading",
                  r->loading, "at_s", r->at_s, "measured_s", r->measured_s, "stages", stages);
    if (record_compares(r)) {
        json_object_set_new(out, "planned_s", json_real(r->planned_s));
        json_object_set_new(out, "error", json_real(r->measured_s / r->planned_s - 1));
    }
    json_t *decode = r->decode ? decode_steps_json(c, d, r->decode) : NULL;
    if (decode)
        json_object_set_new(out, "decode", decode);
    return out;
}

json_t *plan_vs_actual_describe(struct coord *c, struct deployment *d, size_t n)
{
    struct plan_vs_actual_totals t = plan_vs_actual_totals(d);
    json_t *records = json_array();
    for (size_t i = 0; d->plan_vs_actual && d->plan_vs_actual->generation == d->generation &&
                       i < PLAN_VS_ACTUAL_RECORDS && json_array_size(records) < n;
         i++) {
        struct plan_vs_actual_record *r =
            d->plan_vs_actual->records[(d->plan_vs_actual->last + PLAN_VS_ACTUAL_RECORDS - i) %
                                       PLAN_VS_ACTUAL_RECORDS];
        if (!r || !r->complete)
            continue;
        /* One of many in a row: its prediction waited until somebody asks. */
        if (!r->shared && !r->loading && !r->predicted)
            record_predict(c, d, r);
        json_array_append_new(records, record_json(c, d, r));
    }
    json_t *first = NULL;
    if (t.first_planned_s > 0)
        first = json_pack("{s:f, s:f, s:f}", "planned_s", t.first_planned_s, "measured_s",
                          t.first_measured_s, "error", t.first_measured_s / t.first_planned_s - 1);
    return json_pack("{s:I, s:f, s:f, s:f, s:I, s:o*, s:o}", "count", (json_int_t)t.prefills,
                     "planned_s", t.planned_s, "measured_s", t.measured_s, "error",
                     t.planned_s > 0 ? t.measured_s / t.planned_s - 1 : 0, "corrections",
                     (json_int_t)t.corrections, "first", first, "records", records);
}
