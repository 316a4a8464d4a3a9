#include "coordinator/pools/pool_orders.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/stages.h"
#include "transport/stage_state.h"

enum { PREPARE_AGAIN_MS = 2000, SOURCES_MAX = 32 };

static const struct pool_model *share_model(const struct pool_plan *p, const struct pool_share *s)
{
    return &p->spec->models[s->model];
}

/* ---- who takes part ---- */

static int peer_row(struct coord *c, struct pool_plan *p, struct member *agent)
{
    for (int i = 1; i < p->n_peers; i++)
        if (p->peers[i].agent == agent)
            return i;
    if (p->n_peers == POOL_MAX_PEERS)
        return -1;
    p->peers[p->n_peers] = (struct pool_peer){agent, stages_session_create(c)};
    return p->n_peers++;
}

void pool_orders_number(struct coord *c, struct pool_plan *p)
{
    p->id = c->next_deployment++;
    effects_store_json(c, "meta", "next_deployment", json_integer((json_int_t)c->next_deployment));
    p->session = stages_session_create(c);
    p->since_ns = coord_now(c);
}

int pool_orders_begin(struct coord *c, struct pool_plan *p, struct err *e)
{
    p->peers = calloc(POOL_MAX_PEERS, sizeof *p->peers);
    if (!p->peers)
        return err_no_memory(e, "a plan of pools");
    pool_orders_number(c, p);
    p->peers[0] = (struct pool_peer){NULL, stages_session_create(c)};
    p->n_peers = 1;
    const struct member *any = p->shares[0].agent;
    struct pack_span there = {any ? any->address : NULL, any ? any->address_size : 0};
    int rc = c->config.data_open(c->config.data_ctx, there, &p->results, e);
    if (rc < 0)
        return rc;
    for (int i = 0; i < p->topology.n_shares; i++) {
        struct pool_share *s = &p->shares[i];
        if (!s->agent || !member_available(s->agent))
            return err_set(e, HP_ELINK, "an agent of the plan has gone meanwhile");
        if ((s->peer = peer_row(c, p, s->agent)) < 0)
            return err_set(e, HP_ELIMIT, "the plan has more than %d agents", POOL_MAX_PEERS - 1);
    }
    return 0;
}

/* ---- prepare ---- */

static void chunks_grant(struct coord *c, const struct pool_model *model, const struct member *m,
                         uint64_t session, bool revoke)
{
    struct digest id;
    if (digest_from_hex(model->id, &id, NULL) < 0)
        return;
    struct message g = {.type = MESSAGE_CHUNK_GRANT};
    g.u.chunk_grant = (struct message_chunk_grant){session, {id.bytes, sizeof id.bytes}, revoke};
    effects_send(c, m->peer, &g);
}

/* Other agents whose stores hold some of the model. */
static size_t sources_of(struct coord *c, const struct pool_plan *p, const struct pool_share *s,
                         struct message_peer out[SOURCES_MAX])
{
    const struct pool_model *model = share_model(p, s);
    size_t n = 0;
    for (size_t i = 0; i < c->n_members && n < SOURCES_MAX; i++) {
        const struct member *m = c->members[i];
        bool has = false;
        for (size_t k = 0; k < m->n_models; k++)
            has = has || (m->models[k].bytes > 0 && strcmp(m->models[k].id, model->id) == 0);
        if (m == s->agent || !has || !member_present(m) || m->address_size == 0)
            continue;
        chunks_grant(c, model, m, p->session, false);
        out[n++] = (struct message_peer){m->name, {m->address, m->address_size}};
    }
    return n;
}

static int model_sizes(const struct pool_model *m)
{
    return m->n_lengths ? m->n_lengths : 1;
}

/* What the plan says that batches of 1, 2, ... take there, length by length. */
static struct message_seconds *seconds_of(const struct pool_plan *p, const struct pool_share *s)
{
    const struct dispatch_topology *t = &p->topology;
    int sizes = model_sizes(share_model(p, s)), batch = t->pipelines[s->pipeline].batch,
        nth = s->pipeline - t->models[s->model].first_pipeline;
    struct message_seconds *out = calloc((size_t)(sizes * batch) + 1, sizeof *out);
    for (int k = 0; out && k < sizes; k++) {
        const struct dispatch_model *line = &t->models[pool_line_find(p, s->model, k)];
        const struct dispatch_pipeline *pl = &t->pipelines[line->first_pipeline + nth];
        for (int b = 1; b <= batch; b++)
            out[k * batch + b - 1].s = (double)pl->stages[s->stage].compute_ns[b] * 1e-9;
    }
    return out;
}

/* What its last block gives for one sample. */
static uint64_t sample_bytes_of(const struct pool_plan *p, const struct pool_share *s)
{
    const struct profile *f = &p->spec->workload.models[s->model].profile;
    double bytes = s->end_block <= f->n_layers ? f->layers[s->end_block - 1].output_bytes : 0;
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static void share_tell(struct coord *c, struct pool_plan *p, int i, struct message_share *share)
{
    struct pool_share *s = &p->shares[i];
    const struct pool_model *model = share_model(p, s);
    struct message_peer sources[SOURCES_MAX];
    struct digest id;
    if (digest_from_hex(model->id, &id, NULL) < 0)
        return;
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = (struct message_stage_prepare){
        .deployment = p->id,
        .generation = 1,
        .stage = (uint64_t)i,
        .n_stages = (uint64_t)p->topology.n_shares,
        .device = (uint64_t)s->device,
        .session = p->session,
        .input_session = p->peers ? p->peers[s->peer].session : 0,
        .deployment_name = model->facts.name,
        .model = {id.bytes, sizeof id.bytes},
        .manifest = model->manifest,
        .first_layer = (uint64_t)s->first_block,
        .end_layer = (uint64_t)s->end_block,
        .compute = "auto",
        .wire = "",
        .kv = "",
        .source_machine = p->spec->source_machine,
        .source_path = model->source_path,
        .upload_only = p->spec->upload_only,
        .share = {share, 1},
    };
    m.u.stage_prepare.peers = (struct pack_list){sources, sources_of(c, p, s, sources)};
    effects_send(c, s->agent->peer, &m);
    s->state = POOL_SHARE_WORKING;
    s->told_ns = coord_now(c);
    if (!s->word[0])
        utf8_copy(s->word, sizeof s->word, "waiting");
}

static void share_serve(struct coord *c, struct pool_plan *p, int i)
{
    const struct pool_share *s = &p->shares[i];
    const struct pool_model *model = share_model(p, s);
    const struct dispatch_pipeline *pl = &p->topology.pipelines[s->pipeline];
    struct message_seconds *seconds = seconds_of(p, s);
    struct message_share share = {
        .parts = s->parts,
        .part = s->part,
        .n_blocks = (uint64_t)model->n_blocks,
        .bounds = {model->bounds, (size_t)model->n_bounds},
        .batch = (uint64_t)pl->batch * (uint64_t)model->unit,
        .sizes = (uint64_t)model_sizes(model),
        .dims = {model->dims, (size_t)(model->n_dims * model_sizes(model))},
        .seconds = {seconds, (size_t)(pl->batch * model_sizes(model))},
        .sample_bytes = sample_bytes_of(p, s),
    };
    if (seconds) /* else the next tick tries again */
        share_tell(c, p, i, &share);
    free(seconds);
}

/* All of the network on all of the device, of which parts are made there. */
static void share_measure(struct coord *c, struct pool_plan *p, int i)
{
    const struct pool_model *model = share_model(p, &p->shares[i]);
    struct message_measure measure = {.id = p->shares[i].measure_id,
                                      .batches = p->measure->batches,
                                      .shares = p->measure->shares,
                                      .budget_ms = p->measure->budget_ms};
    struct message_share share = {.parts = 1,
                                  .n_blocks = 1,
                                  .batch = 1,
                                  .dims = {model->dims, (size_t)model->n_dims},
                                  .measure = {&measure, 1}};
    share_tell(c, p, i, &share);
}

/* What was told long ago and is not in its agent's heartbeats did not arrive. */
static bool share_was_lost(const struct coord *c, const struct pool_plan *p, int i)
{
    const struct pool_share *s = &p->shares[i];
    if (s->state != POOL_SHARE_WORKING || coord_now(c) - s->told_ns < coord_ms(PREPARE_AGAIN_MS))
        return false;
    for (size_t k = 0; k < s->agent->n_held; k++)
        if (s->agent->held[k].deployment == p->id && s->agent->held[k].stage == (uint64_t)i)
            return false;
    return true;
}

void pool_orders_prepare(struct coord *c, struct pool_plan *p)
{
    for (int i = 0; i < p->topology.n_shares; i++) {
        struct pool_share *s = &p->shares[i];
        bool told = s->state != POOL_SHARE_UNTOLD && !share_was_lost(c, p, i);
        if (told || !s->agent || !member_present(s->agent) || !s->agent->peer)
            continue;
        if (p->measure)
            share_measure(c, p, i);
        else
            share_serve(c, p, i);
    }
}

/* ---- connect, unload ---- */

void pool_orders_connect(struct coord *c, struct pool_plan *p, const struct member *only)
{
    struct message_share_peer *rows = calloc((size_t)p->n_peers + 1, sizeof *rows);
    if (!rows)
        return;
    for (int i = 0; i < p->n_peers; i++) {
        const struct member *m = p->peers[i].agent;
        rows[i].name = m ? m->name : "";
        rows[i].session = p->peers[i].session;
        rows[i].device = m ? member_paced_as(m) : "";
        if (i == 0)
            rows[i].data_address = p->results;
        else if (m)
            rows[i].data_address = (struct pack_span){m->address, m->address_size};
    }
    struct message msg = {.type = MESSAGE_SHARE_CONNECT};
    msg.u.share_connect = (struct message_share_connect){p->id, 1, {rows, (size_t)p->n_peers}};
    for (int i = 1; i < p->n_peers; i++)
        if (p->peers[i].agent && p->peers[i].agent->peer && (!only || p->peers[i].agent == only))
            effects_send(c, p->peers[i].agent->peer, &msg);
    free(rows);
}

void pool_orders_unload(struct coord *c, struct pool_plan *p)
{
    for (int i = 1; i < p->n_peers; i++)
        if (p->peers[i].agent && p->peers[i].agent->peer)
            stages_unload(c, p->peers[i].agent, p->id, 1);
}

/* ---- what agents say ---- */

static void wanted_take(struct pool_share *s, const struct message_stage_state *t)
{
    if (!vector_reserve(s->wanted, s->room_wanted, t->wanted.count))
        return;
    s->n_wanted = t->wanted.count;
    if (s->n_wanted)
        memcpy(s->wanted, t->wanted.items, s->n_wanted * sizeof *s->wanted);
}

int pool_orders_state(struct coord *c, struct pool_plan *p, const struct member *m,
                      const struct message_stage_state *t, struct err *why)
{
    struct pool_share *s = t->stage < (uint64_t)p->topology.n_shares ? &p->shares[t->stage] : NULL;
    if (!s || s->agent != m || s->state == POOL_SHARE_LOST)
        return 0;
    utf8_copy(s->word, sizeof s->word, t->state);
    s->done_bytes = t->done_bytes;
    s->total_bytes = t->total_bytes;
    s->told_ns = coord_now(c);
    wanted_take(s, t);
    enum stage_state state = stage_state_of_word(t->state);
    if (state == STAGE_READY) {
        s->state = POOL_SHARE_READY;
    } else if (state == STAGE_FAILED) {
        char device[DEVICE_TEXT];
        member_device_text(m, s->device, device);
        err_set(why, coord_failure_code(t->code), "%s on %s: %s", share_model(p, s)->facts.name,
                device, t->text);
        if (t->hint[0])
            err_hint(why, "%s", t->hint);
        return why->code;
    }
    return 0;
}

bool pool_orders_ready(const struct pool_plan *p)
{
    for (int i = 0; i < p->topology.n_shares; i++)
        if (p->shares[i].state != POOL_SHARE_READY)
            return false;
    return true;
}

/* ---- uploads ---- */

static void upload_ask(struct coord *c, struct pool_plan *p, struct pool_share *s, uint64_t peer,
                       uint64_t ask)
{
    const struct pool_model *model = share_model(p, s);
    json_t *chunks = json_array();
    for (size_t i = 0; i < s->n_wanted; i++)
        json_array_append_new(chunks, json_integer(s->wanted[i]));
    if (!s->upload_session)
        s->upload_session = stages_session_create(c);
    chunks_grant(c, model, s->agent, s->upload_session, false);
    json_t *target =
        json_pack("{s:s, s:o, s:o}", "agent", s->agent->name, "address",
                  json_hex(s->agent->address, s->agent->address_size), "chunks", chunks);
    effects_answer(c, peer, ask, true,
                   json_pack("{s:s, s:s, s:I, s:[o]}", "phase", "upload", "model",
                             model->facts.name, "session", (json_int_t)s->upload_session, "targets",
                             target));
    s->asked_ns = coord_now(c);
}

/* What comes for one share of a model comes for all on its agent. */
static bool upload_waits(const struct coord *c, const struct pool_plan *p,
                         const struct pool_share *s)
{
    for (int i = 0; i < p->topology.n_shares; i++) {
        const struct pool_share *o = &p->shares[i];
        if (o->agent == s->agent && o->model == s->model && o->asked_ns &&
            coord_now(c) - o->asked_ns < coord_ms(POOL_UPLOAD_AGAIN_MS))
            return true;
    }
    return false;
}

bool pool_orders_upload(struct coord *c, struct pool_plan *p, uint64_t peer, uint64_t ask)
{
    for (int i = 0; i < p->topology.n_shares; i++) {
        struct pool_share *s = &p->shares[i];
        if (s->n_wanted == 0 || s->state != POOL_SHARE_WORKING || upload_waits(c, p, s))
            continue;
        if (!ask)
            return false;
        upload_ask(c, p, s, peer, ask);
    }
    return true;
}

void pool_orders_upload_end(struct coord *c, struct pool_plan *p)
{
    for (int i = 0; i < p->topology.n_shares; i++) {
        struct pool_share *s = &p->shares[i];
        if (s->upload_session && s->agent)
            chunks_grant(c, share_model(p, s), s->agent, s->upload_session, true);
        s->upload_session = 0;
    }
}
