/* Inside the engine for networks: a plan while it is made and when it is run.
 *
 * A value of the graph is known when the plan is made (a weight, or what follows from sizes), or a
 * view of memory: a root, which is a part of the arena, an offset and strides. Reshapes, transposes
 * and slices make views and move nothing. Pictures lie with their channels last, since that is how
 * the convolutions want them. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_INT_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_INT_H

#include <limits.h>

#include "agent/backend/cpu/nn_loops.h"
#include "agent/engine/network/network_plan.h"

/* A piece of memory: of the arena from step `first` to step `last`, or fixed. */
struct network_root {
    uint64_t bytes, offset;
    int first, last;   /* last INT_MAX: to the end */
    const void *fixed; /* NULL: in the arena */
    uint64_t fixed_bytes;
    bool owns; /* fixed, and freed with the plan */
    /* Of a plan on a device: where what is fixed lies there, and of others on which side their
     * values are while it runs. */
    const void *kept;
    bool is_here, is_there;
    /* Weights that are packed for this primitive when a step that reads them is made ready; NULL:
     * it is none. */
    const struct nn_op *later;
    const float *unpacked;
    bool is_packed;
};

struct network_view {
    int root;
    int64_t offset; /* elements */
    struct nn_view v;
};

/* How elements may lie: row-major, with axis 1 innermost, or in any order. */
enum network_layout { LAYOUT_PLAIN, LAYOUT_LAST, LAYOUT_ANY };

struct network_value {
    struct ndarray array; /* type and sizes; of those that are known data too */
    bool is_shaped, is_known, has_view;
    bool has_copy[2]; /* by layout */
    struct network_view view, copies[2];
};

struct network_plan;
struct network_step {
    int (*run)(struct network_plan *p, const struct network_step *s, struct err *e);
    /* The same put on the plan's device. NULL: the host does it in such a plan too, and `run` minds
     * where values are. */
    int (*run_there)(struct network_plan *p, const struct network_step *s, struct err *e);
    /* What it needs before it runs, once or more often; NULL: nothing. */
    int (*ready)(struct network_plan *p, const struct network_step *s, struct err *e);
    void (*free)(void *data);
    void *data;
    const char *name; /* for people */
    int node;
};

struct network_plan {
    const struct network_facts *facts;
    const struct onnx_network *network;
    const struct onnx *o;
    struct nn *nn;
    const struct nn_kernels *kernels;
    struct network_value *values; /* by value */
    bool *is_done;                /* by node: another node's steps do its work too */
    struct network_root *roots;
    struct network_step *steps;
    int n_roots, n_steps, room_roots, room_steps;
    int *in_roots; /* by input */
    uint8_t *arena;
    uint64_t arena_bytes, scratch_bytes;
    void *zeros; /* what stands for values while sizes are asked for */
    uint64_t zeros_bytes;
    uint64_t mark;             /* of how values lie, once somebody asked; 0: nobody did */
    struct array_clock *clock; /* of timed runs on a device; NULL: there was none */
};

/* ---- network_views.c ---- */

/* A new root of the arena. Negative: HP_ENOMEM, HP_ELIMIT. */
int network_root_new(struct network_plan *p, uint64_t bytes, struct err *e);
/* Memory that is there; owned memory goes with the plan, also on failure. */
int network_root_fixed(struct network_plan *p, const void *data, uint64_t bytes, bool owns,
                       struct err *e);
/* Allocated weights of so many bytes, which are taken over, also on failure; plans of one shelf
 * have them once. */
int network_root_weights(struct network_plan *p, void *data, size_t bytes, struct err *e);
/* The same without a root; NULL: HP_ENOMEM. */
const void *network_weights_keep(const struct network_plan *p, void *data, size_t bytes,
                                 struct err *e);
/* Step number `step` (by default the one that comes next) uses the root. */
void network_root_use(struct network_plan *p, int root);
/* Where it lies; NULL while nothing of the plan was made ready. */
const void *network_root_data(const struct network_plan *p, int root);
/* Whether it is made before step `at` and used from there on. */
static inline bool network_root_crosses(const struct network_root *r, int at)
{
    return !r->fixed && r->first < at && r->last >= at;
}
static inline const float *network_in(const struct network_plan *p, const struct network_view *v)
{
    return (const float *)network_root_data(p, v->root) + v->offset;
}
static inline float *network_out(const struct network_plan *p, const struct network_view *v)
{
    return (float *)(void *)(p->arena + p->roots[v->root].offset) + v->offset;
}

/* Adds a step that owns `data` (freed also on failure); its roots are used by network_root_use
 * before. HP_ENOMEM. */
int network_step_add(struct network_plan *p, const struct network_step *s, struct err *e);

struct nn_view network_sizes(const struct ndarray *a);
/* Strides of a dense array in a layout. */
void network_strides(struct nn_view *v, enum network_layout layout);
bool network_view_is(const struct nn_view *v, enum network_layout layout);
/* Whether it is dense in some order of its axes. */
bool network_view_is_dense(const struct nn_view *v);
/* LAYOUT_LAST where the view has channels innermost. */
enum network_layout network_layout_of(const struct nn_view *v);
/* The same elements in other sizes, without a copy; false: impossible. */
bool network_view_reshape(const struct nn_view *from, const struct ndarray *to,
                          struct nn_view *out);

/* A value's elements in a layout, copied by a step (or now, where it is known) if they lie
 * otherwise. Elements of 4 bytes, but for plain. HP_ENOMEM, HP_ELIMIT. */
int network_need(struct network_plan *p, int value, enum network_layout layout,
                 struct network_view *out, struct err *e);
/* New memory for a value in a layout, which becomes its view. */
int network_make_view(struct network_plan *p, int value, const struct nn_view *strides,
                      struct network_view *out, struct err *e);
/* A value as a view of memory that is there. */
void network_set_view(struct network_plan *p, int value, const struct network_view *v);
/* A step that copies. */
int network_copy_add(struct network_plan *p, const struct network_view *to,
                     const struct network_view *from, struct err *e);

static inline bool network_is_f32(const struct network_plan *p, int value)
{
    return value >= 0 && p->values[value].is_shaped && p->values[value].array.type == ND_F32;
}

/* A step of our own loops while it runs: parts of it are done by several threads. */
struct network_job {
    struct network_plan *p;
    const void *data; /* the step's */
};
/* Calls fn(job, part, parts) for every part of a step that makes so many elements. */
void network_job_run(struct network_plan *p, const struct network_step *s, int64_t elements,
                     void (*fn)(void *job, int part, int parts));

/* ---- network_there.c: steps on a device ---- */

/* What a step on the device reads, brought there where it is not; and writes, all or some of it,
 * which is there alone from then on. */
const float *network_there_in(struct network_plan *p, const struct network_view *v);
float *network_there_out(struct network_plan *p, const struct network_view *v);
/* `c` as it reads and writes views; `x` and `y` may be NULL. */
void network_there_elements(struct network_plan *p, struct array_elements c,
                            const struct network_view *out, const struct network_view *x,
                            const struct network_view *y);
/* The same for a step that the host does; of a plan without a device nothing is to do. HP_EDEVICE,
 * HP_ENOMEM. */
int network_here_in(struct network_plan *p, int root, struct err *e);
int network_here_out(struct network_plan *p, int root, struct err *e);
/* Brings to the device what is fixed of steps [first, end). HP_ENOMEM, HP_EDEVICE. */
int network_there_ready(struct network_plan *p, int first, int end, struct err *e);
/* Before steps from `first` on run, of which the host has what enters; after those before `end`:
 * the host has what leaves, and all is done. HP_EDEVICE, HP_ENOMEM. */
int network_there_begin(struct network_plan *p, int first, struct err *e);
int network_there_end(struct network_plan *p, int end, struct err *e);

/* ---- lowering: 1 steps were added, 0 the reference has to run the node, negative a failure ----
 */

typedef int network_lower_fn(struct network_plan *p, int node, const struct onnx_call *c,
                             struct err *e);
network_lower_fn network_lower_conv, network_lower_matmul, network_lower_gemm;
network_lower_fn network_lower_unary, network_lower_binary, network_lower_pow;
network_lower_fn network_lower_pool, network_lower_global_pool, network_lower_reduce;
network_lower_fn network_lower_softmax, network_lower_layer_norm, network_lower_batch_norm;
network_lower_fn network_lower_instance_norm, network_lower_resize;
network_lower_fn network_lower_reshape, network_lower_transpose, network_lower_slice;
network_lower_fn network_lower_split, network_lower_concat, network_lower_gather;
network_lower_fn network_lower_pad, network_lower_rows, network_lower_causal;
network_lower_fn network_lower_scores;
/* A node by the reference. */
int network_lower_reference(struct network_plan *p, int node, struct err *e);

/* What a primitive does, for a device that does it in its own way. */
enum network_deed_kind { DEED_CONV, DEED_PRODUCT, DEED_FUNCTION, DEED_SOFTMAX };
struct network_deed {
    enum network_deed_kind kind;
    const char *name; /* for people */
    union {
        struct nn_conv conv;
        struct nn_matmul product;
        struct nn_post function;      /* of each element */
        struct array_softmax softmax; /* sizes */
    } u;
};
/* Adds a primitive's step; takes it over. `views` by slot: x, weights, bias, y, and the others of
 * its posts; those with a root of -1 are left out. */
int network_op_add(struct network_plan *p, struct nn_op *op, int node,
                   const struct network_deed *deed, const struct network_view *views, int n_views,
                   struct err *e);
/* Packs `count` dense weights for a primitive: a fixed root. In a plan on a device they stay as
 * they are. */
int network_weights_pack(struct network_plan *p, const struct nn_op *op, const float *weights,
                         int64_t count, struct network_view *out, struct err *e);
/* The same of weights that live as long as the plan, when a step that reads them is made ready. */
int network_weights_later(struct network_plan *p, const struct nn_op *op, const float *weights,
                          int64_t count, struct network_view *out, struct err *e);
int network_weights_ready(struct network_plan *p, int first, int end, struct err *e);
/* The opposite, in plans of a shelf. */
void network_weights_release(struct network_plan *p, int first, int end);
/* Tells a primitive's step, if it is one, where its memory is. */
void network_op_bind(struct network_plan *p, const struct network_step *s, void *scratch);
bool network_step_is_op(const struct network_step *s, size_t *scratch_bytes);
/* Whether it is a primitive that several threads share out. */
bool network_step_is_cut(const struct network_step *s);

/* ---- network_direct.c: weights and bias (may be NULL) are copied; 1 steps were added, 0 it is no
 * such convolution ---- */

int network_depthwise_add(struct network_plan *p, int node, const struct nn_conv *v,
                          const float *weights, const float *bias, int value, struct err *e);
/* Transposed, each window beside the next. */
int network_blocks_add(struct network_plan *p, int node, const struct nn_conv *v,
                       const float *weights, const float *bias, int value, struct err *e);

/* ---- network_tail.c: nodes after a node that its primitive does too ---- */

struct network_tail {
    struct nn_posts posts;
    int others[NN_POSTS]; /* values that posts add or multiply by; -1 */
    enum network_layout layout;
    int value;                                       /* what comes out */
    int n_parts;                                     /* of the graph, each some nodes */
    int part_posts[NN_POSTS], part_values[NN_POSTS]; /* posts and value before each part */
    int nodes[5 * NN_POSTS], n_nodes, part_nodes[NN_POSTS];
};
/* What follows `value`, which a primitive makes; the axis that may have numbers of its own is
 * axis 1 in LAYOUT_LAST, the last one in LAYOUT_PLAIN. */
void network_tail_find(const struct network_plan *p, int value, enum network_layout layout,
                       struct network_tail *t);
/* Without its last part. False: it has none. */
bool network_tail_drop(struct network_tail *t);
/* Its nodes are done. */
void network_tail_take(struct network_plan *p, const struct network_tail *t);
/* The only node that reads a value, which is no output of the graph; -1. */
int network_only_reader(const struct network_plan *p, int value);
/* A known value's only number. */
bool network_known_number(const struct network_plan *p, int value, double *out);

#endif
