#include "model/pooling.h"

#include <math.h>
#include <string.h>

void pooling_apply(enum model_pooling how, const float *rows, size_t n, size_t width, float *out)
{
    if (how != POOLING_MEAN) {
        memcpy(out, rows + (how == POOLING_LAST ? n - 1 : 0) * width, width * sizeof *out);
        return;
    }
    for (size_t i = 0; i < width; i++) {
        double sum = 0;
        for (size_t r = 0; r < n; r++)
            sum += (double)rows[r * width + i];
        out[i] = (float)(sum / (double)n);
    }
}

void pooling_normalise(float *row, size_t width)
{
    double squares = 0;
    for (size_t i = 0; i < width; i++)
        squares += (double)row[i] * (double)row[i];
    for (size_t i = 0; squares > 0 && i < width; i++)
        row[i] = (float)((double)row[i] / sqrt(squares));
}
