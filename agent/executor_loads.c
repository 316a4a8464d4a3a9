/* What comes into the slots of the executor's device: each is loaded by a thread of its own, one
 * after the other, and handed over whole. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/borders.h"
#include "agent/executor_int.h"
#include "common/env.h"
#include "common/log.h"
#include "common/vector.h"

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

/* On the executor's thread: the first batch that counts does not pay for pages and code that were
 * never touched. */
static int warm_up(struct executor *x, const struct held_slot *h, const struct executor_load *l,
                   struct err *e)
{
    executor_tell(x, &(struct executor_report){.kind = EXECUTOR_LOADED,
                                               .slot = l->slot,
                                               .ticket = l->ticket,
                                               .status = HP_PENDING,
                                               .warming = true});
    return h->held->table->warm(h->held, e);
}

/* Whether a stage's weights come while it serves. */
static bool load_is_early(const struct executor *x, const struct executor_load *l)
{
    return x->config.serves_early && !x->config.paced && !l->keeps && l->kind == SLOT_STAGE;
}

static int paced_kind_check(const struct executor *x, const struct executor_load *l, struct err *e)
{
    const struct paced *p = x->config.paced;
    if (l->kind != SLOT_STAGE)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s is known by the profile of a sequence model; a graph of fixed shape has "
                       "no times there",
                       paced_as(p));
    if (paced_is_fixed(p))
        return err_set(e, HP_EUNSUPPORTED,
                       "%s is known by the profile of a network of fixed shape, which has no times "
                       "for sequences",
                       paced_as(p));
    return 0;
}

/* The profile's layers in the parts that the model's are. */
static int paced_parts_make(const struct executor *x, const struct graph *g, struct held_slot *h,
                            struct err *e)
{
    struct profile_part *parts = calloc((size_t)g->n_layers, sizeof *parts);
    if (!parts)
        return err_set(e, HP_ENOMEM, "no memory for %d layers", g->n_layers);
    graph_parts_list(g, parts);
    int rc = paced_divide(x->config.paced, parts, g->n_layers, &h->paced_layers, e);
    if (h->end_layer > 0 && h->end_layer <= g->n_layers)
        h->hop = parts[h->end_layer - 1];
    free(parts);
    return rc;
}

/* A stage must fit the device that this one stands for, by that model's bytes. */
static int paced_room_check(const struct executor *x, const struct executor_load *l,
                            struct held_slot *h, struct err *e)
{
    const struct paced *p = x->config.paced;
    h->hop = (struct profile_part){.layer = l->end_layer - 1, .share = 1, .crosses = 1};
    int rc = l->expert_groups > 1 ? paced_parts_make(x, h->graph, h, e) : 0;
    if (rc < 0)
        return err_at(e, "%s stands for a device by the profile of another model", paced_as(p));
    const struct profile *layers = executor_paced_layers(h);
    if (l->end_layer > (layers ? layers->n_layers : paced_layers(p)))
        return err_set(e, HP_EINVAL,
                       "the model has a layer %d, the profile of %s ends at %d: a model stands in "
                       "for one with as many layers",
                       l->end_layer - 1, paced_as(p), paced_layers(p) - 1);
    double left = (double)atomic_load(&x->memory_free);
    h->paced_bytes = paced_stage_bytes(p, layers, l->first_layer, l->end_layer,
                                       (double)l->kv_tokens, l->stands_for);
    if (l->keeps)
        h->paced_bytes -=
            paced_stage_bytes(p, layers, l->first_layer, l->end_layer, 0, l->stands_for);
    if (h->paced_bytes > left)
        return err_set(
            e, HP_ENOMEM,
            "layers %d to %d need %.0f bytes and %s has %.0f free: %.0f bytes are missing",
            l->first_layer, l->end_layer - 1, h->paced_bytes, paced_as(p), left,
            h->paced_bytes - left);
    return 0;
}

/* A paced link keeps frames for as long as the one that it stands for, so that all flights of the
 * first stage (agent/engine/queue.h) may be out, and one more is computed. */
static void outputs_plan(const struct executor *x, const struct executor_load *l,
                         struct held_slot *h)
{
    const struct stage_shape s = {.last = h->last,
                                  .max_batch_tokens = l->max_batch_tokens,
                                  .max_sequences = l->max_sequences,
                                  .row = h->row_out,
                                  .vocabulary = h->vocabulary,
                                  .wire = h->wire};
    uint64_t bytes = stage_output_bytes(&s);
    h->sampled_bytes = stage_sampled_bytes(&s);
    if (!bytes)
        return;
    h->outputs = x->config.paced ? 2 * l->n_stages + 2 : DATA_STAGE_OUTPUTS;
    h->reserve_bytes = h->outputs * bytes;
}

static int outputs_open(struct executor *x, struct held_slot *h, struct err *e)
{
    int rc = h->outputs ? data_reserve_open(x->config.data, h->outputs,
                                            h->reserve_bytes / h->outputs, &h->reserve, e)
                        : 0;
    if (rc < 0)
        return rc;
    h->counted_bytes = h->reserve_bytes + h->sampled_bytes + h->receiving_bytes;
    atomic_fetch_add(&x->outputs_bytes, h->counted_bytes);
    return 0;
}

/* Does what the coordinator says of the borders hold of this model? */
static int border_check(const struct executor_load *l, const struct graph *g, struct err *e)
{
    int rc = l->first_layer > 0 ? border_fits(&l->enters, g, l->first_layer - 1, e) : 0;
    return rc < 0 || l->end_layer >= g->n_layers ? rc
                                                 : border_fits(&l->crosses, g, l->end_layer - 1, e);
}

static struct frame_row border_row(const struct graph *g, int layer)
{
    return (struct frame_row){graph_border_width(g, layer), graph_border_exact(g, layer)};
}

/* What the executor knows of a stage before it is loaded. */
static int stage_plan(const struct executor *x, const struct executor_load *l, struct held_slot *h,
                      struct err *e)
{
    const struct graph *g = h->graph;
    int rc = section_layers_check(g, l->first_layer, l->end_layer, e);
    rc = rc < 0 ? rc : border_check(l, g, e);
    if (rc < 0)
        return rc;
    h->first = l->first_layer == 0;
    h->last = l->end_layer == g->n_layers;
    h->row_in = h->first ? (struct frame_row){0} : border_row(g, l->first_layer - 1);
    h->row_out = h->last ? (struct frame_row){0} : border_row(g, l->end_layer - 1);
    h->vocabulary = (uint32_t)model_config(h->model)->vocabulary;
    h->row_width = (uint32_t)graph_head_width(g);
    h->wire = l->wire;
    if (!l->keeps)
        outputs_plan(x, l, h);
    return 0;
}

enum dtype executor_wire_dtype(enum frame_dtype wire)
{
    return wire == FRAME_F16    ? DTYPE_F16
           : wire == FRAME_BF16 ? DTYPE_BF16
           : wire == FRAME_Q8   ? DTYPE_Q8_WIRE
                                : DTYPE_F32;
}

static struct slot_config slot_config_of(const struct executor *x, struct load_job *j)
{
    const struct executor_load *l = &j->order;
    return (struct slot_config){.graph = l->graph,
                                .stage = {.model = j->slot->model,
                                          .first_layer = l->first_layer,
                                          .end_layer = l->end_layer,
                                          .device = x->device,
                                          .compute = l->f32 ? COMPUTE_F32 : COMPUTE_AUTO,
                                          .keeps = l->keeps,
                                          .kv_given = l->kv_given,
                                          .kv = l->kv,
                                          .kv_tokens = l->kv_tokens,
                                          .max_sequences = l->max_sequences,
                                          .max_batch_tokens = l->max_batch_tokens,
                                          .border = executor_wire_dtype(l->wire),
                                          .beside_bytes = x->config.paced
                                                              ? 0
                                                              : j->slot->reserve_bytes +
                                                                    j->slot->sampled_bytes +
                                                                    j->slot->receiving_bytes +
                                                                    atomic_load(&x->outputs_bytes) +
                                                                    atomic_load(&x->logits_bytes),
                                          .progress = load_progress,
                                          .progress_ctx = j,
                                          .stop = load_is_early(x, l) ? &x->fill_stop : &j->stop,
                                          .later = load_is_early(x, l)}};
}

/* On the loader's thread: all but the warm-up. */
static int slot_open(struct load_job *j, struct err *e)
{
    struct executor *x = j->x;
    const struct executor_load *l = &j->order;
    struct held_slot *h = j->slot;
    int rc = x->config.paced ? paced_kind_check(x, l, e) : 0;
    if (rc == 0 && !l->path && (l->kind == SLOT_STAGE || !l->graph))
        rc = err_set(e, HP_EINVAL, "there is no file to load from");
    if (rc == 0 && l->path)
        rc = model_open_divided(l->path, l->expert_groups, &h->model, e);
    if (rc < 0)
        return rc;
    h->graph = l->graph ? l->graph : model_graph(h->model);
    if (x->config.paced && (rc = paced_room_check(x, l, h, e)) < 0)
        return rc;
    rc = l->kind == SLOT_STAGE ? stage_plan(x, l, h, e) : 0;
    if (rc == 0 && h->last && h->row_width == h->vocabulary) /* ready when the weights are */
        h->grammars = grammar_shelf_create(model_path(h->model), h->vocabulary, executor_look, x);
    struct slot_config c = slot_config_of(x, j);
    rc = rc < 0 ? rc : slot_table_of(l->kind)->load(&c, &h->held, e);
    rc = rc < 0 ? rc : outputs_open(x, h, e);
    if (rc == 0 && l->kind == SLOT_STAGE)
        executor_direct_open(x, h, l);
    return rc;
}

static void fill_begin(struct executor *x, uint64_t slot)
{
    pthread_mutex_lock(&x->fill_lock);
    x->fill_slot = slot;
    atomic_store(&x->fill_stop, atomic_load(&x->quitting));
    pthread_mutex_unlock(&x->fill_lock);
}

void executor_fill_stop(struct executor *x, uint64_t slot)
{
    pthread_mutex_lock(&x->fill_lock);
    if (x->fill_slot == slot || atomic_load(&x->quitting))
        atomic_store(&x->fill_stop, true);
    pthread_mutex_unlock(&x->fill_lock);
}

/* Weights of a stage that the executor has already, or will have; it may end meanwhile. */
struct load_fill {
    struct executor *x;
    struct section_run *of; /* NULL: nothing is to come */
    uint64_t slot, begun_ns, told_ns;
};

static void fill_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
    struct load_fill *f = ctx;
    uint64_t now = env_now_ns(&env_real);
    if (done_bytes < total_bytes && now - f->told_ns < 200000000)
        return;
    f->told_ns = now;
    executor_tell(f->x, &(struct executor_report){.kind = EXECUTOR_FILLING,
                                                  .slot = f->slot,
                                                  .done_bytes = done_bytes,
                                                  .total_bytes = total_bytes});
}

/* Before the executor has the stage: whoever hears that it is loaded knows what is missing. */
static struct load_fill fill_promise(struct load_job *j)
{
    struct load_fill f = {.x = j->x, .slot = j->order.slot, .begun_ns = j->begun_ns};
    struct slot *held = j->slot->held;
    if (j->status < 0 || !load_is_early(j->x, &j->order))
        return f;
    f.of = held->table->fill_promise(held);
    fill_progress(&f, 0, held->table->missing_bytes(held));
    return f;
}

static void fill_do(struct load_fill *f)
{
    struct err e = {0};
    int rc = section_run_fill(f->of, fill_progress, f, &e);
    double seconds = (double)(env_now_ns(&env_real) - f->begun_ns) * 1e-9;
    if (rc == 0)
        log_info("agent", "stage_filled", "seconds=%.2f", seconds);
    if (rc == 0 || rc == HP_ECANCELED)
        return;
    log_warn("agent", "stage_fill_failed", "why=%s", e.text);
    executor_tell(f->x, &(struct executor_report){
                            .kind = EXECUTOR_FILLING, .slot = f->slot, .status = rc, .error = &e});
}

void *executor_loader_thread(void *ctx)
{
    struct executor *x = ctx;
    struct load_job *j;
    pthread_setname_np(pthread_self(), "hp-loader");
    x->device->backend->loader_enter(x->device);
    while (event_queue_wait(&x->loader_box, &j, -1) && j) {
        j->begun_ns = env_now_ns(&env_real);
        if (load_is_early(x, &j->order))
            fill_begin(x, j->order.slot);
        j->status = slot_open(j, &j->error);
        struct load_fill owed = fill_promise(j);
        struct order adopt = {.kind = ORDER_ADOPT, .u.job = j};
        bool put = event_queue_put_as(&x->orders, ORDER_ADOPT,
                                      &adopt); /* one load at a time: there is a place */
        assert(put);
        (void)put;
        if (owed.of)
            fill_do(&owed);
    }
    return NULL;
}

struct load_job *executor_job_make(struct executor *x, const struct executor_load *l)
{
    struct load_job *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->x = x;
    j->order = *l;
    j->order.path = l->path ? strdup(l->path) : NULL;
    j->slot = calloc(1, sizeof *j->slot);
    int copied = border_copy(&l->enters, &j->order.enters);
    copied |= border_copy(&l->crosses, &j->order.crosses);
    if (copied < 0 || !j->slot || (l->path && !j->order.path)) {
        executor_job_free(j);
        return NULL;
    }
    *j->slot = (struct held_slot){.slot = l->slot,
                                  .kind = l->kind,
                                  .first_layer = l->first_layer,
                                  .end_layer = l->end_layer,
                                  .stands_for = l->stands_for,
                                  .receiving_bytes = x->config.paced ? 0 : l->receiving_bytes};
    return j;
}

void executor_job_free(struct load_job *j)
{
    executor_slot_free(j->x, j->slot);
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

static int slot_adopt(struct executor *x, struct load_job *j, struct err *e)
{
    struct held_slot **grown = realloc(x->slots, (x->n_slots + 1) * sizeof *grown);
    if (!grown)
        return err_set(e, HP_ENOMEM, "no memory for a stage");
    x->slots = grown;
    int rc = load_is_early(x, &j->order) ? 0 : warm_up(x, j->slot, &j->order, e);
    if (rc < 0)
        return rc;
    x->slots[x->n_slots++] = j->slot;
    j->slot = NULL;
    return 0;
}

void executor_job_adopt(struct executor *x, struct load_job *j)
{
    const struct held_slot made = *j->slot;
    struct err *e = &j->error;
    bool wanted = !atomic_load(&j->stop);
    x->jobs = j->next;
    int rc = j->status == 0 && wanted ? slot_adopt(x, j, e) : j->status;
    double seconds = (double)(env_now_ns(&env_real) - j->begun_ns) * 1e-9;
    executor_memory_note(x);
    if (rc == 0 && wanted)
        log_info("agent", "stage_loaded", "layers=%d-%d seconds=%.2f", made.first_layer,
                 made.end_layer - 1, seconds);
    if (wanted)
        executor_tell(
            x, &(struct executor_report){.kind = EXECUTOR_LOADED,
                                         .slot = j->order.slot,
                                         .ticket = j->order.ticket,
                                         .status = rc,
                                         .error = e,
                                         .seconds = seconds,
                                         .kv = rc < 0 ? (struct kv_shape){0}
                                                      : made.held->table->state_shape(made.held),
                                         .row_in = made.row_in,
                                         .row_out = made.row_out,
                                         .vocabulary = made.vocabulary,
                                         .row_width = made.row_width,
                                         .outputs = made.outputs,
                                         .hop = made.hop});
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

void executor_slot_unload(struct executor *x, uint64_t slot)
{
    load_cancel(x, slot);
    executor_slot_drop(x, slot);
}
