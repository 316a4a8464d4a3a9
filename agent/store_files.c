/* Owns what a model's folder looks like, and the order of writes that makes a crash harmless. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/store_int.h"
#include "common/fs.h"
#include "common/log.h"

enum { MAX_MANIFEST_BYTES = 1 << 30 };

static void tree_remove(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *entry;
    while (d && (entry = readdir(d)) != NULL) {
        char below[STORE_FILE_PATH];
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
    char manifest[STORE_FILE_PATH];
    snprintf(manifest, sizeof manifest, "%s/manifest", path);
    unlink(manifest);
    tree_remove(path);
}

void store_model_touch(struct store_model *m)
{
    char path[STORE_FILE_PATH];
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
    char path[STORE_FILE_PATH];
    struct stat st;
    snprintf(path, sizeof path, "%s/used", m->folder);
    m->used_ns =
        stat(path, &st) == 0 ? (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec : 0;
}

/* ---- a model's folder ---- */

void store_model_free(struct store_model **pm)
{
    struct store_model *m = *pm;
    if (!m)
        return;
    free(m->path);
    free(m->have);
    free(m->checked);
    free(m->stamps);
    free(m->unsaid);
    arena_free(&m->arena);
    buffer_free(&m->bytes);
    free(m);
    *pm = NULL;
}

/* A model in memory: takes a copy of the manifest. */
static int model_new(const char *models, const uint8_t *manifest, size_t size,
                     struct store_model **out, struct err *e)
{
    struct store_model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, HP_ENOMEM, "no memory for a model of the store");
    buffer_append(&m->bytes, manifest, size);
    m->id = manifest_id(manifest, size);
    char hex[DIGEST_HEX], path[STORE_FILE_PATH];
    digest_hex(&m->id, hex);
    int n = snprintf(m->folder, sizeof m->folder, "%s/%s", models, hex);
    int rc = n < 0 || (size_t)n >= sizeof m->folder
                 ? err_set(e, HP_EINVAL, "%s: the path is too long", models)
                 : 0;
    if (rc == 0)
        rc = m->bytes.failed
                 ? err_set(e, HP_ENOMEM, "no memory for a manifest")
                 : manifest_decode(m->bytes.data, m->bytes.size, &m->arena, &m->manifest, e);
    if (rc == 0) {
        if (m->manifest.folder)
            snprintf(path, sizeof path, "%s/files", m->folder);
        else
            store_file_path(m, 0, path);
        m->path = strdup(path);
        m->have = calloc(m->manifest.chunks.count / 8 + 1, 1);
        m->checked = calloc(m->manifest.chunks.count / 8 + 1, 1);
        m->stamps = calloc(m->manifest.files.count + 1, sizeof *m->stamps);
        if (!m->path || !m->have || !m->checked || !m->stamps)
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

/* HP_ECORRUPT when one of them is not; HP_EIO when nobody can tell. */
static int files_look(const struct store_model *m, struct err *e)
{
    for (uint64_t i = 0; i < m->manifest.files.count; i++) {
        char path[STORE_FILE_PATH];
        struct stat st;
        store_file_path(m, i, path);
        int rc = lstat(path, &st);
        if (rc != 0 && errno != ENOENT)
            return err_set(e, HP_EIO, "%s: %s", path, strerror(errno));
        if (rc != 0 || !S_ISREG(st.st_mode) || /* a borrowed one is of its process */
            (uint64_t)st.st_size != store_file(m, i)->bytes)
            return err_set(e, HP_ECORRUPT, "%s: is not what its model says", path);
    }
    return 0;
}

int store_model_load(const char *models, const char *hex, struct store_model **out, struct err *e)
{
    char path[STORE_FILE_PATH], own[DIGEST_HEX];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s/manifest", models, hex);
    if (stat(path, &st) != 0 && errno != ENOENT)
        return err_set(e, HP_EIO, "%s: %s", path, strerror(errno));
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
        return rc == HP_ENOMEM || rc == HP_EIO
                   ? rc
                   : err_set(e, HP_ECORRUPT, "%s: not a manifest", path);
    digest_hex(&m->id, own);
    rc = strcmp(own, hex) == 0
             ? files_look(m, e)
             : err_set(e, HP_ECORRUPT, "%s/%s: is not what its name says", models, hex);
    rc = rc < 0 ? rc : store_have_read(m, e);
    if (rc < 0) {
        store_model_free(&m);
        return rc;
    }
    used_read(m);
    *out = m;
    return 0;
}

/* Writes the bytes that open the model; where `missing`, only those that are not there any more. */
static int heads_write(const struct store_model *m, bool missing, struct err *e)
{
    const struct manifest_head *heads = m->manifest.heads.items;
    for (size_t i = 0; i < m->manifest.heads.count; i++) {
        const struct pack_span *data = &heads[i].data;
        char path[STORE_FILE_PATH];
        store_file_path(m, heads[i].file, path);
        if (missing && store_range_is(path, heads[i].offset, data->data, data->size))
            continue;
        int rc = store_write_check(m, path, e);
        if (rc == 0 && missing)
            log_warn("store", "head_rotten", "action=written_again file=%s", path);
        rc = rc < 0 ? rc
                    : store_file_write(path, 0, heads[i].offset, data->data, data->size, true, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int store_model_mend(const struct store_model *m, struct err *e)
{
    for (uint64_t i = 0; i < m->manifest.files.count; i++) {
        char path[STORE_FILE_PATH];
        struct stat st;
        store_file_path(m, i, path);
        if (stat(path, &st) == 0 && (uint64_t)st.st_size == store_file(m, i)->bytes)
            continue;
        int rc = store_write_check(m, path, e);
        if (rc < 0)
            return rc;
        log_warn("store", "file_cut", "action=made_again file=%s", path);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        rc = fd < 0 || ftruncate(fd, (off_t)store_file(m, i)->bytes) != 0
                 ? fs_error(path, "make", e)
                 : 0;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return rc;
    }
    return heads_write(m, true, e);
}

static int files_make(const struct store_model *m, struct err *e)
{
    for (uint64_t i = 0; i < m->manifest.files.count; i++) {
        char path[STORE_FILE_PATH];
        store_file_path(m, i, path);
        char *slash = strrchr(path, '/');
        *slash = '\0';
        int rc = fs_folder_make(path, 0755, e);
        *slash = '/';
        if (rc < 0)
            return rc;
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        rc = fd < 0 || ftruncate(fd, (off_t)store_file(m, i)->bytes) != 0
                 ? fs_error(path, "make", e)
                 : 0;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return rc;
    }
    return heads_write(m, false, e);
}

int store_model_make(const char *models, const uint8_t *manifest, size_t size,
                     struct store_model **out, struct err *e)
{
    struct store_model *m;
    int rc = model_new(models, manifest, size, &m, e);
    if (rc < 0)
        return rc;
    char path[STORE_FILE_PATH];
    snprintf(path, sizeof path, "%s/manifest", m->folder);
    tree_remove(m->folder); /* what a crash may have left */
    rc = files_make(m, e);
    if (rc == 0)
        rc = fs_file_write(path, manifest, size, 0644, e);
    if (rc < 0) {
        store_folder_remove(m->folder);
        store_model_free(&m);
        return rc;
    }
    store_model_touch(m);
    *out = m;
    return 0;
}

/* ---- files of others ---- */

static bool source_path(const struct store_model *m, uint64_t file, const char *path,
                        char out[STORE_FILE_PATH])
{
    int n = m->manifest.folder
                ? snprintf(out, STORE_FILE_PATH, "%s/%s", path, store_file(m, file)->name)
                : snprintf(out, STORE_FILE_PATH, "%s", path);
    return n > 0 && n < STORE_FILE_PATH && out[0] == '/';
}

int store_model_borrow(struct store_model *m, const char *path, struct err *e)
{
    char own[STORE_FILE_PATH], source[STORE_FILE_PATH];
    struct stat st;
    for (uint64_t i = 0; i < m->manifest.files.count; i++)
        if (!source_path(m, i, path, source) || access(source, R_OK) != 0 ||
            stat(source, &st) != 0 || !S_ISREG(st.st_mode) ||
            (uint64_t)st.st_size != store_file(m, i)->bytes)
            return err_set(e, HP_ENOENT, "%s: has not the model's files", path);
    for (uint64_t i = 0; i < m->manifest.files.count; i++) {
        source_path(m, i, path, source);
        store_file_path(m, i, own);
        if (unlink(own) != 0 || symlink(source, own) != 0)
            return fs_error(own, "link", e);
    }
    m->borrowed = true;
    store_chunks_trust(m);
    return 0;
}
