/* Products of a prompt's rows with the matrices of their experts, group by group: rows and weights
 * as f16 or bf16, in rooms of a fixed size, so that what is taken is known before; small ones where
 * the device's memory is. */
#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

enum {
    PANEL_BYTES = 64 << 20, /* of weights as halves, at a time */
    PANEL_SHARE = 64,       /* of the memory, at most; rows as halves have half of that */
    PANEL_LEAST = 64,       /* outputs */
    PAIRS_MOST = 1 << 16,   /* at a time */
    PAIRS_EACH = 8,         /* to a matrix, at least: fewer read it in place by themselves */
    HALF_BYTES = 2,
    ROOM_ALIGNMENT = 256
};

static uint64_t bytes_align(uint64_t bytes)
{
    return (bytes + ROOM_ALIGNMENT - 1) / ROOM_ALIGNMENT * ROOM_ALIGNMENT;
}

static uint64_t panel_bytes(const struct cuda_device *d)
{
    uint64_t share = d->limit_bytes / PANEL_SHARE;
    return share < PANEL_BYTES ? share : PANEL_BYTES;
}

/* As products of many rows have it (matmul.c). */
static bool groups_are_bf16(const struct cuda_device *d, enum dtype t)
{
    return t != DTYPE_F16 && d->facts.major >= 8;
}

static bool groups_are_there(const struct cuda_device *d, enum dtype t)
{
    return t == DTYPE_F16 || (t == DTYPE_BF16 && groups_are_bf16(d, t));
}

/* Where the parts of the room lie, and what one panel of weights has. */
struct groups_room {
    uint64_t order, lots, counts, panel, bytes; /* rows lie first */
    uint32_t matrices, outputs;                 /* of a panel */
};

/* Parts of some rows, whose inputs are `inputs` each. */
static struct groups_room room_of(const struct cuda_device *d, enum dtype t, uint64_t rows,
                                  uint64_t pairs, uint32_t matrices, uint64_t inputs,
                                  uint64_t outputs)
{
    uint64_t each = outputs * inputs * HALF_BYTES, all = panel_bytes(d);
    struct groups_room r = {.matrices = matrices, .outputs = (uint32_t)outputs};
    r.order = bytes_align(rows * inputs * HALF_BYTES);
    r.lots = r.order + bytes_align(pairs * sizeof(uint32_t));
    r.counts =
        r.lots + bytes_align(gpu_groups_lots((uint32_t)pairs, matrices) * sizeof(struct gpu_lot));
    r.panel = r.bytes = r.counts + bytes_align(matrices * sizeof(uint32_t));
    if (groups_are_there(d, t))
        return r;
    if (each > all) {
        uint64_t most = all / (inputs * HALF_BYTES) / PANEL_LEAST * PANEL_LEAST;
        r.outputs = (uint32_t)(most < PANEL_LEAST ? PANEL_LEAST : most);
        r.outputs = r.outputs < outputs ? r.outputs : (uint32_t)outputs;
        r.matrices = 1;
    } else if (each * matrices > all) {
        r.matrices = (uint32_t)(all / each);
    }
    r.bytes += (uint64_t)r.matrices * r.outputs * inputs * HALF_BYTES;
    return r;
}

/* Rows of a batch at a time, where each has `inputs` so many times. */
static uint32_t rows_at_once(const struct cuda_device *d, uint64_t inputs, uint32_t times,
                             uint32_t used)
{
    uint64_t most = panel_bytes(d) / 2 / (inputs * HALF_BYTES * times),
             by_pairs = PAIRS_MOST / used;
    most = most < by_pairs ? most : by_pairs;
    return most < 1 ? 1 : (uint32_t)most;
}

static bool format_fits(const struct cuda_device *d, enum dtype t, bool f32)
{
    return !f32 && d->facts.major * 10 + d->facts.minor >= 75 &&
           (t == DTYPE_F16 || t == DTYPE_BF16 || gpu_decode_by_integers((int)t));
}

uint64_t cuda_groups_scratch_bytes(const struct cuda_device *d, const struct weight *w, bool f32,
                                   uint32_t rows)
{
    enum { USED_MOST = 64 };
    if (w->n_parts == 0 || !format_fits(d, w->dtype, f32))
        return 0;
    uint64_t inputs = weight_shape_columns(w->parts[0]), outputs = weight_shape_rows(w->parts[0]),
             pairs = (uint64_t)rows * USED_MOST, most = panel_bytes(d) / 2 / (inputs * HALF_BYTES);
    most = most < 1 ? 1 : most;
    pairs = pairs < PAIRS_MOST ? pairs : PAIRS_MOST;
    return room_of(d, w->dtype, pairs < most ? pairs : most, pairs, (uint32_t)w->n_parts, inputs,
                   outputs)
        .bytes;
}

bool cuda_groups_fit(const struct cuda_device *d, const struct cuda_weight *w,
                     const struct gpu_product *p)
{
    bool apart = p->pairs.step != 0;
    return format_fits(d, w->dtype, w->f32) && p->pairs.chosen && w->parts && !p->turned &&
           p->pairs.first == 0 && p->inputs % 8 == 0 &&
           (!apart || (p->pairs.step == p->inputs &&
                       p->in.stride == (uint64_t)p->pairs.step * p->pairs.used)) &&
           (uint64_t)p->rows * p->pairs.used >= (uint64_t)PAIRS_EACH * w->parts;
}

/* Some of the weights, which rows then meet. */
static void panel_run(struct cuda_stream *s, const struct gpu_product *p, struct gpu_groups *g,
                      void *panel)
{
    if (panel) {
        const struct gpu_expansion e = {.dtype = p->dtype,
                                        .weight = p->weight + g->first_matrix * p->pairs.bytes +
                                                  g->first_output * p->row_bytes,
                                        .row_bytes = p->row_bytes,
                                        .rows = g->n_matrices * g->n_outputs,
                                        .width = p->inputs,
                                        .bf16 = g->bf16,
                                        .out = panel,
                                        .counts = g->counts + g->first_matrix,
                                        .rows_each = g->n_outputs};
        gpu_expand(s->stream, &e);
    }
    g->weight = panel ? panel : p->weight;
    gpu_groups_run(s->stream, g);
}

static void rows_run(struct cuda_stream *s, const struct cuda_weight *w,
                     const struct gpu_product *p)
{
    bool apart = p->pairs.step != 0, there = groups_are_there(s->device, w->dtype);
    uint32_t pairs = p->rows * p->pairs.used, in_rows = apart ? pairs : p->rows;
    struct groups_room room =
        room_of(s->device, w->dtype, in_rows, pairs, w->parts, p->inputs, p->outputs);
    uint8_t *at = cuda_scratch_take(s, room.bytes);
    if (!at)
        return;
    struct gpu_groups g = {.chosen = p->pairs.chosen,
                           .stride = p->pairs.stride,
                           .rows = p->rows,
                           .used = p->pairs.used,
                           .matrices = w->parts,
                           .chosen_from = p->pairs.first_matrix,
                           .n_lots = gpu_groups_lots(pairs, w->parts),
                           .order = (uint32_t *)(at + room.order),
                           .lots = (struct gpu_lot *)(at + room.lots),
                           .counts = (uint32_t *)(at + room.counts),
                           .in = (const uint16_t *)at,
                           .apart = apart,
                           .bf16 = groups_are_bf16(s->device, w->dtype),
                           .inputs = p->inputs,
                           .outputs = p->outputs,
                           .bias = p->bias,
                           .out = p->out};
    gpu_narrow(s->stream, g.bf16 ? DTYPE_BF16 : DTYPE_F16,
               (struct gpu_rows){p->in.data, apart ? p->inputs : p->in.stride}, at,
               (uint64_t)p->inputs * HALF_BYTES, (struct gpu_shape){in_rows, p->inputs});
    gpu_groups_list(s->stream, &g);
    for (uint32_t m = 0; m < w->parts; m += room.matrices)
        for (uint32_t c = 0; c < p->outputs; c += room.outputs) {
            g.first_matrix = m;
            g.n_matrices = w->parts - m < room.matrices ? w->parts - m : room.matrices;
            g.first_output = c;
            g.n_outputs = p->outputs - c < room.outputs ? p->outputs - c : room.outputs;
            panel_run(s, p, &g, there ? NULL : at + room.panel);
        }
}

void cuda_groups_run(struct cuda_stream *s, const struct cuda_weight *w, struct gpu_product p)
{
    uint32_t rows = p.rows, most = rows_at_once(s->device, p.inputs,
                                                p.pairs.step ? p.pairs.used : 1, p.pairs.used);
    for (uint32_t r = 0; r < rows; r += most) {
        struct gpu_product some = p;
        some.rows = rows - r < most ? rows - r : most;
        some.in.data += r * p.in.stride;
        some.out.data += r * p.out.stride;
        some.pairs.chosen += r * p.pairs.stride;
        rows_run(s, w, &some);
    }
}
