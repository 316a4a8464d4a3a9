#include "model/manifest_source.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/spread.h"
#include "common/vector.h"

int manifest_source_open(struct manifest_source *s, const char *path, struct err *e)
{
    const char *kept = arena_strdup(&s->arena, path);
    if (!kept || !vector_reserve(s->files, s->room_files, s->n_files + 1))
        return err_set(e, HP_ENOMEM, "no memory for the files of %s", s->name);
    struct manifest_source_file *f = &s->files[s->n_files];
    *f = (struct manifest_source_file){.path = kept, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (f->fd < 0)
        return err_set(e, HP_EIO, "%s: %s", path, strerror(errno));
    s->n_files++;
    return 0;
}

uint64_t manifest_source_bytes(const struct manifest_source *s, int file)
{
    struct stat st;
    return fstat(s->files[file].fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

int manifest_source_read(struct manifest_source *s, int file, uint64_t offset, uint8_t *out,
                         uint64_t bytes, struct err *e)
{
    uint64_t at = 0;
    while (at < bytes) {
        ssize_t n = pread(s->files[file].fd, out + at, (size_t)(bytes - at), (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(e, HP_EIO, "%s: cannot read %llu bytes at %llu: %s", s->files[file].path,
                           (unsigned long long)bytes, (unsigned long long)offset,
                           n < 0 ? strerror(errno) : "the file ends before");
        at += (uint64_t)n;
    }
    return 0;
}

/* ---- chunks ---- */

/* Hashing takes longer than reading: several threads share the chunks. */
enum { HASH_THREADS_MAX = 8 };

struct naming {
    struct manifest_source *source;
    const struct manifest_chunk *chunks;
    uint8_t *digests; /* of all, where the chunks look for theirs */
    uint8_t *scratch; /* [MANIFEST_CHUNK_BYTES] of each thread */
    size_t n;
    atomic_size_t next; /* chunk that nobody has taken */
    _Atomic uint64_t done_bytes;
    atomic_bool stop;
    pthread_mutex_t lock; /* of the two below */
    int rc;               /* the first failure */
    struct err failure;
};

static void naming_fail(struct naming *n, int rc, const struct err *e)
{
    pthread_mutex_lock(&n->lock);
    if (n->rc == 0) {
        n->rc = rc;
        n->failure = *e;
    }
    pthread_mutex_unlock(&n->lock);
    atomic_store(&n->stop, true);
}

/* Names the next chunk; false: there is none left, or it was stopped. */
static bool chunk_name(struct naming *n, uint8_t *scratch)
{
    struct err e = {0};
    size_t i = atomic_load(&n->stop) ? n->n : atomic_fetch_add(&n->next, 1);
    if (i >= n->n)
        return false;
    const struct manifest_chunk *c = &n->chunks[i];
    int rc = manifest_source_read(n->source, (int)c->file, c->offset, scratch, c->bytes, &e);
    if (rc < 0) {
        naming_fail(n, rc, &e);
        return false;
    }
    struct digest d = digest_of(scratch, c->bytes);
    memcpy(n->digests + i * DIGEST_BYTES, d.bytes, DIGEST_BYTES);
    atomic_fetch_add(&n->done_bytes, c->bytes);
    return true;
}

static void progress_tell(struct naming *n)
{
    static const struct err stopped = {.code = HP_ECANCELED,
                                       .text = "naming the model's chunks was stopped"};
    const struct manifest_source *s = n->source;
    if (s->progress &&
        s->progress(s->progress_ctx, atomic_load(&n->done_bytes), s->total_bytes) != 0)
        naming_fail(n, stopped.code, &stopped);
}

/* The caller's thread tells how far all are. */
static void chunks_name(void *ctx, int thread)
{
    struct naming *n = ctx;
    while (chunk_name(n, n->scratch + (size_t)thread * MANIFEST_CHUNK_BYTES))
        if (thread == 0)
            progress_tell(n);
}

static int naming_run(struct naming *n, struct err *e)
{
    int threads = spread_threads(HASH_THREADS_MAX, n->n);
    n->scratch = arena_alloc(&n->source->arena, (size_t)threads, MANIFEST_CHUNK_BYTES);
    if (!n->scratch)
        return err_set(e, HP_ENOMEM, "no memory to read %d chunks at once", threads);
    progress_tell(n); /* others may have done it all before this thread has a turn */
    spread_run(threads, chunks_name, n);
    if (n->rc == 0)
        progress_tell(n); /* all of it, also where this thread came to none */
    if (n->rc < 0 && e)
        *e = n->failure;
    return n->rc;
}

int manifest_source_chunks(struct manifest_source *s, const struct manifest_range *ranges, int n,
                           struct manifest *out, struct err *e)
{
    uint64_t n_chunks = 0;
    for (int i = 0; i < n; i++) {
        n_chunks += (ranges[i].bytes + MANIFEST_CHUNK_BYTES - 1) / MANIFEST_CHUNK_BYTES;
        s->total_bytes += ranges[i].bytes;
    }
    if (n_chunks > MANIFEST_MAX_CHUNKS)
        return err_set(e, HP_ELIMIT, "%s: %llu chunks of weights, at most %d can be named", s->name,
                       (unsigned long long)n_chunks, (int)MANIFEST_MAX_CHUNKS);
    struct manifest_chunk *chunks = arena_alloc(&s->arena, n_chunks + 1, sizeof *chunks);
    uint8_t *digests = arena_alloc(&s->arena, n_chunks + 1, DIGEST_BYTES);
    if (!chunks || !digests)
        return err_set(e, HP_ENOMEM, "no memory for %llu chunks", (unsigned long long)n_chunks);
    size_t k = 0;
    for (int i = 0; i < n; i++)
        for (uint64_t at = 0; at < ranges[i].bytes; at += MANIFEST_CHUNK_BYTES, k++) {
            uint64_t left = ranges[i].bytes - at;
            chunks[k] =
                (struct manifest_chunk){(uint64_t)ranges[i].file,
                                        ranges[i].offset + at,
                                        left < MANIFEST_CHUNK_BYTES ? left : MANIFEST_CHUNK_BYTES,
                                        {digests + k * DIGEST_BYTES, DIGEST_BYTES}};
        }
    out->chunks = (struct pack_list){chunks, k};
    return naming_run(&(struct naming){.source = s,
                                       .chunks = chunks,
                                       .digests = digests,
                                       .n = k,
                                       .lock = PTHREAD_MUTEX_INITIALIZER},
                      e);
}

void manifest_source_close(struct manifest_source *s)
{
    for (int i = 0; i < s->n_files; i++)
        close(s->files[i].fd);
    free(s->files);
    s->files = NULL;
    s->n_files = s->room_files = 0;
    arena_free(&s->arena);
}
