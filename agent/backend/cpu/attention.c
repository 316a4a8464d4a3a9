/* Attention over a paged KV cache. A page holds, for each block and kv head, its keys
 * [head_dim][KV_PAGE_TOKENS] and then its values [KV_PAGE_TOKENS][head_dim]: so both products of
 * attention run along contiguous rows. Keys that values are a part of are kept once, as values are.
 * Of KV_Q8_0 the scales stand behind all numbers: keys' [head_dim /
 * KV_Q8_ELEMENTS][KV_PAGE_TOKENS], then values'. */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "agent/backend/cpu/rows.h"
#include "common/batch.h"

/* Of one token's key or value of a head. */
static size_t row_bytes(const struct kv_layout *l)
{
    return (size_t)kv_format_bytes(l->format, (uint64_t)l->head_dim);
}
static size_t head_bytes(const struct kv_layout *l)
{
    return (size_t)kv_layout_parts(l) * KV_PAGE_TOKENS * row_bytes(l);
}

uint64_t cpu_kv_page_bytes(const struct device *d, const struct kv_layout *l)
{
    (void)d;
    return (uint64_t)head_bytes(l) * (uint64_t)l->n_blocks * (uint64_t)l->n_kv_heads;
}

/* Keys and values of one block and head in a page. */
static uint8_t *page_head(const struct kv_group *g, uint32_t page, int block, int head)
{
    const struct kv_layout *l = &g->layout;
    size_t bytes = head_bytes(l);
    return (uint8_t *)g->pool.data + page * (bytes * (size_t)l->n_blocks * (size_t)l->n_kv_heads) +
           ((size_t)block * (size_t)l->n_kv_heads + (size_t)head) * bytes;
}

/* ---- one token's key or value of a head: a row on the wire ---- */

/* Where element i of a token's key (part 0 of two) or value stands, in elements. */
static inline size_t element_at(const struct kv_layout *l, int part, size_t token, size_t i)
{
    size_t hd = (size_t)l->head_dim, before = (size_t)part * hd * KV_PAGE_TOKENS;
    bool key = part < kv_layout_parts(l) - 1, pairs = l->format == KV_Q8_0;
    if (key)
        return pairs ? (i / 2 * KV_PAGE_TOKENS + token) * 2 + i % 2 : i * KV_PAGE_TOKENS + token;
    return before + (pairs ? (token / 2 * hd + i) * 2 + token % 2 : token * hd + i);
}

/* n elements of `size` bytes from element i on into a page, or out of it. */
static inline void elements_put(const struct kv_layout *l, uint8_t *head, int part, size_t token,
                                size_t i, size_t n, size_t size, const uint8_t *row)
{
    if (part == kv_layout_parts(l) - 1 && l->format != KV_Q8_0) { /* values lie as they come */
        memcpy(head + element_at(l, part, token, i) * size, row, n * size);
        return;
    }
    for (size_t k = 0; k < n; k++)
        memcpy(head + element_at(l, part, token, i + k) * size, row + k * size, size);
}

static inline void elements_get(const struct kv_layout *l, const uint8_t *head, int part,
                                size_t token, size_t i, size_t n, size_t size, uint8_t *row)
{
    for (size_t k = 0; k < n; k++)
        memcpy(row + k * size, head + element_at(l, part, token, i + k) * size, size);
}

/* Of KV_Q8_0: where in the head the scale of a block stands. */
static size_t scale_at(const struct kv_layout *l, int part, size_t token, size_t block)
{
    size_t hd = (size_t)l->head_dim, before = (size_t)part * (hd / KV_Q8_ELEMENTS) + block;
    return (size_t)kv_layout_parts(l) * hd * KV_PAGE_TOKENS +
           (before * KV_PAGE_TOKENS + token) * sizeof(uint16_t);
}

/* Elements [i, i + n) of a row, whole blocks of a format that has some. */
static void row_put(const struct kv_layout *l, uint8_t *head, int part, size_t token, size_t i,
                    size_t n, const uint8_t *row)
{
    if (l->format == KV_F32)
        elements_put(l, head, part, token, i, n, sizeof(float), row);
    else if (l->format == KV_F16)
        elements_put(l, head, part, token, i, n, sizeof(uint16_t), row);
    for (size_t k = 0; l->format == KV_Q8_0 && k < n; k += KV_Q8_ELEMENTS, row += KV_Q8_BYTES) {
        memcpy(head + scale_at(l, part, token, (i + k) / KV_Q8_ELEMENTS), row, sizeof(uint16_t));
        elements_put(l, head, part, token, i + k, KV_Q8_ELEMENTS, 1, row + sizeof(uint16_t));
    }
}

static void row_get(const struct kv_layout *l, const uint8_t *head, int part, size_t token,
                    uint8_t *row)
{
    size_t n = (size_t)l->head_dim;
    if (l->format == KV_F32)
        elements_get(l, head, part, token, 0, n, sizeof(float), row);
    else if (l->format == KV_F16)
        elements_get(l, head, part, token, 0, n, sizeof(uint16_t), row);
    for (size_t k = 0; l->format == KV_Q8_0 && k < n; k += KV_Q8_ELEMENTS, row += KV_Q8_BYTES) {
        memcpy(row, head + scale_at(l, part, token, k / KV_Q8_ELEMENTS), sizeof(uint16_t));
        elements_get(l, head, part, token, k, KV_Q8_ELEMENTS, 1, row + sizeof(uint16_t));
    }
}

/* A row of floats as the cache keeps it. */
static void row_append(const struct cpu_device *d, const struct kv_layout *l, uint8_t *head,
                       int part, size_t token, const float *values)
{
    enum { SOME = 1024 };
    uint16_t made[SOME];
    size_t hd = (size_t)l->head_dim;
    if (l->format == KV_F32) {
        row_put(l, head, part, token, 0, hd, (const uint8_t *)(const void *)values);
        return;
    }
    for (size_t i = 0, n; i < hd; i += n) {
        n = hd - i < SOME ? hd - i : SOME;
        if (l->format == KV_Q8_0)
            d->kernels->f32_to_q8_0(values + i, n, (uint8_t *)made);
        else
            d->kernels->f32_to_f16(values + i, n, made);
        row_put(l, head, part, token, i, n, (const uint8_t *)made);
    }
}

/* k and v [rows, kv_heads, head_dim] (k for both, where v is in it) go into the operator's block of
 * the runs' pages. */
struct append_job {
    struct cpu_device *device;
    const struct device_op *op;
    const struct op_batch *batch;
    const struct tensor *k, *v;
    const struct cpu_turn *turn; /* of keys; NULL: they are rotated, or never are */
    struct parts parts;          /* of the runs' tokens, one run's after the other's */
};

/* A row's keys as the cache has them: of all heads. */
static const float *keys_of(const struct append_job *job, int thread, uint32_t row)
{
    const struct cpu_turn *turn = job->turn;
    const float *keys = tensor_row(job->k, row);
    if (!turn)
        return keys;
    float *to = turn->out ? tensor_row(turn->out, row) : job->device->private[thread].data;
    rope_row_make(job->device->kernels, turn->rope, tensor_row(turn->angles, row),
                  tensor_width(job->k) / (size_t)turn->rope->head_dim, keys, to);
    return to;
}

static void token_append(const struct append_job *job, int thread, const struct attention_run *run,
                         uint32_t t)
{
    const struct kv_group *g = &job->batch->kv[job->op->kv_group];
    const struct kv_layout *l = &g->layout;
    uint32_t position = run->first_position + t, row = run->first_row + t,
             page = run->pages[job->op->kv_group][position / KV_PAGE_TOKENS];
    const float *parts[] = {keys_of(job, thread, row), tensor_row(job->v, row)};
    for (int h = 0; h < l->n_kv_heads; h++)
        for (int part = 0; part < kv_layout_parts(l); part++)
            row_append(job->device, l, page_head(g, page, job->op->kv_block, h), part,
                       position % KV_PAGE_TOKENS, parts[part] + (size_t)h * (size_t)l->head_dim);
}

static void append_part(void *ctx, int thread, uint32_t part)
{
    const struct append_job *job = ctx;
    size_t at = 0, begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part);
    for (int i = 0; i < job->batch->n_runs && at < end; at += job->batch->runs[i++].n_tokens) {
        const struct attention_run *run = &job->batch->runs[i];
        for (size_t t = at < begin ? begin - at : 0; t < run->n_tokens && at + t < end; t++)
            token_append(job, thread, run, (uint32_t)t);
    }
}

/* Few of them by the caller: waking the others would take longer. */
static void kv_append(struct append_job *job)
{
    enum { FEW_ELEMENTS = 16384 };
    struct threads *threads = job->device->threads;
    size_t n = 0;
    for (int i = 0; i < job->batch->n_runs; i++)
        n += job->batch->runs[i].n_tokens;
    job->parts = n * tensor_width(job->k) <= FEW_ELEMENTS ? (struct parts){n, n, 1}
                                                          : threads_parts(threads, n, 1, 0);
    threads_run(threads, job->parts.count, append_part, job);
}

struct attention_job {
    struct cpu_device *device;
    const struct device_op *op;
    const struct kv_group *group;
    int heads, n_runs;
    const struct attention_run *runs;
    const struct tensor *q, *out;
};

static uint32_t tiles_of(uint32_t rows)
{
    return (rows + ATTEND_MAX_ROWS - 1) / ATTEND_MAX_ROWS;
}

/* A few tokens, as with guesses: each is what it would be as a step of its own, to the bit. */
static bool run_is_steps(const struct attention_run *run)
{
    return run->n_tokens <= 1 + BATCH_MAX_DRAFTS;
}

static uint32_t run_tiles(const struct attention_run *run, uint32_t group)
{
    return run_is_steps(run) ? run->n_tokens * tiles_of(group) : tiles_of(run->n_tokens * group);
}

/* Rows [*begin, *end) of a run are its tile. */
static void tile_rows(const struct attention_run *run, uint32_t group, uint32_t tile,
                      uint32_t *begin, uint32_t *end)
{
    uint32_t own = run_is_steps(run) ? tiles_of(group) : tiles_of(run->n_tokens * group),
             rows = run_is_steps(run) ? group : run->n_tokens * group, first = tile / own * rows;
    *begin = first + tile % own * ATTEND_MAX_ROWS;
    *end = *begin + ATTEND_MAX_ROWS < first + rows ? *begin + ATTEND_MAX_ROWS : first + rows;
}

static void attend_tile(const struct attention_job *job, const struct attention_run *run, int head,
                        uint32_t tile, float *scratch)
{
    const struct kv_layout *l = &job->group->layout;
    uint32_t group = (uint32_t)(job->heads / l->n_kv_heads), begin, end;
    tile_rows(run, group, tile, &begin, &end);
    size_t value_dim = (size_t)(l->value_dim ? l->value_dim : l->head_dim),
           first_head = (size_t)head * group;
    const struct op_attention *a = &job->op->op->u.attention;
    const struct device_weight *sinks = job->op->weights[0];
    struct attend_task task = {
        .q = (const float *)tensor_row(job->q, run->first_row) + first_head * (size_t)l->head_dim,
        .out = (float *)tensor_row(job->out, run->first_row) + first_head * value_dim,
        .q_stride = job->q->strides[0],
        .out_stride = job->out->strides[0],
        .group = (int)group,
        .head_dim = l->head_dim,
        .value_dim = (int)value_dim,
        .by_rows = kv_layout_parts(l) == 1,
        .first_position = run->first_position,
        .sees_to = a->whole ? run->first_position + run->n_tokens - 1 : 0,
        .row_begin = begin,
        .row_end = end,
        .head = page_head(job->group, 0, job->op->kv_block, head),
        .page_stride = head_bytes(l) * (size_t)l->n_blocks * (size_t)l->n_kv_heads,
        .pages = run->pages[job->op->kv_group],
        .window = l->window,
        .format = l->format,
        .scale = a->scale != 0 ? a->scale : 1.0f / sqrtf((float)l->head_dim),
        .cap = a->cap,
        .sinks = sinks ? (const float *)(const void *)sinks->data + (size_t)head * group : NULL,
        .scratch = scratch,
    };
    job->device->kernels->attend(&task);
}

/* Part of the work: one tile of one run and kv head. A run's last tiles, which see the longest
 * prefix, come first. */
static void attention_part(void *ctx, int thread, uint32_t part)
{
    struct attention_job *job = ctx;
    const struct kv_layout *l = &job->group->layout;
    uint32_t group = (uint32_t)(job->heads / l->n_kv_heads), heads = (uint32_t)l->n_kv_heads;
    float *scratch = job->device->private[thread].data;
    for (int i = 0; i < job->n_runs; i++) {
        uint32_t tiles = run_tiles(&job->runs[i], group);
        if (part < tiles * heads) {
            attend_tile(job, &job->runs[i], (int)(part % heads), tiles - 1 - part / heads, scratch);
            return;
        }
        part -= tiles * heads;
    }
}

void cpu_attention_turned(struct stream *s, const struct device_op *op, const struct tensor *in,
                          const struct tensor *out, const struct op_batch *batch,
                          const struct cpu_turn *turn)
{
    int heads = op->op->u.attention.heads;
    const struct kv_group *g = &batch->kv[op->kv_group];
    assert(heads % g->layout.n_kv_heads == 0);
    struct attention_job job = {.device = s->device,
                                .op = op,
                                .group = g,
                                .heads = heads,
                                .n_runs = batch->n_runs,
                                .runs = batch->runs,
                                .q = &in[0],
                                .out = out};
    size_t floats = attend_scratch_floats(g->layout.head_dim), keys = tensor_width(&in[1]);
    if (!scratch_get_all(s->device, (floats > keys ? floats : keys) * sizeof(float))) {
        cpu_stream_fail(s, HP_ENOMEM, "no memory for attention");
        return;
    }
    kv_append(&(struct append_job){.device = s->device,
                                   .op = op,
                                   .batch = batch,
                                   .k = turn ? turn->in : &in[1],
                                   .v = &in[kv_layout_parts(&g->layout)],
                                   .turn = turn});
    uint32_t n_parts = 0, share = (uint32_t)(heads / g->layout.n_kv_heads);
    for (int i = 0; i < batch->n_runs; i++)
        n_parts += run_tiles(&batch->runs[i], share) * (uint32_t)g->layout.n_kv_heads;
    threads_run(s->device->threads, n_parts, attention_part, &job);
}

void cpu_attention(struct stream *s, const struct device_op *op, const struct tensor *in,
                   const struct tensor *out, const struct op_batch *batch)
{
    cpu_attention_turned(s, op, in, out, batch, NULL);
}

/* ---- wire order: [block][part][token][kv head][head dim] ---- */

/* Some consecutive tokens of one page, of one block and head. */
struct wire_run {
    const struct kv_layout *layout;
    uint8_t *head;               /* in the page */
    uint32_t first, n;           /* in the page */
    size_t keys, values, stride; /* bytes into the wire: of the first token; to the next one */
};

static void run_export(const struct wire_run *r, uint8_t *out)
{
    for (uint32_t t = 0; t < r->n; t++)
        for (int part = 0; part < kv_layout_parts(r->layout); part++)
            row_get(r->layout, r->head, part, r->first + t,
                    out + (part ? r->values : r->keys) + t * r->stride);
}

static void run_import(const struct wire_run *r, const uint8_t *data)
{
    for (uint32_t t = 0; t < r->n; t++)
        for (int part = 0; part < kv_layout_parts(r->layout); part++)
            row_put(r->layout, r->head, part, r->first + t, 0, (size_t)r->layout->head_dim,
                    data + (part ? r->values : r->keys) + t * r->stride);
}

/* Calls `out` or `in` for the runs that a part is made of: a page at a time, since that is what is
 * contiguous on the device. */
static void part_walk(const struct kv_group *g, const uint32_t *pages, const struct kv_part *part,
                      uint8_t *out, const uint8_t *in)
{
    const struct kv_layout *l = &g->layout;
    size_t row = row_bytes(l), stride = row * (size_t)l->n_kv_heads,
           parts = (size_t)kv_layout_parts(l);
    for (uint32_t at = 0, n; at < part->count; at += n) {
        uint32_t first = (part->first + at) % KV_PAGE_TOKENS,
                 page = pages[(part->first + at) / KV_PAGE_TOKENS];
        n = KV_PAGE_TOKENS - first < part->count - at ? KV_PAGE_TOKENS - first : part->count - at;
        for (int b = 0; b < part->n_blocks; b++)
            for (int h = 0; h < l->n_kv_heads; h++) {
                struct wire_run r = {.layout = l,
                                     .head = page_head(g, page, part->first_block + b, h),
                                     .first = first,
                                     .n = n,
                                     .keys = ((size_t)b * parts * part->count + at) * stride +
                                             (size_t)h * row,
                                     .stride = stride};
                r.values = r.keys + (parts - 1) * part->count * stride;
                if (out)
                    run_export(&r, out);
                else
                    run_import(&r, in);
            }
    }
}

void cpu_kv_export(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                   const struct kv_part *part, void *out)
{
    (void)s;
    part_walk(g, pages, part, out, NULL);
}

void cpu_kv_import(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                   const struct kv_part *part, const void *data)
{
    (void)s;
    part_walk(g, pages, part, NULL, data);
}
