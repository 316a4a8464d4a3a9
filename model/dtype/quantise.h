/* The search for scales that all quantised formats share. A run of values becomes whole numbers (or
 * entries of a table) times a scale, with an offset in some formats, such that the sum of squared
 * differences is small: a scale is tried for each of some ways to lay the largest value onto the
 * grid, the best is improved by turns (numbers for the scale, then the scale of least squares for
 * the numbers). The same values always give the same bits. */
#ifndef HP_MODEL_DTYPE_QUANTISE_H
#define HP_MODEL_DTYPE_QUANTISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QUANTISE_RUN_MAX = 32 }; /* values of one scale; a multiple of 8 */

/* What values may become, before their scale. */
struct quantise_grid {
    int low, high;       /* the least and the greatest entry */
    const int8_t *table; /* [n_entries], ascending; NULL: every whole number */
    int n_entries;
};

/* The entries nearest to x[i] * inverse, as numbers. n is a multiple of 8. */
void quantise_round(const struct quantise_grid *g, const float *x, size_t n, float inverse,
                    float *entries);
/* The number of an entry among the grid's, from 0. */
int quantise_code(const struct quantise_grid *g, float entry);

/* The scale for x[n]; 0 where all are 0. */
float quantise_scale(const struct quantise_grid *g, const float *x, size_t n);
/* Sum of (x - scale * entry)^2 where entries are the nearest ones for that scale. */
float quantise_error(const struct quantise_grid *g, const float *x, size_t n, float scale);
/* 1 / scale; 0 for 0 and for what is too small to have an inverse. */
float quantise_inverse(float scale);

/* The same with an offset: x is about scale * q - less, q within 0 to `high`, and `less` at least 0
 * where `less_is_positive`. */
struct quantise_line {
    float scale, less;
};
struct quantise_line quantise_line(int high, const float *x, size_t n, bool less_is_positive);
float quantise_line_error(int high, const float *x, size_t n, struct quantise_line l);
void quantise_line_round(int high, const float *x, size_t n, struct quantise_line l, float *q);

#endif
