/* A section: what layers [first, end) of a graph run, read, give and need memory for.
 *
 * Values whose lives do not overlap lie in the same buffer, and the result of an operator lies in
 * the memory of an input where its kind allows that and nobody reads the input later. What is given
 * (ids, positions, rows that are wanted) has a buffer of its own.
 *
 * Pure: no device. Used by one thread. */
#ifndef HP_MODEL_GRAPH_SECTION_H
#define HP_MODEL_GRAPH_SECTION_H

#include "common/status.h"
#include "model/graph/kinds.h"

enum { SECTION_NO_BUFFER = -1, SECTION_NO_VIEW = -1, SECTION_NEVER = -1 };

/* A value that is some columns of another, in whose buffer it lies. */
struct section_view {
    int of; /* SECTION_NO_VIEW */
    uint64_t first;
};

struct graph_section {
    const struct graph *graph;
    const struct graph_op *
        *ops; /* [n_ops], in order: those of the prelude that it needs come first */
    int n_ops;
    int first_wanted_op; /* from here on operators work on rows that are wanted; n_ops: none does.
                            They may be run again and again, on some of these rows each time */
    const int *inputs, *outputs; /* values that enter and leave */
    int n_inputs, n_outputs;
    int *given, n_given; /* values that follow from the batch and are read here */
    int *own_inputs;     /* `inputs` of a section that begins with the first layer; else NULL */
    int *
        buffer_of; /* [graph's n_values]: where the value lies; SECTION_NO_BUFFER: it has no part */
    struct section_view *views; /* [graph's n_values]: of those that are parts of others */
    int *last_read; /* [graph's n_values]: which of `ops` reads the value, or a part of it, last;
                       n_ops: it stays to the end; SECTION_NEVER */
    uint64_t *buffer_bytes; /* [n_buffers] */
    int n_buffers;
};

/* `sizes` are the largest of each symbol that it must have room for. Free with graph_section_free.
 * HP_ENOMEM. */
int graph_section_make(const struct graph *g, int first, int end, const uint64_t *sizes,
                       struct graph_section *out, struct err *e);
void graph_section_free(struct graph_section *s);

/* Of all its buffers. */
uint64_t graph_section_bytes(const struct graph_section *s);

#endif
