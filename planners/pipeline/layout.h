/* A pipeline plan inside the planner: devices by index, layers, cuts; its checks and its times.
 *
 * Three forms share it. Slices: the prompt is cut at `cuts`. Micro-batches (GPipe): the batch is
 * cut into `micro_batches` equal parts and each of them is one whole prompt. Tensor parallel: a
 * stage runs on `group_sizes[j]` equal devices of one node, from `groups[j]`. */
#ifndef HP_PLANNERS_PIPELINE_LAYOUT_H
#define HP_PLANNERS_PIPELINE_LAYOUT_H

#include "planners/pipeline/cost.h"

struct layout {
    int n_stages, n_slices;
    int *devices; /* [n_stages] of the cost's devices; tensor parallel: the first of the group */
    int *ends;    /* [n_stages] the layer that ends the stage */
    int *cuts;    /* [n_slices + 1] units */
    int micro_batches; /* 0: slices */
    int **groups;      /* NULL: one device a stage */
    int *group_sizes;
};

/* What a layout takes: arrays as flow.h wants them. n_pieces is the slices or micro-batches that
 * flow. */
struct layout_times {
    int n_pieces;
    double *compute_s, *wire_s; /* [stage * n_pieces + piece] */
    double *latency_s;          /* [stage] */
};

/* Room for a layout of that many stages and slices. HP_ENOMEM. */
int layout_alloc(struct arena *arena, int n_stages, int n_slices, struct layout *out,
                 struct err *e);

/* Cuts slices that are longer than the cost's max_slice into equal pieces, as far as cut positions
 * go. HP_ENOMEM. */
int layout_split(const struct pipeline_cost *c, struct layout *l, struct err *e);

/* Memory and connections. HP_EINFEASIBLE with the stage that breaks them in the text. */
int layout_check(const struct pipeline_cost *c, const struct layout *l, struct err *e);
/* Bytes that one device of stage j needs. */
double layout_memory_bytes(const struct pipeline_cost *c, const struct layout *l, int j);
/* Times in the cost's arena. HP_ENOMEM. */
int layout_time(const struct pipeline_cost *c, const struct layout *l, struct layout_times *out,
                struct err *e);
/* Seconds of stage j for `slice` tokens after `prefix` with any batch: compute, and for a group of
 * devices its all-reduces too.
 */
double layout_stage_seconds(const struct pipeline_cost *c, const struct layout *l, int j,
                            double slice, double prefix, double batch);

static inline int layout_first(const struct layout *l, int j)
{
    return j ? l->ends[j - 1] : 0;
}

#endif
