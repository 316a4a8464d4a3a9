/* Owns which models are kept, the index over their chunks, and the limit. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "agent/store_int.h"
#include "common/fs.h"
#include "common/log.h"

enum { SYNC_BYTES = 64 << 20 };

/* A place of a chunk: open addressing by the digest's first bytes. */
struct place {
    struct store_model *model; /* NULL: free */
    uint32_t chunk;
};

struct weight_store {
    char folder[STORE_PATH_MAX], models_folder[STORE_PATH_MAX];
    uint64_t limit_bytes, unsynced_bytes;
    int lock_fd;
    struct store_model *models;
    struct place *index;
    size_t index_size, index_used; /* size is a power of two */
    uint8_t *scratch;              /* one chunk */
};

/* ---- the index ---- */

static size_t place_first(const struct weight_store *s, const uint8_t *digest)
{
    uint64_t h;
    memcpy(&h, digest, sizeof h);
    return (size_t)h & (s->index_size - 1);
}

static struct place *place_find(const struct weight_store *s, const uint8_t *digest)
{
    if (!s->index_size)
        return NULL;
    size_t i = place_first(s, digest);
    while (s->index[i].model &&
           memcmp(store_chunk(s->index[i].model, s->index[i].chunk)->digest.data, digest,
                  DIGEST_BYTES) != 0)
        i = (i + 1) & (s->index_size - 1);
    return &s->index[i];
}

static int index_add(struct weight_store *s, struct store_model *m, uint32_t chunk);

/* Makes it anew with room for twice as many; what is in no model any more is gone by that. */
static int index_rebuild(struct weight_store *s)
{
    size_t n = 0, size = 1024;
    for (struct store_model *m = s->models; m; m = m->next)
        n += m->manifest.chunks.count;
    while (size < 2 * n)
        size *= 2;
    struct place *index = calloc(size, sizeof *index);
    if (!index)
        return HP_ENOMEM;
    free(s->index);
    s->index = index;
    s->index_size = size;
    s->index_used = 0;
    for (struct store_model *m = s->models; m; m = m->next)
        for (uint32_t i = 0; i < m->manifest.chunks.count; i++)
            if (store_model_has(m, i))
                index_add(s, m, i);
    return 0;
}

static int index_add(struct weight_store *s, struct store_model *m, uint32_t chunk)
{
    if (2 * (s->index_used + 1) > s->index_size)
        return index_rebuild(s); /* which adds this one too */
    struct place *p = place_find(s, store_chunk(m, chunk)->digest.data);
    s->index_used += p->model == NULL;
    *p = (struct place){m, chunk};
    return 0;
}

/* Without memory for a new index the old one would point at what is gone: better none. */
static void index_renew(struct weight_store *s)
{
    if (index_rebuild(s) == 0)
        return;
    free(s->index);
    s->index = NULL;
    s->index_size = s->index_used = 0;
}

/* ---- models ---- */

static void model_link(struct weight_store *s, struct store_model *m)
{
    m->next = s->models;
    s->models = m;
}

static uint64_t bytes_held(const struct weight_store *s)
{
    uint64_t bytes = 0;
    for (const struct store_model *m = s->models; m; m = m->next)
        bytes += m->head_bytes + m->chunk_bytes;
    return bytes;
}

static void model_remove(struct weight_store *s, struct store_model *m)
{
    assert(m->holds == 0);
    struct store_model **at = &s->models;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    char hex[DIGEST_HEX];
    digest_hex(&m->id, hex);
    log_info("store", "model_removed", "model=%.16s name=\"%s\" bytes=%llu", hex, m->manifest.name,
             (unsigned long long)m->chunk_bytes);
    store_folder_remove(m->folder);
    index_renew(s);
    store_model_free(&m);
}

static bool evict_one(struct weight_store *s)
{
    struct store_model *oldest = NULL;
    for (struct store_model *m = s->models; m; m = m->next)
        if (!m->holds && (!oldest || m->used_ns < oldest->used_ns))
            oldest = m;
    if (oldest)
        model_remove(s, oldest);
    return oldest != NULL;
}

static int room_make(struct weight_store *s, uint64_t bytes, struct err *e)
{
    while (s->limit_bytes && bytes_held(s) + bytes > s->limit_bytes)
        if (!evict_one(s)) {
            err_set(e, HP_ENOSPACE,
                    "the weight store %s is full: it holds %llu bytes in use of the %llu that it "
                    "may, and %llu more are needed",
                    s->folder, (unsigned long long)bytes_held(s),
                    (unsigned long long)s->limit_bytes, (unsigned long long)bytes);
            err_hint(e, "raise --store-limit of this agent, or undeploy a model there");
            return HP_ENOSPACE;
        }
    return 0;
}

static int models_read(struct weight_store *s, struct err *e)
{
    DIR *d = opendir(s->models_folder);
    if (!d)
        return err_set(e, HP_EIO, "%s: %s", s->models_folder, strerror(errno));
    struct dirent *entry;
    int rc = 0;
    while (rc == 0 && (entry = readdir(d)) != NULL) {
        struct store_model *m;
        struct digest id;
        if (digest_from_hex(entry->d_name, &id, NULL) < 0)
            continue;
        rc = store_model_load(s->models_folder, entry->d_name, &m, e);
        if (rc == 0) {
            model_link(s, m);
        } else if (rc == HP_ECORRUPT) {
            char path[2 * STORE_PATH_MAX];
            snprintf(path, sizeof path, "%s/%s", s->models_folder, entry->d_name);
            log_warn("store", "model_broken", "folder=%s action=removed", path);
            store_folder_remove(path);
            rc = 0;
        } else if (rc == HP_EIO) {
            log_warn("store", "model_unread", "action=left text=\"%s\"", e ? e->text : "");
            rc = 0;
        }
    }
    closedir(d);
    return rc;
}

int weight_store_open(const char *folder, uint64_t limit_bytes, struct weight_store **out,
                      struct err *e)
{
    struct weight_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "no memory for the weight store");
    s->lock_fd = -1;
    s->limit_bytes = limit_bytes;
    s->scratch = malloc(MANIFEST_CHUNK_BYTES);
    char lock[STORE_PATH_MAX];
    int n = snprintf(s->models_folder, sizeof s->models_folder, "%s/models", folder);
    int rc = n < 0 || (size_t)n >= sizeof s->models_folder - 128
                 ? err_set(e, HP_EINVAL, "%s: the path is too long", folder)
                 : 0;
    if (rc == 0 && !s->scratch)
        rc = err_set(e, HP_ENOMEM, "no memory for the weight store");
    if (rc == 0)
        rc = fs_folder_make(s->models_folder, 0755, e);
    if (rc == 0) {
        snprintf(s->folder, sizeof s->folder, "%s", folder);
        snprintf(lock, sizeof lock, "%s/lock", folder);
        s->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (s->lock_fd < 0)
            rc = err_set(e, HP_EIO, "%s: %s", lock, strerror(errno));
        else if (flock(s->lock_fd, LOCK_EX | LOCK_NB) != 0)
            rc = err_set(e, HP_EBUSY, "%s: another agent uses this weight store", folder);
    }
    rc = rc < 0 ? rc : models_read(s, e);
    if (rc == 0 && index_rebuild(s) < 0)
        rc = err_set(e, HP_ENOMEM, "no memory for the index of the weight store");
    if (rc < 0)
        weight_store_close(&s);
    else
        *out = s;
    return rc;
}

void weight_store_close(struct weight_store **ps)
{
    struct weight_store *s = *ps;
    if (!s)
        return;
    weight_store_sync(s, NULL);
    while (s->models) {
        struct store_model *m = s->models;
        s->models = m->next;
        store_model_free(&m);
    }
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    free(s->index);
    free(s->scratch);
    free(s);
    *ps = NULL;
}

/* A model that could not be read before is there, maybe. */
static int model_begin(struct weight_store *s, const struct digest *id, const uint8_t *manifest,
                       size_t size, struct store_model **out, struct err *e)
{
    char hex[DIGEST_HEX];
    digest_hex(id, hex);
    int rc = store_model_load(s->models_folder, hex, out, e);
    if (rc == HP_ECORRUPT)
        rc = store_model_make(s->models_folder, manifest, size, out, e);
    while (rc == HP_ENOSPACE && evict_one(s))
        rc = store_model_make(s->models_folder, manifest, size, out, e);
    if (rc < 0)
        return rc;
    model_link(s, *out);
    index_renew(s);
    return 0;
}

static int model_renew(struct weight_store *s, struct store_model *m, struct err *e)
{
    int rc = 0;
    if (m->unread) {
        rc = store_have_read(m, e);
        index_renew(s);
    }
    return rc < 0 ? rc : store_model_mend(m, e);
}

int weight_store_hold(struct weight_store *s, const uint8_t *manifest, size_t size,
                      struct store_model **out, struct err *e)
{
    struct digest id = manifest_id(manifest, size);
    struct store_model *m = s->models;
    while (m && memcmp(m->id.bytes, id.bytes, sizeof id.bytes) != 0)
        m = m->next;
    int rc = m ? model_renew(s, m, e) : model_begin(s, &id, manifest, size, &m, e);
    if (rc < 0)
        return rc;
    m->holds++;
    store_model_touch(m);
    *out = m;
    return 0;
}

void weight_store_release(struct weight_store *s, struct store_model *m)
{
    (void)s;
    assert(m->holds > 0);
    m->holds--;
    store_model_touch(m);
}

const char *store_model_path(const struct store_model *m)
{
    return m->path;
}
const struct manifest *store_model_manifest(const struct store_model *m)
{
    return &m->manifest;
}
struct digest store_model_id(const struct store_model *m)
{
    return m->id;
}

bool store_model_has(const struct store_model *m, uint32_t chunk)
{
    return chunk < m->manifest.chunks.count && (m->have[chunk / 8] >> chunk % 8 & 1);
}

/* ---- chunks ---- */

int weight_store_put(struct weight_store *s, struct store_model *m, uint32_t chunk,
                     const uint8_t *bytes, size_t size, struct err *e)
{
    if (chunk >= m->manifest.chunks.count)
        return err_set(e, HP_EINVAL, "chunk %u of a model with %zu", chunk,
                       m->manifest.chunks.count);
    if (store_model_has(m, chunk))
        return 0;
    const struct manifest_chunk *c = store_chunk(m, chunk);
    struct digest d = digest_of(bytes, size);
    if (size != c->bytes || memcmp(d.bytes, c->digest.data, DIGEST_BYTES) != 0)
        return err_set(e, HP_ECORRUPT, "%s: chunk %u is not what its digest says", m->manifest.name,
                       chunk);
    assert(m->holds > 0); /* or it could be the one that makes room */
    int rc = room_make(s, size, e);
    if (rc < 0)
        return rc;
    rc = store_chunk_write(m, chunk, bytes, e);
    while (rc == HP_ENOSPACE && evict_one(s))
        rc = store_chunk_write(m, chunk, bytes, e);
    if (rc == HP_ENOSPACE)
        err_hint(e, "free some disk space below %s, or give this agent another --dir", s->folder);
    if (rc < 0)
        return rc;
    s->unsynced_bytes += size;
    if (index_add(s, m, chunk) < 0)
        return err_set(e, HP_ENOMEM, "no memory for the index of the weight store");
    return s->unsynced_bytes >= SYNC_BYTES ? weight_store_sync(s, e) : 0;
}

int weight_store_read(struct weight_store *s, const struct digest *digest, uint8_t *out,
                      size_t *size, struct err *e)
{
    const struct place *p = place_find(s, digest->bytes);
    if (!p || !p->model)
        return err_set(e, HP_ENOENT, "this store does not have that chunk");
    *size = store_chunk(p->model, p->chunk)->bytes;
    return store_chunk_read(p->model, p->chunk, out, e);
}

size_t weight_store_size(const struct weight_store *s, const struct digest *digest)
{
    const struct place *p = place_find(s, digest->bytes);
    return p && p->model ? store_chunk(p->model, p->chunk)->bytes : 0;
}

int weight_store_check(struct weight_store *s, struct store_model *m, uint32_t chunk, struct err *e)
{
    if (!store_model_has(m, chunk))
        return err_set(e, HP_ENOENT, "this store does not have that chunk");
    int rc = store_chunk_check(m, chunk, s->scratch, e);
    if (rc == HP_EIO)
        store_chunk_leave(m, chunk);
    else if (rc < 0)
        store_chunk_forget(m, chunk);
    if (rc < 0)
        index_renew(s);
    return rc;
}

/* Where it may come from elsewhere. */
static int unread_is_missing(int rc)
{
    return rc == HP_EIO ? HP_ENOENT : rc;
}

int weight_store_copy(struct weight_store *s, struct store_model *m, uint32_t chunk, struct err *e)
{
    if (store_model_has(m, chunk))
        return 0;
    struct digest d;
    size_t size;
    memcpy(d.bytes, store_chunk(m, chunk)->digest.data, sizeof d.bytes);
    int rc = unread_is_missing(weight_store_read(s, &d, s->scratch, &size, e));
    rc = rc < 0 ? rc : weight_store_put(s, m, chunk, s->scratch, size, e);
    if (rc != HP_ECORRUPT)
        return rc;
    /* What rotted on disk is as good as not there, and no longer said to be. */
    const struct place *rotten = place_find(s, d.bytes);
    struct store_model *where = rotten && rotten->model ? rotten->model : NULL;
    log_warn_limited("store", "chunk_rotten", "text=\"%s\"", e ? e->text : "");
    if (where) {
        store_chunk_forget(where, rotten->chunk);
        index_renew(s);
    }
    return HP_ENOENT;
}

int weight_store_import(struct weight_store *s, struct store_model *m, uint32_t chunk,
                        const char *path, struct err *e)
{
    if (store_model_has(m, chunk))
        return 0;
    const struct manifest_chunk *c = store_chunk(m, chunk);
    char file[2 * STORE_PATH_MAX];
    int n = m->manifest.folder
                ? snprintf(file, sizeof file, "%s/%s", path, store_file(m, c->file)->name)
                : snprintf(file, sizeof file, "%s", path);
    if (n < 0 || (size_t)n >= sizeof file)
        return err_set(e, HP_ENOENT, "%s: the path is too long", path);
    int rc = unread_is_missing(store_range_read(file, c->offset, s->scratch, c->bytes, e));
    return rc < 0 ? rc : weight_store_put(s, m, chunk, s->scratch, c->bytes, e);
}

int weight_store_borrow(struct store_model *m, const char *path, struct err *e)
{
    if (m->borrowed || m->chunk_bytes > 0 || m->holds > 1)
        return 0;
    return store_model_borrow(m, path, e);
}

int weight_store_sync(struct weight_store *s, struct err *e)
{
    int rc = 0;
    for (struct store_model *m = s->models; m; m = m->next) {
        int one = store_model_sync(m, rc == 0 ? e : NULL);
        rc = rc == 0 ? one : rc;
    }
    s->unsynced_bytes = 0;
    if (rc < 0 && rc != HP_ENOMEM)
        index_renew(s); /* without what could not be made durable */
    return rc;
}

/* ---- what there is ---- */

int weight_store_remove(struct weight_store *s, const struct digest *id, struct err *e)
{
    struct store_model *m = s->models;
    while (m && memcmp(m->id.bytes, id->bytes, sizeof id->bytes) != 0)
        m = m->next;
    if (!m)
        return err_set(e, HP_ENOENT, "this store does not have that model");
    if (m->holds)
        return err_set(e, HP_EBUSY, "%s is in use", m->manifest.name);
    model_remove(s, m);
    return 0;
}

bool weight_store_entry(const struct weight_store *s, size_t i, struct store_entry *out)
{
    const struct store_model *m = s->models;
    while (m && i--)
        m = m->next;
    if (m)
        *out = (struct store_entry){m->id, m->manifest.name, m->chunk_bytes, m->holds > 0};
    return m != NULL;
}

uint64_t weight_store_bytes(const struct weight_store *s)
{
    return bytes_held(s);
}
