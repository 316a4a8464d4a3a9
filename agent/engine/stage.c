#include "agent/engine/stage.h"

#include <stdlib.h>
#include <string.h>

#include "agent/engine/forward.h"
#include "agent/engine/kv_transfer.h"
#include "agent/engine/section_plan.h"
#include "agent/engine/stage_int.h"

/* A batch under way. */
struct stage_flight {
    struct attention_run *runs; /* [max_sequences] */
    uint64_t *sequences;        /* [max_sequences]: of the runs */
    uint32_t *ends; /* [max_sequences]: of these, tokens that nobody takes back after it */
    uint32_t *logit_rows, *scored_rows; /* [max_batch_tokens] */
    int n_runs;
    struct err scoring; /* what failed while rows were scored */
    struct event *done;
};

struct stage {
    struct stage_config config;
    const struct graph *graph;
    const struct model_config *model;
    struct forward *forward; /* NULL: it only keeps, */
    struct stream *mover;    /* and copies by this stream */
    struct kv_cache kv;
    struct stage_flight flights[STAGE_DEPTH]; /* a ring: the oldest batch is at `oldest` */
    int oldest, n_flying;
    struct err failure; /* of a batch that others were submitted after */
    uint32_t positions; /* that the layers know */
    bool whole;         /* each token sees all of its text, which is one run */
};

/* ---- loading ---- */

/* What crosses between stages goes through their links as numbers. */
static int border_check(const struct graph *g, int layer, enum dtype border, struct err *e)
{
    const struct graph_layer *l = &g->layers[layer];
    for (int i = 0; i < l->n_outputs; i++) {
        const struct graph_value *v = &g->values[l->outputs[i]];
        size_t block = dtype_info(graph_value_border(v, border))->block_elements;
        if (v->dtype != DTYPE_F32)
            return err_set(e, HP_EUNSUPPORTED,
                           "%s would cross the border after %s as %s; only F32 values cross",
                           v->name, l->name, dtype_info(v->dtype)->name);
        if (graph_value_width(v) % block)
            return err_set(e, HP_EUNSUPPORTED,
                           "%s, which crosses the border after %s, has rows of %llu elements; they "
                           "cross %zu at a time: deploy with --wire f16",
                           v->name, l->name, (unsigned long long)graph_value_width(v), block);
    }
    return 0;
}

static int config_check(const struct graph *g, const struct stage_config *c, struct err *e)
{
    int rc = section_layers_check(g, c->first_layer, c->end_layer, e);
    if (rc < 0)
        return rc;
    if (c->max_batch_tokens == 0 || c->max_sequences == 0 || c->kv_tokens == 0)
        return err_set(e, HP_EINVAL,
                       "a stage needs room for at least one sequence, one token of KV cache and "
                       "one token a batch");
    rc = c->first_layer > 0 ? border_check(g, c->first_layer - 1, c->border, e) : 0;
    return rc < 0 || c->end_layer == g->n_layers ? rc
                                                 : border_check(g, c->end_layer - 1, c->border, e);
}

static struct forward_config forward_config_of(const struct graph *g, const struct stage_config *c)
{
    return (struct forward_config){.section = {.graph = g,
                                               .first_layer = c->first_layer,
                                               .end_layer = c->end_layer,
                                               .device = c->device,
                                               .f32 = c->compute == COMPUTE_F32,
                                               .progress = c->progress,
                                               .progress_ctx = c->progress_ctx,
                                               .stop = c->stop,
                                               .later = c->later,
                                               .make_up = c->measured &&
                                                          c->compute != COMPUTE_F32 &&
                                                          !c->device->backend->own_memory,
                                               .model = c->model},
                                   .max_rows = c->max_batch_tokens,
                                   .border = c->border,
                                   .experts_by_lot = c->measured};
}

static int groups_of(const struct graph *g, const struct stage_config *c, struct kv_groups *out,
                     struct err *e)
{
    enum kv_format format = c->kv_given ? c->kv : c->compute == COMPUTE_F32 ? KV_F32 : KV_F16;
    return kv_groups_make(g, c->first_layer, c->end_layer, format, out, e);
}

static struct kv_room room_of(const struct stage_config *c)
{
    return (struct kv_room){.tokens = c->kv_tokens,
                            .max_sequences = c->max_sequences,
                            .ahead_tokens = STAGE_DEPTH * c->max_batch_tokens};
}

int stage_footprint_of_graph(const struct graph *g, const struct stage_config *c,
                             struct section_need *out, struct err *e)
{
    int rc = config_check(g, c, e);
    if (rc < 0)
        return rc;
    struct kv_groups groups;
    rc = groups_of(g, c, &groups, e);
    if (rc < 0)
        return rc;
    struct forward_config f = forward_config_of(g, c);
    struct kv_room room = room_of(c);
    struct section_need made = {0};
    rc = c->keeps ? 0 : forward_footprint(&f, &made, e);
    if (rc < 0)
        return rc;
    made.state_bytes = kv_cache_bytes(c->device, &groups, &room);
    *out = made;
    return 0;
}

int stage_footprint(const struct stage_config *c, struct section_need *out, struct err *e)
{
    return stage_footprint_of_graph(model_graph(c->model), c, out, e);
}

/* Says before anything is loaded that it will not fit. */
static int memory_check(const struct graph *g, const struct stage_config *c, struct err *e)
{
    struct section_need need;
    int rc = stage_footprint_of_graph(g, c, &need, e);
    if (rc < 0)
        return rc;
    struct forward_config f = forward_config_of(g, c);
    return section_memory_check(&f.section, &need, c->beside_bytes, e);
}

static int flight_make(const struct stage_config *c, struct stage_flight *f, struct err *e)
{
    f->runs = calloc(c->max_sequences, sizeof *f->runs);
    f->sequences = calloc(c->max_sequences, sizeof *f->sequences);
    f->ends = calloc(c->max_sequences, sizeof *f->ends);
    f->logit_rows = calloc(c->max_batch_tokens, sizeof *f->logit_rows);
    f->scored_rows = calloc(c->max_batch_tokens, sizeof *f->scored_rows);
    if (!f->runs || !f->sequences || !f->ends || !f->logit_rows || !f->scored_rows)
        return err_set(e, HP_ENOMEM, "no memory for a stage's tables");
    return c->device->backend->event_create(c->device, &f->done, e);
}

static void flight_free(const struct stage_config *c, struct stage_flight *f)
{
    if (f->done)
        c->device->backend->event_destroy(&f->done);
    free(f->runs);
    free(f->sequences);
    free(f->ends);
    free(f->logit_rows);
    free(f->scored_rows);
}

/* Whether the bytes of the files that the weights lie in could all be read. */
static int weights_check(const struct stage *s, struct err *e)
{
    return s->config.model ? model_check(s->config.model, e) : 0;
}

/* After each batch. */
static int weights_glance(const struct stage *s, struct err *e)
{
    return s->config.model ? model_glance(s->config.model, e) : 0;
}

int stage_load_graph(const struct graph *g, const struct model_config *m,
                     const struct stage_config *c, struct stage **out, struct err *e)
{
    int rc = memory_check(g, c, e);
    if (rc < 0)
        return rc;
    struct stage *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "no memory for a stage");
    s->config = *c;
    s->graph = g;
    s->model = m;
    struct forward_config f = forward_config_of(g, c);
    struct kv_room room = room_of(c);
    struct kv_groups groups;
    rc = groups_of(g, c, &groups, e);
    f.section.kv = &groups;
    for (int i = 0; i < STAGE_DEPTH && rc == 0; i++)
        rc = flight_make(c, &s->flights[i], e);
    if (rc == 0)
        rc = kv_cache_init(&s->kv, c->device, &groups, &room, e);
    if (rc == 0)
        rc = c->keeps ? c->device->backend->stream_create(c->device, &s->mover, e)
                      : forward_create(&f, &s->forward, e);
    if (rc == 0)
        rc = weights_check(s, e);
    if (rc < 0) {
        stage_unload(&s);
        return rc == HP_EPARSE && c->model ? err_at(e, "%s", model_path(c->model)) : rc;
    }
    s->positions = c->keeps ? UINT32_MAX : forward_positions(s->forward);
    s->whole = graph_is_whole(g);
    *out = s;
    return 0;
}

int stage_load(const struct stage_config *c, struct stage **out, struct err *e)
{
    return stage_load_graph(model_graph(c->model), model_config(c->model), c, out, e);
}

void stage_unload(struct stage **self)
{
    struct stage *s = *self;
    *self = NULL;
    if (!s)
        return;
    forward_destroy(&s->forward);
    if (s->mover)
        s->config.device->backend->stream_destroy(&s->mover);
    if (s->kv.sequences)
        kv_cache_fini(&s->kv);
    for (int i = 0; i < STAGE_DEPTH; i++)
        flight_free(&s->config, &s->flights[i]);
    free(s);
}

struct section_run *stage_fill_promise(struct stage *s)
{
    struct section_run *r = forward_section(s->forward);
    section_run_promise(r);
    return r;
}

uint64_t stage_missing_bytes(const struct stage *s)
{
    return s->forward ? section_run_missing_bytes(forward_section(s->forward)) : 0;
}

uint32_t stage_positions(const struct stage *s)
{
    return s->positions;
}

bool stage_only_keeps(const struct stage *s)
{
    return !s->forward;
}

bool stage_is_first(const struct stage *s)
{
    return s->config.first_layer == 0;
}
bool stage_is_last(const struct stage *s)
{
    return s->config.end_layer == s->graph->n_layers;
}

/* ---- sequences ---- */

int stage_sequence_open(struct stage *s, uint64_t sequence, uint32_t max_tokens, struct err *e)
{
    return kv_cache_open(&s->kv, sequence, max_tokens, 0, e);
}

/* Keys that were rotated by the factors of short sequences are none of a long one's. */
static int share_check(const struct stage *s, uint32_t max_tokens, uint64_t share, struct err *e)
{
    const struct kv_sequence *other = share ? kv_cache_find(&s->kv, share) : NULL;
    if (!other || !s->forward || /* whoever hands keys out knows how they were rotated */
        forward_rotates_long(s->forward, other->reach) ==
            forward_rotates_long(s->forward, max_tokens))
        return 0;
    return err_set(e, HP_EINVAL,
                   "sequence %llu may reach %u tokens and rotates otherwise than one of %u: its "
                   "keys are of no use there",
                   (unsigned long long)share, other->reach, max_tokens);
}

int stage_sequence_open_at(struct stage *s, uint64_t sequence, uint32_t max_tokens, uint32_t length,
                           uint64_t share, struct err *e)
{
    return stage_sequence_open_some(s, sequence, max_tokens, max_tokens, length, share, e);
}

int stage_sequence_open_some(struct stage *s, uint64_t sequence, uint32_t max_tokens,
                             uint32_t reserved, uint32_t length, uint64_t share, struct err *e)
{
    int rc = share_check(s, max_tokens, share, e);
    return rc < 0 ? rc
                  : kv_cache_open_some(&s->kv, sequence, max_tokens, reserved, length, share, e);
}

int stage_sequence_await(struct stage *s, uint64_t sequence, uint32_t length, struct err *e)
{
    return kv_cache_await(&s->kv, sequence, length, e);
}

int stage_sequence_reserve(struct stage *s, uint64_t sequence, uint32_t tokens, struct err *e)
{
    return kv_cache_reserve(&s->kv, sequence, tokens, e);
}

void stage_sequence_close(struct stage *s, uint64_t sequence)
{
    kv_cache_close(&s->kv, sequence);
}

/* Whoever keeps tokens knows that they are no guesses. */
void stage_sequence_keep(struct stage *s, uint64_t sequence, uint32_t length)
{
    struct kv_sequence *q = kv_cache_find(&s->kv, sequence);
    if (q && !q->n_awaited && length <= q->length)
        kv_cache_settle(&s->kv, q, length);
    if (kv_cache_keep(&s->kv, sequence, length, NULL) < 0)
        kv_cache_close(&s->kv, sequence);
}

int64_t stage_sequence_length(const struct stage *s, uint64_t sequence)
{
    const struct kv_sequence *q = kv_cache_find(&s->kv, sequence);
    return q ? (int64_t)q->length : -1;
}

/* ---- running ---- */

/* Whether a run may begin there because what stands behind are guesses, of a batch that is
 * through. */
static bool guesses_end(const struct stage *s, const struct kv_sequence *q, uint32_t position)
{
    for (int i = 0; i < s->n_flying; i++) {
        const struct stage_flight *f = &s->flights[(s->oldest + i) % STAGE_DEPTH];
        for (int k = 0; k < f->n_runs; k++)
            if (f->sequences[k] == q->id)
                return false;
    }
    return position >= q->settled && position < q->length;
}

/* Whether a run goes on with its sequence as the stage has it, and has a place from `row` on. */
static int run_check(const struct stage *s, const struct kv_sequence *q,
                     const struct batch_run *run, uint32_t row, struct err *e)
{
    unsigned long long id = run->sequence;
    if (q->n_awaited)
        return err_set(e, HP_EINVAL, "the keys and values of sequence %llu have not all come", id);
    if (run->n_tokens == 0)
        return err_set(e, HP_EINVAL, "sequence %llu has no tokens in its run", id);
    if (run->first_position != q->length && !guesses_end(s, q, run->first_position))
        return err_set(e, HP_EINVAL, "sequence %llu has %u tokens; position %u does not follow", id,
                       q->length, run->first_position);
    if (s->whole && run->first_position > 0)
        return err_set(e, HP_EINVAL,
                       "sequence %llu: this model reads a text at once, and not on from token %u",
                       id, run->first_position);
    if (run->n_tokens > s->positions || run->first_position > s->positions - run->n_tokens)
        return err_set(e, HP_EINVAL, "sequence %llu: positions %u to %u; the model knows %u", id,
                       run->first_position, run->first_position + run->n_tokens - 1, s->positions);
    if (run->n_logits > run->n_tokens)
        return err_set(e, HP_EINVAL, "sequence %llu asks for logits of %u of %u tokens", id,
                       run->n_logits, run->n_tokens);
    if (run->n_scored > run->n_tokens)
        return err_set(e, HP_EINVAL, "sequence %llu has scores of %u of %u tokens", id,
                       run->n_scored, run->n_tokens);
    if (run->n_drafts >= run->n_tokens)
        return err_set(e, HP_EINVAL, "sequence %llu has %u tokens in its run, all guesses", id,
                       run->n_tokens);
    if (run->n_tokens > s->config.max_batch_tokens - row)
        return err_set(e, HP_EINVAL, "a batch has at most %u tokens", s->config.max_batch_tokens);
    return 0;
}

/* Checks run i of a batch, takes pages for it, and puts it into the flight's tables; `row` is its
 * first row. */
static int take_run(struct stage *s, struct stage_flight *f, const struct batch_run *run, int i,
                    uint32_t row, struct err *e)
{
    unsigned long long id = run->sequence;
    struct kv_sequence *q = kv_cache_find(&s->kv, run->sequence);
    if (!q)
        return err_set(e, HP_EINVAL, "sequence %llu is not open", id);
    for (int j = 0; j < i; j++)
        if (f->sequences[j] == run->sequence)
            return err_set(e, HP_EINVAL, "sequence %llu stands twice in a batch", id);
    int rc = run_check(s, q, run, row, e);
    if (rc < 0)
        return rc;
    if (run->first_position < q->length) /* guesses that were wrong */
        kv_cache_cut(&s->kv, q, run->first_position);
    rc = kv_cache_grow(&s->kv, forward_stream(s->forward), q, run->n_tokens, e);
    if (rc < 0)
        return rc;
    f->sequences[i] = run->sequence;
    f->ends[i] = run->first_position + run->n_tokens - run->n_drafts;
    f->n_runs = i + 1;
    f->runs[i] = (struct attention_run){.first_row = row,
                                        .n_tokens = run->n_tokens,
                                        .first_position = run->first_position,
                                        .pages = q->pages,
                                        .most_tokens = q->max_tokens};
    return 0;
}

static int check_ids(const struct stage *s, const uint32_t *ids, uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= (uint32_t)s->model->vocabulary)
            return err_set(e, HP_EINVAL, "token %u is beyond the vocabulary of %d", ids[i],
                           s->model->vocabulary);
    return 0;
}

/* Checks a batch whole and puts it into the flight's tables; f->n_runs of them have their pages,
 * also when it fails. */
static int take_batch(struct stage *s, struct stage_flight *f, const struct batch_run *runs,
                      int n_runs, const void *input, struct forward_batch *out, struct err *e)
{
    f->n_runs = 0;
    if (n_runs < 1 || (uint32_t)n_runs > s->config.max_sequences)
        return err_set(e, HP_EINVAL, "a batch has 1 to %u runs, not %d", s->config.max_sequences,
                       n_runs);
    for (int i = 0; i < n_runs; i++) {
        int rc = take_run(s, f, &runs[i], i, out->rows, e);
        if (rc < 0)
            return rc;
        for (uint32_t j = 0; j < runs[i].n_scored; j++)
            f->scored_rows[out->n_scored_rows++] = out->rows + j;
        out->rows += runs[i].n_tokens;
        for (uint32_t j = 0; j < runs[i].n_logits; j++)
            f->logit_rows[out->n_logit_rows++] = out->rows - runs[i].n_logits + j;
    }
    return stage_is_first(s) ? check_ids(s, input, out->rows, e) : 0;
}

/* The sequences are as long as before the batch; one that was closed meanwhile is no more. */
static void flight_undo(struct stage *s, const struct stage_flight *f)
{
    for (int i = 0; i < f->n_runs; i++) {
        struct kv_sequence *q = kv_cache_find(&s->kv, f->sequences[i]);
        if (q && q->length >= f->runs[i].first_position)
            kv_cache_cut(&s->kv, q, f->runs[i].first_position);
    }
}

/* The batch is through: what it has computed stays. */
static void flight_settle(struct stage *s, const struct stage_flight *f)
{
    for (int i = 0; i < f->n_runs; i++) {
        struct kv_sequence *q = kv_cache_find(&s->kv, f->sequences[i]);
        if (q)
            kv_cache_settle(&s->kv, q, f->ends[i]);
    }
}

static int batch_submit(struct stage *s, const struct batch_run *runs, int n_runs,
                        const void *input, void *output, const struct stage_ways *ways,
                        struct forward_timing *timing, struct err *e)
{
    struct stage_flight *f = &s->flights[(s->oldest + s->n_flying) % STAGE_DEPTH];
    if (!s->forward)
        return err_set(e, HP_EINVAL, "this stage has no weights: it keeps keys and values alone");
    if (s->n_flying == STAGE_DEPTH)
        return err_set(e, HP_EBUSY, "%d batches are under way already", s->n_flying);
    struct forward_batch batch = {.runs = f->runs,
                                  .n_runs = n_runs,
                                  .input = input,
                                  .logit_rows = f->logit_rows,
                                  .scored_rows = f->scored_rows,
                                  .scoring = ways->scoring,
                                  .sampling = ways->sampling,
                                  .timing = timing,
                                  .failure = &f->scoring,
                                  .output = output,
                                  .kv = s->kv.groups};
    if (ways->from)
        batch.from = *ways->from;
    if (ways->to)
        batch.to = *ways->to;
    f->scoring = (struct err){0};
    int rc = take_batch(s, f, runs, n_runs, input, &batch, e);
    if (rc < 0) {
        flight_undo(s, f);
        return rc;
    }
    forward_submit(s->forward, &batch, f->done);
    for (int i = 0; i < n_runs; i++)
        kv_cache_find(&s->kv, f->sequences[i])->length += runs[i].n_tokens;
    s->n_flying++;
    return 0;
}

int stage_submit(struct stage *s, const struct batch_run *runs, int n_runs, const void *input,
                 void *output, struct err *e)
{
    return batch_submit(s, runs, n_runs, input, output, &(struct stage_ways){0}, NULL, e);
}

int stage_submit_with(struct stage *s, const struct batch_run *runs, int n_runs, const void *input,
                      void *output, const struct stage_ways *ways, struct err *e)
{
    return batch_submit(s, runs, n_runs, input, output, ways, NULL, e);
}

bool stage_pending(const struct stage *s, void (*over)(void *ctx), void *ctx)
{
    int newest = (s->oldest + s->n_flying + STAGE_DEPTH - 1) % STAGE_DEPTH;
    return s->n_flying > 0 &&
           s->config.device->backend->event_pending(s->flights[newest].done, over, ctx);
}

int stage_complete(struct stage *s, struct err *e)
{
    struct stage_flight *f = &s->flights[s->oldest];
    struct err failure = {0};
    if (s->n_flying == 0)
        return err_set(e, HP_EINVAL, "no batch is under way");
    int rc = s->config.device->backend->event_wait(f->done, &failure);
    if (f->scoring.code < 0)
        failure = f->scoring;
    else if (rc == 0 && section_run_failure(forward_section(s->forward), &failure) == 0)
        weights_glance(s, &failure);
    if (s->failure.code < 0)
        failure = s->failure;
    s->oldest = (s->oldest + 1) % STAGE_DEPTH;
    s->n_flying--;
    if (failure.code < 0)
        flight_undo(s, f);
    else
        flight_settle(s, f);
    s->failure = s->n_flying > 0 ? failure : (struct err){0};
    if (failure.code < 0 && e)
        *e = failure;
    return failure.code;
}

int stage_run(struct stage *s, const struct batch_run *runs, int n_runs, const void *input,
              void *output, struct err *e)
{
    int rc = stage_submit(s, runs, n_runs, input, output, e);
    return rc < 0 ? rc : stage_complete(s, e);
}

int stage_run_timed(struct stage *s, const struct batch_run *runs, int n_runs, const void *input,
                    void *output, struct forward_timing *timing, struct err *e)
{
    int rc = batch_submit(s, runs, n_runs, input, output, &(struct stage_ways){0}, timing, e);
    return rc < 0 ? rc : stage_complete(s, e);
}

/* ---- keys and values ---- */

struct kv_shape stage_kv_shape(const struct stage *s)
{
    return kv_groups_shape(&s->kv.kinds);
}

uint32_t stage_kv_awaited(const struct stage *s, uint64_t sequence)
{
    const struct kv_sequence *q = kv_cache_find(&s->kv, sequence);
    return q ? q->n_awaited : 0;
}

/* What is under way could fail, and take tokens back. */
static int idle_check(const struct stage *s, struct err *e)
{
    return s->n_flying ? err_set(e, HP_EBUSY, "%d batches are under way", s->n_flying) : 0;
}

static struct stream *mover_of(const struct stage *s)
{
    return s->forward ? forward_stream(s->forward) : s->mover;
}

int stage_kv_export(struct stage *s, uint64_t sequence, const struct kv_range *r, void *out,
                    struct err *e)
{
    int rc = idle_check(s, e);
    return rc < 0 ? rc : kv_transfer_export(&s->kv, mover_of(s), sequence, r, out, e);
}

int stage_kv_import(struct stage *s, uint64_t sequence, const struct kv_range *r, const void *data,
                    struct err *e)
{
    int rc = idle_check(s, e);
    return rc < 0 ? rc : kv_transfer_import(&s->kv, mover_of(s), sequence, r, data, e);
}
