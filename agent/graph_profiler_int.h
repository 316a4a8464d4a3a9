/* What the files of the graph profiler share: one measurement of a model's operators. */
#ifndef HP_AGENT_GRAPH_PROFILER_INT_H
#define HP_AGENT_GRAPH_PROFILER_INT_H

#include "agent/backend/backend.h"
#include "agent/engine/section_tensor.h"
#include "agent/graph_profiler.h"
#include "model/graph/section.h"
#include "model/model.h"

struct placed_param {
    const struct weight *weight;
    bool rows; /* as a table of rows: kept apart from the same weight as a matrix */
    int node;
};

/* What one operator of a kind and shape takes. */
struct op_cost {
    enum op_kind kind;
    uint64_t rows, columns;
    int dtype;
    uint32_t tokens;
    double run_s, load_s[OP_WEIGHTS_MAX], in_place_s;
};

struct graph_profiling {
    const struct graph_profiler_config *c;
    const struct backend *b;
    struct model *model;
    const struct graph *graph;
    struct stream *stream;
    struct graph_section section; /* all layers, for so many tokens and one row that is wanted */
    uint64_t sizes[GRAPH_SEQUENCE_SYMBOLS];
    struct memory *buffers;
    struct kv_group kv; /* of one block of the attention that runs; the pool has room for any */
    uint32_t *pages, *numbers; /* [tokens] */
    struct op_cost *costs;
    int n_costs;
    uint64_t sample_ns; /* time for one measurement */
    /* The graph in the making. */
    json_t *nodes, *edges;
    int n_nodes;
    int *writer; /* [values]: the operator's node that made the value; NO_NODE: none */
    struct placed_param *placed;
    int n_placed;
    double bytes, load_s; /* of all parameters */
};

/* The value with as many rows as the profile has. */
struct tensor graph_profiling_tensor(const struct graph_profiling *p, int value);
/* Of one block of an attention. */
struct kv_layout graph_profiling_layout(const struct graph_profiling *p, const struct graph_op *op);
/* Runs an operator that has no weights, once. */
int graph_profiling_run(struct graph_profiling *p, const struct graph_op *op, struct err *e);
/* What an operator costs: measured once for each kind and shape. */
int graph_profiling_cost(struct graph_profiling *p, const struct graph_op *op, struct op_cost *out,
                         struct err *e);
/* Shares the budget among the different measurements that there will be. */
void graph_profiling_share_time(struct graph_profiling *p);

#endif
