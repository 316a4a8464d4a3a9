#include "model/graph/rope.h"

#include <math.h>

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
