/* The thread that computes: it owns the device, what its slots hold and the samplers, does the
 * core's orders one after the other, and tells how they went. Two batches may be under way: where
 * the device's streams have a thread of their own, the next batch is on the device before the one
 * before it is sampled from, encoded and posted; a batch that has nothing behind it is completed as
 * soon as it is done. */
#ifndef HP_AGENT_EXECUTOR_H
#define HP_AGENT_EXECUTOR_H

#include <jansson.h>

#include "agent/backend/backend.h"
#include "agent/backend/paced.h"
#include "agent/engine/kv_shape.h"
#include "agent/engine/sampler.h"
#include "agent/engine/slot.h"
#include "agent/outlet.h"
#include "common/batch.h"
#include "common/digest.h"
#include "common/pack.h"
#include "transport/data.h"

struct executor;
struct message_profile_progress;
struct spill_found;
struct spill_store;

enum executor_report_kind {
    EXECUTOR_LOADED,
    EXECUTOR_FILLING, /* weights of a stage that serves while they come: how many are there, of how
                         many; failed: why no more come */
    EXECUTOR_OPENED,
    EXECUTOR_RAN,
    EXECUTOR_KV_IMPORTED,
    EXECUTOR_KV_EXPORTED, /* failed: what is posted is told by its outlet */
    EXECUTOR_PROFILING,
    EXECUTOR_PROFILED
};

/* On the executor's thread; how a load goes (LOADED, HP_PENDING; FILLING) on the loader's; and what
 * could not be taken on the thread that ordered it. What it points at holds during the call, but
 * for `picked` and `logits`, which hold until the next run but one is ordered. */
struct executor_report {
    enum executor_report_kind kind;
    uint64_t slot, ticket, sequence;
    int status; /* LOADED: HP_PENDING while it goes on */
    bool
        refused; /* the order could not be taken: this comes before the call that gave it returns */
    const struct err *error;
    uint64_t done_bytes, total_bytes;
    bool warming;
    struct frame_row row_in, row_out; /* LOADED, a stage: of a token, that come in from the stage
                                         before, and go to the next one */
    uint32_t vocabulary, row_width;   /* LOADED, a stage; the second: of what the head gives */
    uint32_t outputs;                 /* LOADED: large outputs that may be out at once */
    struct kv_shape kv;               /* LOADED, 0: of a stage */
    struct profile_part hop; /* LOADED, 0: what a paced stage hands on, of which layer of the
                                profile */
    uint32_t awaited;        /* OPENED, KV_IMPORTED: keys and values that have not come */
    struct kv_range range;   /* KV_EXPORTED: failed */
    double seconds;
    uint64_t start_ns, end_ns,
        due_ns;  /* RAN: as the clock says; when a paced device would have been done (else 0) */
    bool posted; /* RAN: the output has gone to the next stage */
    const uint32_t *picked;     /* RAN: for each run a place, and one for each of its guesses */
    const float *logits;        /* of all rows; NULL when each is only there to be sampled from */
    const struct score *scores; /* RAN: of each run n_scored rows of scored_width, then, where it
                                   was sampled, of said_width for each place of `picked` */
    const char *tables;         /* PROFILED: JSON */
    const struct message_profile_progress *profiling; /* PROFILING */
};

struct executor_config {
    struct device_config device; /* copied, cores too */
    struct data_endpoint *data;  /* outlives the executor; its pool gives the outputs */
    const struct paced
        *paced; /* the device that this one stands for, outlives the executor; NULL: none */
    struct spill_store *spills; /* outlives the executor; NULL: nothing is spilled */
    bool serves_early;          /* stages are loaded before their weights are there */
    bool direct; /* rows go and come by the device's memory, which `data` takes (data_takes) */
    void (*report)(void *ctx, const struct executor_report *r);
    void *ctx;
};

/* HP_EDEVICE when there is no such device. */
int executor_create(const struct executor_config *c, struct executor **out, struct err *e);
/* Ends what runs, frees stages and samplers; the device stays, since `data` may have some of its
 * memory still. */
void executor_stop(struct executor *x);
/* Stops it, and closes the device. With `direct` after data_close: memory that it has not given
 * back even then is not freed, nor is the device. */
void executor_destroy(struct executor **x);

/* What computes, and bytes still free on it (UINT64_MAX without a limit), as of the last load or
 * unload. */
const char *executor_describe(const struct executor *x);
/* What computes what and why (agent/backend/choices.h); the caller's. */
json_t *executor_choices(const struct executor *x);
uint64_t executor_memory_free(const struct executor *x);
/* For what others may do on it beside its owner (agent/backend/arrays.h): until it is destroyed. */
struct device *executor_device(const struct executor *x);

struct executor_load {
    uint64_t slot, ticket;
    enum slot_kind kind;
    const char *path;          /* of the model's file, copied; NULL: `graph` needs none */
    const struct graph *graph; /* outlives the slot; NULL: the model's. A graph of fixed shape alone
                                  comes without a file */
    int first_layer, end_layer;
    int expert_groups; /* as model_open_divided has it */
    bool f32, keeps;
    bool kv_given; /* as a stage has it (agent/engine/stage.h) */
    enum kv_format kv;
    uint64_t kv_tokens;
    uint32_t max_sequences, max_batch_tokens, n_stages;
    uint64_t
        receiving_bytes; /* of the device's memory that frames on their way to the stage take */
    double stands_for;   /* paced: of the profile's sequences, each of the stage's; 0: the profile's
                            batch */
    enum frame_dtype wire;            /* as what rows come and go */
    struct pack_list enters, crosses; /* struct message_value, copied: checked against the model */
};
/* Orders, from any one thread, done in their order. What cannot be ordered is reported as failed at
 * once. */

/* Makes a stage (or a graph of fixed shape) in a slot that has none; LOADED says how it goes. */
void executor_load(struct executor *x, const struct executor_load *l);
/* Frees what is in the slot, or is being made there, and all its sequences; not reported. */
void executor_unload(struct executor *x, uint64_t slot);
/* Frames for the slot come with this session from now on. Not reported. */
void executor_expect(struct executor *x, uint64_t slot, uint64_t session);
struct executor_opening {
    uint64_t slot, ticket, sequence;
    uint32_t kv_tokens; /* that it may become */
    uint32_t reserved;  /* of these, now; 0: all */
    uint32_t length;    /* that it begins with: of sequence `share`, or imported where that is 0 */
    uint32_t shared; /* with `share`: so many of them are that one's, the others imported; 0: all */
    uint64_t share;
    struct sampler *sampler; /* taken; NULL: none */
};
/* Reserves pages for a sequence; OPENED says whether, and how much it awaits. */
void executor_sequence_open(struct executor *x, const struct executor_opening *o);
/* Pages for so many tokens are reserved for it from now on; not reported: what does not fit shows
 * when a batch runs. */
void executor_sequence_grow(struct executor *x, uint64_t slot, uint64_t sequence,
                            uint32_t reserved);
/* Its first `keep` tokens stay for others to begin with; 0: nothing of it. */
void executor_sequence_close(struct executor *x, uint64_t slot, uint64_t sequence, uint32_t keep);

struct executor_run {
    uint64_t slot, ticket;
    const struct batch *batch; /* holds until the run is reported; its input, a data_buffer, is
                                  taken */
    /* Of a graph of fixed shape instead: values in the host's memory, held as `batch` is. */
    const struct fixed_value *inputs, *outputs;
    int n_inputs, n_outputs;
    uint64_t ready_ns; /* when the input was there; 0: before the last run ended */
    /* Not the last stage: where the output goes (held until then; NULL: nowhere, and the run
     * fails), and as what. */
    struct outlet *outlet;
    struct frame_header header;
    bool reserved; /* the output is one of the stage's own */
};
/* A batch through what is in the slot, or inputs through a graph; RAN says what came of it. */
void executor_run(struct executor *x, const struct executor_run *r);
/* A piece of a sequence's keys and values: comes in a frame, or goes in one. */
struct executor_kv {
    uint64_t slot, ticket, sequence;
    struct kv_range range;
    enum kv_format format;     /* as what they come or go, whatever the stage keeps them as */
    struct data_buffer *frame; /* import: taken */
    /* export: held until its config's `left` is called, or until the export is reported as failed
     * (HP_EBUSY: no buffer now) */
    struct outlet *outlet;
    struct frame_header header;
};
/* Into a sequence that awaits it; KV_IMPORTED says what it awaits still. */
void executor_kv_import(struct executor *x, const struct executor_kv *k);
/* Out of a sequence, once what was ordered before has run; KV_EXPORTED only where it failed. */
void executor_kv_export(struct executor *x, const struct executor_kv *k);

/* The keys and values of a chain's pages to the store of what is spilled, or back from there into a
 * sequence that awaits them. The first is not reported, the second as an import is. */
struct executor_spill {
    uint64_t slot, ticket, sequence;
    uint32_t n_pages, kept;    /* back: of its pages the sequence has so many, the first */
    struct digest identity;    /* out: of what the stage computes */
    struct digest *pages;      /* out: [n_pages], taken */
    struct spill_found *found; /* back: taken; has all others */
};
void executor_spill_out(struct executor *x, const struct executor_spill *k);
void executor_spill_back(struct executor *x, const struct executor_spill *k);

/* Measures layers of a model (profiler.h); a fine measurement reports how it goes. Texts are
 * copied. */
struct executor_profile {
    uint64_t ticket, budget_ms;
    const char *path, *cache;
    bool f32, fine;
};
void executor_profile(struct executor *x, const struct executor_profile *p);

#endif
