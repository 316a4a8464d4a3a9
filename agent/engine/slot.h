/* What a slot of the executor holds, behind one table of functions: load, submit, state export and
 * import, unload. Two kinds: a stage of a sequence model (stage.h), and a graph of fixed shape
 * (fixed.h). The executor, the core and the coordinator know a slot by its number; what a batch
 * brings differs by kind, what becomes of it does not.
 *
 * A slot is used by one thread at a time, but for loading, which may be on the device's loader
 * thread. */
#ifndef HP_AGENT_ENGINE_SLOT_H
#define HP_AGENT_ENGINE_SLOT_H

#include "agent/engine/fixed.h"
#include "agent/engine/stage.h"

enum slot_kind { SLOT_STAGE, SLOT_GRAPH, SLOT_KINDS };

/* Both kinds load layers of a graph onto a device; a graph of fixed shape does not look at what is
 * of sequences (KV, batches, border). */
struct slot_config {
    struct stage_config stage;
    const struct graph *graph; /* outlives the slot; NULL: the model's */
};

/* What a batch brings to either kind; all of it holds until the batch is complete. */
struct slot_batch {
    /* a stage's: as stage_submit has them */
    const struct batch_run *runs;
    int n_runs;
    const void *input;
    void *output;
    const struct forward_scoring *scoring;       /* NULL: none of its tokens is scored */
    const struct forward_sampling *sampling;     /* NULL: the device picks none of its tokens */
    const struct forward_device_rows *from, *to; /* NULL: by the host */
    /* a graph's: as fixed_submit has them */
    const struct fixed_value *inputs, *outputs;
    int n_inputs, n_outputs;
};

enum { SLOT_DEPTH = 2 }; /* batches under way */

/* Every slot starts with this. */
struct slot {
    const struct slot_table *table;
};

struct slot_table {
    const char *name;
    /* Errors of stage_load and fixed_load. */
    int (*load)(const struct slot_config *c, struct slot **out, struct err *e);
    void (*unload)(struct slot **s);
    /* As stage_fill_promise and stage_missing_bytes say. Both NULL where all is there once it is
     * loaded. */
    struct section_run *(*fill_promise)(struct slot *s);
    uint64_t (*missing_bytes)(const struct slot *s);
    /* A small batch, so that the first one that counts does not pay for pages and code that were
     * never touched. */
    int (*warm)(struct slot *s, struct err *e);
    /* As stage_submit, stage_pending and stage_complete say. */
    int (*submit)(struct slot *s, const struct slot_batch *b, struct err *e);
    bool (*pending)(const struct slot *s, void (*over)(void *ctx), void *ctx);
    int (*complete)(struct slot *s, struct err *e);
    /* What sequences keep: as stage_sequence_open_some, stage_sequence_await,
     * stage_sequence_reserve,
     * stage_sequence_close, stage_sequence_keep, stage_kv_shape, stage_kv_export, stage_kv_import
     * and stage_kv_awaited say. HP_EUNSUPPORTED where nothing is kept. */
    int (*state_open)(struct slot *s, uint64_t sequence, uint32_t max_tokens, uint32_t reserved,
                      uint32_t length, uint64_t share, struct err *e);
    int (*state_await)(struct slot *s, uint64_t sequence, uint32_t length, struct err *e);
    int (*state_reserve)(struct slot *s, uint64_t sequence, uint32_t tokens, struct err *e);
    void (*state_close)(struct slot *s, uint64_t sequence);
    void (*state_keep)(struct slot *s, uint64_t sequence, uint32_t length);
    struct kv_shape (*state_shape)(const struct slot *s);
    int (*state_export)(struct slot *s, uint64_t sequence, const struct kv_range *r, void *out,
                        struct err *e);
    int (*state_import)(struct slot *s, uint64_t sequence, const struct kv_range *r,
                        const void *data, struct err *e);
    uint32_t (*state_awaited)(const struct slot *s, uint64_t sequence);
};

/* What slots of that kind do. */
const struct slot_table *slot_table_of(enum slot_kind kind);

#endif
