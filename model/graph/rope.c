#include "model/graph/rope.h"

#include <math.h>

#include "model/graph/family.h"

void rope_llama3_factors(const struct rope_llama3 *s, double base, int dims, float *factors)
{
    const double pi = 3.14159265358979323846;
    double longest = s->original_context / s->low_freq_factor,
           shortest = s->original_context / s->high_freq_factor;
    for (int i = 0; i < dims / 2; i++) {
        double wavelength = 2 * pi * pow(base, 2.0 * i / dims), factor = s->factor;
        if (wavelength < shortest) {
            factor = 1;
        } else if (wavelength <= longest) {
            double kept = (s->original_context / wavelength - s->low_freq_factor) /
                          (s->high_freq_factor - s->low_freq_factor);
            factor = 1 / ((1 - kept) / s->factor + kept);
        }
        factors[i] = (float)factor;
    }
}

void rope_dynamic_factors(double factor, double times, int dims, float *factors)
{
    double larger =
        pow(factor * times - (factor - 1), dims / (dims - 2.0)); /* the base, so often */
    for (int i = 0; i < dims / 2; i++)
        factors[i] = (float)pow(larger, 2.0 * i / dims);
}

static double yarn_pair_of(const struct rope_yarn *y, double turns, double base, int dims)
{
    const double pi = 3.14159265358979323846;
    return dims * log(y->original_context / (turns * 2 * pi)) / (2 * log(base));
}

static void yarn_factors_make(const struct rope_yarn *y, double base, int dims, float *factors)
{
    double low = yarn_pair_of(y, y->beta_fast, base, dims),
           high = yarn_pair_of(y, y->beta_slow, base, dims);
    low = fmax(y->truncate ? floor(low) : low, 0);
    high = fmin(y->truncate ? ceil(high) : high, dims - 1);
    if (low == high)
        high += 0.001;
    for (int i = 0; i < dims / 2; i++) {
        double stretched = fmin(fmax((i - low) / (high - low), 0), 1);
        factors[i] = (float)(1 / (stretched / y->factor + (1 - stretched)));
    }
}

static int yarn_check(const char *file, const struct rope_yarn *y, double base, struct err *e)
{
    bool good = y->factor > 0 && y->factor < 1e9 && y->beta_slow > 0 &&
                y->beta_fast >= y->beta_slow && y->beta_fast < 1e9 && y->original_context >= 1 &&
                y->original_context <= MODEL_CONTEXT_MAX && base > 1 && base < 1e30;
    return good ? 0
                : err_set(e, HP_EPARSE,
                          "%s: YaRN's factor %g, beta %g to %g, context %g and base %g do not make "
                          "frequencies",
                          file, y->factor, y->beta_slow, y->beta_fast, y->original_context, base);
}

double rope_yarn_magnitude(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

int rope_factors_alloc(const char *file, int dims, struct arena *arena, float **out, struct err *e)
{
    if (dims < 2 || dims > MODEL_HEAD_MAX)
        return err_set(e, HP_EPARSE, "%s: %d rotated dimensions", file, dims);
    *out = arena_alloc(arena, (size_t)dims / 2 + 1, sizeof **out);
    return *out ? 0 : err_set(e, HP_ENOMEM, "%s: out of memory", file);
}

int rope_yarn_take(const char *file, const struct rope_yarn *y, struct arena *arena,
                   struct rope_config *rope, struct err *e)
{
    float *factors;
    int rc = yarn_check(file, y, rope->base, e);
    rc = rc < 0 ? rc : rope_factors_alloc(file, rope->dims, arena, &factors, e);
    if (rc < 0)
        return rc;
    rope->yarn = arena_memdup(arena, y, sizeof *y);
    if (!rope->yarn)
        return err_set(e, HP_ENOMEM, "%s: out of memory", file);
    yarn_factors_make(y, rope->base, rope->dims, factors);
    rope->factors = factors;
    return 0;
}

int rope_factors_from_weight(const char *file, const struct weight *w, int dims,
                             struct arena *arena, const float **out, struct err *e)
{
    size_t n = (size_t)dims / 2;
    if (w->n_dims != 1 || w->shape[0] != n)
        return err_set(e, HP_EPARSE, "%s: tensor %s has %llu elements, expected %zu", file, w->name,
                       (unsigned long long)w->shape[0], n);
    if (w->dtype == DTYPE_COUNT)
        return err_set(e, HP_EUNSUPPORTED, "%s: tensor %s has number format %s", file, w->name,
                       w->format);
    float *factors = arena_alloc(arena, n, sizeof *factors);
    if (!factors)
        return err_set(e, HP_ENOMEM, "%s: out of memory for tensor %s", file, w->name);
    dtype_info(w->dtype)->to_f32(w->data, n, factors);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(factors[i]) || factors[i] <= 0)
            return err_set(e, HP_EPARSE, "%s: tensor %s: factor %zu is %g", file, w->name, i,
                           (double)factors[i]);
    *out = factors;
    return 0;
}
