/* The thread that owns the weight store: it fetches what stages need (fetch.h decides from where),
 * keeps chunks that arrive, serves chunks to peers, and makes sparse models for the profiler. */
#ifndef HP_AGENT_STORE_WORKER_H
#define HP_AGENT_STORE_WORKER_H

#include "agent/weight_store.h"
#include "transport/data.h"
#include "transport/message_ref.h"

struct store_worker;

enum store_report_kind { STORE_FETCHED, STORE_CHANGED, STORE_OPENED };

/* On the worker's thread, or that of an order for which there was no memory; what it points at
 * holds during the call. */
struct store_report {
    enum store_report_kind kind;
    uint64_t slot, ticket;
    int status;              /* FETCHED: HP_PENDING while it goes on */
    const struct err *error; /* failed; or FETCHED, HP_PENDING: why chunks are wanted that should
                                have been here */
    uint64_t done_bytes, total_bytes, moved_bytes;
    struct pack_u32s wanted;
    const char *path;        /* FETCHED and OPENED, 0: what model_open takes */
    struct pack_list models; /* CHANGED: struct message_model */
    bool models_unknown;     /* CHANGED: no memory to list them; what was told before holds */
};

struct store_worker_config {
    const char *folder, *machine; /* outlive the worker */
    uint64_t limit_bytes;
    bool borrows; /* files of this box that a deployment names are used where they lie */
    struct data_endpoint *data; /* outlives the worker */
    void (*report)(void *ctx, const struct store_report *r);
    void *ctx;
};

/* Opens the store, and reports at once what it holds. HP_EBUSY, HP_EIO. */
int store_worker_create(const struct store_worker_config *c, struct store_worker **out,
                        struct err *e);
void store_worker_destroy(struct store_worker **w);

/* Orders, from any thread. */
/* Brings the chunks of a stage into the store, and holds its model until store_worker_drop(slot).
 * `prepare` is held as long. */
void store_worker_fetch(struct store_worker *w, uint64_t slot, uint64_t ticket,
                        struct message_ref *prepare);
void store_worker_drop(struct store_worker *w, uint64_t slot);
/* Opens a model without any weights and holds it until store_worker_drop(slot): OPENED. */
void store_worker_open(struct store_worker *w, uint64_t slot, uint64_t ticket,
                       struct pack_span manifest);
/* FRAME_CHUNK and FRAME_CHUNK_WANT; takes the payload. */
void store_worker_frame(struct store_worker *w, const struct frame_header *h,
                        struct data_buffer *payload);
void store_worker_link_down(struct store_worker *w, uint64_t link_number);
/* CHANGED tells how it went, with `ticket`. */
void store_worker_remove(struct store_worker *w, uint64_t ticket, const struct digest *model);

#endif
