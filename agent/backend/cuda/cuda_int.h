/* What the files of the cuda backend share. */
#ifndef HP_AGENT_BACKEND_CUDA_CUDA_INT_H
#define HP_AGENT_BACKEND_CUDA_CUDA_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/backend/cuda/cuda.h"
#include "agent/backend/cuda/gpu.h"
#include "agent/backend/cuda/kernels.h"

enum { CUDA_TEXT = 192, CUDA_TITLE = 40 };
/* Events whose end somebody wants to hear of, in the order in which they were asked for. */
struct cuda_watch {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool runs, ends;
    struct cuda_event *first, **end;
};
/* arena.c: what a device has of its GPU's memory. */
enum { CUDA_STEP = 256 /* parts begin at multiples, as the widest loads want it */ };
struct cuda_arena_part {
    uint64_t at, bytes; /* whole steps */
};
struct cuda_arena {
    pthread_mutex_t lock; /* of all below: owner and loader take parts */
    uint8_t *base;
    uint64_t bytes;
    size_t stretch;                /* gpu_arena_create's */
    struct cuda_arena_part *parts; /* [n] that are taken, by their places */
    size_t n, room;
    bool apart; /* each is an allocation of its own */
};
/* tuning.c: which way products of one row go, found out by kept steps. */
enum { CUDA_WAYS = 2, CUDA_TRIALS = 8 * CUDA_WAYS, CUDA_TUNED = 4 /* that are told of */ };
/* Of steps that are kept: each way has its turn. */
struct cuda_trials {
    bool have_ways; /* some of their products may go another way */
    bool decided;
    int way; /* once that is so */
    int n;   /* that have begun */
    double seconds[CUDA_WAYS];
    struct CUevent_st *moments[CUDA_TRIALS][2];
};
struct cuda_tuned {
    int way;
    double seconds[CUDA_WAYS];
};
struct cuda_tuning {
    bool forced; /* to a way, or to so many blocks that stay: never changes */
    int forced_way;
    uint32_t forced_by;               /* 0: to the way */
    pthread_mutex_t lock;             /* of all below */
    struct cuda_tuned of[CUDA_TUNED]; /* of the steps that were decided last, the `n`th at n - 1 */
    unsigned n;                       /* decided so far */
};
struct cuda_device {
    struct device base;
    int ordinal;
    struct gpu_part *part;  /* NULL: all of the GPU, or what MPS keeps this process to */
    struct device_part cut; /* as it was asked for */
    struct gpu_facts facts; /* multiprocessors: of the part */
    char title[CUDA_TITLE]; /* "cuda:0", "cuda:0/share=1/4" */
    char text[CUDA_TEXT];
    struct cuda_arena arena;
    uint64_t limit_bytes, host_limit_bytes, small_bytes;
    atomic_ullong host_used_bytes; /* of the host's memory, that the GPU reads */
    atomic_ullong used_bytes;      /* in whole steps */
    bool has_blas;
    pthread_mutex_t load_lock; /* of load_stream, which owner and loader use */
    struct CUstream_st *load_stream;
    struct cuda_watch watch;
    struct cuda_tuning tuning;
};

/* Memory that grows: `bytes` of the device, and as many of the host where it is staged. */
struct cuda_room {
    void *device, *host;
    size_t bytes;
};
/* What a batch is to attention, on its way to the device: one is filled while another is read. */
enum { CUDA_TABLES = 8, CUDA_SPLIT_BYTES = 8 << 20 /* of what parts of attention find */ };
struct cuda_table {
    struct cuda_room room;
    struct CUevent_st *read;
    size_t bytes; /* that it has; 0: none yet */
    bool under_way;
};

/* Memory of the host that the GPU reaches, on the way to it or from it. */
enum { CUDA_STAGED = 16, CUDA_STAGED_MOST = 64 << 20 };
struct cuda_rows {
    void *data;
    size_t bytes, pitch, rows; /* of a row, from one to the next */
};
/* Tokens that the GPU has picked, and rows for those that it has not. */
struct cuda_picks {
    uint32_t *picked; /* [n], of the host; NULL: none */
    float *rows;      /* [n, width], of the host */
    uint32_t n, width;
    const uint32_t *tokens; /* the same, as the GPU has written them to the staged room */
    const float *found;
};
struct cuda_staged {
    struct cuda_room room; /* of the host alone */
    struct CUevent_st *read;
    bool going; /* to the GPU, until `read` */
    struct cuda_rows to;
    struct cuda_picks picks; /* instead of `to` */
    uint64_t turn;           /* comes from the GPU, and has to be brought to `to`; 0: does not */
};

/* Where steps that come again find what a batch is. */
enum { CUDA_SLOTS = 8, CUDA_SLOT_BYTES = 4 << 10 /* at least */ };
struct cuda_slot {
    bool taken, whole; /* each token sees all of its text */
    int group;         /* of keys and values */
    const void *pool;  /* the group's */
    struct cuda_room room;
};
/* Steps that came with the same key, and what the device keeps of them: a CUDA graph, while ways of
 * their products are tried one for each. */
enum { CUDA_STEPS = 16, CUDA_STEP_ROWS = 64 };
struct cuda_steps {
    uint64_t key, turn; /* turn: when they came last; 0: never */
    uint64_t moved;     /* the stream's when they were kept */
    unsigned slots;     /* whose tables they read */
    bool by_lot, refused;
    bool alone, brief; /* each row is its run's only one; none sees more than CUDA_BRIEF_TOKENS */
    struct cuda_trials trials;
    struct CUgraphExec_st *kept[CUDA_WAYS]; /* by way */
};
/* Rows as a product wants them, at the beginning of a room of so many bytes. */
struct cuda_form {
    struct gpu_rows rows; /* that they are made of */
    uint32_t n_rows, width;
    enum gpu_form form; /* GPU_FORM_NONE: as they are */
    uint64_t room_bytes;
};
struct cuda_stream {
    struct cuda_device *device;
    struct gpu_part *part; /* of its own; NULL: the device's */
    struct CUstream_st *stream;
    int failed;                    /* the first failure since an event or a wait took it */
    struct cuda_room narrow, wide; /* of copies that turn number formats */
    struct cuda_room scratch;      /* of a product, counted */
    struct cuda_form formed;       /* what is in it now */
    bool together;                 /* operators are put on it that may know of each other */
    struct gpu_formed making;      /* what the operator that is run now makes of its rows besides */
    const struct gpu_turn *rotates; /* of the attention that is run now; NULL: nothing */
    struct gpu_blas *blas;          /* NULL: there is no cuBLASLt */
    struct cuda_table tables[CUDA_TABLES];
    int table; /* the last that was filled */
    struct cuda_slot slots[CUDA_SLOTS];
    struct cuda_steps all_steps[CUDA_STEPS], *steps; /* those that are put on it now; NULL: none */
    bool keeps;                                      /* what is put on it is kept and not done */
    int way;        /* that products of one row are recorded by (tuning.c) */
    uint64_t turn;  /* counts steps */
    uint64_t moved; /* counts what makes kept steps useless: a room that is another now */
    struct cuda_staged staged[CUDA_STAGED];
    uint64_t landings; /* counts what comes from the GPU */
};
struct cuda_event {
    struct CUevent_st *event;
    struct cuda_device *device;
    int failed;
    struct cuda_stream *stream; /* that it was recorded on last; outlives the wait for it */
    uint64_t landings;          /* the stream's then */
    struct cuda_event *next;    /* of those that are watched */
    bool watched;
    void (*over)(void *ctx);
    void *ctx;
};

/* It may outlive the model that it came from: whoever has the same weights holds it, too. */
struct cuda_weight {
    enum dtype dtype;
    enum weight_use use;
    bool f32;     /* products in float32 */
    void *data;   /* float32 of vectors; of matrices readable to the next multiple of 16 */
    bool on_host; /* the host's memory, that the GPU reads where it is */
    uint64_t counted_bytes, row_bytes;
    uint64_t part_bytes; /* of one of the matrices that rows choose among; 0: it is one */
    uint32_t parts;      /* how many these are */
    uint64_t shape[2];
};

struct cuda_op {
    struct op_request request;
    struct cuda_device *device;
    double *frequencies; /* of OP_ROPE_ANGLES, on the device */
};

/* parts.c */
struct cuda_part_facts {
    const char *kept_by;      /* as plugin_facts has it */
    int multiprocessors, all; /* 0: as the GPU says when it is used */
};
/* As people write it. */
void cuda_title_write(int ordinal, const struct device_part *p, char out[CUDA_TITLE]);
/* Comes before the GPU is used. HP_EDEVICE: there are no such parts of it. */
int cuda_part_enter(int ordinal, const struct device_part *p, struct cuda_part_facts *out,
                    struct err *e);

/* In whole steps. */
static inline uint64_t cuda_steps_bytes(uint64_t bytes)
{
    return (bytes + CUDA_STEP - 1) / CUDA_STEP * CUDA_STEP;
}

/* arena.c. 0 or CUDA's error. */
void cuda_arena_init(struct cuda_arena *a);
void cuda_arena_fini(struct cuda_arena *a);
/* Takes so much of the GPU in use. Once. */
int cuda_arena_open(struct cuda_arena *a, uint64_t bytes);
/* GPU_NO_MEMORY: no gap has so much room. */
int cuda_arena_take(struct cuda_arena *a, uint64_t bytes, void **out);
/* Nothing that is under way on the GPU touches it. */
void cuda_arena_give(struct cuda_arena *a, void *p, uint64_t bytes);
uint64_t cuda_arena_largest(struct cuda_arena *a);

/* memory.c */
/* Takes the device's memory of its GPU: limit_bytes. HP_ENOMEM says how many bytes are missing. */
int cuda_memory_open(struct cuda_device *d, struct err *e);
/* In words: what was done, and what CUDA says. HP_EDEVICE, for the GPU is lost; but want of memory
 * is HP_ENOMEM. */
int cuda_fail(int code, const struct cuda_device *d, const char *what, struct err *e);
/* Of the device, counted; not zeroed. HP_ENOMEM says how many bytes are missing. */
int cuda_take(struct cuda_device *d, uint64_t bytes, const char *what, void **out, struct err *e);
void cuda_give(struct cuda_device *d, void *p, uint64_t bytes);
/* Of the host's memory, which the GPU reads by itself. False: as much may not be taken, or is not
 * there. */
bool cuda_host_take(struct cuda_device *d, uint64_t bytes, void **out);
void cuda_host_give(struct cuda_device *d, void *p, uint64_t bytes);
uint64_t cuda_host_free(const struct cuda_device *d);
/* Waits until it is there. NULL of `from`: zeros. */
int cuda_upload(struct cuda_device *d, void *to, const void *from, uint64_t bytes, struct err *e);
uint64_t cuda_memory_free(const struct device *d);
int cuda_memory_alloc(struct device *d, uint64_t bytes, struct memory *out, struct err *e);
void cuda_memory_release(struct device *d, struct memory *m);
/* At least so many bytes; what is in it is lost where it grows. Notes failures in the stream.
 * False: there is no room. */
bool cuda_room_want(struct cuda_stream *s, struct cuda_room *r, size_t bytes, bool staged);
void cuda_room_free(struct cuda_room *r);
/* The same, of the device alone, and counted: no more than is asked for. */
bool cuda_room_take(struct cuda_stream *s, struct cuda_room *r, size_t bytes);
void cuda_room_give(struct cuda_stream *s, struct cuda_room *r);

/* weights.c */
uint64_t cuda_weight_resident_bytes(const struct device *d, const struct weight *w,
                                    enum weight_use use, bool f32);
int cuda_weight_load(struct device *d, const struct weight *w, enum weight_use use, bool f32,
                     struct device_weight **out, struct err *e);
void cuda_weight_free(struct device *d, struct device_weight **w);

/* forms.c */
int cuda_stream_reserve(struct stream *s, uint64_t scratch_bytes, struct err *e);
/* The stream's scratch, whose content is lost; NULL: there is no room, and it is noted. */
void *cuda_scratch_take(struct cuda_stream *s, uint64_t bytes);
bool cuda_form_is_there(const struct cuda_stream *s, const struct cuda_form *f);
void cuda_form_note(struct cuda_stream *s, const struct cuda_form *f);
/* Room for the form, for a kernel that makes it; nothing where there is none. */
struct gpu_formed cuda_form_make(struct cuda_stream *s, const struct cuda_form *f);
/* Rows are written now: what was made of them is no longer theirs. */
void cuda_form_written(struct cuda_stream *s, const struct tensor *out);
/* Whether they share bytes. */
bool cuda_rows_meet(const struct tensor *a, const struct tensor *b);

/* tuning.c */
void cuda_tuning_init(struct cuda_tuning *t);
void cuda_tuning_fini(struct cuda_tuning *t);
/* Puts the product on the stream: where steps are recorded, the stream's way. */
void cuda_product_run(struct cuda_stream *s, struct gpu_product *p);
/* Which way steps go now: the fastest, or the next that is tried. */
int cuda_trials_way(struct cuda_stream *s, struct cuda_trials *t);
/* Around a start of kept steps, which is a trial where one is to come. */
void cuda_trial_begin(struct cuda_stream *s, struct cuda_trials *t);
void cuda_trial_end(struct cuda_stream *s, struct cuda_trials *t);
/* Without another trial: all go as they did before. */
void cuda_trials_give_up(struct cuda_trials *t);
/* What was measured. False: nothing yet. */
bool cuda_tuning_say(struct cuda_tuning *t, struct device_choice *out);

/* matmul.c */
uint64_t cuda_matmul_scratch_bytes(const struct device *d, const struct weight *w,
                                   enum weight_use use, bool f32, uint32_t rows);
/* As what it multiplies its rows. */
struct cuda_form cuda_matmul_form(const struct cuda_stream *s, const struct cuda_op *op,
                                  const struct tensor *in, const struct tensor *out);
void cuda_matmul_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                     const struct tensor *out, const struct op_batch *batch);

/* Products that follow each other, in one launch where they are of the same few rows and of
 * matrices of one format: of how many it was; 0: the first goes alone. */
int cuda_matmuls_run(struct cuda_stream *s, const struct op_call *const *calls, int n);

/* groups.c */
uint64_t cuda_groups_scratch_bytes(const struct cuda_device *d, const struct weight *w, bool f32,
                                   uint32_t rows);
/* Whether so many pairs share matrices that these are best read for all of them at once. */
bool cuda_groups_fit(const struct cuda_device *d, const struct cuda_weight *w,
                     const struct gpu_product *p);
void cuda_groups_run(struct cuda_stream *s, const struct cuda_weight *w, struct gpu_product p);

/* experts.c */
void cuda_route_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                    const struct tensor *out, const struct op_batch *batch);
void cuda_expert_matmul_run(struct cuda_stream *s, const struct cuda_op *op,
                            const struct tensor *in, const struct tensor *out,
                            const struct op_batch *batch);
void cuda_head_matmul_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                          const struct tensor *out, const struct op_batch *batch);
void cuda_expert_sum_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch);
void cuda_clamped_swiglu_run(struct cuda_stream *s, const struct cuda_op *op,
                             const struct tensor *in, const struct tensor *out,
                             const struct op_batch *batch);
void cuda_join_heads_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                         const struct tensor *out, const struct op_batch *batch);

/* watch.c */
void cuda_watch_init(struct cuda_watch *w);
/* All that was asked for has been told. */
void cuda_watch_fini(struct cuda_watch *w);
bool cuda_event_pending(struct event *v, void (*over)(void *ctx), void *ctx);
/* Until nobody watches it. */
void cuda_watch_leave(struct cuda_event *v);

/* staging.c */
void cuda_staged_send(struct cuda_stream *s, const struct cuda_rows *to,
                      const struct cuda_rows *from);
/* It is there when cuda_staged_land has been called. */
void cuda_staged_fetch(struct cuda_stream *s, const struct cuda_rows *to,
                       const struct cuda_rows *from);
/* A room that the GPU reads and writes itself, until what it writes has landed. NULL: none. */
struct cuda_staged *cuda_staged_take(struct cuda_stream *s, size_t bytes);
void cuda_staged_expect(struct cuda_stream *s, struct cuda_staged *g, const struct cuda_picks *p);
/* What came from the GPU, as the stream's `landings` counts it, lies where it belongs; `good`: else
 * it is forgotten. */
void cuda_staged_land(struct cuda_stream *s, uint64_t upto, bool good);
void cuda_staged_free(struct cuda_stream *s);

/* sampling.c */
bool cuda_sample(struct stream *s, const struct tensor *logits, const struct sample_ask *asks,
                 uint32_t *picked, float *rows);

/* copies.c */
void cuda_copy(struct stream *s, const struct tensor *to, const struct tensor *from);

/* ops.c */
bool cuda_op_supports(enum op_kind kind, enum dtype weight);
uint64_t cuda_op_bytes(const struct graph_op *op);
int cuda_op_prepare(struct device *d, const struct op_request *r, struct device_op **out,
                    struct err *e);
void cuda_op_release(struct device_op **op);
void cuda_op_run(struct stream *s, const struct device_op *op, const struct tensor *in,
                 const struct tensor *out, const struct op_batch *batch);
/* Whether it makes rows ready for the product that reads them next, where the stream asks for it.
 */
bool cuda_op_forms(const struct cuda_op *op, const struct tensor *out);
/* Elements that a norm takes together. */
uint64_t cuda_norm_width(const struct cuda_op *op, const struct tensor *out);
void cuda_norm_run(struct cuda_stream *s, const struct cuda_op *op, const struct op_call *add,
                   const struct op_call *norm, const struct gpu_formed *formed);
void cuda_gelu_mul_run(struct cuda_stream *s, const struct op_call *gelu, const struct tensor *by,
                       const struct op_call *mul, const struct gpu_formed *formed);
struct gpu_turn cuda_turn_of(const struct op_call *q, const struct op_call *k);

/* streams.c */
/* Of a part of the GPU; NULL: of all of it. */
int cuda_handle_create(struct gpu_part *part, struct CUstream_st **out);
/* Takes the part over, also on failure; NULL: the device's. */
int cuda_stream_open(struct cuda_device *d, struct gpu_part *part, struct stream **out,
                     struct err *e);
int cuda_stream_create(struct device *d, struct stream **out, struct err *e);
void cuda_stream_destroy(struct stream **s);
int cuda_stream_wait(struct stream *s, struct err *e);
int cuda_event_create(struct device *d, struct event **out, struct err *e);
void cuda_event_destroy(struct event **v);
void cuda_event_record(struct event *v, struct stream *s);
int cuda_event_wait(struct event *v, struct err *e);

/* arrays.c */
extern const struct backend_arrays cuda_arrays;

/* fuse.c */
void cuda_ops_run(struct stream *s, const struct op_call *calls, int n,
                  const struct op_batch *batch);

/* tables.c: a table has rows, those of tiles first; tiles; pages. */
struct cuda_layout {
    uint32_t n_rows, n_tiled, n_tiles, n_pages;
    uint32_t n_seen; /* most that one of the rows without a tile may see */
    bool alone;      /* each row is its run's only one */
};
/* Rows that are alone and see no more are not split. */
enum { CUDA_BRIEF_TOKENS = 256 };
/* The batch's table on the device. NULL: noted in the stream. */
const struct gpu_attention_row *cuda_table_put(struct cuda_stream *s, const struct cuda_op *op,
                                               const struct op_batch *b, bool tiles,
                                               struct cuda_layout *out);
/* Rooms for the tables of kept steps. False: there is none, and it is noted. */
bool cuda_slots_want(struct cuda_stream *s, unsigned slots, const struct op_batch *b);
/* False: what they read is not theirs, and it is noted. */
bool cuda_slots_fill(struct cuda_stream *s, unsigned slots, const struct op_batch *b);

/* steps.c */
bool cuda_steps_begin(struct stream *s, uint64_t key, const struct op_batch *b);
bool cuda_steps_end(struct stream *s, const struct op_batch *b);
void cuda_steps_forget(struct cuda_stream *s);

/* kv.c */
uint64_t cuda_kv_page_bytes(const struct device *d, const struct kv_layout *l);
void cuda_attention_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                        const struct tensor *out, const struct op_batch *batch);
void cuda_kv_export(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                    const struct kv_part *part, void *out);
void cuda_kv_import(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                    const struct kv_part *part, const void *data);

/* The first failure stays. */
static inline void cuda_note(struct cuda_stream *s, int code)
{
    if (!s->failed)
        s->failed = code;
}

#endif
