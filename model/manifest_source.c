#include "model/manifest_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static int chunk_add(struct manifest_source *s, const struct manifest_range *r, uint64_t at,
                     uint8_t *scratch, struct manifest_chunk *out, struct err *e)
{
    uint64_t bytes = r->bytes - at < MANIFEST_CHUNK_BYTES ? r->bytes - at : MANIFEST_CHUNK_BYTES;
    int rc = manifest_source_read(s, r->file, r->offset + at, scratch, bytes, e);
    if (rc < 0)
        return rc;
    struct digest d = digest_of(scratch, bytes);
    const uint8_t *digest = arena_memdup(&s->arena, d.bytes, sizeof d.bytes);
    if (!digest)
        return err_set(e, HP_ENOMEM, "no memory for the names of chunks");
    *out =
        (struct manifest_chunk){(uint64_t)r->file, r->offset + at, bytes, {digest, DIGEST_BYTES}};
    s->done_bytes += bytes;
    if (s->progress && s->progress(s->progress_ctx, s->done_bytes, s->total_bytes) != 0)
        return err_set(e, HP_ECANCELED, "naming the model's chunks was stopped");
    return 0;
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
    uint8_t *scratch = arena_alloc(&s->arena, 1, MANIFEST_CHUNK_BYTES);
    if (!chunks || !scratch)
        return err_set(e, HP_ENOMEM, "no memory for %llu chunks", (unsigned long long)n_chunks);
    size_t at_chunk = 0;
    for (int i = 0; i < n; i++)
        for (uint64_t at = 0; at < ranges[i].bytes; at += MANIFEST_CHUNK_BYTES) {
            int rc = chunk_add(s, &ranges[i], at, scratch, &chunks[at_chunk++], e);
            if (rc < 0)
                return rc;
        }
    out->chunks = (struct pack_list){chunks, at_chunk};
    return 0;
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
