/* An agent of the simulated cluster: its core, and what the shell and the executor would do. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/manifest.h"
#include "tests/sim/cluster_int.h"

static const uint64_t us = 1000, msec = 1000000;

static void agent_event(struct sim *s, struct sim_agent *a, const struct agent_event *ev);

static struct sim_buffer *buffer_create(struct sim_agent *a, uint32_t n)
{
    struct sim_buffer *b = calloc(1, sizeof *b + n * sizeof b->x[0]);
    assert(b);
    b->n_tokens = n;
    a->buffers++;
    return b;
}

static void buffer_release(struct sim_agent *a, void *buffer)
{
    a->buffers -= buffer != NULL;
    free(buffer);
}

/* ---- life ---- */

static void node_write(char *out, size_t size, int devices)
{
    size_t n = (size_t)snprintf(out, size, "{\"name\": \"n\", \"devices\": [");
    for (int i = 0; i < devices; i++)
        n += (size_t)snprintf(
            out + n, size - n,
            "%s{\"name\": \"cpu%.*d\", \"kind\": \"toy\", \"memory_bytes\": 1000000000}",
            i ? ", " : "", devices > 1, i);
    snprintf(
        out + n, size - n,
        "], \"device_link\": {\"bandwidth_bytes_per_s\": 4e9, \"latency_s\": 2e-5}, "
        "\"nics\": [{\"name\": \"lo\", \"bandwidth_bytes_per_s\": 1e9, \"latency_s\": 1e-4}]}");
}

void sim_agent_create(struct sim *s, int index)
{
    struct sim_agent *a = calloc(1, sizeof *a);
    assert(a);
    a->index = index;
    snprintf(a->name, sizeof a->name, "a%d", index);
    snprintf(a->key, sizeof a->key, "agent-%d-key-of-forty-characters-0123456789", index);
    snprintf(a->machine, sizeof a->machine, "box%d", index / 2);
    node_write(a->node, sizeof a->node, s->n_devices);
    s->agents[index] = a;
}

static void stage_remove(struct sim_agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_stages; i++)
        if (a->stages[i].slot == slot) {
            free(a->stages[i].sequences);
            a->stages[i] = a->stages[--a->n_stages];
            return;
        }
}

static void release_for_core(void *ctx, void *buffer)
{
    buffer_release(ctx, buffer);
}

static void orders_drop(struct sim_agent *a, struct sim_executor *x)
{
    for (size_t i = 0; i < x->n_orders; i++) {
        struct agent_action *run = (struct agent_action *)(uintptr_t)x->orders[i].run;
        if (run)
            buffer_release(a, run->u.run.batch->input);
        free(run);
    }
    x->n_orders = 0;
    x->busy = false;
}

static void process_end(struct sim_agent *a)
{
    agent_core_destroy(&a->core, release_for_core, a);
    for (int d = 0; d < SIM_DEVICES; d++)
        orders_drop(a, &a->executors[d]);
    a->n_slots = 0;
    while (a->n_stages)
        stage_remove(a, a->stages[0].slot);
    for (size_t i = 0; i < a->n_deferred; i++)
        sim_event_free(a->deferred[i]);
    for (size_t i = 0; i < a->n_unsent; i++)
        sim_event_free(a->unsent[i]);
    a->n_deferred = a->n_unsent = 0;
    a->buffers = 0;
    memset(a->fetch, 0, sizeof a->fetch);
    a->alive = a->stopped = a->hung = false;
    a->peer = 0;
}

void sim_agent_destroy(struct sim *s, struct sim_agent *a)
{
    if (a->alive)
        process_end(a);
    agent_actions_free(&a->actions);
    free(a->stages);
    free(a->slots);
    for (int d = 0; d < SIM_DEVICES; d++)
        free(a->executors[d].orders);
    free(a->deferred);
    free(a->unsent);
    s->agents[a->index] = NULL;
    free(a);
}

bool sim_agent_alive(const struct sim *s, int agent)
{
    return s->agents[agent]->alive;
}

static void store_tell(struct sim *s, struct sim_agent *a, uint64_t id)
{
    struct buffer manifest = {0};
    toy_manifest("toy", &manifest);
    struct digest digest = manifest_id(manifest.data, manifest.size);
    buffer_free(&manifest);
    struct message_model model = {{digest.bytes, sizeof digest.bytes}, 0, "toy"};
    for (int i = 0; i < TOY_LAYERS; i++)
        model.bytes += a->has_layer[i] ? 100 : 0;
    struct agent_event ev = {.kind = AGENT_EVENT_STORE};
    ev.u.store.id = id;
    ev.u.store.models = (struct pack_list){&model, model.bytes > 0};
    agent_event(s, a, &ev);
}

void sim_agent_start(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    if (a->alive)
        return;
    a->alive = true;
    a->incarnation++;
    snprintf(a->address, sizeof a->address, "%d#%llu", a->index,
             (unsigned long long)a->incarnation);
    a->config = (struct agent_core_config){
        .name = a->name,
        .secret = s->token,
        .program = "sim",
        .machine = a->machine,
        .hostname = a->machine,
        .node_json = a->node,
        .n_devices = (unsigned)s->n_devices,
        .runs_ahead = 2,
        .data_address = {(const uint8_t *)a->address, strlen(a->address)}};
    struct err e = {0};
    int rc = agent_core_create(&s->env, &a->config, &a->core, &e);
    assert(rc == 0);
    store_tell(s, a, 0);
    struct agent_event start = {.kind = AGENT_EVENT_START};
    agent_event(s, a, &start);
    sim_event_add(s, EVENT_CONNECT, sim_delay_ns(s, msec, 100 * msec))->agent = agent;
}

/* Everybody who has a link to it hears that it broke. */
static void links_break(struct sim *s, const struct sim_agent *dead)
{
    for (int i = 0; i < s->n_agents; i++) {
        struct sim_agent *a = s->agents[i];
        for (size_t k = 0; a->alive && a != dead && k < a->n_slots; k++)
            for (int link = 0; link < 2; link++) {
                if (strcmp(link ? a->slots[k].first : a->slots[k].next, dead->address) != 0)
                    continue;
                struct sim_event *ev = sim_event_add(s, EVENT_LINK_DOWN, 20 * msec);
                ev->agent = i;
                ev->incarnation = a->incarnation;
                ev->slot = a->slots[k].slot;
                ev->link = link ? AGENT_LINK_FIRST : AGENT_LINK_NEXT;
            }
    }
}

void sim_agent_kill(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    if (!a->alive)
        return;
    links_break(s, a);
    process_end(a);
}

static void link_down_later(struct sim *s, struct sim_agent *a, uint64_t slot, enum agent_link link)
{
    struct sim_event *ev = sim_event_add(s, EVENT_LINK_DOWN, 20 * msec);
    ev->agent = a->index;
    ev->incarnation = a->incarnation;
    ev->slot = slot;
    ev->link = link;
    s->frames_lost++;
}

/* Frames that it has sent and that have not arrived are lost, and it hears so. */
void sim_links_break(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    for (size_t i = 0; i < s->n_events; i++)
        if (s->events[i]->kind == EVENT_FRAME && s->events[i]->from == agent + 1)
            s->events[i]->incarnation = UINT64_MAX; /* of nobody */
    for (size_t i = 0; a->alive && i < 2 * a->n_slots; i++) {
        const struct sim_slot *slot = &a->slots[i / 2];
        if ((i % 2 ? slot->first : slot->next)[0])
            link_down_later(s, a, slot->slot, i % 2 ? AGENT_LINK_FIRST : AGENT_LINK_NEXT);
    }
}

void sim_agent_stop(struct sim *s, int agent)
{
    s->agents[agent]->stopped = s->agents[agent]->alive;
}

void sim_agent_continue(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    if (!a->stopped)
        return;
    a->stopped = false;
    struct sim_event **deferred = a->deferred;
    size_t n = a->n_deferred;
    a->deferred = NULL;
    a->n_deferred = 0;
    for (size_t i = 0; i < n; i++) {
        if (a->alive && deferred[i]->incarnation == a->incarnation)
            sim_agent_handle(s, a, deferred[i]);
        if (deferred[i])
            sim_event_free(deferred[i]);
    }
    free(deferred);
}

void sim_agent_forget_weights(struct sim *s, int agent)
{
    memset(s->agents[agent]->has_layer, 0, sizeof s->agents[agent]->has_layer);
}

static struct sim_slot *slot_of(struct sim_agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_slots; i++)
        if (a->slots[i].slot == slot)
            return &a->slots[i];
    a->slots = realloc(a->slots, (a->n_slots + 1) * sizeof *a->slots);
    assert(a->slots);
    a->slots[a->n_slots] = (struct sim_slot){.slot = slot};
    return &a->slots[a->n_slots++];
}

/* ---- weights ---- */

static bool peer_has(const struct sim *s, const struct sim_agent *self, int layer)
{
    for (int i = 0; i < s->n_agents; i++)
        if (s->agents[i] != self && s->agents[i]->alive && !s->agents[i]->stopped &&
            s->agents[i]->has_layer[layer])
            return true;
    return false;
}

static void fetch_go(struct sim *s, struct sim_agent *a, int f)
{
    uint32_t wanted[TOY_LAYERS];
    size_t n = 0;
    uint64_t moved = 0;
    for (int l = a->fetch[f].first; l < a->fetch[f].end; l++) {
        if (!a->has_layer[l] && peer_has(s, a, l)) {
            a->has_layer[l] = true;
            moved += 100;
        }
        if (!a->has_layer[l])
            wanted[n++] = (uint32_t)l;
    }
    struct agent_event ev = {.kind = AGENT_EVENT_FETCHED};
    ev.u.progress = (struct agent_progress){
        .slot = a->fetch[f].slot,
        .ticket = a->fetch[f].ticket,
        .status = n ? HP_PENDING : 0,
        .total_bytes = 100 * (uint64_t)(a->fetch[f].end - a->fetch[f].first),
        .moved_bytes = moved,
        .wanted = {wanted, n}};
    ev.u.progress.done_bytes = ev.u.progress.total_bytes - 100 * n;
    a->fetch[f].waiting = n > 0;
    if (n == 0)
        store_tell(s, a, 0);
    agent_event(s, a, &ev);
}

static void fetch_begin(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    slot_of(a, act->u.work.slot)->device = (int)act->u.work.prepare->message.u.stage_prepare.device;
    for (int f = 0; f < 8; f++) {
        if (a->fetch[f].slot)
            continue;
        a->fetch[f].slot = act->u.work.slot;
        a->fetch[f].ticket = act->u.work.ticket;
        a->fetch[f].first = (int)act->u.work.prepare->message.u.stage_prepare.first_layer;
        a->fetch[f].end = (int)act->u.work.prepare->message.u.stage_prepare.end_layer;
        struct sim_event *ev = sim_event_add(s, EVENT_WORK, sim_delay_ns(s, msec, 40 * msec));
        ev->agent = a->index;
        ev->incarnation = a->incarnation;
        ev->slot = act->u.work.slot;
        ev->ticket = act->u.work.ticket;
        return;
    }
    assert(false && "too many fetches");
}

static void fetch_step(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    for (int f = 0; f < 8; f++)
        if (a->fetch[f].slot == ev->slot && a->fetch[f].ticket == ev->ticket) {
            fetch_go(s, a, f);
            if (!a->fetch[f].waiting)
                a->fetch[f].slot = 0;
            return;
        }
}

void sim_agent_uploaded(struct sim *s, struct sim_agent *a, const json_t *chunks)
{
    for (size_t i = 0; i < json_array_size(chunks); i++)
        a->has_layer[json_integer_value(json_array_get(chunks, i))] = true;
    for (int f = 0; a->alive && f < 8; f++)
        if (a->fetch[f].slot && a->fetch[f].waiting) {
            struct sim_event *ev = sim_event_add(s, EVENT_WORK, sim_delay_ns(s, msec, 40 * msec));
            ev->agent = a->index;
            ev->incarnation = a->incarnation;
            ev->slot = a->fetch[f].slot;
            ev->ticket = a->fetch[f].ticket;
        }
}

/* ---- the executors ---- */

static uint64_t order_ns(struct sim *s, const struct sim_order *o)
{
    switch (o->kind) {
    case AGENT_DO_LOAD: return sim_delay_ns(s, 5 * msec, 60 * msec);
    case AGENT_DO_RUN: return 300 * us + o->run->u.run.batch->n_tokens * 40 * us;
    default: return 10 * us;
    }
}

static void executor_next(struct sim *s, struct sim_agent *a, int device)
{
    struct sim_executor *x = &a->executors[device];
    x->busy = x->n_orders > 0;
    if (!x->busy || a->hung)
        return;
    struct sim_event *ev = sim_event_add(s, EVENT_EXECUTOR, order_ns(s, &x->orders[0]));
    ev->agent = a->index;
    ev->incarnation = a->incarnation;
    ev->step = device;
}

void sim_executor_hang(struct sim *s, int agent, bool hung)
{
    struct sim_agent *a = s->agents[agent];
    bool goes_on = a->hung && !hung;
    a->hung = hung;
    for (int d = 0; goes_on && d < s->n_devices; d++)
        if (a->executors[d].busy)
            executor_next(s, a, d);
}

static void order_add(struct sim *s, struct sim_agent *a, struct sim_order order)
{
    int device = slot_of(a, order.slot)->device;
    struct sim_executor *x = &a->executors[device];
    x->orders = realloc(x->orders, (x->n_orders + 1) * sizeof *x->orders);
    assert(x->orders);
    x->orders[x->n_orders++] = order;
    if (!x->busy)
        executor_next(s, a, device);
}

static struct sim_stage *stage_of(struct sim_agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_stages; i++)
        if (a->stages[i].slot == slot)
            return &a->stages[i];
    return NULL;
}

static struct toy_memory *memory_of(struct sim_stage *st, uint64_t id)
{
    for (size_t i = 0; st && i < st->n_sequences; i++)
        if (st->sequences[i].id == id)
            return &st->sequences[i];
    return NULL;
}

static void sequence_remove(struct sim_stage *st, uint64_t id)
{
    struct toy_memory *m = memory_of(st, id);
    if (m)
        *m = st->sequences[--st->n_sequences];
}

/* One run of a batch through the toy's layers; false where it does not continue what the stage
 * remembers. */
static bool run_one(struct sim_stage *st, const struct agent_action *act, uint32_t i,
                    const struct sim_buffer *in, struct sim_buffer *out, uint32_t *at,
                    uint32_t *picked, float **logits)
{
    const struct batch_run *r = &act->u.run.batch->runs[i];
    struct toy_memory *m = memory_of(st, r->sequence);
    if (!m || m->length != r->first_position)
        return false;
    uint64_t x = 0;
    for (uint32_t k = 0; k < r->n_tokens; k++) {
        x = toy_position(m, st->first, st->end,
                         in ? in->x[r->row + k] : act->u.run.batch->ids[r->row + k]);
        if (out)
            out->x[(*at)++] = x;
        if (*logits && k + r->n_logits >= r->n_tokens) {
            (*logits)[toy_token(x)] = 1;
            *logits += TOY_VOCABULARY;
        }
    }
    picked[i] = toy_token(x);
    return true;
}

static void post(struct sim *s, struct sim_agent *a, const struct agent_action *act);

/* The executor hands its output on itself. */
static void output_post(struct sim *s, struct sim_agent *a, const struct agent_action *run,
                        struct sim_buffer *out)
{
    struct agent_action act = {.kind = AGENT_DO_POST};
    act.u.post.slot = run->u.run.slot;
    act.u.post.link = AGENT_LINK_NEXT;
    act.u.post.header = run->u.run.header;
    act.u.post.runs = run->u.run.batch->runs;
    act.u.post.buffer = out;
    post(s, a, &act);
}

static void executor_run(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    const struct agent_action *act = o->run;
    struct sim_stage *st = stage_of(a, o->slot);
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    uint32_t *picked = calloc(act->u.run.batch->n_runs + 1, sizeof *picked), at = 0;
    float *logits =
              act->u.run.batch->n_logits
                  ? calloc((size_t)act->u.run.batch->n_logits * TOY_VOCABULARY, sizeof *logits)
                  : NULL,
          *row = logits;
    struct sim_buffer *in = act->u.run.batch->input,
                      *out =
                          st && !st->is_last ? buffer_create(a, act->u.run.batch->n_tokens) : NULL;
    bool good = st != NULL;
    for (uint32_t i = 0; good && i < act->u.run.batch->n_runs; i++)
        good = run_one(st, act, i, in, out, &at, picked, &row);
    s->wrong += !good;
    buffer_release(a, in);
    ev.u.batch_done.slot = o->slot;
    ev.u.batch_done.ticket = o->ticket;
    ev.u.batch_done.status = good ? 0 : HP_EBUG;
    ev.u.batch_done.seconds = 1e-3;
    ev.u.batch_done.posted = good && out;
    if (good && out)
        output_post(s, a, act, out);
    else
        buffer_release(a, out);
    ev.u.batch_done.picked = picked;
    ev.u.batch_done.logits = logits;
    agent_event(s, a, &ev);
    free(picked);
    free(logits);
}

static void executor_load(struct sim *s, struct sim_agent *a, const struct sim_order *o)
{
    struct agent_event ev = {.kind = AGENT_EVENT_LOADED};
    ev.u.progress = (struct agent_progress){.slot = o->slot,
                                            .ticket = o->ticket,
                                            .width_in = TOY_WIDTH,
                                            .width_out = TOY_WIDTH,
                                            .vocabulary = TOY_VOCABULARY};
    agent_event(s, a, &ev);
}

static void executor_done(struct sim *s, struct sim_agent *a, int device)
{
    struct sim_executor *x = &a->executors[device];
    struct sim_order o = x->orders[0];
    memmove(x->orders, x->orders + 1, --x->n_orders * sizeof *x->orders);
    struct sim_stage *st = stage_of(a, o.slot);
    if (o.kind == AGENT_DO_LOAD) {
        executor_load(s, a, &o);
    } else if (o.kind == AGENT_DO_UNLOAD) {
        stage_remove(a, o.slot);
    } else if (o.kind == AGENT_DO_SEQUENCE_CLOSE) {
        sequence_remove(st, o.sequence);
    } else if (o.kind == AGENT_DO_SEQUENCE_OPEN) {
        if (st) {
            st->sequences = realloc(st->sequences, (st->n_sequences + 1) * sizeof *st->sequences);
            assert(st->sequences);
            st->sequences[st->n_sequences++] = (struct toy_memory){.id = o.sequence};
        }
        struct agent_event ev = {.kind = AGENT_EVENT_SEQUENCE_OPENED};
        ev.u.sequence_opened.slot = o.slot;
        ev.u.sequence_opened.ticket = o.ticket;
        ev.u.sequence_opened.sequence = o.sequence;
        agent_event(s, a, &ev);
    } else if (o.kind == AGENT_DO_RUN) {
        executor_run(s, a, &o);
    }
    free((void *)(uintptr_t)o.run);
    executor_next(s, a, device);
}

static void load_begin(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    const struct message_stage_prepare *p = &act->u.work.prepare->message.u.stage_prepare;
    s->loads++;
    a->stages = realloc(a->stages, (a->n_stages + 1) * sizeof *a->stages);
    assert(a->stages);
    a->stages[a->n_stages++] = (struct sim_stage){.slot = act->u.work.slot,
                                                  .first = (int)p->first_layer,
                                                  .end = (int)p->end_layer,
                                                  .is_first = p->first_layer == 0,
                                                  .is_last = p->end_layer == TOY_LAYERS};
    for (int l = (int)p->first_layer; l < (int)p->end_layer; l++)
        s->wrong += !a->has_layer[l]; /* loaded without its weights */
    order_add(s, a,
              (struct sim_order){
                  .kind = AGENT_DO_LOAD, .slot = act->u.work.slot, .ticket = act->u.work.ticket});
}

/* ---- links ---- */

static void connect(struct sim_agent *a, const struct agent_action *act)
{
    struct sim_slot *slot = slot_of(a, act->u.connect.slot);
    snprintf(slot->next, sizeof slot->next, "%.*s", (int)act->u.connect.next.size,
             (const char *)act->u.connect.next.data);
    snprintf(slot->first, sizeof slot->first, "%.*s", (int)act->u.connect.first.size,
             (const char *)act->u.connect.first.data);
}

static bool chance_is(struct sim *s, double chance)
{
    return chance > 0 && (double)sim_random(s, 100000) < 100000 * chance;
}

static struct sim_buffer *copy_of(const struct sim_buffer *b)
{
    struct sim_buffer *copy = b ? malloc(sizeof *b + b->n_tokens * sizeof b->x[0]) : NULL;
    assert(!b || copy);
    if (b)
        memcpy(copy, b, sizeof *b + b->n_tokens * sizeof b->x[0]);
    return copy;
}

static void frame_send(struct sim *s, const struct sim_agent *a, const struct agent_action *act,
                       const struct sim_agent *to, struct sim_buffer *buffer, uint64_t late_ns)
{
    struct sim_event *ev =
        sim_event_add(s, EVENT_FRAME, late_ns + sim_delay_ns(s, 50 * us, s->network.slow_ns));
    ev->agent = to->index;
    ev->incarnation = to->incarnation;
    ev->header = act->u.post.header;
    ev->from = a->index + 1;
    bool carries = ev->header.n_runs &&
                   (ev->header.kind == FRAME_TOKEN || ev->header.kind == FRAME_ACTIVATION);
    if (carries && s->network.lose_from == a->index + 1) {
        ev->incarnation = 0; /* nobody's */
        s->network.lose_from = 0;
    }
    size_t n = ev->header.n_runs;
    if (ev->header.kind == FRAME_TOKEN && n) {
        ev->tokens = malloc(n * sizeof *ev->tokens);
        assert(ev->tokens);
        memcpy(ev->tokens, act->u.post.tokens, n * sizeof *ev->tokens);
        ev->header.payload_bytes = n * FRAME_TOKEN_BYTES;
    } else if (n) {
        ev->runs = malloc(n * sizeof *ev->runs);
        assert(ev->runs);
        memcpy(ev->runs, act->u.post.runs, n * sizeof *ev->runs);
        ev->header.payload_bytes =
            n * FRAME_RUN_BYTES + (uint64_t)ev->header.n_tokens * TOY_WIDTH * sizeof(float);
    }
    ev->buffer = buffer;
}

static void post(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    const struct sim_slot *slot = slot_of(a, act->u.post.slot);
    struct sim_agent *to =
        sim_agent_at(s, act->u.post.link == AGENT_LINK_FIRST ? slot->first : slot->next);
    s->frames_sent++;
    if (!to || chance_is(s, s->network.refuse)) {
        buffer_release(a, act->u.post.buffer);
        link_down_later(s, a, act->u.post.slot, act->u.post.link);
        return;
    }
    if (chance_is(s, s->network.lose)) {
        buffer_release(a, act->u.post.buffer);
        s->frames_lost++;
        return;
    }
    if (chance_is(s, s->network.twice))
        frame_send(s, a, act, to, copy_of(act->u.post.buffer), 0);
    frame_send(s, a, act, to, act->u.post.buffer,
               chance_is(s, s->network.late) ? s->network.late_ns : 0);
    a->buffers -= act->u.post.buffer != NULL; /* on its way it is nobody's */
}

static void frame_in(struct sim *s, struct sim_agent *a, struct sim_event *ev)
{
    a->buffers += ev->buffer != NULL;
    struct agent_event in = {.kind = AGENT_EVENT_FRAME};
    in.u.frame.header = &ev->header;
    in.u.frame.runs = ev->runs;
    in.u.frame.tokens = ev->tokens;
    in.u.frame.buffer = ev->buffer;
    ev->buffer = NULL;
    agent_event(s, a, &in);
}

/* ---- actions ---- */

static void unload(struct sim *s, struct sim_agent *a, uint64_t slot)
{
    for (int f = 0; f < 8; f++)
        if (a->fetch[f].slot == slot)
            a->fetch[f].slot = 0;
    order_add(s, a, (struct sim_order){.kind = AGENT_DO_UNLOAD, .slot = slot});
    for (size_t i = 0; i < a->n_slots; i++)
        if (a->slots[i].slot == slot)
            a->slots[i] = a->slots[--a->n_slots];
}

static void run_begin(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    struct agent_action *copy = malloc(sizeof *copy);
    assert(copy);
    *copy = *act;
    order_add(s, a,
              (struct sim_order){.kind = AGENT_DO_RUN,
                                 .slot = act->u.run.slot,
                                 .ticket = act->u.run.ticket,
                                 .run = copy});
}

static void profile_later(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    struct sim_event *ev = sim_event_add(s, EVENT_WORK, 300 * msec);
    ev->agent = a->index;
    ev->incarnation = a->incarnation;
    ev->step = 1;
    ev->ticket = act->u.profile.id;
    ev->size = act->u.profile.request.model.size;
    ev->bytes = malloc(ev->size);
    assert(ev->bytes);
    memcpy(ev->bytes, act->u.profile.request.model.data, ev->size);
}

static void profile_done(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    static const char tables[] =
        "{\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1e-5]]}, \"attn\": "
        "{\"slice\": [1, 64], \"prefix\": [0], "
        "\"seconds\": [[1e-4], [3e-3]]}, \"mlp\": {\"slice\": [1, 64], \"prefix\": [0], "
        "\"seconds\": [[1e-4], [4e-3]]}, "
        "\"head\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1e-4]]}}";
    struct agent_event in = {.kind = AGENT_EVENT_PROFILED};
    in.u.profiled.id = ev->ticket;
    in.u.profiled.model = (struct pack_span){ev->bytes, ev->size};
    in.u.profiled.kind = "toy";
    in.u.profiled.tables = tables;
    agent_event(s, a, &in);
}

static void probe_later(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    if (strcmp(act->u.probe.request.role, "end") == 0)
        return;
    struct sim_event *ev = sim_event_add(s, EVENT_WORK, 100 * msec);
    ev->agent = a->index;
    ev->incarnation = a->incarnation;
    ev->step = 3;
    ev->ticket = act->u.probe.id;
}

static void probe_done(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    struct agent_event in = {.kind = AGENT_EVENT_PROBED};
    in.u.probed.id = ev->ticket;
    in.u.probed.latency_s = 5e-5;
    in.u.probed.bandwidth_bytes_per_s = 1e9;
    agent_event(s, a, &in);
}

static void action_do(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    switch (act->kind) {
    case AGENT_DO_SEND: sim_say(s, a, &act->u.message); break;
    case AGENT_DO_POST: post(s, a, act); break;
    case AGENT_DO_RELEASE: buffer_release(a, act->u.release.buffer); break;
    case AGENT_DO_FETCH: fetch_begin(s, a, act); break;
    case AGENT_DO_LOAD: load_begin(s, a, act); break;
    case AGENT_DO_UNLOAD: unload(s, a, act->u.unload.slot); break;
    case AGENT_DO_CONNECT: connect(a, act); break;
    case AGENT_DO_SEQUENCE_OPEN:
        order_add(s, a,
                  (struct sim_order){.kind = act->kind,
                                     .slot = act->u.sequence_open.slot,
                                     .ticket = act->u.sequence_open.ticket,
                                     .sequence = act->u.sequence_open.open->sequence});
        break;
    case AGENT_DO_SEQUENCE_CLOSE:
        order_add(s, a,
                  (struct sim_order){.kind = act->kind,
                                     .slot = act->u.sequence_close.slot,
                                     .sequence = act->u.sequence_close.sequence});
        break;
    case AGENT_DO_RUN: run_begin(s, a, act); break;
    case AGENT_DO_PROFILE: profile_later(s, a, act); break;
    case AGENT_DO_PROBE: probe_later(s, a, act); break;
    case AGENT_DO_TIMER: {
        uint64_t now = s->clock.now_ns, at = act->u.timer.at_ns;
        struct sim_event *ev = sim_event_add(s, EVENT_TIMER, at > now ? at - now : 0);
        ev->agent = a->index;
        ev->incarnation = a->incarnation;
        ev->timer = ++a->timer;
        break;
    }
    case AGENT_DO_STORE_REMOVE: {
        struct sim_event *ev = sim_event_add(s, EVENT_WORK, msec);
        ev->agent = a->index;
        ev->incarnation = a->incarnation;
        ev->step = 2;
        ev->ticket = act->u.store_remove.id;
        break;
    }
    default: break; /* sessions, logs: nobody looks at them here */
    }
}

static void agent_event(struct sim *s, struct sim_agent *a, const struct agent_event *ev)
{
    struct agent_core *core = a->core;
    /* An action may lead to the next event (a store that changed), so the list is put aside. */
    struct agent_actions actions = a->actions;
    a->actions = (struct agent_actions){0};
    agent_core_event(core, ev, &actions);
    for (size_t i = 0; i < actions.count; i++)
        action_do(s, a, &actions.items[i]);
    agent_actions_free(&a->actions);
    a->actions = actions;
}

static void message_in(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    struct message_ref *m;
    struct err e = {0};
    int rc = message_ref_decode(ev->bytes, ev->size, &m, &e);
    assert(rc == 0);
    struct agent_event in = {.kind = AGENT_EVENT_MESSAGE, .u.message = m};
    agent_event(s, a, &in);
    message_ref_release(m);
}

static void work_done(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    if (ev->step == 1) {
        profile_done(s, a, ev);
    } else if (ev->step == 3) {
        probe_done(s, a, ev);
    } else if (ev->step == 2) {
        memset(a->has_layer, 0, sizeof a->has_layer);
        store_tell(s, a, ev->ticket);
    } else {
        fetch_step(s, a, ev);
    }
}

void sim_agent_handle(struct sim *s, struct sim_agent *a, struct sim_event *ev)
{
    struct agent_event out = {0};
    switch (ev->kind) {
    case EVENT_TO_AGENT: message_in(s, a, ev); break;
    case EVENT_FRAME: frame_in(s, a, ev); break;
    case EVENT_WORK: work_done(s, a, ev); break;
    case EVENT_EXECUTOR: executor_done(s, a, ev->step); break;
    case EVENT_TIMER:
        out.kind = AGENT_EVENT_TIMER;
        if (ev->timer == a->timer)
            agent_event(s, a, &out);
        break;
    case EVENT_LINK_DOWN:
        out.kind = AGENT_EVENT_LINK_DOWN;
        out.u.link_down.slot = ev->slot;
        out.u.link_down.link = ev->link;
        agent_event(s, a, &out);
        break;
    default: break;
    }
}
