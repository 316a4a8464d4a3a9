/* Owns the jobs of the store: a stage's chunks, brought here from this box, its peers or an upload.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/store_worker_int.h"
#include "common/env.h"
#include "common/log.h"
#include "model/model.h"

static const uint64_t report_gap_ns = 200000000;

/* ---- reports ---- */

void store_models_tell(struct store_worker *w, uint64_t ticket, int status, const struct err *error)
{
    struct store_entry entry;
    struct message_model *models = NULL;
    uint8_t(*ids)[DIGEST_BYTES] = NULL;
    size_t n = 0;
    while (weight_store_entry(w->store, n, &entry))
        n++;
    models = calloc(n + 1, sizeof *models);
    ids = calloc(n + 1, sizeof *ids);
    bool known = models && ids;
    for (size_t i = 0; known && weight_store_entry(w->store, i, &entry); i++) {
        memcpy(ids[i], entry.id.bytes, DIGEST_BYTES);
        models[i] = (struct message_model){{ids[i], DIGEST_BYTES}, entry.bytes, entry.name};
    }
    w->config.report(w->config.ctx, &(struct store_report){.kind = STORE_CHANGED,
                                                           .ticket = ticket,
                                                           .status = status,
                                                           .error = error,
                                                           .models = {models, known ? n : 0},
                                                           .models_unknown = !known});
    free(models);
    free(ids);
}

static void job_report(struct store_worker *w, struct store_job *j, int status,
                       const struct err *error)
{
    struct store_report r = {.kind = STORE_FETCHED,
                             .slot = j->slot,
                             .ticket = j->ticket,
                             .status = status,
                             .error = error,
                             .moved_bytes = j->moved_bytes};
    if (j->fetch) {
        r.done_bytes = fetch_done_bytes(j->fetch);
        r.total_bytes = fetch_total_bytes(j->fetch);
        r.wanted.items = fetch_wanted(j->fetch, &r.wanted.count);
        j->told_wanted = r.wanted.count;
        if (status == HP_PENDING && r.wanted.count && j->lost.code)
            r.error = &j->lost;
    }
    if (status == 0)
        r.path = store_model_path(j->model);
    j->told_ns = env_now_ns(&env_real);
    w->config.report(w->config.ctx, &r);
}

/* ---- jobs ---- */

static void job_end(struct store_worker *w, struct store_job *j, int status,
                    const struct err *error)
{
    struct err e = {0};
    if (status == 0 && (status = weight_store_sync(w->store, &e)) < 0)
        error = &e;
    job_report(w, j, status, error);
    fetch_destroy(&j->fetch);
    chunk_index_free(&j->index);
    store_models_tell(w, 0, 0, NULL);
}

static void job_free(struct store_worker *w, struct store_job *j)
{
    fetch_destroy(&j->fetch);
    chunk_index_free(&j->index);
    if (j->model)
        weight_store_release(w->store, j->model);
    message_ref_release(j->prepare);
    free(j);
}

void store_job_drop(struct store_worker *w, uint64_t slot)
{
    for (struct store_job **at = &w->jobs; *at; at = &(*at)->next)
        if ((*at)->slot == slot) {
            struct store_job *gone = *at;
            *at = gone->next;
            job_free(w, gone);
            return;
        }
}

struct range_marks {
    const struct manifest *manifest;
    uint8_t *needed; /* bit of every chunk */
};

static size_t chunk_from(const struct manifest *m, uint64_t file, uint64_t offset)
{
    const struct manifest_chunk *chunks = m->chunks.items;
    size_t low = 0, high = m->chunks.count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (chunks[mid].file < file ||
            (chunks[mid].file == file && chunks[mid].offset + chunks[mid].bytes <= offset))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void weight_mark(void *ctx, const struct weight *w)
{
    struct range_marks *r = ctx;
    const struct manifest_chunk *chunks = r->manifest->chunks.items;
    uint64_t file = (uint64_t)w->file, end = w->offset + w->bytes;
    for (size_t i = chunk_from(r->manifest, file, w->offset);
         i < r->manifest->chunks.count && chunks[i].file == file && chunks[i].offset < end; i++)
        r->needed[i / 8] |= (uint8_t)(1u << i % 8);
    if (w->scales)
        weight_mark(ctx, w->scales);
}

/* Which chunks the stage's layers lie in, by opening the sparse copy; NULL: all, of a network. */
static int chunks_needed(struct store_job *j, uint8_t **needed, struct err *e)
{
    const struct message_stage_prepare *p = &j->prepare->message.u.stage_prepare;
    const struct manifest *manifest = store_model_manifest(j->model);
    struct model *model;
    if (p->share.count > 0)
        return 0;
    int rc = model_open_divided(store_model_path(j->model), (int)p->expert_groups, &model, e);
    if (rc < 0)
        return rc;
    int n_layers = model_graph(model)->n_layers;
    *needed = calloc(manifest->chunks.count / 8 + 1, 1);
    if (p->end_layer > (uint64_t)n_layers)
        rc = err_set(e, HP_EINVAL, "layers %llu to %llu of a model with %d",
                     (unsigned long long)p->first_layer, (unsigned long long)p->end_layer - 1,
                     n_layers);
    else if (!*needed)
        rc = err_set(e, HP_ENOMEM, "no memory to fetch a stage");
    struct range_marks marks = {manifest, *needed};
    if (rc == 0 && !p->keeps)
        model_layers_weights(model, (int)p->first_layer, (int)p->end_layer, weight_mark, &marks);
    model_close(&model);
    return rc;
}

static int fetch_begin(struct store_job *j, struct err *e)
{
    const struct manifest *manifest = store_model_manifest(j->model);
    const struct manifest_chunk *chunks = manifest->chunks.items;
    uint8_t *needed = NULL;
    int rc = chunks_needed(j, &needed, e);
    uint32_t *list = calloc(manifest->chunks.count + 1, sizeof *list),
             *bytes = calloc(manifest->chunks.count + 1, sizeof *bytes);
    if (rc == 0 && (!list || !bytes))
        rc = err_set(e, HP_ENOMEM, "no memory to fetch a stage");
    size_t n = 0;
    for (uint32_t i = 0; rc == 0 && i < manifest->chunks.count; i++)
        if (!needed || needed[i / 8] >> i % 8 & 1) {
            list[n] = i;
            bytes[n++] = (uint32_t)chunks[i].bytes;
        }
    if (rc == 0)
        rc = fetch_create(list, bytes, n, (int)j->prepare->message.u.stage_prepare.peers.count,
                          &j->fetch, e);
    free(list);
    free(bytes);
    free(needed);
    return rc;
}

bool store_job_start(struct store_worker *w, uint64_t slot, uint64_t ticket,
                     struct message_ref *prepare)
{
    struct err e = {0};
    struct store_job *j = calloc(1, sizeof *j);
    if (!j)
        return false;
    j->slot = slot;
    j->ticket = ticket;
    j->secret = (uint32_t)(env_random_u64(&env_real) % (UINT32_MAX / FETCH_MAX_PEERS - 1)) +
                1; /* never 0, nor near UINT32_MAX: an upload's marks */
    j->prepare = message_ref_hold(prepare);
    j->next = w->jobs;
    w->jobs = j;
    const struct message_stage_prepare *p = &j->prepare->message.u.stage_prepare;
    struct digest id = manifest_id(p->manifest.data, p->manifest.size);
    int rc = 0;
    if (p->model.size != DIGEST_BYTES || memcmp(id.bytes, p->model.data, DIGEST_BYTES) != 0)
        rc = err_set(&e, HP_ECORRUPT, "the manifest is not that of the model that was named");
    rc = rc < 0 ? rc
                : weight_store_hold(w->store, p->manifest.data, p->manifest.size, &j->model, &e);
    rc = rc < 0 ? rc : chunk_index_make(store_model_manifest(j->model), &j->index, &e);
    rc = rc < 0 ? rc : fetch_begin(j, &e);
    if (rc < 0) {
        job_end(w, j, rc, &e);
        return true;
    }
    j->use_path =
        p->source_path[0] && !p->upload_only && strcmp(p->source_machine, w->config.machine) == 0;
    if (j->use_path && w->config.borrows && weight_store_borrow(j->model, p->source_path, &e) < 0)
        log_warn("store", "not_borrowed", "action=copied text=\"%s\"", e.text);
    if (fetch_is_done(j->fetch))
        job_end(w, j, 0, NULL);
    else
        job_report(w, j, HP_PENDING, NULL);
    return true;
}

/* One chunk from this box, if that has not been tried for all: true when there may be more to do at
 * once. */
static bool job_step_local(struct store_worker *w, struct store_job *j)
{
    uint32_t chunk;
    struct err e = {0};
    if (!fetch_local_next(j->fetch, &chunk))
        return false;
    int rc = weight_store_check(w->store, j->model, chunk, &e);
    if (rc == HP_ECORRUPT || rc == HP_EIO) {
        log_warn("store", rc == HP_EIO ? "chunk_unread" : "chunk_rotten",
                 "action=fetched_again text=\"%s\"", e.text);
        j->lost = j->lost.code ? j->lost : e;
    }
    if (rc == HP_ENOENT || rc == HP_ECORRUPT || rc == HP_EIO)
        rc = weight_store_copy(w->store, j->model, chunk, &e);
    if (rc == HP_ENOENT && j->use_path)
        rc = weight_store_import(w->store, j->model, chunk,
                                 j->prepare->message.u.stage_prepare.source_path, &e);
    if (rc == 0)
        fetch_arrived(j->fetch, chunk, -1, env_now_ns(&env_real));
    else if (rc == HP_ENOENT || rc == HP_ECORRUPT)
        fetch_not_here(j->fetch, chunk);
    else
        job_end(w, j, rc, &e);
    return true;
}

/* ---- asking peers: `batch` of a WANT is the peer's number below the job's secret, and comes back
 * in the answers ---- */

static uint32_t ask_mark(const struct store_job *j, int peer)
{
    return j->secret * FETCH_MAX_PEERS + (uint32_t)peer;
}

/* Which peer of the job a chunk answers for; -1: none (an upload, another job's, a stranger's). */
static int answer_peer(const struct store_job *j, const struct frame_header *h)
{
    int peer = (int)(h->batch % FETCH_MAX_PEERS);
    const struct message_stage_prepare *p = &j->prepare->message.u.stage_prepare;
    return h->session == p->session && h->batch == ask_mark(j, peer) &&
                   (size_t)peer < p->peers.count
               ? peer
               : -1;
}

static int want_post(struct store_worker *w, struct store_job *j, int peer, const uint32_t *chunks,
                     size_t n, struct err *e)
{
    const struct message_stage_prepare *p = &j->prepare->message.u.stage_prepare;
    const struct message_peer *to = (const struct message_peer *)p->peers.items + peer;
    struct store_link *link;
    int rc = store_links_get(&w->links, to->data_address.data, to->data_address.size, &link, e);
    if (rc < 0)
        return rc;
    size_t address_size;
    const uint8_t *address = data_address(w->config.data, &address_size);
    size_t size = sizeof(uint32_t) + n * DIGEST_BYTES + address_size;
    struct data_buffer *b = data_buffer_get(w->config.data, size);
    if (!b)
        return err_set(e, HP_EBUSY, "no buffer to ask a peer for chunks");
    uint32_t count = (uint32_t)n;
    memcpy(b->bytes, &count, sizeof count);
    for (size_t i = 0; i < n; i++) {
        const struct manifest_chunk *c =
            (const struct manifest_chunk *)store_model_manifest(j->model)->chunks.items + chunks[i];
        memcpy(b->bytes + sizeof count + i * DIGEST_BYTES, c->digest.data, DIGEST_BYTES);
    }
    memcpy(b->bytes + sizeof count + n * DIGEST_BYTES, address, address_size);
    b->size = size;
    struct frame_header h = {.kind = FRAME_CHUNK_WANT,
                             .dtype = FRAME_BYTES,
                             .session = p->session,
                             .deployment = p->deployment,
                             .generation = (uint32_t)p->generation,
                             .batch = ask_mark(j, peer)};
    data_post(link->link, &h, b, NULL, NULL);
    return 0;
}

/* Asks one peer for some chunks: true when there may be more to ask at once. */
static bool job_step_ask(struct store_worker *w, struct store_job *j)
{
    uint32_t chunks[FETCH_ASK_CHUNKS];
    struct err e = {0};
    int peer;
    size_t n = fetch_ask(j->fetch, env_now_ns(&env_real), &peer, chunks);
    if (!n)
        return false;
    int rc = want_post(w, j, peer, chunks, n, &e);
    if (rc == 0)
        return true;
    if (rc == HP_EBUSY || rc == HP_ENOMEM) {
        fetch_unask(j->fetch, peer, chunks, n); /* the peer is as good as before: later */
        return false;
    }
    log_warn_limited("store", "peer_unreachable", "text=\"%s\"", e.text);
    fetch_peer_lost(j->fetch, peer);
    return true;
}

static bool chunk_is_here(const void *ctx, uint32_t chunk)
{
    return store_model_has(ctx, chunk);
}

/* Something for one job; true when it is worth coming back at once. */
bool store_job_step(struct store_worker *w, struct store_job *j)
{
    bool more = job_step_local(w, j);
    if (j->fetch)
        more = job_step_ask(w, j) || more;
    if (!j->fetch)
        return false;
    fetch_tick(j->fetch, env_now_ns(&env_real));
    size_t wanted;
    fetch_wanted(j->fetch, &wanted);
    if (fetch_is_done(j->fetch) && fetch_recheck(j->fetch, chunk_is_here, j->model) > 0)
        return true;
    if (fetch_is_done(j->fetch))
        job_end(w, j, 0, NULL);
    else if (env_now_ns(&env_real) - j->told_ns >= report_gap_ns &&
             (more || wanted != j->told_wanted ||
              env_now_ns(&env_real) - j->told_ns >= 10 * report_gap_ns))
        job_report(w, j, HP_PENDING, NULL);
    else if (wanted && !j->told_wanted)
        job_report(w, j, HP_PENDING, NULL);
    return more;
}

/* ---- frames ---- */

static void job_chunk_in(struct store_worker *w, struct store_job *j, const struct frame_header *h,
                         const uint8_t *digest, const uint8_t *bytes, size_t size)
{
    int peer = answer_peer(j, h);
    bool took = false;
    const uint32_t *chunks;
    size_t n = chunk_index_find(&j->index, digest, &chunks);
    for (size_t i = 0; i < n && j->fetch; i++) {
        struct err e = {0};
        int rc =
            size ? weight_store_put(w->store, j->model, chunks[i], bytes, size, &e) : HP_ENOENT;
        if (rc == 0) {
            fetch_arrived(j->fetch, chunks[i], peer, env_now_ns(&env_real));
            took = true;
        } else if (rc == HP_ENOENT || rc == HP_ECORRUPT) {
            if (rc == HP_ECORRUPT)
                log_warn_limited("store", "chunk_corrupt", "text=\"%s\"", e.text);
            fetch_refused(j->fetch, chunks[i], peer, env_now_ns(&env_real));
        } else {
            job_end(w, j, rc, &e);
        }
    }
    j->moved_bytes += took ? size : 0;
}

void store_chunk_in(struct store_worker *w, const struct frame_header *h,
                    const struct data_buffer *b)
{
    if (!b || b->size < DIGEST_BYTES || b->size > DIGEST_BYTES + (size_t)MANIFEST_CHUNK_BYTES)
        return;
    /* Its digest says what it is: other deployments of the model may wait for it as well, whoever
     * asked. */
    for (struct store_job *j = w->jobs; j; j = j->next)
        if (j->fetch)
            job_chunk_in(w, j, h, b->bytes, b->bytes + DIGEST_BYTES, b->size - DIGEST_BYTES);
}

/* A link of ours broke: whoever is asked over it will not answer. */
void store_job_link_down(struct store_worker *w, uint64_t number)
{
    struct store_link *l = store_links_find(&w->links, number);
    if (!l)
        return;
    l->down = true;
    for (struct store_job *j = w->jobs; j; j = j->next) {
        const struct message_peer *peers = j->prepare->message.u.stage_prepare.peers.items;
        for (size_t k = 0; j->fetch && k < j->prepare->message.u.stage_prepare.peers.count; k++)
            if (peers[k].data_address.size == l->size &&
                memcmp(peers[k].data_address.data, l->address, l->size) == 0)
                fetch_peer_lost(j->fetch, (int)k);
    }
}
