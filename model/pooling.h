/* Pooling: what an encoder's rows, one for each token, become as one row for the text. */
#ifndef HP_MODEL_POOLING_H
#define HP_MODEL_POOLING_H

#include <stddef.h>

#include "model/graph/config.h"

/* Rows f32 [n > 0, width] to out [width]. `how` is not POOLING_NONE; sums are float64. */
void pooling_apply(enum model_pooling how, const float *rows, size_t n, size_t width, float *out);
/* Scales a row to length 1; one of zeros stays. */
void pooling_normalise(float *row, size_t width);

#endif
