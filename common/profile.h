/* What a model costs on each kind of device (file format hp-profile/1).
 *
 * Two shapes of model share the format. A sequence model's tables have the axes `slice` (new
 * tokens) and `prefix` (cached tokens); a fixed-shape model's have `share` (a device cut into equal
 * parts) and `batch`. Which one it is stands in `shape`. */
#ifndef HP_COMMON_PROFILE_H
#define HP_COMMON_PROFILE_H

#include <stddef.h>

#include "common/arena.h"
#include "common/json.h"
#include "common/status.h"

enum profile_shape { PROFILE_SEQUENCE, PROFILE_FIXED };
enum { PROFILE_EXPERTS_MAX = 1 << 12 /* of a layer */ };

struct profile_layer {
    const char *name;
    int class_index;
    double param_bytes;
    double state_bytes_per_token;      /* of one sequence */
    double output_bytes_per_token;     /* of one sequence */
    double activation_bytes_per_token; /* of one sequence; 0 unless given */
    double output_bytes;               /* fixed shape: per sample */
    double activation_bytes;           /* fixed shape: per sample, while it runs; 0 unless given */
    /* Of a mixture: experts, how many of them a token takes, and their part of `param_bytes`; 0
     * unless given. */
    double experts, experts_used, expert_bytes;
};

enum { PROFILE_STEP_MOST = 512 };

/* seconds[i * n_y + j] for x[i], y[j]; x is slice or share, y is prefix or batch, both strictly
 * rising. NaN: not profiled. */
struct profile_table {
    double *x, *y, *seconds;
    int n_x, n_y;
    int step; /* slices that are multiples of it are quickest: kernels take so many rows together;
                 0: nobody knows */
};

struct profile {
    struct arena arena; /* owns all below */
    const char *model;
    enum profile_shape shape;
    double batch; /* sequences that each time is for; 1 unless given */
    struct profile_layer *layers;
    int n_layers;
    const char **classes;
    int n_classes;
    const char **kinds;
    int n_kinds;
    double useful_slice_tokens;   /* the shortest slice that is worth it, as measured, on the kind
                                     where it is shortest; 0: not known */
    struct profile_table *tables; /* [kind][class]; n_x 0 where the file has none */
};

/* Zero-initialise before. On failure nothing is left to free. */
int profile_load(const char *file, struct profile *out, struct err *e);
int profile_from_json(const struct json_at *at, struct profile *out, struct err *e);
void profile_free(struct profile *p);

/* Index of a kind; -1 when the profile does not know it. */
int profile_find_kind(const struct profile *p, const char *kind);
static inline const struct profile_table *profile_table_of(const struct profile *p, int kind,
                                                           int class_index)
{
    return &p->tables[kind * p->n_classes + class_index];
}

/* A table at (x, y): bilinear between grid points, linear beyond them, constant along an axis of
 * one point, never below 0. NaN where the table is empty or a point it needs was not profiled. */
double profile_table_at(const struct profile_table *t, double x, double y);
/* The value at a grid point; NaN where there is no such point, or it was not profiled. */
double profile_table_exact(const struct profile_table *t, double x, double y);

/* Leaves the times that `other`, a profile of as many layers, has too: where one of a class's
 * layers was not profiled there on the same kind, at the same point, the time becomes NaN. */
void profile_intersect(struct profile *p, const struct profile *other);
/* The first layer that has no time on any kind; -1: all have some. */
int profile_layer_untimed(const struct profile *p);

#endif
