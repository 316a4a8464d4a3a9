/* Tokens that the GPU picks from rows of logits (sampling.cu). What is asked for, and what comes
 * back, lies in memory of the host that the GPU reaches by itself: it is read and written once. */
#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

/* Where in a staged room is what. */
struct sampling_room {
    struct gpu_sample_ask *asks;
    struct gpu_sample_change *changes;
    uint32_t *tokens;
    float *rows;
};

static size_t changes_count(const struct sample_ask *a)
{
    return a->wanted ? (size_t)a->n_seen + a->n_added + a->n_ruled_out : 0;
}

static void asks_write(const struct sample_ask *asks, uint32_t n, const struct sampling_room *to)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct sample_ask *a = &asks[i];
        to->asks[i] = (struct gpu_sample_ask){.temperature = a->temperature,
                                              .top_p = a->top_p,
                                              .min_p = a->min_p,
                                              .chance = a->chance,
                                              .repetition = a->repetition,
                                              .wanted = a->wanted,
                                              .top_k = a->top_k,
                                              .first = first,
                                              .n_seen = a->n_seen,
                                              .n_added = a->n_added,
                                              .n_ruled_out = a->n_ruled_out};
        for (size_t k = 0; k < changes_count(a); k++)
            to->changes[first++] =
                (struct gpu_sample_change){a->changes[k].token, a->changes[k].amount};
    }
}

/* Some rows of a batch: as many go to the GPU at once as the stream's scratch has room for. */
struct sampling_part {
    struct gpu_rows logits;
    const struct sample_ask *asks;
    uint32_t n, width;
    uint32_t *picked;
    float *rows;
};

static bool part_put(struct cuda_stream *s, const struct sampling_part *p)
{
    size_t n_changes = 0;
    for (uint32_t i = 0; i < p->n; i++)
        n_changes += changes_count(&p->asks[i]);
    size_t asks = p->n * sizeof(struct gpu_sample_ask),
           changes = n_changes * sizeof(struct gpu_sample_change), tokens = p->n * sizeof(uint32_t);
    struct cuda_staged *g =
        cuda_staged_take(s, asks + changes + tokens + (size_t)p->n * p->width * sizeof(float));
    if (!g)
        return false;
    uint8_t *at = g->room.host;
    const struct sampling_room room = {(void *)at, (void *)(at + asks),
                                       (void *)(at + asks + changes),
                                       (void *)(at + asks + changes + tokens)};
    asks_write(p->asks, p->n, &room);
    uint32_t most = (uint32_t)(s->scratch.bytes / (p->width * sizeof(uint64_t)));
    for (uint32_t r = 0, n; r < p->n; r += n) {
        n = p->n - r < most ? p->n - r : most;
        const struct gpu_sampling one = {
            .logits = {p->logits.data + r * p->logits.stride, p->logits.stride},
            .n = n,
            .width = p->width,
            .asks = room.asks + r,
            .changes = room.changes,
            .tokens = room.tokens + r,
            .rows = room.rows + (size_t)r * p->width,
            .room = s->scratch.device};
        gpu_sample(s->stream, &one);
        cuda_note(s, gpu_launched());
    }
    const struct cuda_picks picks = {p->picked, p->rows, p->n, p->width, room.tokens, room.rows};
    cuda_staged_expect(s, g, &picks);
    return true;
}

/* Where there is no room to pick in, the host does. */
static void part_copy(struct cuda_stream *s, const struct sampling_part *p)
{
    const struct cuda_rows here = {p->logits.data, p->width * sizeof(float),
                                   p->logits.stride * sizeof(float), p->n},
                           there = {p->rows, p->width * sizeof(float), p->width * sizeof(float),
                                    p->n};
    for (uint32_t i = 0; i < p->n; i++)
        p->picked[i] = SAMPLE_IN_DOUBT;
    cuda_staged_fetch(s, &there, &here);
}

bool cuda_sample(struct stream *stream, const struct tensor *logits, const struct sample_ask *asks,
                 uint32_t *picked, float *rows)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    uint32_t n = (uint32_t)logits->shape[0], width = (uint32_t)tensor_width(logits);
    if (width < GPU_SAMPLE_LEAST || width > GPU_SAMPLE_MOST)
        return false;
    cuda_note(s, gpu_use(s->device->ordinal));
    /* a row is less than what attention's parts have been promised of the same room */
    if (!cuda_room_take(s, &s->scratch, width * sizeof(uint64_t)))
        return false;
    uint32_t most = CUDA_STAGED_MOST / 2 / (width * (uint32_t)sizeof(float));
    for (uint32_t r = 0; r < n; r += most) {
        const struct sampling_part part = {
            .logits = {(float *)tensor_row(logits, r), logits->strides[0]},
            .asks = asks + r,
            .n = n - r < most ? n - r : most,
            .width = width,
            .picked = picked + r,
            .rows = rows + (size_t)r * width};
        if (!part_put(s, &part))
            part_copy(s, &part);
    }
    return true;
}
