/* Copies between the GPU and memory that anybody has allocated: through memory that the GPU reaches
 * by itself, so that neither holds up the host. What goes to the GPU is taken over at once; what
 * comes from it lies where it belongs when the host has waited for it. */
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"

/* Rows of the host, and as they follow each other in a staged room. */
static void rows_take(const struct cuda_rows *from, uint8_t *to)
{
    for (size_t r = 0; r < from->rows; r++)
        memcpy(to + r * from->bytes, (const uint8_t *)from->data + r * from->pitch, from->bytes);
}

static void rows_give(const struct cuda_rows *to, const uint8_t *from)
{
    for (size_t r = 0; r < to->rows; r++)
        memcpy((uint8_t *)to->data + r * to->pitch, from + r * to->bytes, to->bytes);
}

/* Nobody copies from it or to it any more. */
static bool staged_is_free(struct cuda_staged *g)
{
    if (g->going && gpu_event_done(g->read) != GPU_BUSY)
        g->going = false;
    return !g->going && !g->turn;
}

/* One that is free, the smallest that is large enough, or one that becomes so. NULL: none. */
static struct cuda_staged *staged_find(struct cuda_stream *s, size_t bytes)
{
    struct cuda_staged *best = NULL;
    for (int i = 0; i < CUDA_STAGED; i++) {
        struct cuda_staged *g = &s->staged[i];
        bool enough = g->room.bytes >= bytes;
        if (staged_is_free(g) &&
            (!best || (enough ? best->room.bytes < bytes || g->room.bytes < best->room.bytes
                              : g->room.bytes > best->room.bytes && best->room.bytes < bytes)))
            best = g;
    }
    if (!best || best->room.bytes >= bytes)
        return best;
    cuda_room_free(&best->room);
    if (!best->read && gpu_event_create(&best->read) != 0)
        return NULL;
    if (gpu_host_alloc(&best->room.host, bytes + bytes / 2) != 0)
        return NULL;
    best->room.bytes = bytes + bytes / 2;
    return best;
}

static void picks_give(const struct cuda_picks *p)
{
    memcpy(p->picked, p->tokens, p->n * sizeof *p->picked);
    for (size_t i = 0; i < p->n; i++)
        if (p->picked[i] == SAMPLE_IN_DOUBT)
            memcpy(p->rows + i * p->width, p->found + i * p->width, p->width * sizeof *p->rows);
}

void cuda_staged_land(struct cuda_stream *s, uint64_t upto, bool good)
{
    for (;;) {
        struct cuda_staged *first = NULL;
        for (int i = 0; i < CUDA_STAGED; i++) {
            struct cuda_staged *g = &s->staged[i];
            if (g->turn && g->turn <= upto && (!first || g->turn < first->turn))
                first = g;
        }
        if (!first)
            return;
        if (good && first->picks.picked)
            picks_give(&first->picks);
        else if (good)
            rows_give(&first->to, first->room.host);
        first->turn = 0;
    }
}

static size_t rows_span(const struct cuda_rows *r)
{
    return r->rows ? (r->rows - 1) * r->pitch + r->bytes : 0;
}

/* Whether something that has yet to land lies among these rows. */
static bool staged_covers(const struct cuda_stream *s, const struct cuda_rows *rows)
{
    const uint8_t *a = rows->data;
    for (int i = 0; i < CUDA_STAGED; i++) {
        const struct cuda_staged *g = &s->staged[i];
        const uint8_t *b = g->to.data;
        if (g->turn && a < b + rows_span(&g->to) && b < a + rows_span(rows))
            return true;
    }
    return false;
}

/* All that is under way lands now. */
static void staged_settle(struct cuda_stream *s)
{
    int rc = gpu_stream_wait(s->stream);
    cuda_note(s, rc);
    cuda_staged_land(s, UINT64_MAX, rc == 0);
}

void cuda_staged_send(struct cuda_stream *s, const struct cuda_rows *to,
                      const struct cuda_rows *from)
{
    size_t bytes = from->bytes * from->rows;
    if (staged_covers(s, from))
        staged_settle(s);
    struct cuda_staged *g = bytes <= CUDA_STAGED_MOST ? staged_find(s, bytes) : NULL;
    if (!g) {
        cuda_note(s, gpu_copy(s->stream, GPU_TO_DEVICE, to->data, to->pitch, from->data,
                              from->pitch, from->bytes, from->rows));
        return;
    }
    rows_take(from, g->room.host);
    cuda_note(s, gpu_copy(s->stream, GPU_TO_DEVICE, to->data, to->pitch, g->room.host, from->bytes,
                          from->bytes, from->rows));
    cuda_note(s, gpu_event_record(g->read, s->stream));
    g->going = true;
}

void cuda_staged_fetch(struct cuda_stream *s, const struct cuda_rows *to,
                       const struct cuda_rows *from)
{
    size_t bytes = from->bytes * from->rows;
    struct cuda_staged *g = bytes <= CUDA_STAGED_MOST ? staged_find(s, bytes) : NULL;
    if (!g) /* it comes at once, and nothing older after it */
        staged_settle(s);
    cuda_note(s, gpu_copy(s->stream, GPU_TO_HOST, g ? g->room.host : to->data,
                          g ? from->bytes : to->pitch, from->data, from->pitch, from->bytes,
                          from->rows));
    if (!g)
        return;
    g->to = *to;
    g->picks = (struct cuda_picks){0};
    g->turn = ++s->landings;
}

struct cuda_staged *cuda_staged_take(struct cuda_stream *s, size_t bytes)
{
    return bytes <= CUDA_STAGED_MOST ? staged_find(s, bytes) : NULL;
}

void cuda_staged_expect(struct cuda_stream *s, struct cuda_staged *g, const struct cuda_picks *p)
{
    g->to = (struct cuda_rows){0};
    g->picks = *p;
    g->turn = ++s->landings;
}

void cuda_staged_free(struct cuda_stream *s)
{
    for (int i = 0; i < CUDA_STAGED; i++) {
        cuda_room_free(&s->staged[i].room);
        if (s->staged[i].read)
            gpu_event_destroy(s->staged[i].read);
    }
}
