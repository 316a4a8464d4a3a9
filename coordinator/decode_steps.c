#include "coordinator/decode_steps.h"

#include <math.h>
#include <stdlib.h>

#include "common/log.h"
#include "coordinator/deployment.h"
#include "coordinator/late_links.h"
#include "coordinator/placement.h"
#include "coordinator/slices.h"
#include "coordinator/stage_times.h"
#include "planners/pipeline/pipeline.h"

struct decode_steps {
    int n_stages, n_heard, n; /* n: that all stages told so far have */
    bool shared, predicted;
    uint64_t first;
    int tokens[DECODE_STEPS_MOST];
    double planned_s;
    struct stage_times measured, planned; /* [stage * DECODE_STEPS_MOST + step] */
    bool *heard;
};

struct decode_steps *decode_steps_create(int n_stages)
{
    size_t cells = (size_t)n_stages * DECODE_STEPS_MOST;
    struct decode_steps *s = calloc(1, sizeof *s);
    double *times = calloc(6 * cells, sizeof *times);
    bool *heard = calloc((size_t)n_stages, sizeof *heard);
    if (!s || !times || !heard) {
        free(s);
        free(times);
        free(heard);
        return NULL;
    }
    s->n_stages = n_stages;
    s->n = DECODE_STEPS_MOST;
    s->heard = heard;
    s->measured = (struct stage_times){times, times + cells, times + 2 * cells};
    s->planned = (struct stage_times){times + 3 * cells, times + 4 * cells, times + 5 * cells};
    return s;
}

void decode_steps_free(struct decode_steps **self)
{
    struct decode_steps *s = *self;
    *self = NULL;
    if (!s)
        return;
    free(s->measured.arrive_s); /* the one allocation of all times */
    free(s->heard);
    free(s);
}

/* Steps go forward in the text and in time, and are the same on every stage. */
static bool steps_make_sense(const struct decode_steps *s, const struct message_prefill_slice *t,
                             int n)
{
    for (int k = 0; k < n; k++)
        if (t[k].first_position > INT32_MAX || t[k].tokens == 0 || t[k].tokens > INT32_MAX ||
            t[k].end_ns < t[k].start_ns || (k && t[k].first_position <= t[k - 1].first_position) ||
            (s->n_heard && k < s->n && t[k].tokens != (uint64_t)s->tokens[k]))
            return false;
    return n > 0 && (!s->n_heard || t[0].first_position == s->first);
}

/* When the last step ended on the last stage. */
static double steps_end_s(const struct decode_steps *s)
{
    return s->measured.end_s[(size_t)(s->n_stages - 1) * DECODE_STEPS_MOST + (size_t)s->n - 1];
}

/* From the end of a step on a stage to its arrival at the next one, of the last stage to that of
 * the step after it at the first: the least of all steps. INFINITY: there are none. */
static double hop_least_s(const struct decode_steps *s, int stage)
{
    bool back = stage + 1 == s->n_stages;
    const double *ends = s->measured.end_s + (size_t)stage * DECODE_STEPS_MOST,
                 *arrivals =
                     s->measured.arrive_s + (back ? 1 : (size_t)(stage + 1) * DECODE_STEPS_MOST);
    double least = INFINITY;
    for (int k = 0; k < s->n - back; k++)
        least = fmin(least, arrivals[k] - ends[k]);
    return least;
}

/* Few steps may all have met what held them up for a moment; of the way back they are all that is
 * heard, and say as much as one prompt. */
static void links_hear(struct coord *c, struct deployment *d, const struct decode_steps *s)
{
    enum { LEAST_STEPS = 8 };
    bool changed = false, few = s->n < LEAST_STEPS;
    for (int j = few ? s->n_stages - 1 : 0; j < s->n_stages; j++) {
        double least_s = hop_least_s(s, j);
        if (isfinite(least_s))
            changed |= late_links_hear_steps(c, d, j, least_s, few ? 0 : steps_end_s(s));
    }
    if (changed)
        slices_forget(d);
}

void decode_steps_take(struct coord *c, struct deployment *d, struct decode_steps *s,
                       const struct message_decode *p, bool beside_others)
{
    const struct message_prefill_slice *t = p->steps.items;
    int n = p->steps.count < DECODE_STEPS_MOST ? (int)p->steps.count : DECODE_STEPS_MOST;
    if (s->heard[p->stage] || !steps_make_sense(s, t, n))
        return;
    s->heard[p->stage] = true;
    s->shared |= beside_others;
    s->first = t[0].first_position;
    s->n = n < s->n ? n : s->n;
    for (int k = 0; k < n; k++) {
        s->tokens[k] = (int)t[k].tokens;
        s->shared = s->shared || t[k].runs > 1;
        stage_times_set(&s->measured, p->stage * DECODE_STEPS_MOST + (size_t)k, &t[k]);
    }
    if (++s->n_heard < s->n_stages)
        return;
    stage_times_align(c, d, &s->measured, DECODE_STEPS_MOST, s->n);
    links_hear(c, d, s);
}

/* A step begins when the token before it is back from the last stage; what each takes on stages and
 * hops is that of slices of so many tokens. */
static void steps_chain(struct decode_steps *s, const struct pipeline_schedule *p)
{
    double at = 0;
    for (int k = 0; k < s->n; k++) {
        for (int j = 0; j < s->n_stages; j++) {
            int from = j * s->n + k, to = j * DECODE_STEPS_MOST + k;
            s->planned.arrive_s[to] = s->planned.start_s[to] = at;
            s->planned.end_s[to] = at += p->end_s[from] - p->start_s[from];
            s->planned_s = at;
            if (j + 1 < s->n_stages)
                at += p->hop_end_s[from] - p->hop_start_s[from];
            at += p->latency_s[j];
        }
    }
}

static void steps_predict(struct coord *c, struct deployment *d, struct decode_steps *s)
{
    struct arena arena = {0};
    struct pipeline_schedule schedule;
    struct err e = {0};
    if (placement_predict(c, d, s->tokens, s->n, (int)s->first, &arena, &schedule, &e) == 0) {
        steps_chain(s, &schedule);
        s->predicted = s->planned_s > 0;
    } else {
        log_debug("coordinator", "no_prediction", "deployment=%s why=\"%s\"", d->name, e.text);
    }
    arena_free(&arena);
}

json_t *decode_steps_json(struct coord *c, struct deployment *d, struct decode_steps *s)
{
    if (s->n_heard < s->n_stages)
        return NULL;
    if (!s->predicted && !s->shared)
        steps_predict(c, d, s);
    json_t *steps = json_array(), *stages = json_array();
    for (int k = 0; k < s->n; k++)
        json_array_append_new(steps, json_integer(s->tokens[k]));
    for (int j = 0; j < s->n_stages; j++) {
        size_t row = (size_t)j * DECODE_STEPS_MOST;
        json_t *stage = stage_name_json(d, j);
        json_object_set_new(stage, "measured", stage_times_json(&s->measured, row, s->n));
        if (s->predicted)
            json_object_set_new(stage, "planned", stage_times_json(&s->planned, row, s->n));
        json_array_append_new(stages, stage);
    }
    double measured_s = steps_end_s(s);
    json_t *out = json_pack("{s:I, s:o, s:b, s:f, s:o}", "position", (json_int_t)s->first, "steps",
                            steps, "shared", s->shared, "measured_s", measured_s, "stages", stages);
    if (s->predicted) {
        json_object_set_new(out, "planned_s", json_real(s->planned_s));
        json_object_set_new(out, "error", json_real(measured_s / s->planned_s - 1));
    }
    return out;
}
