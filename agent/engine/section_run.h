/* A section of a graph made ready on a device: its weights, the memory of its values, its operators
 * and the stream that they run on. What stages and graphs of fixed shape stand on.
 *
 * Used by one thread at a time. */
#ifndef HP_AGENT_ENGINE_SECTION_RUN_H
#define HP_AGENT_ENGINE_SECTION_RUN_H

#include "agent/engine/section_plan.h"

struct section_run;

/* Loads the weights. HP_ENOMEM, HP_EUNSUPPORTED, HP_ECANCELED. */
int section_run_create(const struct section_config *c, struct section_run **out, struct err *e);
void section_run_destroy(struct section_run **r);

const struct graph_section *section_run_plan(const struct section_run *r);
struct stream *section_run_stream(const struct section_run *r);

/* The operators work on so many rows of that symbol from now on. */
void section_run_resize(struct section_run *r, enum graph_symbol symbol, uint64_t rows);
uint64_t section_run_rows(const struct section_run *r, enum graph_symbol symbol);

/* Puts operators [first, end) of the section on the stream; `batch` as op_run has it. */
void section_run_ops(struct section_run *r, int first, int end, const struct op_batch *batch);

/* A value's memory on the device, as so many rows. */
struct tensor section_run_value(const struct section_run *r, int value, uint64_t rows);

/* Puts copies on the stream. Values come from the host, or go there: they follow each other there,
 * each with all its rows, float32 values as `outside` (any other keeps its own format). */
void section_run_copy(struct section_run *r, const int *values, int n, uint64_t rows,
                      enum dtype outside, void *host, bool to_host);

#endif
