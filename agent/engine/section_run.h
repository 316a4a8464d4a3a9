/* A section of a graph made ready on a device: its weights, the memory of its values, its operators
 * and the stream that they run on. What stages and graphs of fixed shape stand on.
 *
 * Weights are there when it is made, or (`later`) come after it, each before the operators that
 * read it: an operator is put on the stream when its weights are there, so that the first batch
 * runs behind the loading (pipelined model transmission: PipeSwitch, OSDI 2020; DeepPlan, EuroSys
 * 2023, section 3).
 *
 * Used by one thread at a time, but for section_run_fill. */
#ifndef HP_AGENT_ENGINE_SECTION_RUN_H
#define HP_AGENT_ENGINE_SECTION_RUN_H

#include "agent/engine/section_plan.h"

struct section_run;

/* Loads the weights. HP_ENOMEM, HP_EUNSUPPORTED, HP_ECANCELED. */
int section_run_create(const struct section_config *c, struct section_run **out, struct err *e);
/* What has been promised to be filled is waited for, and stops. */
void section_run_destroy(struct section_run **r);

/* Of a section whose weights come later. Promised by whoever will fill it, on a thread of a loader,
 * once: until then it is not destroyed, and operators wait. An error of it is that of all batches,
 * too (section_run_failure). HP_ENOMEM, HP_EUNSUPPORTED, HP_ECANCELED: it was destroyed. */
void section_run_promise(struct section_run *r);
/* `progress` (may be NULL) hears of each weight: bytes that are there, of all. */
int section_run_fill(struct section_run *r,
                     void (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                     void *progress_ctx, struct err *e);
/* Bytes of weights that the device will hold, and does not yet. Any thread. */
uint64_t section_run_missing_bytes(const struct section_run *r);
/* Why operators that were put on the stream were not run: 0, or the error of section_run_fill. */
int section_run_failure(struct section_run *r, struct err *e);

const struct graph_section *section_run_plan(const struct section_run *r);
struct stream *section_run_stream(const struct section_run *r);

/* The operators work on so many rows of that symbol from now on. */
void section_run_resize(struct section_run *r, enum graph_symbol symbol, uint64_t rows);
uint64_t section_run_rows(const struct section_run *r, enum graph_symbol symbol);

/* Puts operators [first, end) of the section on the stream; `batch` as op_run has it. Waits for
 * weights that come later. */
void section_run_ops(struct section_run *r, int first, int end, const struct op_batch *batch);

/* A value's memory on the device, as so many rows. */
struct tensor section_run_value(const struct section_run *r, int value, uint64_t rows);

/* Puts copies on the stream. Values come from the host, or go there: they follow each other there,
 * each with all its rows, float32 values as `outside` (any other keeps its own format). */
void section_run_copy(struct section_run *r, const int *values, int n, uint64_t rows,
                      enum dtype outside, void *host, bool to_host);

#endif
