#include "common/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LIST(type, member, table, row)                                                             \
    {                                                                                              \
#member, PACK_LIST, offsetof(struct type, member), table, sizeof(struct row), true, 0      \
    }

static const struct pack_field file_fields[] = {
    {"name", PACK_TEXT, offsetof(struct manifest_file, name), NULL, 0, true, 0},
    {"bytes", PACK_U64, offsetof(struct manifest_file, bytes), NULL, 0, true, 0},
    {0},
};
static const struct pack_field head_fields[] = {
    PACK_FIELD(manifest_head, PACK_U64, file),
    PACK_FIELD(manifest_head, PACK_U64, offset),
    PACK_FIELD(manifest_head, PACK_BYTES, data),
    {0},
};
static const struct pack_field chunk_fields[] = {
    PACK_FIELD(manifest_chunk, PACK_U64, file),
    PACK_FIELD(manifest_chunk, PACK_U64, offset),
    PACK_FIELD(manifest_chunk, PACK_U64, bytes),
    PACK_FIELD(manifest_chunk, PACK_BYTES, digest),
    {0},
};
static const struct pack_field manifest_fields[] = {
    PACK_FIELD(manifest, PACK_TEXT, name),
    PACK_FIELD(manifest, PACK_BOOL, folder),
    LIST(manifest, files, file_fields, manifest_file),
    LIST(manifest, heads, head_fields, manifest_head),
    LIST(manifest, chunks, chunk_fields, manifest_chunk),
    {0},
};

void manifest_encode(const struct manifest *m, struct buffer *out)
{
    pack_encode(manifest_fields, m, out);
}

struct digest manifest_id(const uint8_t *bytes, size_t size)
{
    return digest_of(bytes, size);
}

/* A relative path of plain parts: nothing that leaves the folder it is put into. */
static bool name_is_safe(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > 512 || name[0] == '/' || name[n - 1] == '/')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.'))
            return false;
    }
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 32 || *c == '\\')
            return false;
    return true;
}

static int check_range(const struct manifest *m, uint64_t file, uint64_t offset, uint64_t bytes,
                       const char *what, size_t i, struct err *e)
{
    uint64_t end;
    if (file >= m->files.count)
        return err_set(e, HP_EPARSE, "manifest: %s %zu names file %llu of %zu", what, i,
                       (unsigned long long)file, m->files.count);
    const struct manifest_file *f = (const struct manifest_file *)m->files.items + file;
    if (__builtin_add_overflow(offset, bytes, &end) || end > f->bytes)
        return err_set(e, HP_EPARSE, "manifest: %s %zu ends past the end of %s", what, i, f->name);
    return 0;
}

static int check_chunks(const struct manifest *m, struct err *e)
{
    const struct manifest_chunk *chunks = m->chunks.items;
    if (m->chunks.count > MANIFEST_MAX_CHUNKS)
        return err_set(e, HP_EPARSE, "manifest: %zu chunks, more than %d", m->chunks.count,
                       MANIFEST_MAX_CHUNKS);
    for (size_t i = 0; i < m->chunks.count; i++) {
        const struct manifest_chunk *c = &chunks[i], *before = i ? &chunks[i - 1] : NULL;
        int rc = check_range(m, c->file, c->offset, c->bytes, "chunk", i, e);
        if (rc < 0)
            return rc;
        if (c->digest.size != DIGEST_BYTES || c->bytes == 0 || c->bytes > MANIFEST_CHUNK_BYTES)
            return err_set(e, HP_EPARSE,
                           "manifest: chunk %zu has a digest of %zu bytes or %llu bytes of content",
                           i, c->digest.size, (unsigned long long)c->bytes);
        if (before && (c->file < before->file ||
                       (c->file == before->file && c->offset < before->offset + before->bytes)))
            return err_set(e, HP_EPARSE,
                           "manifest: chunk %zu overlaps or precedes the one before it", i);
    }
    return 0;
}

int manifest_decode(const uint8_t *bytes, size_t size, struct arena *arena, struct manifest *out,
                    struct err *e)
{
    struct manifest m = {0};
    int rc = pack_decode(manifest_fields, bytes, size, arena, &m, e);
    if (rc < 0)
        return rc;
    const struct manifest_file *files = m.files.items;
    if (m.files.count == 0 || m.files.count > 4096)
        return err_set(e, HP_EPARSE, "manifest: %zu files", m.files.count);
    for (size_t i = 0; i < m.files.count; i++)
        if (!name_is_safe(files[i].name) || files[i].bytes > (uint64_t)1 << 50)
            return err_set(e, HP_EPARSE, "manifest: file name \"%.80s\" or its size is not allowed",
                           files[i].name);
    const struct manifest_head *heads = m.heads.items;
    for (size_t i = 0; i < m.heads.count; i++)
        if ((rc = check_range(&m, heads[i].file, heads[i].offset, heads[i].data.size, "head", i,
                              e)) < 0)
            return rc;
    if ((rc = check_chunks(&m, e)) < 0)
        return rc;
    *out = m;
    return 0;
}
