#include "agent/engine/slot.h"

#include <assert.h>
#include <stdlib.h>

#include "agent/engine/stage_int.h"
#include "model/graph/kinds.h"

static const struct slot_table stage_table, graph_table;

/* ---- a stage ---- */

struct stage_slot {
    struct slot slot;
    struct stage *stage;
    uint32_t warm_tokens;               /* of a warm-up batch */
    uint64_t input_bytes, output_bytes; /* of such a batch */
};

static struct stage *stage_of(const struct slot *s)
{
    return ((const struct stage_slot *)s)->stage;
}

static void stage_slot_unload(struct slot **self)
{
    struct stage_slot *s = (struct stage_slot *)*self;
    *self = NULL;
    if (!s)
        return;
    stage_unload(&s->stage);
    free(s);
}

static void warm_plan(struct stage_slot *s, const struct stage_config *c, const struct graph *g)
{
    uint32_t n = c->max_batch_tokens < 16 ? c->max_batch_tokens : 16,
             known = stage_positions(s->stage);
    n = known < n ? known : n;
    s->warm_tokens = c->kv_tokens < n ? (uint32_t)c->kv_tokens : n;
    s->input_bytes = c->first_layer > 0
                         ? graph_border_bytes(g, c->first_layer - 1, c->border, s->warm_tokens)
                         : s->warm_tokens * sizeof(uint32_t);
    s->output_bytes = c->end_layer < g->n_layers
                          ? graph_border_bytes(g, c->end_layer - 1, c->border, s->warm_tokens)
                          : graph_head_width(g) * sizeof(float);
}

static int stage_slot_load(const struct slot_config *c, struct slot **out, struct err *e)
{
    const struct graph *g = c->graph ? c->graph : model_graph(c->stage.model);
    const struct model_config *m = model_config(c->stage.model);
    struct stage_slot *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "no memory for a stage");
    s->slot.table = &stage_table;
    int rc = stage_load_graph(g, m, &c->stage, &s->stage, e);
    struct slot *made = &s->slot;
    if (rc < 0) {
        stage_slot_unload(&made);
        return rc;
    }
    if (!c->stage.keeps)
        warm_plan(s, &c->stage, g);
    *out = made;
    return 0;
}

static int stage_slot_warm(struct slot *slot, struct err *e)
{
    struct stage_slot *s = (struct stage_slot *)slot;
    if (stage_only_keeps(s->stage))
        return 0;
    void *input = calloc(1, s->input_bytes), *output = calloc(1, s->output_bytes);
    struct batch_run run = {
        .sequence = 1, .n_tokens = s->warm_tokens, .n_logits = stage_is_last(s->stage)};
    int rc = !input || !output ? err_set(e, HP_ENOMEM, "no memory for a warm-up run")
                               : stage_sequence_open(s->stage, 1, s->warm_tokens, e);
    if (rc == 0) {
        rc = stage_run(s->stage, &run, 1, input, output, e);
        stage_sequence_close(s->stage, 1);
    }
    free(input);
    free(output);
    return rc;
}

static struct section_run *stage_slot_promise(struct slot *s)
{
    return stage_fill_promise(stage_of(s));
}

static uint64_t stage_slot_missing(const struct slot *s)
{
    return stage_missing_bytes(stage_of(s));
}

static int stage_slot_submit(struct slot *s, const struct slot_batch *b, struct err *e)
{
    const struct stage_ways ways = {b->scoring, b->sampling, b->from, b->to};
    return stage_submit_with(stage_of(s), b->runs, b->n_runs, b->input, b->output, &ways, e);
}

static bool stage_slot_pending(const struct slot *s, void (*over)(void *ctx), void *ctx)
{
    return stage_pending(stage_of(s), over, ctx);
}

static int stage_slot_complete(struct slot *s, struct err *e)
{
    return stage_complete(stage_of(s), e);
}

static int stage_state_open(struct slot *s, uint64_t sequence, uint32_t max_tokens,
                            uint32_t reserved, uint32_t length, uint64_t share, struct err *e)
{
    return stage_sequence_open_some(stage_of(s), sequence, max_tokens, reserved, length, share, e);
}

static int stage_state_await(struct slot *s, uint64_t sequence, uint32_t length, struct err *e)
{
    return stage_sequence_await(stage_of(s), sequence, length, e);
}

static int stage_state_reserve(struct slot *s, uint64_t sequence, uint32_t tokens, struct err *e)
{
    return stage_sequence_reserve(stage_of(s), sequence, tokens, e);
}

static void stage_state_close(struct slot *s, uint64_t sequence)
{
    stage_sequence_close(stage_of(s), sequence);
}

static void stage_state_keep(struct slot *s, uint64_t sequence, uint32_t length)
{
    stage_sequence_keep(stage_of(s), sequence, length);
}

static struct kv_shape stage_state_shape(const struct slot *s)
{
    return stage_kv_shape(stage_of(s));
}

static int stage_state_export(struct slot *s, uint64_t sequence, const struct kv_range *r,
                              void *out, struct err *e)
{
    return stage_kv_export(stage_of(s), sequence, r, out, e);
}

static int stage_state_import(struct slot *s, uint64_t sequence, const struct kv_range *r,
                              const void *data, struct err *e)
{
    return stage_kv_import(stage_of(s), sequence, r, data, e);
}

static uint32_t stage_state_awaited(const struct slot *s, uint64_t sequence)
{
    return stage_kv_awaited(stage_of(s), sequence);
}

static const struct slot_table stage_table = {.name = "stage",
                                              .load = stage_slot_load,
                                              .unload = stage_slot_unload,
                                              .fill_promise = stage_slot_promise,
                                              .missing_bytes = stage_slot_missing,
                                              .warm = stage_slot_warm,
                                              .submit = stage_slot_submit,
                                              .pending = stage_slot_pending,
                                              .complete = stage_slot_complete,
                                              .state_open = stage_state_open,
                                              .state_await = stage_state_await,
                                              .state_reserve = stage_state_reserve,
                                              .state_close = stage_state_close,
                                              .state_keep = stage_state_keep,
                                              .state_shape = stage_state_shape,
                                              .state_export = stage_state_export,
                                              .state_import = stage_state_import,
                                              .state_awaited = stage_state_awaited};

/* ---- a graph of fixed shape ---- */

struct graph_slot {
    struct slot slot;
    struct fixed *fixed;
};

static struct fixed *fixed_of(const struct slot *s)
{
    return ((const struct graph_slot *)s)->fixed;
}

static void graph_slot_unload(struct slot **self)
{
    struct graph_slot *s = (struct graph_slot *)*self;
    *self = NULL;
    if (!s)
        return;
    fixed_unload(&s->fixed);
    free(s);
}

static int graph_slot_load(const struct slot_config *c, struct slot **out, struct err *e)
{
    const struct stage_config *of = &c->stage;
    struct fixed_config f = {.section = {.graph = c->graph ? c->graph : model_graph(of->model),
                                         .first_layer = of->first_layer,
                                         .end_layer = of->end_layer,
                                         .device = of->device,
                                         .f32 = of->compute == COMPUTE_F32,
                                         .progress = of->progress,
                                         .progress_ctx = of->progress_ctx,
                                         .stop = of->stop},
                             .model = of->model,
                             .beside_bytes = of->beside_bytes};
    struct graph_slot *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "no memory for a graph");
    s->slot.table = &graph_table;
    int rc = fixed_load(&f, &s->fixed, e);
    struct slot *made = &s->slot;
    if (rc < 0)
        graph_slot_unload(&made);
    else
        *out = made;
    return rc;
}

static int graph_slot_warm(struct slot *s, struct err *e)
{
    return fixed_warm(fixed_of(s), e);
}

static int graph_slot_submit(struct slot *s, const struct slot_batch *b, struct err *e)
{
    return fixed_submit(fixed_of(s), b->inputs, b->n_inputs, b->outputs, b->n_outputs, e);
}

static bool graph_slot_pending(const struct slot *s, void (*over)(void *ctx), void *ctx)
{
    return fixed_pending(fixed_of(s), over, ctx);
}

static int graph_slot_complete(struct slot *s, struct err *e)
{
    return fixed_complete(fixed_of(s), e);
}

static int no_state(struct err *e)
{
    return err_set(e, HP_EUNSUPPORTED, "a graph of fixed shape keeps nothing of a sequence");
}

static int graph_state_open(struct slot *s, uint64_t sequence, uint32_t max_tokens,
                            uint32_t reserved, uint32_t length, uint64_t share, struct err *e)
{
    (void)s, (void)sequence, (void)max_tokens, (void)reserved, (void)length, (void)share;
    return no_state(e);
}

static int graph_state_await(struct slot *s, uint64_t sequence, uint32_t length, struct err *e)
{
    (void)s, (void)sequence, (void)length;
    return no_state(e);
}

static int graph_state_reserve(struct slot *s, uint64_t sequence, uint32_t tokens, struct err *e)
{
    (void)s, (void)sequence, (void)tokens;
    return no_state(e);
}

static void graph_state_close(struct slot *s, uint64_t sequence)
{
    (void)s, (void)sequence;
}

static void graph_state_keep(struct slot *s, uint64_t sequence, uint32_t length)
{
    (void)s, (void)sequence, (void)length;
}

static struct kv_shape graph_state_shape(const struct slot *s)
{
    (void)s;
    return (struct kv_shape){0};
}

static int graph_state_export(struct slot *s, uint64_t sequence, const struct kv_range *r,
                              void *out, struct err *e)
{
    (void)s, (void)sequence, (void)r, (void)out;
    return no_state(e);
}

static int graph_state_import(struct slot *s, uint64_t sequence, const struct kv_range *r,
                              const void *data, struct err *e)
{
    (void)s, (void)sequence, (void)r, (void)data;
    return no_state(e);
}

static uint32_t graph_state_awaited(const struct slot *s, uint64_t sequence)
{
    (void)s, (void)sequence;
    return 0;
}

static const struct slot_table graph_table = {.name = "graph",
                                              .load = graph_slot_load,
                                              .unload = graph_slot_unload,
                                              .warm = graph_slot_warm,
                                              .submit = graph_slot_submit,
                                              .pending = graph_slot_pending,
                                              .complete = graph_slot_complete,
                                              .state_open = graph_state_open,
                                              .state_await = graph_state_await,
                                              .state_reserve = graph_state_reserve,
                                              .state_close = graph_state_close,
                                              .state_keep = graph_state_keep,
                                              .state_shape = graph_state_shape,
                                              .state_export = graph_state_export,
                                              .state_import = graph_state_import,
                                              .state_awaited = graph_state_awaited};

const struct slot_table *slot_table_of(enum slot_kind kind)
{
    assert((unsigned)kind < SLOT_KINDS);
    return kind == SLOT_STAGE ? &stage_table : &graph_table;
}
