/* What a layer of each class costs on this agent's device: slice and prefix lengths through
 * stage_run, warm, by the median (a quick look: the lower quartile), within a time. A quick look
 * takes a few points; a fine one adds points where interpolation between them errs, measures steps
 * of decode in batches and finds the shortest useful slice. Results are kept by the model's shape,
 * the device and the compute, so that a model is measured once. Weights need not be there: a sparse
 * copy whose weights read as zeros takes the same time. */
#ifndef HP_AGENT_PROFILER_H
#define HP_AGENT_PROFILER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"

struct device;
struct message_profile_progress; /* transport/message.h */

/* A slice is useful when its time per token is at most so many times that of the best length. */
#define PROFILER_USEFUL_WITHIN 1.25

struct profiler_config {
    const char *path;  /* what model_open takes */
    const char *cache; /* folder of results; "" or NULL: none */
    struct device *device;
    bool f32;
    uint64_t budget_ms; /* 0: 2000. A quick look at a device so slow that it would take longer
                           leaves out long slices and prefixes: readers go on along the last two
                           points. Two slices are measured whatever it says, and of a fine
                           measurement every point of the first grid */
    bool fine;          /* measured even where a result is kept; the new one takes its place */
    /* After each point, on the same thread; may be NULL. */
    void (*progress)(void *ctx, const struct message_profile_progress *p);
    void *progress_ctx;
    void (*between)(
        void *ctx); /* between two runs, where nothing is timed: time for others; may be NULL */
    void *between_ctx;
    const atomic_bool *stop; /* ends with HP_ECANCELED when it becomes true; may be NULL */
};

/* Appends {"embed": {"slice": [..], "prefix": [..], "seconds": [[..]]}, "attn": .., "mlp": ..,
 * "head": .., "layers": [..]} as in hp-profile/1; a class whose kernels take rows together has
 * "step", what slices are quickest in multiples of. Layers carry `resident_bytes` too: what they
 * hold on this device once loaded. Beside them stand "scratch": {"tokens": [..], "bytes": [..]},
 * what a stage of all layers takes of the device for a batch of so many tokens beyond its values;
 * "source" (device, libraries, driver, program, when) and, of a fine measurement, "useful_slice":
 * {"tokens", "within"}; each class then has "decode":
 * {"batch", "prefix", "seconds"} and "interpolation_error". Uses the device: on its thread. Errors
 * of model_open and stage_load. */
int profiler_measure(const struct profiler_config *c, struct buffer *out, struct err *e);

#endif
