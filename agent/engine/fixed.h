/* A graph of fixed shape on one device: values from outside by name in, values out, nothing kept
 * between two batches. The second kind of thing that a slot holds (slot.h); the first, a stage of a
 * sequence model, is stage.h.
 *
 * Every dimension of the graph's values is a number; its inputs are the values that enter with the
 * first layer, its outputs what the last layer gives. Used by one thread at a time, but for
 * loading, which may be on the device's loader thread. */
#ifndef HP_AGENT_ENGINE_FIXED_H
#define HP_AGENT_ENGINE_FIXED_H

#include "agent/engine/section_plan.h"

struct model;
struct fixed;

struct fixed_config {
    struct section_config section; /* `sizes` are not looked at */
    const struct model *model;     /* whose files the weights lie in, outlives this; NULL: none */
    uint64_t beside_bytes;         /* of the device's memory that is spoken for */
};

/* HP_EUNSUPPORTED names a value with a dimension that is not fixed, or the operator that the device
 * lacks; HP_ENOMEM says how many bytes are missing, HP_EIO which file could not be read;
 * HP_ECANCELED. */
int fixed_load(const struct fixed_config *c, struct fixed **out, struct err *e);
void fixed_unload(struct fixed **f);

/* A value in the host's memory: all its elements in row-major order; a float32 value as F32, F16 or
 * BF16, any other in its own format. */
struct fixed_value {
    const char *name;
    enum dtype dtype;
    void *data;
    uint64_t bytes;
};

/* Puts a batch on the device and returns: every input once, and those outputs that are wanted. At
 * most FIXED_DEPTH batches are under way; they are done in the order of their submission, and each
 * fails for itself. Memory stays as it is until the batch is complete. HP_EINVAL names the value
 * that is missing, unknown, given twice, or of another size or format; HP_EBUSY for a batch too
 * many. */
enum { FIXED_DEPTH = 2 };
int fixed_submit(struct fixed *f, const struct fixed_value *inputs, int n_inputs,
                 const struct fixed_value *outputs, int n_outputs, struct err *e);
/* As stage_pending. */
bool fixed_pending(const struct fixed *f, void (*over)(void *ctx), void *ctx);
/* Waits for the oldest batch that was submitted: its outputs are there. HP_EDEVICE, HP_EIO.
 * HP_EINVAL when none is under way. */
int fixed_complete(struct fixed *f, struct err *e);
/* One batch of zeros, so that the first one that counts does not pay for pages and code that were
 * never touched. No other is under way. */
int fixed_warm(struct fixed *f, struct err *e);

#endif
