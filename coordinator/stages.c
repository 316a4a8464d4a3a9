#include "coordinator/stages.h"

#include <assert.h>
#include <string.h>

#include "common/utf8.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/planner_profile.h"
#include "coordinator/prefixes.h"
#include "coordinator/targets.h"

uint64_t stages_session_create(struct coord *c)
{
    return (env_random_u64(c->env) >> 1) | 1;
}

void stages_adopt(struct coord *c, struct deployment *d)
{
    uint64_t ahead = deployment_generation_ahead(c, d, NULL);
    d->generation = ahead ? ahead : d->generation;
    d->generation++;
    d->session = stages_session_create(c);
    for (int i = 0; i < d->n_stages; i++)
        d->stages[i].input_session = d->n_stages > 1 ? stages_session_create(c) : 0;
}

/* ---- orders ---- */

static struct digest model_digest(const struct deployment *d)
{
    struct digest id = {{0}};
    int rc = digest_from_hex(d->model->id, &id, NULL);
    assert(rc == 0);
    return id;
}

void stages_grant(struct coord *c, const struct deployment *d, const struct member *m,
                  uint64_t session, bool revoke)
{
    struct digest id = model_digest(d);
    struct message g = {.type = MESSAGE_CHUNK_GRANT};
    g.u.chunk_grant = (struct message_chunk_grant){session, {id.bytes, sizeof id.bytes}, revoke};
    effects_send(c, m->peer, &g);
}

/* Other agents whose stores hold some of the model; they are told to answer frames with this
 * generation's token. */
static size_t peers_of(struct coord *c, const struct deployment *d, const struct member *self,
                       struct message_peer *out, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_members && n < max; i++) {
        struct member *m = c->members[i];
        bool has = false;
        for (size_t k = 0; k < m->n_models; k++)
            has = has || (m->models[k].bytes > 0 && strcmp(m->models[k].id, d->model->id) == 0);
        if (m == self || !has || !member_present(m) || m->address_size == 0)
            continue;
        stages_grant(c, d, m, d->session, false);
        out[n++] = (struct message_peer){m->name, {m->address, m->address_size}};
    }
    return n;
}

/* Whose frames come to a stage: of the one before it, and to the first the last one's tokens. */
static struct pack_span sender_key(const struct deployment *d, int i, uint8_t key[KEY_BYTES])
{
    const struct member *sender = d->stages[i ? i - 1 : d->n_stages - 1].agent;
    bool known = d->n_stages > 1 && key_decode(sender->key, key, NULL) == 0;
    return (struct pack_span){known ? key : NULL, known ? KEY_BYTES : 0};
}

static double planned_trip_s_per_token(const struct deployment *d)
{
    double sum = 0;
    for (int i = 0; i < d->n_stages; i++)
        sum += d->stages[i].compute_s;
    uint64_t tokens = deployment_plan_tokens(d);
    return tokens ? sum / (double)tokens : 0;
}

/* What goes from stage i to the next. */
static struct pack_list crosses_of(const struct deployment *d, int i)
{
    bool known = i >= 0 && i + 1 < d->n_stages && d->model->facts.borders;
    return known ? d->model->facts.borders[d->stages[i].end_layer - 1] : (struct pack_list){0};
}

static void stage_prepare(struct coord *c, struct deployment *d, int i)
{
    struct deployment_stage *s = &d->stages[i];
    uint64_t tokens = deployment_plan_tokens(d);
    uint8_t key[KEY_BYTES];
    struct message_peer peers[32];
    struct digest id = model_digest(d);
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = (struct message_stage_prepare){
        .deployment = d->id,
        .generation = d->generation,
        .stage = (uint64_t)i,
        .n_stages = (uint64_t)d->n_stages,
        .device = (uint64_t)s->device,
        .session = d->session,
        .input_session = s->input_session,
        .input_from = sender_key(d, i, key),
        .deployment_name = d->name,
        .model = {id.bytes, sizeof id.bytes},
        .manifest = {d->model->manifest, d->model->manifest_size},
        .first_layer = (uint64_t)s->first_layer,
        .end_layer = (uint64_t)s->end_layer,
        .expert_groups = d->model->expert_groups,
        .compute = deployment_spec_compute(&d->spec),
        .wire = frame_dtype_word(deployment_wire(d)),
        .kv = kv_format_word(d->spec.kv),
        .enters = crosses_of(d, i - 1),
        .crosses = crosses_of(d, i),
        .context = d->context,
        .kv_tokens = d->kv_tokens,
        .max_sequences = d->max_sequences,
        .max_batch_tokens = d->max_batch_tokens,
        .source_machine = d->spec.source_machine,
        .source_path = d->spec.source_path,
        .upload_only = d->spec.upload_only,
        .weight = d->spec.weight,
        .stands_for = d->spec.micro_batches > 0 ? planner_stands_for(c, d) : 0,
        .planned_s_per_token = tokens ? s->compute_s / (double)tokens : 0,
        .planned_trip_s_per_token = planned_trip_s_per_token(d),
        .beside_tokens = targets_beside_tokens(d),
        .keeps = d->spec.copy_of[0] != 0,
    };
    m.u.stage_prepare.peers =
        (struct pack_list){peers, peers_of(c, d, s->agent, peers, sizeof peers / sizeof *peers)};
    effects_send(c, s->agent->peer, &m);
    deployment_stage_move(s, STAGE_WORKING);
    s->told_ns = s->progress_ns = coord_now(c);
    utf8_copy(s->word, sizeof s->word, "waiting");
}

void stages_prepare(struct coord *c, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].status == STAGE_UNTOLD && member_present(d->stages[i].agent))
            stage_prepare(c, d, i);
}

void stages_copy(struct coord *c, struct deployment *d, int stage, struct member *to)
{
    const struct deployment_stage *s = &d->stages[stage];
    const struct member *own = s->agent;
    struct digest id = model_digest(d);
    struct message_peer peer = {own->name, {own->address, own->address_size}};
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare =
        (struct message_stage_prepare){.deployment = d->id,
                                       .generation = d->generation,
                                       .stage = (uint64_t)stage,
                                       .n_stages = (uint64_t)d->n_stages,
                                       .session = d->session,
                                       .deployment_name = d->name,
                                       .model = {id.bytes, sizeof id.bytes},
                                       .manifest = {d->model->manifest, d->model->manifest_size},
                                       .first_layer = (uint64_t)s->first_layer,
                                       .end_layer = (uint64_t)s->end_layer,
                                       .expert_groups = d->model->expert_groups,
                                       .compute = deployment_spec_compute(&d->spec),
                                       .wire = "",
                                       .kv = "",
                                       .source_machine = "",
                                       .source_path = "",
                                       .peers = {&peer, 1},
                                       .copy = true};
    effects_send(c, to->peer, &m);
}

void stages_connect(struct coord *c, struct deployment *d)
{
    const struct member *first = d->stages[0].agent;
    prefixes_forget(d); /* they do so, too */
    for (int i = 0; i < d->n_stages; i++) {
        bool last = i == d->n_stages - 1;
        const struct member *next = last ? NULL : d->stages[i + 1].agent;
        struct message m = {.type = MESSAGE_STAGE_CONNECT};
        m.u.stage_connect = (struct message_stage_connect){.deployment = d->id,
                                                           .generation = d->generation,
                                                           .stage = (uint64_t)i,
                                                           .n_stages = (uint64_t)d->n_stages};
        m.u.stage_connect.next_device = next ? member_paced_as(next) : "";
        m.u.stage_connect.first_device = last && d->n_stages > 1 ? member_paced_as(first) : "";
        m.u.stage_connect.next_session = last ? 0 : d->stages[i + 1].input_session;
        m.u.stage_connect.first_session = last ? d->stages[0].input_session : 0;
        m.u.stage_connect.keep = d->keeps;
        m.u.stage_connect.wire = frame_dtype_word(deployment_wire(d));
        m.u.stage_connect.crosses = crosses_of(d, i);
        if (next)
            m.u.stage_connect.next_address = (struct pack_span){next->address, next->address_size};
        if (last && d->n_stages > 1)
            m.u.stage_connect.first_address =
                (struct pack_span){first->address, first->address_size};
        effects_send(c, d->stages[i].agent->peer, &m);
    }
}

void stages_unload(struct coord *c, const struct member *m, uint64_t deployment,
                   uint64_t generation)
{
    struct message u = {.type = MESSAGE_STAGE_UNLOAD};
    u.u.stage_unload = (struct message_stage_unload){deployment, generation};
    effects_send(c, m->peer, &u);
}

void stages_stop(struct coord *c, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        deployment_stage_move(&d->stages[i], STAGE_UNTOLD);
    for (size_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];
        struct deployment_stage *s = deployment_stage_of(d, m);
        bool holds = s != NULL;
        for (size_t k = 0; k < m->n_held; k++)
            holds = holds || m->held[k].deployment == d->id;
        if (!holds || !member_present(m))
            continue;
        stages_unload(c, m, d->id, d->generation);
        for (; s; s = deployment_stage_next(d, s))
            deployment_stage_move(s, STAGE_WORKING); /* until it says "unloaded" */
    }
}
