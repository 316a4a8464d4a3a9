/* Owns the memory of the device that a stage's large frames go and come by, where the data channel
 * reaches it: rows of its outputs, and of what comes from the stage before. It outlives the stage
 * for as long as the channel has some of it. Decides nothing: a frame for which there is none goes
 * by the host's memory. */
#include <stdlib.h>

#include "agent/executor_int.h"
#include "common/log.h"

/* One way's pieces: memory, and the reserve that has it. */
struct direct_way {
    struct memory memory; /* data NULL: none */
    struct data_reserve *reserve;
};

struct direct_rooms {
    struct direct_rooms *next;
    struct executor *x;
    struct direct_way out, in;
    atomic_int lent; /* reserves that are not over */
};

/* ---- opening ---- */

static void on_thread(void *ctx)
{
    const struct direct_rooms *r = ctx;
    r->x->device->backend->memory_enter(r->x->device);
}

static void on_over(void *ctx)
{
    struct direct_rooms *r = ctx;
    struct executor *x = r->x;
    if (atomic_fetch_sub(&r->lent, 1) == 1)
        executor_look(x);
}

/* Bytes of one piece, in whole steps of the device; 0: rows of this border do not go this way. */
static uint64_t piece_bytes(const struct executor *x, enum frame_dtype wire, struct frame_row row,
                            uint64_t tokens)
{
    uint64_t bytes = frame_rows_bytes(wire, row, tokens);
    return bytes > DATA_CONTROL_BYTES ? backend_memory_bytes(x->device->backend, bytes) : 0;
}

static int way_open(struct direct_rooms *r, struct direct_way *way, size_t n, uint64_t bytes,
                    struct err *e)
{
    struct executor *x = r->x;
    const struct backend *b = x->device->backend;
    if (!n || !bytes)
        return 0;
    int rc = b->memory_alloc(x->device, n * bytes, &way->memory, e);
    const struct data_lent lent = {.kind = b->memory_kind,
                                   .memory = way->memory.data,
                                   .n = n,
                                   .bytes = bytes,
                                   .enter = b->memory_enter ? on_thread : NULL,
                                   .over = on_over,
                                   .ctx = r};
    rc = rc < 0 ? rc : data_reserve_open_device(x->config.data, &lent, &way->reserve, e);
    if (rc == 0)
        atomic_fetch_add(&r->lent, 1);
    return rc;
}

/* Nothing more goes there. What is out is over when it is back. */
static void rooms_close(struct direct_rooms *r)
{
    if (r->in.reserve) {
        data_receive_end(r->x->config.data, r->in.reserve);
        data_reserve_close(&r->in.reserve);
    }
    if (r->out.reserve)
        data_reserve_close(&r->out.reserve);
}

/* All of it is over. */
static void rooms_free(struct direct_rooms *r)
{
    struct device *device = r->x->device;
    if (r->out.memory.data)
        device->backend->memory_release(device, &r->out.memory);
    if (r->in.memory.data)
        device->backend->memory_release(device, &r->in.memory);
    free(r);
}

/* What the stage's frames take of the device's memory they no longer take of the host's, which was
 * counted there, too. */
static void rooms_count(struct executor *x, struct held_slot *h, uint64_t bytes)
{
    uint64_t both = bytes < h->counted_bytes ? bytes : h->counted_bytes;
    h->counted_bytes -= both;
    atomic_fetch_sub(&x->outputs_bytes, both);
}

/* Bytes of a piece of each way, and of all pieces. */
struct direct_plan {
    uint64_t out, in, all;
};

/* What a peer sends is looked at before it is computed with where that could be no number of an
 * expert, or no scale: on the host. */
static struct direct_plan direct_plan_of(const struct executor *x, const struct held_slot *h,
                                         uint64_t tokens)
{
    bool unseen = !h->first && !h->row_in.exact && h->wire != FRAME_Q8;
    struct direct_plan p = {.out = piece_bytes(x, h->wire, h->row_out, tokens),
                            .in = unseen ? piece_bytes(x, h->wire, h->row_in, tokens) : 0};
    p.all = h->outputs * p.out + DATA_STAGE_OUTPUTS * p.in;
    return p;
}

/* Weights that are still to come have their memory first. */
static int rooms_check(const struct executor *x, const struct held_slot *h,
                       const struct direct_plan *p, struct err *e)
{
    uint64_t missing = h->held->table->missing_bytes ? h->held->table->missing_bytes(h->held) : 0;
    return x->device->backend->memory_free(x->device) >= p->all + missing
               ? 0
               : err_set(e, HP_ENOMEM, "%llu bytes are not free", (unsigned long long)p->all);
}

static int rooms_open(struct executor *x, const struct held_slot *h, const struct direct_plan *p,
                      struct direct_rooms **out, struct err *e)
{
    struct direct_rooms *r = calloc(1, sizeof *r);
    if (!r)
        return err_no_memory(e, "what it goes by");
    r->x = x;
    int rc = way_open(r, &r->out, h->outputs, p->out, e);
    rc = rc < 0 ? rc : way_open(r, &r->in, DATA_STAGE_OUTPUTS, p->in, e);
    if (rc < 0) { /* nobody has had anything of it */
        rooms_close(r);
        rooms_free(r);
    } else {
        *out = r;
    }
    return rc;
}

void executor_direct_open(struct executor *x, struct held_slot *h, const struct executor_load *l)
{
    const struct direct_plan p = direct_plan_of(x, h, l->max_batch_tokens);
    struct err e = {0};
    if (!x->config.direct || l->keeps || !p.all)
        return;
    int rc = rooms_check(x, h, &p, &e);
    rc = rc < 0 ? rc : rooms_open(x, h, &p, &h->direct, &e);
    if (rc < 0) {
        log_warn("agent", "stage_not_direct",
                 "layers=%d-%d text=\"no memory of the device for frames, which go by the host: "
                 "%s\"",
                 h->first_layer, h->end_layer - 1, e.text);
        return;
    }
    rooms_count(x, h, p.all);
    log_info("agent", "stage_direct", "layers=%d-%d bytes=%llu", h->first_layer, h->end_layer - 1,
             (unsigned long long)p.all);
}

/* ---- closing ---- */

void executor_direct_close(struct executor *x, struct held_slot *h)
{
    struct direct_rooms *r = h->direct;
    h->direct = NULL;
    if (r) {
        r->next = x->ending;
        x->ending = r;
        rooms_close(r);
    }
    executor_direct_reap(x);
}

bool executor_direct_reap(struct executor *x)
{
    for (struct direct_rooms **at = &x->ending, *r; (r = *at);) {
        if (atomic_load(&r->lent) > 0) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        rooms_free(r);
    }
    return !x->ending;
}

/* ---- frames ---- */

void executor_direct_expect(struct executor *x, const struct held_slot *h, uint64_t session)
{
    struct err e = {0};
    if (h && h->direct && h->direct->in.reserve &&
        data_receive_into(x->config.data, session, h->direct->in.reserve, &e) < 0)
        log_warn("agent", "session_not_direct", "text=\"%s\"", e.text);
}

struct data_buffer *executor_direct_output(const struct flight *f, size_t head, size_t bytes)
{
    const struct direct_rooms *r = f->slot->direct;
    return r && r->out.reserve && f->run.reserved &&
                   outlet_takes(f->run.outlet, f->x->device->backend->memory_kind)
               ? data_reserve_get_device(r->out.reserve, head, bytes)
               : NULL;
}

struct forward_device_rows executor_direct_rows(const struct data_buffer *b, uint64_t rows)
{
    return (struct forward_device_rows){.memory = {b->device, b->size - b->head}, .rows = rows};
}
