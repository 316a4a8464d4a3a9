/* Owns the bytes of chunks on disk, and the record of which are there: a chunk counts once its
 * bytes are durable, and as long as they are what its digest says. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/store_int.h"
#include "common/fs.h"
#include "common/log.h"
#include "common/vector.h"
#include "model/files/mapped_file.h"

/* ---- bytes of files ---- */

static int bytes_write(int fd, bool append, uint64_t offset, const uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = append ? write(fd, bytes + at, size - at)
                           : pwrite(fd, bytes + at, size - at, (off_t)(offset + at));
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return -1;
    }
    return 0;
}

int store_file_write(const char *path, int flags, uint64_t offset, const uint8_t *bytes,
                     size_t size, bool sync, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);
    if (fd < 0)
        return fs_error(path, "open", e);
    struct mapped_write own;
    mapped_file_write_begin(path, &own); /* a stage may read other chunks of it */
    int rc =
        bytes_write(fd, flags & O_APPEND, offset, bytes, size) < 0 ? fs_error(path, "write", e) : 0;
    mapped_file_write_end(path, &own);
    if (rc == 0 && sync && fdatasync(fd) != 0)
        rc = fs_error(path, "write", e);
    if (close(fd) != 0 && rc == 0)
        rc = fs_error(path, "write", e);
    return rc;
}

int store_range_read(const char *file, uint64_t offset, uint8_t *out, size_t size, struct err *e)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, errno == ENOENT ? HP_ENOENT : HP_EIO, "%s: %s", file, strerror(errno));
    size_t at = 0;
    errno = 0;
    while (at < size) {
        ssize_t n = pread(fd, out + at, size - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    int problem = errno;
    close(fd);
    return at == size
               ? 0
               : err_set(e, problem ? HP_EIO : HP_ENOENT, "%s: does not give %zu bytes at %llu: %s",
                         file, size, (unsigned long long)offset,
                         problem ? strerror(problem) : "the file ends before");
}

bool store_range_is(const char *file, uint64_t offset, const uint8_t *bytes, size_t size)
{
    uint8_t part[16384];
    for (size_t at = 0; at < size; at += sizeof part) {
        size_t n = size - at < sizeof part ? size - at : sizeof part;
        if (store_range_read(file, offset + at, part, n, NULL) < 0 ||
            memcmp(part, bytes + at, n) != 0)
            return false;
    }
    return true;
}

int store_file_path(const struct store_model *m, uint64_t file, char out[STORE_FILE_PATH])
{
    return snprintf(out, STORE_FILE_PATH, "%s/files/%s", m->folder, store_file(m, file)->name);
}

/* ---- what was seen to be good ---- */

static bool bit_get(const uint8_t *bits, uint32_t i)
{
    return bits[i / 8] >> i % 8 & 1;
}
static void bit_set(uint8_t *bits, uint32_t i)
{
    bits[i / 8] |= (uint8_t)(1u << i % 8);
}
static void bit_clear(uint8_t *bits, uint32_t i)
{
    bits[i / 8] &= (uint8_t) ~(1u << i % 8);
}

static struct store_stamp stamp_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return (struct store_stamp){0};
    return (struct store_stamp){(int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                                (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
                                (uint64_t)st.st_size};
}

/* Whoever else wrote to the file: what was seen in it is not known any more. */
static void stamp_compare(struct store_model *m, uint64_t file, const char *path)
{
    struct store_stamp now = stamp_of(path), *then = &m->stamps[file];
    if (now.modified_ns == then->modified_ns && now.changed_ns == then->changed_ns &&
        now.bytes == then->bytes)
        return;
    for (uint32_t i = 0; i < m->manifest.chunks.count; i++)
        if (store_chunk(m, i)->file == file)
            bit_clear(m->checked, i);
    *then = now;
}

/* What a borrowed file is a link to, for people. */
static const char *file_source(const char *path, char *source, size_t size)
{
    ssize_t n = readlink(path, source, size - 1);
    source[n > 0 ? n : 0] = '\0';
    return n > 0 ? source : path;
}

int store_write_check(const struct store_model *m, const char *path, struct err *e)
{
    char source[STORE_FILE_PATH];
    if (!m->borrowed)
        return 0;
    return err_set(e, HP_EIO,
                   "%s: the file has changed since it was opened; begin anew with what it is now",
                   file_source(path, source, sizeof source));
}

int store_chunk_write(struct store_model *m, uint32_t chunk, const uint8_t *bytes, struct err *e)
{
    const struct manifest_chunk *c = store_chunk(m, chunk);
    char path[STORE_FILE_PATH];
    store_file_path(m, c->file, path);
    if (!vector_reserve(m->unsaid, m->unsaid_capacity, m->n_unsaid + 1))
        return err_no_memory(e, "the names of chunks");
    stamp_compare(m, c->file, path);
    int rc = store_write_check(m, path, e);
    rc = rc < 0 ? rc : store_file_write(path, 0, c->offset, bytes, c->bytes, false, e);
    m->stamps[c->file] = stamp_of(path);
    if (rc < 0)
        return rc;
    m->unsaid[m->n_unsaid++] = chunk;
    bit_set(m->have, chunk);
    bit_set(m->checked, chunk);
    m->chunk_bytes += c->bytes;
    return 0;
}

int store_chunk_read(const struct store_model *m, uint32_t chunk, uint8_t *out, struct err *e)
{
    const struct manifest_chunk *c = store_chunk(m, chunk);
    char path[STORE_FILE_PATH];
    store_file_path(m, c->file, path);
    return store_range_read(path, c->offset, out, c->bytes, e);
}

int store_chunk_check(struct store_model *m, uint32_t chunk, uint8_t *scratch, struct err *e)
{
    const struct manifest_chunk *c = store_chunk(m, chunk);
    char path[STORE_FILE_PATH], source[STORE_FILE_PATH];
    struct err why = {0};
    store_file_path(m, c->file, path);
    stamp_compare(m, c->file, path);
    if (bit_get(m->checked, chunk))
        return 0;
    int rc = store_range_read(path, c->offset, scratch, c->bytes, &why);
    if (rc < 0)
        return err_set(e, rc == HP_EIO ? rc : HP_ECORRUPT, "chunk %u of %s: %s", chunk,
                       m->manifest.name, why.text);
    struct digest d = digest_of(scratch, c->bytes);
    if (memcmp(d.bytes, c->digest.data, DIGEST_BYTES) != 0)
        return err_set(e, HP_ECORRUPT, "chunk %u of %s: bytes %llu to %llu of %s are not what %s",
                       chunk, m->manifest.name, (unsigned long long)c->offset,
                       (unsigned long long)(c->offset + c->bytes - 1),
                       m->borrowed ? file_source(path, source, sizeof source) : path,
                       m->borrowed ? "they were when it was opened" : "was written there");
    bit_set(m->checked, chunk);
    return 0;
}

void store_chunks_trust(struct store_model *m)
{
    for (uint32_t i = 0; i < m->manifest.chunks.count; i++) {
        bit_set(m->have, i);
        bit_set(m->checked, i);
    }
    for (uint64_t file = 0; file < m->manifest.files.count; file++) {
        char path[STORE_FILE_PATH];
        store_file_path(m, file, path);
        m->stamps[file] = stamp_of(path);
    }
}

/* ---- which chunks are there ---- */

/* A record is the chunk's number and a number made of it, so that a torn or foreign one is seen. */
static uint32_t record_check(uint32_t chunk)
{
    return chunk * UINT32_C(2654435761) ^ UINT32_C(0x68706373);
}

static void record_append(struct buffer *records, uint32_t chunk)
{
    uint32_t record[2] = {chunk, record_check(chunk)};
    buffer_append(records, record, sizeof record);
}

static int files_sync(const struct store_model *m, struct err *e)
{
    uint64_t done = UINT64_MAX;
    for (size_t i = 0; i < m->n_unsaid; i++) {
        uint64_t file = store_chunk(m, m->unsaid[i])->file;
        if (file == done)
            continue;
        char path[STORE_FILE_PATH];
        store_file_path(m, file, path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        int rc = fd < 0 || fdatasync(fd) != 0 ? fs_error(path, "write", e) : 0;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return rc;
        done = file;
    }
    return 0;
}

/* Writes records after those that are good: what a failed attempt has left there is cut off first,
 * or all that follow would be unreadable. */
static int have_write(struct store_model *m, const struct buffer *records, struct err *e)
{
    char path[STORE_FILE_PATH];
    snprintf(path, sizeof path, "%s/have", m->folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    bool good = fd >= 0 && ftruncate(fd, (off_t)m->said_bytes) == 0 &&
                bytes_write(fd, false, m->said_bytes, records->data, records->size) == 0 &&
                fdatasync(fd) == 0;
    int rc = good ? 0 : fs_error(path, "write", e);
    if (fd >= 0)
        close(fd);
    if (rc == 0)
        m->said_bytes += records->size;
    return rc;
}

static void have_cut(const struct store_model *m)
{
    char path[STORE_FILE_PATH];
    snprintf(path, sizeof path, "%s/have", m->folder);
    if (truncate(path, (off_t)m->said_bytes) != 0 && errno != ENOENT)
        log_warn("store", "have_not_cut", "file=%s reason=\"%s\"", path, strerror(errno));
}

/* Takes chunks back out of what is said; those that stay are said anew. */
static void have_rewrite(struct store_model *m)
{
    struct buffer records = {0};
    struct err e = {0};
    for (size_t i = 0; i < m->n_unsaid; i++) /* said when they are durable */
        bit_clear(m->have, m->unsaid[i]);
    for (uint32_t i = 0; i < m->manifest.chunks.count; i++)
        if (bit_get(m->have, i))
            record_append(&records, i);
    m->said_bytes = 0;
    have_cut(m);
    if (records.failed || have_write(m, &records, &e) < 0)
        log_warn("store", "have_not_written", "model=\"%s\" text=\"%s\"", m->manifest.name,
                 records.failed ? "no memory" : e.text);
    for (size_t i = 0; i < m->n_unsaid; i++)
        bit_set(m->have, m->unsaid[i]);
    buffer_free(&records);
}

static void chunk_clear(struct store_model *m, uint32_t chunk)
{
    if (bit_get(m->have, chunk) && !m->borrowed)
        m->chunk_bytes -= store_chunk(m, chunk)->bytes;
    bit_clear(m->have, chunk);
    bit_clear(m->checked, chunk);
}

void store_chunk_forget(struct store_model *m, uint32_t chunk)
{
    chunk_clear(m, chunk);
    for (size_t i = 0; i < m->n_unsaid; i++)
        if (m->unsaid[i] == chunk)
            m->unsaid[i--] = m->unsaid[--m->n_unsaid];
    have_rewrite(m);
}

void store_chunk_leave(struct store_model *m, uint32_t chunk)
{
    chunk_clear(m, chunk);
    m->unread = true;
}

int store_model_sync(struct store_model *m, struct err *e)
{
    if (!m->n_unsaid)
        return 0;
    struct buffer records = {0};
    for (size_t i = 0; i < m->n_unsaid; i++)
        record_append(&records, m->unsaid[i]);
    int rc = records.failed ? err_set(e, HP_ENOMEM, "no memory for the names of chunks")
                            : files_sync(m, e);
    rc = rc < 0 ? rc : have_write(m, &records, e);
    buffer_free(&records);
    if (rc == HP_ENOMEM)
        return rc; /* tried again later */
    /* The system tells a failed write once, and then calls the same pages clean. */
    for (size_t i = 0; rc < 0 && i < m->n_unsaid; i++)
        chunk_clear(m, m->unsaid[i]);
    if (rc < 0)
        have_cut(m);
    m->n_unsaid = 0;
    return rc;
}

int store_have_read(struct store_model *m, struct err *e)
{
    char path[STORE_FILE_PATH];
    snprintf(path, sizeof path, "%s/have", m->folder);
    FILE *f = fopen(path, "rbe");
    uint32_t record[2];
    if (!f)
        return errno == ENOENT ? 0 : fs_error(path, "read", e);
    m->said_bytes = 0;
    while (fread(record, sizeof record, 1, f) == 1 && record[1] == record_check(record[0]) &&
           record[0] < m->manifest.chunks.count) {
        if (!bit_get(m->have, record[0]))
            m->chunk_bytes += store_chunk(m, record[0])->bytes;
        bit_set(m->have, record[0]);
        m->said_bytes += sizeof record;
    }
    int rc = ferror(f) ? fs_error(path, "read", e) : 0;
    fclose(f);
    if (rc == 0)
        have_cut(m);
    m->unread = rc < 0;
    return rc;
}
