/* Moves of single cuts under the exact flow. The flow runs slice by slice here: what a later cut
 * changes leaves the state before it as it was. */
#include <math.h>
#include <string.h>

#include "planners/pipeline/slices.h"

/* How many neighbouring cuts move together at most, where slices are few and where they are many.
 */
enum { STAGE_CLASSES = 8, FEW_SLICES = 32, WINDOW_OF_FEW = 32, WINDOW_OF_MANY = 6 };

/* What a stage costs: classes of layers with their counts, and its hop. */
struct slice_lane {
    const double *table[STAGE_CLASSES];
    double count[STAGE_CLASSES];
    int n; /* -1: more classes than fit here; ask the cost instead */
    int kind, first, end;
    double wire_per_unit_token, latency_s;
};

struct slice_stream {
    struct exact *x;
    struct trial *t;
    struct slice_lane lane[PIPELINE_MAX_DEVICES];
    size_t stride;   /* of one state: when each stage is free, when each hop is, how long each stage
                        computed */
    double *base;    /* states before each slice of the slicing that is kept */
    double *changed; /* the same of the one that is tried, from the first slice that differs */
    double *tails; /* [slice * stride] of the kept slicing: from each entry of a state, the longest
                      way to the end */
};

static void lane_set(const struct exact *x, const struct trial *t, int j, struct slice_lane *lane)
{
    const struct pipeline_cost *c = x->c;
    *lane = (struct slice_lane){
        .kind = c->devices[t->device[j]].kind, .first = trial_first(t, j), .end = t->end[j]};
    for (int q = 0; q < c->n_classes; q++) {
        int count = c->class_count[lane->end * c->n_classes + q] -
                    c->class_count[lane->first * c->n_classes + q];
        if (count == 0 || lane->n < 0)
            continue;
        if (lane->n == STAGE_CLASSES) {
            lane->n = -1;
            continue;
        }
        lane->table[lane->n] = c->tables[lane->kind * c->n_classes + q];
        lane->count[lane->n++] = count;
    }
    if (j + 1 < t->n_stages) {
        const struct cluster_wire *w = &c->hops[t->device[j] * c->n_devices + t->device[j + 1]];
        lane->wire_per_unit_token = x->bytes[lane->end - 1] * c->batch / w->bandwidth_bytes_per_s;
        lane->latency_s = w->latency_s;
    }
}

static inline double lane_seconds(const struct exact *x, const struct slice_lane *lane, int i,
                                  int j)
{
    double sum = 0;
    ptrdiff_t cell = x->c->row[i] + j;
    if (lane->n < 0)
        return cost_units_seconds(x->c, lane->kind, lane->first, lane->end, i, j);
    for (int k = 0; k < lane->n; k++)
        sum += lane->count[k] * lane->table[k][cell];
    return sum;
}

/* Runs slice k from one state into the next. */
static void stream_run_slice(struct slice_stream *s, int k, const double *in, double *out)
{
    const struct exact *x = s->x;
    int n = s->t->n_stages, from = s->t->cut[k], to = s->t->cut[k + 1];
    double arrival = 0, tokens = x->c->starts[to] - x->c->starts[from];
    for (int j = 0; j < n; j++) {
        const struct slice_lane *lane = &s->lane[j];
        double compute = lane_seconds(x, lane, from, to), free_s = in[3 * j],
               wire_s = in[3 * j + 1];
        free_s = (free_s > arrival ? free_s : arrival) + compute;
        wire_s = (wire_s > free_s ? wire_s : free_s) + lane->wire_per_unit_token * tokens;
        arrival = wire_s + lane->latency_s;
        out[3 * j] = free_s;
        out[3 * j + 1] = wire_s;
        out[3 * j + 2] = in[3 * j + 2] + compute;
    }
    s->x->work += n;
}

/* The flow is linear in maximum and sum, so that the end is the maximum over a state's entries of
 * entry + tail. Computes the tails backwards; where a slice comes after the last one, only the last
 * stage's own end counts. */
static void stream_set_tails(struct slice_stream *s)
{
    const struct exact *x = s->x;
    const struct trial *t = s->t;
    int n = t->n_stages;
    double *after = s->tails + (size_t)t->n_slices * s->stride;
    for (int j = 0; j < n; j++)
        after[3 * j] = after[3 * j + 1] = -INFINITY;
    after[3 * (n - 1)] = 0;
    for (int k = t->n_slices - 1; k >= 0; k--) {
        double *tail = s->tails + (size_t)k * s->stride, arrival = -INFINITY;
        double tokens = x->c->starts[t->cut[k + 1]] - x->c->starts[t->cut[k]];
        after = tail + s->stride;
        for (int j = n - 1; j >= 0; j--) {
            const struct slice_lane *lane = &s->lane[j];
            double sent = lane->latency_s + arrival; /* from the end of the hop */
            sent = after[3 * j + 1] > sent ? after[3 * j + 1] : sent;
            tail[3 * j + 1] = sent + lane->wire_per_unit_token * tokens;
            double done = after[3 * j] > tail[3 * j + 1] ? after[3 * j] : tail[3 * j + 1];
            tail[3 * j] = arrival = done + lane_seconds(x, lane, t->cut[k], t->cut[k + 1]);
        }
    }
}

/* When the last slice ends, from the state before slice k of the kept slicing. */
static double end_from(const struct slice_stream *s, const double *state, int k)
{
    const double *tail = s->tails + (size_t)k * s->stride;
    double end = 0;
    for (int j = 0; j < s->t->n_stages; j++) {
        double a = state[3 * j] + tail[3 * j], b = state[3 * j + 1] + tail[3 * j + 1];
        end = a > end ? a : end;
        end = b > end ? b : end;
    }
    return end;
}

static double final_value(struct slice_stream *s, const double *state)
{
    struct exact *x = s->x;
    int n = s->t->n_stages;
    for (int j = 0; j < n; j++) {
        x->stage_compute_s[j] = state[3 * j + 2];
        x->stage_wire_s[j] = s->lane[j].wire_per_unit_token * x->c->tokens;
    }
    return exact_value(x, s->t, n, state[3 * (n - 1)]);
}

/* What an edit changed: slices before `first` are as they were, those from `same` on too but for
 * their number, which grew by `shift`. */
struct edit {
    int first, same, shift;
};

/* Value of the edited slicing. For latency only the slices that the edit changed are run. */
static double edited_value(struct slice_stream *s, struct edit edit)
{
    const double *in = s->base + (size_t)edit.first * s->stride;
    bool latency = s->x->options->objective == PIPELINE_LATENCY;
    for (int k = edit.first; k < s->t->n_slices; k++) {
        if (latency && k == edit.same)
            return end_from(s, in, k - edit.shift);
        double *out = s->changed + (size_t)(k + 1) * s->stride;
        stream_run_slice(s, k, in, out);
        in = out;
    }
    return final_value(s, in);
}

/* Runs the kept slicing from slice `first` on, and gives its value. */
static double stream_run_kept(struct slice_stream *s, int first)
{
    for (int k = first; k < s->t->n_slices; k++)
        stream_run_slice(s, k, s->base + (size_t)k * s->stride,
                         s->base + (size_t)(k + 1) * s->stride);
    stream_set_tails(s);
    return final_value(s, s->base + (size_t)s->t->n_slices * s->stride);
}

static void stream_start(struct slice_stream *s, struct exact *x, struct trial *t)
{
    size_t cells = ((size_t)x->c->n_units + 1) * 3 * (size_t)t->n_stages;
    s->x = x;
    s->t = t;
    s->stride = 3 * (size_t)t->n_stages;
    s->base = x->flow;
    s->changed = s->base + cells;
    s->tails = s->changed + cells;
    for (int j = 0; j < t->n_stages; j++)
        lane_set(x, t, j, &s->lane[j]);
    memset(s->base, 0, s->stride * sizeof(double));
    t->value = stream_run_kept(s, 0);
}

/* ---- moves ---- */

/* Keeps the edited slicing if it is better. Otherwise the caller undoes the edit. */
static bool stream_keep_changed(struct slice_stream *s, struct edit edit)
{
    /* Rounding differs between the ways to the same end: only what is more than that is better. */
    if (!(edited_value(s, edit) < s->t->value * (1 - 1e-12)))
        return false;
    s->t->value = stream_run_kept(s, edit.first);
    return true;
}

/* Moves cuts [k, end) by delta units. */
static bool try_shift(struct slice_stream *s, int k, int end, int delta)
{
    int *cut = s->t->cut;
    if (cut[k] + delta <= cut[k - 1] || cut[end - 1] + delta >= cut[end])
        return false;
    for (int i = k; i < end; i++)
        cut[i] += delta;
    if (stream_keep_changed(s, (struct edit){k - 1, end, 0}))
        return true;
    for (int i = k; i < end; i++)
        cut[i] -= delta;
    return false;
}

static bool try_merge(struct slice_stream *s, int k)
{
    struct trial *t = s->t;
    int removed = t->cut[k];
    memmove(&t->cut[k], &t->cut[k + 1], (size_t)(t->n_slices - k) * sizeof *t->cut);
    t->n_slices--;
    if (stream_keep_changed(s, (struct edit){k - 1, k, -1}))
        return true;
    memmove(&t->cut[k + 1], &t->cut[k], (size_t)(t->n_slices - k + 1) * sizeof *t->cut);
    t->cut[k] = removed;
    t->n_slices++;
    return false;
}

/* Splits slice k at `at`. */
static bool try_split(struct slice_stream *s, int k, int at)
{
    struct trial *t = s->t;
    if (at <= t->cut[k] || at >= t->cut[k + 1])
        return false;
    memmove(&t->cut[k + 2], &t->cut[k + 1], (size_t)(t->n_slices - k) * sizeof *t->cut);
    t->cut[k + 1] = at;
    t->n_slices++;
    if (stream_keep_changed(s, (struct edit){k, k + 2, 1}))
        return true;
    memmove(&t->cut[k + 1], &t->cut[k + 2], (size_t)(t->n_slices - 1 - k) * sizeof *t->cut);
    t->n_slices--;
    return false;
}

/* Moves cuts [k, end) by delta for the best `end` up to `last`, if any of them helps. The slices
 * from k on run once for all ends; for each end only the slice that closes the gap runs on its own.
 */
static bool shift_best(struct slice_stream *s, int k, int last, int delta)
{
    int *cut = s->t->cut, best_end = 0;
    double best = s->t->value * (1 - 1e-12);
    const double *in = s->base + (size_t)(k - 1) * s->stride;
    double *closed = s->changed; /* state 0 never changes, so its place is free */
    if (cut[k] + delta <= cut[k - 1])
        return false;
    int end = k + 1;
    for (; end <= last && cut[end - 1] + delta < cut[s->t->n_slices]; end++) {
        /* Slice end - 2 has both of its ends moved (the first one only its right end); slice end -
         * 1 its left one. */
        double *out = s->changed + (size_t)(end - 1) * s->stride;
        cut[end - 1] += delta;
        stream_run_slice(s, end - 2, in, out);
        in = out;
        if (cut[end] <= cut[end - 1])
            continue;
        stream_run_slice(s, end - 1, in, closed);
        double value = end_from(s, closed, end);
        if (value < best) {
            best = value;
            best_end = end;
        }
    }
    for (int i = best_end ? best_end : k; i < end - 1; i++)
        cut[i] -= delta;
    if (best_end)
        s->t->value = stream_run_kept(s, k - 1);
    return best_end > 0;
}

/* One pass over all cuts with moves of `delta`. */
static bool shift_cuts(struct slice_stream *s, int delta)
{
    struct trial *t = s->t;
    bool better = false, latency = s->x->options->objective == PIPELINE_LATENCY;
    for (int k = t->n_slices - 1; k > 0 && s->x->work < s->x->work_limit; k--) {
        int window = t->n_slices <= FEW_SLICES ? WINDOW_OF_FEW : WINDOW_OF_MANY,
            last = t->n_slices - k <= window ? t->n_slices : k + window;
        if (latency) {
            while (shift_best(s, k, last, delta) || shift_best(s, k, last, -delta))
                better = true;
        } else {
            while (try_shift(s, k, k + 1, delta) || try_shift(s, k, k + 1, -delta))
                better = true;
        }
        while (try_shift(s, k, t->n_slices, delta) || try_shift(s, k, t->n_slices, -delta))
            better = true;
    }
    return better;
}

static bool change_count(struct slice_stream *s)
{
    struct trial *t = s->t;
    bool better = false;
    for (int k = t->n_slices - 1; k > 0; k--)
        better |= try_merge(s, k);
    for (int k = t->n_slices - 1; k >= 0; k--)
        better |= try_split(s, k, (t->cut[k] + t->cut[k + 1]) / 2) ||
                  try_split(s, k, t->cut[k] + 1) || try_split(s, k, t->cut[k + 1] - 1);
    return better;
}

void slices_polish(struct exact *x, struct trial *t, int least)
{
    struct slice_stream s;
    stream_start(&s, x, t);
    for (bool better = true; better && x->work < x->work_limit;) {
        better = false;
        for (int delta = x->c->n_units / 64 > least ? x->c->n_units / 64 : least; delta >= least;
             delta /= 2)
            better |= shift_cuts(&s, delta);
        better |= change_count(&s);
    }
}
