/* Owns the way from an open model to its manifest, and the cache of what was read before. */
#include "model/manifest_build.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/arena.h"
#include "common/fs.h"
#include "common/manifest.h"

enum { CACHE_VERSION = 1, MAX_MANIFEST_BYTES = 1 << 30 };

/* Where a file of the model lies: below its folder, or beside the first of a GGUF model's files. */
static int file_path(const struct model *m, const char *name, bool folder, char *out, size_t size,
                     struct err *e)
{
    const char *path = model_path(m), *slash = strrchr(path, '/');
    int n = folder ? snprintf(out, size, "%s/%s", path, name)
                   : snprintf(out, size, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    return n > 0 && (size_t)n < size
               ? 0
               : err_set(e, HP_EINVAL, "%s: the path is too long", model_path(m));
}

/* ---- the cache ---- */

/* A name that changes when a file's path, size or time does: BLAKE2b of all of them. */
static int cache_file(const struct model *m, const char *folder, bool is_folder, char *out,
                      size_t size, struct err *e)
{
    struct buffer key = {0};
    int n_files;
    const struct model_file *files = model_files(m, &n_files);
    buffer_printf(&key, "%d %d\n", (int)CACHE_VERSION, (int)MANIFEST_CHUNK_BYTES);
    for (int i = 0; i < n_files; i++) {
        char path[PATH_MAX], real[PATH_MAX];
        struct stat st;
        int rc = file_path(m, files[i].name, is_folder, path, sizeof path, e);
        if (rc == 0 && (!realpath(path, real) || stat(real, &st) != 0))
            rc = err_set(e, HP_EIO, "%s: %s", path, strerror(errno));
        if (rc < 0) {
            buffer_free(&key);
            return rc;
        }
        buffer_printf(&key, "%s %lld %lld.%09ld %llu\n", real, (long long)st.st_size,
                      (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                      (unsigned long long)st.st_ino);
    }
    struct digest d = digest_of(key.data, key.size);
    int rc = key.failed ? err_set(e, HP_ENOMEM, "no memory to name the model's files") : 0;
    buffer_free(&key);
    char hex[DIGEST_HEX];
    digest_hex(&d, hex);
    if (rc == 0 && (size_t)snprintf(out, size, "%s/%s.manifest", folder, hex) >= size)
        rc = err_set(e, HP_EINVAL, "%s: the path is too long", folder);
    return rc;
}

/* True when the file holds a manifest; the bytes are appended. */
static bool cache_read(const char *file, struct buffer *out)
{
    size_t before = out->size;
    struct arena arena = {0};
    struct manifest m;
    bool good = fs_file_read(file, MAX_MANIFEST_BYTES, out, NULL) == 0 &&
                manifest_decode(out->data + before, out->size - before, &arena, &m, NULL) == 0;
    arena_free(&arena);
    if (!good)
        out->size = before;
    return good;
}

/* A manifest that cannot be kept is computed again. */
static void cache_write(const char *folder, const char *file, const uint8_t *bytes, size_t size)
{
    if (fs_folder_make(folder, 0755, NULL) == 0)
        fs_file_write(file, bytes, size, 0644, NULL);
}

/* ---- reading ---- */

struct manifest_build {
    const struct model *model;
    struct manifest_source source;
    bool folder;
    int n_files;
    const struct model_file *files;
};

static int files_open(struct manifest_build *b, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < b->n_files && rc == 0; i++) {
        char path[PATH_MAX];
        rc = file_path(b->model, b->files[i].name, b->folder, path, sizeof path, e);
        rc = rc < 0 ? rc : manifest_source_open(&b->source, path, e);
    }
    return rc;
}

static int heads_read(struct manifest_build *b, struct manifest *out, struct err *e)
{
    int n;
    const struct model_range *ranges = model_heads(b->model, &n);
    struct manifest_head *heads = arena_alloc(&b->source.arena, (size_t)n + 1, sizeof *heads);
    if (!heads)
        return err_set(e, HP_ENOMEM, "no memory for %d heads", n);
    for (int i = 0; i < n; i++) {
        uint8_t *data = arena_alloc(&b->source.arena, ranges[i].bytes + 1, 1);
        if (!data)
            return err_set(e, HP_ENOMEM, "no memory for the %llu bytes that open the model",
                           (unsigned long long)ranges[i].bytes);
        int rc = manifest_source_read(&b->source, ranges[i].file, ranges[i].offset, data,
                                      ranges[i].bytes, e);
        if (rc < 0)
            return rc;
        heads[i] = (struct manifest_head){
            (uint64_t)ranges[i].file, ranges[i].offset, {data, ranges[i].bytes}};
    }
    out->heads = (struct pack_list){heads, (size_t)n};
    return 0;
}

static int weight_before(const void *a, const void *b)
{
    const struct weight *x = *(const struct weight *const *)a,
                        *y = *(const struct weight *const *)b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Weights in file order, those that share their bytes once, those of no bytes not at all. */
static const struct weight **weights_sorted(struct manifest_build *b, int *count)
{
    int n, kept = 0;
    const struct weight *all = model_weights(b->model, &n);
    const struct weight **list = arena_alloc(&b->source.arena, (size_t)n + 1, sizeof *list);
    if (!list)
        return NULL;
    for (int i = 0; i < n; i++)
        if (all[i].bytes)
            list[kept++] = &all[i];
    qsort(list, (size_t)kept, sizeof *list, weight_before);
    *count = 0;
    for (int i = 0; i < kept; i++)
        if (*count == 0 || list[*count - 1]->file != list[i]->file ||
            list[*count - 1]->offset != list[i]->offset)
            list[(*count)++] = list[i];
    return list;
}

static int chunks_read(struct manifest_build *b, struct manifest *out, struct err *e)
{
    int n = 0;
    const struct weight **weights = weights_sorted(b, &n);
    struct manifest_range *ranges =
        weights ? arena_alloc(&b->source.arena, (size_t)n + 1, sizeof *ranges) : NULL;
    if (!ranges)
        return err_set(e, HP_ENOMEM, "no memory for %d weights", n);
    for (int i = 0; i < n; i++)
        ranges[i] =
            (struct manifest_range){weights[i]->file, weights[i]->offset, weights[i]->bytes};
    return manifest_source_chunks(&b->source, ranges, n, out, e);
}

static int files_name(struct manifest_build *b, struct manifest *out, struct err *e)
{
    struct manifest_file *files =
        arena_alloc(&b->source.arena, (size_t)b->n_files + 1, sizeof *files);
    if (!files)
        return err_set(e, HP_ENOMEM, "no memory for %d files", b->n_files);
    for (int i = 0; i < b->n_files; i++)
        files[i] = (struct manifest_file){b->files[i].name, b->files[i].bytes};
    const char *path = model_path(b->model), *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/')
        end--;
    const char *stem = end;
    while (stem > path && stem[-1] != '/')
        stem--;
    out->name = arena_strndup(&b->source.arena, stem, (size_t)(end - stem));
    out->folder = b->folder;
    out->files = (struct pack_list){files, (size_t)b->n_files};
    return out->name ? 0 : err_set(e, HP_ENOMEM, "no memory for a name");
}

static int build_all(struct manifest_build *b, struct buffer *out, struct err *e)
{
    struct manifest m = {0};
    int rc = files_open(b, e);
    rc = rc < 0 ? rc : files_name(b, &m, e);
    rc = rc < 0 ? rc : heads_read(b, &m, e);
    rc = rc < 0 ? rc : chunks_read(b, &m, e);
    if (rc == 0)
        manifest_encode(&m, out);
    return rc < 0 ? rc : out->failed ? err_set(e, HP_ENOMEM, "no memory for the manifest") : 0;
}

int manifest_build(const struct model *m, const char *cache_folder, manifest_progress_fn progress,
                   void *progress_ctx, struct buffer *out, struct err *e)
{
    struct stat st;
    struct manifest_build b = {
        .model = m,
        .source = {.name = model_path(m), .progress = progress, .progress_ctx = progress_ctx}};
    char cached[PATH_MAX] = "";
    if (stat(model_path(m), &st) != 0)
        return err_set(e, HP_EIO, "%s: %s", model_path(m), strerror(errno));
    b.folder = S_ISDIR(st.st_mode);
    b.files = model_files(m, &b.n_files);
    if (cache_folder) {
        int rc = cache_file(m, cache_folder, b.folder, cached, sizeof cached, e);
        if (rc < 0)
            return rc;
        if (cache_read(cached, out))
            return 0;
    }
    size_t before = out->size;
    int rc = build_all(&b, out, e);
    manifest_source_close(&b.source);
    if (rc == 0 && cache_folder)
        cache_write(cache_folder, cached, out->data + before, out->size - before);
    return rc;
}
