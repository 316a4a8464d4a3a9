/* Owns what a model looks like on disk, and the order of writes that makes a crash harmless. */
#include "agent/store_int.h"

#include "common/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_PATH = STORE_PATH_MAX + 640, MAX_MANIFEST_BYTES = 1 << 30 };

static int io_error(const char *path, const char *doing, struct err *e)
{
    int code = errno == ENOSPC || errno == EDQUOT ? HP_ENOSPACE : errno == ENOENT ? HP_ENOENT : HP_EIO;
    return err_set(e, code, "%s: cannot %s: %s", path, doing, strerror(errno));
}

int store_folder_make(const char *folder, struct err *e)
{
    char path[FILE_PATH];
    if ((size_t)snprintf(path, sizeof path, "%s", folder) >= sizeof path)
        return err_set(e, HP_EINVAL, "%s: the path is too long", folder);
    for (char *p = path + 1;; p++) {
        if (*p != '/' && *p)
            continue;
        char end = *p;
        *p = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            return io_error(path, "make this folder", e);
        *p = end;
        if (!end)
            return 0;
    }
}

static void tree_remove(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *entry;
    while (d && (entry = readdir(d)) != NULL) {
        char below[FILE_PATH];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if ((size_t)snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= sizeof below)
            continue;
        struct stat st;
        if (lstat(below, &st) == 0 && S_ISDIR(st.st_mode))
            tree_remove(below);
        else
            unlink(below);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

void store_folder_remove(const char *path)
{
    char manifest[FILE_PATH];
    snprintf(manifest, sizeof manifest, "%s/manifest", path);
    unlink(manifest);
    tree_remove(path);
}

/* ---- bytes of files ----------------------------------------------------------------------------------------------- */

static int file_write(const char *path, int flags, uint64_t offset, const uint8_t *bytes, size_t size, bool sync, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);
    if (fd < 0)
        return io_error(path, "open", e);
    int rc = 0;
    size_t at = 0;
    while (at < size && rc == 0) {
        ssize_t n = flags & O_APPEND ? write(fd, bytes + at, size - at) : pwrite(fd, bytes + at, size - at, (off_t)(offset + at));
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || errno != EINTR)
            rc = io_error(path, "write", e);
    }
    if (rc == 0 && sync && fdatasync(fd) != 0)
        rc = io_error(path, "write", e);
    if (close(fd) != 0 && rc == 0)
        rc = io_error(path, "write", e);
    return rc;
}

int store_range_read(const char *file, uint64_t offset, uint8_t *out, size_t size, struct err *e)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, HP_ENOENT, "%s: %s", file, strerror(errno));
    size_t at = 0;
    while (at < size) {
        ssize_t n = pread(fd, out + at, size - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    close(fd);
    return at == size ? 0 : err_set(e, HP_ENOENT, "%s: does not have %zu bytes at %llu", file, size, (unsigned long long)offset);
}

static int file_path(const struct store_model *m, uint64_t file, char out[FILE_PATH])
{
    return snprintf(out, FILE_PATH, "%s/files/%s", m->folder, store_file(m, file)->name);
}

int store_chunk_write(struct store_model *m, uint32_t chunk, const uint8_t *bytes, struct err *e)
{
    const struct manifest_chunk *c = store_chunk(m, chunk);
    char path[FILE_PATH];
    file_path(m, c->file, path);
    if (m->n_unsaid == m->unsaid_capacity) {
        size_t capacity = m->unsaid_capacity ? 2 * m->unsaid_capacity : 64;
        uint32_t *p = realloc(m->unsaid, capacity * sizeof *p);
        if (!p)
            return err_set(e, HP_ENOMEM, "no memory for the names of chunks");
        m->unsaid = p;
        m->unsaid_capacity = capacity;
    }
    int rc = file_write(path, 0, c->offset, bytes, c->bytes, false, e);
    if (rc < 0)
        return rc;
    m->unsaid[m->n_unsaid++] = chunk;
    m->have[chunk / 8] |= (uint8_t)(1u << chunk % 8);
    m->chunk_bytes += c->bytes;
    return 0;
}

int store_chunk_read(const struct store_model *m, uint32_t chunk, uint8_t *out, struct err *e)
{
    const struct manifest_chunk *c = store_chunk(m, chunk);
    char path[FILE_PATH];
    file_path(m, c->file, path);
    return store_range_read(path, c->offset, out, c->bytes, e);
}

/* ---- which chunks are there --------------------------------------------------------------------------------------- */

/* A record is the chunk's number and a number made of it, so that a torn or foreign one is seen. */
static uint32_t record_check(uint32_t chunk) { return chunk * UINT32_C(2654435761) ^ UINT32_C(0x68706373); }

static int files_sync(const struct store_model *m, struct err *e)
{
    uint64_t done = UINT64_MAX;
    for (size_t i = 0; i < m->n_unsaid; i++) {
        uint64_t file = store_chunk(m, m->unsaid[i])->file;
        if (file == done)
            continue;
        char path[FILE_PATH];
        file_path(m, file, path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        int rc = fd < 0 || fdatasync(fd) != 0 ? io_error(path, "write", e) : 0;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return rc;
        done = file;
    }
    return 0;
}

int store_model_sync(struct store_model *m, struct err *e)
{
    if (!m->n_unsaid)
        return 0;
    int rc = files_sync(m, e);
    if (rc < 0)
        return rc;
    struct buffer records = {0};
    for (size_t i = 0; i < m->n_unsaid; i++) {
        uint32_t record[2] = {m->unsaid[i], record_check(m->unsaid[i])};
        buffer_append(&records, record, sizeof record);
    }
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/have", m->folder);
    rc = records.failed ? err_set(e, HP_ENOMEM, "no memory for the names of chunks")
                        : file_write(path, O_CREAT | O_APPEND, 0, records.data, records.size, true, e);
    buffer_free(&records);
    if (rc == 0)
        m->n_unsaid = 0;
    return rc;
}

/* Reads the records up to the first that makes no sense, and cuts the file there. */
static void have_read(struct store_model *m)
{
    char path[FILE_PATH];
    snprintf(path, sizeof path, "%s/have", m->folder);
    FILE *f = fopen(path, "rbe");
    uint32_t record[2];
    long good = 0;
    while (f && fread(record, sizeof record, 1, f) == 1 && record[1] == record_check(record[0]) && record[0] < m->manifest.chunks.count) {
        uint8_t bit = (uint8_t)(1u << record[0] % 8);
        if (!(m->have[record[0] / 8] & bit))
            m->chunk_bytes += store_chunk(m, record[0])->bytes;
        m->have[record[0] / 8] |= bit;
        good += (long)sizeof record;
    }
    if (f)
        fclose(f);
    if (f && truncate(path, good) != 0)
        log_warn("store", "have_not_cut", "file=%s", path);
}

void store_model_touch(struct store_model *m)
{
    char path[FILE_PATH];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    m->used_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    snprintf(path, sizeof path, "%s/used", m->folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    futimens(fd, NULL);
    close(fd);
}

static void used_read(struct store_model *m)
{
    char path[FILE_PATH];
    struct stat st;
    snprintf(path, sizeof path, "%s/used", m->folder);
    m->used_ns = stat(path, &st) == 0 ? (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec : 0;
}

/* ---- a model's folder --------------------------------------------------------------------------------------------- */

void store_model_free(struct store_model **pm)
{
    struct store_model *m = *pm;
    if (!m)
        return;
    free(m->path);
    free(m->have);
    free(m->unsaid);
    arena_free(&m->arena);
    buffer_free(&m->bytes);
    free(m);
    *pm = NULL;
}

/* A model in memory: takes a copy of the manifest. */
static int model_new(const char *models, const uint8_t *manifest, size_t size, struct store_model **out, struct err *e)
{
    struct store_model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, HP_ENOMEM, "no memory for a model of the store");
    buffer_append(&m->bytes, manifest, size);
    m->id = manifest_id(manifest, size);
    char hex[DIGEST_HEX], path[FILE_PATH];
    digest_hex(&m->id, hex);
    int n = snprintf(m->folder, sizeof m->folder, "%s/%s", models, hex);
    int rc = n < 0 || (size_t)n >= sizeof m->folder ? err_set(e, HP_EINVAL, "%s: the path is too long", models) : 0;
    if (rc == 0)
        rc = m->bytes.failed ? err_set(e, HP_ENOMEM, "no memory for a manifest")
                             : manifest_decode(m->bytes.data, m->bytes.size, &m->arena, &m->manifest, e);
    if (rc == 0) {
        if (m->manifest.folder)
            snprintf(path, sizeof path, "%s/files", m->folder);
        else
            file_path(m, 0, path);
        m->path = strdup(path);
        m->have = calloc(m->manifest.chunks.count / 8 + 1, 1);
        if (!m->path || !m->have)
            rc = err_set(e, HP_ENOMEM, "no memory for a model of the store");
    }
    const struct manifest_head *heads = m->manifest.heads.items;
    for (size_t i = 0; rc == 0 && i < m->manifest.heads.count; i++)
        m->head_bytes += heads[i].data.size;
    if (rc < 0)
        store_model_free(&m);
    else
        *out = m;
    return rc;
}

static bool files_are_whole(const struct store_model *m)
{
    for (uint64_t i = 0; i < m->manifest.files.count; i++) {
        char path[FILE_PATH];
        struct stat st;
        file_path(m, i, path);
        if (stat(path, &st) != 0 || (uint64_t)st.st_size != store_file(m, i)->bytes)
            return false;
    }
    return true;
}

int store_model_load(const char *models, const char *hex, struct store_model **out, struct err *e)
{
    char path[FILE_PATH], own[DIGEST_HEX];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s/manifest", models, hex);
    if (stat(path, &st) != 0 || st.st_size <= 0 || st.st_size > MAX_MANIFEST_BYTES)
        return err_set(e, HP_ECORRUPT, "%s: no manifest", path);
    uint8_t *bytes = malloc((size_t)st.st_size);
    if (!bytes)
        return err_set(e, HP_ENOMEM, "no memory for a manifest");
    struct store_model *m = NULL;
    int rc = store_range_read(path, 0, bytes, (size_t)st.st_size, e);
    rc = rc < 0 ? rc : model_new(models, bytes, (size_t)st.st_size, &m, e);
    free(bytes);
    if (rc < 0)
        return rc == HP_ENOMEM ? rc : err_set(e, HP_ECORRUPT, "%s: not a manifest", path);
    digest_hex(&m->id, own);
    if (strcmp(own, hex) != 0 || !files_are_whole(m)) {
        store_model_free(&m);
        return err_set(e, HP_ECORRUPT, "%s/%s: is not what its name says", models, hex);
    }
    have_read(m);
    used_read(m);
    *out = m;
    return 0;
}

static int files_make(const struct store_model *m, struct err *e)
{
    for (uint64_t i = 0; i < m->manifest.files.count; i++) {
        char path[FILE_PATH];
        file_path(m, i, path);
        char *slash = strrchr(path, '/');
        *slash = '\0';
        int rc = store_folder_make(path, e);
        *slash = '/';
        if (rc < 0)
            return rc;
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        rc = fd < 0 || ftruncate(fd, (off_t)store_file(m, i)->bytes) != 0 ? io_error(path, "make", e) : 0;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return rc;
    }
    const struct manifest_head *heads = m->manifest.heads.items;
    for (size_t i = 0; i < m->manifest.heads.count; i++) {
        char path[FILE_PATH];
        file_path(m, heads[i].file, path);
        int rc = file_write(path, 0, heads[i].offset, heads[i].data.data, heads[i].data.size, true, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int store_model_make(const char *models, const uint8_t *manifest, size_t size, struct store_model **out, struct err *e)
{
    struct store_model *m;
    int rc = model_new(models, manifest, size, &m, e);
    if (rc < 0)
        return rc;
    char beside[FILE_PATH], path[FILE_PATH];
    snprintf(beside, sizeof beside, "%s/manifest.new", m->folder);
    snprintf(path, sizeof path, "%s/manifest", m->folder);
    tree_remove(m->folder); /* what a crash may have left */
    rc = files_make(m, e);
    rc = rc < 0 ? rc : file_write(beside, O_CREAT | O_TRUNC, 0, manifest, size, true, e);
    if (rc == 0 && rename(beside, path) != 0)
        rc = io_error(path, "write", e);
    if (rc < 0) {
        store_folder_remove(m->folder);
        store_model_free(&m);
        return rc;
    }
    store_model_touch(m);
    *out = m;
    return 0;
}
