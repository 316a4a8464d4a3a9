#include "model/manifest_onnx.h"

#include <stdio.h>
#include <string.h>

#include "common/fs.h"
#include "model/files/onnx.h"

/* Beside the model's own file. */
static int file_open(struct manifest_source *s, const char *path, const char *name, struct err *e)
{
    const char *slash = strrchr(path, '/');
    char full[FS_PATH_BYTES];
    int n = snprintf(full, sizeof full, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    return n > 0 && (size_t)n < sizeof full
               ? manifest_source_open(s, full, e)
               : err_set(e, HP_EINVAL, "%s: the path is too long", path);
}

static int files_read(struct manifest_source *s, const char *path, const struct onnx *o,
                      struct manifest *m, struct err *e)
{
    int n = 0, rc = 0;
    while (onnx_file_name(o, n))
        n++;
    struct manifest_file *files = arena_alloc(&s->arena, (size_t)n + 1, sizeof *files);
    struct manifest_range *ranges = arena_alloc(&s->arena, (size_t)n + 1, sizeof *ranges);
    if (!files || !ranges)
        return err_set(e, HP_ENOMEM, "no memory for the files of %s", path);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = file_open(s, path, onnx_file_name(o, i), e);
        if (rc == 0) {
            files[i] = (struct manifest_file){onnx_file_name(o, i), manifest_source_bytes(s, i)};
            ranges[i] = (struct manifest_range){i, 0, files[i].bytes};
        }
    }
    m->name = onnx_file_name(o, 0);
    m->files = (struct pack_list){files, (size_t)n};
    return rc < 0 ? rc : manifest_source_chunks(s, ranges, n, m, e);
}

/* What every reader of manifests checks: names that stay below their folder. */
static int names_check(const struct buffer *out, size_t from, const char *path, struct err *e)
{
    struct arena arena = {0};
    struct manifest m;
    int rc = manifest_decode(out->data + from, out->size - from, &arena, &m, e);
    arena_free(&arena);
    return rc == HP_EPARSE ? err_at(e, "%s: its files cannot be named", path) : rc;
}

int manifest_onnx_build(const char *path, manifest_progress_fn progress, void *progress_ctx,
                        struct buffer *out, struct err *e)
{
    const struct onnx *o;
    struct manifest m = {0};
    struct manifest_source s = {.name = path, .progress = progress, .progress_ctx = progress_ctx};
    size_t before = out->size;
    int rc = onnx_open(path, &o, e);
    if (rc < 0)
        return rc;
    rc = files_read(&s, path, o, &m, e);
    if (rc == 0) {
        manifest_encode(&m, out);
        rc = out->failed ? err_set(e, HP_ENOMEM, "no memory for the manifest")
                         : names_check(out, before, path, e);
    }
    manifest_source_close(&s);
    onnx_close(&o);
    return rc;
}
