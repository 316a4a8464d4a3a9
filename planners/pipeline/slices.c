/* Slicings for given stages: equal times as a start, Algorithm 2 as another, then moves of single cuts under the exact flow.
 *
 * The flow runs slice by slice here: what a later cut changes leaves the state before it as it was. */
#include "planners/pipeline/exact_int.h"

#include <math.h>
#include <string.h>

#include "planners/pipeline/hpipe.h"

/* ---- equal times --------------------------------------------------------------------------------------------------------- */

/* The stage with the most to do for the whole prompt; layers and kind of it. */
static void busiest_stage(const struct exact *x, const struct trial *t, int *kind, int *first, int *end)
{
    const struct cost *c = x->c;
    double most = -1;
    *kind = c->devices[0].kind;
    *first = 0;
    *end = c->n_layers;
    for (int j = 0; j < t->n_stages; j++) {
        int q = c->devices[t->device[j]].kind;
        double s = cost_units_seconds(c, q, trial_first(t, j), t->end[j], 0, c->n_units);
        if (s > most) {
            most = s;
            *kind = q;
            *first = trial_first(t, j);
            *end = t->end[j];
        }
    }
}

void slices_equal(const struct exact *x, struct trial *t, int m)
{
    enum { STEPS = 24 };
    const struct cost *c = x->c;
    int kind, first, end, n_units = c->n_units;
    busiest_stage(x, t, &kind, &first, &end);
    double low = 0, high = cost_units_seconds(c, kind, first, end, 0, n_units);
    for (int step = 0; step <= STEPS; step++) {
        double limit = step == STEPS ? high : (low + high) / 2;
        int n = 0, at = 0;
        while (at < n_units && n < (step == STEPS ? n_units : m + 1)) {
            int lo = at + 1, hi = n_units;
            while (lo < hi) {
                int mid = (lo + hi + 1) / 2;
                if (cost_units_seconds(c, kind, first, end, at, mid) <= limit)
                    lo = mid;
                else
                    hi = mid - 1;
            }
            t->cut[++n] = at = lo;
        }
        t->n_slices = n;
        if (at == n_units && n <= m)
            high = limit;
        else
            low = limit;
    }
    t->cut[0] = 0;
}

int slices_published(struct exact *x, struct trial *t, struct err *e)
{
    struct cost scratch = *x->c;
    struct arena arena = {0};
    scratch.arena = &arena;
    double *seconds = hpipe_slice_seconds(&scratch, t->device, t->end, t->n_stages, true, e);
    int rc = seconds ? hpipe_slices(x->c->n_units, x->c->row, seconds, t->n_stages, &arena, t->cut, &t->n_slices, e) : HP_ENOMEM;
    arena_free(&arena);
    return rc;
}

/* ---- the flow, slice by slice ----------------------------------------------------------------------------------------------- */

enum { STAGE_CLASSES = 8 };

/* What a stage costs: classes of layers with their counts, and its hop. */
struct lane {
    const double *table[STAGE_CLASSES];
    double count[STAGE_CLASSES];
    int n; /* -1: more classes than fit here; ask the cost instead */
    int kind, first, end;
    double wire_per_unit_token, latency_s;
};

struct stream {
    struct exact *x;
    struct trial *t;
    struct lane lane[PIPELINE_MAX_DEVICES];
    int valid; /* slices whose state in x->flow is that of the current slicing */
};

static void set_lane(const struct exact *x, const struct trial *t, int j, struct lane *lane)
{
    const struct cost *c = x->c;
    *lane = (struct lane){.kind = c->devices[t->device[j]].kind, .first = trial_first(t, j), .end = t->end[j]};
    for (int q = 0; q < c->n_classes; q++) {
        int count = c->class_count[lane->end * c->n_classes + q] - c->class_count[lane->first * c->n_classes + q];
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

static inline double lane_seconds(const struct exact *x, const struct lane *lane, int i, int j)
{
    double sum = 0;
    ptrdiff_t cell = x->c->row[i] + j;
    if (lane->n < 0)
        return cost_units_seconds(x->c, lane->kind, lane->first, lane->end, i, j);
    for (int k = 0; k < lane->n; k++)
        sum += lane->count[k] * lane->table[k][cell];
    return sum;
}

/* State before slice k: when each stage is free, when each hop is, and how long each stage computed. */
static double *state_of(const struct exact *x, int k) { return x->flow + (size_t)k * 3 * (size_t)x->c->n_devices; }

/* Runs slice k from its state into the next one's; gives when it leaves the last stage. */
static double run_slice(struct stream *s, int k)
{
    const struct exact *x = s->x;
    int n = s->t->n_stages, from = s->t->cut[k], to = s->t->cut[k + 1];
    const double *in = state_of(x, k);
    double *out = state_of(x, k + 1), arrival = 0, tokens = x->c->starts[to] - x->c->starts[from];
    for (int j = 0; j < n; j++) {
        const struct lane *lane = &s->lane[j];
        double compute = lane_seconds(x, lane, from, to), free_s = in[3 * j], wire_s = in[3 * j + 1];
        free_s = (free_s > arrival ? free_s : arrival) + compute;
        wire_s = (wire_s > free_s ? wire_s : free_s) + lane->wire_per_unit_token * tokens;
        arrival = wire_s + lane->latency_s;
        out[3 * j] = free_s;
        out[3 * j + 1] = wire_s;
        out[3 * j + 2] = in[3 * j + 2] + compute;
    }
    s->x->work += n;
    return out[3 * (n - 1)];
}

/* Value of the current slicing, which differs from the one before in slices >= `changed` only. */
static double stream_value(struct stream *s, int changed)
{
    struct exact *x = s->x;
    double end_s = 0;
    int n = s->t->n_stages;
    for (int k = changed < s->valid ? changed : s->valid; k < s->t->n_slices; k++)
        end_s = run_slice(s, k);
    s->valid = changed;
    const double *last = state_of(x, s->t->n_slices);
    for (int j = 0; j < n; j++) {
        x->stage_compute_s[j] = last[3 * j + 2];
        x->stage_wire_s[j] = s->lane[j].wire_per_unit_token * x->c->tokens;
    }
    return exact_value(x, s->t, n, end_s);
}

static void stream_start(struct stream *s, struct exact *x, struct trial *t)
{
    s->x = x;
    s->t = t;
    s->valid = 0;
    for (int j = 0; j < t->n_stages; j++)
        set_lane(x, t, j, &s->lane[j]);
    memset(state_of(x, 0), 0, 3 * (size_t)x->c->n_devices * sizeof(double));
}

/* ---- moves ------------------------------------------------------------------------------------------------------------------- */

/* Keeps the slicing if it is better. Otherwise the caller undoes it. */
static bool keep(struct stream *s, int changed)
{
    double value = stream_value(s, changed);
    if (!(value < s->t->value))
        return false;
    s->t->value = value;
    s->valid = s->t->n_slices;
    return true;
}

/* Moves cuts [k, end) by delta units. */
static bool try_shift(struct stream *s, int k, int end, int delta)
{
    int *cut = s->t->cut;
    if (cut[k] + delta <= cut[k - 1] || cut[end - 1] + delta >= cut[end])
        return false;
    for (int i = k; i < end; i++)
        cut[i] += delta;
    if (keep(s, k - 1))
        return true;
    for (int i = k; i < end; i++)
        cut[i] -= delta;
    return false;
}

static bool try_merge(struct stream *s, int k)
{
    struct trial *t = s->t;
    int removed = t->cut[k];
    memmove(&t->cut[k], &t->cut[k + 1], (size_t)(t->n_slices - k) * sizeof *t->cut);
    t->n_slices--;
    if (keep(s, k - 1))
        return true;
    memmove(&t->cut[k + 1], &t->cut[k], (size_t)(t->n_slices - k + 1) * sizeof *t->cut);
    t->cut[k] = removed;
    t->n_slices++;
    return false;
}

/* Splits slice k at `at`. */
static bool try_split(struct stream *s, int k, int at)
{
    struct trial *t = s->t;
    if (at <= t->cut[k] || at >= t->cut[k + 1])
        return false;
    memmove(&t->cut[k + 2], &t->cut[k + 1], (size_t)(t->n_slices - k) * sizeof *t->cut);
    t->cut[k + 1] = at;
    t->n_slices++;
    if (keep(s, k))
        return true;
    memmove(&t->cut[k + 1], &t->cut[k + 2], (size_t)(t->n_slices - 1 - k) * sizeof *t->cut);
    t->n_slices--;
    return false;
}

static bool shift_cuts(struct stream *s, int delta)
{
    bool better = false;
    for (int k = s->t->n_slices - 1; k > 0 && s->x->work < s->x->work_limit; k--) {
        while (try_shift(s, k, k + 1, delta) || try_shift(s, k, k + 1, -delta))
            better = true;
        while (try_shift(s, k, s->t->n_slices, delta) || try_shift(s, k, s->t->n_slices, -delta))
            better = true;
        while (try_shift(s, 1, k + 1, delta) || try_shift(s, 1, k + 1, -delta))
            better = true;
    }
    return better;
}

static bool change_count(struct stream *s)
{
    struct trial *t = s->t;
    bool better = false;
    for (int k = t->n_slices - 1; k > 0; k--)
        better |= try_merge(s, k);
    for (int k = t->n_slices - 1; k >= 0; k--)
        better |= try_split(s, k, (t->cut[k] + t->cut[k + 1]) / 2) || try_split(s, k, t->cut[k] + 1) || try_split(s, k, t->cut[k + 1] - 1);
    return better;
}

void slices_polish(struct exact *x, struct trial *t)
{
    struct stream s;
    stream_start(&s, x, t);
    t->value = stream_value(&s, 0);
    s.valid = t->n_slices;
    for (bool better = true; better && x->work < x->work_limit;) {
        better = false;
        for (int delta = x->c->n_units > 64 ? x->c->n_units / 64 : 1; delta > 0; delta /= 2)
            better |= shift_cuts(&s, delta);
        better |= change_count(&s);
    }
}

double slices_evaluate(struct exact *x, const struct trial *t)
{
    struct stream s;
    stream_start(&s, x, (struct trial *)t);
    return stream_value(&s, 0);
}
