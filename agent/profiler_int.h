/* What the files of the profiler share: profiler.c (its face, what is kept), profiler_points.c (one
 * layer of each class, point by point). */
#ifndef HP_AGENT_PROFILER_INT_H
#define HP_AGENT_PROFILER_INT_H

#include <jansson.h>

#include "agent/engine/stage.h"
#include "agent/measure_grid.h"
#include "agent/profiler.h"

enum { PROFILER_MAX_CLASSES = 16, PROFILER_MAX_BATCH = 8 };

/* One class of layers: the first layer of it stands for all. */
struct measure_class {
    int layer, n_layers;
    double share;  /* of the time */
    uint32_t step; /* what slices are quickest in multiples of (section_need); 0: nobody knows */
    struct measure_grid grid;
};

struct measure {
    const struct profiler_config *config;
    struct model *model;
    const struct graph *graph;
    uint64_t begun_ns, budget_ns;
    uint64_t point_ns; /* time for one point */
    uint32_t repeats;  /* of a layer's operators, where they alone are timed */
    double around;     /* a run with its sequence's opening, as a multiple of what is timed */
    struct measure_class classes[PROFILER_MAX_CLASSES];
    int n_classes, points;
    int layer;
    struct stage *stage;
    void *input;
    float *output;
    uint8_t *prefix; /* zeros: a piece of the keys and values of a prefix */
    uint8_t *cold;   /* cold_bytes that push the layer's weights out of the caches; NULL for a model
                        that stays in them */
    size_t cold_bytes;
    double cold_s; /* what that takes */
    json_t *tables;
};

/* Measures every class of layers into m->tables. */
int profiler_classes_measure(struct measure *m, struct err *e);
struct stage_config profiler_stage_config(const struct measure *m, int layer, uint32_t max_slice,
                                          uint32_t max_prefix, uint32_t max_batch);

#endif
