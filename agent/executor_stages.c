/* The stages that the executor's device holds: each is loaded by a thread of its own, one after the
 * other, and handed over whole. */
#include <assert.h>
#include <stdlib.h>

#include "agent/borders.h"
#include "agent/executor_int.h"
#include "common/env.h"
#include "common/log.h"

void executor_tell(struct executor *x, const struct executor_report *r)
{
    x->config.report(x->config.ctx, r);
}

uint64_t executor_memory_free(const struct executor *x)
{
    return atomic_load(&((struct executor *)x)->memory_free);
}

void executor_memory_note(struct executor *x)
{
    if (!x->config.paced) {
        uint64_t free_bytes = x->device->backend->memory_free(x->device),
                 held = atomic_load(&x->outputs_bytes) + atomic_load(&x->logits_bytes);
        atomic_store(&x->memory_free, free_bytes == UINT64_MAX ? free_bytes
                                      : free_bytes > held      ? free_bytes - held
                                                               : 0);
        return;
    }
    double left = paced_memory_bytes(x->config.paced);
    for (size_t i = 0; i < x->n_stages; i++)
        left -= x->stages[i].paced_bytes;
    atomic_store(&x->memory_free, left > 0 ? (unsigned long long)left : 0);
}

/* ---- stages ---- */

struct held_stage *executor_stage_find(struct executor *x, uint64_t slot)
{
    for (size_t i = 0; i < x->n_stages; i++)
        if (x->stages[i].slot == slot)
            return &x->stages[i];
    return NULL;
}

void executor_stage_free(struct executor *x, struct held_stage *h)
{
    for (size_t i = 0; i < h->n_samplers; i++)
        sampler_destroy(&h->samplers[i].sampler);
    free(h->samplers);
    stage_unload(&h->stage);
    if (h->wide_in || h->wide_out)
        atomic_fetch_sub(&x->outputs_bytes, h->wide_bytes);
    free(h->wide_in);
    free(h->wide_out);
    if (h->reserve) {
        data_reserve_close(&h->reserve);
        atomic_fetch_sub(&x->outputs_bytes, h->reserve_bytes);
    }
    if (h->model)
        model_close(&h->model);
}

static void load_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
    struct load_job *j = ctx;
    uint64_t now = env_now_ns(&env_real);
    if (now - j->told_ns < 200000000)
        return;
    j->told_ns = now;
    executor_tell(j->x, &(struct executor_report){.kind = EXECUTOR_LOADED,
                                                  .slot = j->order.slot,
                                                  .ticket = j->order.ticket,
                                                  .status = HP_PENDING,
                                                  .done_bytes = done_bytes,
                                                  .total_bytes = total_bytes});
}

/* A few tokens through the stage, so that the first prompt does not pay for pages and code that
 * were never touched. */
static int warm_up(struct executor *x, struct held_stage *h, const struct executor_load *l,
                   struct err *e)
{
    uint32_t n = l->max_batch_tokens < 16 ? l->max_batch_tokens : 16;
    n = l->kv_tokens < n ? (uint32_t)l->kv_tokens : n;
    executor_tell(x, &(struct executor_report){.kind = EXECUTOR_LOADED,
                                               .slot = l->slot,
                                               .ticket = l->ticket,
                                               .status = HP_PENDING,
                                               .warming = true});
    bool first = stage_is_first(h->stage), last = stage_is_last(h->stage);
    void *input = calloc((size_t)n * (first ? 1 : h->width), sizeof(float));
    float *output = calloc(last ? h->vocabulary : (size_t)n * h->width, sizeof(float));
    struct batch_run run = {1, 0, n, last, 0, false};
    int rc = !input || !output ? err_set(e, HP_ENOMEM, "no memory for a warm-up run")
                               : stage_sequence_open(h->stage, 1, n, e);
    if (rc == 0) {
        rc = stage_run(h->stage, &run, 1, input, output, e);
        stage_sequence_close(h->stage, 1);
    }
    free(input);
    free(output);
    return rc;
}

/* A stage must fit the device that this one stands for, by that model's bytes. */
static int paced_check(const struct executor *x, const struct executor_load *l,
                       struct held_stage *h, struct err *e)
{
    const struct paced *p = x->config.paced;
    if (l->end_layer > paced_layers(p))
        return err_set(e, HP_EINVAL,
                       "the model has a layer %d, the profile of %s ends at %d: a model stands in "
                       "for one with as many layers",
                       l->end_layer - 1, paced_as(p), paced_layers(p) - 1);
    double left = (double)atomic_load(&x->memory_free);
    h->paced_bytes =
        paced_stage_bytes(p, l->first_layer, l->end_layer, (double)l->kv_tokens, l->stands_for);
    if (h->paced_bytes > left)
        return err_set(
            e, HP_ENOMEM,
            "layers %d to %d need %.0f bytes and %s has %.0f free: %.0f bytes are missing",
            l->first_layer, l->end_layer - 1, h->paced_bytes, paced_as(p), left,
            h->paced_bytes - left);
    return 0;
}

/* A paced link keeps frames for as long as the one that it stands
 * for, so that all flights may be out. */
static void outputs_plan(const struct executor *x, const struct executor_load *l,
                         struct held_stage *h)
{
    uint64_t runs = l->max_sequences < l->max_batch_tokens ? l->max_sequences : l->max_batch_tokens;
    uint64_t bytes = runs * FRAME_RUN_BYTES +
                     (uint64_t)l->max_batch_tokens * h->width * frame_dtype_bytes(h->wire);
    bool last = l->end_layer == model_graph(h->model)->n_layers;
    uint64_t rows = (uint64_t)l->max_batch_tokens * h->width * sizeof(float);
    h->wide_bytes =
        h->wire == FRAME_F32 ? 0 : rows * ((l->first_layer > 0 ? 1u : 0u) + (last ? 0u : 1u));
    if (last || bytes <= DATA_CONTROL_BYTES)
        return;
    h->outputs = x->config.paced ? 2 * l->n_stages + 1 : DATA_STAGE_OUTPUTS;
    h->reserve_bytes = h->outputs * bytes;
}

static int outputs_open(struct executor *x, struct held_stage *h, struct err *e)
{
    int rc = h->outputs ? data_reserve_open(x->config.data, h->outputs,
                                            h->reserve_bytes / h->outputs, &h->reserve, e)
                        : 0;
    if (h->reserve)
        atomic_fetch_add(&x->outputs_bytes, h->reserve_bytes);
    return rc;
}

/* Room for a batch's rows as float32, where they cross as less. */
static int wide_open(struct executor *x, struct held_stage *h, struct err *e)
{
    bool comes = !stage_is_first(h->stage), goes = !stage_is_last(h->stage);
    size_t each = comes && goes ? h->wide_bytes / 2 : h->wide_bytes;
    if (!h->wide_bytes)
        return 0;
    h->wide_in = comes ? malloc(each) : NULL;
    h->wide_out = goes ? malloc(each) : NULL;
    if ((!comes || h->wide_in) && (!goes || h->wide_out)) {
        atomic_fetch_add(&x->outputs_bytes, h->wide_bytes);
        return 0;
    }
    free(h->wide_in);
    free(h->wide_out);
    h->wide_in = h->wide_out = NULL;
    return err_set(e, HP_ENOMEM, "no memory for the %zu bytes of a batch's rows in float32", each);
}

/* Does what the coordinator says of the borders hold of this model? */
static int border_check(const struct executor_load *l, const struct model *m, struct err *e)
{
    const struct graph *g = model_graph(m);
    int rc = l->first_layer > 0 ? border_fits(&l->enters, g, l->first_layer - 1, e) : 0;
    return rc < 0 || l->end_layer >= g->n_layers ? rc
                                                 : border_fits(&l->crosses, g, l->end_layer - 1, e);
}

/* On the loader's thread: all but the warm-up. */
static int stage_open(struct load_job *j, struct err *e)
{
    struct executor *x = j->x;
    const struct executor_load *l = &j->order;
    struct held_stage *h = &j->stage;
    int rc = x->config.paced ? paced_check(x, l, h, e) : 0;
    rc = rc < 0 ? rc : model_open(l->path, &h->model, e);
    if (rc < 0)
        return rc;
    const struct model_config *m = model_config(h->model);
    h->width = (uint32_t)m->width;
    h->vocabulary = (uint32_t)m->vocabulary;
    h->wire = l->wire;
    rc = border_check(l, h->model, e);
    if (rc < 0)
        return rc;
    outputs_plan(x, l, h);
    struct stage_config c = {.model = h->model,
                             .first_layer = l->first_layer,
                             .end_layer = l->end_layer,
                             .device = x->device,
                             .compute = l->f32 ? COMPUTE_F32 : COMPUTE_AUTO,
                             .kv_tokens = l->kv_tokens,
                             .max_sequences = l->max_sequences,
                             .max_batch_tokens = l->max_batch_tokens,
                             .beside_bytes = x->config.paced ? 0
                                                             : h->reserve_bytes + h->wide_bytes +
                                                                   atomic_load(&x->outputs_bytes) +
                                                                   atomic_load(&x->logits_bytes),
                             .progress = load_progress,
                             .progress_ctx = j,
                             .stop = &j->stop};
    rc = stage_load(&c, &h->stage, e);
    rc = rc < 0 ? rc : wide_open(x, h, e);
    return rc < 0 ? rc : outputs_open(x, h, e);
}

void *executor_loader_thread(void *ctx)
{
    struct executor *x = ctx;
    struct load_job *j;
    pthread_setname_np(pthread_self(), "hp-loader");
    x->device->backend->loader_enter(x->device);
    while (event_queue_wait(&x->loader_box, &j, -1) && j) {
        j->begun_ns = env_now_ns(&env_real);
        j->status = stage_open(j, &j->error);
        struct order adopt = {.kind = ORDER_ADOPT, .u.job = j};
        bool put = event_queue_put_as(&x->orders, ORDER_ADOPT,
                                      &adopt); /* one load at a time: there is a place */
        assert(put);
        (void)put;
    }
    return NULL;
}

void executor_job_free(struct load_job *j)
{
    executor_stage_free(j->x, &j->stage);
    border_free(&j->order.enters);
    border_free(&j->order.crosses);
    free((char *)j->order.path);
    free(j);
}

static void loader_feed(struct executor *x)
{
    if (x->jobs)
        event_queue_put(&x->loader_box, &x->jobs);
}

void executor_job_add(struct executor *x, struct load_job *j)
{
    struct load_job **end = &x->jobs;
    while (*end)
        end = &(*end)->next;
    *end = j;
    if (x->jobs == j)
        loader_feed(x);
}

static int stage_adopt(struct executor *x, struct load_job *j, struct err *e)
{
    struct held_stage *grown = realloc(x->stages, (x->n_stages + 1) * sizeof *grown);
    if (!grown)
        return err_set(e, HP_ENOMEM, "no memory for a stage");
    x->stages = grown;
    int rc = warm_up(x, &j->stage, &j->order, e);
    if (rc < 0)
        return rc;
    x->stages[x->n_stages++] = j->stage;
    j->stage = (struct held_stage){0};
    return 0;
}

void executor_job_adopt(struct executor *x, struct load_job *j)
{
    struct held_stage made = j->stage;
    struct err *e = &j->error;
    bool wanted = !atomic_load(&j->stop);
    x->jobs = j->next;
    int rc = j->status == 0 && wanted ? stage_adopt(x, j, e) : j->status;
    double seconds = (double)(env_now_ns(&env_real) - j->begun_ns) * 1e-9;
    executor_memory_note(x);
    if (rc == 0 && wanted)
        log_info("agent", "stage_loaded", "layers=%d-%d seconds=%.2f", made.first_layer,
                 made.end_layer - 1, seconds);
    if (wanted)
        executor_tell(x, &(struct executor_report){.kind = EXECUTOR_LOADED,
                                                   .slot = j->order.slot,
                                                   .ticket = j->order.ticket,
                                                   .status = rc,
                                                   .error = e,
                                                   .seconds = seconds,
                                                   .width = made.width,
                                                   .vocabulary = made.vocabulary,
                                                   .outputs = made.outputs});
    executor_job_free(j);
    executor_memory_note(x);
    loader_feed(x);
}

/* A load that goes on is told to stop; one that waits is forgotten. */
static void load_cancel(struct executor *x, uint64_t slot)
{
    for (struct load_job **at = &x->jobs; *at;) {
        struct load_job *j = *at;
        bool meant = j->order.slot == slot;
        if (meant)
            atomic_store(&j->stop, true);
        if (!meant || j == x->jobs) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        executor_job_free(j);
    }
}

void executor_stage_unload(struct executor *x, uint64_t slot)
{
    struct held_stage *h = executor_stage_find(x, slot);
    load_cancel(x, slot);
    if (!h)
        return;
    executor_stage_free(x, h);
    *h = x->stages[--x->n_stages];
    executor_memory_note(x);
}
