#include "model/dtype/quantise.h"

#include <math.h>

enum { LANES = 8, FACTORS_BELOW = 8, FACTORS_ABOVE = 4, IMPROVEMENTS = 2 };

/* ---- sums, in one order whatever the compiler does ---- */

static float lanes_sum(const float *s)
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* Of a * b. */
static float product_sum(const float *a, const float *b, size_t n)
{
    float s[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            s[l] += a[i + l] * b[i + l];
    return lanes_sum(s);
}

static float value_sum(const float *a, size_t n)
{
    float s[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            s[l] += a[i + l];
    return lanes_sum(s);
}

/* ---- the grid ---- */

/* Adding and taking off 1.5 * 2^23 leaves the nearest whole number. */
static float nearest_whole(float v)
{
    const float shift = 12582912.0f;
    return (v + shift) - shift;
}

static float value_clamp(float v, float low, float high)
{
    v = v < low ? low : v;
    return v > high ? high : v;
}

static void round_to_table(const struct quantise_grid *g, const float *x, size_t n, float inverse,
                           float *entries)
{
    for (size_t i = 0; i < n; i++)
        entries[i] = (float)g->table[0];
    for (int k = 1; k < g->n_entries; k++) {
        float from = ((float)g->table[k - 1] + (float)g->table[k]) / 2, entry = (float)g->table[k];
        for (size_t i = 0; i < n; i++)
            entries[i] = x[i] * inverse > from ? entry : entries[i];
    }
}

void quantise_round(const struct quantise_grid *g, const float *x, size_t n, float inverse,
                    float *entries)
{
    float low = (float)g->low, high = (float)g->high;
    if (g->table) {
        round_to_table(g, x, n, inverse, entries);
        return;
    }
    for (size_t i = 0; i < n; i++)
        entries[i] = nearest_whole(value_clamp(x[i] * inverse, low, high));
}

int quantise_code(const struct quantise_grid *g, float entry)
{
    int code = 0;
    if (!g->table)
        return (int)entry - g->low;
    while (code < g->n_entries - 1 && g->table[code] < (int)entry)
        code++;
    return code;
}

float quantise_inverse(float scale)
{
    float inverse = scale != 0 ? 1 / scale : 0;
    return isfinite(inverse) ? inverse : 0;
}

/* ---- a scale ---- */

/* What the scale of least squares leaves less to the sum of squares, and that scale. */
static float scale_gain(const struct quantise_grid *g, const float *x, size_t n, float inverse,
                        float *scale)
{
    float entries[QUANTISE_RUN_MAX];
    quantise_round(g, x, n, inverse, entries);
    float both = product_sum(x, entries, n), squares = product_sum(entries, entries, n);
    *scale = squares > 0 ? both / squares : 0;
    return squares > 0 ? both * *scale : 0;
}

static float greatest_of(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    return most;
}

/* One step of a factor is a quarter of the distance of two entries at the end of the grid. */
static float factor_step(const struct quantise_grid *g)
{
    return 0.5f / (float)(g->table ? g->n_entries : g->high - g->low);
}

float quantise_scale(const struct quantise_grid *g, const float *x, size_t n)
{
    float most = greatest_of(x, n), best = 0, best_gain = 0, scale;
    if (most == 0 || !isfinite(1 / most))
        return 0;
    for (int end = 0; end < 2; end++) {
        float limit = (float)(end ? g->high : g->low);
        for (int f = -FACTORS_BELOW; f <= FACTORS_ABOVE; f++) {
            float gain =
                scale_gain(g, x, n, limit * (1 + (float)f * factor_step(g)) / most, &scale);
            if (gain > best_gain) {
                best_gain = gain;
                best = scale;
            }
        }
    }
    for (int i = 0; i < IMPROVEMENTS; i++) {
        float gain = scale_gain(g, x, n, quantise_inverse(best), &scale);
        best = gain > best_gain ? scale : best;
        best_gain = gain > best_gain ? gain : best_gain;
    }
    return best;
}

float quantise_error(const struct quantise_grid *g, const float *x, size_t n, float scale)
{
    float entries[QUANTISE_RUN_MAX];
    quantise_round(g, x, n, quantise_inverse(scale), entries);
    for (size_t i = 0; i < n; i++)
        entries[i] = x[i] - scale * entries[i];
    return product_sum(entries, entries, n);
}

/* ---- a scale and an offset ---- */

void quantise_line_round(int high, const float *x, size_t n, struct quantise_line l, float *q)
{
    float inverse = quantise_inverse(l.scale);
    for (size_t i = 0; i < n; i++)
        q[i] = nearest_whole(value_clamp((x[i] + l.less) * inverse, 0, (float)high));
}

float quantise_line_error(int high, const float *x, size_t n, struct quantise_line l)
{
    float q[QUANTISE_RUN_MAX];
    quantise_line_round(high, x, n, l, q);
    for (size_t i = 0; i < n; i++)
        q[i] = x[i] - (l.scale * q[i] - l.less);
    return product_sum(q, q, n);
}

/* The line of least squares for the numbers that `from` gives. */
static struct quantise_line line_fit(int high, const float *x, size_t n, struct quantise_line from,
                                     bool less_is_positive)
{
    float q[QUANTISE_RUN_MAX], count = (float)n;
    quantise_line_round(high, x, n, from, q);
    float sum = value_sum(q, n), squares = product_sum(q, q, n), sum_x = value_sum(x, n),
          both = product_sum(x, q, n), spread = count * squares - sum * sum;
    if (!(spread > 0))
        return from;
    struct quantise_line l = {.scale = (count * both - sum * sum_x) / spread};
    l.less = (l.scale * sum - sum_x) / count;
    if (less_is_positive && l.less < 0)
        l = (struct quantise_line){.scale = both / squares};
    return l.scale > 0 ? l : from;
}

struct quantise_line quantise_line(int high, const float *x, size_t n, bool less_is_positive)
{
    float least = x[0], most = x[0];
    for (size_t i = 1; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    if (less_is_positive && least > 0)
        least = 0;
    if (!(most > least))
        return (struct quantise_line){.less = less_is_positive && least > 0 ? 0 : -least};
    struct quantise_line best = {(most - least) / (float)high, -least};
    float best_error = quantise_line_error(high, x, n, best);
    /* Ends that are cut off, both alike: fewer of a grid with few numbers. */
    for (int f = -FACTORS_ABOVE; f <= FACTORS_BELOW; f++) {
        float cut = (most - least) * (float)f / (float)(8 * high), width = most - least - 2 * cut;
        struct quantise_line l = {width / (float)high, -(least + cut)};
        if (less_is_positive && l.less < 0)
            l.less = 0;
        for (int i = 0; i < IMPROVEMENTS; i++) {
            l = line_fit(high, x, n, l, less_is_positive);
            float error = quantise_line_error(high, x, n, l);
            if (error < best_error) {
                best_error = error;
                best = l;
            }
        }
    }
    return best;
}
