/* One stage: layers [first, end) of a model on one device, with the KV cache of the sequences that
 * run through it. The only thing that the runtime's pipeline sees of a model.
 *
 * A batch is a list of runs: each run is consecutive new tokens of one sequence (a prefill slice,
 * or one token of decode). Runs of different sequences share a batch. A stage is used by one thread
 * at a time. */
#ifndef HP_AGENT_ENGINE_STAGE_H
#define HP_AGENT_ENGINE_STAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/engine/kv_shape.h"
#include "common/batch.h"
#include "common/status.h"
#include "model/model.h"

struct stage;
struct device;       /* agent/backend/backend.h */
struct section_need; /* agent/engine/section_plan.h */
struct section_run;  /* agent/engine/section_run.h */

enum stage_compute {
    COMPUTE_AUTO,
    COMPUTE_F32
}; /* f32: float32 arithmetic, KV and activations on dequantised weights */

struct stage_config {
    struct model *model; /* outlives the stage */
    int first_layer, end_layer;
    struct device *device; /* outlives the stage */
    enum stage_compute compute;
    bool keeps;    /* keys and values alone, that come and go: no weights, and no batch is run */
    bool kv_given; /* keys and values as `kv` says; else f32 with COMPUTE_F32, or f16 */
    enum kv_format kv;
    uint64_t kv_tokens; /* capacity of the KV cache, summed over sequences */
    uint32_t max_sequences;
    uint32_t max_batch_tokens; /* of one stage_run */
    enum dtype
        border; /* as what rows come from another stage and go to one: F32, F16, BF16 or Q8_WIRE */
    bool measured;         /* of whose model there may be no more than shapes: every token takes
                              experts of its own, whatever its scores, and numbers are made up
                              (made_up.h), since those of the file may be zeros */
    uint64_t beside_bytes; /* of the device's memory that is spoken for, though nothing has
                              allocated it there */
    void (*progress)(void *ctx, uint64_t done_bytes,
                     uint64_t total_bytes); /* while loading; may be NULL */
    void *progress_ctx;
    const atomic_bool *stop; /* loading ends with HP_ECANCELED when it becomes true; may be NULL;
                                with `later` it outlives the stage */
    bool later; /* weights come while batches run (stage_fill_promise); without `progress` */
};

/* Device memory that the stage will hold once loaded: weights as they are kept, KV cache,
 * activations. Known before loading. */
int stage_footprint(const struct stage_config *c, struct section_need *out, struct err *e);

/* Loads the weights; a file's pages are released as what is kept elsewhere is copied or packed.
 * HP_ENOMEM says how many bytes are missing, HP_EIO which file could not be read. */
int stage_load(const struct stage_config *c, struct stage **out, struct err *e);
/* What has been promised to be filled is waited for, and stops. */
void stage_unload(struct stage **s);

/* Of a stage whose weights come later: what whoever loads gives to section_run_fill, once, on a
 * thread of its own. A batch waits for the weights of each operator, and fails as that does. */
struct section_run *stage_fill_promise(struct stage *s);
/* Bytes of weights that the device will hold, and does not yet. Any thread. */
uint64_t stage_missing_bytes(const struct stage *s);

/* A sequence reserves room for `max_tokens` of KV, and takes it as it grows. HP_EBUSY when no room
 * is left now, HP_EEXIST, HP_EINFEASIBLE. */
int stage_sequence_open(struct stage *s, uint64_t sequence, uint32_t max_tokens, struct err *e);
/* The same for one that begins with `length` tokens: those of sequence `share`, which both have
 * from now on, or where that is 0 tokens whose keys and values are imported before its first batch
 * (until then they are anything). Also HP_ENOENT, HP_EINVAL: kv_cache_open_some, and where one
 * of the two rotates as a long sequence and the other does not. */
int stage_sequence_open_at(struct stage *s, uint64_t sequence, uint32_t max_tokens, uint32_t length,
                           uint64_t share, struct err *e);
/* As kv_cache_open_some and kv_cache_reserve. */
int stage_sequence_open_some(struct stage *s, uint64_t sequence, uint32_t max_tokens,
                             uint32_t reserved, uint32_t length, uint64_t share, struct err *e);
/* As kv_cache_await. */
int stage_sequence_await(struct stage *s, uint64_t sequence, uint32_t length, struct err *e);
int stage_sequence_reserve(struct stage *s, uint64_t sequence, uint32_t tokens, struct err *e);
void stage_sequence_close(struct stage *s, uint64_t sequence); /* of an unknown one: nothing */
/* A sequence runs no more, and its first `length` tokens stay for others to begin with
 * (kv_cache_keep). Where they cannot it is closed. None of its batches is under way. */
void stage_sequence_keep(struct stage *s, uint64_t sequence, uint32_t length);
/* Tokens in its KV cache; -1 when the sequence is not open. */
int64_t stage_sequence_length(const struct stage *s, uint64_t sequence);

/* Puts a batch on the device and returns. At most STAGE_DEPTH batches are under way; they are done
 * in the order of their submission. A run may take back guesses of the sequence's run before
 * (`n_drafts`), and begins at the first that was wrong. `input` is u32 ids [tokens] on the first
 * stage; else the values that cross the border before the stage, one after the other, each [tokens,
 * its width] in the config's `border` format; rows of all runs follow each other. Writes the values
 * that cross the border after it, in the same way, to `output`, or on the last stage f32 logits
 * [sum of n_logits, vocabulary]. HP_EINVAL for positions that do not follow and ids beyond the
 * vocabulary, HP_EBUSY for a batch too many (nothing changed). Input and output stay as they are
 * until the batch is complete; its tokens count for the sequences' lengths from now on. */
enum { STAGE_DEPTH = 2 };
int stage_submit(struct stage *s, const struct batch_run *runs, int n_runs, const void *input,
                 void *output, struct err *e);
/* What else becomes of logits than being written, and rows that come or go by the device's memory
 * instead of `input` and `output` (forward.h); each may be NULL. */
struct forward_scoring;
struct forward_sampling;
struct forward_device_rows;
struct stage_ways {
    const struct forward_scoring *scoring; /* of runs with tokens to be scored (`n_scored`): what is
                                              made of their logits is seen before it returns */
    const struct forward_sampling *sampling; /* of the rows that would be written; holds until the
                                                batch is complete */
    const struct forward_device_rows *from, *to; /* hold during the call, their memory until the
                                                    batch is complete */
};
int stage_submit_with(struct stage *s, const struct batch_run *runs, int n_runs, const void *input,
                      void *output, const struct stage_ways *ways, struct err *e);
/* Whether the batch that was submitted last is still under way: then over(ctx) is called once, on a
 * thread of the device's, when it is not. False where it is done, and where there is none. */
bool stage_pending(const struct stage *s, void (*over)(void *ctx), void *ctx);
/* Waits for the oldest batch that was submitted: its output is there. HP_EDEVICE, HP_EIO (a
 * weight's file could not be read: the stage is of no use any more): then KV lengths are as before
 * the batch, and the batches that were submitted after it fail alike. HP_EINVAL when none is under
 * way. */
int stage_complete(struct stage *s, struct err *e);
/* One batch, submitted and complete; no other is under way. On failure KV lengths are as before. */
int stage_run(struct stage *s, const struct batch_run *runs, int n_runs, const void *input,
              void *output, struct err *e);

/* The same, and what its operators take without what comes from the host and goes there
 * (forward.h); they run timing->repeats times, so that the output is of use to nobody. */
struct forward_timing;
int stage_run_timed(struct stage *s, const struct batch_run *runs, int n_runs, const void *input,
                    void *output, struct forward_timing *timing, struct err *e);

/* What the stage keeps of each token. */
struct kv_shape stage_kv_shape(const struct stage *s);
/* A part of a sequence's keys and values, in the order of the wire, kv_shape_bytes long. No batch
 * is under way (HP_EBUSY). HP_ENOENT: no such sequence; HP_EINVAL: the range is not all there. */
int stage_kv_export(struct stage *s, uint64_t sequence, const struct kv_range *r, void *out,
                    struct err *e);
/* Into a sequence that was opened with a length: whole pages of that. What comes twice changes
 * nothing. */
int stage_kv_import(struct stage *s, uint64_t sequence, const struct kv_range *r, const void *data,
                    struct err *e);
/* Pages of blocks that have not been imported yet; 0: the sequence may run. */
uint32_t stage_kv_awaited(const struct stage *s, uint64_t sequence);

/* Positions that its layers know: a sequence becomes no longer. UINT32_MAX: no table bounds them.
 */
uint32_t stage_positions(const struct stage *s);
/* What it is. */
bool stage_only_keeps(const struct stage *s); /* its config `keeps` */
bool stage_is_first(const struct stage *s);
bool stage_is_last(const struct stage *s);

#endif
