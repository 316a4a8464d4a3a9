#include "coordinator/pools/pool_state.h"

#include <stdlib.h>

#include "coordinator/model_slots.h"

enum { SAMPLE_BITS = 8 };
_Static_assert(POOL_MAX_SAMPLES <= 1 << SAMPLE_BITS, "a sample's number fits its bits");

struct pool_service *pool_service_of(struct coord *c)
{
    if (!c->pools) {
        c->pools = calloc(1, sizeof *c->pools);
        if (c->pools)
            c->pools->wake_ns = INT64_MAX;
    }
    return c->pools;
}

/* ---- what was applied ---- */

struct pool_spec *pool_spec_use(struct pool_spec *s)
{
    s->uses++;
    return s;
}

void pool_spec_release(struct pool_spec **held)
{
    struct pool_spec *s = *held;
    *held = NULL;
    if (!s || --s->uses > 0)
        return;
    json_decref(s->document);
    for (int i = 0; s->models && i < s->workload.n_models; i++) {
        for (int k = 0; s->models[i].profiles && k < s->models[i].n_lengths; k++)
            profile_free(&s->models[i].profiles[k]);
        if (s->models[i].slot)
            s->models[i].slot->users--; /* the next sweep closes it */
    }
    workload_free(&s->workload);
    free(s->models);
    arena_free(&s->arena);
    free(s);
}

int pool_spec_find(const struct pool_spec *s, const char *model)
{
    return workload_find_model(&s->workload, model);
}

struct pool_spec *pool_spec_of(const struct pool_service *s, const char *name, int *model)
{
    struct pool_spec *specs[] = {s && s->current ? s->current->spec : NULL, s ? s->spec : NULL};
    for (int i = 0; i < 2; i++)
        if (specs[i] && (*model = pool_spec_find(specs[i], name)) >= 0)
            return specs[i];
    return NULL;
}

static void counts_add(struct pool_counts *to, struct pool_counts *from)
{
    to->arrived += from->arrived;
    to->on_time += from->on_time;
    to->late += from->late;
    to->dropped += from->dropped;
    to->failed += from->failed;
    to->batches += from->batches;
    to->batched += from->batched;
    to->total_ns += from->total_ns;
    to->queue_ns += from->queue_ns;
    to->compute_ns += from->compute_ns;
    to->last_unix_s = from->last_unix_s > to->last_unix_s ? from->last_unix_s : to->last_unix_s;
    *from = (struct pool_counts){0};
}

void pool_counts_move(struct pool_spec *to, struct pool_spec *from)
{
    for (int i = 0; to != from && i < to->workload.n_models; i++) {
        int old = pool_spec_find(from, to->workload.models[i].name);
        if (old >= 0)
            counts_add(&to->models[i].counts, &from->models[old].counts);
    }
}

/* ---- plans ---- */

static struct pool_share *first_share(struct pool_plan *p, const struct pool_batch *b)
{
    return &p->shares[b->path.legs[0].share];
}

bool pool_share_takes(const struct pool_share *s)
{
    return s->flying == 0 || (s->flying < POOL_MOST_FLYING && s->flying_bytes < POOL_FLYING_BYTES);
}

void pool_batch_hold(struct pool_plan *p, struct pool_batch *b)
{
    struct pool_share *s = first_share(p, b);
    if (s->held)
        s->held_last->next_held = b;
    else
        s->held = b;
    s->held_last = b;
    b->held = true;
    p->n_held++;
}

static void batch_release(struct pool_plan *p, struct pool_batch *b)
{
    struct pool_share *s = first_share(p, b);
    struct pool_batch **at = &s->held, *before = NULL;
    if (!b->held)
        return;
    for (; *at != b; at = &before->next_held)
        before = *at;
    *at = b->next_held;
    s->held_last = s->held_last == b ? before : s->held_last;
    b->next_held = NULL;
    b->held = false;
    p->n_held--;
}

void pool_batch_sent(struct pool_plan *p, struct pool_batch *b, uint64_t bytes)
{
    struct pool_share *s = first_share(p, b);
    batch_release(p, b);
    b->sent = true;
    b->bytes = bytes;
    s->flying++;
    s->flying_bytes += bytes;
}

void pool_batch_free(struct pool_plan *p, struct pool_batch *b)
{
    struct pool_share *s = first_share(p, b);
    batch_release(p, b);
    s->flying -= b->sent;
    s->flying_bytes -= b->sent ? b->bytes : 0;
    HASH_DEL(p->batches, b);
    p->under_way[b->line]--;
    free(b->parts);
    free(b);
}

void pool_plan_free(struct pool_plan **held)
{
    struct pool_plan *p = *held;
    *held = NULL;
    if (!p)
        return;
    struct pool_batch *b = p->batches;
    HASH_CLEAR(hh, p->batches);
    for (struct pool_batch *next; b; b = next) {
        next = b->hh.next;
        free(b->parts);
        free(b);
    }
    for (int i = 0; p->shares && i < p->topology.n_shares; i++)
        free(p->shares[i].wanted);
    dispatch_destroy(&p->dispatch);
    dispatch_topology_free(&p->topology);
    json_decref(p->report);
    pool_spec_release(&p->spec);
    free(p->shares);
    free(p->lines);
    free(p->peers);
    free(p->load);
    free(p->wake_ns);
    free(p->overheads);
    free(p->under_way);
    free(p);
}

struct pool_plan *pool_plan_of(struct pool_service *s, uint64_t id)
{
    if (s->current && s->current->id == id)
        return s->current;
    if (s->next && s->next->id == id)
        return s->next;
    for (struct pool_plan *p = s->ending; p; p = p->next)
        if (p->id == id)
            return p;
    return NULL;
}

int pool_line_find(const struct pool_plan *p, int model, int size)
{
    for (int i = 0; i < p->topology.n_models; i++)
        if (p->lines[i].model == model && p->lines[i].size == size)
            return i;
    return model;
}

int64_t pool_line_length(const struct pool_plan *p, int line)
{
    const struct pool_model *m = &p->spec->models[p->lines[line].model];
    return m->n_lengths ? m->lengths[p->lines[line].size] : 0;
}

struct pool_batch *pool_batch_of(struct pool_plan *p, uint32_t id)
{
    struct pool_batch *b;
    HASH_FIND(hh, p->batches, &id, sizeof id, b);
    return b;
}

static bool stage_has_agent(const struct pool_plan *p, const struct dispatch_stage *st)
{
    for (int i = 0; i < st->n_shares; i++)
        if (p->shares[st->first_share + i].agent)
            return true;
    return false;
}

bool pool_plan_serves(const struct pool_plan *p, int model)
{
    const struct dispatch_model *m = &p->topology.models[model];
    bool whole = m->n_pipelines > 0;
    for (int i = 0; p->lacks && i < m->n_pipelines; i++) {
        const struct dispatch_pipeline *pl = &p->topology.pipelines[m->first_pipeline + i];
        whole = true;
        for (int stage = 0; whole && stage < pl->n_stages; stage++)
            whole = stage_has_agent(p, &pl->stages[stage]);
        if (whole)
            return true;
    }
    return whole;
}

/* ---- requests ---- */

uint64_t pool_tag_of(const struct pool_request *r, uint32_t sample)
{
    return r->id << SAMPLE_BITS | sample;
}

struct pool_part pool_part_of(uint64_t tag)
{
    return (struct pool_part){tag >> SAMPLE_BITS, (uint32_t)(tag & ((1u << SAMPLE_BITS) - 1))};
}

struct pool_request *pool_request_of(struct pool_service *s, uint64_t id)
{
    struct pool_request *r;
    HASH_FIND(hh, s->requests, &id, sizeof id, r);
    return r;
}

/* Those of its samples that wait, in whichever plan, take no device's time any more. */
static void samples_forget(struct pool_service *s, const struct pool_request *r)
{
    for (uint32_t i = 0; r->left && i < r->n_samples; i++) {
        uint64_t tag = pool_tag_of(r, i);
        bool found = s->current && r->line < s->current->topology.n_models &&
                     dispatch_forget(s->current->dispatch, r->line, tag, r->due_ns);
        for (struct pool_plan *p = s->ending; p && !found; p = p->next)
            found = r->line < p->topology.n_models &&
                    dispatch_forget(p->dispatch, r->line, tag, r->due_ns);
    }
}

void pool_request_free(struct pool_service *s, struct pool_request *r)
{
    samples_forget(s, r);
    HASH_DEL(s->requests, r);
    for (int i = 0; r->outputs && i < r->spec->models[r->model].facts.n_outputs; i++)
        ndarray_free(&r->outputs[i]);
    free(r->outputs);
    pool_spec_release(&r->spec);
    free(r);
}
