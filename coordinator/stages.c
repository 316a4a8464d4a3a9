/* What passes between a deployment and the agents of its plan: orders to prepare, connect and
 * unload, and what the agents say of their stages. Orders are level-triggered: what a heartbeat
 * does not show is said again. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/core_int.h"
#include "coordinator/costs.h"
#include "coordinator/placement.h"
#include "coordinator/sequence_deadlines.h"

/* Tokens are 63 bits wide, since they also travel as JSON numbers; 0 is none. */
static uint64_t session_create(struct core *c)
{
    return (env_random_u64(c->env) >> 1) | 1;
}

/* ---- the stages of a generation
 * ------------------------------------------------------------------------------ */

void stages_free(struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++) {
        free(d->stages[i].wanted);
        free(d->stages[i].asked);
    }
    free(d->stages);
    d->stages = NULL;
    d->n_stages = 0;
}

int stages_adopt(struct core *c, struct deployment *d, const struct placement *p, struct err *e)
{
    if (p) {
        struct deployment_stage *stages = calloc((size_t)p->n_stages, sizeof *stages);
        if (!stages)
            return err_set(e, HP_ENOMEM, "no memory for %d stages", p->n_stages);
        for (int i = 0; i < p->n_stages; i++)
            stages[i] = (struct deployment_stage){.agent = p->stages[i].agent,
                                                  .first_layer = p->stages[i].first_layer,
                                                  .end_layer = p->stages[i].end_layer,
                                                  .compute_s = p->stages[i].compute_s,
                                                  .memory_bytes = p->stages[i].memory_bytes};
        stages_free(d);
        d->stages = stages;
        d->n_stages = p->n_stages;
        json_decref(d->plan);
        d->plan = json_incref(p->document);
        d->plan_tokens = (uint64_t)p->tokens;
        d->context = p->context;
        d->max_sequences = p->max_sequences;
        d->kv_tokens = (p->context + DEPLOYMENT_KV_ROUND - 1) / DEPLOYMENT_KV_ROUND *
                       DEPLOYMENT_KV_ROUND * p->sequences;
        d->max_batch_tokens = deployment_batch_tokens(&d->spec);
    }
    d->generation++;
    d->session = session_create(c);
    for (int i = 0; i < d->n_stages; i++)
        d->stages[i].input_session = d->n_stages > 1 ? session_create(c) : 0;
    return 0;
}

struct deployment_stage *stages_of_member(struct deployment *d, const struct member *m)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].agent == m)
            return &d->stages[i];
    return NULL;
}

bool stages_all_here(const struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].status != STAGE_HERE || !member_present(d->stages[i].agent))
            return false;
    return d->n_stages > 0;
}

/* ---- orders
 * ------------------------------------------------------------------------------------------------------
 */

static struct digest model_digest(const struct deployment *d)
{
    struct digest id = {{0}};
    int rc = digest_from_hex(d->model->id, &id, NULL);
    assert(rc == 0);
    return id;
}

static void grant(struct core *c, const struct deployment *d, const struct member *m,
                  uint64_t session, bool revoke)
{
    struct digest id = model_digest(d);
    struct message g = {.type = MESSAGE_CHUNK_GRANT};
    g.u.chunk_grant = (struct message_chunk_grant){session, {id.bytes, sizeof id.bytes}, revoke};
    core_say(c, m->peer, &g);
}

/* Other agents whose stores hold some of the model; they are told to answer frames with this
 * generation's token. */
static size_t peers_of(struct core *c, const struct deployment *d, const struct member *self,
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
        grant(c, d, m, d->session, false);
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
    return d->plan_tokens ? sum / (double)d->plan_tokens : 0;
}

static void stage_prepare(struct core *c, struct deployment *d, int i)
{
    struct deployment_stage *s = &d->stages[i];
    uint8_t key[KEY_BYTES];
    struct message_peer peers[32];
    struct digest id = model_digest(d);
    struct message m = {.type = MESSAGE_STAGE_PREPARE};
    m.u.stage_prepare = (struct message_stage_prepare){
        .deployment = d->id,
        .generation = d->generation,
        .stage = (uint64_t)i,
        .n_stages = (uint64_t)d->n_stages,
        .session = d->session,
        .input_session = s->input_session,
        .input_from = sender_key(d, i, key),
        .deployment_name = d->name,
        .model = {id.bytes, sizeof id.bytes},
        .manifest = {d->model->manifest, d->model->manifest_size},
        .first_layer = (uint64_t)s->first_layer,
        .end_layer = (uint64_t)s->end_layer,
        .compute = d->spec.f32 ? "f32" : "auto",
        .context = d->context,
        .kv_tokens = d->kv_tokens,
        .max_sequences = d->max_sequences,
        .max_batch_tokens = d->max_batch_tokens,
        .source_machine = d->spec.source_machine,
        .source_path = d->spec.source_path,
        .upload_only = d->spec.upload_only,
        .stands_for = d->spec.micro_batches > 0 ? costs_stands_for(c, d) : 0,
        .planned_s_per_token = d->plan_tokens ? s->compute_s / (double)d->plan_tokens : 0,
        .planned_trip_s_per_token = planned_trip_s_per_token(d),
    };
    m.u.stage_prepare.peers =
        (struct pack_list){peers, peers_of(c, d, s->agent, peers, sizeof peers / sizeof *peers)};
    core_say(c, s->agent->peer, &m);
    s->status = STAGE_WORKING;
    s->told_ns = s->progress_ns = core_now(c);
    core_text_set(s->word, sizeof s->word, "waiting");
}

void stages_prepare(struct core *c, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        if (d->stages[i].status == STAGE_UNTOLD && member_present(d->stages[i].agent))
            stage_prepare(c, d, i);
}

void stages_connect(struct core *c, struct deployment *d)
{
    const struct member *first = d->stages[0].agent;
    for (int i = 0; i < d->n_stages; i++) {
        bool last = i == d->n_stages - 1;
        const struct member *next = last ? NULL : d->stages[i + 1].agent;
        struct message m = {.type = MESSAGE_STAGE_CONNECT};
        m.u.stage_connect = (struct message_stage_connect){.deployment = d->id,
                                                           .generation = d->generation,
                                                           .stage = (uint64_t)i,
                                                           .n_stages = (uint64_t)d->n_stages};
        m.u.stage_connect.next_device = next ? costs_paced_as(next) : "";
        m.u.stage_connect.first_device = last && d->n_stages > 1 ? costs_paced_as(first) : "";
        m.u.stage_connect.next_session = last ? 0 : d->stages[i + 1].input_session;
        m.u.stage_connect.first_session = last ? d->stages[0].input_session : 0;
        if (next)
            m.u.stage_connect.next_address = (struct pack_span){next->address, next->address_size};
        if (last && d->n_stages > 1)
            m.u.stage_connect.first_address =
                (struct pack_span){first->address, first->address_size};
        core_say(c, d->stages[i].agent->peer, &m);
    }
}

void stages_unload(struct core *c, const struct member *m, uint64_t deployment, uint64_t generation)
{
    struct message u = {.type = MESSAGE_STAGE_UNLOAD};
    u.u.stage_unload = (struct message_stage_unload){deployment, generation};
    core_say(c, m->peer, &u);
}

void stages_stop(struct core *c, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++)
        d->stages[i].status = STAGE_UNTOLD;
    for (size_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];
        struct deployment_stage *s = stages_of_member(d, m);
        bool holds = s != NULL;
        for (size_t k = 0; k < m->n_held; k++)
            holds = holds || m->held[k].deployment == d->id;
        if (!holds || !member_present(m))
            continue;
        stages_unload(c, m, d->id, d->generation);
        if (s)
            s->status = STAGE_WORKING; /* until it says "unloaded" */
    }
}

/* ---- uploads
 * --------------------------------------------------------------------------------------------------------
 */

/* What an agent wants and nobody has been asked for yet. Both lists are sorted, so one walk
 * compares them. */
static json_t *chunks_to_ask(struct deployment_stage *s)
{
    json_t *chunks = json_array();
    size_t a = 0;
    for (size_t i = 0; i < s->n_wanted; i++) {
        while (a < s->n_asked && s->asked[a] < s->wanted[i])
            a++;
        if (a == s->n_asked || s->asked[a] != s->wanted[i])
            json_array_append_new(chunks, json_integer(s->wanted[i]));
    }
    return chunks;
}

static void asked_set(struct deployment_stage *s)
{
    uint32_t *copy = malloc((s->n_wanted + 1) * sizeof *copy);
    if (!copy) { /* they are asked for twice, which costs no more than the bytes */
        s->n_asked = 0;
        return;
    }
    memcpy(copy, s->wanted, s->n_wanted * sizeof *copy);
    free(s->asked);
    s->asked = copy;
    s->n_asked = s->n_wanted;
}

static json_t *hex_of(const uint8_t *bytes, size_t size)
{
    char *text = malloc(2 * size + 1);
    if (!text)
        return NULL;
    for (size_t i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    text[2 * size] = 0;
    json_t *hex = json_string(text);
    free(text);
    return hex;
}

static void upload_ask(struct core *c, struct deployment *d, struct deployment_stage *s)
{
    uint64_t now = core_now(c);
    if (now - s->progress_ns > core_ms(DEPLOYMENT_UPLOAD_MS)) {
        s->n_asked = 0;
        s->progress_ns = now;
    }
    json_t *chunks = chunks_to_ask(s);
    if (json_array_size(chunks) == 0) {
        json_decref(chunks);
        return;
    }
    if (!s->upload_session)
        s->upload_session = session_create(c);
    grant(c, d, s->agent, s->upload_session, false);
    asked_set(s);
    json_t *target = json_pack("{s:s, s:o, s:o}", "agent", s->agent->name, "address",
                               hex_of(s->agent->address, s->agent->address_size), "chunks", chunks);
    core_answer(c, d->listener_peer, d->listener_ask, true,
                json_pack("{s:s, s:I, s:[o]}", "phase", "upload", "session",
                          (json_int_t)s->upload_session, "targets", target));
}

bool stages_upload(struct core *c, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++) {
        struct deployment_stage *s = &d->stages[i];
        if (s->n_wanted == 0 || s->status != STAGE_WORKING)
            continue;
        if (!d->listener_ask)
            return false;
        upload_ask(c, d, s);
    }
    return true;
}

void stages_uploads_end(struct core *c, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++) {
        struct deployment_stage *s = &d->stages[i];
        if (s->upload_session)
            grant(c, d, s->agent, s->upload_session, true);
        s->upload_session = 0;
        s->n_asked = 0;
    }
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        for (size_t k = 0; k < m->n_models; k++)
            if (strcmp(m->models[k].id, d->model->id) == 0)
                grant(c, d, m, d->session,
                      true); /* a stage of this generation goes on using the token */
    }
}

/* ---- what agents say
 * ----------------------------------------------------------------------------------------------------
 */

void stages_tell(struct core *c, struct deployment *d, bool now)
{
    if (!d->listener_ask || (!now && core_now(c) - d->told_ns < core_ms(DEPLOYMENT_PROGRESS_MS)))
        return;
    d->told_ns = core_now(c);
    core_answer(c, d->listener_peer, d->listener_ask, true,
                json_pack("{s:s, s:s, s:o}", "phase", "prepare", "name", d->name, "stages",
                          deployment_stages_describe(d)));
}

static void stage_failed(struct core *c, struct deployment *d, const struct member *m,
                         const struct message_stage_state *s)
{
    struct err e = {0};
    err_set(&e, core_failure_code(s->code), "agent \"%s\" %s: %s", m->name,
            d->state == DEPLOYMENT_PREPARING ? "could not prepare its stage" : "lost its stage",
            s->text);
    if (s->hint && s->hint[0])
        err_hint(&e, "%s", s->hint);
    if (d->state == DEPLOYMENT_PREPARING)
        deployment_fail(c, d, &e);
    else
        deployment_break(c, d, &e);
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void stage_told(struct core *c, struct deployment *d, struct deployment_stage *stage,
                       const struct message_stage_state *s)
{
    bool turned = strcmp(stage->word, s->state) != 0;
    if (turned || s->done_bytes != stage->done_bytes || s->wanted.count != stage->n_wanted)
        stage->progress_ns = core_now(c);
    core_text_set(stage->word, sizeof stage->word, s->state);
    stage->done_bytes = s->done_bytes;
    stage->total_bytes = s->total_bytes;
    if (s->moved_bytes > stage->moved_bytes)
        stage->moved_bytes = s->moved_bytes;
    uint32_t *wanted = realloc(stage->wanted, (s->wanted.count + 1) * sizeof *wanted);
    if (!wanted)
        return; /* its next word says it again */
    if (s->wanted.count)
        memcpy(wanted, s->wanted.items, s->wanted.count * sizeof *wanted);
    qsort(wanted, s->wanted.count, sizeof *wanted, by_number);
    stage->wanted = wanted;
    stage->n_wanted = s->wanted.count;
    if (strcmp(s->state, "ready") == 0) {
        if (stage->status != STAGE_HERE)
            log_info("coordinator", "stage_ready",
                     "deployment=%s generation=%llu agent=%s layers=%d-%d moved_bytes=%llu",
                     d->name, (unsigned long long)d->generation, stage->agent->name,
                     stage->first_layer, stage->end_layer - 1,
                     (unsigned long long)stage->moved_bytes);
        stage->status = STAGE_HERE;
    }
    stages_tell(c, d, turned);
}

void stages_state(struct core *c, struct member *m, const struct message_stage_state *s)
{
    struct deployment *d = deployment_of_id(c, s->deployment);
    struct deployment_stage *stage = d ? stages_of_member(d, m) : NULL;
    bool unloaded = strcmp(s->state, "unloaded") == 0;
    if (stage && unloaded && d->state == DEPLOYMENT_STOPPING) {
        stage->status = STAGE_UNTOLD;
        return;
    }
    if (!stage || unloaded || s->generation != d->generation ||
        s->stage != (uint64_t)(stage - d->stages) ||
        (d->state != DEPLOYMENT_PREPARING && d->state != DEPLOYMENT_SERVING)) {
        c->counts.stale += !unloaded;
        return;
    }
    if (strcmp(s->state, "failed") == 0)
        stage_failed(c, d, m, s);
    else
        stage_told(c, d, stage, s);
}

static const struct member_held *held_find(const struct deployment *d, const struct member *m)
{
    const struct deployment_stage *s = stages_of_member((struct deployment *)d, m);
    for (size_t i = 0; s && i < m->n_held; i++)
        if (m->held[i].deployment == d->id && m->held[i].generation == d->generation &&
            m->held[i].stage == (uint64_t)(s - d->stages))
            return &m->held[i];
    return NULL;
}

/* One deployment against what a heartbeat shows. Orders that are still on their way are given time.
 */
static void held_compare(struct core *c, struct deployment *d, struct member *m,
                         struct deployment_stage *s)
{
    const struct member_held *h = held_find(d, m);
    bool ready = h && strcmp(h->state, "ready") == 0;
    if (h)
        sequence_deadline_stage(c, s, h);
    s->hop_heard |= h && h->hop_heard && h->generation == d->generation;
    uint64_t now = core_now(c), last = s->told_ns > m->joined_ns ? s->told_ns : m->joined_ns;
    bool settled = now - last > core_ms(DEPLOYMENT_SETTLE_MS) &&
                   now - d->since_ns > core_ms(DEPLOYMENT_SETTLE_MS);
    if (d->state == DEPLOYMENT_PREPARING && s->status == STAGE_WORKING) {
        if (ready)
            s->status = STAGE_HERE;
        else if (!h && settled)
            s->status = STAGE_UNTOLD;
    } else if (d->state == DEPLOYMENT_SERVING && !ready && settled) {
        struct err e = {0};
        err_set(&e, HP_ELINK, "agent \"%s\" does not hold its stage of \"%s\" any more", m->name,
                d->name);
        deployment_break(c, d, &e);
    } else if (d->state == DEPLOYMENT_STOPPING && !h) {
        s->status = STAGE_UNTOLD;
    }
}

/* Stages that no plan has: of a deployment that is gone, or of an older generation of one that
 * serves elsewhere. */
static void held_sweep(struct core *c, struct member *m)
{
    for (size_t i = 0; i < m->n_held; i++) {
        const struct member_held *h = &m->held[i];
        struct deployment *d = deployment_of_id(c, h->deployment);
        bool old = d && d->state == DEPLOYMENT_SERVING && !stages_of_member(d, m) &&
                   h->generation <= d->generation;
        if (!d || old || d->state == DEPLOYMENT_STOPPING)
            stages_unload(c, m, h->deployment, h->generation);
    }
}

void stages_held(struct core *c, struct member *m)
{
    for (size_t i = 0; i < c->n_deployments; i++) {
        struct deployment_stage *s = stages_of_member(c->deployments[i], m);
        if (s)
            held_compare(c, c->deployments[i], m, s);
    }
    held_sweep(c, m);
}

void stages_joined(struct core *c, struct deployment *d, struct deployment_stage *s)
{
    struct member *m = s->agent;
    const struct member_held *h = held_find(d, m);
    bool ready = h && strcmp(h->state, "ready") == 0;
    if (d->state == DEPLOYMENT_PREPARING) {
        s->status = ready ? STAGE_HERE : STAGE_UNTOLD;
    } else if (d->state == DEPLOYMENT_READY && ready) {
        stages_connect(c, d);
    } else if (d->state == DEPLOYMENT_SERVING && ready) {
        /* The same process over a new connection: what was said meanwhile may be lost, so its
         * sequences are; its weights are not. */
        struct err e = {0};
        err_set(&e, HP_ELINK, "the connection to agent \"%s\" was lost for a moment", m->name);
        sequences_fail_all(c, d, false, &e);
        stages_connect(c, d);
    } else if (d->state == DEPLOYMENT_SERVING || d->state == DEPLOYMENT_READY) {
        struct err e = {0};
        err_set(&e, HP_ELINK, "agent \"%s\" was restarted", m->name);
        deployment_break(c, d, &e);
    }
}
